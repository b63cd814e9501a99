"""Products whose sums live in registers: explicit vectors, a dozen or more accumulators in flight.

    2 vectors of output columns x 6 rows = 12 accumulators of 16 registers (28 of 32)

A compiler given the textbook loops keeps a single sum per vector and reaches a fraction of pi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from bench.native.isa import host
from bench.workloads.compiled import I64, counted_loop, extending, types, vector_at
from bench.workloads.primitives import drain, prefetch, write_out
from bench.workloads.shapes import CHANNELS, DOUBLE, PIXEL, ROW, SINGLE, SKINNY, WINDOW
from kernels.spec import ITEM_BYTES

_ISA = host()
VECTORS = 2
WIDE, NARROW = (14, 4) if _ISA.registers >= 32 else (6, 4)
"""Rows of a tile. Any multiple of 4, and an edge of 14, 28, 42 or 56, is so many wide and few narrow ones."""

I32 = ir.IntType(32)
SCALAR = {"fp64": ir.DoubleType(), "fp32": ir.FloatType()}


@dataclass(frozen=True)
class Tile:
    """y[r][c] = sum over passes and terms of x[pass][r][term] w[pass][term][c] for a block of columns.

    x_row, y_row: bytes from row to row;  depth: terms of a pass;  passes: how many, `pitch` bytes of
    x apart (an argument); the weights of a block lie one after the other
    """

    precision: str
    rows: int
    x_row: int
    y_row: int
    depth: int
    passes: int

    @property
    def item(self) -> int:
        return ITEM_BYTES[self.precision]

    @property
    def lanes(self) -> int:
        return _ISA.vector_bytes // self.item

    @property
    def columns(self) -> int:
        """Output columns of a block."""
        return VECTORS * self.lanes

    @property
    def vector(self) -> Any:
        return ir.VectorType(SCALAR[self.precision], self.lanes)

    def function(self) -> Any:
        """tile(y, x, w, pitch), addresses and bytes, for use in a chunk loop."""

        def tile(_context: Any, y: Any, x: Any, w: Any, pitch: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                self._emit(builder, *args)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64, types.int64), code

        return extending.intrinsic(tile)

    def _emit(self, builder: Any, y: Any, x: Any, w: Any, pitch: Any) -> None:
        sums = [ir.Constant(self.vector, [0.0] * self.lanes)] * (self.rows * VECTORS)
        step = self.columns * self.item
        for _ in range(self.passes):

            def term(i: Any, carried: list[Any], x: Any = x, w: Any = w) -> list[Any]:
                x_at = builder.add(x, builder.mul(i, ir.Constant(I64, self.item)))
                w_at = builder.add(w, builder.mul(i, ir.Constant(I64, step)))
                return self._term(builder, x_at, w_at, carried)

            sums = counted_loop(builder, ir.Constant(I64, self.depth), 1, term, sums)
            x, w = builder.add(x, pitch), builder.add(w, ir.Constant(I64, self.depth * step))
        for k, value in enumerate(sums):
            row, v = divmod(k, VECTORS)
            place = builder.add(y, ir.Constant(I64, row * self.y_row + v * self.lanes * self.item))
            builder.store(value, vector_at(builder, place, self.vector), align=self.item)

    def _term(self, builder: Any, x: Any, w: Any, carried: list[Any]) -> list[Any]:
        """One term of every sum: the weights at `w` times the inputs at `x`, a row apart."""
        name = f"llvm.fmuladd.v{self.lanes}f{8 * self.item}"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        fused = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        offsets = [ir.Constant(I64, v * self.lanes * self.item) for v in range(VECTORS)]
        weights = [
            builder.load(vector_at(builder, builder.add(w, offset), self.vector), align=self.item)
            for offset in offsets
        ]
        undefined = ir.Constant(self.vector, ir.Undefined)
        first_everywhere = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        sums = []
        for row in range(self.rows):
            place = vector_at(
                builder, builder.add(x, ir.Constant(I64, row * self.x_row)), SCALAR[self.precision]
            )
            first = builder.insert_element(
                undefined, builder.load(place, align=self.item), ir.Constant(I32, 0)
            )
            value = builder.shuffle_vector(first, undefined, first_everywhere)
            sums += [
                builder.call(fused, [value, weights[v], carried[row * VECTORS + v]]) for v in range(VECTORS)
            ]
        return sums


def _pair(precision: str, x_row: int, y_row: int, depth: int, passes: int) -> tuple[Any, Any, int]:
    """The wide and the narrow tile of a shape, and the columns of a block."""
    wide, narrow = (Tile(precision, rows, x_row, y_row, depth, passes) for rows in (WIDE, NARROW))
    return wide.function(), narrow.function(), wide.columns


_wide_pixels, _narrow_pixels, CONVOLUTION_COLUMNS = _pair("fp32", PIXEL, PIXEL, WINDOW * CHANNELS, WINDOW)
BLOCK = WINDOW * WINDOW * CHANNELS * CONVOLUTION_COLUMNS * SINGLE

_wide_rows, _narrow_rows, TALL_COLUMNS = _pair("fp64", ROW, ROW, SKINNY, 1)
AHEAD = 8 * ROW


def convolve(args: Any) -> None:
    """y, x, packed weights, edge, first and last output row; the offset of the repetition shifts all."""
    edge = args[4]
    padded = edge + WINDOW - 1
    pitch = padded * PIXEL
    narrow = 0
    while (edge - narrow * NARROW) % WIDE:
        narrow += 1
    split = edge - narrow * NARROW
    for row in range(args[5], args[6]):
        x = args[0] + args[2] + (row // edge * padded + row % edge) * pitch
        for block in range(CHANNELS // CONVOLUTION_COLUMNS):
            w = args[0] + args[3] + block * BLOCK
            y = args[0] + args[1] + row * edge * PIXEL + block * CONVOLUTION_COLUMNS * SINGLE
            for j in range(0, split, WIDE):
                _wide_pixels(y + j * PIXEL, x + j * PIXEL, w, pitch)
            for j in range(split, edge, NARROW):
                _narrow_pixels(y + j * PIXEL, x + j * PIXEL, w, pitch)


def multiply(args: Any) -> None:
    """C, A, packed B, scratch, rows (a multiple of 4), kind of store. Rows of C are made in the scratch."""
    rows, scratch = args[5], args[4]
    narrow = 0
    while (rows - narrow * NARROW) % WIDE:
        narrow += 1
    split = rows - narrow * NARROW
    i = 0
    while i < rows:
        high = WIDE if i < split else NARROW
        x = args[2] + i * ROW
        prefetch(x + AHEAD, high * ROW)
        for block in range(SKINNY // TALL_COLUMNS):
            y = scratch + block * TALL_COLUMNS * DOUBLE
            w = args[3] + block * SKINNY * TALL_COLUMNS * DOUBLE
            if i < split:
                _wide_rows(y, x, w, 0)
            else:
                _narrow_rows(y, x, w, 0)
        write_out(args[1] + i * ROW, scratch, high * ROW, args[6])
        i += high
    drain()
