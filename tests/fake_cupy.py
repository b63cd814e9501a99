"""A stand-in for CuPy with one GPU: memory on the host, a virtual clock, kernels that tests bring.

What is queued takes effect at once; when it would have run is kept apart. Each call checks its arguments as
CuPy does, that pointers lie in live memory, and that nothing is queued or loaded that would hang a real GPU.
"""

from __future__ import annotations

import ctypes
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CALL, DEPTH = 5e-6, 1024
"""Seconds that a call takes the host, and entries of the launch queue."""

PROPERTIES = {
    "name": b"NVIDIA Fake 1000",
    "major": 9,
    "minor": 0,
    "l2CacheSize": 1 << 16,
    "multiProcessorCount": 2,
}

SCALARS = {np.dtype(char).type for char in "?bhilqBHILQefdFD"}
"""NumPy types that CuPy passes to a kernel by value."""


class CUDARuntimeError(RuntimeError):
    """As CuPy's: the number is `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: as the test asked\nand a second line")
        self.status = status


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class CompileException(Exception):
    """As CuPy's: of no RuntimeError."""


class CUBLASError(RuntimeError):
    """As CuPy's, without a number of CUDA's."""


class Memory:
    """Like CuPy's MemoryPointer: `ptr` is an address; the memory goes when nobody holds it."""

    def __init__(self, gpu: FakeGpu, size: int) -> None:
        self._gpu, self._size = gpu, size
        self._room = np.full(size + 512, 0xCD, np.uint8)
        self.ptr = int(self._room.ctypes.data + -self._room.ctypes.data % 256)
        gpu.live[self.ptr] = size

    def __del__(self) -> None:
        self._gpu.live.pop(self.ptr, None)


@dataclass
class FakeGpu:
    """The state of the device, and what a test asks of it.

    seconds: what one launch takes, by (entry, grid, block, count);  bodies: entry -> what it does to memory
    fail: entry or call -> status to raise (at the next wait for launches);  compiled: source, options
    """

    total: int = 1 << 30
    properties: dict[str, Any] = field(default_factory=lambda: dict(PROPERTIES))
    seconds: Callable[[str, int, int, int], float] = lambda entry, grid, block, count: 1e-5 + 1e-6 * count
    bodies: dict[str, Callable[..., None]] = field(default_factory=dict)
    fail: dict[str, int] = field(default_factory=dict)
    refuse: str = ""
    blocks_per_sm: int = 2
    wrong: bool = False
    live: dict[int, int] = field(default_factory=dict)
    compiled: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    launches: list[tuple[str, int, int, tuple[Any, ...], int]] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    clock: float = 1000.0
    gpu_time: float = 0.0
    flags: Any = None
    held: tuple[int, float] | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)
    ends: deque[float] = field(default_factory=deque)
    pending: int = 0
    loaded: set[str] = field(default_factory=set)

    def now(self) -> float:
        """The host's clock; telemetry's thread may look, too."""
        return self.clock

    def call(self, name: str) -> None:
        """A call into the driver: time passes; an error that the test asked for appears."""
        self.calls.append(name)
        self.clock += CALL
        self.look()
        if name in self.fail:
            raise CUDARuntimeError(self.fail[name])

    def look(self) -> None:
        """Whether the host has raised the flag for which the GPU waits, or it gives up."""
        if self.held is None:
            return
        ticket, end = self.held
        if self.flags[0] >= ticket or self.clock >= end:
            if self.flags[0] < ticket:
                self.flags[1] = ticket
            self.gpu_time, self.held = max(self.gpu_time, min(self.clock, end)), None
            for action in self.waiting:
                action()
            self.waiting.clear()

    def queue(self, seconds: float, name: str, mark: Any = None) -> None:
        """Put something on the stream; a full queue holds the host up."""
        queued = self.clock

        def run() -> None:
            self.gpu_time = max(self.gpu_time, queued) + seconds
            self.ends.append(self.gpu_time)
            if mark is not None:
                mark.time = self.gpu_time

        if self.held is None:
            run()
            while self.ends and self.ends[0] <= self.clock:
                self.ends.popleft()
            if len(self.ends) >= DEPTH:
                self.clock = max(self.clock, self.ends.popleft())
            return
        self.waiting.append(run)
        if len(self.waiting) >= DEPTH:
            self.hangs.append(f"{name}: {DEPTH} launches queued while the GPU waits for the host")
            self.give_up()

    def give_up(self) -> None:
        """The host can do nothing: time passes until the GPU stops waiting."""
        if self.held is not None:
            self.clock = max(self.clock, self.held[1])
            self.look()

    def wait(self) -> None:
        """Until all that is queued has run; the errors of launches appear here."""
        if self.held is not None and self.flags[0] < self.held[0]:
            self.hangs.append("the host waits for the GPU, which waits for the host")
            self.give_up()
        self.look()
        self.clock = max(self.clock, self.gpu_time) + CALL
        if self.pending:
            raise CUDARuntimeError(self.pending)

    def holds(self, address: int, bytes: int) -> bool:
        """Whether memory that lives has that range."""
        return any(p <= address and address + bytes <= p + size for p, size in self.live.items())

    def used(self) -> int:
        """Bytes allocated."""
        return sum(self.live.values())


def integer(*values: Any) -> None:
    """CuPy's typed functions take nothing but integers here."""
    for value in values:
        assert isinstance(value, int | np.integer) and not isinstance(value, bool), repr(value)


class Function:
    """As cupy.cuda.Function."""

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self._gpu, self._name, self.ptr = gpu, name, 4096 + len(name)

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0, stream: Any = None) -> None:
        gpu, name = self._gpu, self._name
        assert type(grid) is tuple and type(block) is tuple and isinstance(stream, Stream), name
        integer(*grid, *block, shared_mem)
        assert 1 <= grid[0] < 2**31 and 1 <= block[0] <= 1024, (name, grid, block)
        assert all(type(a) in SCALARS for a in args), f"{name}: CuPy would pass {args} as something else"
        gpu.call("launch")
        if name not in gpu.loaded:
            gpu.loaded.add(name)
            if gpu.held is not None:
                gpu.hangs.append(f"{name} is loaded while the GPU waits for the host")
        gpu.launches.append((name, grid[0], block[0], args, shared_mem))
        gpu.pending = gpu.pending or gpu.fail.get(name, 0)
        self._run(grid[0], block[0], args)

    def _run(self, grid: int, block: int, args: tuple[Any, ...]) -> None:
        gpu = self._gpu
        if self._name == "hold":
            return self._hold(*args)
        if self._name == "fill":
            self._fill(*args)
            return gpu.queue(1e-5, "fill")
        assert [type(a) for a in args] == [np.uint64] * 4 + [np.int64, np.int32], args
        assert all(int(p) == 0 or gpu.holds(int(p), 1) for p in args[:4]), "a pointer into freed memory"
        gpu.bodies.get(self._name, lambda *_: None)(grid, block, *map(int, args))
        return gpu.queue(gpu.seconds(self._name, grid, block, int(args[5])), self._name)

    def _hold(self, flags: Any, ticket: Any, nanoseconds: Any) -> None:
        assert type(flags) is np.uint64 and type(ticket) is np.int32 and type(nanoseconds) is np.uint64
        gpu = self._gpu
        gpu.flags = (ctypes.c_int32 * 2).from_address(int(flags))
        assert gpu.held is None, "two kernels wait for the host"
        gpu.held = (int(ticket), max(gpu.clock, gpu.gpu_time) + int(nanoseconds) * 1e-9)

    def _fill(self, words: Any, n: Any, seed: Any, keep: Any, fixed: Any) -> None:
        assert [type(x) for x in (words, n, seed, keep, fixed)] == [np.uint64, np.int64] + [np.uint64] * 3
        assert self._gpu.holds(int(words), 8 * int(n)), "filled beyond the end"
        random = np.random.default_rng(int(seed)).integers(0, 2**64, int(n), np.uint64)
        view(int(words), 8 * int(n)).view(np.uint64)[:] = random & keep | fixed


def view(address: int, bytes: int) -> Any:
    """Memory as NumPy bytes."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * bytes).from_address(address))


class RawKernel:
    """As cupy.RawKernel, of a module."""

    num_regs, local_size_bytes, max_threads_per_block = 42, 0, 1024

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.kernel, self.max_dynamic_shared_size_bytes = Function(gpu, name), 0


class Event:
    """As cupy.cuda.Event; `time` when it passed."""

    time: float | None = None


class Stream:
    """As cupy.cuda.Stream."""

    current: Stream | None = None

    def __init__(self, gpu: FakeGpu, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream waits for this one"
        self._gpu, self.ptr = gpu, 77

    def use(self) -> Stream:
        Stream.current = self
        return self

    def record(self, event: Event) -> Event:
        self._gpu.call("eventRecord")
        self._gpu.queue(0.0, "event", event)
        return event

    def synchronize(self) -> None:
        self._gpu.call("streamSynchronize")
        self._gpu.wait()


def runtime(gpu: FakeGpu) -> types.SimpleNamespace:
    """As cupy.cuda.runtime."""

    def copy(to: int, source: int, bytes: int) -> None:
        for address in (to, source):
            inside = gpu.holds(address, bytes)
            assert inside or not any(p <= address < p + size for p, size in gpu.live.items()), (
                "copied too much"
            )
        ctypes.memmove(to, source, bytes)

    def memcpy_async(to: int, source: int, bytes: int, kind: int, stream: int) -> None:
        integer(to, source, bytes, kind, stream)
        gpu.call("memcpyAsync")
        copy(to, source, bytes)

    def memcpy_2d(
        to: int, to_pitch: int, source: int, pitch: int, width: int, height: int, kind: int
    ) -> None:
        integer(to, to_pitch, source, pitch, width, height, kind)
        assert width <= pitch and width <= to_pitch, "rows that overlap"
        gpu.call("memcpy2D")
        for row in range(height):
            copy(to + row * to_pitch, source + row * pitch, width)

    def memset_async(address: int, value: int, bytes: int, stream: int) -> None:
        integer(address, value, bytes, stream)
        gpu.call("memsetAsync")
        assert gpu.holds(address, bytes), "set beyond the end"
        view(address, bytes)[:] = value
        gpu.queue(1e-5, "memset")

    def properties(device: int) -> dict[str, Any]:
        gpu.call("getDeviceProperties")
        return gpu.properties

    return types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceProperties=properties,
        hostAllocMapped=2,
        hostAllocPortable=1,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyAsync=memcpy_async,
        memcpy2D=memcpy_2d,
        memsetAsync=memset_async,
        memGetInfo=lambda: (gpu.call("memGetInfo"), (gpu.total - gpu.used(), gpu.total))[1],
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000,
    )


class Pinned:
    """As cupy.cuda.PinnedMemory."""

    def __init__(self, size: int, flags: int = 0) -> None:
        assert flags == 3, "the GPU must see it"
        self._room = np.zeros(size, np.uint8)
        self.ptr = int(self._room.ctypes.data)


def fake_cupy(gpu: FakeGpu, blas: Any = None) -> Any:
    """The module, for sys.modules["cupy"]; `blas` stands for cupy.cuda.cublas."""

    def alloc(size: int) -> Memory:
        integer(size)
        gpu.call("malloc")
        if gpu.used() + size > gpu.total:
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes (allocated so far: {gpu.used():,})."
            )
        return Memory(gpu, size)

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
            assert type(options) is tuple and all(type(word) is str for word in options)
            if gpu.refuse:
                raise CompileException(gpu.refuse)
            self._code = code
            gpu.compiled.append((code, options))

        def get_function(self, name: str) -> RawKernel:
            assert name in self._code, name
            return RawKernel(gpu, name)

    def occupancy(function: int, block: int, shared: int) -> int:
        integer(function, block, shared)
        return gpu.blocks_per_sm

    def elapsed(first: Event, last: Event) -> float:
        assert first.time is not None and last.time is not None, "not ready"
        return -1.0 if gpu.wrong else (last.time - first.time) * 1e3

    cuda = types.SimpleNamespace(
        Device=lambda number: types.SimpleNamespace(use=lambda: gpu.call(f"setDevice {number}")),
        Stream=lambda non_blocking: Stream(gpu, non_blocking),
        Event=Event,
        PinnedMemory=Pinned,
        alloc=alloc,
        get_elapsed_time=elapsed,
        runtime=runtime(gpu),
        driver=types.SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=occupancy),
        nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
        compiler=types.SimpleNamespace(CompileException=CompileException),
        cublas=blas,
    )
    pool = types.SimpleNamespace(free_all_blocks=lambda: gpu.call("free"))
    module: Any = types.ModuleType("cupy")
    module.cuda, module.RawModule, module.__version__ = cuda, RawModule, "14.2.0"
    module.get_default_memory_pool = lambda: pool
    return module


def entries_launched(gpu: FakeGpu) -> Iterator[str]:
    """Names of the functions launched, in order, without the engine's own."""
    return (name for name, *_ in gpu.launches if name not in ("fill", "hold"))
