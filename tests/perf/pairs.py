"""Interleaved windows of several sides in random order, and what their pairs say about a ratio."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SHORTEST_WINDOW = 2e-3
"""Seconds below which a window says more about starting threads than about the kernel."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Window:
    """One timed run of one side: work in FLOP or byte, time in s."""

    work: float
    seconds: float

    @property
    def rate(self) -> float:
        """Work per second."""
        return self.work / self.seconds


class Side(Protocol):
    """One contender: a name and the one thing it can do."""

    name: str

    def window(self) -> Window:
        """Run once, cold or warm as its kernel demands, and say how much was done in which time."""


def interleave(sides: Mapping[str, Side], turns: int, order: random.Random) -> dict[str, list[Window]]:
    """`turns` windows of every side; within a turn each side runs once, in a fresh random order."""
    windows: dict[str, list[Window]] = {label: [] for label in sides}
    labels = list(sides)
    for _ in range(turns):
        order.shuffle(labels)
        for label in labels:
            windows[label].append(sides[label].window())
    return windows


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios of pairs; low and high bound its 95 % interval (None below 6 pairs)."""

    value: float
    low: float | None
    high: float | None
    pairs: int


def median_rank(pairs: int, confidence: float = CONFIDENCE) -> int | None:
    """Largest k for which [k-th smallest, k-th largest] covers the median with `confidence`.

    Exact for any distribution of independent pairs: the number of pairs below the median is
    binomial(pairs, 1/2). None when even the extremes are not wide enough.
    """
    tail, rank = 0.0, 0
    while rank < pairs / 2:
        tail += math.comb(pairs, rank) / 2.0**pairs
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    return rank or None


def ratio(contender: Sequence[Window], reference: Sequence[Window]) -> Ratio:
    """Rate of `contender` over rate of `reference`, turn by turn: exp of the median log-ratio.

    The bound is the order-statistic interval of the median over pairs, two-sided 95 %: its lower
    end is passed by chance in one of forty comparisons.
    """
    if len(contender) != len(reference) or not contender:
        raise ValueError(f"pairs need equally many windows, got {len(contender)} and {len(reference)}")
    pairs = zip(contender, reference, strict=True)
    logs = sorted(math.log(mine.rate / other.rate) for mine, other in pairs)
    value, rank = math.exp(statistics.median(logs)), median_rank(len(logs))
    if rank is None:
        return Ratio(value, None, None, len(logs))
    return Ratio(value, math.exp(logs[rank - 1]), math.exp(logs[-rank]), len(logs))


def rate(windows: Sequence[Window]) -> float:
    """Median rate of a side's windows."""
    return statistics.median(window.rate for window in windows)


def shortest(windows: Mapping[str, Sequence[Window]]) -> float:
    """Seconds of the shortest window of any side."""
    return min(window.seconds for side in windows.values() for window in side)


def fastest(sides: Sequence[Side], order: random.Random, first: int = 9, final: int = 21) -> Side:
    """The side with the highest median rate: all run `first` turns, the best three `final` more.

    These windows only choose; what is reported comes from fresh ones, or the winner's luck
    would count in its favour.
    """
    labelled = {side.name: side for side in sides}
    if len(labelled) != len(sides):
        raise ValueError(f"side names must differ, got {', '.join(side.name for side in sides)}")
    if len(sides) == 1:
        return sides[0]
    windows = interleave(labelled, first, order)
    best = sorted(labelled, key=lambda name: -rate(windows[name]))[:3]
    again = interleave({name: labelled[name] for name in best}, final, order)
    return labelled[max(best, key=lambda name: rate(windows[name] + again[name]))]
