"""Managed memory: pages that move between host and GPU when they are prefetched, or when they are touched.

    prefetch   the driver is told to move all of them
    fault      h2d: a kernel reads them;  d2h: the host touches one byte of each page

Before every repetition the pages are sent back to where they came from, outside its time.

CuPy for CUDA 13 hands the host's number on as a GPU's, which CUDA refuses: there the driver is asked itself.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.errors import DeviceError
from bench.gpu.bodies import Bodies
from bench.gpu.engine import Engine
from bench.gpu.faults import translated
from bench.gpu.host_memory import Buffer, HostMemory, at, compare, download, patterned
from bench.gpu.launch import Launch
from bench.profile.records import Point, Repetitions
from kernels import CUDA
from kernels.spec import ITEM_BYTES

PAGE = 4096
"""Bytes of the host's page: one touch of each is enough to bring all."""

FORM, BLOCK = "v16 l4", 256
"""Of the stream family's copy, which touches every byte once."""

DRIVER, HOST = "libcuda.so.1", -1
"""The driver's library, and what it calls the host where a GPU's number is wanted."""

REFUSED = (1, 101, 801)
"""Statuses of a place that CUDA does not know: an invalid value, an invalid device, not supported."""

Prefetch = Callable[[int, int, int], None]
"""Queue the way of so many bytes from an address on to the host, on a stream."""


class Managed:
    """The handle of one way and variant; amounts are always 1."""

    VARIANTS = ("prefetch", "fault")

    def __init__(self, bodies: Bodies, host: HostMemory, point: Point) -> None:
        self.engine, self.host = bodies.engine, host
        self.arriving, self.variant = point.access == "h2d", point.variant or self.VARIANTS[0]
        self.name = f"managed {self.variant} {point.access}"
        self.clock = "host" if self.variant == "fault" and not self.arriving else ""
        form = next(
            f for f in CUDA["stream"].forms if (f.kernel, f.precision, f.variant) == ("copy", "fp32", FORM)
        )
        tile = BLOCK * form.items * ITEM_BYTES["fp32"]
        self.size = size = point.sizes["bytes"] // tile * tile
        if not size:
            raise DeviceError(f"{point.sizes['bytes']} byte hold no tile of {tile} byte: ask for more")
        with translated(f"{size} byte of managed memory"):
            self.memory = self.engine.cupy.cuda.malloc_managed(size)
        self.pages = Buffer(int(self.memory.ptr), at(int(self.memory.ptr), size))
        with host.near.threads():
            patterned(self.pages.view)
        self._to_host = to_host(self.engine, self.pages)
        self.source = host.pair(size, pinned=True)[0]
        self.target: Any = None
        if self.variant == "fault" and self.arriving:
            self.target, self.factor = self.engine.allocate(size), self.engine.upload(np.ones(1, np.float32))
            chosen, items = bodies.compiled("stream", form, BLOCK), size // ITEM_BYTES["fp32"]
            arrays = (self.target, self.pages, None, self.factor)
            self._once = bodies.launcher(chosen, Launch(size // tile, BLOCK), arrays, items)

    @classmethod
    def unsupported(cls, engine: Engine, point: Point) -> str:
        """Why pages do not move on demand here, or the variant is none; "" if all is well."""
        if point.variant and point.variant not in cls.VARIANTS:
            return f"managed memory is not moved by {point.variant!r}: valid are {', '.join(cls.VARIANTS)}"
        runtime = engine.cupy.cuda.runtime
        with translated("asking for managed memory"):
            there = runtime.deviceGetAttribute(runtime.cudaDevAttrConcurrentManagedAccess, 0)
        return "" if there else "managed memory is not paged on demand here (before Pascal, WSL or Windows)"

    def check(self) -> None:
        """Move once: what the kernel copied, or the pages themselves, must hold the pattern."""
        self.measure(1, 1)
        compare(self.name, self.source, download(self.engine, self.target or self.pages))

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of one move each."""
        rows = []
        with translated(self.name):
            for _ in range(n):
                self._prefetch(to_device=not self.arriving)
                self.engine.stream.synchronize()
                rows.append(self._by_host() if self.clock else self._by_events())
        return Repetitions(tuple(start for start, _ in rows), tuple(seconds for _, seconds in rows))

    def _prefetch(self, to_device: bool) -> None:
        stream = self.engine.stream.ptr
        if to_device:
            self.engine.cupy.cuda.runtime.memPrefetchAsync(self.pages.ptr, self.size, 0, stream)
        else:
            self._to_host(self.pages.ptr, self.size, stream)

    def _by_events(self) -> tuple[float, float]:
        engine = self.engine
        began, first = engine.now(), engine.mark()
        if self.target is not None:
            self._once(1)
        else:
            self._prefetch(to_device=self.arriving)
        last = engine.mark()
        engine.stream.synchronize()
        return began, engine.elapsed(first, last)

    def _by_host(self) -> tuple[float, float]:
        with self.host.near.threads():
            began, start = self.engine.now(), time.perf_counter()
            int(self.pages.view[::PAGE].sum())
            return began, time.perf_counter() - start

    def close(self) -> None:
        """Give the memory back."""
        vars(self).clear()


def to_host(engine: Engine, pages: Buffer) -> Prefetch:
    """What sends pages to the host here, tried with some that are there: CuPy, else the driver itself."""
    runtime = engine.cupy.cuda.runtime

    def by_cupy(address: int, bytes: int, stream: int) -> None:
        runtime.memPrefetchAsync(address, bytes, runtime.cudaCpuDeviceId, stream)

    with translated("sending managed memory to the host"):
        try:
            by_cupy(pages.ptr, pages.bytes, engine.stream.ptr)
            found: Prefetch = by_cupy
        except runtime.CUDARuntimeError as error:
            if error.status not in REFUSED:
                raise
            found = by_driver()
            found(pages.ptr, pages.bytes, engine.stream.ptr)
        engine.stream.synchronize()
    return found


def by_driver(library: str = DRIVER) -> Prefetch:
    """The driver's own function, which takes a number for the place in every version; OSError without it."""
    call = ctypes.CDLL(library).cuMemPrefetchAsync
    call.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    call.restype = ctypes.c_int

    def prefetch(address: int, bytes: int, stream: int) -> None:
        if status := call(address, bytes, HOST, stream):
            raise DeviceError(f"the driver does not send managed memory to the host: status {status}")

    return prefetch
