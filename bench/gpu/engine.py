"""The thin layer over CuPy: one device, one stream on which everything runs, and the events that time it.

The device is ordinal 0 of this process, which its parent made the right one. Nothing here knows a
precision or a kernel; every call either works or raises one of ours (bench/gpu/faults.py).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from bench.errors import DeviceError
from bench.gpu.faults import translated
from bench.gpu.modules import Function, Modules

KEEP_AND_SET = {
    "fp64": (0x800FFFFFFFFFFFFF, 0x3FE0000000000000),
    "fp32": (0x807FFFFF807FFFFF, 0x3F0000003F000000),
    "fp16": (0x83FF83FF83FF83FF, 0x3800380038003800),
    "bf16": (0x807F807F807F807F, 0x3F003F003F003F00),
    "fp8": (0x8787878787878787, 0x3030303030303030),
}
"""Which random bits an item keeps and which are set: sign and fraction are random, the size is 0.5 to 1."""

EVERY_BIT = (0xFFFFFFFFFFFFFFFF, 0)
"""Integers and fp4, of which every pattern is a number, are random in all bits."""

FLUSH_FACTOR = 2
"""L2 caches that a flush writes."""

OWN_CODE = r"""
extern "C" __global__ void fill(unsigned long long* words, long long n, unsigned long long seed,
                                unsigned long long keep, unsigned long long set) {
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long i = first; i < n; i += (long long)gridDim.x * blockDim.x) {
        unsigned long long z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;  // splitmix64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        words[i] = ((z ^ (z >> 31)) & keep) | set;
    }
}
extern "C" __global__ void hold(volatile int* flags, int ticket, unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    while (flags[0] < ticket) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > nanoseconds) { flags[1] = ticket; return; }
    }
}
"""
"""fill: n random words, each a hash of its place. hold: waits for the host's ticket, not for ever."""

FILL_SHAPE = (1024, 256)


class Engine:
    """A GPU in use: allocation, random operands, copies, the flag that the host raises, events."""

    def __init__(self, now: Callable[[], float] = time.monotonic, ordinal: int = 0) -> None:
        cupy: Any = import_module("cupy")
        self.cupy, self.ordinal = cupy, ordinal
        self.now = now
        with translated("opening the GPU"):
            cupy.cuda.Device(ordinal).use()
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.stream.use()
            self.properties: Mapping[str, Any] = cupy.cuda.runtime.getDeviceProperties(ordinal)
            mapped = cupy.cuda.runtime.hostAllocMapped | cupy.cuda.runtime.hostAllocPortable
            self._pinned = cupy.cuda.PinnedMemory(64, mapped)
        self.flags = (ctypes.c_int32 * 2).from_address(self._pinned.ptr)
        self.flags[:] = [0, 0]
        self.ticket = 0
        self.modules = Modules(cupy, self.capability)
        self._fill, self._hold = self.modules.compiled(OWN_CODE, ("fill", "hold"))
        self._flushed: Any = None

    @property
    def capability(self) -> int:
        """Compute capability x 10."""
        return int(self.properties["major"]) * 10 + int(self.properties["minor"])

    def free_bytes(self) -> int:
        """Free device memory now."""
        with translated("asking for free memory"):
            return int(self.cupy.cuda.runtime.memGetInfo()[0])

    def allocate(self, bytes: int) -> Any:
        """`bytes` of device memory (.ptr; it frees itself); MemoryError says how much is free."""
        try:
            return self.cupy.cuda.alloc(max(8, -(-bytes // 8) * 8))
        except (MemoryError, RuntimeError):
            with translated(f"{bytes} byte wanted, {self.free_bytes()} byte of the GPU's memory are free"):
                raise

    def reclaim(self) -> None:
        """Hand memory that nobody holds any more back to the driver."""
        self.cupy.get_default_memory_pool().free_all_blocks()

    def random(self, bytes: int, kind: str, operands: str = "random", seed: int = 1) -> Any:
        """Device memory filled with random numbers of type `kind`, or with zeros."""
        buffer, words = self.allocate(bytes), -(-bytes // 8)
        keep, fixed = KEEP_AND_SET.get(kind, EVERY_BIT) if operands == "random" else (0, 0)
        arguments = (
            np.uintp(buffer.ptr),
            np.int64(words),
            np.uint64(seed),
            np.uint64(keep),
            np.uint64(fixed),
        )
        with translated("filling an array"):
            self._fill.kernel(FILL_SHAPE[:1], FILL_SHAPE[1:], arguments, stream=self.stream)
        return buffer

    def upload(self, array: Any) -> Any:
        """Device memory that holds a NumPy array."""
        buffer, source = self.allocate(array.nbytes), np.ascontiguousarray(array)
        with translated("copying to the GPU"):
            self._copy(buffer.ptr, source.ctypes.data, source.nbytes, "memcpyHostToDevice")
        return buffer

    def download(self, address: int, bytes: int, pitch: int = 0, rows: int = 1) -> Any:
        """`rows` x `bytes` of device memory as NumPy bytes; rows start `pitch` bytes apart."""
        found = np.empty((rows, bytes), np.uint8)
        runtime = self.cupy.cuda.runtime
        with translated("copying from the GPU"):
            self.stream.synchronize()
            if rows == 1:
                self._copy(found.ctypes.data, address, bytes, "memcpyDeviceToHost")
            else:
                target = found.ctypes.data
                runtime.memcpy2D(target, bytes, address, pitch, bytes, rows, runtime.memcpyDeviceToHost)
        return found

    def _copy(self, to: int, source: int, bytes: int, kind: str) -> None:
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(to, source, bytes, getattr(runtime, kind), self.stream.ptr)
        self.stream.synchronize()

    def launch(self, function: Function, grid: int, block: int, arguments: tuple[Any, ...]) -> None:
        """Queue one launch; pointers as numpy.uintp, n as numpy.int64, count as numpy.int32."""
        function.call((grid,), (block,), arguments, function.shared_bytes, self.stream)

    def blocks_per_sm(self, function: Function, block: int) -> int:
        """Blocks of that size that an SM holds at once; DeviceError where none fits."""
        ask = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        with translated("asking for the occupancy"):
            held = int(ask(function.call.ptr, block, function.shared_bytes))
        if held < 1 or block > function.most_threads:
            raise DeviceError(
                f"a block of {block} threads x {function.registers} registers does not fit an SM"
            )
        return held

    def hold(self, ticket: int, seconds: float) -> None:
        """Queue a kernel that waits for flags[0] to be `ticket`, at most `seconds`; flags[1]: in vain.

        ticket: above all before it (`self.ticket`), whoever gave them out: it would not wait else
        """
        self.ticket = ticket
        arguments = (np.uintp(self._pinned.ptr), np.int32(ticket), np.uint64(int(seconds * 1e9)))
        self._hold.kernel((1,), (1,), arguments, stream=self.stream)

    def mark(self) -> Any:
        """An event on the stream, after everything queued so far."""
        return self.stream.record(self.cupy.cuda.Event())

    def elapsed(self, first: Any, last: Any) -> float:
        """Seconds between two marks that have passed."""
        return float(self.cupy.cuda.get_elapsed_time(first, last)) * 1e-3

    def synchronize(self) -> None:
        """Wait for everything queued; an error of any launch before appears here."""
        with translated("waiting for the GPU"):
            self.stream.synchronize()

    def flush(self) -> None:
        """Queue a write of more than the L2 cache holds, so that it holds nothing of the arrays."""
        bytes = FLUSH_FACTOR * int(self.properties["l2CacheSize"])
        if self._flushed is None:
            self._flushed = self.allocate(bytes)
        self.cupy.cuda.runtime.memsetAsync(self._flushed.ptr, 0, bytes, self.stream.ptr)

    def versions(self) -> dict[str, Any]:
        """CuPy, the CUDA runtime it is built for, NVRTC and the driver's CUDA."""
        runtime, compiler = self.cupy.cuda.runtime, self.cupy.cuda.nvrtc
        with translated("asking for versions"):
            nvrtc = ".".join(str(part) for part in compiler.getVersion())
            driver, made_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        return {"cupy": self.cupy.__version__, "cuda": made_for, "nvrtc": nvrtc, "driver_cuda": driver}
