"""What the functions of the families cache, latency and launch do, for the GPU that is not there.

Each does thread by thread what its CUDA C++ says (kernels/working_sets.py, kernels/chases.py), on the host's
memory, in which the stand-in for CuPy keeps the GPU's: pointers are real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import chases, launch, working_sets
from tests.fake_cupy import view
from tests.fake_gpu import FakeGpu

FLOAT, WORD = np.float32, np.uint64


def at(address: int, items: int, kind: Any) -> Any:
    """Memory as an array."""
    return view(address, items * np.dtype(kind).itemsize).view(kind)


Body = Callable[..., None]


def passing(entry: str, name: str, skip: int = 0) -> Body:
    """A ring of vectors walked by every block; `skip` trips are left out."""
    way = working_sets.BY_ENTRY[entry]

    def run(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
        vectors, threads = n // 4, np.arange(block)
        s0 = at(s, 1, FLOAT)[0]
        for index in range(grid):
            own = 0 if way.whole else index * n
            source = (
                at((a if name == "update" else b) + 4 * own, n, FLOAT).reshape(-1, 4)
                if name != "write"
                else None
            )
            target = at(a + 4 * own, n, FLOAT).reshape(-1, 4) if name != "read" else None
            first = vectors // grid * index if way.whole else 0
            sums, place = np.zeros((block, 4), FLOAT), (first + threads) % vectors
            for _ in range(count - skip):
                places = [(place + k * block) % vectors for k in range(way.accesses)]
                loaded = [source[p] if source is not None else np.zeros((block, 4), FLOAT) for p in places]
                for p, x in zip(places, loaded, strict=True):
                    if target is None:
                        sums += x
                    else:
                        target[p] = {"write": np.full_like(x, s0), "update": s0 * x, "copy": x}[name]
                place = (place + way.accesses * block) % vectors
            if name == "read":
                told = at(a, grid * block + grid, FLOAT)
                told[index * block : (index + 1) * block] = sums.sum(axis=1)
                told[grid * block + index] = index
        if name == "read":
            at(a, 1, FLOAT)[0] += s0

    return run


def following(gpu: FakeGpu, chains: int, wrong: int = 0) -> Body:
    """Pointers followed through memory that lives; `wrong` steps are left out of the last chain."""

    def run(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
        threads = grid * block
        assert n == threads
        places = at(a, threads * chains + threads, WORD)
        now, steps = places[: threads * chains], chases.LOADS // chains * count
        base = next(p for p, size in gpu.live.items() if p <= int(now[0]) < p + size)
        memory = at(base, gpu.live[base] // 8, WORD)
        for step in range(steps):
            moving = now if step < steps - wrong else now[:-1]
            moving[:] = memory[((moving - WORD(base)) // WORD(8)).astype(np.int64)]
        places[threads * chains :] = 200 * steps

    return run


def linking(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    """Every word of a line points to the same word of the next."""
    lines, after = at(a, n * chases.WORDS, WORD).reshape(n, -1), at(b, n, WORD)
    lines[:] = (
        WORD(a) + WORD(chases.LINE_BYTES) * after[:, None] + WORD(8) * np.arange(chases.WORDS, dtype=WORD)
    )


def walking_shared(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    """One thread around the cycle that is in shared memory."""
    table, place = at(b, chases.SHARED_WORDS, WORD), at(a, 2, WORD)
    for _ in range(chases.LOADS * count):
        place[0] = table[int(place[0])]
    place[1] = 30 * chases.LOADS * count


def line_by_line(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    """Every line points to itself; every third is in the far part."""
    first, told = int(at(s, 1, WORD)[0]), at(a, 2 * n, WORD)
    for line in range(n):
        address = first + line * chases.SPREAD * chases.LINE_BYTES
        assert int(at(address, 1, WORD)[0]) == address
        told[line], told[n + line] = address, count * chases.LOADS * (300 if line % 3 == 2 else 200)


def copying(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    """The smallest useful kernel; threads beyond the items do nothing."""
    items = min(n, 4 * grid * block)
    at(a, items, FLOAT)[:] = at(b, items, FLOAT)


def install(gpu: FakeGpu) -> None:
    """Give the GPU all of them."""
    for form in working_sets.CUDA.forms:
        gpu.bodies[form.entry] = passing(form.entry, form.kernel.removeprefix("cache-"))
    for form in chases.CUDA.forms:
        variant = form.variant.split()
        if variant[0] in ("ca", "cg"):
            gpu.bodies[form.entry] = following(gpu, int(variant[1]))
    gpu.bodies |= {"chase_link": linking, "chase_shared": walking_shared, "chase_lines": line_by_line}
    gpu.bodies["smallest"] = copying
    assert {form.kernel for form in launch.CUDA.forms} == {"empty", "smallest"}
