"""One point over all its rounds: which samples count, their clean rates, and which variant wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from bench.fitting.intervals import MIN_ROUNDS, Rates, clean_rates, interval, quantile, usable_rates
from bench.profile.records import Interval, Point, Sample

BYTE_FAMILIES = ("stream", "cache", "latency", "link", "collective")
"""Families whose rate is byte/s; that of the others is FLOP/s."""

TIMED_FAMILIES = ("launch", "overlap")
"""Families of which the time of one execution is the result: their rate is executions a second."""


@dataclass(frozen=True)
class Pooled:
    """All usable samples of one point in one regime, in order of rounds (one or more a round)."""

    point: Point
    regime: str
    samples: tuple[Sample, ...]

    @cached_property
    def rates(self) -> tuple[Rates, ...]:
        """Clean rates of each sample, FLOP/s or byte/s."""
        return tuple(clean_rates(work(s), s.repetitions) for s in self.samples)

    @cached_property
    def by_round(self) -> dict[int, list[float]]:
        """Clean rates of each round over all its visits, rising round number; all when too few are clean."""
        return {number: usable_rates(rates) for number, rates in self._timed.items()}

    @cached_property
    def fallen(self) -> tuple[int, ...]:
        """Rounds in which too few repetitions were clean, so that all were used."""
        return tuple(
            number
            for number, rates in self._timed.items()
            if len(self.by_round[number]) > sum(ok for _, ok in rates)
        )

    @cached_property
    def _timed(self) -> dict[int, list[tuple[float, bool]]]:
        """(rate, clean) of every repetition of each round."""
        found: dict[int, list[tuple[float, bool]]] = {}
        for sample in self.samples:
            timed = zip(sample.repetitions.seconds, sample.repetitions.clean, strict=True)
            found.setdefault(sample.round, []).extend((work(sample) / s, ok) for s, ok in timed if s > 0)
        return found

    def rounds(self, share: float) -> dict[int, float]:
        """The `share` quantile of each round."""
        return {number: quantile(rates, share) for number, rates in self.by_round.items()}

    def estimate(self, share: float) -> Interval:
        """Median over rounds of their quantiles, with its t-interval."""
        return interval(list(self.rounds(share).values()))

    @property
    def fastest(self) -> float:
        """Highest rate of a clean repetition, of all in samples where too few were clean."""
        return max(rate for rates in self.rates for rate in rates.rates)

    @property
    def contended(self) -> float:
        """Share of the repetitions that were disturbed."""
        return sum(r.disturbed for r in self.rates) / sum(r.total for r in self.rates)

    @property
    def flops(self) -> float:
        """FLOP of one repetition (the amount may differ by round: its median)."""
        return median(s.flops for s in self.samples)

    @property
    def bytes(self) -> float:
        """Bytes of one repetition, as `flops`."""
        return median(s.bytes for s in self.samples)


def work(sample: Sample) -> float:
    """What the rate of a sample counts: bytes for bandwidth families, executions, else FLOP.

    Of a scaling sweep, which runs other families' kernels, whichever its kernel is about.
    """
    family = sample.point.family
    if family in TIMED_FAMILIES:
        return float(sample.facts.get("amount", 1))
    moves = family in BYTE_FAMILIES or (family == "scaling" and sample.point.access != "none")
    return sample.bytes if moves else sample.flops


def usable(sample: Sample) -> bool:
    """Whether a sample may enter a result: timed in a round, with at least one positive time."""
    timed = sample.status == "ok" and sample.regime != "pilot" and sample.round > 0
    return timed and any(s > 0 for s in sample.repetitions.seconds)


def pool(samples: Iterable[Sample]) -> list[Pooled]:
    """Usable samples that count work, by point and regime, in order of their keys."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        if usable(sample) and work(sample) > 0:
            groups.setdefault((sample.point.key, sample.regime), []).append(sample)
    return [
        Pooled(group[0].point, regime, tuple(sorted(group, key=lambda s: s.round)))
        for (_, regime), group in sorted(groups.items())
    ]


def whole_rounds(rounds: Sequence[set[int]]) -> tuple[int, ...]:
    """Those rounds of a curve that keep the most rates, counting only points measured in all of them.

    rounds: of each point.  A round that was cut short must not cost all others their interval.
    """
    numbers = set().union(*rounds)
    ordered = sorted(numbers, key=lambda n: (-sum(n in have for have in rounds), n))
    best: tuple[int, ...] = ()
    most = 0
    for count in range(1, len(ordered) + 1):
        chosen = ordered[:count]
        kept = count * sum(have.issuperset(chosen) for have in rounds)
        if kept > most:
            best, most = tuple(sorted(chosen)), kept
    return best


def winner(candidates: Sequence[Pooled], share: float) -> Pooled:
    """The highest estimate among those with enough rounds for a verdict, or with the most there are."""
    enough = min(MIN_ROUNDS, max(len(c.by_round) for c in candidates))
    trusted = [c for c in candidates if len(c.by_round) >= enough]
    return max(trusted, key=lambda c: c.estimate(share).value)
