"""Several GPUs in one process: an engine on each, and the same work on all of them at once.

Such a process sees all GPUs, its own as ordinal 0 (bench/gpu/visible.py); any other sees one and says so.
All begin together: each waits in its queue for the host, which lets one after the other go within
microseconds. The time of all is that of the slowest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu import visible
from bench.gpu.batches import PATIENCE, QUEUED
from bench.gpu.bodies import Bodies
from bench.gpu.engine import Engine
from bench.gpu.faults import translated
from bench.profile.records import Point, Repetitions


class Boards:
    """The GPUs that this process sees: `numbers` are those of cuda:N, by ordinal."""

    def __init__(self, bodies: Bodies) -> None:
        self.numbers = visible.numbers(os.environ)
        self._bodies = {0: bodies}

    @property
    def own(self) -> Bodies:
        """Those of ordinal 0."""
        return self._bodies[0]

    @property
    def open(self) -> list[Bodies]:
        """Those of every GPU that was needed so far."""
        return list(self._bodies.values())

    def lacking(self, wanted: int) -> str:
        """Why not so many GPUs work together here, "" if they can."""
        count = len(self.numbers)
        return "" if 1 <= wanted <= count else f"{count} GPU{'s' * (count > 1)} visible here, {wanted} wanted"

    def ordinal(self, number: int) -> int:
        """As this process counts cuda:`number`; DeviceError where it does not see it."""
        if number not in self.numbers:
            raise DeviceError(f"cuda:{number} is not visible to this process; it sees {self.numbers}")
        return self.numbers.index(number)

    @contextmanager
    def on(self, ordinal: int) -> Iterator[Bodies]:
        """Inside the block that GPU is the current one; it is opened when it is first needed."""
        cuda = self.own.engine.cupy.cuda
        with translated(f"opening GPU {self.numbers[ordinal]}"), cuda.Device(ordinal):
            if ordinal not in self._bodies:
                engine = Engine(self.own.engine.now, ordinal)
                sms = int(engine.properties["multiProcessorCount"])
                facts = {**self.own.device.facts, "sm_count": sms}
                self._bodies[ordinal] = Bodies(engine, replace(self.own.device, facts=facts))
            bodies = self._bodies[ordinal]
        with cuda.Device(ordinal):
            bodies.engine.stream.use()
            yield bodies


@dataclass
class AtOnce:
    """The handle of the same point on the first GPUs of this process."""

    boards: Boards
    prepared: list[Prepared]
    facts: dict[str, Any]

    def check(self) -> None:
        """Each GPU's result against the reference."""
        for ordinal, made in enumerate(self.prepared):
            with self.boards.on(ordinal):
                made.handle.check()

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` on each; the seconds are those of the slowest."""
        rows = [self._once(amount) for _ in range(n)]
        self.facts["slowest_over_fastest"] = max(max(row) / min(row) for _, row in rows)
        return Repetitions(tuple(start for start, _ in rows), tuple(max(row) for _, row in rows))

    def _once(self, amount: int) -> tuple[float, list[float]]:
        marks, engines = [], []
        ticket = 1 + max(bodies.engine.ticket for bodies in self.boards.open)
        for ordinal, made in enumerate(self.prepared):
            with self.boards.on(ordinal) as bodies, translated(made.handle.task.name):
                engines.append(bodies.engine)
                bodies.engine.hold(ticket, PATIENCE)
                first = bodies.engine.mark()
                for _ in range(made.handle.task.launches(amount)):
                    made.handle.task.launch(amount)
                marks.append((first, bodies.engine.mark()))
        start = engines[0].now()
        for engine in engines:
            engine.flags[0] = ticket
        for ordinal, engine in enumerate(engines):
            with self.boards.on(ordinal):
                engine.synchronize()
        if late := [engine.ordinal for engine in engines if int(engine.flags[1]) == ticket]:
            raise DeviceError(
                f"GPUs {late} began before the others: queueing took more than {PATIENCE:.0f} s"
            )
        return start, [engine.elapsed(*pair) for engine, pair in zip(engines, marks, strict=True)]

    def close(self) -> None:
        """Give the memory back, on every GPU."""
        for ordinal, made in enumerate(self.prepared):
            with self.boards.on(ordinal) as bodies:
                made.handle.close()
                made.handle = None
                bodies.engine.reclaim()


class Together:
    """Prepares points of the family scaling that say on how many GPUs (sizes["devices"])."""

    def __init__(self, bodies: Bodies) -> None:
        self.boards = Boards(bodies)

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured here, "" if it can."""
        if point.kernel not in ("fma", "read"):
            return f"{point.kernel} is not measured on several GPUs"
        return self.boards.lacking(point.sizes["devices"])

    def prepare(self, point: Point) -> Prepared:
        """The point of one GPU, prepared on each."""
        count = point.sizes["devices"]
        alone = {name: size for name, size in point.sizes.items() if name != "devices"}
        single = replace(point, family="fma" if point.kernel == "fma" else "stream", sizes=alone)
        prepared = []
        for ordinal in range(count):
            with self.boards.on(ordinal) as bodies:
                made = bodies.prepare(single)
                bodies.batches.start(made.handle.task)
                prepared.append(made)
        facts = {**prepared[0].facts, "gpus": [self.boards.numbers[ordinal] for ordinal in range(count)]}
        handle, first = AtOnce(self.boards, prepared, facts), prepared[0]
        most = first.most if first.handle.task.whole else QUEUED - 16
        return Prepared(point, lambda amount: first.work(amount).times(count), 1, most, 1, facts, handle)
