"""The text of `compare`: what is compared, the ceilings side by side, then all that differs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import partial

from bench.compare import (
    CANNOT_TELL,
    FASTER,
    LARGER,
    SAME,
    SLOWER,
    SMALLER,
    Comparison,
    Difference,
    Row,
)
from bench.profile.records import Interval
from bench.report.units import capacity, number, percent, si

WIDTH, NAME = 100, 36
"""Columns of the whole text, and of the names of the ceilings."""


def render(comparison: Comparison) -> str:
    """The whole comparison, lines of at most 100 columns."""
    wrapped = (textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in _lines(comparison))
    return "\n".join(wrapped) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    for side, name, simulated in zip("AB", comparison.names, comparison.simulated, strict=True):
        yield f"{side}: {name}" + (" (SIMULATED)" if simulated else "")
    yield ""
    yield f"{'ceiling':<{NAME}} {'A':>13} {'B':>13} {'B/A':>6} {'95 % interval':>14}  verdict"
    yield from (_row(row) for row in comparison.rows)
    if not comparison.rows:
        yield "no ceiling was measured in both"
    yield ""
    yield _summary(comparison)
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        yield from (f"only in {side}: {name}" for name in names)
    yield from _differences(comparison.differences)
    yield from (f"note: {note}" for note in comparison.notes)


def _row(row: Row) -> str:
    shown = capacity if row.unit == "byte" else partial(si, unit=row.unit)
    values = f"{shown(row.a.value):>13} {shown(row.b.value):>13}"
    doubt = f" ({row.note})" if row.note else ""
    ends = f"{_ends(row.ratio):>14}"
    return f"{row.name:<{NAME}} {values} {_ratio(row.ratio.value):>6} {ends}  {row.verdict}{doubt}"


def _ratio(value: float) -> str:
    """Three decimals near 1, where a step of the last digit matters."""
    return f"{value:.3f}" if value < 10 else number(value)


def _ends(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "none"
    return f"{_ratio(interval.low)} .. {_ratio(interval.high)}"


def _summary(comparison: Comparison) -> str:
    counts = Counter(row.verdict for row in comparison.rows)
    words = (FASTER, SLOWER, LARGER, SMALLER, SAME, CANNOT_TELL)
    said = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
    return (
        f"B against A: {said or 'nothing to compare'} (same: the whole interval lies within "
        f"{percent(comparison.margin)} of 1; cannot tell: it holds 1 and reaches beyond, or there is none)"
    )


def _differences(differences: tuple[Difference, ...]) -> Iterator[str]:
    if not differences:
        yield "the runs differ in nothing that was recorded"
        return
    width = max(len(f"{d.part} {d.what}") for d in differences)
    yield "differences of the runs:"
    for d in differences:
        place = f"{d.part} {d.what}"
        yield f"  {place:<{width}}  A {d.a}   B {d.b}"
