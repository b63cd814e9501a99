"""Robust least squares of one form on one sweep, T0 only where the evidence for it is decisive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.fitting.descent import descend
from bench.fitting.forms import (
    CAPPED,
    SOFT_SCALE,
    Array,
    Form,
    Sweep,
    bounds,
    guesses,
    log_rates,
    slopes,
)

FLOOR = 1e-12
"""Mean squared log residual taken as exact, so that AICc stays finite on noise-free data."""

TOLERANCE, ROUGH = 1e-10, 1e-6
"""Relative change at which a solution is final, and one that only compares places of a step."""

MAX_EVALUATIONS = 200

INSIDE = 1e-9
"""Distance of a start from the bounds: at one its first step might be lost."""

OVERHEAD_SPAN, OVERHEAD_NEAR = 5.0, 2.0
"""T0 is sought only where times span the first factor within the second of intensity: with one size a
setting, T0 cannot be told from the shape of the knee (at p = 1 and constant bytes not at all)."""

OVERHEAD_EVIDENCE = 10.0
"""AICc by which T0 > 0 must win: "essentially no support" for the other (Burnham and Anderson, 2002)."""


@dataclass(frozen=True)
class Solution:
    """Best parameters of one form, twice the robust cost, and AICc over the points."""

    form: Form
    theta: Array
    cost: float
    aicc: float


def aicc(cost: float, n: int, parameters: int) -> float:
    """Corrected Akaike criterion of n points; the scale of the noise counts as one more parameter.

    cost: sum of squared log residuals.  With no point to spare the correction stays what it is with one:
    without bound no form would be left to choose.
    """
    k = parameters + 1
    return float(n * np.log(max(cost / n, FLOOR)) + 2 * k + 2 * k * (k + 1) / max(1, n - k - 1))


def solve(
    form: Form,
    sweep: Sweep,
    starts: Sequence[Array],
    shortest: float | None = None,
    tolerance: float = TOLERANCE,
) -> Solution:
    """Least robust cost on log residuals from any of `starts`."""
    shortest = sweep.shortest if shortest is None else shortest
    found = (_from(form, sweep, start, shortest, tolerance) for start in starts)
    return min(found, key=lambda solution: solution.cost)


def _from(form: Form, sweep: Sweep, start: Array, shortest: float, tolerance: float) -> Solution:
    low, high = bounds(form, sweep)

    def residuals(theta: Array) -> Array:
        return (log_rates(form, theta, sweep, shortest) - sweep.log_rate) * sweep.weight

    def jacobian(theta: Array) -> Array:
        return slopes(form, theta, sweep, shortest) * sweep.weight[:, None]

    begin = np.clip(start, low + INSIDE, high - INSIDE)
    found = descend(residuals, jacobian, begin, low, high, SOFT_SCALE, tolerance, MAX_EVALUATIONS)
    cost = 2 * found.cost
    return Solution(form, found.x, cost, aicc(cost, len(sweep.flops), len(start) - bool(form.step)))


def sizes_differ(sweep: Sweep) -> bool:
    """Whether somewhere small and large points share an intensity, so that T0 can be found."""
    x, seconds = sweep.log_intensity, sweep.log_seconds
    near = np.abs(x[:, None] - x) <= np.log(OVERHEAD_NEAR)
    return len(x) >= 6 and bool(np.any(near & (seconds[:, None] - seconds >= np.log(OVERHEAD_SPAN))))


def _starts(form: Form, sweep: Sweep, norm: Solution | None) -> list[Array]:
    """The best guess; for a cap the two best and the corner as deep as that of the p-norm."""
    first = list(guesses(form, sweep))[: 2 if form.corner == CAPPED else 1]
    if norm is None or form.corner != CAPPED:
        return first
    depth = 2.0 ** float(norm.theta[2])
    return [*first, np.array([*norm.theta[:2], depth / 2, depth / 2])]


def best(corner: str, sweep: Sweep, norm: Solution | None = None) -> Solution:
    """The corner without T0, or with it where times span enough and the evidence is decisive."""
    form = Form(corner)
    plain = solve(form, sweep, _starts(form, sweep, norm))
    if not sizes_differ(sweep):
        return plain
    form = replace(form, overhead=True)
    starts = [np.append(plain.theta, share) for share in (0.01, 0.5)]
    if norm is not None and norm.form.overhead and corner == CAPPED:
        depth = 2.0 ** float(norm.theta[2])
        starts.append(np.array([*norm.theta[:2], depth / 2, depth / 2, norm.theta[-1]]))
    starts.append(next(guesses(form, sweep)))
    full = solve(form, sweep, starts)
    return full if full.aicc < plain.aicc - OVERHEAD_EVIDENCE else plain


def stepped(sweep: Sweep, on: str, start: Solution) -> Solution:
    """The p-norm with a step of unknown size in pi or beta at the points `beyond`."""
    form = replace(start.form, step=on)
    starts = [np.append(start.theta, size) for size in (-0.2, 0.2)]
    return solve(form, sweep, starts, tolerance=ROUGH)
