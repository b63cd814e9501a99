"""Softmax over rows in fp32, as between the two products of attention.

    y_j = exp(x_j - max x) / sum of exp(x_k - max x)        F = 5 r c        Q = 4 (r c + r c) byte

Five FLOP an item: comparison, subtraction, exp (counted 1), addition, multiplication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import drain, floats, larger, power_of_two, prefetch, write_out
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp32"]
LINE = LINE_BYTES // ITEM
COLUMNS = 2048
"""Row length: a row and its result (16 KiB) stay in L1 over the three passes."""

PIECE = 256

F = np.float32
ONE, HALF, LOWEST = F(1.0), F(0.5), F(-87.0)
LOG2_E = F(1.0 / math.log(2.0))
LN2_HIGH = F(round(math.log(2.0) * 2**12) / 2**12)  # 12 bits: times an exponent it is exact in fp32
LN2_LOW = F(math.log(2.0) - float(LN2_HIGH))
C2, C3, C4 = F(1 / 2), F(1 / 6), F(1 / 24)
C5, C6, C7 = F(1 / 120), F(1 / 720), F(1 / 5040)


def exponential(x: Any) -> Any:
    """exp(x) for x <= 0 in fp32, below e^-87 = 1.6e-38 taken as that; all arithmetic, so it vectorises.

    x = k ln 2 + r with |r| <= ln 2 / 2, exp(x) = 2^k e^r; the Taylor polynomial of degree 7 leaves
    r^8/8! < 6e-9, a tenth of a rounding. Truncation of t - 1/2 rounds a negative t to the nearest.
    """
    x = larger(x, LOWEST)
    k = np.int32(x * LOG2_E - HALF)
    r = (x - F(k) * LN2_HIGH) - F(k) * LN2_LOW
    tail = C4 + r * (C5 + r * (C6 + r * C7))
    return (ONE + r * (ONE + r * (C2 + r * (C3 + r * tail)))) * power_of_two(k)


def highest(x: Any) -> Any:
    """The largest item of a row."""
    top = x[0]
    for j in range(len(x)):
        top = larger(top, x[j])
    return top


def exponentials(out: Any, x: Any, top: Any, total: Any) -> Any:
    """exp(x_j - top) for a piece of a row, and their sum on top of `total`."""
    for j in range(len(x)):
        e = exponential(x[j] - top)
        out[j] = e
        total += e
    return total


def scale(out: Any, factor: Any) -> None:
    """out_j times `factor`."""
    for j in range(len(out)):
        out[j] = out[j] * factor


def chunk(args: Any) -> None:
    """x, y, scratch row, rows, columns, kind of store.

    A row is made in the scratch, in L1, and written out, past the caches where x and y exceed them. The
    exponentials keep the core busy while memory could rest, so with each piece of them a piece of the next
    row is asked for.
    """
    columns = args[5]
    size = columns * ITEM
    for i in range(args[4]):
        here, there = args[1] + i * size, args[3]
        top = highest(floats(here, columns))
        total = F(0.0)
        for start in range(0, columns, PIECE):
            count, shift = min(PIECE, columns - start), start * ITEM
            prefetch(here + size + shift, count * ITEM)
            total = exponentials(floats(there + shift, count), floats(here + shift, count), top, total)
        scale(floats(there, columns), F(1.0) / total)
        write_out(args[2] + i * size, there, size, args[6])
    drain()


def work(sizes: Mapping[str, int]) -> Work:
    """5 FLOP an item; x read once, y written once."""
    items = sizes["rows"] * sizes["columns"]
    return Work.at("DRAM", 5.0 * items, reads=ITEM * items, writes=ITEM * items)


def fit(room: Room) -> dict[str, int]:
    """x and y together of the cold bytes."""
    return {"rows": max(1, int(room.cold_bytes / (2 * ITEM * COLUMNS))), "columns": COLUMNS}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Cut by rows; one scratch row a thread."""
    from bench.workloads import compiled

    rows, columns = sizes["rows"], sizes["columns"]
    held = Operands(
        {"x": ITEM * rows * columns, "y": ITEM * rows * columns, "scratch": ITEM * columns * threads}
    )
    held.fill(run, threads, {"x": (-8.0, 8.0), "y": (0.0, 1.0), "scratch": (0.0, 1.0)}, "fp32")
    x, y = (held.view(name, np.float32, (rows, columns)) for name in "xy")
    parts = [
        (
            held.address("x", first * columns, ITEM),
            held.address("y", first * columns, ITEM),
            held.address("scratch", t * columns, ITEM),
            last - first,
            columns,
            run.past,
        )
        for t, (first, last) in enumerate(shares(rows, threads))
    ]
    return Ready(
        "native",
        "x and y together exceed the caches",
        expected=lambda: reference(x),
        result=lambda: y,
        address=compiled.address(chunk, highest, exponentials, scale, exact=(exponential,)),
        blocks=blocks(parts),
        keep=(held,),
    )


def reference(x: Any) -> Any:
    """The same by SciPy in fp64."""
    from scipy.special import softmax as by_scipy

    return by_scipy(x.astype(np.float64), axis=1)


SOFTMAX = Workload(
    name="softmax",
    precision="fp32",
    formula="F = 5 r c, Q = 4 (r c + r c)",
    source="per item: maximum, subtraction, exp (counted 1), addition, multiplication; one read, one write",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"rows": 7, "columns": 272},
    grain={"columns": LINE},
    terms=lambda sizes: sizes["columns"],
    build=build,
)
