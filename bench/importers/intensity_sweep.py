"""Intensity sweeps as roofline-benchmark (T. Grützmacher, thoasm/roofline-benchmark) prints them.

A header line "Precision; [GOP/s]; BW [GB/s]; time [ms]; computations; data [Bytes]; Outer Its; Inner Its;
Comp Its; # Elements" (the last column is missing in older files), then a row a setting, cells parted by
semicolons. Units: 1e9 operation/s, 1e9 byte/s, ms, operations and bytes of one repetition. Precision
double, float or intN, or Ac<D, arithmetic, storage> of the accessor of Ginkgo, in one letter each; pN is
a posit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.fitting.curves import rate_unit
from bench.importers.rows import Number, Refusal, Rows, attempt, finest, number, quotient
from bench.importers.sweep import Imported, Refused, Sweep
from bench.profile.records import CurvePoint, Interval

NAME, SOURCE = "intensity-sweep", "roofline-benchmark, thoasm/roofline-benchmark"

COLUMNS = 9
"""Of the oldest files."""

TYPES = {"double": "fp64", "float": "fp32", "half": "fp16", "std::int32_t": "int32"}
LETTERS = {
    "d": "fp64",
    "f": "fp32",
    "h": "fp16",
    "i": "int32",
    "s": "int16",
    "p32": "posit32",
    "p16": "posit16",
}
ACCESSOR = re.compile(r"Ac<(\d+),\s*(\w+),\s*(\w+)>")


def recognises(text: str) -> bool:
    """Whether its header line is in it."""
    return any(_is_header(line) for line in text.splitlines())


def _is_header(line: str) -> bool:
    cells = line.split(";")
    return (
        len(cells) >= COLUMNS and cells[0].strip() == "Precision" and "OP" in cells[1] and "/s]" in cells[1]
    )


def read(text: str, path: Path) -> Imported:
    """A sweep for every precision and loop shape (outer and inner iterations); `path` is not opened.

    The device is never named. Rows are the lines with semicolons behind a header.
    """
    groups: dict[tuple[str, str], Rows] = {}
    refused: list[Refused] = []
    width = 0
    for row, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.split(";")]
        if _is_header(line):
            width = len(cells)
        elif width and len(cells) > 1:
            key = attempt(row, line, partial(_group, cells, width), refused)
            if key:
                groups.setdefault(key, Rows()).take(row, line, partial(_point, cells))
    sweeps = tuple(
        Sweep(shape, "", precision, "", rate_unit(precision), tuple(rows.points), tuple(rows.refused))
        for (precision, shape), rows in groups.items()
    )
    return Imported(NAME, SOURCE, "", sweeps, refused=tuple(refused))


def _group(cells: Sequence[str], width: int) -> tuple[str, str]:
    if len(cells) != width:
        raise Refusal(f"{len(cells)} columns where the header has {width}")
    if not cells[0]:
        raise Refusal("missing precision: the first column is empty")
    return _precision(cells[0]), f"{cells[6]}x{cells[7]} its"


def _precision(cell: str) -> str:
    found = ACCESSOR.fullmatch(cell)
    if not found:
        return TYPES.get(cell, cell)
    arithmetic, storage = (LETTERS.get(letter, letter) for letter in (found[2], found[3]))
    return f"{arithmetic} stored as {storage}"


def _point(cells: Sequence[str]) -> CurvePoint:
    stated, took = number(cells[1], "GOP/s", "GFLOP/s"), number(cells[3], "time", "ms")
    flops, moved = number(cells[4], "computations"), number(cells[5], "data")
    exact = quotient(Number(flops.value, 0.0), took)
    if abs(exact.value / stated.value - 1) > 0.02 + exact.rounding + stated.rounding:
        raise Refusal("computations over time is not GOP/s")
    rate = finest(stated, exact).value
    return CurvePoint(flops.value / moved.value, Interval(rate), flops.value, moved.value, flops.value / rate)
