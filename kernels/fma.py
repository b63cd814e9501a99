"""The peak chain: pi is what independent chains of fused multiply-adds reach in registers.

    x <- x m + x,  2 FLOP a step, no memory traffic

One chain is bound by the latency of its FMA; `chains` of them side by side hide it. With two
FMA pipes of latency 4 exactly 8 chains fit and leave no slack, so machines are tried from 8
to 24. The addend is x itself because AArch64 NEON can only add into the addend's register:
x m + a would cost a move each step there. m arrives at run time, so no compiler can fold the
chain, and is so small that no x overflows or becomes denormal in years.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.spec import ChainShape, Kernel, Work

FACTOR = 1e-12
"""m while timing; the check against the reference takes a large one, so that it can fail."""


def fma(x: Any, m: Any, steps: int) -> None:
    """The textbook loop; x holds every chain, one item each."""
    for _ in range(steps):
        for j in range(len(x)):
            x[j] = x[j] * m + x[j]


def reference(np: Any, x: Any, m: float, steps: int) -> Any:
    """Closed form x (1 + m)^steps, in fp64."""
    return x.astype(np.float64) * (1.0 + float(m)) ** steps


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["n"]` scalar FMAs: chains x lanes x steps, 2 FLOP each, nothing moved."""
    return Work(2.0 * sizes["n"])


KERNELS = (
    Kernel("fma", "fma", "none", cost, fma, reference, ChainShape()),
    Kernel("fma-naive", "fma", "none", cost, fma, reference, ChainShape(), "textbook loop compiled by Numba"),
)
