"""What the samples so far say of the points to come: given up, measured often enough, arrays too large."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.planning.planned import Planned
from bench.planning.sizes import printed
from bench.profile.records import Point, Sample
from bench.store import Store

OUT_OF_MEMORY = "out of memory"
"""How the reason of a sample begins whose memory was not there."""

DEATHS = 2
"""Rounds in which a family's process may die or hang before the family is given up."""


def key_of(sample: Sample) -> str:
    """The key of the Planned that a sample was measured for."""
    return f"{sample.regime}/{sample.point.key}"


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
            f"{printed(point.sizes['bytes'])}, measured with {printed(smaller.point.sizes['bytes'])}"
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

    def remarks(self) -> list[str]:
        """In words: families given up, arrays made smaller."""
        dead = self.dead_families().items()
        given_up = [f"{family}: given up after {DEATHS} rounds: {reason}" for family, reason in dead]
        return [*given_up, *self._halved.values()]


def by_family(points: Sequence[tuple[Planned, float]]) -> list[Planned]:
    """Visits with their random places in an order that changes family as rarely as the regimes allow.

    Burst first, on a cool device, sustained last; families in random order, of the typical points that of
    the last burst point first, so that its process goes on.
    """
    ordered: list[Planned] = []
    for regimes in (("burst",), ("typical",), ("sustained",)):
        chosen = [(p, place) for p, place in points if p.regime in regimes]
        first = {p.point.family: place for p, place in sorted(chosen, key=lambda c: -c[1])}
        if ordered and ordered[-1].point.family in first:
            first[ordered[-1].point.family] = -1.0
        chosen.sort(key=lambda c: (first[c[0].point.family], c[1]))
        ordered += [p for p, _ in chosen]
    return ordered
