"""Matrix times vector in fp64: the linear layer of a decoder that serves one request.

y = A x, A of m x n        F = 2 m n        Q = 8 (m n + n + m) byte
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import doubles
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp64"]
LINE = LINE_BYTES // ITEM
ROWS = 4  # walked together: four streams keep more lines in flight than one, x is loaded once for all


def four_rows(y: Any, p: Any, q: Any, r: Any, s: Any, x: Any) -> None:
    """Four neighbouring items of y from four rows of A."""
    zero = x[0] - x[0]
    a, b, c, d = zero, zero, zero, zero
    for j in range(len(x)):
        a += p[j] * x[j]
        b += q[j] * x[j]
        c += r[j] * x[j]
        d += s[j] * x[j]
    y[0], y[1], y[2], y[3] = a, b, c, d


def chunk(args: Any) -> None:
    """Addresses of this thread's rows of A, of x and of its part of y; rows (a multiple of 4), columns."""
    n, pitch = args[5], args[5] * ITEM
    x = doubles(args[2], n)
    for i in range(0, args[4], ROWS):
        row = args[1] + i * pitch
        p, q = doubles(row, n), doubles(row + pitch, n)
        r, s = doubles(row + 2 * pitch, n), doubles(row + 3 * pitch, n)
        four_rows(doubles(args[3] + i * ITEM, ROWS), p, q, r, s, x)


def work(sizes: Mapping[str, int]) -> Work:
    """2 m n FLOP; A and x read once, y written once."""
    m, n = sizes["m"], sizes["n"]
    return Work.at("DRAM", 2.0 * m * n, reads=ITEM * (m * n + n), writes=ITEM * m)


def odd_lines(items: float) -> int:
    """Row length near `items`, an odd number of cache lines: neighbouring rows then use other cache sets."""
    return (2 * max(1, round(items / (2 * LINE))) - 1) * LINE


def fit(room: Room) -> dict[str, int]:
    """A nearly square, of the cold bytes."""
    n = odd_lines(math.sqrt(room.cold_bytes / ITEM))
    return {"m": max(ROWS, int(room.cold_bytes / (ITEM * n)) // ROWS * ROWS), "n": n}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """A cut by rows, four at a time."""
    from bench.workloads import compiled

    m, n = sizes["m"], sizes["n"]
    held = Operands({"A": ITEM * m * n, "x": ITEM * n, "y": ITEM * m})
    held.fill(run, threads, {"A": (-1.0, 1.0), "x": (-1.0, 1.0), "y": (0.0, 1.0)}, "fp64")
    a, x, y = (
        held.view("A", np.float64, (m, n)),
        held.view("x", np.float64, (n,)),
        held.view("y", np.float64, (m,)),
    )
    rows = [
        (
            held.address("A", first * n, ITEM),
            held.address("x"),
            held.address("y", first, ITEM),
            last - first,
            n,
        )
        for first, last in shares(m, threads, ROWS)
    ]
    return Ready(
        "native",
        "the matrix exceeds the caches",
        expected=lambda: np.einsum("ij,j->i", a, x),
        result=lambda: y,
        address=compiled.address(chunk, four_rows),
        blocks=blocks(rows),
        keep=(held,),
    )


GEMV = Workload(
    name="gemv",
    precision="fp64",
    formula="F = 2 m n, Q = 8 (m n + n + m)",
    source="BLAS convention: one multiply and one add per item of A",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"m": 44, "n": 72},
    grain={"m": ROWS},
    terms=lambda sizes: sizes["n"],
    build=build,
)
