"""Steps inside a sweep: places where pi or beta changes, found, named and modelled instead of averaged.

At one size every form of the roofline is concave on logarithmic axes: between two neighbours the rate rises
no more steeply than before them and no less steeply than after them. A place that breaks this rule, and where
a p-norm with a step wins clearly by AICc, is a step: part of the data stays in a cache from some intensity
on, the clock changes, the compiler changes the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.fitting.forms import CAPPED, NORM, Array, Sweep, log_rates, shifted
from bench.fitting.solve import Solution, aicc, best, stepped
from bench.report.units import si

LEAST, SIGMAS = 0.05, 4.0
"""A step breaks concavity by this share, and by so many times the sweep's own noise."""

EVIDENCE = 10.0
"""AICc by which a step, its place and its size must win against every form without it."""

MOST = 3
"""Steps named in one sweep; with more it is no sweep of one device in one state."""

FEWEST = 8
"""Points below which a step cannot be told from the knee."""

REACHED = 0.85
"""Share of pi or beta that some point on its side of a step must show for that side to count."""

DRIFT = 1.25
"""Factor by which bytes may come to move faster along a sweep before that is said."""

ALONE = 0.2
"""Distance on the log scale from which on a lone point is named, if also 2 SIGMAS of the scatter."""

SAME_CLOCK = 0.5
"""Share of a step that the measured clocks must explain for it to be called a change of clock."""


@dataclass(frozen=True)
class Step:
    """From `intensity` FLOP/byte on, pi or beta (`of`) is another; measured on either side of the gap.

    before, behind: FLOP/s for pi, byte/s for beta;  clocks: Hz there, where they explain the step
    """

    of: str
    intensity: float
    before: float
    behind: float
    clocks: tuple[float, float] | None = None

    @property
    def sentence(self) -> str:
        """In words."""
        what, unit = ("bandwidth", "byte/s") if self.of == "beta" else ("rate", "FLOP/s")
        change = f"the {what} goes from {si(self.before, unit)} to {si(self.behind, unit)}"
        if self.clocks:
            change += f" with the clock, from {si(self.clocks[0], 'Hz')} to {si(self.clocks[1], 'Hz')}"
        return f"step at {self.intensity:.3g} FLOP/byte: {change}"


def _slope(x: Array, y: Array, otherwise: float) -> float:
    """Log-log slope through a few points, cut to what a roof allows."""
    if len(x) < 2 or np.ptp(x) == 0:
        return otherwise
    off = x - x.mean()
    return float(np.clip(off @ y / (off @ off), 0.0, 1.0))


def _slopes(x: Array, y: Array) -> tuple[list[float], list[float]]:
    """Slope of the three points that end and of the three that begin at each point."""
    before = [_slope(x[max(0, i - 2) : i + 1], y[max(0, i - 2) : i + 1], 1.0) for i in range(len(x))]
    return before, [_slope(x[i : i + 3], y[i : i + 3], 0.0) for i in range(len(x))]


def _noise(x: Array, y: Array) -> float:
    """Scatter of a point about the line through its neighbours, by the median."""
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    off = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    return float(1.4826 * np.median(np.abs(off)) / np.sqrt(1.5))


def breaks(x: Array, y: Array) -> list[tuple[float, int]]:
    """(excess, k) of the gaps in front of points k where log(rate) breaks concavity and stays so."""
    before, after = _slopes(x, y)
    least = max(LEAST, SIGMAS * _noise(x, y))
    found = []
    for k in range(1, len(x)):
        up = y[k] - y[k - 1] - before[k - 1] * (x[k] - x[k - 1])
        down = y[k] - y[k - 1] - after[k] * (x[k] - x[k - 1])
        excess = up if up > least else down if down < -least else 0.0
        if excess and _stays(x, y, k, excess, before[k - 1] if excess > 0 else after[k]):
            found.append((abs(excess), k))
    return sorted(found, reverse=True)


def _stays(x: Array, y: Array, k: int, excess: float, slope: float) -> bool:
    """Whether one point further on each side says the same: a lone outlier does not."""
    sides = [(k - 1, k + 1), (k - 2, k)]
    seen = [(a, b) for a, b in sides if a >= 0 and b < len(x)]
    left = [(y[b] - y[a] - slope * (x[b] - x[a])) / excess for a, b in seen]
    return len(seen) == len(sides) and min(left) > 0.5


def _largest(sweep: Sweep) -> list[int]:
    """Of points that share an intensity the one of most bytes: small ones carry T0 and caches."""
    chosen: dict[float, int] = {}
    for i, x in enumerate(np.round(sweep.log_intensity, 6).tolist()):
        if x not in chosen or sweep.moved[i] > sweep.moved[chosen[x]]:
            chosen[x] = i
    return list(chosen.values())


def _counts_before(on: str, size: float, solution: Solution, sweep: Sweep) -> bool:
    """Whether the front of the step counts: of pi the higher side, of beta the lower, which memory alone
    explains; but never a side on which no point comes near the value."""
    front = size < 0 if on == "pi" else size > 0
    rate = sweep.log_rate if on == "pi" else sweep.log_rate - sweep.log_intensity
    value = float(solution.theta[0 if on == "pi" else 1]) + (0.0 if front else size)
    side = sweep.beyond == 0 if front else sweep.beyond == 1
    return front if float(np.max(rate[side])) > value + np.log(REACHED) else not front


def find(sweep: Sweep, norm: Solution, clocks: Array | None) -> tuple[Sweep, list[Step]]:
    """The sweep with its steps as known shifts of pi and beta, and the steps in rising intensity."""
    steps: list[Step] = []
    while len(steps) < MOST:
        found = _one(sweep, norm, clocks, {s.intensity for s in steps})
        if found is None:
            break
        sweep, step = found
        norm = best(NORM, sweep)
        steps.append(step)
    return sweep, sorted(steps, key=lambda s: s.intensity)


def _unshifted(sweep: Sweep, norm: Solution) -> Array:
    """log(rate) with the steps already found and T0 taken out, as the p-norm sees them.

    T0 makes small points slow whatever their intensity: among larger ones they look like steps.
    """
    none, free = np.zeros(len(sweep.flops)), norm.theta.copy()
    plain = replace(sweep, pi_shift=none, beta_shift=none)
    if norm.form.overhead:
        free[-1 - bool(norm.form.step)] = 0.0
    shortest = sweep.shortest
    seen = log_rates(norm.form, norm.theta, sweep, shortest) - log_rates(norm.form, free, plain, shortest)
    return np.asarray(sweep.log_rate - seen)


def _one(
    sweep: Sweep, norm: Solution, clocks: Array | None, known_at: set[float]
) -> tuple[Sweep, Step] | None:
    """The clearest step that is left, not `known_at` its intensity."""
    rows = _largest(sweep)
    if len(rows) < FEWEST:
        return None
    x = sweep.log_intensity
    places = breaks(x[rows], _unshifted(sweep, norm)[rows])
    candidates = [(excess, k) for excess, k in places if float(np.exp(x[rows[k]])) not in known_at][:3]
    if not candidates:
        return None
    smooth = min(norm.aicc, best(CAPPED, sweep, norm).aicc)
    tried = [
        (replace(sweep, beyond=(x >= x[rows[k]] - 1e-9).astype(float)), on, rows[k - 1], rows[k])
        for _, k in candidates
        for on in ("pi", "beta")
    ]
    solved = [(stepped(behind, on, norm), behind, on, last, first) for behind, on, last, first in tried]
    solution, behind, on, last, first = min(solved, key=lambda s: s[0].cost)
    size, count = float(solution.theta[-1]), len(solution.theta) + 1
    if abs(size) < LEAST or aicc(solution.cost, len(x), count) > smooth - EVIDENCE:
        return None
    known = size * (behind.beyond - (0.0 if _counts_before(on, size, solution, behind) else 1.0))
    step = _named(on, size, sweep, last, first, clocks)
    none = np.zeros(len(x))
    return (shifted(sweep, known, none) if on == "pi" else shifted(sweep, none, known)), step


def _named(on: str, size: float, sweep: Sweep, last: int, first: int, clocks: Array | None) -> Step:
    """The step between the points `last` and `first`, by the clock where that explains most of it."""
    pair = None
    if clocks is not None and on == "pi" and np.log(clocks[first] / clocks[last]) / size > SAME_CLOCK:
        pair = (float(clocks[last]), float(clocks[first]))
    value = np.exp(sweep.log_rate if on == "pi" else sweep.log_rate - sweep.log_intensity)
    return Step(on, float(np.exp(sweep.log_intensity[first])), float(value[last]), float(value[first]), pair)


def drift(sweep: Sweep, norm: Solution) -> str:
    """In words, when bytes move ever faster as intensity rises, without a step: no roof does that."""
    rows = _largest(sweep)
    if len(rows) < FEWEST:
        return ""
    rate = (_unshifted(sweep, norm) - sweep.log_intensity)[rows]
    smooth = np.median(np.stack([rate[:-2], rate[1:-1], rate[2:]]), axis=0)
    rise = float(np.max(smooth - np.minimum.accumulate(smooth)))
    if rise < np.log(DRIFT):
        return ""
    return (
        f"bytes move up to {np.exp(rise):.1f} times faster as intensity rises: a cache, or miscounted bytes"
    )


def lone(sweep: Sweep, norm: Solution) -> str:
    """In words, points that lie far from the fit while their neighbours do not: the fit hardly sees them."""
    order = np.argsort(sweep.log_intensity, kind="stable")
    off = (sweep.log_rate - log_rates(norm.form, norm.theta, sweep, sweep.shortest))[order]
    least = max(ALONE, 2 * SIGMAS * 1.4826 * float(np.median(np.abs(off))))
    far = np.pad(np.abs(off) > least, 1)
    if len(off) < FEWEST or far.sum() > MOST:
        return ""
    alone = far[1:-1] & ~far[:-2] & ~far[2:]
    said = [
        f"at {x:.3g} FLOP/byte {np.exp(abs(away)):.2f} times {'above' if away > 0 else 'below'} the others"
        for x, away in zip(np.exp(sweep.log_intensity[order][alone]), off[alone], strict=True)
    ]
    return f"a lone point hardly counts: {', '.join(said)}" if said else ""
