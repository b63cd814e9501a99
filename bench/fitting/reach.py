"""Says how far a sweep reaches on either side of its ridge, and makes a fit one-sided where it does not.

The thresholds were found by cutting sweeps of real machines short and comparing with their full fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.fitting.choice import FEWEST
from bench.profile.records import CurvePoint, Fit, Interval
from bench.report.units import percent, si

TOP_FACTOR, BOTTOM_FACTOR = 3.0, 6.0
"""Slopes are taken over the top factor 3 and the lowest factor 6 of intensity, of 3 points at least."""

PLATEAU_SLOPE, RISING_SLOPE = 0.2, 0.7
"""Log-log slope at the top: up to the first pi is seen, from the second on it is never reached."""

SLANT_SLOPE, FLAT_SLOPE = 0.9, 0.4
"""Log-log slope at the bottom: from the first on beta is seen, below the second it is never reached."""

LINE_EVIDENCE = 30.0
"""BIC by which a roof must beat the plain slant line before a knee is believed."""

KNEE_PI, KNEE_BETA = 0.15, 0.10
"""Where only the knee is seen a fit was right within these shares, whatever its own interval said."""

DROP = 0.15
"""Share by which the last points must lie below the plateau to be called a drop."""

ON_A_SIDE = 3
"""Points beyond the knee from which a side counts as seen (a slope is taken over so many)."""

SEEN, KNEE, NEVER = "seen", "knee", "never"


@dataclass(frozen=True)
class Reach:
    """seen | knee | never for each asymptote, and the intensity (FLOP/byte) beyond which rates drop."""

    pi: str
    beta: str
    drop_from: float | None = None
    drop: float = 0.0


def intensities(points: Sequence[CurvePoint]) -> int:
    """How many different FLOP/byte the points have, to six digits: of fewer than FEWEST nothing is fitted."""
    return len({f"{p.flops / p.bytes:.6g}" for p in points})


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    centre_x, centre_y = fmean(x), fmean(y)
    spread = sum((a - centre_x) ** 2 for a in x)
    return sum((a - centre_x) * (b - centre_y) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


def _line_evidence(x: Sequence[float], y: Sequence[float], rms: float) -> float:
    """BIC of the slant line (beta alone) less that of the roof (pi, beta, p)."""
    n = len(x)
    offset = fmean(b - a for a, b in zip(x, y, strict=True))
    line = fmean((b - a - offset) ** 2 for a, b in zip(x, y, strict=True))
    return n * math.log(max(line, 1e-12) / max(rms**2, 1e-12)) - 2 * math.log(n)


def _drop(rates: Sequence[float]) -> tuple[int | None, float]:
    """Index of the last point before a fall at the end of the sweep, and the share that is lost."""
    plateau = sorted(rates)[-2]
    fallen = 0
    while fallen < len(rates) - 2 and rates[-1 - fallen] < (1 - DROP) * plateau:
        fallen += 1
    past_plateau = len(rates) - fallen - 1
    if fallen < 2 or max(rates[: past_plateau + 1]) < plateau:
        return None, 0.0
    return past_plateau, 1 - min(rates[-fallen:]) / plateau


def reached(fit: Fit, points: Sequence[CurvePoint]) -> Reach:
    """Which asymptotes the points (rising intensity) show, T0 taken off their times."""
    x = [math.log(p.flops / p.bytes) for p in points]
    seconds = [p.flops / p.estimate.value for p in points]
    y = [math.log(p.flops / max(s - fit.t0, 1e-3 * s)) for p, s in zip(points, seconds, strict=True)]
    ridge = math.log(fit.ridge.value)
    top = max(ON_A_SIDE, sum(a >= x[-1] - math.log(TOP_FACTOR) for a in x))
    low = max(ON_A_SIDE, sum(a <= x[0] + math.log(BOTTOM_FACTOR) for a in x))
    slope_high, slope_low = _slope(x[-top:], y[-top:]), _slope(x[:low], y[:low])
    if slope_high <= PLATEAU_SLOPE and sum(a >= ridge + math.log(2) for a in x) >= 2:
        pi = SEEN
    else:
        rising = slope_high >= RISING_SLOPE or _line_evidence(x, y, fit.rms) <= LINE_EVIDENCE
        pi = NEVER if rising and slope_high > PLATEAU_SLOPE else KNEE
    beta = SEEN if slope_low >= SLANT_SLOPE else NEVER if slope_low < FLAT_SLOPE else KNEE
    at, drop = _drop([math.exp(b) for b in y])  # short points are slow by T0, which the fit has
    return Reach(pi, beta, None if at is None else math.exp(x[at]), drop)


def _widened(value: Interval, share: float) -> Interval:
    if value.low is None or value.high is None:
        return value
    return Interval(
        value.value, min(value.low, value.value / (1 + share)), max(value.high, value.value * (1 + share))
    )


def _bounded_pi(fit: Fit, points: Sequence[CurvePoint]) -> Fit:
    """pi at least the fastest point; the corner lies beyond it, so its shape is unknown."""
    best = max((p.estimate for p in points), key=lambda e: e.value)
    pi = Interval(best.value, best.value if best.low is None else best.low)
    ridge = Interval(pi.value / fit.beta.value, (pi.low or pi.value) / (fit.beta.high or fit.beta.value))
    return replace(fit, pi=pi, ridge=ridge, p=None, pi_c=None, beta_c=None, omega=Interval(1.0, 0.0, 1.0))


def _bounded_beta(fit: Fit, points: Sequence[CurvePoint]) -> Fit:
    """beta at least the byte rate of the point that moves bytes fastest."""
    best = max(points, key=lambda p: p.estimate.value * p.bytes / p.flops)
    scale = best.bytes / best.flops
    low = best.estimate.value if best.estimate.low is None else best.estimate.low
    beta = Interval(best.estimate.value * scale, low * scale)
    most = None if fit.pi.is_bound else (fit.pi.high or fit.pi.value) / (low * scale)
    ridge = Interval(fit.pi.value / beta.value, None, most)
    return replace(fit, beta=beta, ridge=ridge, p=None, pi_c=None, beta_c=None, omega=Interval(1.0, 0.0, 1.0))


def rewrite(fit: Fit, reach: Reach, points: Sequence[CurvePoint]) -> Fit:
    """The fit with bounds in place of what was never reached, wider where only the knee was, and in words."""
    words = []
    if reach.pi == NEVER:
        fit = _bounded_pi(fit, points)
        words.append(f"pi not reached: at least {si(fit.pi.value, 'FLOP/s')}, the fastest point")
    if reach.beta == NEVER:
        fit = _bounded_beta(fit, points)
        words.append(
            f"beta not reached: at least {si(fit.beta.value, 'byte/s')}, the point that moves bytes fastest"
        )
    if reach.pi == KNEE:
        fit = replace(fit, pi=_widened(fit.pi, KNEE_PI), ridge=_widened(fit.ridge, KNEE_PI))
        words.append(f"only the knee below pi is seen: pi within about {percent(KNEE_PI)}")
    if reach.beta == KNEE:
        fit = replace(fit, beta=_widened(fit.beta, KNEE_BETA), ridge=_widened(fit.ridge, KNEE_BETA))
        words.append(f"only the knee above beta is seen: beta within about {percent(KNEE_BETA)}")
    if reach.drop_from is not None:
        words.append(f"the rate drops by {percent(reach.drop)} beyond {reach.drop_from:.3g} FLOP/byte")
    return replace(fit, limits="; ".join(words))


def wanting(points: Sequence[CurvePoint]) -> str:
    """Why nothing is fitted to so few points, in words: how many a fit needs, and on which side of the ridge.

    points: those of the sweep, any order; what is left out of fits does not count.  "" where they suffice
    """
    used = [p for p in points if p.flops > 0 and p.bytes > 0 and p.estimate.value > 0 and not p.note]
    places = intensities(used)
    if places >= FEWEST:
        return ""
    few = f"nothing fitted: {len(used)} of the {FEWEST} points that a fit needs"
    if len(used) >= FEWEST:
        few = f"nothing fitted: {len(used)} points at {places} of the {FEWEST} intensities that a fit needs"
    x = [math.log(p.flops / p.bytes) for p in used]
    if len(set(x)) < 2:
        return f"{few}; measure {ON_A_SIDE} on each side of the ridge"
    slope = _slope(x, [math.log(p.estimate.value) for p in used])
    low, high = (f"{math.exp(end):.3g} FLOP/byte" for end in (min(x), max(x)))
    if slope >= RISING_SLOPE:
        return (
            f"{few}, all on the memory side; measure {ON_A_SIDE} or more above {high}, where the rate is flat"
        )
    if slope <= PLATEAU_SLOPE:
        return (
            f"{few}, all on the compute side; measure {ON_A_SIDE} or more below {low}, where the rate rises"
        )
    return f"{few}; measure {ON_A_SIDE} on each side of the ridge, below {low} and above {high}"
