"""Collectives of all local GPUs through NCCL, in one process that sees them (CuPy's binding, group calls).

A repetition lies between two events on this process's own GPU: the streams of the others begin when it
does, and it waits for all of them. The first launch, in which NCCL connects, is never timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.gpu.batches import Task
from bench.gpu.boards import Boards
from bench.gpu.bodies import Bodies, Ready
from bench.gpu.faults import translated
from bench.gpu.lanes import Lanes
from bench.profile.records import Point
from kernels import KERNELS, collective
from kernels.spec import ITEM_BYTES

ITEM = ITEM_BYTES["fp32"]

MOST_QUEUED = 20
"""Operations of a repetition, as many as the tests that come with NCCL time at once."""

CHECKED = 1 << 20
"""Items that are compared at the beginning, in the middle and at the end of each result."""


def nccl() -> Any:
    """CuPy's binding; DeviceError where the library is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is missing is said once, in our words
        found = import_module("cupy.cuda.nccl")
    if not getattr(found, "available", False):
        raise DeviceError("NCCL cannot be loaded: install nvidia-nccl-cu12 or -cu13, as CuPy's wheel is")
    return found


class Collectives:
    """Prepares points of the family collective; an amount is a number of operations."""

    def __init__(self, bodies: Bodies) -> None:
        self.boards, self.engine = Boards(bodies), bodies.engine
        self._groups: dict[int, tuple[list[Any], Lanes]] = {}

    @cached_property
    def library(self) -> Any:
        """The binding."""
        return nccl()

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """NCCL chooses its algorithm by itself."""
        return ("nccl",)

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured here, "" if it can."""
        devices = point.sizes["devices"]
        if devices < 2:
            return "one GPU has nobody to combine with"
        if why := self.boards.lacking(devices):
            return why
        try:
            self.library.get_version()
        except DeviceError as error:
            return str(error)
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Communicators of so many GPUs, and on each its array and room for the result."""
        devices = point.sizes["devices"]
        items = point.sizes["bytes"] // ITEM // devices * devices
        if not items:
            raise DeviceError(
                f"{point.sizes['bytes']} byte hold no part for each of {devices} GPUs: ask for more"
            )
        with translated("connecting the GPUs by NCCL"):
            _, lanes = self._group(devices)
        memory = [self._memory(point.kernel, rank, items, devices) for rank in range(devices)]
        launch = partial(self._launch, point.kernel, memory, items, devices)
        name = f"{point.kernel} of {items * ITEM} byte on {devices} GPUs"
        task = Task(name, launch, whole=True, each=1)
        check = partial(self._check, point.kernel, task, memory, items)
        work = KERNELS[point.kernel].work(ITEM, {"n": items}, point.level)
        facts = {
            "nccl": int(self.library.get_version()),
            "gpus": list(self.boards.numbers[:devices]),
            **self.engine.versions(),
        }
        return Prepared(point, work.times, 1, MOST_QUEUED, 1, facts, Ready(task, check, [memory, lanes]))

    def _group(self, devices: int) -> tuple[list[Any], Lanes]:
        """A communicator and a stream on each of the first GPUs; kept, since connecting takes seconds."""
        if devices not in self._groups:
            for ordinal in range(devices):
                with self.boards.on(ordinal):
                    pass  # opened, and its stream made
            made = self.library.NcclCommunicator.initAll(list(range(devices)))
            self._groups[devices] = made, Lanes(self.engine, range(1, devices))
        return self._groups[devices]

    def _memory(self, kernel: str, rank: int, items: int, devices: int) -> tuple[Any, Any]:
        """On GPU `rank`: its pattern, and the result's room."""
        with self.boards.on(rank) as bodies, translated(f"arrays of {items * ITEM} byte on each GPU"):
            engine = bodies.engine
            tile = engine.upload(collective.pattern(np, rank, 0, min(items, collective.PERIOD)))
            sent = engine.allocate(items * ITEM)
            tiled(engine, sent.ptr, tile.ptr, min(items, collective.PERIOD) * ITEM, items * ITEM)
            return sent, engine.allocate(collective.held(kernel, items, devices) * ITEM)

    def _streams(self, devices: int) -> list[Any]:
        return [self.engine.stream, *self._group(devices)[1].streams]

    def _launch(self, kernel: str, memory: list[Any], items: int, devices: int, amount: int) -> None:
        """`amount` operations, one after the other on every stream."""
        operate = OPERATIONS[kernel]
        members, lanes = self._group(devices)
        streams = self._streams(devices)
        with lanes.beside():
            for _ in range(amount):
                with self._together():
                    for rank, (sent, got) in enumerate(memory):
                        with self.engine.cupy.cuda.Device(rank):
                            ends = sent.ptr, got.ptr, items, devices, streams[rank].ptr
                            operate(self.library, members[rank], *ends)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Calls inside the block are one operation of all GPUs."""
        self.library.groupStart()
        yield
        self.library.groupEnd()

    def _check(self, kernel: str, task: Task, memory: list[Any], items: int) -> None:
        devices = len(memory)
        held = collective.held(kernel, items, devices)
        for rank, (_, got) in enumerate(memory):
            with self.boards.on(rank) as bodies:
                bodies.engine.cupy.cuda.runtime.memsetAsync(got.ptr, 0, held * ITEM, bodies.engine.stream.ptr)
                bodies.engine.synchronize()
        with translated(task.name):
            task.launch(1)
        self.engine.synchronize()
        for rank, (_, got) in enumerate(memory):
            for start, count in windows(held):
                with self.boards.on(rank) as bodies:
                    arrived = bodies.engine.download(got.ptr + start * ITEM, count * ITEM)[0].view(np.float32)
                want = collective.expected(np, kernel, devices, items, rank, start, count)
                if not np.array_equal(arrived, want):
                    raise VerificationError(f"{task.name}: GPU {rank} holds another result; it is not timed")


def windows(items: int) -> list[tuple[int, int]]:
    """(start, count) of what is compared of `items`."""
    if items <= 3 * CHECKED:
        return [(0, items)]
    return [(0, CHECKED), (items // 2, CHECKED), (items - CHECKED, CHECKED)]


def tiled(engine: Any, address: int, source: int, tile: int, bytes: int) -> None:
    """Fill `bytes` of device memory with copies of the `tile` byte at `source`."""
    runtime, stream = engine.cupy.cuda.runtime, engine.stream.ptr
    kind, done = runtime.memcpyDeviceToDevice, min(tile, bytes)
    runtime.memcpyAsync(address, source, done, kind, stream)
    while done < bytes:
        part = min(done, bytes - done)  # whole tiles but for the last
        runtime.memcpyAsync(address + done, address, part, kind, stream)
        done += part
    engine.synchronize()


Operation = Callable[[Any, Any, int, int, int, int, int], None]
"""(library, communicator, sent, got, items of an array, GPUs, stream): one GPU's call of an operation."""


def _all_reduce(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
    one.allReduce(sent, got, items, n.NCCL_FLOAT32, n.NCCL_SUM, stream)


def _all_gather(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
    one.allGather(sent, got, items // devices, n.NCCL_FLOAT32, stream)


def _reduce_scatter(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
    one.reduceScatter(sent, got, items // devices, n.NCCL_FLOAT32, n.NCCL_SUM, stream)


def _broadcast(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
    one.broadcast(sent, got, items, n.NCCL_FLOAT32, 0, stream)


def _all_to_all(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
    part = items // devices
    for other in range(devices):
        one.send(sent + other * part * ITEM, part, n.NCCL_FLOAT32, other, stream)
        one.recv(got + other * part * ITEM, part, n.NCCL_FLOAT32, other, stream)


OPERATIONS: dict[str, Operation] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all-to-all": _all_to_all,
}
