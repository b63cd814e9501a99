"""Workloads that live in a library: the square GEMM in the BLAS of NumPy, the FFT in SciPy.

C = A B            F = 2 m n k            Q = 8 (m k + k n + m n) byte
FFT, b rows of n   F = 5 n log2(n) b      Q = 16 n b read + 16 n b written byte
"""

from __future__ import annotations

import itertools
import math
import resource
from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np

from bench.errors import VerificationError
from bench.workloads.operands import Operands, sets_beyond
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels import gemm
from kernels.launch import BY_BLAS, BY_FFT
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp64"]
COMPLEX = 2 * ITEM
LENGTH = 4096
MULTIPLE = 64  # GEMM edges of whole register blocks


def timed(
    threads: int, call: Callable[[int], None], sets: int
) -> Callable[[int], list[tuple[float, float, int]]]:
    """repeat(n) for Ready: calls with set 0, 1, ... in turn (also from one batch to the next),
    BLAS limited to `threads`."""
    turn = itertools.cycle(range(sets))

    def switches() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    def repeat(n: int) -> list[tuple[float, float, int]]:
        from threadpoolctl import threadpool_limits

        rows = []
        with threadpool_limits(limits=threads):
            for of_set in itertools.islice(turn, n):
                before = switches()
                start = perf_counter()
                call(of_set)
                end = perf_counter()
                rows.append((start, end, switches() - before))
        return rows

    return repeat


def gemm_work(sizes: Mapping[str, int]) -> Work:
    """2 m n k FLOP (the BLAS convention); A and B read once, C written once."""
    return gemm.cost(ITEM, sizes, "DRAM")


def square(room: Room) -> dict[str, int]:
    """A cube whose arithmetic fills the time, with as many sets as exceed the caches twice."""
    edge = min((room.flops("fp64") / 2) ** (1 / 3), math.sqrt(room.memory_bytes / (8 * 3 * ITEM)))
    n = max(MULTIPLE, round(edge / MULTIPLE) * MULTIPLE)
    return {"m": n, "n": n, "k": n, "sets": sets_beyond(room.cache_bytes, 3 * ITEM * n * n)}


def build_gemm(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """numpy.matmul into an existing C."""
    m, n, k, sets = sizes["m"], sizes["n"], sizes["k"], sizes["sets"]
    held = Operands({"A": ITEM * m * k, "B": ITEM * k * n, "C": ITEM * m * n}, sets)
    held.fill(run, threads, dict.fromkeys("ABC", (-1.0, 1.0)), "fp64")
    a = [held.view("A", np.float64, (m, k), s) for s in range(sets)]
    b = [held.view("B", np.float64, (k, n), s) for s in range(sets)]
    c = [held.view("C", np.float64, (m, n), s) for s in range(sets)]

    def call(s: int) -> None:
        np.matmul(a[s], b[s], out=c[s])

    return Ready(
        "host",
        "the operands exceed the caches"
        if sets == 1
        else f"{sets} operand sets in turn exceed twice the caches",
        expected=lambda: np.einsum("ik,kj->ij", a[0], b[0]),
        result=lambda: c[0],
        repeat=timed(threads, call, sets),
        keep=(held,),
    )


def fft_work(sizes: Mapping[str, int]) -> Work:
    """5 n log2(n) FLOP a row, nominal (benchFFT); each row read once and written once."""
    n, rows = sizes["n"], sizes["rows"]
    moved = COMPLEX * n * rows
    return Work.at("DRAM", 5.0 * n * math.log2(n) * rows, reads=moved, writes=moved)


def fft_rows(room: Room) -> dict[str, int]:
    """Rows of 4096 complex numbers (64 KiB, so one pass over DRAM) of the cold bytes."""
    return {"rows": max(1, int(room.cold_bytes / (COMPLEX * LENGTH))), "n": LENGTH}


def build_fft(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """scipy.fft.fft in place; scaled to be unitary, so values stay finite for any number of repetitions."""
    from scipy import fft

    rows, n = sizes["rows"], sizes["n"]
    held = Operands({"x": COMPLEX * rows * n})
    held.fill(run, threads, {"x": (-1.0, 1.0)}, "fp64")
    x = held.view("x", np.complex128, (rows, n))

    def call(_: int) -> None:
        y = fft.fft(x, axis=1, norm="ortho", overwrite_x=True, workers=threads)
        if not np.may_share_memory(y, x):
            raise VerificationError("this SciPy does not transform in place: workload fft is not timed")

    return Ready(
        "host",
        "the rows together exceed the caches",
        expected=lambda: x @ np.exp(-2j * np.pi / n * np.outer(np.arange(n), np.arange(n))) / np.sqrt(n),
        result=lambda: x,
        repeat=timed(threads, call, 1),
        keep=(held,),
    )


GEMM = Workload(
    name="gemm",
    precision="fp64",
    formula="F = 2 m n k, Q = 8 (m k + k n + m n)",
    source="BLAS convention: one multiply and one add per term of each inner product",
    implementation=BY_BLAS,
    in_place=False,
    work=gemm_work,
    fit=square,
    small={"m": 96, "n": 80, "k": 72, "sets": 2},
    terms=lambda sizes: sizes["k"],
    build=build_gemm,
)

FFT = Workload(
    name="fft",
    precision="fp64",
    formula="F = 5 n log2(n) b, Q = 16 n b + 16 n b",
    source="nominal count of benchFFT (Frigo and Johnson); one pass over DRAM, in place",
    implementation=BY_FFT,
    in_place=True,
    work=fft_work,
    fit=fft_rows,
    small={"rows": 11, "n": 64},
    terms=lambda sizes: sizes["n"],
    build=build_fft,
)
