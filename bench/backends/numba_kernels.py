"""The Numba CUDA bodies of the FMA chains and the streams, compiled when first launched.

Only lazy jit: an explicit signature compiles at once and needs a driver. Every constant is cast to the
item type, or one literal turns an fp32 loop into fp64. Loops over Python constants unroll completely.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from functools import cache
from typing import Any

import numba
import numba.cuda
import numpy as np
from llvmlite import ir
from numba import types

from bench.backends.numba_reference import CHAINS, DTYPE, HALF

cuda: Any = numba.cuda  # a global: the simulator puts its own in its place while a kernel runs


class Kernels:
    """Every body as a kernel; in the simulator, which knows no intrinsics, vectors move item by item."""

    def __init__(self, simulator: bool = False) -> None:
        guard_numpy()
        warnings.filterwarnings("ignore", r"Grid size \d+ will likely result in GPU under-utilization")
        self.simulator = simulator
        self.fill = fill()
        self.delay = delay(_clock_of_host() if simulator else clock())
        self.chain = cache(self._chain)
        self.stream = cache(self._stream)

    @property
    def library(self) -> str:
        """Versions of what compiled the kernels."""
        return " ".join(f"{name} {_version(name)}" for name in ("numba", "numba-cuda"))

    def _chain(self, name: str) -> Any:
        """The chain of a precision: kernel(out, seeds, m, trips)."""
        return chain(DTYPE[name])

    def _stream(self, kernel: str, name: str, lanes: int, loads: int) -> Any:
        """A stream of `lanes` items an access, `loads` accesses in flight: kernel(a, b, c, s, n)."""
        load, store = _scalar_moves(lanes) if self.simulator else vector_moves(name, lanes)
        if kernel == "read":
            return read(DTYPE[name], lanes, loads, load)
        return stream(DTYPE[name], lanes, loads, load, store, kernel)

    def resources(self, kernel: Any, block: int) -> dict[str, int]:
        """Of a kernel that has been launched: registers and spilled bytes a thread, and the blocks of
        `block` threads that the device holds at once."""
        if self.simulator:
            return {}
        *_, compiled = kernel.overloads.values()
        return {
            "registers": int(compiled.regs_per_thread),
            "local_bytes": int(compiled.local_mem_per_thread),
            "resident_blocks": int(compiled.max_cooperative_grid_blocks(block)),
        }


def guard_numpy() -> None:
    """NumPy 2.5 took away np.row_stack, and numba-cuda 0.30 looks for it at its first compilation."""
    if not hasattr(np, "row_stack"):
        setattr(np, "row_stack", np.vstack)  # noqa: B010  no type checker knows this name


def chain(T: Any) -> Any:
    """x <- x m + x in fp64 and fp32; integers x <- x m + a, since x (m + 1) would fold into a power."""

    def fused(x: Any, m: Any, a: Any) -> Any:
        return cuda.fma(x, m, x)

    def whole(x: Any, m: Any, a: Any) -> Any:
        return T(x * m + a)

    step = _inline(whole if T is np.int32 else fused)
    one, none = np.int32(1), np.int32(0)

    def kernel(out: Any, seeds: Any, m: Any, trips: Any) -> None:
        i = cuda.grid(1)
        a = seeds[i]
        x = cuda.local.array(CHAINS, T)
        for j in range(CHAINS):
            x[j] = seeds[i * CHAINS + j]
        left = trips
        while left > none:
            for _ in range(HALF):
                for j in range(CHAINS):
                    x[j] = step(x[j], m, a)
            for _ in range(HALF):
                for j in range(CHAINS):
                    x[j] = step(x[j], m, a)
            left = np.int32(left - one)
        total = x[0]
        for j in range(1, CHAINS):
            total = T(total + x[j])
        out[i] = total  # every chain reaches memory, so none can be dropped

    return cuda.jit(kernel)


def stream(T: Any, lanes: int, loads: int, load: Any, store: Any, name: str) -> Any:
    """All loads of a thread, the formula, all stores; n is a multiple of what a block moves."""
    held = lanes * loads
    formula = _formula(name)
    first_stream, second_stream = name in ("copy", "scale", "add", "triad"), name in ("add", "triad")
    in_place = name == "update"

    def kernel(a: Any, b: Any, c: Any, s: Any, n: Any) -> None:
        stride = cuda.blockDim.x * lanes
        first = cuda.blockIdx.x * (stride * loads) + cuda.threadIdx.x * lanes
        x = cuda.local.array(held, T)
        y = cuda.local.array(held, T)
        if first < n:
            for j in range(loads):
                if in_place:
                    load(x, j * lanes, a, first + j * stride)
                elif first_stream:
                    load(x, j * lanes, b, first + j * stride)
            for j in range(loads):
                if second_stream:
                    load(y, j * lanes, c, first + j * stride)
            for k in range(held):
                x[k] = formula(x[k], y[k], s)
            for j in range(loads):
                store(a, first + j * stride, x, j * lanes)

    return cuda.jit(kernel)


def read(T: Any, lanes: int, loads: int, load: Any) -> Any:
    """Each thread sums every tile that is its turn, an accumulator for every item of an access."""
    held = lanes * loads

    def kernel(a: Any, b: Any, c: Any, s: Any, n: Any) -> None:
        stride = cuda.blockDim.x * lanes
        at = cuda.blockIdx.x * (stride * loads) + cuda.threadIdx.x * lanes
        x = cuda.local.array(held, T)
        sums = cuda.local.array(lanes, T)
        for k in range(lanes):
            sums[k] = T(0)
        while at < n:
            for j in range(loads):
                load(x, j * lanes, b, at + j * stride)
            for j in range(loads):
                for k in range(lanes):
                    sums[k] += x[j * lanes + k]
            at += cuda.gridDim.x * (stride * loads)
        total = s if cuda.grid(1) == 0 else T(0)
        for k in range(lanes):
            total += sums[k]
        a[cuda.grid(1)] = total

    return cuda.jit(kernel)


def fill() -> Any:
    """a[i] = tile[i + shift], the tile repeated over the array."""

    def kernel(a: Any, tile: Any, shift: Any) -> None:
        i = cuda.grid(1)
        while i < a.size:
            a[i] = tile[(i + shift) % tile.size]
            i += cuda.gridsize(1)

    return cuda.jit(kernel)


def delay(clock: Any) -> Any:
    """Wait on the device for so many nanoseconds: a delay that ends by itself."""

    def kernel(nanoseconds: Any) -> None:
        began = clock()
        while clock() - began < nanoseconds:
            pass

    return cuda.jit(kernel)


def _formula(name: str) -> Any:
    """What a stream stores: of x (from a or b), y (from c) and s."""
    bodies = {
        "write": lambda x, y, s: s,
        "update": lambda x, y, s: s * x,
        "copy": lambda x, y, s: x,
        "scale": lambda x, y, s: s * x,
        "add": lambda x, y, s: x + y,
        "triad": lambda x, y, s: cuda.fma(s, y, x),
    }
    return _inline(bodies[name])


def _inline(body: Any) -> Any:
    """A function of the device that never becomes a call."""
    return cuda.jit(body, device=True, inline="always")


# -- what plain Numba cannot say ---------------------------------------------------------------------


@cache
def vector_moves(name: str, lanes: int) -> tuple[Any, Any]:
    """load(to, i, origin, j) and store(...): to[i:i+lanes] = origin[j:j+lanes], on the array's side as one
    access aligned to its size, on the thread's side as registers."""
    item = DTYPE[name]().itemsize
    return _vector_move(name, lanes, item, item * lanes), _vector_move(name, lanes, item * lanes, item)


def _vector_move(name: str, lanes: int, to_alignment: int, from_alignment: int) -> Any:
    from numba.cuda.extending import intrinsic

    vector = ir.VectorType({"fp64": ir.DoubleType(), "fp32": ir.FloatType()}[name], lanes)

    def move(typing: Any, to: Any, i: Any, origin: Any, j: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def place(n: int) -> Any:
                array = context.make_array(signature.args[n])(context, builder, args[n])
                index = context.cast(builder, args[n + 1], signature.args[n + 1], types.int64)
                return builder.bitcast(builder.gep(array.data, [index]), vector.as_pointer())

            builder.store(builder.load(place(2), align=from_alignment), place(0), align=to_alignment)
            return context.get_dummy_value()

        return types.void(to, i, origin, j), emit

    return intrinsic(move)


@cache
def clock() -> Any:
    """Nanoseconds of the GPU's global timer."""
    from numba.cuda.extending import intrinsic

    def nanoseconds(typing: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(64), [])
            return builder.call(ir.InlineAsm(kind, "mov.u64 $0, %globaltimer;", "=l", side_effect=True), [])

        return types.int64(), emit

    return intrinsic(nanoseconds)


def _scalar_moves(lanes: int) -> tuple[Any, Any]:
    """The simulator knows no intrinsics: the same moves, item by item."""

    def move(to: Any, i: Any, origin: Any, j: Any) -> None:
        for k in range(lanes):
            to[i + k] = origin[j + k]

    kernel = cuda.jit(move, device=True)
    return kernel, kernel


def _clock_of_host() -> Any:
    """The simulator's threads are the host's."""
    import time

    return time.perf_counter_ns


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of numba"
