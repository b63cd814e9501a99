"""Fits the roofline's forms to a sweep: hard-min and p-norm with launch overhead, intervals from rounds.

T(F, Q) = T0 + ((F/pi)^p + (Q/beta)^p)^(1/p), residuals on log(rate). The norm enters as u = 1/p, in which
the soft corner is nearly linear, from U_MIN (a corner too sharp to tell from hard) to 1 (serial).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import bounded_interval, interval
from bench.fitting.reach import reached, rewrite
from bench.profile.records import CurvePoint, Fit, Interval
from bench.profile.roofline import overlap

Array = NDArray[np.float64]

U_MIN = 1 / 200
U_STARTS = (0.8, 0.5, 0.25, 0.1)

SOFT_SCALE = 0.05
"""Log residual from which soft-L1 turns from squares to absolute values: outliers pull no harder."""

MODEL_ERROR = 0.01
"""No form is truer than this, so no point weighs more than its scatter and this together allow."""

SCATTER_WINDOW = 9
"""A point is weighted by the median scatter of so many points around it: scatter belongs to the resource
that binds, and a variance of five rounds that sets its own weight makes intervals too narrow (0.91 to
0.93 of them covered, against 0.945)."""

FLOOR = 1e-12
"""Mean squared log residual taken as exact, so that AICc stays finite on noise-free data."""

OVERHEAD_SPAN, OVERHEAD_NEAR = 5.0, 2.0
"""T0 is sought only where times span the first factor within the second of intensity: with one size a
setting, T0 cannot be told from the shape of the knee (at p = 1 and constant bytes not at all)."""

OVERHEAD_EVIDENCE = 10.0
"""AICc by which T0 > 0 must win: "essentially no support" for the other (Burnham and Anderson, 2002)."""

WHOLE = 0.8
"""Share of the points that must have every round, or the rounds' refits would not be fits to the curve."""

MAX_RATIO = 1e3
"""An asymptote is sought up to this factor above the best point seen."""


@dataclass(frozen=True)
class Sweep:
    """One curve as arrays in rising intensity: FLOP, byte, log(FLOP/s), weight, each per point."""

    flops: Array
    moved: Array
    log_rate: Array
    weight: Array

    @property
    def intensity(self) -> Array:
        """FLOP/byte."""
        return self.flops / self.moved

    @property
    def log_seconds(self) -> Array:
        """log of the time of each point in s."""
        return np.asarray(np.log(self.flops) - self.log_rate)

    @property
    def shortest(self) -> float:
        """Least time of a point, s: the scale of T0 and its upper bound."""
        return float(np.exp(np.min(self.log_seconds)))


@dataclass(frozen=True)
class Form:
    """Which parameters are free besides log(pi) and log(beta): u = 1/p, and T0 / shortest time."""

    norm: bool
    overhead: bool

    @property
    def name(self) -> str:
        """hard-min | p-norm."""
        return "p-norm" if self.norm else "hard-min"

    def split(self, theta: Array) -> tuple[float, float, float, float]:
        """theta as log(pi), log(beta), u (0 for hard-min), T0 as a share of the shortest time."""
        share = float(theta[-1]) if self.overhead else 0.0
        return float(theta[0]), float(theta[1]), float(theta[2]) if self.norm else 0.0, share


@dataclass(frozen=True)
class Solution:
    """Best parameters of one form, twice the robust cost, and AICc over the points."""

    form: Form
    theta: Array
    cost: float
    aicc: float


def _corner(compute: Array, memory: Array, u: Array | float) -> Array:
    """log((e^(compute p) + e^(memory p))^(1/p)) for p = 1/u, the larger of both for u = 0."""
    longest = np.maximum(compute, memory)
    if np.all(np.asarray(u) == 0):
        return np.asarray(longest)
    return np.asarray(longest + u * np.log1p(np.exp(-np.abs(compute - memory) / u)))


def _log_seconds(form: Form, theta: Array, sweep: Sweep, shortest: float) -> Array:
    log_pi, log_beta, u, share = form.split(theta)
    body = _corner(np.log(sweep.flops) - log_pi, np.log(sweep.moved) - log_beta, u)
    return np.asarray(np.log(np.exp(body) + share * shortest))


def _jacobian(form: Form, theta: Array, sweep: Sweep, shortest: float) -> Array:
    """Derivatives of the weighted residuals, one column per free parameter."""
    log_pi, log_beta, u, share = form.split(theta)
    compute, memory = np.log(sweep.flops) - log_pi, np.log(sweep.moved) - log_beta
    body = _corner(compute, memory, u)
    total = np.exp(body) + share * shortest
    in_body = np.exp(body) / total
    on_pi = np.exp((compute - body) / u) if form.norm else (compute > memory).astype(float)
    columns = [on_pi * in_body, (1 - on_pi) * in_body]
    if form.norm:
        columns.append(-in_body * (body - on_pi * compute - (1 - on_pi) * memory) / u)
    if form.overhead:
        columns.append(-shortest / total)
    return np.stack(columns, axis=1) * sweep.weight[:, None]


def _start(form: Form, sweep: Sweep) -> Array:
    """The cheapest of all splits into a memory and a compute side, for each u of the starts."""
    y, x = sweep.log_rate, np.log(sweep.intensity)
    splits = range(1, len(y))
    pi = np.array([np.median(y[k:]) for k in splits])[:, None]
    beta = np.array([np.median((y - x)[:k]) for k in splits])[:, None]
    best, lowest = np.empty(0), np.inf
    for u in U_STARTS if form.norm else (0.0,):
        residual = (-_corner(-pi, -beta - x, u) - y) * sweep.weight
        cost = np.sum(np.sqrt(1 + (residual / SOFT_SCALE) ** 2) - 1, axis=1)
        k = int(np.argmin(cost))
        if cost[k] < lowest:
            lowest = float(cost[k])
            best = np.array([pi[k, 0], beta[k, 0], *([u] if form.norm else []), *([0.1] * form.overhead)])
    return best


def _bounds(form: Form, sweep: Sweep) -> tuple[Array, Array]:
    wide = np.log(MAX_RATIO)
    pi = float(np.max(sweep.log_rate))
    beta = float(np.max(sweep.log_rate - np.log(sweep.intensity)))
    low = [pi - wide, beta - wide, *([U_MIN] * form.norm), *([0.0] * form.overhead)]
    high = [pi + wide, beta + wide, *([1.0] * form.norm), *([1.0] * form.overhead)]
    return np.array(low), np.array(high)


def solve(form: Form, sweep: Sweep, start: Array | None = None, shortest: float | None = None) -> Solution:
    """Robust least squares on log residuals from `start`, or from the best split of the sweep."""
    from scipy.optimize import least_squares

    shortest = sweep.shortest if shortest is None else shortest
    low, high = _bounds(form, sweep)
    first = _start(form, sweep) if start is None else start
    log_flops = np.log(sweep.flops)

    def residuals(theta: Array) -> Array:
        return (log_flops - _log_seconds(form, theta, sweep, shortest) - sweep.log_rate) * sweep.weight

    def slopes(theta: Array) -> Array:
        return _jacobian(form, theta, sweep, shortest)

    found = least_squares(
        residuals,
        np.clip(first, low + 1e-9, high - 1e-9),
        jac=slopes,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=SOFT_SCALE,
        xtol=1e-10,
        ftol=1e-10,
        gtol=1e-12,
        max_nfev=200,
    )
    cost, n, k = 2 * float(found.cost), len(log_flops), len(first) + 1
    aicc = n * np.log(max(cost / n, FLOOR)) + 2 * k + 2 * k * (k + 1) / max(1, n - k - 1)
    return Solution(form, np.asarray(found.x), cost, float(aicc))


def _sizes_differ(sweep: Sweep) -> bool:
    """Whether somewhere small and large points share an intensity, so that T0 can be found."""
    x, seconds = np.log(sweep.intensity), sweep.log_seconds
    near = np.abs(x[:, None] - x) <= np.log(OVERHEAD_NEAR)
    return len(x) >= 6 and bool(np.any(near & (seconds[:, None] - seconds >= np.log(OVERHEAD_SPAN))))


def _pooled(norm: bool, sweep: Sweep) -> Solution:
    """The form without T0, or with it where times span enough and the evidence is decisive."""
    plain = solve(Form(norm, False), sweep)
    if not _sizes_differ(sweep):
        return plain
    form = Form(norm, True)
    starts = [np.append(plain.theta, share) for share in (0.01, 0.5)] + [_start(form, sweep)]
    best = min((solve(form, sweep, start) for start in starts), key=lambda s: s.cost)
    return best if best.aicc < plain.aicc - OVERHEAD_EVIDENCE else plain


def _weights(points: Sequence[CurvePoint]) -> Array:
    """Inverse scatter over rounds around each point, relative to the curve's; 1 where unknown."""
    known = [i for i, p in enumerate(points) if len(p.rates) >= 2]
    if not known:
        return np.ones(len(points))
    own = np.array([np.var(np.log(points[i].rates), ddof=1) for i in known])
    nearest = [
        np.argsort(np.abs(np.array(known) - i), kind="stable")[:SCATTER_WINDOW] for i in range(len(points))
    ]
    around = np.array([np.median(own[near]) for near in nearest]) + MODEL_ERROR**2
    return np.asarray(np.sqrt(np.median(around) / around))


def _rounds(points: Sequence[CurvePoint], weight: Array) -> list[Sweep]:
    """One sweep a round, of the points that took part in every round; none where those are too few."""
    count = max(len(p.rates) for p in points)
    chosen = [i for i, p in enumerate(points) if len(p.rates) == count]
    if count < 2 or len(chosen) < WHOLE * len(points):
        return []
    flops = np.array([points[i].flops for i in chosen])
    moved = np.array([points[i].bytes for i in chosen])
    rates = np.log(np.array([points[i].rates for i in chosen]))
    return [Sweep(flops, moved, rates[:, r], weight[chosen]) for r in range(count)]


def _describe(solution: Solution, sweep: Sweep, refits: Sequence[Solution]) -> Fit:
    """A solution as a record: values from all rounds together, intervals from the rounds' refits."""
    form = solution.form
    log_pi, log_beta, u, share = form.split(solution.theta)
    each = np.array([form.split(r.theta) for r in refits]).reshape(-1, 4)
    residual = (
        np.log(sweep.flops) - _log_seconds(form, solution.theta, sweep, sweep.shortest) - sweep.log_rate
    )
    omega = Interval(1.0)
    if form.norm:
        omega = bounded_interval([overlap(1 / r) for r in each[:, 2]], 0.0, 1.0, overlap(1 / u))
    return Fit(
        form=form.name,
        pi=interval(np.exp(each[:, 0]).tolist(), float(np.exp(log_pi))),
        beta=interval(np.exp(each[:, 1]).tolist(), float(np.exp(log_beta))),
        ridge=interval(np.exp(each[:, 0] - each[:, 1]).tolist(), float(np.exp(log_pi - log_beta))),
        omega=omega,
        p=1 / u if form.norm else None,
        t0=share * sweep.shortest,
        rms=float(np.sqrt(np.mean(residual**2))),
        aicc=solution.aicc,
    )


def _fit_form(norm: bool, points: Sequence[CurvePoint], sweep: Sweep) -> Fit:
    solution = _pooled(norm, sweep)
    rounds = _rounds(points, sweep.weight)
    refits = [solve(solution.form, r, solution.theta, sweep.shortest) for r in rounds]
    return _describe(solution, sweep, refits)


def can_fit() -> bool:
    """Whether SciPy is here: a GPU machine without a network may lack it, and has ceilings all the same."""
    return find_spec("scipy") is not None


def fit_curve(points: Sequence[CurvePoint]) -> tuple[Fit, ...]:
    """Hard-min and p-norm fitted to one sweep, the form of lowest AICc marked as chosen.

    points: FLOP, byte and rate (FLOP/s) of each setting; `rates` one per round, the same rounds in every
    point that has as many as any. A hard corner, when chosen, still carries the overlap that the
    p-norm leaves possible (omega.low). pi and beta are the asymptotes of the form: where the sweep does not
    reach one, it is a bound, its interval one-sided and `limits` says so. A form needs two points more
    than parameters; with fewer there is no fit, nor where SciPy is not installed.
    """
    if not can_fit():
        return ()
    usable = sorted(
        (p for p in points if p.flops > 0 and p.bytes > 0 and p.estimate.value > 0), key=_intensity
    )
    fits = []
    for norm in (False, True):
        if len(usable) >= (5 if norm else 4):
            flops, moved = np.array([p.flops for p in usable]), np.array([p.bytes for p in usable])
            log_rate = np.log(np.array([p.estimate.value for p in usable]))
            sweep = Sweep(flops, moved, log_rate, _weights(usable))
            fit = _fit_form(norm, usable, sweep)
            fits.append(rewrite(fit, reached(fit, usable), usable))
    lowest = min((f.aicc for f in fits), default=0.0)
    chosen = next((i for i, f in enumerate(fits) if f.aicc == lowest), None)
    if chosen == 0 and len(fits) == 2:
        fits[0] = replace(fits[0], omega=Interval(1.0, fits[1].omega.low, 1.0))
    return tuple(replace(f, chosen=i == chosen) for i, f in enumerate(fits))


def _intensity(point: CurvePoint) -> float:
    return point.flops / point.bytes
