"""Who measures a round: fresh child processes under a watchdog, or the simulated device in this one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bench import errors
from bench.backends import Backend
from bench.gpu.faults import ContextLost
from bench.planning.planned import TOGETHER, Planned
from bench.profile.encoding import decode, plain
from bench.profile.records import Precision, Sample
from bench.running.child import WORKER, Child, Died, Silent
from bench.running.measure import Session

START_LIMIT = 90.0
"""Seconds for a process to import its packages, find its threads and answer."""


class Runner(Protocol):
    """Measures points, each round on its own; by_family: each family of a round (but for PROCESS_OF of
    bench/planning/planned.py) in a process of its own."""

    process: int

    @property
    def by_family(self) -> bool:
        """Whether a lost process takes its family's share of the round with it."""

    def open(self, round: int) -> None:
        """Start a round; DeviceError when the device cannot be opened."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Forms of a kernel worth trying, best guess first."""

    def warm_up(self, seconds: float) -> None:
        """Keep the device busy, once a round."""

    def measure(self, planned: Planned, order: int, scale: float, limit: float) -> Sample:
        """Measure a point; one that takes more than `limit` s is a failed sample."""

    def conditions(self) -> Mapping[str, Any]:
        """The device's state now."""

    def now(self) -> float:
        """Seconds on the clock that the time box follows."""

    def close(self, kill: bool = False) -> None:
        """End the round's process."""


class InProcess:
    """The simulated device: a round is a seed, and a hang is a long virtual time."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.process = 0
        self._round = 0
        self._family = ""
        self._session = Session(backend, 0, 0)

    @property
    def by_family(self) -> bool:
        """As the device would be measured if it were real."""
        return bool(self.backend.device.is_gpu)

    def open(self, round: int) -> None:
        """Draw the noise of `round`."""
        self.backend.begin_round(round)
        self._round, self._family = round, ""
        self._renew()

    def _renew(self) -> None:
        """What a new process would be."""
        self.process += 1
        self._session = Session(self.backend, self._round, self.process)

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """The backend's."""
        backend: Backend = self.backend
        return backend.variants(kernel, precision, level, threads)

    def warm_up(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._session.warm_up(seconds)

    def measure(self, planned: Planned, order: int, scale: float, limit: float) -> Sample:
        """Measure; what took longer than `limit` virtual seconds gave no answer in time."""
        if self.by_family and self._family not in ("", planned.process):
            self._renew()
        self._family = planned.process
        self.backend.begin_visit(planned.regime, planned.visit)
        before = self.now()
        why = (planned, self._round, self.process, order)
        self.backend.deadline = before + limit
        try:
            sample = self._session.sample(planned, order, scale)
        except ContextLost as error:
            self._renew()
            return lost(*why, f"the measuring process ended: {error}", self.now() - before)
        except TimeoutError:
            self._renew()
            return silent(*why, limit, self.now() - before)
        finally:
            self.backend.deadline = math.inf
        taken = self.now() - before
        return silent(*why, limit, taken) if taken > limit else sample

    def conditions(self) -> Mapping[str, Any]:
        """The simulated state."""
        backend: Backend = self.backend
        return backend.conditions()

    def now(self) -> float:
        """Virtual seconds."""
        return float(self.backend.now())

    def close(self, kill: bool = False) -> None:
        """Nothing to end."""


def silent(planned: Planned, round: int, process: int, order: int, limit: float, wall: float) -> Sample:
    """The sample of a point that did not come back in time."""
    return lost(planned, round, process, order, f"no answer within {limit:.0f} s", wall)


def lost(planned: Planned, round: int, process: int, order: int, reason: str, wall: float) -> Sample:
    """A failed sample written by the parent because the measuring process could not."""
    return Sample(
        planned.point,
        round,
        process,
        order,
        planned.visit,
        status="failed",
        reason=reason,
        regime=planned.regime,
        facts={"wall_seconds": wall, "lost": True},
    )


class Children:
    """A real device: each round in a fresh process, a hung or dead one replaced within its round.

    environment: what the processes are given beside this one's
    by_family: a process for each family of a round. At no time do two of them have the device open: one
    ends before the next opens it; until then that one imports what it needs.
    conditions: the device's state now, the host's when omitted
    """

    def __init__(
        self,
        device: str,
        command: Sequence[str] = WORKER,
        environment: Mapping[str, str] | None = None,
        by_family: bool = False,
        conditions: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.device = device
        self.command = tuple(command)
        self.environment = dict(environment or {})
        self.by_family = by_family
        self.process = 0
        self._conditions = conditions
        self._round = 0
        self._warm = 0.0
        self._family = ""
        self._child: Child | None = None
        self._spare: Child | None = None

    def open(self, round: int) -> None:
        """A new round; DeviceError when its process cannot start (by family: in round 0 only)."""
        self.close()
        self._round, self._warm = round, 0.0
        if round == 0 or not self.by_family:
            self._start()

    def _start(self) -> Child:
        self.process += 1
        child = self._child = self._spare or Child(self.command, self.environment)
        self._spare = None
        request = {"open": self.device, "round": self._round, "process": self.process}
        if self._family == TOGETHER:
            request["together"] = True
        try:
            child.ask(request, START_LIMIT)
            if self._warm:
                child.ask({"warm_up": self._warm}, START_LIMIT)
            if self.by_family:
                self.ahead()
        except (Silent, Died) as error:
            self.close(kill=True)
            raise errors.DeviceError(f"device {self.device} could not be opened: {error}") from None
        return child

    def ahead(self) -> None:
        """Start the process that comes next: it imports what it needs, and leaves the device alone."""
        if self._spare is None:
            self._spare = Child(self.command, self.environment)
            self._spare.send({"import": self.device})

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Asked of the child: only it knows instruction sets."""
        child = self._child or self._start()
        try:
            reply = child.ask({"variants": [kernel, plain(precision), level, threads]}, START_LIMIT)
        except (Silent, Died) as error:
            raise errors.DeviceError(f"device {self.device} cannot list its loops: {error}") from None
        return tuple(reply["variants"])

    def warm_up(self, seconds: float) -> None:
        """Also repeated in every further process of this round, once it starts."""
        self._warm = seconds
        if self._child is None:
            return
        try:
            self._child.ask({"warm_up": seconds}, START_LIMIT + seconds)
        except (Silent, Died):
            self._drop(kill=True)
        except errors.BenchError:
            if not self.by_family:
                raise
            self._drop(kill=True)  # the next process says it of its own points

    def measure(self, planned: Planned, order: int, scale: float, limit: float) -> Sample:
        """A sample, or a failed one when the child hangs or dies; the next point gets a new child."""
        began = self.now()
        if self.by_family and self._family not in ("", planned.process):
            self._drop()
        self._family = planned.process
        try:
            child = self._child or self._start()
            reply = child.ask({"measure": plain(planned), "order": order, "scale": scale}, limit)
            return decode(Sample, reply["sample"], "sample")
        except (Silent, Died) as error:
            why = str(error)
        except errors.BenchError as error:
            if not self.by_family:
                raise
            why = str(error)
        self._drop(kill=True)
        return lost(planned, self._round, self.process, order, why, self.now() - began)

    def conditions(self) -> Mapping[str, Any]:
        """The device's, seen from this process while no child is at work."""
        if self._conditions is not None:
            return self._conditions()
        from bench import host

        return host.conditions()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def _drop(self, kill: bool = False) -> None:
        """End the child at work, if there is one."""
        self._family = ""
        if self._child is not None:
            child, self._child = self._child, None
            child.end(kill)

    def close(self, kill: bool = False) -> None:
        """End the round's process; killed is also the one that waits for its turn."""
        self._drop(kill)
        if kill and self._spare is not None:
            spare, self._spare = self._spare, None
            spare.end(kill)
