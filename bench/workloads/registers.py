"""The register tile of the convolution as explicit vectors: a dozen or more accumulators in flight.

    2 vectors of output channels x 6 pixels = 12 accumulators of 16 registers (28 of 32)

A compiler given the textbook loops keeps a single sum per vector and reaches a fraction of pi.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from bench.native.isa import host
from bench.workloads.compiled import I64, counted_loop, extending, vector_at
from bench.workloads.convolution import CHANNELS, ITEM, PIXEL, WINDOW

_ISA = host()
LANES = _ISA.vector_bytes // ITEM
VECTORS = 2
CHANNELS_OF_TILE = VECTORS * LANES
WIDE, NARROW = (14, 4) if _ISA.registers >= 32 else (6, 4)
"""Pixels of a tile; an edge of 14, 28, 42 or 56 is cut into wide tiles and at most three narrow ones."""

DEPTH = WINDOW * CHANNELS
I32, FLOAT = ir.IntType(32), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)


def _sums(builder: Any, x: Any, w: Any, carried: list[Any], pixels: int) -> list[Any]:
    """One term of every accumulator: the weights at `w` times the inputs at `x`, a pixel apart."""
    name = f"llvm.fmuladd.v{LANES}f32"
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    fused = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    offsets = [ir.Constant(I64, v * LANES * ITEM) for v in range(VECTORS)]
    weights = [builder.load(vector_at(builder, builder.add(w, o), VECTOR), align=ITEM) for o in offsets]
    undefined, all_first = (
        ir.Constant(VECTOR, ir.Undefined),
        ir.Constant(ir.VectorType(I32, LANES), [0] * LANES),
    )
    sums = []
    for p in range(pixels):
        place = builder.inttoptr(builder.add(x, ir.Constant(I64, p * PIXEL)), FLOAT.as_pointer())
        first = builder.insert_element(undefined, builder.load(place, align=ITEM), ir.Constant(I32, 0))
        value = builder.shuffle_vector(first, undefined, all_first)
        sums += [builder.call(fused, [value, weights[v], carried[p * VECTORS + v]]) for v in range(VECTORS)]
    return sums


def _tile(pixels: int) -> Any:
    """tile(y, x, w, row pitch) for a fixed number of pixels."""

    def tile(_context: Any, y: Any, x: Any, w: Any, row_pitch: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, corner, weights, pitch = args
            sums = [ir.Constant(VECTOR, [0.0] * LANES)] * (pixels * VECTORS)
            for _ in range(WINDOW):

                def term(i: Any, carried: list[Any], row: Any = corner, w: Any = weights) -> list[Any]:
                    x_at = builder.add(row, builder.mul(i, ir.Constant(I64, ITEM)))
                    w_at = builder.add(w, builder.mul(i, ir.Constant(I64, CHANNELS_OF_TILE * ITEM)))
                    return _sums(builder, x_at, w_at, carried, pixels)

                sums = counted_loop(builder, ir.Constant(I64, DEPTH), 1, term, sums)
                corner = builder.add(corner, pitch)
                weights = builder.add(weights, ir.Constant(I64, DEPTH * CHANNELS_OF_TILE * ITEM))
            for k, value in enumerate(sums):
                p, v = divmod(k, VECTORS)
                place = builder.add(out, ir.Constant(I64, p * PIXEL + v * LANES * ITEM))
                builder.store(value, vector_at(builder, place, VECTOR), align=ITEM)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), code

    return extending.intrinsic(tile)


wide_tile = _tile(WIDE)
narrow_tile = _tile(NARROW)


def chunk(args: Any) -> None:
    """y, x, packed weights, edge, first and last output row; the offset of the repetition shifts all."""
    edge = args[4]
    pitch = (edge + WINDOW - 1) * PIXEL
    narrow = 0
    while (edge - narrow * NARROW) % WIDE:
        narrow += 1
    for row in range(args[5], args[6]):
        image, i = row // edge, row % edge
        x = args[0] + args[2] + (image * (edge + WINDOW - 1) + i) * pitch
        y = args[0] + args[1] + row * edge * PIXEL
        for block in range(CHANNELS // CHANNELS_OF_TILE):
            w = args[0] + args[3] + block * WINDOW * DEPTH * CHANNELS_OF_TILE * ITEM
            to = y + block * CHANNELS_OF_TILE * ITEM
            split = edge - narrow * NARROW
            for j in range(0, split, WIDE):
                wide_tile(to + j * PIXEL, x + j * PIXEL, w, pitch)
            for j in range(split, edge, NARROW):
                narrow_tile(to + j * PIXEL, x + j * PIXEL, w, pitch)
