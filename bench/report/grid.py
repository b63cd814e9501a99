"""The unboxed tables and section titles that every part of the printed report is made of."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from bench.report.checks import MARK
from bench.report.roofs import NOT_CONVERGED
from bench.report.units import UNKNOWN

Side = Literal["left", "right"]
NUMBERS: Side = "right"
WORDS: Side = "left"

LONG_WORD = 22
"""Letters beyond which a word itself may go on in the next line; a number never does."""

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


class Whole(Table):
    """An unboxed table that loses no letter, however narrow the page.

    Words wrap at their spaces, where that adds the fewest lines; numbers never do. Where that does not make
    room the columns go on in a further table below, with the words at the front again.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for columns in _blocks(self.columns, options.max_width):
            widths = _widths(columns, options.max_width)
            block = _unboxed(Table())
            for column, width in zip(columns, widths, strict=True):
                block.add_column(column.header, justify=column.justify, overflow="fold", width=width)
            for cells in zip(*(column.cells for column in columns), strict=True):
                block.add_row(*cells)
            yield block


def table(columns: Sequence[tuple[str, Side]], lines: Iterable[Sequence[str]]) -> Table:
    """A table without the columns that are empty in every line."""
    lines = list(lines)
    keep = [i for i in range(len(columns)) if any(line[i] not in ("", UNKNOWN) for line in lines)]
    grid = _unboxed(Whole())
    for name, side in (columns[i] for i in keep):
        grid.add_column(name, justify=side)
    for line in lines:
        grid.add_row(*(Text(line[i], style=_style(line[i])) for i in keep))
    return grid


def _unboxed(grid: Table) -> Table:
    grid.box, grid.pad_edge, grid.padding, grid.header_style = None, False, (0, 1, 0, 0), "dim"
    return grid


def _blocks(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns cut into tables of at most `width`, each with the words at the front."""
    front = next((i for i, column in enumerate(columns) if column.justify == NUMBERS), 1)
    names, blocks = list(columns[:front]), [list(columns[:front])]
    for column in columns[front:]:
        wider = [*blocks[-1], column]
        if len(wider) > len(names) + 1 and _taken(map(_least, wider)) > width:
            blocks.append([*names, column])
        else:
            blocks[-1] = wider
    return blocks


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column: the one shrinks that costs the fewest lines, of equals the widest."""
    widths = [max(map(cell_len, _texts(column))) for column in columns]
    least = [_least(column) for column in columns]
    while _taken(widths) > width and max(widths) > 1:
        open_ = [i for i, own in enumerate(widths) if own > least[i]] or [widths.index(max(widths))]
        ways = {i: [own - (j == i) for j, own in enumerate(widths)] for i in open_}
        best = min(open_, key=lambda i: (_height(columns, ways[i]), -widths[i]))
        widths = ways[best]
    return widths


def _taken(widths: Iterable[int]) -> int:
    """Columns of text with a space between neighbours."""
    widths = list(widths)
    return sum(widths) + len(widths) - 1


def _least(column: Column) -> int:
    """The width at which a column still breaks neither a number nor a word of usual length."""
    texts = _texts(column)
    if column.justify == NUMBERS:
        return max(map(cell_len, texts))
    return min(LONG_WORD, max((cell_len(word) for text in texts for word in text.split()), default=1))


def _height(columns: Sequence[Column], widths: Sequence[int]) -> int:
    """Lines that the rows, head and all, take at these widths."""
    texts = (_texts(column) for column in columns)
    cells = ([_lines(text, own) for text in column] for column, own in zip(texts, widths, strict=True))
    return sum(max(row) for row in zip(*cells, strict=True))


def _lines(text: str, width: int) -> int:
    return 1 if cell_len(text) <= width else len(textwrap.wrap(text, width, break_on_hyphens=False))


def _texts(column: Column) -> list[str]:
    """The head of a column and its cells."""
    return [str(text) for text in (column.header, *column.cells)]


def _style(cell: str) -> str:
    return "yellow" if any(word in cell for word in ALARMS) else "green" if cell == "ok" else ""
