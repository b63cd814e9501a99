"""What `fit` says of a file that somebody else measured: whose it is, its roofs, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.fitting.reach import wanting
from bench.importers import load
from bench.importers.refit import ROUNDS, Refit, refit
from bench.importers.sweep import Imported, Refused, Stated
from bench.profile.records import Interval
from bench.report import findings, grid
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.labels import shorten
from bench.report.units import UNKNOWN, bare, bound, counted, number, percent, si
from bench.triage import plain
from bench.triage.refitted import refitted, theories

WIDTH, NAME = 100, 26
"""Columns of the text, and of the names of sweeps."""

MOST_REFUSED = 20
"""Kinds of refused rows that are printed; JSON has every row."""

EXACT, LEAST = 1e-9, 5e-4
"""Shares below which a width is rounding alone, and below which its digits say nothing."""

COLUMNS: tuple[tuple[str, Side], ...] = (
    ("sweep", WORDS),
    ("n", NUMBERS),
    ("π", NUMBERS),
    ("± %", NUMBERS),
    ("seen", NUMBERS),
    ("β", NUMBERS),
    ("± %", NUMBERS),
    ("seen", NUMBERS),
    ("ridge", NUMBERS),
    ("± %", NUMBERS),
    ("ω", NUMBERS),
    ("rms %", NUMBERS),
    ("form", WORDS),
)

STATED: tuple[tuple[str, Side], ...] = (("stated", WORDS), ("value", NUMBERS), ("ridge below it", WORDS))

NOT_OURS = "NOT OURS: measured and printed by another tool, only fitted here"

READING = {
    True: "±: 95 % interval over the rounds that the file names.",
    False: "±: 95 % interval from refits without each fifth of the points: one run says nothing of the next.",
}
PLATEAU = (
    "n: points. seen: median of those beyond 4x the ridge. Ridge in FLOP/byte. GB = 1e9 byte. ω: overlap."
)


def looked_at(path: Path, name: str, drawn: tuple[Path, Path] | tuple[()]) -> tuple[dict[str, Any], str]:
    """JSON and text of `fit` for a file or folder of another tool, drawn where SVG and PNG are named.

    name: of the format, "" to find it.  FileError and UsageError as the importers raise them.
    """
    found = fitted(load(path, name))
    if drawn:
        from bench.report import sweep_plot

        sweep_plot.draw(path, found, *drawn)
    return record(path, found, drawn), render(path, found, drawn)


def fitted(imports: Sequence[Imported]) -> list[tuple[Imported, list[Refit]]]:
    """Everything imported with the fits to its sweeps."""
    return [(found, [refit(sweep) for sweep in found.sweeps]) for found in imports]


def record(
    path: Path, found: Sequence[tuple[Imported, Sequence[Refit]]], drawn: Sequence[Path]
) -> dict[str, Any]:
    """The JSON of the verb for a file of somebody else: SI units, null where a thing is not known."""
    return {
        "ours": False,
        "file": path.as_posix(),
        "imports": [
            {
                "format": imported.format,
                "source": imported.source,
                "device": imported.device or None,
                "remarks": (*imported.remarks, *theories(path, imported)),
                "sweeps": refits,
                "stated": imported.stated,
                "refused": imported.refused,
                "findings": plain(refitted(path, imported, refits)),
            }
            for imported, refits in found
        ],
        "plot": [file.as_posix() for file in drawn],
    }


def render(path: Path, found: Sequence[tuple[Imported, Sequence[Refit]]], drawn: Sequence[Path]) -> str:
    """The same as text of at most 100 columns."""
    parts: list[Text | Table] = [Text(f"{NOT_OURS}\nfile     {path}")]
    parts += [part for imported, refits in found for part in _parts(path, imported, refits)]
    if drawn:
        parts.append(Text(f"\ndrawn: {', '.join(map(str, drawn))}"))
    return grid.printed(parts, WIDTH)


def _parts(path: Path, imported: Imported, refits: Sequence[Refit]) -> Iterator[Text | Table]:
    yield Text(f"format   {imported.format}: {imported.source}")
    yield Text(f"device   {imported.device or 'not named in the file'}")
    remarks = (*imported.remarks, *theories(path, imported))
    yield from (Text(f"note     {remark}", style="yellow") for remark in remarks)
    if refits:
        yield from _roofs(refits)
    yield from findings.of_file(refitted(path, imported, refits))
    if imported.stated:
        yield grid.section("Ceilings that the file states", "not measured here, no interval")
        yield grid.table(STATED, _stated(imported.stated))
    yield from _refused(imported.refused, refits)


def _roofs(refits: Sequence[Refit]) -> Iterator[Text | Table]:
    count = sum(r.chosen is not None for r in refits)
    yield grid.section("Fitted roofs", f"{count} of {len(refits)} sweeps")
    names = shorten([label(r) for r in refits], NAME)
    yield grid.table(COLUMNS, [_line(name, r) for name, r in zip(names, refits, strict=True)])
    for name, one in zip(names, refits, strict=True):
        if said := _said(one):
            yield Text(f"{name}: {said}", style="yellow")
    bases = {r.basis for r in refits if r.basis}
    yield from (Text(READING[basis == ROUNDS], style="dim") for basis in sorted(bases))
    yield Text(PLATEAU, style="dim")


def label(one: Refit) -> str:
    """Precision, mode and name of a sweep on one line."""
    return " · ".join(filter(None, (one.precision or "precision not named", one.mode, one.name)))


def _line(name: str, one: Refit) -> Sequence[str]:
    fit, beside = one.chosen, one.plateaus
    if fit is None:
        return (name, str(len(one.points)), *[UNKNOWN] * (len(COLUMNS) - 2))
    return (
        name,
        str(len(one.points)),
        bound(fit.pi) + si(fit.pi.value, one.unit),
        _width(fit.pi),
        bare(beside.get("pi"), one.unit, fit.pi.value) or UNKNOWN,
        bound(fit.beta) + si(fit.beta.value, "byte/s"),
        _width(fit.beta),
        bare(beside.get("beta"), "byte/s", fit.beta.value) or UNKNOWN,
        bound(fit.ridge) + number(fit.ridge.value),
        _width(fit.ridge),
        UNKNOWN if fit.pi.is_bound or fit.beta.is_bound else number(fit.omega.value, 2),
        _share(fit.rms),
        fit.form + (f" {number(fit.p, 2)}" if fit.p is not None else ""),
    )


def _width(value: Interval) -> str:
    """Half-width of a value in percent."""
    return UNKNOWN if value.half_width is None else _share(value.half_width)


def _share(width: float) -> str:
    """A width or residual in percent without the sign, as far as its digits mean something."""
    if width < LEAST:
        return "exact" if width < EXACT else "< 0.1"
    return percent(width).removesuffix(" %")


def _said(one: Refit) -> str:
    """What the fit says in words, or why there is none."""
    if one.chosen is not None:
        notes = [p.note for p in one.points if p.note]
        counts = [f"{counted(notes.count(note), 'point')} {note}" for note in dict.fromkeys(notes)]
        return "; ".join(filter(None, (one.chosen.limits, *counts)))
    if not one.points:
        return "no row of it can be used"
    return wanting(one.points)


def _stated(ceilings: Sequence[Stated]) -> Iterable[Sequence[str]]:
    peaks = [c for c in ceilings if c.quantity == "pi"]
    for c in ceilings:
        unit = "FLOP/s" if c.quantity == "pi" else "byte/s"
        ridges = (
            "" if c.quantity == "pi" else ", ".join(f"{number(p.value / c.value)} ({p.name})" for p in peaks)
        )
        yield f"{'π' if c.quantity == 'pi' else 'β'} {c.name}", si(c.value, unit), ridges


def _refused(loose: Sequence[Refused], refits: Sequence[Refit]) -> Iterator[Text]:
    """Refused rows by sweep and reason, each kind on one line."""
    rows = [("", row) for row in loose] + [(label(one), row) for one in refits for row in one.refused]
    if not rows:
        return
    kinds: dict[tuple[str, str], list[Refused]] = {}
    for name, row in rows:
        kinds.setdefault((name, row.why), []).append(row)
    yield grid.section("Refused rows", f"{len(rows)}, each with its reason in --json")
    for name, why in list(kinds)[:MOST_REFUSED]:
        yield Text(_kind(name, why, kinds[name, why]))
    if len(kinds) > MOST_REFUSED:
        yield Text(f"and {len(kinds) - MOST_REFUSED} more kinds")


def _kind(name: str, why: str, rows: Sequence[Refused]) -> str:
    first, last = rows[0].row, rows[-1].row
    where = f"line {first}" if len(rows) == 1 else f"{len(rows)} rows, lines {first} to {last}"
    shown = f": {rows[0].text}" if len(rows) == 1 else ""
    return f"{f'{name}, ' if name else ''}{where}: {why}{shown}"
