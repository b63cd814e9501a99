"""Matrix products by shape: an efficiency curve fitted to the measured sizes, checked at sizes left out.

    T = t0 + a F + item (c_mn m n + c_mk m k + c_kn k n)          F = 2 m n k

    a      1/rate of an endless product, s/FLOP, one in each precision
    c_mn   tiles of C read, summed into and written: with a it says at which k half the rate is reached
    c_mk   A packed into panels (half-rate n);  c_kn  B packed (half-rate m): s a byte
    t0     one call of the library;  item  bytes of an element

A library uses one thread for a small product. On several threads the "teams" form has that step: below
F_s all but t0 takes `speed_up` times as long, from F_s on a team is started, which takes `start` s more.

The precisions of one CPU are fitted together: calls, teams and the step are the same code, and edges are
moved in whole vectors, so they cost by the byte. Each precision alone would have to find eight parameters
in half of the sizes, and t0 and `speed_up` would follow the noise of the few small ones.

Not all parameters can be told from few sizes (squares cannot tell m from n from k), so four nested forms
are tried and the one with the smallest error at sizes left out of its fit predicts:

    rate   T = a F                                  edges  T = t0 + a F + c item (m n + m k + k n)
    sides  all of the first line                    teams  the same with the step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import Any

import numpy as np

from bench.errors import FileError
from bench.fitting.intervals import student
from bench.prediction.estimate import log_width
from bench.profile.records import Curve, Precision, Profile
from kernels.spec import ITEM_BYTES

RATE, EDGES, SIDES, TEAMS = "rate", "edges", "sides", "teams"
PARAMETERS = {RATE: 0, EDGES: 2, SIDES: 4, TEAMS: 7}
"""Of each form, beside the rate of each precision."""

SPARE = 2
"""Measured sizes beyond its parameters that a form needs."""

BETTER = 0.9
"""A form with more parameters must bring the left-out error below this share of the simpler one's."""

ROBUST_FROM, PASSES = 0.03, 4
"""Log residual from which a size loses weight, and how often weights are made anew."""

FAR = 4.0
"""Times the median left-out error that one disturbed size counts at most."""

NEAR = 12
"""Measured sizes, the nearest in work, whose left-out errors and rounds say how sure a time is."""

SPEED_UPS = 12
"""Speed-ups of a team that are tried, from 1 to its threads."""

Array = Any


@dataclass(frozen=True)
class Shape:
    """A product, the seconds that it took with their log half-width over rounds, bytes of an element."""

    m: int
    n: int
    k: int
    seconds: float
    width: float = 0.0
    item: int = 8

    @property
    def flops(self) -> float:
        """2 m n k."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True)
class Efficiency:
    """A fitted form of one precision, from the shapes of all that were fitted together.

    costs: t0 (s), a (s/FLOP), c_mn, c_mk, c_kn (s an element of this precision), start (s)
    missed: log error of each shape when it is left out of the fit, empty where too few were measured
    """

    form: str
    costs: tuple[float, ...]
    speed_up: float
    step: float
    missed: tuple[float, ...]
    shapes: tuple[Shape, ...]

    @property
    def error(self) -> float | None:
        """Root mean square of the errors at left-out sizes, None where too few were measured to leave one."""
        return _rms(self.missed) if self.missed else None

    def width(self, m: int, n: int, k: int) -> float | None:
        """Half-width on the log scale that holds 95 of 100 unseen sizes like this one, None if unknown.

        t times the left-out error of the measured sizes nearest in work, with what they moved over rounds;
        where all sizes err more, half of that counts, since the nearest in work have other proportions.
        The teams form is given its freedom back: step and speed-up were chosen with no size left out.
        """
        if len(self.missed) < 2:
            return None
        apart = [abs(math.log(s.flops / (2.0 * m * n * k))) for s in self.shapes]
        near = sorted(range(len(apart)), key=lambda i: apart[i])[:NEAR]
        used = PARAMETERS[TEAMS] + len({s.item for s in self.shapes}) if self.form == TEAMS else 0
        free = math.sqrt(len(apart) / (len(apart) - used))
        drift = math.sqrt(mean(self.shapes[i].width ** 2 for i in near))
        here, anywhere = _rms([self.missed[i] for i in near]), _rms(self.missed)
        missed = max(here, math.hypot(here, anywhere) / math.sqrt(2))
        return math.hypot(student(len(near) - 1) * free * missed, drift)

    def parts(self, m: int, n: int, k: int) -> dict[str, float]:
        """Seconds of the arithmetic, of packing and of C (memory), and of calls and teams (launch)."""
        row = _amounts(np.array([[m, n, k]], float), self.speed_up, self.step)[0] * np.array(self.costs)
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


def _rms(errors: Sequence[float]) -> float:
    """Root mean square; a size that was disturbed counts as FAR times the median error at most."""
    far = FAR * median(abs(e) for e in errors)
    return math.sqrt(sum(min(abs(e), far) ** 2 for e in errors) / len(errors))


def _amounts(sizes: Array, speed_up: float, step: float) -> Array:
    """What the six costs are paid for: calls, FLOP, elements of C, A and B, teams; sizes (N, 3)."""
    m, n, k = sizes.T
    flops = 2 * m * n * k
    team = (flops >= step) & (step > 0)
    share = np.where(team, 1.0, speed_up)
    ones = np.ones(len(m))
    return np.column_stack([ones, flops * share, m * n * share, m * k * share, k * n * share, team * 1.0])


@dataclass(frozen=True)
class _Sizes:
    """Shapes as arrays: m, n, k (N, 3), seconds and bytes of an element (N,)."""

    edges: Array
    seconds: Array
    items: Array

    @property
    def kinds(self) -> Array:
        """Bytes of an element of each precision."""
        return np.unique(self.items)

    def columns(self, form: str, speed_up: float, step: float) -> Array:
        """Amounts that a form's parameters are paid for: rates of each precision, then the shared ones."""
        calls, flops, *elements, teams = _amounts(self.edges, speed_up, step).T
        rates = [flops * (self.items == item) for item in self.kinds]
        sides = [count * self.items for count in elements]
        shared = {RATE: [], EDGES: [calls, sum(sides)], SIDES: [calls, *sides], TEAMS: [calls, *sides, teams]}
        return np.column_stack([*rates, *shared[form]])

    def six(self, form: str, found: Array, item: int) -> tuple[float, ...]:
        """The six costs of one precision from a form's parameters."""
        rate, shared = found[np.flatnonzero(self.kinds == item)[0]], found[len(self.kinds) :]
        sides = {RATE: [0.0] * 3, EDGES: [*shared[1:]] * 3}.get(form, [*shared[1:4]])
        start = shared[4] if form == TEAMS else 0.0
        t0 = 0.0 if form == RATE else shared[0]
        return tuple(float(x) for x in (t0, rate, *(side * item for side in sides), start))


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


def _solved(columns: Array, seconds: Array) -> tuple[Array, float]:
    """Parameters by robust least squares of relative errors, and the mean absolute log error."""
    scaled = columns / seconds[:, None]
    size = np.maximum(scaled.max(axis=0), 1e-300)
    weight = np.ones(len(seconds))
    for _ in range(PASSES):
        found = _not_negative(scaled / size * weight[:, None], weight) / size
        error = np.abs(np.log(np.maximum(columns @ found, 1e-300) / seconds))
        weight = 1 / np.sqrt(np.maximum(error, ROBUST_FROM))
    return found, float(error.mean())


def _steps(flops: Array) -> list[float]:
    """Where the step may lie: between any two measured sizes, geometrically half way."""
    ordered = np.unique(flops)
    return [float(s) for s in np.sqrt(ordered[:-1] * ordered[1:])]


def _step(sizes: _Sizes, threads: int) -> tuple[float, float]:
    """Speed-up and step of the teams form with the smallest error."""
    tried = [
        (_solved(sizes.columns(TEAMS, up, step), sizes.seconds)[1], up, step)
        for up in np.geomspace(1.0, threads, SPEED_UPS).tolist()
        for step in _steps(2 * sizes.edges.prod(axis=1))
    ]
    return min(tried)[1:]


def fitted(shapes: Sequence[Shape], threads: int = 1, item: int | None = None) -> Efficiency:
    """The form that errs least at sizes left out of its fit, fitted to all; ValueError without any size.

    item: bytes of an element of the precision asked for (that of the first shape)
    """
    if not shapes:
        raise ValueError("an efficiency curve needs at least one measured size")
    return _best(tuple(shapes), threads, item or shapes[0].item)


@cache
def _best(shapes: tuple[Shape, ...], threads: int, item: int) -> Efficiency:
    """Kept, since every product of a table asks for the same fit."""
    rates = len({s.item for s in shapes})
    best: Efficiency | None = None
    for form, parameters in PARAMETERS.items():
        enough = len(shapes) >= parameters + rates + SPARE or form == RATE
        if not enough or (form == TEAMS and threads < 2):
            continue
        found = _one(form, shapes, threads, item)
        if best is None or best.error is None or (found.error or 0.0) < BETTER * best.error:
            best = found
    assert best is not None
    return best


def _one(form: str, shapes: Sequence[Shape], threads: int, item: int) -> Efficiency:
    edges = np.array([(s.m, s.n, s.k) for s in shapes], float)
    sizes = _Sizes(edges, np.array([s.seconds for s in shapes]), np.array([s.item for s in shapes]))
    up, step = _step(sizes, threads) if form == TEAMS else (1.0, 0.0)
    columns = sizes.columns(form, up, step)
    found, _ = _solved(columns, sizes.seconds)
    missed = []
    for i in range(len(shapes) if len(shapes) > columns.shape[1] else 0):
        others = np.arange(len(shapes)) != i
        left, _ = _solved(columns[others], sizes.seconds[others])
        missed.append(float(np.log(max(columns[i] @ left, 1e-300) / sizes.seconds[i])))
    return Efficiency(form, sizes.six(form, found, item), up, step, tuple(missed), tuple(shapes))


def measured(profile: Profile, precision: Precision, threads: int) -> tuple[Shape, ...]:
    """Every product of a precision that the profile's curves hold on so many threads."""
    found: dict[tuple[int, int, int], Shape] = {}
    for curve in profile.curves:
        if (curve.kind, curve.precision, curve.threads) != ("gemm", precision, threads):
            continue
        for point, (m, n, k) in zip(curve.points, shapes_of(curve), strict=True):
            seconds = 2.0 * m * n * k / point.estimate.value
            if (m, n, k) not in found or seconds < found[m, n, k].seconds:  # of two libraries the faster
                item = ITEM_BYTES.get(precision.inputs, 1)
                found[m, n, k] = Shape(m, n, k, seconds, log_width(point.estimate), item)
    return tuple(found.values())


def together(profile: Profile, precision: Precision, threads: int) -> tuple[Shape, ...]:
    """The products of a precision and those of the others of its library, () where it has none itself."""
    others = {c.precision for c in profile.curves if c.kind == "gemm"} - {precision}
    own = measured(profile, precision, threads)
    ordered = sorted(others, key=lambda p: p.label)
    return own and own + tuple(s for other in ordered for s in measured(profile, other, threads))


def shapes_of(curve: Curve) -> list[tuple[int, int, int]]:
    """m, n, k of each point of a gemm curve; FileError when an oblong one does not name them."""
    named = curve.plateaus.get("shapes")
    if named is None:
        return [(round(p.x),) * 3 for p in curve.points]
    if len(named) != len(curve.points):
        raise FileError("a gemm curve of this profile names other shapes than it holds: remake it with `fit`")
    return [(int(m), int(n), int(k)) for m, n, k in named]
