"""The second opinion on a GPU: the FMA chains and the streams once more, in Numba CUDA.

It shares neither kernels nor timing with the cuda backend, only the launch shape and the sizes:
where the two differ by more than 2 %, one of the harnesses is wrong (bench/gpu/crosscheck.py).
It knows fp64, fp32 and, for the chains, int32; whatever is missing or broken disables it alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.backends.numba_device import explained, missing, numba_device
from bench.backends.numba_reference import (
    CHAINS,
    DTYPE,
    STEPS,
    chain_reference,
    compare,
    operands,
    sum_reference,
    tolerance,
)
from bench.device import Device
from bench.errors import DeviceError
from bench.gpu import described
from bench.gpu.launch import WAVES, Launch, in_waves, launch_shape, split_variant, stream_form
from bench.profile.records import Point, Precision, Repetitions
from kernels import KERNELS
from kernels.fma import FACTORS
from kernels.spec import ITEM_BYTES, Work
from kernels.stream import KERNELS as STREAMS

MOST = 1 << 30  # trips fit an int32, and no repetition needs more launches
TILE = 1 << 20  # items of random operands, repeated over an array
FILLING = 64  # threads a block while arrays are filled
EDGE = 4096  # items at either end of an array that are compared with the reference
GREATEST_DELAY, SPARE_DELAY = 0.05, 1e-4  # seconds
FIRST_GUESS = 6e-5  # seconds of host time for one launch, until it has been measured
WHOLE_FACTOR = 1664525  # m of the integer chain: odd, so that no bit is ever lost
VARIANTS = {"fma": (f"{CHAINS} chains b256",), "stream": ("v16 l4 b256", "v16 l8 b256", "v16 l2 b256")}


@dataclass
class Ready:
    """What a prepared point keeps: a compiled kernel, its launch and its arguments."""

    kernel: Any
    launch: Launch
    arguments: Callable[[int], tuple[Any, ...]]
    launches: Callable[[int], int]
    check: Callable[[], None]


class NumbaCudaBackend:
    """The Backend protocol (bench/backends/__init__.py) on the first GPU that this process sees."""

    clock_source = "event"

    def __init__(self, device: Device | None = None, simulator: bool = False) -> None:
        """DeviceError with the one reason why Numba cannot be used; `simulator`: tests alone say so."""
        if reason := missing(simulator):
            raise DeviceError(f"the Numba backend cannot run here: {reason}")
        from bench.backends.numba_kernels import Kernels, cuda

        self._cuda = cuda
        self._kernels = Kernels(simulator)
        with explained():
            self.device = device or numba_device(self._cuda)
            self._stream = self._cuda.stream()
            self._events = (self._cuda.event(), self._cuda.event())
            self._kernels.delay[1, 1, self._stream](np.int64(0))  # compiled and loaded, or refused, now
            self._stream.synchronize()
        self._delayed = os.environ.get("ROOFLINE_NO_BLOCKER", "") != "1"
        self._launch_seconds = FIRST_GUESS
        self._held: tuple[tuple[Any, ...], list[Any], Any] | None = None

    @classmethod
    def named(cls, id: str) -> NumbaCudaBackend:
        """The backend for `numba:N`, the GPU that is `cuda:N`, in a process that is pinned to it."""
        described.pin(id.replace("numba:", "cuda:"))
        backend = cls()
        backend.device = replace(backend.device, id=id)
        return backend

    def begin_round(self, round: int) -> None:
        """Nothing to do: rounds of a real device differ by themselves."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Forms worth trying, best guess first."""
        return VARIANTS.get(KERNELS[kernel].family, ("",)) if kernel in KERNELS else ("",)

    def unsupported(self, point: Point) -> str:
        """Why Numba has no such kernel, "" if it has."""
        known = {"fma": ("fma",), "stream": tuple(kernel.name for kernel in STREAMS)}
        if point.kernel not in known.get(point.family, ()):
            return f"the Numba backend has no {point.kernel}; it has fma and the streams"
        plain = ("fp64", "fp32", "int32") if point.family == "fma" else ("fp64", "fp32")
        if point.precision not in [Precision.of(name) for name in plain]:
            return f"the Numba backend has no {point.precision.label} {point.kernel}"
        try:
            _form(point)
        except DeviceError as error:
            return str(error)
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Compile, allocate and fill; DeviceError or MemoryError with the cause."""
        if reason := self.unsupported(point):
            raise DeviceError(reason)
        with explained():
            return self._chain(point) if point.family == "fma" else self._streams(point)

    def verify(self, prepared: Prepared) -> None:
        """Compare with NumPy; VerificationError where it differs."""
        with explained():
            prepared.handle.check()

    def warm_up(self, seconds: float) -> None:
        """Run the fp32 chain for `seconds`."""
        prepared = self.prepare(Point("fma", "fma", VARIANTS["fma"][0], Precision.of("fp32")))
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            self.measure(prepared, 1000, 1)

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """n repetitions of a chain of `amount` trips or of `amount` launches of a stream."""
        with explained():
            rows = [self._batch(prepared.handle, amount) for _ in range(n)]
        return Repetitions(tuple(start for start, _ in rows), tuple(seconds for _, seconds in rows))

    def release(self, prepared: Prepared) -> None:
        """Forget the point; the arrays stay for the next one."""
        prepared.handle = None

    def conditions(self) -> Mapping[str, Any]:
        """Nothing of its own: telemetry is the cuda backend's."""
        return {}

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    # -- timing ----------------------------------------------------------------------------------

    def _batch(self, ready: Ready, amount: int) -> tuple[float, float]:
        """Start (s, monotonic) and seconds of one batch between two events.

        A kernel that does nothing for about as long as the host needs to queue the batch goes first:
        the launches then follow each other without gaps. It ends by itself, so nothing can hang.
        """
        begin, end = self._events
        count, arguments = ready.launches(amount), ready.arguments(amount)
        launch = ready.kernel[ready.launch.grid, ready.launch.block, self._stream]
        if self._delayed:
            wait = min(GREATEST_DELAY, SPARE_DELAY + 1.5 * count * self._launch_seconds)
            self._kernels.delay[1, 1, self._stream](np.int64(wait * 1e9))
        begin.record(self._stream)
        queued = time.monotonic()
        for _ in range(count):
            launch(*arguments)
        self._launch_seconds = min(self._launch_seconds, (time.monotonic() - queued) / count)
        end.record(self._stream)
        end.synchronize()
        seconds = float(begin.elapsed_time(end)) / 1e3
        return time.monotonic() - seconds, seconds

    # -- chains ----------------------------------------------------------------------------------

    def _chain(self, point: Point) -> Prepared:
        name, (_, block) = point.precision.inputs, split_variant(point.variant)
        kernel, T = self._kernels.chain(name), DTYPE[name]
        m = T(WHOLE_FACTOR if name == "int32" else FACTORS[name])
        out, seeds = self._chain_arrays(T, launch_shape("persistent", block, self.device.facts), signs=True)

        def arguments(amount: int) -> tuple[Any, ...]:
            return out, seeds, m, np.int32(amount)

        launch, facts = self._launch("persistent", kernel, arguments(0), block)
        ready = Ready(
            kernel, launch, arguments, lambda amount: 1, lambda: self._check_chain(kernel, name, block)
        )

        def work(amount: int) -> Work:
            fma = launch.threads * CHAINS * STEPS * amount
            return KERNELS["fma"].work(ITEM_BYTES[name], {"n": fma}, point.level)

        return Prepared(point, work, 1, MOST, 1, facts, ready)

    def _launch(
        self, grid: str, kernel: Any, nothing: tuple[Any, ...], block: int, items: int = 0, held: int = 0
    ) -> tuple[Launch, dict[str, Any]]:
        """Compile and load by one launch that does nothing; the launch shape, and what goes on record."""
        kernel[1, block, self._stream](*nothing)
        self._stream.synchronize()
        used = self._kernels.resources(kernel, block)
        resident = used.pop("resident_blocks", 0)
        blocks_per_sm = resident // int(self.device.facts["sm_count"]) if resident else None
        launch = launch_shape(grid, block, self.device.facts, items, held, blocks_per_sm)
        return launch, {"launch": launch.text, "library": self._kernels.library, **used}

    def _chain_arrays(self, T: Any, launch: Launch, signs: bool = False) -> tuple[Any, Any]:
        """Results, one a thread, and the start of every chain."""
        seeds = operands(T, launch.threads * CHAINS, signs)
        return self._cuda.to_device(np.zeros(launch.threads, T)), self._cuda.to_device(seeds)

    def _check_chain(self, kernel: Any, name: str, block: int) -> None:
        """Two blocks, three trips and an m so large that a missing step shows."""
        T, trips, launch = DTYPE[name], 3, Launch(2, block)
        m = T(WHOLE_FACTOR) if name == "int32" else T(2.0**-7)
        out, seeds = self._chain_arrays(T, launch)
        kernel[launch.grid, launch.block, self._stream](out, seeds, m, np.int32(trips))
        self._stream.synchronize()
        want = chain_reference(seeds.copy_to_host(), m, trips * STEPS)
        compare(out.copy_to_host(), want, tolerance(T, trips * STEPS + CHAINS), f"{name} chain")

    # -- streams ---------------------------------------------------------------------------------

    def _streams(self, point: Point) -> Prepared:
        name, (form, block) = point.precision.inputs, split_variant(point.variant)
        T, item = DTYPE[name], ITEM_BYTES[name]
        width, loads = stream_form(form)
        held = width // item * loads
        items = point.sizes["bytes"] // item // (block * held) * (block * held)
        if items < 1:
            raise DeviceError(f"{point.sizes['bytes']} byte hold no block of {block} x {held} items")
        read = point.kernel == "read"
        grid = "persistent" if read else "cover"
        kernel = self._kernels.stream(point.kernel, name, width // item, loads)
        (a, b, c), tile = self._arrays(point, T, items)
        most = WAVES * launch_shape(grid, block, self.device.facts, items, held).threads
        to = self._cuda.to_device(np.zeros(most, T)) if read else a

        def arguments(amount: int, s: float = 1.0) -> tuple[Any, ...]:
            return to, b, c, T(s), np.int64(items if amount else 0)

        launch, facts = self._launch(grid, kernel, arguments(0), block, items, held)
        if read:  # as the other implementation does
            launch, tiles = in_waves(launch, items // (block * held))
            items, facts["launch"] = tiles * block * held, launch.text
        ready = Ready(kernel, launch, arguments, lambda amount: amount, lambda: None)
        ready.check = lambda: self._check_stream(ready, point.kernel, (to, a, b, c), tile, arguments(1, 3.0))

        def work(amount: int) -> Work:
            sizes = {"n": items, "passes": amount}
            return KERNELS[point.kernel].work(item, sizes, point.level)

        return Prepared(point, work, 1, MOST, 1, {**facts, "items": items, "hidden_traffic": 0.0}, ready)

    def _arrays(self, point: Point, T: Any, items: int) -> tuple[list[Any], Any]:
        """Arrays a, b and c of `items`, kept from point to point, and the tile they repeat."""
        key = (T, items, point.operands)
        if self._held is None or self._held[0] != key:
            self._held = None
            tile = operands(T, min(TILE, items)) if point.operands == "random" else np.zeros(TILE, T)
            arrays = [self._cuda.device_array(items, T) for _ in "abc"]
            self._fill(arrays, tile)
            self._held = (key, arrays, tile)
        return self._held[1], self._held[2]

    def _fill(self, arrays: list[Any], tile: Any) -> None:
        """Repeat `tile` over every array, each from another of its items on."""
        origin, shape = self._cuda.to_device(tile), launch_shape("persistent", FILLING, self.device.facts)
        for shift, array in enumerate(arrays):
            self._kernels.fill[shape.grid, shape.block, self._stream](array, origin, np.int64(shift))
        self._stream.synchronize()

    def _check_stream(self, ready: Ready, name: str, arrays: tuple[Any, ...], tile: Any, call: Any) -> None:
        """One launch on the arrays themselves: both ends of the result, or the sum of all that was read."""
        to, *sources = arrays
        reference, s, items = KERNELS[name].reference, call[3], int(call[4])
        self._fill([sources[0]], tile)  # another form may have left the right result there
        ends = [slice(0, min(EDGE, items)), slice(max(0, items - EDGE), items)]
        before = [[array[end].copy_to_host() for array in sources] for end in ends]
        ready.kernel[ready.launch.grid, ready.launch.block, self._stream](*call)
        self._stream.synchronize()
        if name == "read":
            got = to.copy_to_host().sum(dtype=np.float64)
            rough = tolerance(tile.dtype.type, items // ready.launch.threads + 64)
            return compare(got, sum_reference(np.roll(tile, -1), items, s), rough, "sum of read")
        for end, (a, b, c) in zip(ends, before, strict=True):
            compare(to[end].copy_to_host(), reference(np, a, b, c, s), tolerance(tile.dtype.type, 2), name)
        self._fill([sources[0]], tile)
        return None


def _form(point: Point) -> None:
    """DeviceError unless the point's variant is a form that this backend has."""
    form, block = split_variant(point.variant)
    if not (32 <= block <= 1024 and block % 32 == 0):
        raise DeviceError(f"blocks of {block} threads: the Numba backend takes multiples of 32 up to 1024")
    if point.family == "fma":
        if form != f"{CHAINS} chains":
            raise DeviceError(f"the Numba backend has {CHAINS} chains, not {form!r}")
        return
    width, loads = stream_form(form)
    if width not in (4, 8, 16) or width < ITEM_BYTES[point.precision.inputs] or not 1 <= loads <= 8:
        raise DeviceError(f"the Numba backend has no {form!r}: want v4, v8 or v16 and l1 to l8")
