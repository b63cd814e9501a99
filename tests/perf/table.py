"""The comparison as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.report.units import duration, si
from tests.perf.pairs import Ratio
from tests.perf.rows import Row

METHOD = (
    "ratio: exp of the median over pairs of log(rate of the suite / rate of the reference), all windows of a "
    "comparison interleaved in random order; low: lower end of the two-sided 95 % order-statistic interval "
    "of that median; A/A: the reference against itself in the same turns, C streams with arrays of their own"
)

COLUMNS = [
    "comparison",
    ">thr",
    "reference",
    ">rate",
    "suite",
    ">rate",
    ">ratio",
    ">low",
    ">A/A",
    ">pairs",
    "demanded",
    "verdict",
]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _remarks(row: Row) -> list[str]:
    """What stands below a row: the note, and what a side beside it would have missed."""
    found = [f"{row.name}, {row.threads} thr: {row.note}"] if row.note else []
    for name, ratio in row.beside.items():
        if not name.startswith("I"):
            missed = f"would have missed {1 - ratio.value:.0%} of the peak"
            rate = si(ratio.value * row.reference_rate, row.unit)
            found.append(f"{row.name}, {row.threads} thr: {name} {rate}, {missed}")
    return found


def render(rows: Sequence[Row], console: Console) -> None:
    """Print all rows, the remarks below them and how the numbers came about."""
    title = "The suite against C, a bare BLAS loop and, for its sweep, its own dedicated kernels"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in COLUMNS:
        table.add_column(heading.strip(">"), justify="right" if ">" in heading else "left", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style=None if row.holds else "bold red")
    console.print(table)
    for row in rows:
        for remark in _remarks(row):
            console.print(f"  {remark}", highlight=False)
    if rows:
        shortest = duration(min(row.window for row in rows))
        failed = sum(not row.holds for row in rows)
        console.print(
            f"shortest window {shortest}; {failed} of {len(rows)} comparisons fall short", highlight=False
        )
    console.print(METHOD, highlight=False)


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        str(row.threads),
        row.reference,
        si(row.reference_rate, row.unit),
        row.suite,
        si(row.suite_rate, row.unit),
        _number(row.ratio.value),
        _number(row.ratio.low),
        _number(row.control.value),
        str(row.ratio.pairs),
        row.demand.text,
        row.verdict,
    ]


def document(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """JSON text: `facts`, the method, and every row in base units with its verdict."""
    body = [{**dataclasses.asdict(row), "verdict": row.verdict, "holds": row.holds} for row in rows]
    return json.dumps({**facts, "method": METHOD, "comparisons": body}, indent=1, allow_nan=False) + "\n"


def line(row: Row) -> str:
    """One row as a line of progress."""
    ratio: Ratio = row.ratio
    words = f"{row.name:32s} {row.threads:3d} thr  {ratio.value:.3f} (low {_number(ratio.low)})"
    return f"{words}  A/A {row.control.value:.3f}  {row.verdict}"
