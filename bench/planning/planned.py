"""A point with how it is to be measured, the presets, and a plan made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from bench.profile.records import Point


@dataclass(frozen=True)
class Preset:
    """How much is measured: minutes of the whole run, rounds, forms tried, detail of the sweeps (0-2).

    What is left of the time after these rounds goes to further ones: of what has too few for a verdict, then
    of the widest ceilings.
    """

    name: str
    minutes: float
    rounds: int
    least_rounds: int
    variants: int
    detail: int


PRESETS = {
    "quick": Preset("quick", 1, 4, 3, 3, 0),
    "standard": Preset("standard", 3, 5, 5, 8, 1),
    "full": Preset("full", 15, 12, 8, 24, 2),
}


TOGETHER = "together"
"""Name of the process that sees all GPUs: it measures what goes between them and what they do at once."""

PROCESS_OF = dict.fromkeys(("latency", "launch", "scaling", "link", "overlap"), "cache")
"""Families of a GPU that share a process with another: opening the device would take longer than they do."""


@dataclass(frozen=True)
class Planned:
    """A point with how it is to be measured in one round.

    priority:   0 headline, 1 curves and workloads, 2 detail (given up first)
    cap:        relative half-width that its ceiling may have over rounds
    q:          quantile of the rates that stands for a round;  half_width: of it, at which to stop
                (negative: never, the whole budget is spent)
    target:     seconds that one repetition shall take;  moved: bytes that it must move at least
    visits:     how often a round comes back to the point, spread over the round
    minimum:    clean repetitions wanted;  budget: seconds for all repetitions; both per visit
    amount:     of one repetition, and its expected seconds, as an earlier round found them (0: not yet)
    tune:       name of the choice of variant that the point shares, "" where the variant is fixed
    settle:     seconds of the same load before the first repetition that counts
    times:      rounds of the run in which it is measured, the first ones (0: all)
    least_bytes: smallest array that may stand in where its own finds no memory (0: none may)
    """

    point: Point
    priority: int
    cap: float
    q: float
    half_width: float
    target: float
    budget: float
    minimum: int
    moved: float = 0.0
    regime: str = "typical"
    tune: str = ""
    visits: int = 1
    visit: int = 0
    amount: int = 0
    expected: float = 0.0
    settle: float = 0.0
    times: int = 0
    least_bytes: float = 0.0

    @cached_property
    def key(self) -> str:
        """Identity within a round."""
        return f"{self.regime}/{self.point.key}"

    @property
    def process(self) -> str:
        """Name of the process that measures it, where families have processes of their own."""
        if "devices" in self.point.sizes or self.point.level.startswith("peer "):
            return TOGETHER
        return PROCESS_OF.get(self.point.family, self.point.family)

    def with_variant(self, variant: str) -> Planned:
        """The same point in another form."""
        return replace(self, point=replace(self.point, variant=variant))

    def halved(self) -> Planned:
        """The same point with arrays of half the size, where its own found no memory; itself if none may."""
        half = self.point.sizes.get("bytes", 0) // 2
        if not self.least_bytes or half < self.least_bytes:
            return self
        point = replace(self.point, sizes={**self.point.sizes, "bytes": half})
        return replace(self, point=point, least_bytes=0.0)

    def each_visit(self) -> tuple[Planned, ...]:
        """The visits of a round, numbered."""
        return tuple(replace(self, visit=v) for v in range(self.visits))

    def rounds(self, wanted: int) -> int:
        """In how many of `wanted` rounds it is measured."""
        return min(self.times, wanted) if self.times else wanted


@dataclass(frozen=True)
class Plan:
    """All points of a round (variant "" where the pilot chooses), the pilot, and what is left out.

    guesses: the backend's first variant of every choice;  notes: in words, what is not measured
    unit: what `threads` counts, thread or SM
    """

    preset: Preset
    threads: int
    points: tuple[Planned, ...]
    pilot: tuple[Planned, ...]
    guesses: Mapping[str, str]
    notes: tuple[str, ...] = ()
    unit: str = "thread"

    def settled(self, winners: Mapping[str, str]) -> tuple[Planned, ...]:
        """The points of a round with their variants: the winners', else the first guess."""
        chosen = {**self.guesses, **winners}
        return tuple(p.with_variant(chosen[p.tune]) if p.tune in chosen else p for p in self.points)
