"""The forms of the roofline as functions of free parameters: log time, its slopes, bounds and first guesses.

T(F, Q) = T0 + body, with compute c = F/pi and memory m = Q/beta, and body one of
    hard-min      max(c, m)
    p-norm        (c^p + m^p)^(1/p), entered as u = 1/p, in which the soft corner is nearly linear
    power-capped  max(c, m, a c + b m), where a = pi/pi_c and b = beta/beta_c: energy per FLOP and per byte
                  over a power budget (Choi, Bedard, Fowler, Vuduc, IPDPS 2013), or a shared issue port
A clock-normalised p-norm is the p-norm with pi shifted by the clock held at each point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HARD, NORM, CAPPED, CLOCKED = "hard-min", "p-norm", "power-capped", "clock-normalised"

U_MIN = 1 / 200
"""Least 1/p: a corner too sharp to tell from hard."""

CAP_MIN = 1e-3
"""Least a and b: a cap a thousand times above the asymptote."""

STARTS: dict[str, tuple[tuple[float, ...], ...]] = {
    HARD: ((),),
    NORM: ((0.8,), (0.5,), (0.25,), (0.1,)),
    CAPPED: tuple((a, b) for a in (0.3, 0.6, 0.85) for b in (0.3, 0.6, 0.85) if a + b > 1.0),
}
"""First guesses of the shape of each corner."""

BOUNDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    HARD: ((), ()),
    NORM: ((U_MIN,), (1.0,)),
    CAPPED: ((CAP_MIN, CAP_MIN), (1.0, 1.0)),
}

MAX_SPLITS = 48
"""Splits into a memory and a compute side that are tried for the first guess."""

MAX_RATIO = 1e3
"""An asymptote is sought up to this factor above the best point seen."""

SOFT_SCALE = 0.05
"""Log residual from which soft-L1 turns from squares to absolute values: outliers pull no harder."""


@dataclass(frozen=True)
class Sweep:
    """One curve as arrays in rising intensity: FLOP, byte, log(FLOP/s), weight, each per point.

    pi_shift, beta_shift: log of what is known to multiply pi and beta at each point (clock, steps)
    beyond: 1 for the points behind a step whose size is sought, else 0
    """

    flops: Array
    moved: Array
    log_rate: Array
    weight: Array
    pi_shift: Array
    beta_shift: Array
    beyond: Array

    @classmethod
    def plain(cls, flops: Array, moved: Array, log_rate: Array) -> Sweep:
        """A sweep with equal weights and nothing shifted."""
        none = np.zeros(len(flops))
        return cls(flops, moved, log_rate, np.ones(len(flops)), none, none, none)

    def take(self, chosen: Array | list[int]) -> Sweep:
        """The points at these positions."""
        names = ("flops", "moved", "log_rate", "weight", "pi_shift", "beta_shift", "beyond")
        return Sweep(*(getattr(self, name)[chosen] for name in names))

    @property
    def log_intensity(self) -> Array:
        """log of FLOP/byte."""
        return np.asarray(np.log(self.flops / self.moved))

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
    """Free parameters: log(pi), log(beta), the corner's shape, T0 / shortest time, log size of a step."""

    corner: str
    overhead: bool = False
    step: str = ""

    def split(self, theta: Array) -> tuple[Array, Array, float, float]:
        """theta as (log pi, log beta), shape, T0 as a share of the shortest time, log size of the step."""
        end = len(theta) - bool(self.step)
        share = float(theta[end - 1]) if self.overhead else 0.0
        return theta[:2], theta[2 : end - self.overhead], share, float(theta[-1]) if self.step else 0.0


@dataclass(frozen=True)
class Curvature:
    """Log of the body of T, the share of log(c) in it, and its slopes on the shape parameters."""

    body: Array
    on_compute: Array
    on_shape: tuple[Array, ...] = ()


def corner(name: str, compute: Array, memory: Array, shape: Array) -> Curvature:
    """The body for log(c) and log(m); on_compute + (share of log(m)) = 1."""
    longest = np.maximum(compute, memory)
    hard = (compute > memory).astype(float)
    if name == NORM:
        u = float(shape[0])
        body = longest + u * np.log1p(np.exp(-np.abs(compute - memory) / u))
        share = np.exp((compute - body) / u)
        return Curvature(body, share, ((body - share * compute - (1 - share) * memory) / u,))
    if name == CAPPED:
        by_flops, by_bytes = np.log(shape[0]) + compute, np.log(shape[1]) + memory
        third = np.logaddexp(by_flops, by_bytes)
        capped = third > longest
        share, body = np.exp(by_flops - third), np.where(capped, third, longest)
        slopes = (capped * share / shape[0], capped * (1 - share) / shape[1])
        return Curvature(body, np.where(capped, share, hard), slopes)
    return Curvature(longest, hard)


def _bent(form: Form, theta: Array, sweep: Sweep) -> tuple[Curvature, float]:
    roofs, shape, share, size = form.split(theta)
    pi, beta = roofs[0] + sweep.pi_shift, roofs[1] + sweep.beta_shift
    if form.step == "pi":
        pi = pi + size * sweep.beyond
    elif form.step == "beta":
        beta = beta + size * sweep.beyond
    return corner(form.corner, np.log(sweep.flops) - pi, np.log(sweep.moved) - beta, shape), share


def log_rates(form: Form, theta: Array, sweep: Sweep, shortest: float) -> Array:
    """log(FLOP/s) of every point under the form."""
    bent, share = _bent(form, theta, sweep)
    return np.asarray(np.log(sweep.flops) - np.log(np.exp(bent.body) + share * shortest))


def slopes(form: Form, theta: Array, sweep: Sweep, shortest: float) -> Array:
    """Derivatives of `log_rates`, one column per free parameter."""
    bent, share = _bent(form, theta, sweep)
    body = np.exp(bent.body)
    total = body + share * shortest
    in_body = body / total
    on_pi, on_beta = bent.on_compute * in_body, (1 - bent.on_compute) * in_body
    columns = [on_pi, on_beta, *(-in_body * slope for slope in bent.on_shape)]
    if form.overhead:
        columns.append(-shortest / total)
    if form.step:
        columns.append(sweep.beyond * (on_pi if form.step == "pi" else on_beta))
    return np.stack(columns, axis=1)


def bounds(form: Form, sweep: Sweep) -> tuple[Array, Array]:
    """Least and greatest value of each free parameter."""
    wide = np.log(MAX_RATIO)
    pi = float(np.max(sweep.log_rate))
    beta = float(np.max(sweep.log_rate - sweep.log_intensity))
    least, most = BOUNDS[form.corner]
    low = [pi - wide, beta - wide, *least, *([0.0] * form.overhead), *([-wide] * bool(form.step))]
    high = [pi + wide, beta + wide, *most, *([1.0] * form.overhead), *([wide] * bool(form.step))]
    return np.array(low), np.array(high)


def robust_cost(residual: Array) -> Array:
    """Twice the soft-L1 cost along the last axis."""
    return np.asarray(2 * SOFT_SCALE**2 * np.sum(np.sqrt(1 + (residual / SOFT_SCALE) ** 2) - 1, axis=-1))


def guesses(form: Form, sweep: Sweep) -> Iterator[Array]:
    """The cheapest split into a memory and a compute side for each first guess of the shape, best first."""
    y, x = sweep.log_rate, sweep.log_intensity
    n = len(y)
    splits = sorted(set(np.linspace(1, n - 1, min(n - 1, MAX_SPLITS)).astype(int).tolist()))
    pi = np.array([np.median((y - sweep.pi_shift)[k:]) for k in splits])[:, None]
    beta = np.array([np.median((y - sweep.beta_shift - x)[:k]) for k in splits])[:, None]
    found: list[tuple[float, list[float]]] = []
    for shape in STARTS[form.corner]:
        body = corner(form.corner, -pi - sweep.pi_shift, -beta - sweep.beta_shift - x, np.array(shape)).body
        cost = robust_cost((-body - y) * sweep.weight)
        k = int(np.argmin(cost))
        rest = [*([0.1] * form.overhead), *([0.0] * bool(form.step))]
        found.append((float(cost[k]), [float(pi[k, 0]), float(beta[k, 0]), *shape, *rest]))
    for _, theta in sorted(found):
        yield np.array(theta)


def shifted(sweep: Sweep, pi: Array, beta: Array) -> Sweep:
    """The sweep with more that is known to multiply pi and beta at each point (logs)."""
    return replace(sweep, pi_shift=sweep.pi_shift + pi, beta_shift=sweep.beta_shift + beta)
