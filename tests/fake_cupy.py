"""A stand-in for CuPy on a fake GPU or several: memory on the host, kernels that tests bring.

Each call checks its arguments as CuPy does, that pointers lie in live memory, and that nothing is queued or
loaded that would hang a real GPU.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fake_gpu import CUDARuntimeError, FakeGpu

SCALARS = {np.dtype(char).type for char in "?bhilqBHILQefdFD"}
"""NumPy types that CuPy passes to a kernel by value."""


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class CompileException(Exception):
    """As CuPy's: of no RuntimeError."""


class CUBLASError(RuntimeError):
    """As CuPy's, without a number of CUDA's."""


class Memory:
    """Like CuPy's MemoryPointer: `ptr` is an address; the memory goes when nobody holds it."""

    def __init__(self, gpu: FakeGpu, size: int) -> None:
        self._gpu, self._size, self.device = gpu, size, gpu.current
        self._room = np.full(size + 512, 0xCD, np.uint8)
        self.ptr = int(self._room.ctypes.data + -self._room.ctypes.data % 256)
        gpu.live[self.ptr] = size
        gpu.home[self.ptr] = self.device

    def __del__(self) -> None:
        self._gpu.live.pop(self.ptr, None)


RATES = {"h2d": 20e9, "d2h": 20e9, "d2d": 500e9, "peer": 100e9, "pageable": 5e9}
"""Byte/s of copies, each after LATENCY."""

LATENCY = 2e-6


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
        if gpu.recording is not None:
            gpu.recording.append(gpu.seconds(name, grid[0], block[0], int(args[5])))
            return
        assert stream.device == gpu.current, f"{name} is launched on a stream of another GPU"
        self._run(grid[0], block[0], args, stream.ptr)

    def _run(self, grid: int, block: int, args: tuple[Any, ...], stream: int) -> None:
        gpu = self._gpu
        if self._name == "hold":
            return self._hold(*args, stream)
        if self._name == "fill":
            self._fill(*args)
            return gpu.queue(1e-5, "fill", stream=stream)
        assert [type(a) for a in args] == [np.uint64] * 4 + [np.int64, np.int32], args
        assert all(int(p) == 0 or gpu.holds(int(p), 1) for p in args[:4]), "a pointer into freed memory"
        gpu.bodies.get(self._name, lambda *_: None)(grid, block, *map(int, args))
        touch = gpu.touches.get(self._name, lambda *_: ((), ()))
        read, written = touch(grid, block, *map(int, args))
        seconds = gpu.seconds(self._name, grid, block, int(args[5]))
        return gpu.queue(seconds, self._name, stream=stream, read=read, written=written)

    def _hold(self, flags: Any, ticket: Any, nanoseconds: Any, stream: int) -> None:
        assert type(flags) is np.uint64 and type(ticket) is np.int32 and type(nanoseconds) is np.uint64
        gpu = self._gpu
        raised = (ctypes.c_int32 * 2).from_address(int(flags))
        assert stream not in gpu.blocked, "two kernels wait for the host"
        gpu.blocked[stream] = raised, int(ticket), max(gpu.clock, gpu.gpu_time) + int(nanoseconds) * 1e-9

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
    preferred_shared_memory_carveout = -1

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.kernel, self.max_dynamic_shared_size_bytes = Function(gpu, name), 0


class Event:
    """As cupy.cuda.Event; `time` when it passed."""

    time: float | None = None
    device: int | None = None


class Stream:
    """As cupy.cuda.Stream."""

    current: Stream | None = None

    def __init__(self, gpu: FakeGpu, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream waits for this one"
        self._gpu, self.ptr, self.device = gpu, 77 + gpu.streams, gpu.current
        gpu.streams += 1

    def use(self) -> Stream:
        Stream.current = self
        return self

    def record(self, event: Event) -> Event:
        self._gpu.call("eventRecord")
        made = self._gpu.current if event.device is None else event.device
        assert made == self.device, "an event of one GPU on a stream of another"
        event.device = made
        self._gpu.queue(0.0, "event", event, stream=self.ptr, engine=None)
        return event

    def wait_event(self, event: Event) -> None:
        assert event.device is not None, "an event that was never recorded"
        self._gpu.call("streamWaitEvent")
        self._gpu.queue(0.0, "wait", stream=self.ptr, engine=None, after=event)

    def synchronize(self) -> None:
        self._gpu.call("streamSynchronize")
        self._gpu.wait()

    def begin_capture(self) -> None:
        self._gpu.call("beginCapture")
        self._gpu.recording = []

    def end_capture(self) -> Graph:
        self._gpu.call("endCapture")
        recorded, self._gpu.recording = self._gpu.recording, None
        assert recorded, "nothing was recorded"
        return Graph(self._gpu, recorded)


class Graph:
    """As cupy.cuda.graph.Graph: what was launched while it was recorded."""

    def __init__(self, gpu: FakeGpu, seconds: list[float]) -> None:
        self._gpu, self._seconds = gpu, seconds

    def upload(self, stream: Stream) -> None:
        self._gpu.call("graphUpload")

    def launch(self, stream: Stream) -> None:
        self._gpu.call("graphLaunch")
        self._gpu.queue(sum(self._seconds), "graph")


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
        on = gpu.on_device(source) is not None, gpu.on_device(to) is not None
        assert on == {1: (False, True), 2: (True, False), 3: (True, True)}[kind], "memory is elsewhere"
        copy(to, source, bytes)
        host = {1: source, 2: to}.get(kind)
        if host is not None and not gpu.locked(host):
            if gpu.held is not None:
                gpu.hangs.append("a copy of pageable memory waits for a stream that waits for the host")
                gpu.give_up()
            gpu.clock = max(gpu.clock, gpu.gpu_time) + LATENCY + bytes / RATES["pageable"]
            return
        way = {1: "h2d", 2: "d2h", 3: "d2d"}[kind]
        moved = {"read": ((source, bytes),), "written": ((to, bytes),)}
        gpu.queue(LATENCY + bytes / RATES[way], way, stream=stream, engine=way, **moved)

    def memcpy_peer(to: int, to_device: int, source: int, device: int, bytes: int, stream: int) -> None:
        integer(to, to_device, source, device, bytes, stream)
        gpu.call("memcpyPeerAsync")
        assert (gpu.on_device(source), gpu.on_device(to)) == (device, to_device), "memory is elsewhere"
        copy(to, source, bytes)
        seconds = LATENCY + bytes / RATES["peer"] * (1 if (device, to_device) in gpu.enabled else 4)
        moved = {"read": ((source, bytes),), "written": ((to, bytes),)}
        gpu.queue(seconds, "peer", stream=stream, engine=("peer", device, to_device), **moved)

    def enable_peer(other: int) -> None:
        gpu.call("deviceEnablePeerAccess")
        if (gpu.current, other) in gpu.enabled:
            raise CUDARuntimeError(704)
        gpu.enabled.add((gpu.current, other))

    def prefetch(address: int, bytes: int, device: int, stream: int) -> None:
        integer(address, bytes, device, stream)
        gpu.call("memPrefetchAsync")
        assert gpu.holds(address, bytes), "pages that are not there"
        if device == -1 and not gpu.host_place:
            raise CUDARuntimeError(101)
        way = "d2h" if device == -1 else "h2d"
        gpu.queue(LATENCY + bytes / RATES[way], f"prefetch {way}", stream=stream, engine=way)

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
        gpu.queue(1e-5, "memset", stream=stream)

    def properties(device: int) -> dict[str, Any]:
        gpu.call("getDeviceProperties")
        return gpu.properties

    return types.SimpleNamespace(
        memcpyDeviceToDevice=3,
        memcpyPeerAsync=memcpy_peer,
        memPrefetchAsync=prefetch,
        deviceCanAccessPeer=lambda one, other: int(gpu.peers and one != other),
        deviceEnablePeerAccess=enable_peer,
        deviceGetPCIBusId=lambda device: f"0000:{0x3B + device:02X}:00.0",
        deviceGetAttribute=lambda number, device: int({89: gpu.managed}[number]),
        cudaDevAttrConcurrentManagedAccess=89,
        cudaCpuDeviceId=-1,
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

    def __init__(self, gpu: FakeGpu, size: int, flags: int = 0) -> None:
        assert flags == 3, "the GPU must see it"
        self._gpu, self._room = gpu, np.zeros(size + 64, np.uint8)
        self.ptr = int(self._room.ctypes.data + -self._room.ctypes.data % 64)
        gpu.pinned[self.ptr] = size

    def __del__(self) -> None:
        self._gpu.pinned.pop(self.ptr, None)


class Device:
    """As cupy.cuda.Device: `use` makes it current, `with` for the length of a block."""

    def __init__(self, gpu: FakeGpu, number: int) -> None:
        assert 0 <= number < gpu.devices, f"GPU {number} of {gpu.devices}"
        self._gpu, self._number = gpu, number
        self._before: list[int] = []

    def use(self) -> None:
        self._gpu.call(f"setDevice {self._number}")
        self._gpu.current = self._number

    def __enter__(self) -> Device:
        self._before.append(self._gpu.current)
        self._gpu.current = self._number
        return self

    def __exit__(self, *error: Any) -> None:
        self._gpu.current = self._before.pop()


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
        assert first.device == last.device, "events of two GPUs"
        return -1.0 if gpu.wrong else (last.time - first.time) * 1e3

    cuda = types.SimpleNamespace(
        Device=lambda number: Device(gpu, number),
        Stream=lambda non_blocking: Stream(gpu, non_blocking),
        Event=Event,
        PinnedMemory=lambda size, flags=0: Pinned(gpu, size, flags),
        alloc=alloc,
        malloc_managed=alloc,
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
