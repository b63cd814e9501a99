"""Sparse matrix times vector, CSR with fp64 values and int32 indices: the heart of an iterative solver.

    y = A x        F = 2 nnz        Q = (8 + 4) nnz + 4 (n + 1) + 8 n + 8 n byte, x fetched once

The matrix is the 27-point operator on a periodic cube of `edge`^3 points, as in the HPCG benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import Operands, blocks, shares
from bench.workloads.primitives import doubles, indices, prefetch
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM, INDEX_BYTES = ITEM_BYTES["fp64"], 4
PER_ROW = 27


AHEAD = 128
"""Entries between the row in work and the one that is asked for: about the latency of DRAM."""


def multiply(y: Any, pointer: Any, column: Any, value: Any, x: Any, zero: Any, ends: Any) -> None:
    """Rows of y; `pointer` has one entry more than y and counts from the start of the matrix.

    ends: addresses of column and value
    """
    for i in range(len(y)):
        start = np.int64(pointer[i])
        prefetch(ends[0] + (start + AHEAD) * INDEX_BYTES, PER_ROW * INDEX_BYTES)
        prefetch(ends[1] + (start + AHEAD) * ITEM, PER_ROW * ITEM)
        total = zero
        for j in range(pointer[i], pointer[i + 1]):
            total += value[j] * x[column[j]]
        y[i] = total


def chunk(args: Any) -> None:
    """y, pointer, column, value, x; first and last row, points."""
    first, rows, n = args[6], args[7] - args[6], args[8]
    multiply(
        doubles(args[1] + ITEM * first, rows),
        indices(args[2] + INDEX_BYTES * first, rows + 1),
        indices(args[3], PER_ROW * n),
        doubles(args[4], PER_ROW * n),
        doubles(args[5], n),
        0.0,
        (args[3], args[4]),
    )


def connect(args: Any) -> None:
    """Write pointer and column of rows first to last: pointer, column, first, last, edge."""
    edge = args[5]
    n = edge * edge * edge
    pointer, column = indices(args[1], n + 1), indices(args[2], PER_ROW * n)
    for i in range(args[3], args[4]):
        pointer[i + 1] = PER_ROW * (i + 1)
        z, y, x = i // (edge * edge), i // edge % edge, i % edge
        place = PER_ROW * i
        for dz in range(-1, 2):
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    plane = (z + dz + edge) % edge * edge
                    column[place] = (plane + (y + dy + edge) % edge) * edge + (x + dx + edge) % edge
                    place += 1


def work(sizes: Mapping[str, int]) -> Work:
    """2 FLOP an entry; values, columns, row pointers and x read once, y written once."""
    n = sizes["edge"] ** 3
    entries = PER_ROW * n
    reads = (ITEM + INDEX_BYTES) * entries + INDEX_BYTES * (n + 1) + ITEM * n
    return Work.at("DRAM", 2.0 * entries, reads=reads, writes=ITEM * n)


def fit(room: Room) -> dict[str, int]:
    """Values and columns of the cold bytes, at most what int32 can count."""
    points = min(room.cold_bytes / (PER_ROW * (ITEM + INDEX_BYTES)), (2**31 - 1) / PER_ROW)
    return {"edge": max(3, int(points ** (1 / 3)))}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """The matrix cut by rows."""
    from bench.workloads import compiled

    edge = sizes["edge"]
    n = edge**3
    layout = {"y": ITEM * n, "pointer": INDEX_BYTES * (n + 1), "column": INDEX_BYTES * PER_ROW * n}
    held = Operands({**layout, "value": ITEM * PER_ROW * n, "x": ITEM * n})
    held.fill(run, threads, {"value": (-1.0, 1.0), "x": (-1.0, 1.0), "y": (-1.0, 1.0)}, "fp64")
    parts = shares(n, threads)
    lead = (held.address("pointer"), held.address("column"))
    run(compiled.address(connect), blocks([(*lead, a, b, edge) for a, b in parts]))
    names = ("y", "pointer", "column", "value", "x")
    return Ready(
        "native",
        "the matrix exceeds the caches",
        expected=lambda: reference(held, n),
        result=lambda: held.view("y", np.float64, (n,)),
        address=compiled.address(chunk, multiply),
        blocks=blocks([(*map(held.address, names), a, b, n) for a, b in parts]),
        keep=(held,),
    )


def reference(held: Operands, n: int) -> Any:
    """The same by SciPy's CSR matrix."""
    from scipy.sparse import csr_matrix

    value = held.view("value", np.float64, (PER_ROW * n,))
    column = held.view("column", np.int32, (PER_ROW * n,))
    pointer = held.view("pointer", np.int32, (n + 1,))
    return csr_matrix((value, column, pointer), shape=(n, n)) @ held.view("x", np.float64, (n,))


SPMV = Workload(
    name="spmv csr",
    precision="fp64",
    formula="F = 2 nnz, Q = 12 nnz + 4 (n + 1) + 16 n",
    source="Kreutzer et al., SIAM J. Sci. Comput. 36(5), 2014, with x fetched once; HPCG's 27-point matrix",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"edge": 5},
    terms=lambda sizes: PER_ROW,
    build=build,
)
