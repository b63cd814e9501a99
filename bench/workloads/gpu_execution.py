"""How each workload is executed on a GPU: by a library of CuPy or our own CUDA code, with its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.errors import DeviceError
from bench.gpu.engine import Engine
from bench.workloads import adam, gpu_code, layernorm, stencil

FLOAT: Mapping[str, Any] = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}


@dataclass
class Made:
    """One workload in memory: launch() queues one execution; its result, and what that must be (NumPy)."""

    launch: Callable[[], None]
    result: Callable[[], Any]
    expected: Callable[[], Any]


Make = Callable[[Engine, Mapping[str, int], int], Made]


def array(engine: Engine, shape: tuple[int, ...], kind: str, seed: int) -> Any:
    """A CuPy array of random numbers between 1/2 and 1 in size, of either sign."""
    dtype = np.dtype(FLOAT[kind])
    memory = engine.random(int(np.prod(shape)) * dtype.itemsize, kind, seed=seed)
    return engine.cupy.ndarray(shape, dtype, memptr=memory)


def host(engine: Engine, *arrays: Any) -> list[Any]:
    """Arrays in fp64 on the host, after everything queued."""
    engine.synchronize()
    return [engine.cupy.asnumpy(a).astype(np.float64) for a in arrays]


def launcher(engine: Engine, name: str) -> Callable[[tuple[int, ...], tuple[int, ...], Sequence[Any]], None]:
    """Queues our own function `name`: (grid, block, arguments)."""
    (function,) = engine.modules.compiled(gpu_code.CODE, (name,))

    def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any]) -> None:
        function(grid, block, tuple(arguments), stream=engine.stream)

    return launch


def product(kind: str) -> Make:
    """C = A B by cuBLAS; fp16 is summed in fp32."""

    def make(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
        m, n, k = (sizes[name] for name in "mnk")
        a, b = array(engine, (m, k), kind, seed), array(engine, (k, n), kind, seed + 1)
        c = engine.cupy.empty((m, n), FLOAT[kind])

        def expected() -> Any:
            left, right = host(engine, a, b)
            return left @ right

        dot = engine.cupy.dot
        return Made(lambda: dot(a, b, out=c), lambda: host(engine, c)[0], expected)

    return make


def gemv(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """y = A x by cuBLAS."""
    from importlib import import_module

    m, n = sizes["m"], sizes["n"]
    a, x = array(engine, (m, n), "fp64", seed), array(engine, (n,), "fp64", seed + 1)
    y = engine.cupy.empty(m, np.float64)
    blas = import_module("cupy.cublas")

    def expected() -> Any:
        left, right = host(engine, a, x)
        return left @ right

    return Made(lambda: blas.gemv("N", 1.0, a, x, 0.0, y), lambda: host(engine, y)[0], expected)


def dot(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """The inner product by cuBLAS; its result stays on the GPU."""
    from importlib import import_module

    a, b = (array(engine, (sizes["n"],), "fp64", seed + s) for s in (0, 1))
    c = engine.cupy.empty((), np.float64)
    blas = import_module("cupy.cublas")

    def expected() -> Any:
        left, right = host(engine, a, b)
        return left @ right

    return Made(lambda: blas.dot(a, b, out=c), lambda: host(engine, c)[0], expected)


def fft(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """Rows of complex numbers by cuFFT, from one array to another, so that values stay as they are."""
    rows, n = sizes["rows"], sizes["n"]
    x = array(engine, (rows, 2 * n), "fp64", seed).view(np.complex128)
    y = engine.cupy.empty_like(x)
    cufft = engine.cupy.cuda.cufft  # as an attribute: CuPy then finds the library of its wheel first
    plan = cufft.Plan1d(n, cufft.CUFFT_Z2Z, rows)

    def result() -> Any:
        engine.synchronize()
        return np.ascontiguousarray(engine.cupy.asnumpy(y)).view(np.float64)

    def expected() -> Any:
        engine.synchronize()
        return np.fft.fft(engine.cupy.asnumpy(x), axis=1).view(np.float64)

    return Made(lambda: plan.fft(x, y, cufft.CUFFT_FORWARD), result, expected)


def rows_of(columns: int) -> tuple[int, int]:
    """Vectors of four items in a row and threads of its block, each of which holds at most HELD of them."""
    vectors = columns // 4
    block = max(32, -(-vectors // gpu_code.HELD) + 31 & ~31)
    if columns % 4 or block > 1024:
        raise DeviceError(f"rows of {columns} items: want a multiple of 4, at most {4096 * gpu_code.HELD}")
    return vectors, block


def softmax(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """One block a row."""
    rows, columns = sizes["rows"], sizes["columns"]
    x, y = array(engine, (rows, columns), "fp32", seed), engine.cupy.empty((rows, columns), np.float32)
    (vectors, block), launch = rows_of(columns), launcher(engine, "softmax")

    def expected() -> Any:
        (values,) = host(engine, x)
        grown = np.exp(values - values.max(axis=1, keepdims=True))
        return grown / grown.sum(axis=1, keepdims=True)

    arguments = (x, y, np.int32(vectors))
    return Made(lambda: launch((rows,), (block,), arguments), lambda: host(engine, y)[0], expected)


def normalised(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """LayerNorm, one block a row."""
    rows, columns = sizes["rows"], sizes["columns"]
    x, y = array(engine, (rows, columns), "fp32", seed), engine.cupy.empty((rows, columns), np.float32)
    gain, bias = (array(engine, (columns,), "fp32", seed + s) for s in (1, 2))
    (vectors, block), launch = rows_of(columns), launcher(engine, "layernorm")
    arguments = (x, y, gain, bias, np.int32(vectors), np.float32(layernorm.EPSILON))
    return Made(
        lambda: launch((rows,), (block,), arguments),
        lambda: host(engine, y)[0],
        lambda: layernorm.reference(*host(engine, x, gain, bias)),
    )


def optimiser(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """Adam, four items a thread; a rest of fewer than four is not worth a branch: sizes are cut to it."""
    n = sizes["n"]
    if n % 4:
        raise DeviceError(f"adam takes a multiple of 4 items on a GPU, got {n}")
    p, g, m, v = (array(engine, (n,), "fp32", seed + s) for s in range(4))
    engine.cupy.abs(v, out=v)
    start = host(engine, p, g, m, v)
    factors = (adam.KEEP1, adam.TAKE1, adam.KEEP2, adam.TAKE2, adam.SCALE, adam.CORRECTION, adam.SMALL)
    launch, block = launcher(engine, "adam"), 256
    grid, arguments = (-(-n // (4 * block)),), (p, g, m, v, np.int64(n // 4), *factors)
    return Made(
        lambda: launch(grid, (block,), arguments),
        lambda: np.stack(host(engine, p, m, v)),
        lambda: adam.reference(*start),
    )


PLANES = 64
"""Planes that a block of the stencil walks up."""


def seven_point(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """The stencil in blocks of 32 x 8 columns."""
    n = sizes["n"]
    u, v = array(engine, (n + 2,) * 3, "fp64", seed), engine.cupy.empty((n,) * 3, np.float64)
    launch, planes = launcher(engine, "stencil"), min(n, PLANES)
    grid, block = (-(-n // 32), -(-n // 8), -(-n // planes)), (32, 8)
    factors = (np.float64(stencil.CENTRE), np.float64(stencil.NEIGHBOUR))
    return Made(
        lambda: launch(grid, block, (u, v, np.int32(n), np.int32(planes), *factors)),
        lambda: host(engine, v)[0],
        lambda: stencil.reference(host(engine, u)[0]),
    )


def turned(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """The transpose by tiles of 32 x 32 in shared memory."""
    n = sizes["n"]
    a, b = array(engine, (n, n), "fp64", seed), engine.cupy.empty((n, n), np.float64)
    launch, tiles = launcher(engine, "transpose"), -(-n // 32)
    return Made(
        lambda: launch((tiles, tiles), (32, 8), (a, b, np.int32(n))),
        lambda: host(engine, b)[0],
        lambda: host(engine, a)[0].T,
    )


def sparse(engine: Engine, sizes: Mapping[str, int], seed: int) -> Made:
    """The CSR product, eight threads a row."""
    edge = sizes["edge"]
    n = edge**3
    value, x = array(engine, (27 * n,), "fp64", seed), array(engine, (n,), "fp64", seed + 1)
    y, pointer = engine.cupy.empty(n, np.float64), engine.cupy.empty(n + 1, np.int32)
    column = engine.cupy.empty(27 * n, np.int32)
    launcher(engine, "connect")((n // 256 + 1,), (256,), (pointer, column, np.int32(edge)))
    launch, grid = launcher(engine, "spmv"), (-(-n * gpu_code.LANES // 256),)

    def expected() -> Any:
        values, vector = host(engine, value, x)
        places = engine.cupy.asnumpy(column).reshape(n, 27)
        return (values.reshape(n, 27) * vector[places]).sum(axis=1)

    arguments = (pointer, column, value, x, y, np.int32(n))
    return Made(lambda: launch(grid, (256,), arguments), lambda: host(engine, y)[0], expected)
