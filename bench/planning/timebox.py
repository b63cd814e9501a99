"""The time box: what a point costs, what fits into the rounds that are left, what must be given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from bench.planning.planned import Planned
from bench.profile.records import Sample

GUESSED_OVERHEAD = 0.05
"""Seconds to prepare, verify and calibrate a point before any was seen."""

SCALES = (1.0, 0.7, 0.5, 0.35)
"""Shares of the planned budgets that are tried before rounds are given up."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one point as seen last: beside and inside its repetitions, at which budget scale.

    floor: seconds of the minimum number of repetitions
    """

    overhead: float
    timed: float
    scale: float
    floor: float


@dataclass
class Ledger:
    """What points cost, by point where it was seen, by family otherwise; the costs of a round's start."""

    points: dict[str, Cost] = field(default_factory=dict)
    families: dict[str, list[float]] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    spent: float = 0.0

    def add(self, planned: Planned, sample: Sample) -> None:
        """Learn from a sample's wall time (s)."""
        wall, scale = float(sample.facts.get("wall_seconds", 0.0)), float(sample.facts.get("scale", 1.0))
        seconds = sample.repetitions.seconds
        timed = sum(seconds)
        floor = planned.minimum * fmean(seconds) if seconds else 0.0
        cost = Cost(max(0.0, wall - timed), timed, scale, floor)
        self.points[planned.key] = cost
        if not sample.facts.get("lost"):  # a hang says nothing about the others
            overhead = max(0.0, cost.overhead - planned.settle)
            self.families.setdefault(planned.point.family, []).append(overhead)
        self.spent += wall

    def predict(self, planned: Planned, scale: float) -> float:
        """Seconds that the point will take, all its visits, with its budget multiplied by `scale`."""
        return planned.visits * self._visit(planned, scale)

    def _visit(self, planned: Planned, scale: float) -> float:
        scale = 1.0 if planned.settle else scale
        if cost := self.points.get(planned.key):
            return cost.overhead + max(min(cost.floor, cost.timed), cost.timed * scale / cost.scale)
        seen = self.families.get(planned.point.family)
        least = planned.minimum * planned.target
        overhead = planned.settle + (fmean(seen) if seen else GUESSED_OVERHEAD)
        return overhead + max(least, planned.budget * scale)

    def round(self, points: Sequence[Planned], scale: float) -> float:
        """Seconds of a whole round, its process included."""
        return self.start + sum(self.predict(p, scale) for p in points)

    def rounds(self, points: Sequence[Planned], scale: float, wanted: int) -> float:
        """Seconds of `wanted` rounds; some points are measured in the first ones only."""
        return wanted * self.start + sum(p.rounds(wanted) * self.predict(p, scale) for p in points)

    @property
    def start(self) -> float:
        """Seconds from one round to the first point of the next."""
        return fmean(self.starts) if self.starts else 0.0


@dataclass(frozen=True)
class Allotment:
    """What the rounds that are left consist of."""

    rounds: int
    scale: float
    kept: tuple[Planned, ...]
    dropped: tuple[Planned, ...]


def allot(ledger: Ledger, points: Sequence[Planned], left: float, wanted: int, least: int) -> Allotment:
    """Fit `wanted` rounds, at least `least`, of `points` into `left` s.

    First budgets shrink, then rounds fall to `least`, then points go: detail before curves,
    costly before cheap, never the headlines (priority 0).
    """
    kept, dropped = list(points), []
    for scale in SCALES:
        if ledger.rounds(kept, scale, wanted) <= left:
            return Allotment(wanted, scale, tuple(kept), ())
    scale = SCALES[-1]
    cost = {p.key: ledger.predict(p, scale) * p.rounds(least) / least for p in points}
    total = ledger.start + sum(cost.values())
    order = sorted(points, key=lambda p: (p.priority, cost[p.key]))
    while least * total > left and order and order[-1].priority > 0:
        gone = order.pop()
        dropped.append(gone)
        total -= cost[gone.key]
    names = {p.key for p in dropped}
    kept = [p for p in points if p.key not in names]
    rounds = max(1, min(wanted, int(left / total))) if total > 0 else wanted
    return Allotment(rounds, scale, tuple(kept), tuple(dropped))


class TimeBox:
    """Seconds of a run on any clock, with a reserve for fit and report."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._start = clock()
        self.seconds = seconds
        self.reserve = min(0.25 * seconds, max(6.0, 0.06 * seconds), 20.0)

    @property
    def elapsed(self) -> float:
        """Seconds since the box was opened."""
        return self._clock() - self._start

    @property
    def left(self) -> float:
        """Seconds left for measuring, negative when the box is overdrawn."""
        return self.seconds - self.reserve - self.elapsed
