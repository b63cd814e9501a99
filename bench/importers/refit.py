"""Fits imported sweeps as our own are fitted, with an interval where one run is all there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from bench.fitting import reach
from bench.fitting.fit import fit_sweep
from bench.fitting.intervals import interval
from bench.fitting.marks import RESIDENT
from bench.fitting.rounds import rounds_of
from bench.importers.sweep import Refused, Sweep
from bench.profile.records import CurvePoint, Fit, Interval
from bench.profile.roofline import attainable, fitted_rate

FOLDS = 5
"""Parts of a sweep that are left out in turn."""

BEYOND, ENOUGH = 4.0, 3
"""A plateau is what lies this factor beyond the ridge, of so many points at least."""

JUMP = 0.10
"""Share by which neighbours may break the roof's rise and fall in a clean sweep."""

ROUNDS, POINTS = "rounds", "points"


@dataclass(frozen=True)
class Refit:
    """An imported sweep with the fits to it, the first field by field as `Sweep` tells it.

    basis: what intervals come from: rounds | points (one run, refitted without each fifth of its points,
    which says nothing of how another run would differ) | "" without interval
    plateaus: medians of the points beyond four times the ridge, pi FLOP/s and beta byte/s, the fit's share
    of each, and corner_overpromise, as beside curves of our own
    clean: no jump over 10 % and points enough on both plateaus; None without fit
    """

    name: str
    device: str
    precision: str
    mode: str
    unit: str
    points: tuple[CurvePoint, ...]
    fits: tuple[Fit, ...] = ()
    basis: str = ""
    plateaus: Mapping[str, Any] = field(default_factory=dict)
    clean: bool | None = None
    refused: tuple[Refused, ...] = ()

    @property
    def chosen(self) -> Fit | None:
        """The fit that predicts."""
        return next((fit for fit in self.fits if fit.chosen), None)


def refit(sweep: Sweep) -> Refit:
    """Fit one sweep; too few points leave it without fits."""
    points, fits = fit_sweep(sweep.points)
    chosen = next((fit for fit in fits if fit.chosen), None)
    made = Refit(
        sweep.name, sweep.device, sweep.precision, sweep.mode, sweep.unit, points, refused=sweep.refused
    )
    if chosen is None:
        return made
    basis = ROUNDS
    if not rounds_of([p for p in points if p.note != RESIDENT]).count:
        bounded = from_points(chosen, sweep.points)
        basis = POINTS if any(v.low is not None for v in (bounded.pi, bounded.beta)) else ""
        fits = tuple(bounded if fit.chosen else fit for fit in fits)
        chosen = bounded
    return replace(
        made, fits=fits, basis=basis, plateaus=plateaus(points, chosen), clean=is_clean(points, chosen)
    )


def from_points(fit: Fit, points: Sequence[CurvePoint]) -> Fit:
    """The fit with intervals from its own scatter: refits without each fifth of the points, in turn.

    A delete-group jackknife on logarithms with Student's t of four degrees (Efron and Stein, 1981; groups
    interleaved in intensity). The form is chosen anew each time, so that its choice counts. A bound stays
    one.
    """
    ordered = sorted(points, key=_intensity)
    parts = [[p for i, p in enumerate(ordered) if i % FOLDS != fold] for fold in range(FOLDS)]
    refits = [found for part in parts if (found := _chosen(part))]
    if len(refits) < FOLDS:
        return fit
    seen = reach.reached(fit, ordered)
    pi = _jackknife(fit.pi, [f.pi.value for f in refits], reach.KNEE_PI * (seen.pi == reach.KNEE))
    beta = _jackknife(fit.beta, [f.beta.value for f in refits], reach.KNEE_BETA * (seen.beta == reach.KNEE))
    ridge = fit.ridge
    if not (fit.pi.is_bound and fit.beta.is_bound):  # else any ridge is possible
        ridge = _not_narrower(_jackknife(ridge, [f.ridge.value for f in refits], 0.0), pi, beta)
    return replace(fit, pi=pi, beta=beta, ridge=ridge)


def _chosen(points: Sequence[CurvePoint]) -> Fit | None:
    return next((fit for fit in fit_sweep(points)[1] if fit.chosen), None)


def _jackknife(value: Interval, found: Sequence[float], least: float) -> Interval:
    """Interval about a value from the estimates without each group, at least `least` wide on each side."""
    if value.low is not None or value.high is not None:
        return value
    centre = sum(math.log(v) for v in found) / len(found)
    spread = [(len(found) - 1) * (math.log(v) - centre) for v in found]
    around = interval([value.value * math.exp(off) for off in spread], value.value)
    half = max(around.half_width or 0.0, least)
    return Interval(value.value, value.value / (1 + half), value.value * (1 + half))


def _not_narrower(ridge: Interval, pi: Interval, beta: Interval) -> Interval:
    """A ridge is no surer than the worse of pi and beta."""
    widths = [w for w in (ridge.half_width, pi.half_width, beta.half_width) if w is not None]
    if ridge.half_width is None or not widths:
        return ridge
    return Interval(ridge.value, ridge.value / (1 + max(widths)), ridge.value * (1 + max(widths)))


def _intensity(point: CurvePoint) -> float:
    return point.flops / point.bytes


def _used(points: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Points that the fit looked at, rising in intensity."""
    return sorted((p for p in points if not p.note), key=_intensity)


def plateaus(points: Sequence[CurvePoint], fit: Fit) -> dict[str, Any]:
    """The file's own plateaus beside the fitted asymptotes, where it reaches them."""
    ridge = fit.ridge.value
    sides: dict[str, tuple[Callable[[float], bool], Callable[[CurvePoint], float]]] = {
        "pi": (lambda x: x >= BEYOND * ridge, lambda p: p.estimate.value),
        "beta": (lambda x: x <= ridge / BEYOND, lambda p: p.estimate.value / _intensity(p)),
    }
    found: dict[str, Any] = {}
    for name, (beyond, value) in sides.items():
        values = [value(p) for p in _used(points) if beyond(_intensity(p))]
        if len(values) >= ENOUGH:
            found[name] = median(values)
            found[f"fitted_{name}_share"] = getattr(fit, name).value / found[name]
    corner = attainable(ridge, fit.pi.value, fit.beta.value)
    return found | {"corner_overpromise": corner / fitted_rate(ridge, fit) - 1}


def is_clean(points: Sequence[CurvePoint], fit: Fit) -> bool:
    """No jump over 10 % between neighbours, and three points beyond four times the ridge on each side.

    A jump is what no roof explains, whatever its form: a rate that falls, or bytes that move faster, as
    intensity rises.
    """
    used = _used(points)
    x, ridge = [_intensity(p) for p in used], fit.ridge.value
    if sum(v <= ridge / BEYOND for v in x) < ENOUGH or sum(v >= BEYOND * ridge for v in x) < ENOUGH:
        return False
    rates = [p.estimate.value for p in used]
    moved = [rate / v for rate, v in zip(rates, x, strict=True)]
    falls = any(b < a / (1 + JUMP) for a, b in pairwise(rates))
    return not falls and not any(b > a * (1 + JUMP) for a, b in pairwise(moved))
