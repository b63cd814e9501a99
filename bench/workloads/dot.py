"""Dot product of two fp64 vectors: the plainest read-only workload.

s = sum of a_i b_i        F = 2 n        Q = 8 (n + n) byte
"""

from __future__ import annotations

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


PARTS = 3  # of a thread's piece walked together: six streams keep more lines in flight than two


def dot(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, zero: Any) -> Any:
    """a . b + c . d + e . f, all of one length: three products of neighbouring parts."""
    first, second, third = zero, zero, zero
    for i in range(len(a)):
        first += a[i] * b[i]
        second += c[i] * d[i]
        third += e[i] * f[i]
    return first + second + third


def tail(a: Any, b: Any, total: Any) -> Any:
    """total + a . b, for what is left over."""
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def chunk(args: Any) -> None:
    """Addresses of a and b, items, address of the partial sum."""
    part = args[3] // (PARTS * LINE) * LINE
    step, rest = part * ITEM, args[3] - PARTS * part
    a, b = args[1], args[2]
    total = dot(
        doubles(a, part),
        doubles(b, part),
        doubles(a + step, part),
        doubles(b + step, part),
        doubles(a + 2 * step, part),
        doubles(b + 2 * step, part),
        0.0,
    )
    end = PARTS * step
    doubles(args[4], 1)[0] = tail(doubles(a + end, rest), doubles(b + end, rest), total)


def work(sizes: Mapping[str, int]) -> Work:
    """2 n FLOP; both vectors read once."""
    return Work.at("DRAM", 2.0 * sizes["n"], reads=2 * ITEM * sizes["n"], writes=0)


def fit(room: Room) -> dict[str, int]:
    """Each vector half of the cold bytes."""
    return {"n": int(room.cold_bytes / (2 * ITEM))}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Both vectors cut into one piece a thread; each thread leaves its partial sum on its own line."""
    from bench.workloads import compiled

    n = sizes["n"]
    held = Operands({"a": ITEM * n, "b": ITEM * n, "sums": LINE_BYTES * threads})
    held.fill(run, threads, {"a": (-1.0, 1.0), "b": (-1.0, 1.0)}, "fp64")
    a, b = held.view("a", np.float64, (n,)), held.view("b", np.float64, (n,))
    sums = held.view("sums", np.float64, (threads, LINE))
    rows = [
        (
            held.address("a", first, ITEM),
            held.address("b", first, ITEM),
            last - first,
            held.address("sums", t * LINE, ITEM),
        )
        for t, (first, last) in enumerate(shares(n, threads, LINE))
    ]
    return Ready(
        "native",
        "the vectors exceed the caches",
        expected=lambda: np.sum(a * b),
        result=lambda: np.sum(sums[:, 0]),
        address=compiled.address(chunk, dot, tail),
        blocks=blocks(rows),
        keep=(held,),
    )


DOT = Workload(
    name="dot",
    precision="fp64",
    formula="F = 2 n, Q = 8 (n + n)",
    source="BabelStream dot: one multiply and one add per item",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"n": 3001},
    terms=lambda sizes: sizes["n"],
    build=build,
)
