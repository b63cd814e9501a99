"""The printed reference figures: one line a device, or one device in full beside what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from bench.reference import DATASHEET, MEASURED, Figure, Name, Reference, load, search
from bench.report import grid
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.units import bare, capacity, number, si

WIDTH = 100

IN_FULL = 3
"""Up to so many devices are printed in full."""

PEAKS = ("fp64", "fp32", "fp32 matrix tf32", "bf16>fp32 matrix", "fp8>fp32 matrix")
"""Peaks of the short table, by the label of the unit that does the work."""

TERA = 1e12
"""Byte/s and FLOP/s in one unit of the short table, which has no room for units in its cells."""

SHORT: tuple[tuple[str, Side], ...] = (
    ("device", WORDS),
    ("chip", WORDS),
    ("DRAM TB/s", NUMBERS),
    ("fp64", NUMBERS),
    ("fp32", NUMBERS),
    ("tf32", NUMBERS),
    ("bf16", NUMBERS),
    ("fp8", NUMBERS),
    ("measured", NUMBERS),
)

FULL: tuple[tuple[str, Side], ...] = (
    ("", WORDS),
    ("datasheet", NUMBERS),
    ("counts", NUMBERS),
    ("measured", NUMBERS),
    ("share", NUMBERS),
    ("figures", NUMBERS),
)

FACTS = ("sm_count", "clock", "cache_size", "memory_capacity")
"""Quantities that say what a device is: the line under its name, no rows."""

RATES = ("π", "β")
"""How the labels of rows begin that come first, in this order; links, waits and collectives follow."""


def looked_up(text: str) -> tuple[dict[str, object], str]:
    """JSON and text of the verb for a device, words of its name, or nothing; UsageError where unknown."""
    tables = load()
    found = search(text, tables)
    return record(found, tables), render(found, tables)


def record(devices: Sequence[str], reference: Reference) -> dict[str, object]:
    """The JSON of the verb: every figure and reported name of the devices."""
    return {
        "devices": [
            {
                "device": device,
                "reported_names": [n for n in reference.names if n.device == device],
                "figures": reference.of(device),
            }
            for device in devices
        ]
    }


def render(devices: Sequence[str], reference: Reference) -> str:
    """The text of the verb: a table of all, or up to three devices in full."""
    parts: list[Text | Table] = []
    if len(devices) <= IN_FULL:
        for device in devices:
            names = [n for n in reference.names if n.device == device]
            parts += _device(device, reference.of(device), names)
    else:
        parts += [grid.table(SHORT, (_line(reference.of(d)) for d in devices))]
    parts += [Text(line, style="dim") for line in _last(devices)]
    return grid.printed(parts, WIDTH)


def _last(devices: Sequence[str]) -> Sequence[str]:
    sheet = "\ndatasheet: dense, at the clock it counts"
    if len(devices) <= IN_FULL:
        return sheet, "sources of every figure: --json, or results/reference/figures.csv"
    peaks = "peaks in TFLOP/s, tf32, bf16 and fp8 of matrix units"
    more = "measured: published figures; one device in full: `python -m bench reference NAME`"
    return f"{sheet}; {peaks}", more


# short


def _line(figures: Sequence[Figure]) -> Sequence[str]:
    sheet = [f for f in figures if f.kind == DATASHEET]
    peaks = {f.precision: f for f in sheet if f.quantity == "peak_flops"}
    dram = next((f for f in sheet if f.quantity == "bandwidth" and f.level == "DRAM"), None)
    cells = [bare(peaks[p].value, peaks[p].unit, TERA) if p in peaks else "" for p in PEAKS]
    count = sum(f.kind == MEASURED for f in figures)
    first = figures[0]
    return (
        first.device,
        first.arch,
        bare(dram.value, dram.unit, TERA) if dram else "",
        *cells,
        str(count) if count else "",
    )


# in full


def _device(device: str, figures: Sequence[Figure], names: Sequence[Name]) -> Iterator[Text | Table]:
    first = figures[0]
    yield grid.section(device, f"{first.vendor} {first.arch}, {first.cc}; {_facts(figures)}")
    told = f"reported as {', '.join(n.reported_name for n in names)}"
    yield Text(
        told if names else "no name of a driver is known to mean it alone: never compared", style="dim"
    )
    yield grid.table(FULL, _rows(figures))
    notes = dict.fromkeys(f"{_label(f)}: {f.note}" for f in figures if f.note)
    yield from (Text(note, style="dim") for note in notes)


def _facts(figures: Iterable[Figure]) -> str:
    """What the device is: SMs, clocks, caches."""
    return ", ".join(
        f"{f.precision_or_level} {_value(f)}".replace("_", " ").strip()
        for f in figures
        if f.quantity in FACTS and f.kind == DATASHEET
    )


def _value(f: Figure) -> str:
    if f.unit == "count":
        return f"{f.value:.0f} {'SMs' if f.vendor == 'NVIDIA' else 'CUs'}"
    if f.unit == "byte":
        return capacity(f.value) if f.quantity == "cache_size" else si(f.value, f.unit)
    return f"{number(f.value)} cycles" if f.unit == "cycle" else si(f.value, f.unit)


def _label(f: Figure) -> str:
    """What a figure is of; the same label for all that may be compared."""
    if f.quantity == "peak_flops":
        return f"π {f.precision}"
    if f.quantity == "bandwidth":
        return " ".join(filter(None, ("β", f.level, f.access)))
    return f"{f.quantity} {f.precision_or_level}".replace("_", " ").replace("link bandwidth", "link")


def _rows(figures: Sequence[Figure]) -> Iterator[Sequence[str]]:
    """One line a label: the datasheet's figure beside the published measurements and their share of it."""
    groups: dict[str, list[Figure]] = {}
    for f in figures:
        if f.quantity not in FACTS:
            groups.setdefault(_label(f), []).append(f)
    for label, group in sorted(groups.items(), key=_place):
        sheet = next((f for f in group if f.kind == DATASHEET), None)
        rows = [f for f in group if f.kind == MEASURED]
        against = sheet or _of_the_whole(group[0], figures)
        yield (
            label,
            _value(sheet) if sheet else "",
            f"{sheet.sm_clock_mhz / 1e3:.2f} GHz" if sheet and sheet.sm_clock_mhz else "",
            _range([_value(f) for f in sorted(rows, key=_size)]),
            _range([f"{f.value / against.value:.2f}" for f in sorted(rows, key=_size)]) if against else "",
            str(len(rows)) if rows else "",
        )


def _place(item: tuple[str, list[Figure]]) -> int:
    return RATES.index(item[0][0]) if item[0][0] in RATES else len(RATES)


def _size(f: Figure) -> float:
    return f.value


def _range(texts: Sequence[str]) -> str:
    """The ends of what is sorted already: "0.80 to 0.97", one of them where both read the same."""
    return " to ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else ""


def _done_by(label: str) -> str:
    """The label of the units on which a library does a precision."""
    if label in ("fp64 library", "fp32 library"):
        return label.removesuffix(" library")
    return label.replace(" library", " matrix")


def _of_the_whole(f: Figure, figures: Iterable[Figure]) -> Figure | None:
    """The datasheet's row that a measurement of an access, or of a library, is a share of."""
    for row in figures:
        if row.kind != DATASHEET or row.quantity != f.quantity:
            continue
        if f.quantity == "bandwidth" and row.level == f.level:
            return row
        if f.quantity == "peak_flops" and row.precision == _done_by(f.precision):
            return row
    return None
