"""The loop of the pipelining experiment: `rounds` multiply-adds on every item of a chunk, then the total.

Eight vectors are in flight, so that their chains hide the latency of each step; how many steps is given at
run time, so that every intensity shares one code. The totals are loaded from RESULT and stored there: those
of all chunks add up without anything done between them.
"""

from __future__ import annotations

from functools import cache

from bench.native import abi
from bench.native.emitter import PTR, Emitter, Value
from bench.native.isa import Isa

VECTORS, TOTALS = 8, 4


def unit_bytes(isa: Isa) -> int:
    """Bytes of one trip; a chunk is a multiple of it."""
    return VECTORS * isa.vector_bytes


@cache
def chunk_ir(isa: Isa) -> str:
    """IR of `void loop(int64 *args)`: SPAN bytes at A, FACTOR m, ROUNDS steps, totals at RESULT; fp64."""
    e = Emitter(isa, "fp64")
    width, m = isa.vector_bytes, e.splat(abi.FACTOR)
    base, rounds, result = e.word(abi.A, PTR), e.word(abi.ROUNDS), e.word(abi.RESULT, PTR)
    before = [e.load(e.at(result, j * width)) for j in range(TOTALS)]

    def step(_: Value, x: list[Value]) -> list[Value]:
        return [e.fma(v, m, v) for v in x]

    def trip(i: Value, totals: list[Value]) -> list[Value]:
        row = e.at(base, i)
        x = e.loop(rounds, 1, [e.load(e.at(row, v * width)) for v in range(VECTORS)], step)
        return [e.add(total, e.add(x[2 * j], x[2 * j + 1])) for j, total in enumerate(totals)]

    return e.finish(e.loop(e.word(abi.SPAN), VECTORS * width, before, trip))
