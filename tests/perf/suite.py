"""The suite's own kernels as sides of a comparison: the points that `run` measures, window by window."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.backends import Backend, Prepared
from bench.profile.records import Point, Precision
from bench.running.campaign import CLEARLY
from bench.running.measure import allowed, calibrate
from kernels import KERNELS
from tests.perf.pairs import Window, fastest, interleave, rate

TRIED_AGAIN = 21
"""Windows of the first guess and of the fastest, where they differ."""

TRIALS, NEAR = 5, 0.7
"""Windows tried after calibrating, and the share of the wanted length that the shortest must reach."""


def quantity(prepared: Prepared, amount: int) -> float:
    """Work that a point's rate counts: bytes for streams, caches and chases, FLOP for chains and matrices."""
    work = prepared.work(amount)
    moving = prepared.point.family in ("stream", "cache", "latency")
    return work.bytes(prepared.point.level) if moving else work.flops


class SuiteSide:
    """Windows of one prepared point, each `amount` units; `by_bytes` counts the traffic of a mix point."""

    def __init__(self, backend: Backend, prepared: Prepared, amount: int, by_bytes: bool = False) -> None:
        self.prepared, self.amount, self.by_bytes = prepared, amount, by_bytes
        self._backend = backend
        self.name = prepared.point.variant
        work = prepared.work(amount)
        self.work = work.bytes(prepared.point.level) if by_bytes else quantity(prepared, amount)

    def window(self) -> Window:
        """One repetition, warmed up, pinned and timed by the backend."""
        return Window(self.work, self._backend.measure(self.prepared, self.amount, 1).seconds[0])

    def release(self) -> None:
        """Give the point's memory back."""
        self._backend.release(self.prepared)


class Suite:
    """A backend, the points of a comparison on it, and the variants that proved fastest so far."""

    def __init__(self, backend: Backend, order: random.Random) -> None:
        self.backend, self._order = backend, order
        self._winners: dict[str, str] = {}

    def place_anew(self) -> None:
        """Begin a round: the arrays of what is prepared from now on lie on other pages."""
        self.backend.begin_round(0)

    def point(
        self, kernel: str, precision: str, threads: int, level: str = "", store: str = "none", **sizes: int
    ) -> Point:
        """A point without its variant, as the plan writes it."""
        known = KERNELS[kernel]
        scope = "all" if threads == self.backend.device.threads else "core"
        unit = "library" if known.family == "gemm" else "vector"
        return Point(
            known.family,
            kernel,
            "",
            Precision.of(precision, unit),
            level,
            known.access,
            store,
            scope=scope,
            threads=threads,
            sizes=sizes,
        )

    def side(self, point: Point, seconds: float, moved: float = 0.0, by_bytes: bool = False) -> SuiteSide:
        """A point with its variant, verified, its windows `seconds` long and moving `moved` byte at least."""
        prepared = self._verified(point)
        amount, _ = calibrate(self.backend, prepared, seconds, moved)
        while True:
            # The shortest of several: a trial that was disturbed would make every window too short.
            shortest = min(self.backend.measure(prepared, amount, TRIALS).seconds)
            if shortest >= NEAR * seconds or amount >= prepared.most:
                return SuiteSide(self.backend, prepared, amount, by_bytes)
            amount = allowed(prepared, amount * min(seconds / shortest, 64.0))

    def _verified(self, point: Point) -> Prepared:
        prepared = self.backend.prepare(point)
        self.backend.verify(prepared)
        return prepared

    def best(self, point: Point, seconds: float, moved: float = 0.0, by_bytes: bool = False) -> SuiteSide:
        """The fastest variant of a point at equal work; the choice is remembered for the same point."""
        if winner := self._winners.get(point.key):
            return self.side(replace(point, variant=winner), seconds, moved, by_bytes)
        names = self.backend.variants(point.kernel, point.precision, point.level, point.threads)
        sides: list[SuiteSide] = []
        for name in names:
            candidate = replace(point, variant=name)
            if self.backend.unsupported(candidate):
                continue
            sides.append(
                self._equal(candidate, sides[0]) if sides else self.side(candidate, seconds, moved, by_bytes)
            )
        best = self._fastest(sides)
        self._winners[point.key] = best.name
        return best

    def _equal(self, point: Point, first: SuiteSide) -> SuiteSide:
        """Another variant with windows of the same work as the first one's."""
        prepared = self._verified(point)
        unit = quantity(prepared, prepared.step) / quantity(first.prepared, first.prepared.step)
        amount = allowed(prepared, first.amount / first.prepared.step * prepared.step / unit)
        return SuiteSide(self.backend, prepared, amount, first.by_bytes)

    def _fastest(self, sides: Sequence[SuiteSide]) -> SuiteSide:
        """As the pilot of a run chooses: the first guess stands unless another is clearly faster."""
        guess, best = sides[0], fastest(sides, self._order)
        if best is not guess:
            again = interleave({"guess": guess, "best": best}, TRIED_AGAIN, self._order)
            best = best if rate(again["best"]) > CLEARLY * rate(again["guess"]) else guess
        for side in sides:
            if side is not best:
                side.release()
        assert isinstance(best, SuiteSide)
        return best
