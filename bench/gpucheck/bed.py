"""The test bed of the device checks: an open backend, and the points of a run to take one's pick from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bench.backends import Backend, Prepared
from bench.planning.plan import plan
from bench.profile.records import Point
from bench.running.child import Child
from bench.running.measure import calibrate

SMALL, SMALL_EDGE = 32 << 20, 2048
"""Bytes of an array, and edges of a product, where only the result matters."""

SHORT = 0.02
"""Seconds of a repetition that is compared with another."""


@dataclass
class Bed:
    """A backend under test.

    deadline: on time.monotonic(), from which the results of further loops are left unchecked
    end: the same, by when every check must have ended
    other: PyTorch's process (bench/gpucheck/by_torch.py) where one has been started ahead
    """

    backend: Backend
    deadline: float = float("inf")
    end: float = float("inf")
    other: Child | None = None

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

    def supported(self, families: tuple[str, ...]) -> list[Point]:
        """The points of these families that this device supports."""
        return [p for p in self.points if p.family in families and not self.backend.unsupported(p)]

    def one_each(self, families: tuple[str, ...], key: Callable[[Point], Any]) -> list[Point]:
        """The first of them of every kind."""
        found: dict[Any, Point] = {}
        for point in self.supported(families):
            found.setdefault(key(point), point)
        return list(found.values())

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
    """The same loop over arrays no larger than SMALL, a product with no edge above SMALL_EDGE."""
    most = {"bytes": SMALL, **dict.fromkeys("mnk", SMALL_EDGE)}
    return sized(
        point, **{name: min(point.sizes[name], size) for name, size in most.items() if name in point.sizes}
    )
