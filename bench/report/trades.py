"""What `trades` prints: ways to share the step, the trades on one of them, and from where each pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.profile.records import Interval
from bench.report.grid import NUMBERS, WORDS, Side, printed, section, table
from bench.report.units import bare, capacity, duration, number, percent, plus_minus, prefix, si
from bench.trades import rows
from bench.trades.cost import RESOURCES
from bench.trades.rows import Question, Row, Threshold

WIDTH = 100

COLUMNS: tuple[tuple[str, Side], ...] = (
    ("", WORDS),
    *((name, NUMBERS) for name in RESOURCES),
    ("step", NUMBERS),
    ("speed-up", NUMBERS),
    ("held", NUMBERS),
    ("error", NUMBERS),
)


def record(question: Question) -> dict[str, Any]:
    """The JSON of the verb: SI units, null where a thing is not known."""
    machine, cut = question.machine, question.split
    return {
        "machine": {
            "precision": question.precision,
            "pi": machine.pi[question.precision].estimate,
            "beta": machine.beta,
            "memory": machine.source,
            "memory_bytes": question.memory,
            **{name: getattr(machine, name) for name in ("network", "read", "write")},
        },
        "step": question.step,
        "mode": question.mode,
        "devices": cut.devices,
        "micro_batches": cut.micro_batches,
        "modes": rows.modes(question),
        "trades": rows.trades(question),
        "thresholds": [{**vars(found), "pays": found.pays} for found in rows.thresholds(question)],
    }


def render(question: Question, simulated: bool) -> str:
    """The same in words, at most 100 columns."""
    count = question.split.devices
    how = "one device" if count == 1 else f"{question.mode}-parallel, {count} devices"
    offers = rows.trades(question)
    parts: list[Text | Table] = [
        *_machine(question, simulated),
        section("Ways to share the step", "time of each resource alone; speed-up over one device"),
        _grid(rows.modes(question)),
        section("Trades", f"each against the step as it is ({how})"),
        _grid(offers),
    ]
    turns = [Text(_turn(found)) for found in rows.thresholds(question)]
    meaning = [Text(line) for line in _meaning(question, offers)]
    if turns:
        turns.insert(0, section("From where each pays", "one resource after the other"))
    return printed([*parts, *meaning, *turns], WIDTH)


def _meaning(question: Question, offers: Sequence[Row]) -> Iterator[str]:
    told = any(row.error is not None for row in offers)
    error = "; error: what a number loses, relative rms" if told else ""
    yield f"step: all resources at once to one after the other{error}"
    if question.memory is not None:
        yield f"held: of {capacity(question.memory)}; with !: does not fit"


def _machine(question: Question, simulated: bool) -> Iterator[Text]:
    machine, step = question.machine, question.step
    mark = "SIMULATED " if simulated else ""
    pi = machine.pi[question.precision].estimate
    beta = f"β {_rate(machine.beta)} ({machine.source})"
    lines = [f"{mark}π {_rate(pi, 'FLOP/s')} ({question.precision}), {beta}"]
    if machine.network:
        known = machine.network
        rate = f"{_rate(known.beta)}, {duration(known.alpha.value)} a message"
        lines.append(f"network: {rate} ({known.source})")
    if machine.read and machine.write:
        ways = dict.fromkeys(f"{_rate(p.beta)} ({p.source})" for p in (machine.read, machine.write))
        lines.append(f"beyond the memory: {', '.join(ways)}")
    lines.append(
        f"step: {si(step.flops, 'FLOP')}, {si(step.moved, 'byte')} moved, "
        f"{_count(step.parameters)} parameters, {si(step.activations, 'byte')} of activations"
    )
    yield from (Text(line) for line in lines)


def _count(value: float) -> str:
    exponent, letter = prefix(value, "FLOP")
    return f"{number(value / 10.0**exponent)} {letter}".rstrip()


def _rate(value: Interval, unit: str = "byte/s") -> str:
    width = value.half_width
    return si(value.value, unit) + (f" {plus_minus(width)}" if width is not None else "")


def _grid(found: Sequence[Row]) -> Table:
    return table(COLUMNS, [_line(row) for row in found])


def _line(row: Row) -> Sequence[str]:
    gains = sorted((row.gain_serial, row.gain_overlapped))
    gain = " to ".join(dict.fromkeys(number(end, 2) for end in gains))
    whole = duration(row.serial.value)
    least = bare(row.overlapped.value, "s", row.serial.value)
    return (
        row.name,
        *(duration(row.alone[name]) if row.alone[name] else "" for name in RESOURCES),
        whole if whole.startswith(f"{least} ") else f"{least} to {whole}",
        f"{gain}x",
        capacity(row.held) + ("" if row.fits is not False else " !"),
        "" if row.error is None else percent(row.error),
    )


def _turn(found: Threshold) -> str:
    if found.value is None:
        return f"{found.what}: pays at any rate"
    limit, now = (
        si(value, found.unit) if found.unit == "byte/s" else f"{value:.0f} {found.unit}"
        for value in (found.value, found.measured)
    )
    return f"{found.what}: below {limit}; here {now}: {'pays' if found.pays else 'does not pay'}"
