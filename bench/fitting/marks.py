"""Points of a sweep that do not show the roof they stand under: too short, or served by a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bench.profile.records import CurvePoint, Fit
from bench.report.units import duration

RESIDENT, LAUNCH = "cache-resident: left out", "launch-limited"

SMALLER = 2.0
"""A point is compared with those that move at least so many times its bytes."""

FASTER = 0.10
"""Share by which it must move bytes faster than they do at no higher intensity, which no form explains."""

COMPARED = 3
"""With the median of so many of them, nearest in intensity."""

BRIEF = 20e-6
"""Seconds up to which starting a repetition may be most of it: kernels of GPUs and teams of threads take 2 to
10 us to start."""

LAUNCH_SHARE = 0.2
"""Share of its time that T0 takes in a launch-limited point."""


def resident(points: Sequence[CurvePoint]) -> set[int]:
    """Positions of the points that a cache served: bytes move faster than for larger arrays.

    At one size bytes per second only fall with rising intensity, whatever the form.
    """
    return {i for i, point in enumerate(points) if _beats_larger(point, points)}


def _beats_larger(point: CurvePoint, points: Sequence[CurvePoint]) -> bool:
    intensity = _intensity(point)
    larger = [p for p in points if p.bytes >= SMALLER * point.bytes and _intensity(p) <= intensity * 1.001]
    nearest = sorted(larger, key=_intensity)[-COMPARED:]
    return bool(nearest) and _bytes_rate(point) > (1 + FASTER) * median(map(_bytes_rate, nearest))


def brief(points: Sequence[CurvePoint], t0: float) -> str:
    """In words, that all points are so short that an overhead which they do not tell may be what they show.

    t0: s that the fit found.  Where a file tells no amounts, points are of one byte and say nothing of times.
    """
    longest = max(p.seconds for p in points)
    if t0 or longest > BRIEF or any(p.bytes <= 1.0 + 1e-9 for p in points):
        return ""
    return f"no point lasts longer than {duration(longest)}: starting one may be all that they show"


def _intensity(point: CurvePoint) -> float:
    return point.flops / point.bytes


def _bytes_rate(point: CurvePoint) -> float:
    return point.estimate.value * point.bytes / point.flops


def marked(points: Sequence[CurvePoint], left_out: set[int], fit: Fit | None) -> tuple[CurvePoint, ...]:
    """The points with what is to be said of them; `fit` is the one that predicts."""
    return tuple(replace(p, note=_note(p, i in left_out, fit)) for i, p in enumerate(points))


def _note(point: CurvePoint, left_out: bool, fit: Fit | None) -> str:
    if left_out:
        return RESIDENT
    if fit is None or not point.flops or not fit.t0:
        return ""
    seconds = point.flops / point.estimate.value
    return LAUNCH if fit.t0 > LAUNCH_SHARE * seconds else ""
