"""Tall and skinny GEMM in fp64: many rows times a small square, as in block Krylov methods and least squares.

    C = A B, A of m x 32, B of 32 x 32        F = 2 m 32 32        Q = 8 (32 m + 32 32 + 32 m) byte

Intensity 4 FLOP/byte lies by the ridge of most CPUs. A BLAS packs A first, which costs more than the
product; here B stays in L1 and A is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import Operands, blocks, shares
from bench.workloads.shapes import DOUBLE, ROW, SKINNY
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels import gemm
from kernels.launch import BY_THREADS
from kernels.spec import Work

GRAIN, STRIP = 4, 16  # rows come in fours; the scratch of a thread holds the rows of the widest tile


def work(sizes: Mapping[str, int]) -> Work:
    """2 m n k FLOP with n = k = 32; A and B read once, C written once."""
    return gemm.cost(DOUBLE, {"m": sizes["m"], "n": SKINNY, "k": SKINNY}, "DRAM")


def fit(room: Room) -> dict[str, int]:
    """A and C together of the cold bytes."""
    return {"m": max(GRAIN, int(room.cold_bytes / (2 * ROW)) // GRAIN * GRAIN)}


def packed(b: Any, columns: int) -> Any:
    """B in the order a tile reads it: blocks of `columns` columns outermost."""
    return np.ascontiguousarray(b.reshape(SKINNY, SKINNY // columns, columns).swapaxes(0, 1))


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Cut by rows; one scratch strip a thread."""
    from bench.workloads import compiled, registers

    m = sizes["m"]
    held = Operands(
        {"A": ROW * m, "B": ROW * SKINNY, "C": ROW * m, "packed": ROW * SKINNY, "s": ROW * STRIP * threads}
    )
    held.fill(run, threads, dict.fromkeys("ABCs", (-1.0, 1.0)), "fp64")
    a, b, c = (
        held.view(name, np.float64, (rows, SKINNY)) for name, rows in (("A", m), ("B", SKINNY), ("C", m))
    )
    held.view("packed", np.float64, (SKINNY * SKINNY,))[:] = packed(b, registers.TALL_COLUMNS).ravel()
    rows = [
        (
            held.address("C", first, ROW),
            held.address("A", first, ROW),
            held.address("packed"),
            held.address("s", t * STRIP, ROW),
            last - first,
            run.past,
        )
        for t, (first, last) in enumerate(shares(m, threads, GRAIN))
    ]
    return Ready(
        "native",
        "A and C together exceed the caches",
        expected=lambda: np.einsum("ik,kj->ij", a, b),
        result=lambda: c,
        address=compiled.address(registers.multiply),
        blocks=blocks(rows),
        keep=(held,),
    )


GEMM_TALL = Workload(
    name="gemm tall",
    precision="fp64",
    formula="F = 2 m n k, Q = 8 (m k + k n + m n), n = k = 32",
    source="BLAS convention: one multiply and one add per term of each inner product",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"m": 104},
    grain={"m": GRAIN},
    terms=lambda sizes: SKINNY,
    build=build,
)
