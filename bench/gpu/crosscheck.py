"""The cross-check: two implementations of the same kernels, interleaved; 2 % apart is a harness fault.

Each side measures in a process of its own and knows nothing of the other. Sides take turns, and who goes
first changes from pair to pair, so that neither a drifting clock nor a warmer device favours one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.device import Device
from bench.fitting.intervals import clean_rates, interval
from bench.profile.records import Interval, Point, Precision, Sample
from bench.report.units import si
from kernels import FAMILIES

LIMIT = 0.02
"""How far apart two implementations of one kernel may be at the same launch shape."""

PAIRS, MOST_PAIRS = 9, 36
"""Pairs measured at least, and at most while the interval still straddles the limit."""

AGREE, FAULT, UNCLEAR, ABSENT = "agree", "harness fault", "cannot tell", "not compared"

CHAINS = ("fp64", "fp32", "int32")
STREAMED = ("fp64", "fp32")
VARIANTS = {"fma": "8 chains b256", "stream": "v16 l4 b256"}
ARRAYS, SHARE = 6, 0.6  # three arrays on each side; of the free memory
LEAST_BYTES, CACHES = 1 << 28, 4  # of an array: 256 MiB or so many L2 caches

TRY = {
    "fma": "compare both hot loops (`python -m bench audit`) and double the trips: time must double",
    "stream": "repeat with --no-blocker and with arrays of twice the size: the rate must not change",
}


@dataclass(frozen=True)
class Side:
    """One implementation: its name, and what measures a point once; `order` counts the samples of a side."""

    name: str
    measure: Callable[[Point, int], Sample]


@dataclass(frozen=True)
class Compared:
    """One kernel on both sides.

    rates: a pair each, first side's and second side's, in `unit`
    ratio: second over first, the median over pairs with its 95 % interval; None where not compared
    verdict: agree | harness fault | cannot tell | not compared;  sentence: the verdict in words
    facts: of each side's last sample: registers, launch shape, library, held clock, as far as known
    """

    point: Point
    unit: str
    rates: tuple[tuple[float, float], ...]
    ratio: Interval | None
    verdict: str
    sentence: str
    facts: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})


@dataclass(frozen=True)
class CrossCheck:
    """All kernels compared; `limit` as a share, `names` first and second side's."""

    names: tuple[str, str]
    limit: float
    compared: tuple[Compared, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """A sentence for every harness fault."""
        return tuple(one.sentence for one in self.compared if one.verdict == FAULT)


def points(device: Device, variants: Mapping[str, str] = VARIANTS, bytes: int = 0) -> tuple[Point, ...]:
    """What both sides can measure: the chains and the streams, at one launch shape a family.

    variants: a variant by family or by kernel, where the tuned one is known
    bytes: of ONE array; what both processes can hold at a time when omitted
    """
    free = int(device.facts.get("free_bytes") or device.memory_bytes)
    wanted = bytes or max(LEAST_BYTES, CACHES * device.last_level_cache_bytes)
    held = min(wanted, int(SHARE * free / ARRAYS)) // (1 << 20) * (1 << 20)
    return tuple(_points(device, {**VARIANTS, **variants}, max(held, 1 << 20)))


def _points(device: Device, variants: Mapping[str, str], bytes: int) -> Iterator[Point]:
    def supported(names: Sequence[str]) -> list[Precision]:
        return [Precision.of(name) for name in names if device.precisions.get(name, "unknown") == ""]

    whole = partial(Point, scope="device", threads=device.threads)
    for precision in supported(CHAINS):
        yield whole("fma", "fma", variants["fma"], precision)
    for kernel in FAMILIES["stream"]:
        variant = variants.get(kernel.name, variants["stream"])
        store = "none" if kernel.name == "read" else "ordinary"
        for precision in supported(STREAMED):
            where = (precision, "DRAM", kernel.access, store)
            yield whole("stream", kernel.name, variant, *where, sizes={"bytes": bytes})


def cross_check(
    first: Side,
    second: Side,
    wanted: Sequence[Point],
    pairs: int = PAIRS,
    most: int = MOST_PAIRS,
    limit: float = LIMIT,
    say: Callable[[str], None] = lambda text: None,
) -> CrossCheck:
    """Compare both sides at every point, at least `pairs` pairs each; `say` hears each verdict."""
    compared = []
    for point in wanted:
        compared.append(compare(first, second, point, pairs, most, limit))
        say(compared[-1].sentence)
    return CrossCheck((first.name, second.name), limit, tuple(compared))


def compare(
    first: Side, second: Side, point: Point, pairs: int = PAIRS, most: int = MOST_PAIRS, limit: float = LIMIT
) -> Compared:
    """One point on both sides: `pairs` pairs, and so many again while the interval straddles the limit.

    The first pair warms both sides up and is measured again; a sample that is not ok ends the comparison.
    """
    names = first.name, second.name
    rates: list[tuple[float, float]] = []
    for turn in range(-1, most):
        pair = _pair(first, second, point, turn + 1)
        for name, sample in zip(names, pair, strict=True):
            if trouble := _trouble(sample):
                said = f"{_title(point)}: not compared, {name}: {trouble}"
                return Compared(point, _unit(point), tuple(rates), None, ABSENT, said)
        if turn < 0:
            continue
        rates.append((_rate(pair[0]), _rate(pair[1])))
        if len(rates) >= pairs and len(rates) % pairs == 0:
            verdict, _ = judged(rates, limit)
            if verdict != UNCLEAR:
                break
    verdict, ratio = judged(rates, limit)
    facts = _facts(point, pair[0]), _facts(point, pair[1])
    said = sentence(point, names, rates, ratio, verdict, facts, limit)
    return Compared(point, _unit(point), tuple(rates), ratio, verdict, said, facts)


def _pair(first: Side, second: Side, point: Point, turn: int) -> tuple[Sample, Sample]:
    """A sample of each side, the second side's first in every other pair."""
    if turn % 2:
        later = second.measure(point, turn)
        return first.measure(point, turn), later
    return first.measure(point, turn), second.measure(point, turn)


def judged(rates: Sequence[tuple[float, float]], limit: float = LIMIT) -> tuple[str, Interval]:
    """Verdict and ratio: a fault where the whole interval lies beyond the limit, agreement where within."""
    ratio = interval([b / a for a, b in rates])
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    if low > 1 + limit or high < 1 / (1 + limit):
        return FAULT, ratio
    within = low >= 1 / (1 + limit) and high <= 1 + limit
    return (AGREE if within and len(rates) > 1 else UNCLEAR), ratio


def sentence(
    point: Point,
    names: tuple[str, str],
    rates: Sequence[tuple[float, float]],
    ratio: Interval,
    verdict: str,
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    limit: float,
) -> str:
    """The verdict in one sentence: which kernel, both figures, what differs, what to try."""
    middle = [si(median(r[side] for r in rates), _unit(point), 4) for side in (0, 1)]
    figures = [f"{name} {value}" for name, value in zip(names, middle, strict=True)]
    apart = f"{100 * (ratio.value - 1):+.1f} % ({_percent(ratio.low)} to {_percent(ratio.high)})"
    said = f"{_title(point)}: {figures[0]}, {figures[1]}, {apart}: {verdict}"
    if verdict == FAULT:
        return f"{said}, more than {100 * limit:g} % apart; {differences(facts)}; {TRY[point.family]}"
    if verdict == UNCLEAR:
        return f"{said} after {len(rates)} pairs if that is above {100 * limit:g} %: the device is too busy"
    return said


def differences(facts: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str:
    """What the two sides do not share, in words."""
    told = []
    for name, word in (("registers", "registers"), ("launch", "launch"), ("local_bytes", "spilled bytes")):
        one, other = facts[0].get(name), facts[1].get(name)
        if one is not None and one == other:
            told.append(f"{word} {one} both")
        elif one is not None or other is not None:
            told.append(f"{word} {_known(one)} and {_known(other)}")
    clocks = [float(side.get("clock_hz", 0.0)) for side in facts]
    if all(clocks):
        told.append(f"clock {clocks[1] / clocks[0]:.3f} times the first side's")
    return ", ".join(told) or "neither says its registers or its launch"


def table(found: CrossCheck) -> str:
    """All verdicts as text, a line a kernel; faults in full below."""
    first, second = found.names
    head = ("kernel", "precision", "variant", first, second, "ratio", "interval", "verdict")
    rows = [head, *(_row(one) for one in found.compared)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    told = [one.sentence for one in found.compared if one.verdict != AGREE]
    return "\n".join([*lines, *told]) + "\n"


def _row(one: Compared) -> tuple[str, ...]:
    name = (one.point.kernel, one.point.precision.label, one.point.variant)
    if one.ratio is None:
        return (*name, "-", "-", "-", "-", one.verdict)
    middle = [si(median(r[side] for r in one.rates), one.unit, 4) for side in (0, 1)]
    reach = f"{one.ratio.low or one.ratio.value:.4f} to {one.ratio.high or one.ratio.value:.4f}"
    return (*name, *middle, f"{one.ratio.value:.4f}", reach, one.verdict)


def _rate(sample: Sample) -> float:
    """Of the work that the point is about: FLOP/s or OP/s of a chain, byte/s of a stream."""
    work = sample.flops if sample.point.family == "fma" else sample.bytes
    return float(median(clean_rates(work, sample.repetitions).rates))


def _trouble(sample: Sample) -> str:
    """Why a sample has no rate, "" where it has one."""
    if sample.status != "ok":
        return sample.reason or sample.status
    return "" if any(s > 0 for s in sample.repetitions.seconds) else "its timer returned no time above 0 s"


def _facts(point: Point, sample: Sample) -> dict[str, Any]:
    """What may explain a difference."""
    kept = ("registers", "local_bytes", "launch", "library", "amount")
    facts = {name: sample.facts[name] for name in kept if name in sample.facts}
    if clocks := [hz for hz in sample.repetitions.clock_hz if hz]:
        facts["clock_hz"] = median(clocks)
    return facts


def _title(point: Point) -> str:
    return f"{point.kernel} {point.precision.label} ({point.variant})"


def _unit(point: Point) -> str:
    if point.family == "stream":
        return "byte/s"
    return "OP/s" if point.precision.inputs.startswith("int") else "FLOP/s"


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{100 * (value - 1):+.1f}"


def _known(value: Any) -> str:
    return "unknown" if value is None else str(value)
