"""Matrix products by shape: an efficiency curve fitted to the measured sizes, checked at sizes left out.

    T = t0 + a F + c_mn m n + c_mk m k + c_kn k n          F = 2 m n k

    a      1/rate of an endless product, s/FLOP
    c_mn   tiles of C read, summed into and written: with a it says at which k half the rate is reached
    c_mk   A packed into panels (half-rate n);  c_kn  B packed (half-rate m), s an element
    t0     one call of the library

A library uses one thread for a small product. On several threads the "teams" form has that step: below
F_s all but t0 takes `speed_up` times as long, from F_s on a team is started, which takes `start` s more.

Not all parameters can be told from few sizes (squares cannot tell m from n from k), so four nested forms
are tried and the one with the smallest error at sizes left out of its fit predicts:

    rate   T = a F                                  edges  T = a F + c (m n + m k + k n)
    sides  all of the first line                    teams  the same with the step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.errors import FileError
from bench.fitting.intervals import student
from bench.prediction.estimate import log_width
from bench.profile.records import Curve, Precision, Profile

RATE, EDGES, SIDES, TEAMS = "rate", "edges", "sides", "teams"
PARAMETERS = {RATE: 1, EDGES: 3, SIDES: 5, TEAMS: 8}
SPARE = 2
"""Measured sizes beyond its parameters that a form needs."""

BETTER = 0.9
"""A form with more parameters must bring the left-out error below this share of the simpler one's."""

ROBUST_FROM, PASSES = 0.03, 4
"""Log residual from which a size loses weight, and how often weights are made anew."""

FAR = 4.0

SPEED_UPS = 12
"""Speed-ups of a team that are tried, from 1 to its threads."""

Array = Any


@dataclass(frozen=True)
class Shape:
    """A product with the seconds that it took and the log half-width of that figure over rounds."""

    m: int
    n: int
    k: int
    seconds: float
    width: float = 0.0

    @property
    def flops(self) -> float:
        """2 m n k."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True)
class Efficiency:
    """A fitted form. costs: s of t0, a, c_mn, c_mk, c_kn, start; missed: log errors of left-out sizes."""

    form: str
    costs: tuple[float, ...]
    speed_up: float
    step: float
    missed: tuple[float, ...]
    shapes: tuple[Shape, ...]

    @property
    def error(self) -> float | None:
        """Root mean square of the errors at left-out sizes, None where too few were measured to leave one.

        A size that was disturbed counts as FAR times the median error at most.
        """
        if not self.missed:
            return None
        far = FAR * median(abs(e) for e in self.missed)
        return math.sqrt(sum(min(abs(e), far) ** 2 for e in self.missed) / len(self.missed))

    @property
    def width(self) -> float | None:
        """Half-width on the log scale that holds 95 of 100 unseen sizes: t times the left-out error."""
        if self.error is None or len(self.missed) < 2:
            return None
        drift = sorted(s.width for s in self.shapes)[len(self.shapes) // 2]
        return math.hypot(student(len(self.missed) - 1) * self.error, drift)

    def parts(self, m: int, n: int, k: int) -> dict[str, float]:
        """Seconds of the arithmetic, of packing and of C (memory), and of calls and teams (launch)."""
        row = _row(np.array([[m, n, k]], float), self.speed_up, self.step)[0] * np.array(self.costs)
        return {
            "compute": float(row[1]),
            "memory": float(row[2:5].sum()),
            "launch": float(row[0] + row[5]),
        }

    def seconds(self, m: int, n: int, k: int) -> float:
        """Time of one m x n x k product."""
        return sum(self.parts(m, n, k).values())

    def beyond(self, m: int, n: int, k: int) -> str:
        """In words, which edges lie outside the measured sizes, "" when none does."""
        found = []
        for name, value in (("m", m), ("n", n), ("k", k)):
            sizes = [getattr(s, name) for s in self.shapes]
            if value < min(sizes):
                found.append(f"{name} below {min(sizes)}")
            if value > max(sizes):
                found.append(f"{name} above {max(sizes)}")
        return ", ".join(found)

    def bounds_only(self, m: int, n: int, k: int) -> bool:
        """Whether a shape is thinner than all measured squares, so that its time is known from below only."""
        return all(s.m == s.n == s.k for s in self.shapes) and "below" in self.beyond(m, n, k)


def _row(sizes: Array, speed_up: float, step: float) -> Array:
    """Columns of T in its costs for sizes (N, 3)."""
    m, n, k = sizes.T
    flops = 2 * m * n * k
    team = (flops >= step) & (step > 0)
    share = np.where(team, 1.0, speed_up)
    ones = np.ones(len(m))
    return np.column_stack([ones, flops * share, m * n * share, m * k * share, k * n * share, team * 1.0])


def _columns(form: str, rows: Array) -> tuple[Array, Array]:
    """What a form fits, and the matrix that spreads its costs over the six."""
    spread = {
        RATE: [[0, 1, 0, 0, 0, 0]],
        EDGES: [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]],
        SIDES: np.eye(6)[:5],
        TEAMS: np.eye(6),
    }[form]
    matrix = np.array(spread, float)
    return rows @ matrix.T, matrix


def _not_negative(a: Array, b: Array) -> Array:
    """Least squares with costs of at least 0: the most negative one is dropped until none is left."""
    active = np.ones(a.shape[1], bool)
    found = np.zeros(a.shape[1])
    while active.any():
        part = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
        if (part >= 0).all():
            found[active] = part
            return found
        active[np.flatnonzero(active)[np.argmin(part)]] = False
    return found


def _costs(form: str, rows: Array, seconds: Array) -> tuple[Array, float]:
    """The six costs by robust least squares of relative errors, and the mean absolute log error."""
    columns, matrix = _columns(form, rows)
    scaled = columns / seconds[:, None]
    size = np.maximum(scaled.max(axis=0), 1e-300)
    weight = np.ones(len(seconds))
    for _ in range(PASSES):
        costs = _not_negative(scaled / size * weight[:, None], weight) / size
        error = np.abs(np.log(np.maximum(columns @ costs, 1e-300) / seconds))
        weight = 1 / np.sqrt(np.maximum(error, ROBUST_FROM))
    return costs @ matrix, float(error.mean())


def _steps(flops: Array) -> list[float]:
    """Where the step may lie: between any two measured sizes, geometrically half way."""
    ordered = np.unique(flops)
    return [float(s) for s in np.sqrt(ordered[:-1] * ordered[1:])]


def _solved(form: str, sizes: Array, seconds: Array, threads: int) -> tuple[Array, float, float]:
    """Costs, speed-up and step of a form."""
    if form != TEAMS:
        return _costs(form, _row(sizes, 1.0, 0.0), seconds)[0], 1.0, 0.0
    tried = [
        (_costs(form, _row(sizes, up, step), seconds), up, step)
        for up in np.linspace(1.0, threads, SPEED_UPS).tolist()
        for step in _steps(2 * sizes.prod(axis=1))
    ]
    (costs, _), up, step = min(tried, key=lambda t: t[0][1])
    return costs, up, step


def fitted(shapes: Sequence[Shape], threads: int = 1) -> Efficiency:
    """The form that errs least at sizes left out of its fit, fitted to all; ValueError without any size."""
    if not shapes:
        raise ValueError("an efficiency curve needs at least one measured size")
    best: Efficiency | None = None
    for form, parameters in PARAMETERS.items():
        enough = len(shapes) >= parameters + SPARE or form == RATE
        if not enough or (form == TEAMS and threads < 2):
            continue
        found = _one(form, shapes, threads)
        if best is None or best.error is None or (found.error or 0.0) < BETTER * best.error:
            best = found
    assert best is not None
    return best


def _one(form: str, shapes: Sequence[Shape], threads: int) -> Efficiency:
    sizes = np.array([(s.m, s.n, s.k) for s in shapes], float)
    seconds = np.array([s.seconds for s in shapes])
    costs, up, step = _solved(form, sizes, seconds, threads)
    rows = _row(sizes, up, step)
    missed = []
    for i in range(len(shapes) if len(shapes) > PARAMETERS[form] else 0):
        others = np.arange(len(shapes)) != i
        left, _ = _costs(form, rows[others], seconds[others])
        missed.append(float(np.log(max(rows[i] @ left, 1e-300) / seconds[i])))
    return Efficiency(form, tuple(map(float, costs)), up, step, tuple(missed), tuple(shapes))


def measured(profile: Profile, precision: Precision, threads: int) -> tuple[Shape, ...]:
    """Every product of a precision that the profile's curves hold on so many threads."""
    found: dict[tuple[int, int, int], Shape] = {}
    for curve in profile.curves:
        if (curve.kind, curve.precision, curve.threads) != ("gemm", precision, threads):
            continue
        for point, (m, n, k) in zip(curve.points, shapes_of(curve), strict=True):
            seconds = 2.0 * m * n * k / point.estimate.value
            if (m, n, k) not in found or seconds < found[m, n, k].seconds:  # of two libraries the faster
                found[m, n, k] = Shape(m, n, k, seconds, log_width(point.estimate))
    return tuple(found.values())


def shapes_of(curve: Curve) -> list[tuple[int, int, int]]:
    """m, n, k of each point of a gemm curve; FileError when an oblong one does not name them."""
    named = curve.plateaus.get("shapes")
    if named is None:
        return [(round(p.x),) * 3 for p in curve.points]
    if len(named) != len(curve.points):
        raise FileError("a gemm curve of this profile names other shapes than it holds: remake it with `fit`")
    return [(int(m), int(n), int(k)) for m, n, k in named]
