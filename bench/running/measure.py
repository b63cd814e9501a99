"""The loop around one point: can it be done, prepare, verify, warm up, calibrate, repeat, stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bench.backends import Backend, Prepared
from bench.errors import BenchError, DeviceError, Unsupported, VerificationError
from bench.gpu.faults import ContextLost
from bench.planning.planned import Planned
from bench.profile.records import Point, Repetitions, Sample
from bench.running.stopping import LARGEST_BATCH, StopRule
from kernels.spec import Work

CLOSE_ENOUGH = 0.25
"""Share of the target window from which a trial run may be scaled up to it."""

LARGEST_STEP, UNTIMED_STEP = 64.0, 8.0
"""Growth of the amount between two trial runs: short ones are mostly overhead and overestimate it; and where
the timer shows nothing yet."""

UNKEPT, MOST_UNKEPT = 0.016, 256
"""Seconds of load that one call may be, and its most repetitions, where short ones are not kept."""

STANDS_STILL = 0.25
"""Seconds for which trial runs may keep the device while its timer says that they took no time."""

OF_ALL_LOAD = ("energy_j", "energy_seconds")
"""Facts that a backend adds up while it measures: what was before the repetitions is taken out."""

TOO_SHORT, CALIBRATIONS = 0.6, 3
"""Repetitions below this share of the target are calibrated anew, so many times in all."""


NO_SHAPE = ("bytes", "plateau", "window")
"""Sizes that change how much a loop does, not what it is: it is verified once for all of them."""

STILL_RIGHT = 4.0
"""Factor within which a trial repetition confirms the time that an earlier round found."""


def moved_bytes(work: Work, level: str) -> tuple[float, float]:
    """Bytes read and written at `level`; 0 where the kernel knows no traffic there."""
    return work.reads.get(level, 0.0), work.writes.get(level, 0.0)


def allowed(prepared: Prepared, amount: float) -> int:
    """The allowed amount next above `amount`, inside least..most."""
    step = prepared.step
    ceiled = math.ceil(min(amount, float(prepared.most)) / step - 1e-6) * step
    return max(prepared.least, min(ceiled, prepared.most))


def calibrate(
    backend: Backend, prepared: Prepared, target: float, moved: float = 0.0, start: int = 0
) -> tuple[int, float]:
    """Amount for which one repetition takes `target` s and moves `moved` byte, and its expected seconds.

    The faster of two trial runs counts: a disturbed one would make repetitions too short.
    DeviceError when the largest amount takes no time at all, or the timer shows none where the host's does.
    """
    amount = allowed(prepared, start)
    while True:
        before = backend.now()
        seconds = min(backend.measure(prepared, amount, 2).seconds)
        if not math.isfinite(seconds) or seconds < 0:
            raise DeviceError(f"the timer returned {seconds} s: the clock of this device is not usable")
        if seconds == 0 and (passed := backend.now() - before) > STANDS_STILL:
            raise DeviceError(
                f"the timer returned 0 s for runs of {passed:.2g} s: this device's clock stands still"
            )
        if seconds >= CLOSE_ENOUGH * target or amount >= prepared.most:
            break
        growth = UNTIMED_STEP if seconds == 0 else min(LARGEST_STEP, max(2.0, target / seconds))
        amount = allowed(prepared, amount * growth)
    if seconds == 0:
        raise DeviceError("the timer returned 0 s for the largest amount: this device's clock stands still")
    wanted = amount * target / seconds
    per_unit = sum(moved_bytes(prepared.work(amount), prepared.point.level)) / amount
    if moved and per_unit:
        wanted = max(wanted, moved / per_unit)
    final = allowed(prepared, wanted)
    return final, seconds * final / amount


def repeat(
    backend: Backend, prepared: Prepared, amount: int, expected: float, rule: StopRule, shortest: float = 0.0
) -> str:
    """Repetitions in batches of one native call each until `rule`, which keeps them, says stop; why it did.

    "" when the fastest of the first batch took less than `shortest` s: the calibration was disturbed.
    """
    start = backend.now()
    while not (why := rule.verdict(backend.now() - start)):
        count = rule.batch(backend.now() - start, expected)
        try:
            rule.add(backend.measure(prepared, amount, count))
        except ValueError as error:
            raise DeviceError(f"{error}: the clock of this device is not usable") from None
        if len(rule.repetitions) == count and min(rule.repetitions.seconds) < shortest:
            return ""
    return why


def settle(backend: Backend, prepared: Prepared, amount: int, expected: float, seconds: float) -> None:
    """Load the device for `seconds` with repetitions that are not kept: then it is at what it can hold."""
    start, most = backend.now(), max(LARGEST_BATCH, min(MOST_UNKEPT, int(UNKEPT / expected)))
    while (left := seconds - (backend.now() - start)) > 0:
        backend.measure(prepared, amount, max(1, min(most, int(left / expected))))
    for name in OF_ALL_LOAD:
        prepared.facts.pop(name, None)
    prepared.facts["settled_seconds"] = backend.now() - start


@dataclass
class Session:
    """One process on one device in one round: remembers what is warm, verified and calibrated."""

    backend: Backend
    round: int
    process: int
    verified: set[tuple[object, ...]] = field(default_factory=set)
    amounts: dict[str, tuple[int, float]] = field(default_factory=dict)
    warm: bool = False
    timed: Repetitions = field(default_factory=Repetitions)

    def warm_up(self, seconds: float) -> None:
        """Keep the device busy once, so that its clocks settle."""
        if not self.warm:
            self.backend.warm_up(seconds)
            self.warm = True

    def sample(self, planned: Planned, order: int, scale: float = 1.0) -> Sample:
        """Measure one point, its time budget multiplied by `scale`; a failure is a sample with its reason.

        ContextLost when nothing can be measured in this process any more.
        """
        began, self.timed = self.backend.now(), Repetitions()
        sample = Sample(
            planned.point,
            self.round,
            self.process,
            order,
            planned.visit,
            regime=planned.regime,
            clock_source=self.backend.clock_source,
        )
        try:
            if reason := self.backend.unsupported(planned.point):
                return replace(sample, status="skipped", reason=reason)
            sample = self._timed(planned, sample, scale)
        except ContextLost:
            raise
        except Unsupported as error:
            sample = replace(sample, status="skipped", reason=str(error))
        except MemoryError as error:
            sample = self._failed(sample, f"out of memory: {error}".removesuffix(": "))
        except VerificationError as error:
            sample = replace(self._failed(sample, str(error)), facts={"verified": False})
        except BenchError as error:
            sample = self._failed(sample, str(error))
        wall = self.backend.now() - began
        return replace(sample, facts={**sample.facts, "wall_seconds": wall, "scale": scale})

    def _failed(self, sample: Sample, reason: str) -> Sample:
        """With the repetitions that were timed before it failed."""
        return replace(sample, status="failed", reason=reason, repetitions=self.timed)

    def _timed(self, planned: Planned, sample: Sample, scale: float) -> Sample:
        with self._prepared(planned.point) as prepared:
            self._verify(prepared)
            amount, rule, why = self._repeated(planned, prepared, scale)
            work = prepared.work(amount)
            read, written = moved_bytes(work, planned.point.level)
            return replace(
                sample,
                clock_source=prepared.clock_source or self.backend.clock_source,
                flops=float(work.flops),
                bytes_read=float(read),
                bytes_written=float(written),
                repetitions=rule.repetitions,
                facts={**prepared.facts, "amount": amount, "stopped": why, "verified": True},
            )

    def _repeated(self, planned: Planned, prepared: Prepared, scale: float) -> tuple[int, StopRule, str]:
        """Calibrate and repeat; once more where a disturbed trial run made repetitions far too short.

        A later visit, and a later round, repeats what the first found right.
        """
        amount, known = prepared.least, self.amounts.get(planned.key) or self._still_right(planned, prepared)
        for left in reversed(range(CALIBRATIONS)):
            trial = known or calibrate(self.backend, prepared, planned.target, planned.moved, amount)
            (amount, expected), known = trial, None
            if planned.settle:
                settle(self.backend, prepared, amount, expected, planned.settle)
            rule = StopRule(planned.minimum, planned.half_width, planned.budget * scale, planned.q)
            shortest = TOO_SHORT * planned.target if left and amount < prepared.most else 0.0
            try:
                why = repeat(self.backend, prepared, amount, expected, rule, shortest)
            finally:
                self.timed = rule.repetitions
            if why:
                self.amounts[planned.key] = amount, expected
                break
        return amount, rule, why

    def _still_right(self, planned: Planned, prepared: Prepared) -> tuple[int, float] | None:
        """What an earlier round found, if one trial repetition still takes about that time."""
        if not planned.amount:
            return None
        seconds = self.backend.measure(prepared, planned.amount, 1).seconds[0]
        right = planned.expected / STILL_RIGHT < seconds < planned.expected * STILL_RIGHT
        return (planned.amount, planned.expected) if right else None

    @contextmanager
    def _prepared(self, point: Point) -> Iterator[Prepared]:
        prepared, lost = self.backend.prepare(point), False
        try:
            yield prepared
        except ContextLost:
            lost = True  # and with it the memory
            raise
        finally:
            if not lost:
                self.backend.release(prepared)

    def _verify(self, prepared: Prepared) -> None:
        """No pass, no time; the array size is no part of what is verified, the loop is."""
        point = prepared.point
        sent = point.family in ("link", "collective")  # every size, way and pair by itself
        shape = tuple(sorted((k, v) for k, v in point.sizes.items() if sent or k not in NO_SHAPE))
        where = point.level if sent else ""
        way = (point.access, where)
        loop = (point.kernel, point.variant, point.precision, point.store, point.threads, shape, way)
        if loop not in self.verified:
            self.backend.verify(prepared)
            self.verified.add(loop)
