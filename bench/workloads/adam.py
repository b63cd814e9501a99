"""One step of the Adam optimiser in fp32, fused and in place: what follows every backward pass.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g g        p = p - s m / (c sqrt(v) + eps)
    F = 13 n        Q = 16 n read (p, g, m, v) + 12 n written (p, m, v) byte

s and c carry the bias corrections of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import floats
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp32"]
F = np.float32
STEP = 1000
B1, B2, EPSILON, RATE = 0.9, 0.999, 1e-8, 1e-3
KEEP1, TAKE1, KEEP2, TAKE2 = F(B1), F(1 - B1), F(B2), F(1 - B2)
SCALE = F(RATE / (1 - B1**STEP))
CORRECTION = F(1 / math.sqrt(1 - B2**STEP))
SMALL = F(EPSILON)
ARRAYS = ("p", "g", "m", "v")


def step(p: Any, g: Any, m: Any, v: Any, keep1: Any, take1: Any, keep2: Any, take2: Any) -> None:
    """One step over equal pieces of all four arrays: 3 + 4 + 6 FLOP an item."""
    for i in range(len(p)):
        m[i] = keep1 * m[i] + take1 * g[i]
        v[i] = keep2 * v[i] + take2 * g[i] * g[i]
        p[i] = p[i] - SCALE * m[i] / (CORRECTION * np.sqrt(v[i]) + SMALL)


def chunk(args: Any) -> None:
    """p, g, m, v, items."""
    n = args[5]
    p, g, m, v = floats(args[1], n), floats(args[2], n), floats(args[3], n), floats(args[4], n)
    step(p, g, m, v, KEEP1, TAKE1, KEEP2, TAKE2)


def work(sizes: Mapping[str, int]) -> Work:
    """13 FLOP a parameter (sqrt and division count 1); four arrays read, three written."""
    n = sizes["n"]
    return Work.at("DRAM", 13.0 * n, reads=4 * ITEM * n, writes=3 * ITEM * n)


def fit(room: Room) -> dict[str, int]:
    """All four arrays of the cold bytes."""
    return {"n": int(room.cold_bytes / (4 * ITEM))}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Cut into one piece a thread. The gradient stays, so m and v settle and p moves by at most the
    learning rate a step: finite for any number of repetitions."""
    from bench.workloads import compiled

    n = sizes["n"]
    held = Operands(dict.fromkeys(ARRAYS, ITEM * n))
    start = {"p": (-1.0, 1.0), "g": (0.01, 1.0), "m": (-0.1, 0.1), "v": (0.1, 1.0)}
    held.fill(run, threads, start, "fp32")
    parts = [
        (*(held.address(name, first, ITEM) for name in ARRAYS), last - first)
        for first, last in shares(n, threads, LINE_BYTES // ITEM)
    ]
    p, g, m, v = (held.view(name, F, (n,)) for name in ARRAYS)
    return Ready(
        "native",
        "the four arrays together exceed the caches",
        expected=lambda: reference(p, g, m, v),
        result=lambda: np.stack([p, m, v]),
        address=compiled.address(chunk, step),
        blocks=blocks(parts),
        keep=(held,),
    )


def reference(p: Any, g: Any, m: Any, v: Any) -> Any:
    """New p, m and v by NumPy in fp64."""
    p, g, m, v = (x.astype(np.float64) for x in (p, g, m, v))
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * g * g
    first, second = m / (1 - B1**STEP), v / (1 - B2**STEP)
    return np.stack([p - RATE * first / (np.sqrt(second) + EPSILON), m, v])


ADAM = Workload(
    name="adam",
    precision="fp32",
    formula="F = 13 n, Q = 16 n + 12 n",
    source="Kingma and Ba, ICLR 2015: 3 FLOP for m, 4 for v, 6 for p (sqrt and division count 1)",
    implementation=BY_THREADS,
    in_place=True,
    work=work,
    fit=fit,
    small={"n": 1003},
    terms=lambda sizes: 4,
    build=build,
)
