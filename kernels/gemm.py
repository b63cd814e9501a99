"""General matrix multiply through the BLAS at hand: what a tuned library makes of pi.

    C = A B,  2 m n k FLOP,  item bytes x (m k + k n + m n) compulsory

A library ceiling stands beside the instruction peak, never in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.spec import Kernel, LibraryShape, Work


def gemm(c: Any, a: Any, b: Any, m: int, n: int, k: int) -> None:
    """The textbook triple loop over row-major flat sequences; the sum lives in a register."""
    for i in range(m):
        for j in range(n):
            total = a[i * k] * b[j]
            for p in range(1, k):
                total = total + a[i * k + p] * b[p * n + j]
            c[i * n + j] = total


def reference(np: Any, a: Any, b: Any) -> Any:
    """The product in fp64 by einsum, which does not go through BLAS."""
    return np.einsum("ik,kj->ij", a.astype(np.float64), b.astype(np.float64))


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """2 m n k FLOP (the BLAS convention); A and B read once, C written once."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return Work.at(level, 2.0 * m * n * k, reads=item_bytes * (m * k + k * n), writes=item_bytes * m * n)


KERNELS = (Kernel("gemm", "gemm", "none", cost, gemm, reference, LibraryShape()),)
