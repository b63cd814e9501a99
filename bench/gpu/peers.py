"""From one GPU's memory to another's, one way and both ways, directly or over the host where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu.batches import QUEUED, Task
from bench.gpu.boards import Boards
from bench.gpu.bodies import Bodies
from bench.gpu.faults import translated
from bench.gpu.host_memory import Buffer, compare, download
from bench.gpu.lanes import Lanes
from bench.profile.records import Point, Repetitions
from kernels import KERNELS, link

ALREADY = 704
"""Status of peer access that is enabled a second time."""

MOST_QUEUED, MOST_BOTH = QUEUED - 16, 16


def pair_of(level: str) -> tuple[int, int]:
    """Numbers of the GPUs that a level's name names: "peer 0>1" is from cuda:0 to cuda:1."""
    one, arrow, other = level.removeprefix("peer ").partition(">")
    if not (level.startswith("peer ") and arrow and one.isdigit() and other.isdigit() and one != other):
        raise DeviceError(f"{level!r} is no pair of GPUs: want e.g. 'peer 0>1'")
    return int(one), int(other)


class Peers:
    """Prepares points of the kernel copy-peer; the copy is queued on the GPU that sends."""

    def __init__(self, bodies: Bodies) -> None:
        self.boards = Boards(bodies)

    def unsupported(self, point: Point) -> str:
        """Why this pair cannot be measured by this process, "" if it can."""
        try:
            pair = pair_of(point.level)
        except DeviceError as error:
            return str(error)
        absent = [f"cuda:{number}" for number in pair if number not in self.boards.numbers]
        return f"{self.boards.lacking(2) or 'not visible here'}: {', '.join(absent)}" if absent else ""

    def prepare(self, point: Point, source: Buffer) -> Prepared:
        """Memory on both GPUs, the pattern on those that send, direct access asked for in both directions."""
        one, other = (self.boards.ordinal(number) for number in pair_of(point.level))
        facts = {"peer_access": [self._access(one, other), self._access(other, one)]}
        sent, returned = self._ends(one, other, source), self._ends(other, one, source)
        with self.boards.on(one) as bodies:
            engine = bodies.engine
            lanes = Lanes(engine, [other]) if point.access == "both" else None
        size, name = source.bytes, f"copy of {source.bytes} byte, {point.level}"

        def once(amount: int) -> None:
            self._copy(one, other, sent, size, engine.stream)

        def at_once(amount: int) -> None:
            assert lanes is not None
            with lanes.beside():
                for _ in range(amount):
                    self._copy(one, other, sent, size, engine.stream)
                    self._copy(other, one, returned, size, lanes.streams[0])

        task = Task(name, at_once, whole=True) if lanes else Task(name, once)
        ends = [(other, sent), *([(one, returned)] if lanes else [])]
        check = partial(self._check, task, one, ends, source)
        handle = OnBoard(self.boards, one, task, check, [sent, returned, lanes])
        work = KERNELS[point.kernel].work(1, link.crossing(point.access, size), point.level)
        return Prepared(point, work.times, 1, MOST_BOTH if lanes else MOST_QUEUED, 1, facts, handle)

    def _access(self, one: int, other: int) -> bool:
        """Whether `one` reaches the memory of `other` directly; from now on it does, if it can."""
        runtime = self.boards.own.engine.cupy.cuda.runtime
        with self.boards.on(one), translated("asking for peer access"):
            if not runtime.deviceCanAccessPeer(one, other):
                return False
            try:
                runtime.deviceEnablePeerAccess(other)
            except runtime.CUDARuntimeError as error:
                if error.status != ALREADY:
                    raise
        return True

    def _ends(self, one: int, other: int, source: Buffer) -> tuple[Any, Any]:
        """Memory on `one` that holds the pattern, and memory on `other` that it goes to."""
        with self.boards.on(one) as bodies:
            held = bodies.engine.upload(source.view)
        with self.boards.on(other) as bodies:
            return held, bodies.engine.allocate(source.bytes)

    def _copy(self, one: int, other: int, ends: tuple[Any, Any], bytes: int, stream: Any) -> None:
        held, to = ends
        runtime = self.boards.own.engine.cupy.cuda.runtime
        runtime.memcpyPeerAsync(to.ptr, other, held.ptr, one, bytes, stream.ptr)

    def _check(self, task: Task, sender: int, ends: list[Any], source: Buffer) -> None:
        for ordinal, (_, target) in ends:
            with self.boards.on(ordinal) as bodies, translated("clearing a target"):
                engine = bodies.engine
                engine.cupy.cuda.runtime.memsetAsync(target.ptr, 0, source.bytes, engine.stream.ptr)
                engine.synchronize()
        with self.boards.on(sender) as bodies, translated(task.name):
            task.launch(1)
            bodies.engine.synchronize()
        for ordinal, (_, target) in ends:
            with self.boards.on(ordinal) as bodies:
                compare(task.name, source, download(bodies.engine, target))


@dataclass
class OnBoard:
    """The handle of a copy that is queued on, and timed by, the GPU that sends."""

    boards: Boards
    sender: int
    copying: Task
    check: Callable[[], None]
    memory: list[Any]

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` copies each way."""
        with self.boards.on(self.sender) as bodies:
            batch = bodies.batches.run(self.copying, amount, n)
        return Repetitions(batch.starts, batch.seconds)

    def close(self) -> None:
        """Give the memory back."""
        self.memory.clear()
