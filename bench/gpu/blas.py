"""Products by cuBLAS: gemmEx with the compute type stated, the math mode set, scalars of the right type."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.engine import Engine
from bench.gpu.faults import translated
from bench.gpu.products import EDGE, Product, check, decoded, product
from bench.profile.records import Point

NO_TRANSPOSE, TRANSPOSE = 0, 1
DEFAULT_MATH, HOST_POINTERS, DEFAULT_ALGORITHM = 0, 0, -1
"""CUBLAS_DEFAULT_MATH: no tf32 and no emulation unless the compute type says so."""

VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING")
"""What else decides about products, beside everything that begins with CUBLAS."""


@dataclass
class Operands:
    """C (m x n) = A (m x k) B (k x n), column by column, A transposed in memory or not."""

    engine: Engine
    kind: Product
    m: int
    n: int
    k: int
    transposed: bool
    memory: dict[str, Any] = field(default_factory=dict)

    def fill(self, operands: str) -> None:
        """Random or zero A and B; C is filled with ones of all bits, so that nothing passes unwritten."""
        kind, engine = self.kind, self.engine
        with translated(f"{kind.inputs} product {self.m} x {self.n} x {self.k}"):
            sizes = {"a": self.m * self.k, "b": self.k * self.n}
            for seed, (name, items) in enumerate(sizes.items(), 1):
                self.memory[name] = engine.random(kind.input_bytes(items), kind.inputs, operands, seed)
            bytes = self.m * self.n * kind.output_bytes
            self.memory["c"] = engine.allocate(bytes)
            engine.cupy.cuda.runtime.memsetAsync(self.memory["c"].ptr, 255, bytes, engine.stream.ptr)

    @property
    def a(self) -> int:
        """Address of A."""
        return int(self.memory["a"].ptr)

    @property
    def b(self) -> int:
        """Address of B."""
        return int(self.memory["b"].ptr)

    @property
    def c(self) -> int:
        """Address of C."""
        return int(self.memory["c"].ptr)

    def check(self, name: str) -> None:
        """Compare the first and the last corner of C with the reference."""
        edge = min(EDGE, self.m, self.n)
        places = ((0, 0), (self.m - edge, self.n - edge))
        check(name, self.kind, self.k, tuple(self._corner(row, column, edge) for row, column in places))

    def _corner(self, row: int, column: int, edge: int) -> tuple[Any, Any, Any]:
        """`edge` rows of A, columns of B and both of C from (row, column) on, as fp64 [edge, ...]."""
        kind, m, k = self.kind, self.m, self.k
        if self.transposed:
            a = self._rows(self.a, kind.inputs, kind.input_bytes(row * k), kind.input_bytes(k), 0, edge)
        else:
            a = self._rows(
                self.a, kind.inputs, kind.input_bytes(row), kind.input_bytes(edge), kind.input_bytes(m), k
            ).T
        b = self._rows(self.b, kind.inputs, kind.input_bytes(column * k), kind.input_bytes(k), 0, edge)
        item = kind.output_bytes
        c = self._rows(self.c, kind.output, (column * m + row) * item, edge * item, m * item, edge).T
        return a, b, c

    def _rows(self, base: int, kind: str, offset: int, bytes: int, pitch: int, rows: int) -> Any:
        return decoded(kind, self.engine.download(base + offset, bytes, pitch or bytes, rows))


@dataclass
class Ready:
    """A product that can be launched: `launch` queues it, `check` compares what it left."""

    launch: Callable[[], Any]
    operands: Operands
    facts: dict[str, Any]
    close: Callable[[], None] = lambda: None


class Cublas:
    """A cuBLAS handle of its own on the engine's stream, so that nobody else's settings apply."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        with translated("loading cuBLAS"):
            self.library: Any = engine.cupy.cuda.cublas
            self.handle: int = self.library.create()
            self.library.setStream(self.handle, engine.stream.ptr)
            self.library.setPointerMode(self.handle, HOST_POINTERS)
            self.library.setMathMode(self.handle, DEFAULT_MATH)
            self.version = int(self.library.getVersion(self.handle))

    def prepare(self, point: Point) -> Ready:
        """Operands in memory and the call that multiplies them."""
        kind = product(point)
        m, n, k = (point.sizes[name] for name in "mnk")
        held = Operands(self.engine, kind, m, n, k, kind.transposed)
        held.fill(point.operands)
        one, zero = np.ones(1, kind.scalar), np.zeros(1, kind.scalar)
        words = (
            self.handle,
            TRANSPOSE if kind.transposed else NO_TRANSPOSE,
            NO_TRANSPOSE,
            *(m, n, k),
            one.ctypes.data,
            *(held.a, kind.a_type, k if kind.transposed else m),
            *(held.b, kind.a_type, k),
            zero.ctypes.data,
            *(held.c, kind.c_type, m),
            kind.compute,
            DEFAULT_ALGORITHM,
        )
        held.memory["scalars"] = (one, zero)  # the library is given their addresses at every call
        facts = {"library": f"cuBLAS {version(self.version)}", "layout": "TN" if kind.transposed else "NN"}
        launch = partial(self.library.gemmEx, *words)
        return Ready(launch, held, facts | {"compute_type": kind.compute} | settings())


def version(number: int) -> str:
    """As both libraries count: 130102 is 13.1.2."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Variables of the environment that change what the libraries do, {} where there are none."""
    found = {k: v for k, v in sorted(environ.items()) if k.startswith("CUBLAS") or k in VARIABLES}
    return {"environment": found} if found else {}
