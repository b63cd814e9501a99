"""What the copy of the stream family and the pipeline's functions do, for the GPU that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fake_cupy import view
from tests.fake_gpu import FakeGpu

STEP = 2e-5
"""Seconds that the pipeline's functions take for a multiply-add on each item of a MiB."""


def at(address: int, bytes: int, kind: Any) -> Any:
    return view(address, bytes).view(kind)


def copy(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    at(a, 4 * n, np.float32)[:] = at(b, 4 * n, np.float32)


def grown(b: int, s: int, n: int, count: int) -> Any:
    m = at(s, 8, np.float64)[0]
    return at(b, 8 * n, np.float64) * (1.0 + m) ** count


def pipeline_sum(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    """Pairs of sums, all on the first thread; those of before where there are any."""
    sums = np.zeros((grid * block, 2))
    sums[0] = grown(b, s, n, count).reshape(-1, 2).sum(axis=0)
    if c:
        sums += at(c, sums.nbytes, np.float64).reshape(-1, 2)
    at(a, sums.nbytes, np.float64)[:] = sums.ravel()


def pipeline_back(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
    at(a, 8 * n, np.float64)[:] = grown(b, s, n, count)


def install(gpu: FakeGpu) -> None:
    """Functions, their times and the bytes that they touch."""
    gpu.bodies |= {"pipeline_sum": pipeline_sum, "pipeline_back": pipeline_back}
    gpu.bodies |= {f"copy_fp32_{form}": copy for form in ("v16_l4", "v16_l8", "v16_l2")}
    last: dict[str, float] = {}

    def touched(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> Any:
        last["bytes"] = 8.0 * n
        return ((b, 8 * n),), ((a, 8 * n),)

    def summed(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> Any:
        last["bytes"] = 8.0 * n
        return ((b, 8 * n),), ((a, 16 * grid * block),)

    def seconds(entry: str, grid: int, block: int, count: int) -> float:
        if entry.startswith("pipeline"):
            return 1e-6 + STEP * (count + 1) * last["bytes"] / 2**20
        return 1e-5 + 1e-6 * count

    gpu.touches |= {"pipeline_back": touched, "pipeline_sum": summed}
    gpu.seconds = seconds
