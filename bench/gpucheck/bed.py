"""The test bed of the device checks: an open backend, and the points of a run to take one's pick from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from bench.backends import Backend, Prepared
from bench.planning.plan import plan
from bench.profile.records import Point
from bench.running.measure import calibrate

SMALL = 32 << 20
"""Bytes of an array where only the result matters."""


@dataclass
class Bed:
    """A backend under test.

    deadline: on time.monotonic(), from which the results of further loops are left unchecked
    """

    backend: Backend
    deadline: float = float("inf")

    @property
    def simulated(self) -> bool:
        """Whether no hardware is behind it."""
        return self.backend.device.kind == "simulated"

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """What a run of three minutes measures here, every form that it tries, the guesses first."""
        self.backend.begin_round(0)
        free = self.backend.device.facts.get("free_bytes")
        drafted = plan(self.backend.device, self.backend.variants, "standard", memory=free)
        found = [p.point for p in (*drafted.settled(drafted.guesses), *drafted.pilot)]
        return tuple({point.key: point for point in found if point.family != "workload"}.values())

    def first(self, wanted: Callable[[Point], bool]) -> Point | None:
        """The first of the points that is wanted and that this device supports."""
        return next((p for p in self.points if wanted(p) and not self.backend.unsupported(p)), None)

    @contextmanager
    def prepared(self, point: Point) -> Iterator[Prepared]:
        """The point made ready, its memory given back afterwards."""
        made = self.backend.prepare(point)
        try:
            yield made
        finally:
            self.backend.release(made)

    def amount(self, prepared: Prepared, seconds: float) -> int:
        """Amount that takes about `seconds`."""
        return calibrate(self.backend, prepared, seconds)[0]

    def fastest(self, prepared: Prepared, amount: int, n: int = 5) -> float:
        """Seconds of the fastest of n repetitions."""
        return min(self.backend.measure(prepared, amount, n).seconds)


def sized(point: Point, **sizes: int) -> Point:
    """The same point with other sizes."""
    return replace(point, sizes={**point.sizes, **sizes})


def small(point: Point) -> Point:
    """The same loop over arrays no larger than SMALL."""
    return sized(point, bytes=min(point.sizes["bytes"], SMALL)) if "bytes" in point.sizes else point
