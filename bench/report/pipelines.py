"""The part of the printed report about pipelining: times between two laws, the best k, what was hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.profile.records import Curve, Profile
from bench.report import grid
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.units import UNKNOWN, duration, number

COLUMNS: tuple[tuple[str, Side], ...] = (
    ("overlap, way, T_c/T_m", WORDS),
    ("T_c", NUMBERS),
    ("T_m", NUMBERS),
    ("serial", NUMBERS),
    ("max law", NUMBERS),
    ("measured", NUMBERS),
    ("chunks", NUMBERS),
    ("predicted", NUMBERS),
    ("ω", NUMBERS),
)

POSSIBLE = (-0.25, 1.25)
"""Overlaps beyond these say that the whole was not measured under the conditions of its parts."""

WIDE_OMEGA = 0.25
"""Half-width of an overlap from which its interval says more than its value."""

SLOWED = "time of moving, of computing while they overlap over that alone, row by row"

BEYOND = 1.0
"""Overlap that no pipeline of two parts exceeds, but by chance."""


def part(profile: Profile) -> Iterator[Text | Table]:
    """A table and what it means; nothing where no pipeline was measured with its parts."""
    curves = [c for c in profile.curves if c.kind == "overlap" and "omega" in c.plateaus]
    if not curves:
        return
    yield Text()
    yield grid.table(COLUMNS, map(_row, curves))
    yield Text(_meaning(curves), style="dim")
    slowed = [_slowed(c.plateaus) for c in curves]
    if any(slowed):
        yield Text(f"{SLOWED}: {'; '.join(told or UNKNOWN for told in slowed)}", style="dim")


def _meaning(curves: Sequence[Curve]) -> str:
    """What the columns are, with the number of visits where the curves say it."""
    visits = {int(c.plateaus["visits"]) for c in curves if "visits" in c.plateaus}
    count = f" over {min(visits)}{f' to {max(visits)}' if len(visits) > 1 else ''} visits" if visits else ""
    alike = any(c.plateaus.get("best_from") != c.plateaus.get("best_to") for c in curves)
    ties = "; in brackets: chunks that cannot be told from the best" if alike else ""
    return f"ω{count}, in each the parts are timed beside the whole{ties}"


def _name(found: Mapping[str, Any]) -> str:
    balance = found["compute_seconds"] / found["movement_seconds"]
    return f"{found['level']} {found['access']}, {number(balance, 2)}x"


def _row(curve: Curve) -> Sequence[str]:
    found = curve.plateaus
    return (
        _name(found),
        duration(found["compute_seconds"]),
        duration(found["movement_seconds"]),
        duration(found["serial_seconds"]),
        duration(found["max_seconds"]),
        duration(found["best_seconds"]),
        chunks(found),
        str(found["predicted_chunks"]),
        omega(found),
    )


def chunks(found: Mapping[str, Any]) -> str:
    """The best number of chunks, with those that do as well."""
    best, first, last = found["best_chunks"], found.get("best_from"), found.get("best_to")
    return str(best) if first == last else f"{best} ({first} to {last})"


def omega(found: Mapping[str, Any]) -> str:
    """The overlap with its half-width; a wide interval by its ends, which are not evenly about it."""
    if not POSSIBLE[0] < found["omega"] < POSSIBLE[1]:
        return "cannot tell"
    low, high = found["omega_low"], found["omega_high"]
    value = min(found["omega"], BEYOND)
    if low is None:
        return f"{value:.2f}"
    half = (high - low) / 2
    return f"{low:.2f} to {min(high, BEYOND):.2f}" if half > WIDE_OMEGA else f"{value:.2f} ± {half:.2f}"


def _slowed(found: Mapping[str, Any]) -> str:
    """By how much moving and computing took longer while they overlapped, "" where nobody looked."""
    told = [f"{found[key]:.2f}" for key in ("move_slowdown", "compute_slowdown") if key in found]
    return ", ".join(told)
