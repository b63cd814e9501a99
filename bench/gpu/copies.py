"""The links of a GPU: its host link by every means of crossing it, its own memory, and other GPUs'.

    copy-pinned, copy-device    queued behind the blocker, timed by events on the stream that copies
    ... both                    a second stream copies the other way; the timed one waits for it
    zero-copy                   a kernel whose source or target (of both: each) is locked host memory
    managed                     events (d2h by fault: the host's clock); pages are sent back outside the time
    copy-pageable               the host's clock: the host itself copies to or from a locked buffer

Every size of every way is checked before it is timed: the pattern must arrive in memory that was cleared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu import capacity
from bench.gpu.batches import QUEUED, Task
from bench.gpu.bodies import Bodies, Ready
from bench.gpu.faults import translated
from bench.gpu.host_memory import Buffer, HostMemory, compare, download
from bench.gpu.lanes import Lanes
from bench.gpu.launch import Launch, split_variant
from bench.gpu.managed import Managed
from bench.gpu.overheads import Started
from bench.gpu.peers import Peers
from bench.profile.records import Point
from kernels import CUDA, KERNELS, link
from kernels.spec import ITEM_BYTES

HOST_WAYS = ("h2d", "d2h", "both")
WAYS = {
    "copy-pinned": HOST_WAYS,
    "copy-pageable": HOST_WAYS[:2],
    "zero-copy": HOST_WAYS,
    "managed": HOST_WAYS[:2],
    "copy-device": ("copy",),
    "copy-peer": ("write", "both"),
}
"""Accesses of each kernel."""

WHY_NOT = {
    "copy-pageable": "the host itself copies, so that it cannot send and receive at once",
    "managed": "pages move one way at a time",
}

MOST_QUEUED, MOST_BOTH = QUEUED - 16, 16
"""Copies of a repetition that all lie in the queue before the first begins; of two ways at once."""

MOST_HOST = 1 << 16
ZERO_COPY = ("v16 l4 b256", "v16 l8 b256", "v16 l2 b512")
"""Forms of the stream family's copy that are worth trying on host memory."""


class Copies:
    """Prepares points of the family link; an amount is a number of transfers, each way."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.engine, self.batches = bodies, bodies.engine, bodies.batches
        self.peers = Peers(bodies)
        self._makers = {
            "copy-pinned": self._pinned,
            "copy-pageable": self._pageable,
            "zero-copy": self._zero_copy,
            "managed": self._managed,
            "copy-device": self._device,
            "copy-peer": self._peer,
        }

    @cached_property
    def host(self) -> HostMemory:
        """The host's buffers of this process."""
        return HostMemory.of(self.engine)

    @cached_property
    def capacity(self) -> dict[str, Any]:
        """Usable memory, found once, before anything of size is allocated for links."""
        return capacity.usable(self.engine)

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """Forms worth trying; a copy engine has one."""
        return {"zero-copy": ZERO_COPY, "managed": Managed.VARIANTS}.get(kernel, ("",))

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured on this GPU, "" if it can."""
        known = WAYS.get(point.kernel)
        if known is None:
            return f"{point.kernel} is measured on hosts only"
        if point.access not in known:
            why = WHY_NOT.get(point.kernel, f"it has {', '.join(known)}")
            return f"{point.kernel} has no {point.access}: {why}"
        if point.kernel == "copy-peer":
            return self.peers.unsupported(point)
        return Managed.unsupported(self.engine, point) if point.kernel == "managed" else ""

    def prepare(self, point: Point) -> Prepared:
        """Buffers made and filled; MemoryError says which memory lacks the room."""
        prepared = self._makers[point.kernel](point)
        if point.level == "host link":
            prepared.facts |= self.host.near.facts
        prepared.facts |= self.engine.versions()
        return prepared

    # -- by the copy engines -----------------------------------------------------------------------------

    def copy(self, to: Any, source: Any, bytes: int, kind: str, stream: Any) -> None:
        """Queue a copy; kind: HostToDevice, DeviceToHost, DeviceToDevice."""
        runtime = self.engine.cupy.cuda.runtime
        runtime.memcpyAsync(to.ptr, source.ptr, bytes, getattr(runtime, f"memcpy{kind}"), stream.ptr)

    def _arrays(self, bytes: int, source: Buffer) -> tuple[Any, Any]:
        """Device memory to copy to, and some that holds the pattern."""
        target, held = self.engine.allocate(bytes), self.engine.allocate(bytes)
        with translated("filling device memory with the pattern"):
            self.copy(held, source, bytes, "HostToDevice", self.engine.stream)
        self.engine.synchronize()
        return target, held

    def _pinned(self, point: Point) -> Prepared:
        size, stream, access = point.sizes["bytes"], self.engine.stream, point.access
        source, target = self.host.pair(size, pinned=True)
        to, held = self._arrays(size, source)
        way = {
            "h2d": lambda on: self.copy(to, source, size, "HostToDevice", on),
            "d2h": lambda on: self.copy(target, held, size, "DeviceToHost", on),
        }
        lanes = Lanes(self.engine, [0]) if access == "both" else None

        def at_once(amount: int) -> None:
            assert lanes is not None
            with lanes.beside():
                for _ in range(amount):
                    way["h2d"](stream)
                    way["d2h"](lanes.streams[0])

        name = f"copy of {size} byte, {access}"
        task = Task(name, at_once, whole=True) if lanes else Task(name, lambda amount: way[access](stream))
        ends = self._ends(access, source, to, target)
        return self._queued(point, task, ends, [to, held, lanes], MOST_BOTH if lanes else MOST_QUEUED)

    def _device(self, point: Point) -> Prepared:
        size, found = point.sizes["bytes"], self.capacity
        source, _ = self.host.pair(size, pinned=True)
        to, held = self._arrays(size, source)
        task = Task(
            f"copy of {size} byte within the GPU",
            lambda amount: self.copy(to, held, size, "DeviceToDevice", self.engine.stream),
        )
        made = self._queued(point, task, [(to, source)], [to, held], MOST_QUEUED)
        made.facts |= {**found, "memory_traffic_per_byte": 2}
        return made

    def _peer(self, point: Point) -> Prepared:
        source, _ = self.host.pair(point.sizes["bytes"], pinned=True)
        return self.peers.prepare(point, source)

    def _pageable(self, point: Point) -> Prepared:
        engine, size = self.engine, point.sizes["bytes"]
        source, target = self.host.pair(size, pinned=False)
        to, held = self._arrays(size, source)
        arriving = point.access == "h2d"
        end, begin = (to, source) if arriving else (target, held)
        kind = "HostToDevice" if arriving else "DeviceToHost"

        def timed(amount: int) -> tuple[float, float]:
            with translated(f"copy of {size} byte of pageable memory"), self.host.near.threads():
                engine.stream.synchronize()
                began, start = engine.now(), time.perf_counter()
                for _ in range(amount):
                    self.copy(end, begin, size, kind, engine.stream)
                engine.stream.synchronize()
                return began, time.perf_counter() - start

        ends = self._ends(point.access, source, to, target)
        check = self._check(f"copy of {size} byte of pageable memory", lambda: timed(1), ends)
        return self._prepared(point, Started(timed, check, [to, held]), MOST_HOST, "host")

    # -- by kernels, and by pages ------------------------------------------------------------------------

    def _zero_copy(self, point: Point) -> Prepared:
        variant, block = split_variant(point.variant or ZERO_COPY[0])
        forms = [f for f in CUDA["stream"].forms if (f.kernel, f.precision) == ("copy", "fp32")]
        form = next((f for f in forms if f.variant == variant), None)
        if form is None:
            known = ", ".join(f.variant for f in forms)
            raise DeviceError(f"the copy has no form {variant!r}; it has {known}")
        chosen = self.bodies.compiled("stream", form, block)
        tile = block * form.items * ITEM_BYTES["fp32"]
        size = point.sizes["bytes"] // tile * tile
        if not size:
            raise DeviceError(f"{point.sizes['bytes']} byte hold no tile of {tile} byte: ask for more")
        source, target = self.host.pair(size, pinned=True)
        to, held = self._arrays(size, source)
        factor = self.engine.upload(np.ones(1, np.float32))
        arrays = {"h2d": (to, source), "d2h": (target, held), "both": (target, source)}[point.access]
        launch, items = Launch(size // tile, block), size // ITEM_BYTES["fp32"]
        once = self.bodies.launcher(chosen, launch, (*arrays, None, factor), items)
        task = Task(f"zero-copy of {size} byte", lambda amount: once(1))
        made = self._queued(point, task, [(arrays[0], source)], [to, held, factor], MOST_QUEUED, size)
        made.facts |= self.bodies.facts(chosen, launch)
        return made

    def _managed(self, point: Point) -> Prepared:
        made = Managed(self.bodies, self.host, point)
        return self._prepared(point, made, 1, made.clock, made.size)

    # -- what they share ---------------------------------------------------------------------------------

    def _ends(self, access: str, source: Buffer, to: Any, target: Buffer) -> list[tuple[Any, Buffer]]:
        """What must arrive where."""
        return [(where, source) for where, way in ((to, "h2d"), (target, "d2h")) if access in (way, "both")]

    def _queued(
        self, point: Point, task: Task, ends: list[Any], memory: list[Any], most: int, size: int = 0
    ) -> Prepared:
        def once() -> None:
            with translated(task.name):
                task.launch(1)
            self.engine.synchronize()

        ready = Ready(task, self._check(task.name, once, ends), memory)
        return self._prepared(point, ready, most, "", size)

    def _prepared(self, point: Point, handle: Any, most: int, clock: str, size: int = 0) -> Prepared:
        crossing = link.crossing(point.access, size or point.sizes["bytes"])
        once = KERNELS[point.kernel].work(1, crossing, point.level)
        return Prepared(point, once.times, 1, most, 1, {}, handle, clock)

    def _check(self, what: str, once: Callable[[], Any], ends: list[Any]) -> Callable[[], None]:
        """Clear the targets, let it happen once, and compare what arrived with what was sent."""

        def check() -> None:
            for target, source in ends:
                self._clear(target, source.bytes)
            once()
            for target, source in ends:
                whole = target.view if isinstance(target, Buffer) else None
                arrived = download(self.engine, target) if whole is None else partial(part_of, whole)
                compare(what, source, arrived)

        return check

    def _clear(self, target: Any, bytes: int) -> None:
        if isinstance(target, Buffer):
            target.view[:] = 0
            return
        with translated("clearing a target"):
            self.engine.cupy.cuda.runtime.memsetAsync(target.ptr, 0, bytes, self.engine.stream.ptr)
        self.engine.synchronize()


def part_of(view: Any, start: int, stop: int) -> Any:
    """Bytes of a buffer on the host."""
    return view[start:stop]
