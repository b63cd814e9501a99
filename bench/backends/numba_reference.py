"""The shape of the Numba CUDA kernels, what they start from, and what NumPy says they must return."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.errors import VerificationError
from kernels import KERNELS

CHAINS, HALF = 8, 16
STEPS = 2 * HALF
"""8 x 32 = 256 FMA a trip: over 97 % of the loop. The compiler unrolls 8 x 64, or an integer 8 x 32 in one
loop, only in part and keeps the chains apart with selects (28 to 75 %): hence two loops of 16 steps."""

DTYPE: dict[str, Any] = {"fp64": np.float64, "fp32": np.float32, "int32": np.int32}


def operands(T: Any, items: int, signs: bool = False) -> Any:
    """Random items of size 0.5 to 1.5, with random signs if asked for, or any integers."""
    rng = np.random.default_rng(1)
    if T is np.int32:
        return rng.integers(-(2**31), 2**31, items, T)
    sizes = rng.random(items, T) + T(0.5)
    return sizes * (1 - 2 * rng.integers(0, 2, items)).astype(T) if signs else sizes


def chain_reference(seeds: Any, m: Any, steps: int) -> Any:
    """What each thread must return: the sum of its chains after `steps` steps."""
    x = seeds.reshape(-1, CHAINS)
    if seeds.dtype != np.int32:
        return KERNELS["fma"].reference(np, x, m, steps).sum(axis=1)
    addend = seeds[: len(x), None]
    with np.errstate(over="ignore"):
        for _ in range(steps):
            x = x * m + addend
        return x.sum(axis=1, dtype=np.int32)


def tolerance(T: Any, operations: int) -> float:
    """Relative error that `operations` roundings may add up to, 0 for integers."""
    return 0.0 if T is np.int32 else float(np.finfo(T).eps) * operations


def compare(got: Any, want: Any, relative: float, what: str) -> None:
    """VerificationError unless `got` equals `want` within `relative`; `what` names it."""
    if not np.allclose(got, want, rtol=relative, atol=0):
        raise VerificationError(f"Numba's {what} differs from its reference; it is not timed")


def sum_reference(tile: Any, items: int, s: Any) -> Any:
    """s and the sum of `items` items that repeat `tile`, in fp64, without an array of that size."""
    whole, part = divmod(items, len(tile))
    read = KERNELS["read"].reference
    return whole * read(np, None, tile, None, 0.0) + read(np, None, tile[:part], None, float(s))
