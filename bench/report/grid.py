"""The unboxed tables and section titles that every part of the printed report is made of."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.report.checks import MARK
from bench.report.roofs import NOT_CONVERGED
from bench.report.units import UNKNOWN

Side = Literal["left", "right"]
NUMBERS: Side = "right"
WORDS: Side = "left"

LONG_NAME, SHORTEST_NAME = 22, 10
"""Letters of words from which they may wrap, and to which their column may shrink."""

ALARMS = (NOT_CONVERGED, "contended", MARK)
"""Words that colour their cell."""


def printed(parts: Iterable[Text | Table], width: int, colour: bool = False) -> str:
    """The parts as text of at most `width` columns, whatever the terminal; it ends with a newline."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def section(name: str, note: str = "") -> Text:
    """The title of a section after a blank line, with a remark beside it."""
    return Text.assemble("\n", (name, "bold cyan"), f"  {note}" if note else "")


def table(columns: Sequence[tuple[str, Side]], lines: Iterable[Sequence[str]]) -> Table:
    """An unboxed table without the columns that are empty in every line.

    Only words wrap: those of the last column, and elsewhere long ones.
    """
    lines = list(lines)
    keep = [i for i in range(len(columns)) if any(line[i] not in ("", UNKNOWN) for line in lines)]
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for i in keep:
        name, side = columns[i]
        last = side == WORDS and i == len(columns) - 1
        long = side == WORDS and max(len(line[i]) for line in lines) > LONG_NAME
        least = 8 if last else SHORTEST_NAME if long else None
        grid.add_column(name, justify=side, no_wrap=not (last or long), min_width=least)
    for line in lines:
        grid.add_row(*(Text(line[i], style=_style(line[i])) for i in keep))
    return grid


def _style(cell: str) -> str:
    return "yellow" if any(word in cell for word in ALARMS) else "green" if cell == "ok" else ""
