"""Rates of clean repetitions, their statistic within a round, and t-intervals over rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median, stdev

from bench.profile.records import Interval, Repetitions

MIN_CLEAN = 5
"""With fewer clean repetitions than this, all of a sample are used and it counts as contended."""

MIN_ROUNDS = 5
"""Rounds (processes) from which on an interval carries a verdict."""

P75, MEDIAN = 0.75, 0.5
"""The quantile within a round: of a pi, whose disturbances only slow it down, and of a beta."""

CAP_PI, CAP_CACHE, CAP_SHARED, CAP_QUIET = 0.02, 0.05, 0.10, 0.03
"""Half-widths allowed: of pi, a cache's beta, DRAM's or a link's on a shared or on a quiet machine."""

SHARED_WORDS = ("vm", "shared", "container", "quota", "busy")
"""Words of a device's state that say that others can move its memory bandwidth."""

MAX_T_DEGREES = 200
"""Degrees of freedom from which Student's t is taken at this value (0.6 % above the normal)."""


@dataclass(frozen=True)
class Rates:
    """Usable rates of one sample (work/s), how many repetitions were disturbed, out of how many.

    fallback: too few were clean, so all repetitions are in `rates`
    """

    rates: tuple[float, ...]
    disturbed: int
    total: int
    fallback: bool


def clean_rates(work: float, repetitions: Repetitions) -> Rates:
    """Rates of the clean repetitions of `work` (FLOP or byte) each; times not above zero are left out."""
    timed = [(work / s, ok) for s, ok in zip(repetitions.seconds, repetitions.clean, strict=True) if s > 0]
    disturbed = sum(not ok for _, ok in timed)
    fallback = disturbed > 0 and len(timed) - disturbed < MIN_CLEAN
    return Rates(tuple(usable_rates(timed)), disturbed, len(timed), fallback)


def usable_rates(timed: Sequence[tuple[float, bool]]) -> list[float]:
    """Of (rate, clean) pairs the clean rates, or all when fewer than MIN_CLEAN are clean."""
    clean = [rate for rate, ok in timed if ok]
    return clean if len(clean) >= min(MIN_CLEAN, len(timed)) else [rate for rate, _ in timed]


def quantile(values: Sequence[float], share: float) -> float:
    """The `share` quantile of `values`, linear between order statistics."""
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def sweep_quantile(share: float) -> float:
    """Quantile that stands for a round of a sweep's point that reaches `share` of the fastest rate.

    It slides from the median, where memory binds, to p75, where compute does: the asymptotes of the
    sweep are then those of the two ceilings.
    """
    return MEDIAN + (P75 - MEDIAN) * share


def _inside(t: float, degrees: int) -> float:
    """P(|T| < t) of Student's t with whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    cos2 = math.cos(angle) ** 2
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    sine = math.sin(angle)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@cache
def student(degrees: int, confidence: float = 0.95) -> float:
    """Two-sided quantile of Student's t: |T| stays below it with probability `confidence`."""
    if degrees < 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {degrees}")
    degrees = min(degrees, MAX_T_DEGREES)
    low, high = 0.0, 1.0
    while _inside(high, degrees) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def _band(values: Sequence[float], value: float) -> tuple[float, float]:
    """95 % t-interval of the mean of `values`, widened where `value` would fall outside."""
    centre = fmean(values)
    reach = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return min(centre - reach, value), max(centre + reach, value)


def interval(estimates: Sequence[float], value: float | None = None) -> Interval:
    """Median of per-round estimates with the 95 % t-interval on their logarithms.

    value: reported in place of the median (a fit to all rounds together)
    With fewer than 2 rounds there is a value and no interval. All in the unit of `estimates`, > 0.
    """
    chosen = median(estimates) if value is None else value
    if len(estimates) < 2:
        return Interval(chosen)
    low, high = _band([math.log(e) for e in estimates], math.log(chosen))
    return Interval(chosen, min(math.exp(low), chosen), max(math.exp(high), chosen))  # exp(log(x)) is not x


def bounded_interval(
    estimates: Sequence[float], low: float, high: float, value: float | None = None
) -> Interval:
    """As `interval`, on the scale of the estimates themselves and cut to [low, high] (for omega)."""
    chosen = median(estimates) if value is None else value
    if len(estimates) < 2:
        return Interval(chosen)
    bottom, top = _band(estimates, chosen)
    return Interval(chosen, max(bottom, low), min(top, high))


def memory_cap(state: str) -> float:
    """Allowed half-width of a DRAM or link bandwidth on a device in `state` (words joined by -)."""
    return CAP_SHARED if any(word in state for word in SHARED_WORDS) else CAP_QUIET


def inverse(rate: Interval, amount: float = 1.0) -> Interval:
    """The time of `amount` at a rate; the ends change places."""
    ends = (None if end is None else amount / end for end in (rate.high, rate.low))
    return Interval(amount / rate.value, *ends)


def ratio(numerator: Interval, denominator: Interval) -> Interval:
    """Quotient of two independent estimates; half-widths on the log scale add in quadrature."""
    value = numerator.value / denominator.value
    widths = numerator.half_width, denominator.half_width
    if widths[0] is None or widths[1] is None:
        return Interval(value)
    reach = math.hypot(math.log1p(widths[0]), math.log1p(widths[1]))
    return Interval(value, value * math.exp(-reach), value * math.exp(reach))
