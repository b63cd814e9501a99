"""Every way to share a step and every trade on it, in time and memory, and from where each pays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.profile.records import Interval
from bench.trades import rounding
from bench.trades.cost import Cost, Rates, crossing
from bench.trades.machine import Machine
from bench.trades.step import MODES, PIPELINE, Split, Step, alone, data, ring
from kernels.spec import ITEM_BYTES

MOST_DEVICES = 1 << 20
"""Devices from which on nobody has that many."""


@dataclass(frozen=True)
class Row:
    """One way to do the step. alone: s of each resource by itself; error: relative rms, None if none

    overlapped, serial: s under the two laws, intervals at the ends of all rates at once
    gain_overlapped, gain_serial: time of what it is compared with over its own;  held: byte in each memory
    """

    name: str
    alone: dict[str, float]
    overlapped: Interval
    serial: Interval
    gain_overlapped: float
    gain_serial: float
    binds: str
    held: float
    fits: bool | None
    error: float | None = None


@dataclass(frozen=True)
class Threshold:
    """From where something pays: while `measured` is below `value`, same `unit`; None: whatever it is."""

    what: str
    value: float | None
    unit: str
    measured: float

    @property
    def pays(self) -> bool:
        """Whether it pays with what was measured."""
        return self.value is None or self.measured < self.value


@dataclass(frozen=True)
class Question:
    """A step on a machine: how many devices share it in which mode, at which precision; byte of a memory."""

    step: Step
    machine: Machine
    precision: str
    mode: str
    split: Split
    memory: float | None = None

    def spent(self, step: Step) -> Cost:
        """What each device spends on a step in this mode, which means nothing where there is one device."""
        return alone(step) if self.split.devices == 1 else MODES[self.mode](step, self.split)

    @property
    def base(self) -> Cost:
        """What each device spends without any trade."""
        return self.spent(self.step)


@dataclass(frozen=True)
class Offer:
    """A way to do the step and what each device spends; where numbers change their precision and error."""

    name: str
    cost: Cost
    precision: str = ""
    error: float | None = None


def modes(question: Question) -> list[Row]:
    """One device, then every mode for the devices there are, each against one device."""
    one = alone(question.step)
    offers = [Offer("one device", one)]
    for name, mode in MODES.items() if question.split.devices > 1 else ():
        if name != PIPELINE or question.split.devices <= question.step.layers:
            offers.append(Offer(f"{name}-parallel", mode(question.step, question.split)))
    return [_row(question, offer, one) for offer in offers]


def trades(question: Question) -> list[Row]:
    """Every trade for which the machine's rates are known, each against the mode that was asked for."""
    return [_row(question, offer, question.base) for offer in _offers(question)]


def _offers(question: Question) -> Iterator[Offer]:
    yield Offer("recompute layers", question.spent(question.step.recomputed()))
    if question.machine.read:
        yield Offer(f"offload to {question.machine.read.name}", _beyond(question))
    for label, item, error in _smaller(question):
        yield Offer(f"in {label}", question.spent(question.step.in_items_of(item)), label, error)
    for packing in _packings(question):
        yield Offer(packing.name, packed(question, packing), error=rounding.error(packing.repack))


def _beyond(question: Question) -> Cost:
    """Activations go beyond the memory and come back."""
    base = question.base
    kept = question.step.activations / question.split.devices
    return replace(base, kept=kept, held=base.held - kept, moved=base.moved + 2 * kept)


def _smaller(question: Question) -> Iterator[tuple[str, float, float]]:
    """Label, bytes of a number and error of each precision of the same kind with fewer significant bits."""
    now = question.machine.pi[question.precision].precision
    bits = rounding.SIGNIFICANT.get(now.inputs, 0)
    if now.mode == "tf32":
        bits = rounding.SIGNIFICANT["tf32"]
    for label, ceiling in question.machine.pi.items():
        precision = ceiling.precision
        name = precision.mode if precision.mode == "tf32" else precision.inputs
        same = (precision.unit == "library") == (now.unit == "library")
        if same and 0 < rounding.SIGNIFICANT.get(name, 0) < bits and precision.inputs in ITEM_BYTES:
            yield label, float(ITEM_BYTES[precision.inputs]), rounding.type_error(name)


def _packings(question: Question) -> Iterator[rounding.Packing]:
    """Smaller forms of gradients, where gradients travel."""
    if question.mode == "data" and question.split.devices > 1:
        yield from (p for p in rounding.PACKINGS if p.gathered or p.bits / 8 < question.step.item)


def packed(question: Question, packing: rounding.Packing) -> Cost:
    """Gradients summed in a smaller form.

    Each device owns a part: it gets that part packed from all others, sums, packs again and sends the sum to
    all (as many bytes as a ring); of the largest gradients every device gets those of every other.
    """
    base, n = question.base, question.split.devices
    gradients = question.step.gradients
    volume = packing.volume(question.step.parameters, question.step.item)
    sent, messages = ((n - 1) * volume, n - 1.0) if packing.gathered else ring(volume, n)
    handled = volume * (1 + n) if packing.gathered else volume * (3 + 1 / n)
    return replace(
        base, sent=sent, messages=messages, moved=base.moved + packing.passes * gradients + handled
    )


def _row(question: Question, offer: Offer, against: Cost) -> Row:
    cost = offer.cost
    rates, slow, fast = _ends(question, offer.precision or question.precision)
    before = _ends(question, question.precision)[0]
    return Row(
        offer.name,
        cost.seconds(rates),
        Interval(cost.overlapped(rates), cost.overlapped(fast), cost.overlapped(slow)),
        Interval(cost.serial(rates), cost.serial(fast), cost.serial(slow)),
        against.overlapped(before) / cost.overlapped(rates),
        against.serial(before) / cost.serial(rates),
        cost.binds(rates),
        cost.held,
        None if question.memory is None else cost.held <= question.memory,
        offer.error,
    )


def _ends(question: Question, precision: str) -> tuple[Rates, Rates, Rates]:
    value, slow, fast = (question.machine.rates(precision, end) for end in ("value", "slow", "fast"))
    return value, slow, fast


def thresholds(question: Question) -> Iterator[Threshold]:
    """Where the answer turns: devices, the rate of the network, the rate of what lies beyond the memory."""
    rates = question.machine.rates(question.precision)
    base, machine = question.base, question.machine
    if machine.network and base.messages:
        yield from _devices(question, rates)
        for packing in _packings(question):
            turn = crossing(base, packed(question, packing), rates)
            if turn is not None:
                value = None if math.isinf(turn) else turn
                yield Threshold(packing.name, value, "byte/s", rates.network)
    if machine.read:
        yield _instead_of_moving(question, rates)


def _instead_of_moving(question: Question, rates: Rates) -> Threshold:
    """The rate over the link beyond the memory below which recomputing takes less time."""
    moving = _beyond(question)
    at_once = replace(rates, read=math.inf, write=math.inf)
    saved = question.spent(question.step.recomputed()).serial(rates) - moving.serial(at_once)
    turn = 2 * moving.kept * moving.stretch / saved if saved > 0 else None
    there = 2 / (1 / rates.read + 1 / rates.write)
    return Threshold("recompute instead of moving activations", turn, "byte/s", there)


def _devices(question: Question, rates: Rates) -> Iterator[Threshold]:
    """The number of devices from which on the network of data-parallel steps takes longer than the rest."""
    if question.mode != "data":
        return

    def network_binds(n: int) -> bool:
        spent = data(question.step, Split(n, 1)).seconds(rates)
        return spent["network"] >= max(spent["compute"], spent["memory"])

    low, high = 1, MOST_DEVICES
    if not network_binds(high):
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if network_binds(middle) else (middle, high)
    yield Threshold(
        "more devices, which the network still feeds", float(high), "devices", float(question.split.devices)
    )
