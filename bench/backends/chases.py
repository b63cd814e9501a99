"""Pointer chases on the host: chains of dependent loads, on as many threads as the point says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.backends import UNBOUNDED, Prepared
from bench.backends.machine import Machine, Warm
from bench.errors import DeviceError, VerificationError
from bench.native import emit, jit
from bench.native.arena import RESULT_BYTES, block
from bench.native.cycle import Cycle
from bench.native.emit import Form, chase_steps
from bench.native.loops import WARM_SECONDS
from bench.native.memory import Region
from bench.profile.records import Point, Repetitions
from kernels import KERNELS
from kernels.latency import LINE_BYTES
from kernels.spec import ChaseShape, Work

MOST_CHAINS = RESULT_BYTES // 8
CHECKED_TRIPS = (1, 36)
WALKING = 8  # chains that bring a set into the caches


@dataclass
class Chase:
    """Chains of `form` on the cycle of each thread; a repetition goes on where the one before ended."""

    machine: Machine
    form: Form
    cycles: list[Cycle]
    places: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = [Region(RESULT_BYTES) for _ in self.cycles]
        self.function = _code(self.machine, self.form)
        self.warm: Warm | None = None
        self.restart()

    @property
    def steps(self) -> int:
        """Loads of one chain in one trip."""
        return chase_steps(self.form, self.machine.isa)

    def restart(self) -> None:
        """All chains at their starts, spread evenly over the cycle."""
        for cycle, places in zip(self.cycles, self.places, strict=True):
            self._where(places)[:] = cycle.places(self.form.chains)

    def _where(self, places: Region) -> Any:
        return places.view(np.int64, 0, self.form.chains)

    def loads(self, trips: int) -> int:
        """Loads of all chains of all threads."""
        return trips * self.steps * self.form.chains * len(self.cycles)

    def blocks(self, trips: int) -> list[Any]:
        """Argument blocks of `trips` trips, one a thread."""
        return [block(span=trips, result=places.address) for places in self.places]

    def run(self, trips: int, n: int) -> Repetitions:
        """n repetitions of `trips` trips each."""
        offsets = np.zeros(n, np.int64)
        return self.machine.repeat(self.function, self.blocks(trips), offsets, self.warm)

    def settle(self) -> None:
        """Leave nothing of the sets in the caches, or, where they fit, bring them back after every pause.

        While a thread sleeps, other tenants take the shared cache, and a single chain is slow to fill it.
        """
        lines = max(c.lines for c in self.cycles)
        if lines * LINE_BYTES > self.machine.last_level_share(len(self.cycles)):
            self.machine.cycles.flush()
            return
        walk = Chase(self.machine, Form(chains=WALKING), self.cycles)
        turns = -(-2 * lines // (walk.steps * WALKING))
        seconds = min(walk.run(turns, 2).seconds)
        self._walk = walk  # keeps its places alive
        self.warm = walk.function, walk.blocks(max(turns, int(turns * WARM_SECONDS / seconds)))

    def check(self) -> None:
        """Every chain must stand where the permutation says; VerificationError when one does not.

        Early in the cycle, further on, and a whole turn later, when every line was visited once more.
        """
        self.restart()
        done = 0
        for trips in (*CHECKED_TRIPS, max(1, self._turn())):
            self.run(trips, 1)
            done += trips * self.steps
            for thread, (cycle, places) in enumerate(zip(self.cycles, self.places, strict=True)):
                if not np.array_equal(self._where(places), cycle.places(self.form.chains, done)):
                    raise VerificationError(
                        f"chase ({self.form.chains} chains) is wrong: thread {thread} is not where its "
                        f"cycle of {cycle.lines} lines leads after {done} loads; it is not timed"
                    )
        self.restart()
        if self.warm is None:
            self.settle()

    def _turn(self) -> int:
        """Trips in which all chains together pass every line, of small sets; of large ones a part."""
        lines = min(max(c.lines for c in self.cycles), 1 << 16)
        return lines // (self.steps * self.form.chains)

    def measure(self, amount: int, n: int) -> Repetitions:
        """See Call; each repetition carries the clock that the cores ran at right after the batch."""
        taken = self.run(amount, n)
        clock = self.machine.clock_hz(len(self.cycles))
        return Repetitions(
            taken.start, taken.seconds, taken.switches, taken.cpu_share, clock_hz=(clock,) * len(taken)
        )

    def close(self) -> None:
        """See Call; the cycles stay for the next point."""


def _code(machine: Machine, form: Form) -> int:
    return jit.address(emit.loop_ir(ChaseShape(), form, machine.isa, "fp64"), machine.isa)


def prepare(point: Point, machine: Machine) -> Prepared:
    """The chase of a point: sizes {bytes} of each thread, variant "1 chain", "4 chains", ...

    DeviceError for a variant or a size that no chase has; MemoryError where the set finds no room.
    """
    kernel, chains = KERNELS[point.kernel], chains_of(point)
    if point.sizes.get("bytes", 0) < chains * LINE_BYTES:
        raise DeviceError(
            f"{point.sizes.get('bytes', 0)} byte are no set for {chains} chains: at least a line of "
            f"{LINE_BYTES} byte each is needed; ask for more"
        )
    shape = kernel.shape
    window = shape.window_bytes if isinstance(shape, ChaseShape) else 0
    cycles = machine.cycles.of(point.sizes["bytes"], window, point.threads)
    chase = Chase(machine, Form(chains=chains), cycles)
    chase.settle()

    def work(amount: int) -> Work:
        return kernel.work(8, {"n": chase.loads(amount), "line": LINE_BYTES}, point.level)

    facts = {
        "isa": machine.isa.name,
        "cpus": list(machine.team.cpus[: point.threads]),
        "line_bytes": LINE_BYTES,
        "chains": chains,
        "window_bytes": window,
        "places_in": "registers" if chase.steps > 1 else "memory",
        "huge_pages": cycles[0].huge_pages,
    }
    return Prepared(point, work, 1, UNBOUNDED, facts=facts, handle=chase)


def chains_of(point: Point) -> int:
    """Chains that a variant names; DeviceError on one that names none."""
    found = re.fullmatch(r"(\d+) chains?", point.variant)
    if not found or not 1 <= int(found[1]) <= MOST_CHAINS:
        raise DeviceError(
            f"{point.variant!r} is no form of {point.kernel}: want '1 chain' to '{MOST_CHAINS} chains'"
        )
    return int(found[1])
