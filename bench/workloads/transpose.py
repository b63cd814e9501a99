"""Transpose of a square fp64 matrix: no arithmetic at all, so it is placed in byte/s.

B = A^T        F = 0        Q = 8 (n^2 + n^2) byte
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.gemv import odd_lines
from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import TURN, drain, prefetch, turn, write_out
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp64"]
LINE = LINE_BYTES // ITEM
HIGH, WIDE = 64, 32
"""Items of a tile: runs of 256 byte in and 512 byte out, 16 KiB in the scratch."""


def tile(destination: Any, source: Any, scratch: Any, n: Any, high: Any, wide: Any, past: Any) -> None:
    """Turn `high` x `wide` items of A in the scratch and write its rows out to B, past the caches or not.

    The tile to the right is asked for meanwhile: its runs are too short for a hardware prefetcher.
    """
    pitch = n * ITEM
    line = high * ITEM
    for i in range(0, high, TURN):
        for k in range(i, i + TURN):
            prefetch(source + k * pitch + wide * ITEM, wide * ITEM)
        for j in range(0, wide, TURN):
            turn(scratch + j * line + i * ITEM, line, source + i * pitch + j * ITEM, pitch)
    for j in range(wide):
        write_out(destination + j * pitch, scratch + j * line, line, past)


def chunk(args: Any) -> None:
    """A, B, scratch tile, n, first and last row of A, kind of store."""
    n = args[4]
    for i in range(args[5], args[6], HIGH):
        for j in range(0, n, WIDE):
            high, wide = min(HIGH, args[6] - i), min(WIDE, n - j)
            tile(args[2] + (j * n + i) * ITEM, args[1] + (i * n + j) * ITEM, args[3], n, high, wide, args[7])
    drain()


def work(sizes: Mapping[str, int]) -> Work:
    """No FLOP; A read once, B written once."""
    items = sizes["n"] ** 2
    return Work.at("DRAM", 0.0, reads=ITEM * items, writes=ITEM * items)


def fit(room: Room) -> dict[str, int]:
    """A and B together of the cold bytes."""
    return {"n": odd_lines(math.sqrt(room.cold_bytes / (2 * ITEM)))}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """A cut by rows, a cache line of B at a time."""
    from bench.workloads import compiled

    n = sizes["n"]
    held = Operands({"A": ITEM * n * n, "B": ITEM * n * n, "scratch": ITEM * HIGH * WIDE * threads})
    held.fill(run, threads, {"A": (-1.0, 1.0), "B": (-1.0, 1.0), "scratch": (0.0, 1.0)}, "fp64")
    ends = (held.address("A"), held.address("B"))
    parts = [
        (*ends, held.address("scratch", t * HIGH * WIDE, ITEM), n, first, last, run.past)
        for t, (first, last) in enumerate(shares(n, threads, LINE))
    ]
    a, b = (held.view(name, np.float64, (n, n)) for name in "AB")
    return Ready(
        "native",
        "both matrices together exceed the caches",
        expected=lambda: a.T,
        result=lambda: b,
        address=compiled.address(chunk, tile),
        blocks=blocks(parts),
        keep=(held,),
    )


TRANSPOSE = Workload(
    name="transpose",
    precision="fp64",
    formula="F = 0, Q = 8 (n^2 + n^2)",
    source="each item read once and written once",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"n": 72},
    grain={"n": LINE},
    terms=lambda sizes: 1,
    build=build,
)
