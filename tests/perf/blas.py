"""A bare loop around NumPy's matrix product: what the library does without the suite around it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.perf.pairs import Window

SEED = 7


class BareGemm:
    """Square products into a kept result; the number of BLAS threads is whatever is set now."""

    name = "bare loop"

    def __init__(self, n: int, precision: str, products: int) -> None:
        dtype: Any = {"fp64": np.float64, "fp32": np.float32}[precision]
        random = np.random.default_rng(SEED)
        self._a, self._b = random.random((n, n), dtype), random.random((n, n), dtype)
        self._c = np.empty((n, n), dtype)
        self._products = products
        self._flops = 2.0 * n**3 * products

    def window(self) -> Window:
        """`products` products one after another; work in FLOP."""
        a, b, c = self._a, self._b, self._c
        start = time.perf_counter()
        for _ in range(self._products):
            np.matmul(a, b, out=c)
        return Window(self._flops, time.perf_counter() - start)
