"""What it costs to start and join the thread team: T0 of a CPU, and the smallest kernel that is worth it.

    empty     team    spinning threads are released, do nothing and are waited for (native fork and join)
              woken   sleeping threads are woken through the system and waited for, as the suite itself does
              (others: what runs the workloads, bench/backends/workload_start.py)
    smallest  team    the same start around a copy that moves V byte, split over the threads: T0 + V / b

V is moved again at every start, so it stays in the caches: b is theirs, T0 does not depend on it. A unit of a
repetition's amount is one start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.backends import Prepared, workload_start
from bench.errors import DeviceError, VerificationError
from bench.native import emit, fork_join, jit, loops
from bench.native.arena import RESULT_BYTES, block
from bench.native.emit import Form
from bench.native.isa import Isa
from bench.native.memory import Region
from bench.native.team import BARRIER_WORDS, Team
from bench.profile.records import Point, Repetitions
from kernels import KERNELS
from kernels.launch import RUNNERS
from kernels.spec import ITEM_BYTES, Work
from kernels.stream import SHAPES

MOST_STARTS = 1 << 30
CHECKED_STARTS = 3
UNIT_VECTORS = 4


@dataclass
class NativeTeam:
    """The handle: fork and join around a body, timed inside native code.

    bodies: an argument block of the body per thread;  memory: source and copy
    """

    function: int
    body: int
    team: Team
    bodies: Sequence[Any]
    memory: Region | None = None
    results: Sequence[Region] = ()
    counter: Any = field(default_factory=lambda: np.zeros(BARRIER_WORDS, np.int64))

    def _run(self, starts: int, n: int) -> Any:
        """Rows of n repetitions of `starts` starts each."""
        self.counter[:] = 0
        common = {"a": self.counter.ctypes.data, "b": self.body, "span": starts, "passes": len(self.bodies)}
        blocks = [block(c=body.ctypes.data, **common) for body in self.bodies]
        return self.team.run(self.function, blocks, (self.body, self.bodies), np.zeros(n, np.int64))

    def check(self) -> None:
        """Every thread must have met all others twice a start; what was copied must be there."""
        self._run(CHECKED_STARTS, 1)
        if self.counter[0] != 2 * CHECKED_STARTS * len(self.bodies):
            raise VerificationError("the team did not start and join as often as told; it is not timed")
        if self.memory is not None:
            items = self.memory.bytes // 16
            source, copy = (self.memory.view(np.float64, k * items * 8, items) for k in (0, 1))
            if not np.array_equal(source, copy):
                raise VerificationError("the smallest kernel differs from its reference; it is not timed")

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` starts."""
        return loops.repetitions(self._run(amount, n))

    def close(self) -> None:
        """Nothing to undo."""


@dataclass
class WokenTeam:
    """The handle: the suite's own threads, asleep between calls, timed by the host clock."""

    team: Team

    def check(self) -> None:
        """Every thread must have run once."""
        seen: list[int] = []
        self.team.each(seen.append)
        if sorted(seen) != list(range(len(self.team.cpus))):
            raise VerificationError("not every thread of the team ran; its start is not timed")

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` wake-ups."""
        start, seconds = [], []
        for _ in range(n):
            began = time.perf_counter()
            for _ in range(amount):
                self.team.each(_nothing)
            seconds.append(time.perf_counter() - began)
            start.append(began)
        return Repetitions(tuple(start), tuple(seconds))

    def close(self) -> None:
        """Nothing to undo."""


def _nothing(_: int) -> None:
    return


def prepare(point: Point, team: Team, isa: Isa) -> Prepared:
    """The team and its body; DeviceError for a launch that a CPU does not have."""
    if point.kernel == "empty" and point.variant in RUNNERS:
        return workload_start.prepare(point, team, isa)
    facts: dict[str, Any] = {"cpus": list(team.cpus[: point.threads])}
    if (point.kernel, point.variant) == ("empty", "woken"):
        if point.threads != len(team.cpus):
            raise DeviceError(f"all {len(team.cpus)} threads are woken at once, not {point.threads}")
        return Prepared(point, lambda amount: Work(0.0), 1, MOST_STARTS, 1, facts, WokenTeam(team), "host")
    if point.variant != "team" or point.kernel not in ("empty", "smallest"):
        raise DeviceError(
            f"a CPU has no launch {point.kernel} {point.variant}; valid: team, woken, {', '.join(RUNNERS)}"
        )
    function = jit.address(fork_join.fork_join_ir(isa), isa)
    if point.kernel == "empty":
        body = jit.address(fork_join.empty_ir(isa), isa)
        bodies = [block() for _ in range(point.threads)]
        handle = NativeTeam(function, body, team, bodies)
        return Prepared(point, lambda amount: Work(0.0), 1, MOST_STARTS, 1, facts, handle)
    handle = _copying(point, function, team, isa)
    item, size = ITEM_BYTES["fp64"], point.sizes["bytes"]
    unit = KERNELS["smallest"].work(item, {"n": size // 2 // item}, point.level)
    return Prepared(point, unit.times, 1, MOST_STARTS, 1, facts, handle)


def _copying(point: Point, function: int, team: Team, isa: Isa) -> NativeTeam:
    """The copy loop as the body: an equal part of V / 2 for every thread, out of and into one region."""
    half, form = point.sizes["bytes"] // 2, Form(1, UNIT_VECTORS)
    unit = loops.block_bytes(SHAPES["copy"], form, isa) * point.threads
    if point.sizes["bytes"] % (2 * unit) or not half:
        raise DeviceError(
            f"{point.sizes['bytes']} byte cannot be split over {point.threads} threads: want multiples of "
            f"{2 * unit}"
        )
    body = jit.address(emit.loop_ir(SHAPES["copy"], form, isa, "fp64"), isa)
    memory = Region(2 * half)
    memory.view(np.float64, 0, half // 8)[:] = np.linspace(1.0, 2.0, half // 8)
    part, results = half // point.threads, [Region(RESULT_BYTES) for _ in range(point.threads)]
    starts = [memory.address + t * part for t in range(point.threads)]
    addresses = [(start + half, start, start) for start in starts]
    bodies = loops.blocks_for(addresses, results, part, 1, 0, 1.0)
    return NativeTeam(function, body, team, bodies, memory, results)
