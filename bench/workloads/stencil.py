"""The 7-point stencil in fp64, the sweep of every finite-difference code on a cube.

u'_ijk = c u_ijk + d (sum of the six neighbours)        F = 8 n^3        Q = 8 ((n + 2)^3 + n^3) byte
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import doubles, drain, prefetch, write_out
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp64"]
LINE = LINE_BYTES // ITEM
CENTRE, NEIGHBOUR = 0.4, 0.1
BLOCK_BYTES = 64 << 10
"""Rows of one plane that a block holds: three planes of it stay in a 256 KiB cache, so u is read once."""


def row(
    out: Any, middle: Any, front: Any, back: Any, below: Any, above: Any, centre: Any, neighbour: Any
) -> None:
    """One row of the result; `middle` has one item more at either end."""
    for i in range(len(out)):
        around = middle[i] + middle[i + 2] + front[i] + back[i] + below[i] + above[i]
        out[i] = centre * middle[i + 1] + neighbour * around


def chunk(args: Any) -> None:
    """u, u', scratch row, n, first and last plane, first and last row, rows of a block, kind of store.

    Blocks of rows are swept through all planes. A row is made in the scratch, which stays in L1, and
    written out, past the caches where u and u' exceed them; meanwhile the next row of the plane above, the
    only one that is not in a cache yet, is asked for (behind a block: the first row of the plane after).
    """
    n, block = args[4], args[9]
    pitch = (n + 2) * ITEM
    plane = (n + 2) * pitch
    out = doubles(args[3], n)
    for start in range(args[7], args[8], block):
        stop = min(start + block, args[8])
        for k in range(args[5], args[6]):
            for j in range(start, stop):
                corner = args[1] + (k + 1) * plane + (j + 1) * pitch
                inner = corner + ITEM
                prefetch(
                    inner + plane + (pitch if j + 1 < stop else plane - (stop - 1 - start) * pitch), n * ITEM
                )
                front, back = doubles(inner - pitch, n), doubles(inner + pitch, n)
                below, above = doubles(inner - plane, n), doubles(inner + plane, n)
                row(out, doubles(corner, n + 2), front, back, below, above, CENTRE, NEIGHBOUR)
                write_out(args[2] + (k * n + j) * n * ITEM, args[3], n * ITEM, args[10])
    drain()


def work(sizes: Mapping[str, int]) -> Work:
    """8 FLOP a point: 6 additions, 2 multiplications; u with its halo read once, u' written once."""
    n = sizes["n"]
    return Work.at("DRAM", 8.0 * n**3, reads=ITEM * (n + 2) ** 3, writes=ITEM * n**3)


def fit(room: Room) -> dict[str, int]:
    """u and u' together of the cold bytes, rows of whole cache lines."""
    edge = (room.cold_bytes / (2 * ITEM)) ** (1 / 3)
    return {"n": max(LINE, math.ceil(edge / LINE) * LINE)}


def grid(threads: int) -> tuple[int, int]:
    """Cuts along planes and along rows, as equal as the number of threads allows."""
    rows = next(d for d in range(math.isqrt(threads), 0, -1) if threads % d == 0)
    return threads // rows, rows


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """The cube cut into bars, one a thread."""
    from bench.workloads import compiled

    n = sizes["n"]
    held = Operands({"u": ITEM * (n + 2) ** 3, "v": ITEM * n**3, "scratch": threads * ITEM * n})
    held.fill(run, threads, {"u": (-1.0, 1.0), "v": (-1.0, 1.0), "scratch": (0.0, 1.0)}, "fp64")
    u, v = held.view("u", np.float64, (n + 2,) * 3), held.view("v", np.float64, (n,) * 3)
    planes, rows = grid(threads)
    block = max(1, BLOCK_BYTES // (ITEM * (n + 2)))
    bars = [(*p, *r) for p in shares(n, planes) for r in shares(n, rows)]
    ends = (held.address("u"), held.address("v"))
    return Ready(
        "native",
        "both cubes together exceed the caches",
        expected=lambda: reference(u),
        result=lambda: v,
        address=compiled.address(chunk, row),
        blocks=blocks(
            [
                (*ends, held.address("scratch", t * n, ITEM), n, *bar, block, run.past)
                for t, bar in enumerate(bars)
            ]
        ),
        keep=(held,),
    )


def reference(u: Any) -> Any:
    """The same by six shifted views."""
    c = slice(1, -1)
    lo, hi = slice(None, -2), slice(2, None)
    around = u[lo, c, c] + u[hi, c, c] + u[c, lo, c] + u[c, hi, c] + u[c, c, lo] + u[c, c, hi]
    return CENTRE * u[c, c, c] + NEIGHBOUR * around


STENCIL = Workload(
    name="stencil 7-point",
    precision="fp64",
    formula="F = 8 n^3, Q = 8 ((n + 2)^3 + n^3)",
    source="two coefficients, 8 FLOP a point (Datta et al., SC 2008)",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"n": 16},
    grain={"n": LINE},
    terms=lambda sizes: 7,
    build=build,
)
