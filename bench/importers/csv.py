"""A plain table in CSV whose header names the unit of each column: the way in for every other tool.

Cells parted by comma, semicolon or tab; a column's unit stands in brackets or at the end of its name:
"intensity [FLOP/byte]", "performance (GFLOP/s)", "GB/s", "time ms". What is needed: two of FLOP/byte,
FLOP/s and byte/s, or FLOP, byte and s. Columns device, precision, mode and sweep part the rows into
sweeps; `round` makes rows of the same setting independent rounds. Lines "# device: NAME" (also precision,
mode) speak for the whole file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.errors import FileError
from bench.fitting.curves import rate_unit
from bench.importers.rounds import pooled
from bench.importers.rows import Number, Refusal, attempt, number, point, product, quotient
from bench.importers.sweep import Imported, Refused, Sweep
from bench.importers.unit_names import unit_of
from bench.profile.records import CurvePoint

NAME, SOURCE = "csv", "a CSV table with units in its header"

ROLES = {
    "FLOP/byte": "intensity",
    "FLOP/s": "rate",
    "byte/s": "bandwidth",
    "FLOP": "flops",
    "byte": "bytes",
    "s": "time",
}
"""What a column is, by the base unit of its header."""

LABELS = ("device", "precision", "mode", "sweep", "round")
EXAMPLE = "'intensity [FLOP/byte],performance [GFLOP/s]'"

COMMENT = re.compile(r"#+\s*(device|precision|mode)\s*[:=]\s*(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """Position and prefixed unit of each column by role, positions of the labels, and the width."""

    columns: Mapping[str, tuple[int, str]]
    labels: Mapping[str, int]
    width: int
    delimiter: str
    twice: str = ""

    @property
    def enough(self) -> bool:
        """Whether rate and intensity follow from the columns, each of which has a unit of its own."""
        known = set(self.columns)
        amounts = {"flops", "bytes"} <= known and bool(known & {"time", "rate", "bandwidth"})
        return not self.twice and (amounts or len(known & {"intensity", "rate", "bandwidth"}) >= 2)


def recognises(text: str) -> bool:
    """Whether its first line that is no comment names units enough."""
    header = _header(text)
    return header is not None and header.enough


def what_lacks(text: str) -> str:
    """Why text that looks like a table is none of ours, for the end of a sentence; "" when it is no table."""
    header = _header(text)
    if header is None or header.width < 2:
        return ""
    if header.twice:
        return f" (two of its columns are in {header.twice}: keep one)"
    if header.columns:
        return f" (of its columns only {', '.join(header.columns)} have a unit; write for example {EXAMPLE})"
    return f" (its header names no units; write for example {EXAMPLE})"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for row, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield row, line


def _header(text: str) -> Header | None:
    first = next((line for _, line in _lines(text)), "")
    delimiter = max(";\t,", key=first.count)
    try:
        cells = _cells(first, delimiter) if delimiter in first else []
    except csv.Error:
        cells = []
    if not cells:
        return None
    columns: dict[str, tuple[int, str]] = {}
    twice = ""
    for position, cell in enumerate(cells):
        if found := unit_of(cell):
            unit, base = found
            twice = base if ROLES[base] in columns else twice
            columns[ROLES[base]] = (position, unit)
    labels = {cell.lower(): position for position, cell in enumerate(cells) if cell.lower() in LABELS}
    return Header(columns, labels, len(cells), delimiter, twice)


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of one line; csv.Error where it is none, as with a cell of a hundred thousand characters."""
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


@dataclass(frozen=True)
class Row:
    """A good row: which sweep it belongs to, its point, and its round."""

    key: tuple[str, str, str, str]
    point: CurvePoint
    round: str


def read(text: str, path: Path) -> Imported:
    """A sweep for every device, precision, mode and name; `path` is only named."""
    header = _header(text)
    if header is None or not header.enough:
        lacks = what_lacks(text) or f": its first line is no header such as {EXAMPLE}"
        raise FileError(f"{path} is no CSV table with units{lacks}")
    said = {
        found[1].lower(): found[2].strip() for line in text.splitlines() if (found := COMMENT.match(line))
    }
    refused: list[Refused] = []
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for number_of_row, line in list(_lines(text))[1:]:
        made = attempt(number_of_row, line, partial(_row, line, header, said), refused)
        if made:
            groups.setdefault(made.key, []).append(made)
    sweeps = tuple(_sweep(key, rows) for key, rows in groups.items())
    device = " / ".join(dict.fromkeys(key[0] for key in groups if key[0]))
    return Imported(NAME, SOURCE, device, sweeps, refused=tuple(refused))


def _row(line: str, header: Header, said: Mapping[str, str]) -> Row:
    try:
        cells = _cells(line, header.delimiter)
    except csv.Error as error:
        raise Refusal(f"not CSV ({error})") from None
    if len(cells) != header.width:
        raise Refusal(f"{len(cells)} columns where the header has {header.width}")
    words = {name: cells[at] for name, at in header.labels.items()}
    if words.get("precision") == "":
        raise Refusal("missing precision: its cell is empty")
    key = (*(words.get(name) or said.get(name, "") for name in LABELS[:3]), words.get("sweep", ""))
    return Row(key, _point(cells, header), words.get("round", ""))  # type: ignore[arg-type]


def _point(cells: Sequence[str], header: Header) -> CurvePoint:
    given = {role: number(cells[at], role, unit) for role, (at, unit) in header.columns.items()}
    flops, moved, took = given.get("flops"), given.get("bytes"), given.get("time")
    x = given.get("intensity") or (quotient(flops, moved) if flops and moved else None)
    rate = given.get("rate") or (quotient(flops, took) if flops and took else None)
    bandwidth = given.get("bandwidth") or (quotient(moved, took) if moved and took else None)
    x = x or quotient(_known(rate), _known(bandwidth))
    rate = rate or product(x, _known(bandwidth))
    return point(x, rate, bandwidth or quotient(rate, x), _seconds(took, flops, rate))


def _seconds(took: Number | None, flops: Number | None, rate: Number) -> float:
    if took:
        return took.value
    return flops.value / rate.value if flops else 0.0


def _known(given: Number | None) -> Number:
    if given is None:
        raise Refusal("neither rate nor bandwidth follows from it")
    return given


def _sweep(key: tuple[str, str, str, str], rows: Sequence[Row]) -> Sweep:
    device, precision, mode, name = key
    points = pooled([(row.point, row.round) for row in rows])
    return Sweep(name, device, precision, mode, rate_unit(precision), points)
