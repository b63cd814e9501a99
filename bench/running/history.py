"""What the samples so far say of the points to come: given up, measured often enough, arrays too large."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from bench.planning.planned import Planned
from bench.profile.records import Point, Sample
from bench.report.units import capacity
from bench.store import Store, key_of

OUT_OF_MEMORY = "out of memory"
"""How the reason of a sample begins whose memory was not there."""

DEATHS = 2
"""Rounds in which a family's process may die or hang before the family is given up."""


def _array(point: Point) -> str:
    """Points that have arrays of one size: what halves one of them halves all, whatever their form."""
    return f"{point.family}/{point.kernel}/{point.precision.label}"


@dataclass
class History:
    """Reads the store of a run, so that a resumed one knows what the first part learnt.

    by_family: each family has a process of its own, which takes the family with it when it dies
    """

    store: Store
    by_family: bool
    _halved: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._halved = {str(n["halved"]): str(n["text"]) for n in self.store.notes if "halved" in n}

    def fitted(self, planned: Planned) -> Planned:
        """The point with the arrays that memory was found for."""
        return planned.halved() if _array(planned.point) in self._halved else planned

    def learn(self, planned: Planned, sample: Sample) -> Planned | None:
        """What to measure in place of a point that found no memory, None where nothing may; it is noted."""
        smaller = planned.halved()
        if not sample.reason.startswith(OUT_OF_MEMORY) or smaller is planned:
            return None
        point = planned.point
        text = (
            f"{point.kernel} {point.precision.label}: no memory for arrays of "
            f"{capacity(point.sizes['bytes'])}, measured with {capacity(smaller.point.sizes['bytes'])}"
        )
        self._halved[_array(point)] = text
        self.store.append_note(text=text, halved=_array(point))
        return smaller

    def worth_it(self, points: Iterable[Planned]) -> list[Planned]:
        """Points that were not skipped, did not fail twice, are wanted again and whose family lives."""
        failures: Counter[str] = Counter()
        rounds: dict[str, set[int]] = defaultdict(set)
        for sample in self.store.samples:
            if sample.round > 0:
                rounds[key_of(sample)].add(sample.round)
                if sample.status != "ok":
                    failures[key_of(sample)] += 2 if sample.status == "skipped" else 1
        dead = self.dead_families()
        return [
            p
            for p in map(self.fitted, points)
            if failures[p.key] < 2
            and not (p.times and len(rounds[p.key]) >= p.times)
            and p.point.family not in dead
        ]

    def lost(self) -> set[str]:
        """Kernels at which a process was lost: the others of their family go before them."""
        return {sample.point.kernel for sample in self.store.samples if sample.facts.get("lost")}

    def dead_families(self) -> dict[str, str]:
        """Families whose process died or hung in too many rounds, each with the last reason."""
        deaths: dict[str, dict[int, str]] = defaultdict(dict)
        for sample in self.store.samples if self.by_family else ():
            if sample.facts.get("lost") and sample.round > 0:
                deaths[sample.point.family][sample.round] = sample.reason
        return {f: list(d.values())[-1] for f, d in deaths.items() if len(d) >= DEATHS}

    def record_given_up(self, points: Iterable[Planned], process: int) -> None:
        """A skipped sample of every point that nobody had come to when its family was given up."""
        dead, last = self.dead_families(), max((s.round for s in self.store.samples), default=0)
        seen = {key_of(sample) for sample in self.store.samples if sample.round > 0}
        never = [p for p in map(self.fitted, points) if p.point.family in dead and p.key not in seen]
        for order, p in enumerate(never):
            reason = f"its family was given up before its turn came: {dead[p.point.family]}"
            skip = Sample(p.point, last, process, order, status="skipped", reason=reason, regime=p.regime)
            self.store.append(skip)

    def remarks(self) -> list[str]:
        """In words: families given up, arrays made smaller."""
        dead = self.dead_families().items()
        given_up = [f"{family}: given up after {DEATHS} rounds: {reason}" for family, reason in dead]
        return [*given_up, *self._halved.values()]


def shuffled(points: Iterable[Planned], seed: str, last: Container[str], grouped: bool) -> list[Planned]:
    """The visits of a round in an order that `seed` decides for each of them, whatever else is kept.

    last: kernels that come after all others;  grouped: family by family
    """
    placed = []
    for each in (visit for planned in points for visit in planned.each_visit()):
        chance = random.Random(f"{seed}/{each.key}/{each.visit}").random()
        placed.append((each, (each.visit + chance) / each.visits + (each.point.kernel in last)))
    if grouped:
        return by_family(placed)
    return [p for p, _ in sorted(placed, key=lambda pp: (pp[0].regime != "burst", pp[1]))]


def by_family(points: Sequence[tuple[Planned, float]]) -> list[Planned]:
    """Visits with their random places in an order that changes family as rarely as the regimes allow.

    Burst first, on a cool device, sustained last; families in random order, of the typical points that of
    the last burst point first, so that its process goes on.
    """
    ordered: list[Planned] = []
    for regimes in (("burst",), ("typical",), ("sustained",)):
        chosen = [(p, place) for p, place in points if p.regime in regimes]
        first = {p.process: place for p, place in sorted(chosen, key=lambda c: -c[1])}
        if ordered and ordered[-1].process in first:
            first[ordered[-1].process] = -1.0
        chosen.sort(key=lambda c: (first[c[0].process], c[1]))
        ordered += [p for p, _ in chosen]
    return ordered
