"""mixbench (E. Konstantinidis, ekondis/mixbench): the console output of all its forms, CUDA to CPU.

A block opens with the device ("Device: NAME"), then come two header lines and one line per number of
compute iterations. Columns, four a precision: Flops/byte (FLOP/byte), ex.time (ms), GFLOPS (1e9 FLOP/s),
GB/sec (1e9 byte/s); a multiply-add counts 2 FLOP. Read-only kernels read the buffer once; alternating
ones trade reads and writes for arithmetic at equal length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.fitting.curves import rate_unit
from bench.importers.rows import COARSE, Refusal, Rows, attempt, number, per_byte, point
from bench.importers.sweep import Imported, Refused, Stated, Sweep
from bench.profile.records import CurvePoint

NAME, SOURCE = "mixbench", "mixbench, ekondis/mixbench"

HEADER = "Compute iters,"
COLUMNS = 4
"""Cells of one precision: intensity, time, rate, bandwidth."""

PRECISIONS = {"single": "fp32", "double": "fp64", "half": "fp16", "integer": "int32"}
UNSUPPORTED = re.compile(r"Warning:\s+(\w+) precision computations are not supported", re.IGNORECASE)
MODE = re.compile(r"mixbench(?:-\w+)?/([\w-]+)")
THEORY = re.compile(r"(Compute throughput|Memory bandwidth):\s+([0-9.]+)\s+(?:GFlops|GB/sec)")
"""What the tool computes from clock and units, fp32 (1e9 FLOP/s), and from the bus (1e9 byte/s)."""


def recognises(text: str) -> bool:
    """Whether the two header lines of a table are in it."""
    return HEADER in text and "Experiment ID," in text


@dataclass
class Block:
    """One run of the tool within a file: what it says of itself, and the rows of each precision."""

    device: str = ""
    mode: str = ""
    absent: list[str] = field(default_factory=list)
    groups: list[tuple[int, str]] = field(default_factory=list)
    width: int = 0
    rows: dict[str, Rows] = field(default_factory=dict)
    coarse: set[str] = field(default_factory=set)
    theory: list[Stated] = field(default_factory=list)

    def opens(self, header: str) -> None:
        """Which precision stands in which column, by the line above the units."""
        cells = [cell.strip() for cell in header.split(",")]
        titled = [(i, cell) for i, cell in enumerate(cells) if cell.endswith(("ops", "operations"))]
        self.groups = [(i, _precision(cell)) for i, cell in titled]
        self.width = self.groups[-1][0] + COLUMNS if self.groups else 0
        self.rows = {name: Rows() for _, name in self.groups}

    def take(self, row: int, cells: Sequence[str]) -> None:
        """One line of the table: a point or a refusal for every precision."""
        for start, name in self.groups:
            part = cells[start : start + COLUMNS]
            self.rows[name].take(row, ", ".join(part), partial(self._point, part, name))

    def _point(self, cells: Sequence[str], name: str) -> CurvePoint:
        if name in self.absent:
            raise Refusal(f"missing precision: the file says that {name} is not supported there")
        x, took = number(cells[0], "FLOP/byte"), number(cells[1], "time", "ms")
        rate, bandwidth = number(cells[2], "GFLOPS", "GFLOP/s"), number(cells[3], "GB/sec", "GB/s")
        if took.rounding > COARSE:
            self.coarse.add(name)
        return point(x, rate, bandwidth, took.value)

    def sweeps(self) -> tuple[Sweep, ...]:
        """A sweep for every precision of the block."""
        made = []
        for _, name in self.groups:
            rows = self.rows[name]
            points = per_byte(rows.points) if name in self.coarse else tuple(rows.points)
            made.append(Sweep("", self.device, name, self.mode, rate_unit(name), points, tuple(rows.refused)))
        return tuple(made)


def _precision(title: str) -> str:
    first = title.split()[0].lower() if title.split() else ""
    return PRECISIONS.get(first, title.removesuffix(" ops").lower())


def read(text: str, path: Path) -> Imported:
    """The sweeps of every table in the text, a precision each; `path` is not opened."""
    block, before = Block(), ""
    blocks: list[Block] = []
    refused: list[Refused] = []
    for row, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.split(",")]
        if line.startswith(HEADER):
            block.opens(before)
            blocks.append(block)
        elif blocks and blocks[-1] is block and cells[0].isdigit():
            if attempt(row, line, partial(_whole, cells, block.width), refused):
                block.take(row, cells)
        elif blocks and blocks[-1] is block:
            block = Block()
        _describe(block, line)
        before = line
    sweeps = tuple(sweep for block in blocks for sweep in block.sweeps())
    device = " / ".join(dict.fromkeys(block.device for block in blocks if block.device))
    stated = dict.fromkeys(theory for block in blocks for theory in block.theory)
    return Imported(NAME, SOURCE, device, sweeps, tuple(stated), tuple(refused))


def _whole(cells: Sequence[str], width: int) -> bool:
    if len(cells) != width:
        raise Refusal(f"{len(cells)} columns where the header has {width}")
    return True


def _describe(block: Block, line: str) -> None:
    """What the lines above a table say: device, kind of kernel, precisions that the device lacks."""
    key, _, value = line.partition(":")
    if key.strip() == "Device" and value.strip():
        block.device = value.strip()
    if found := MODE.search(line):
        block.mode = found[1]
    if (found := THEORY.search(line)) and float(found[2]) > 0:
        pi = found[1].startswith("Compute")
        name, quantity = ("theoretical fp32", "pi") if pi else ("theoretical DRAM", "beta")
        block.theory.append(Stated(name, quantity, 1e9 * float(found[2])))
    if found := UNSUPPORTED.search(line):
        block.absent.append(_precision(found[1]))
