"""The roof that one work stands under: its own pi, beta at its read fraction, and the form between them.

pi        the best vector ceiling of its precision (also where a library does the work, which may use the
              matrix units; of fp64 on a GPU whose matrix units were not measured, its own best if higher)
beta      at its own read fraction r, linear in r between the measured kernels nearest to it:
              r = 0  write      r = 1/2  copy, or update where the output overwrites an input
              r = 2/3  triad    r = 1  read
          each the best over kernels and kinds of store, in stream bytes; beyond the outermost
          measured r the value there
form      the chosen fit of the sweep of that precision and number of threads, with its overhead T0

attainable = min(pi, beta I), in FLOP/s; beta, in byte/s, where there is no arithmetic
least time = T0 and the chosen form between this pi and this beta; max(F/pi, Q/beta) without a fit
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.profile import roofline
from bench.profile.records import Ceiling, Curve, Fit, Interval, Precision

READ_FRACTION = {"write": 0.0, "copy": 0.5, "update": 0.5, "triad": 2 / 3, "read": 1.0}
REGIMES = ("typical", "sustained", "burst")
"""In which a roof is taken, first choice first: workloads are timed on a warm device."""


@dataclass(frozen=True)
class Roof:
    """What one work may reach: pi FLOP/s, beta byte/s (None where not measured), the form between them."""

    pi: Interval | None
    beta: Interval | None
    fit: Fit | None = None

    @property
    def t0(self) -> float:
        """Launch overhead of the fitted sweep in s, 0 without one."""
        return self.fit.t0 if self.fit else 0.0

    @property
    def ridge(self) -> Interval | None:
        """Ridge point in FLOP/byte; the widths of pi and beta add in quadrature on the log scale."""
        from bench.fitting.intervals import ratio

        return ratio(self.pi, self.beta) if self.pi and self.beta else None

    def compute(self, flops: float) -> float:
        """Seconds of the arithmetic alone, 0 without pi."""
        return flops / self.pi.value if self.pi else 0.0

    def memory(self, moved: float) -> float:
        """Seconds of the traffic (byte) alone, 0 without beta."""
        return moved / self.beta.value if self.beta else 0.0

    def seconds(self, flops: float, moved: float) -> float:
        """Time of `flops` FLOP and `moved` byte on this roof, overhead included, in s."""
        if self.fit and self.pi and self.beta and flops and moved:
            shaped = roofline.rescaled(self.fit, self.pi.value, self.beta.value)
            return roofline.fitted_seconds(flops, moved, shaped)
        return self.t0 + max(self.compute(flops), self.memory(moved))


def roof(
    precision: Precision,
    threads: int,
    level: str,
    fraction: float,
    in_place: bool,
    ceilings: Sequence[Ceiling],
    curves: Sequence[Curve],
) -> Roof:
    """The roof of work of this precision, threads, level and read fraction, by the rule above.

    Its form is that of the sweep, whose arrays lie in DRAM; of a cache's roof none was measured.
    """
    same = [c for c in ceilings if c.threads == threads]
    at_level = [c for c in same if c.quantity == "beta" and c.level == level]
    beta = beta_at(fraction, in_place, precision, at_level)
    form = fit_of(precision, threads, in_place, curves) if level == "DRAM" else None
    return Roof(pi_of(precision, same), beta, form)


def pi_of(precision: Precision, ceilings: Sequence[Ceiling]) -> Interval | None:
    """Best pi of the precision in its units (a library takes whichever do it), warm before cold."""
    units = ("vector", "matrix") if precision.unit == "library" else (precision.unit,)
    wanted = {replace(precision, unit=unit).label for unit in units}
    fits = [c for c in ceilings if c.quantity == "pi" and c.precision.label in wanted]
    matrix = any(c.precision.unit == "matrix" for c in fits)
    if precision.unit == "library" and precision.inputs == "fp64" and fits and not matrix:
        fits += [c for c in ceilings if (c.quantity, c.scope, c.precision) == ("pi", "device", precision)]
    return _best(fits)


def fit_of(precision: Precision, threads: int, in_place: bool, curves: Sequence[Curve]) -> Fit | None:
    """The chosen fit of the sweep most like the work, None without one."""
    wanted = "in-place" if in_place else "read-only"
    like = [
        c
        for c in curves
        if c.kind == "mix" and c.threads == threads and c.precision.inputs == precision.inputs
    ]
    fits = [fit for c in sorted(like, key=lambda c: c.mode != wanted) for fit in c.fits if fit.chosen]
    return fits[0] if fits else None


def _best(ceilings: Sequence[Ceiling]) -> Interval | None:
    """The highest estimate of the preferred regime that is there at all."""
    for regime in REGIMES:
        if found := [c.estimate for c in ceilings if c.regime == regime]:
            return max(found, key=lambda estimate: estimate.value)
    return None


def beta_at(
    fraction: float, in_place: bool, precision: Precision, ceilings: Sequence[Ceiling]
) -> Interval | None:
    """beta at a read fraction: linear between the nearest measured accesses, None without any.

    An access that was not measured in this precision is taken from the others: bytes are bytes.
    """
    accesses = ("write", "update" if in_place else "copy", "triad", "read")
    nodes: list[tuple[float, Interval]] = []
    for access in accesses:
        fits = [c for c in ceilings if c.access == access]
        own = [c for c in fits if c.precision.inputs == precision.inputs]
        if best := _best(own) or _best(fits):
            nodes.append((READ_FRACTION[access], best))
    if not nodes:
        return None
    left = max((n for n in nodes if n[0] <= fraction), default=nodes[0], key=lambda n: n[0])
    right = min((n for n in nodes if n[0] >= fraction), default=nodes[-1], key=lambda n: n[0])
    gap = right[0] - left[0]
    return _between(left[1], right[1], (fraction - left[0]) / gap if gap > 0 else 0.0)


def _between(a: Interval, b: Interval, share: float) -> Interval:
    """a and b mixed linearly, ends of the intervals as well."""

    def mix(x: float | None, y: float | None) -> float | None:
        return None if x is None or y is None else (1 - share) * x + share * y

    if share == 0:
        return a
    return Interval((1 - share) * a.value + share * b.value, mix(a.low, b.low), mix(a.high, b.high))


def attainable(flops: float, moved: float, roof: Roof) -> Interval:
    """min(pi, beta I) in FLOP/s, or beta in byte/s where flops is 0; ends of the interval as well."""
    if not flops:
        assert roof.beta is not None
        return roof.beta
    limits = [roof.pi] if roof.pi else []
    if roof.beta and moved:
        limits.append(scaled(roof.beta, lambda beta: beta * flops / moved))
    lows, highs = [x.low for x in limits], [x.high for x in limits]
    known_low, known_high = [x for x in lows if x is not None], [x for x in highs if x is not None]
    whole = len(known_low) == len(limits) == len(known_high)
    value = min(x.value for x in limits)
    return Interval(value, min(known_low), min(known_high)) if whole else Interval(value)


def scaled(x: Interval, by: Callable[[float], float]) -> Interval:
    """An increasing function of value, low and high."""
    return Interval(by(x.value), None if x.low is None else by(x.low), None if x.high is None else by(x.high))


def _inside(x: float, interval: Interval | None) -> bool:
    if interval is None or interval.low is None or interval.high is None:
        return False
    return interval.low <= x <= interval.high


MOSTLY = 0.5
"""Share of a measured time from which on its start is what binds."""


def started(implementation: str, threads: int, ceilings: Sequence[Ceiling]) -> Interval | None:
    """Measured T0 (s) of what runs a workload, its smallest call on so many threads; None if not measured."""
    same = (c for c in ceilings if (c.quantity, c.kernel, c.threads) == ("t0", "empty", threads))
    return next((c.estimate for c in same if c.variant == implementation), None)


def binding(
    flops: float, moved: float, roof: Roof, t0: float | None = None, seconds: float = math.inf
) -> str:
    """launch | memory | compute, or "cannot tell" where the intensity lies inside the ridge's interval.

    t0: s, of what runs the work (default: of the fitted sweep);  seconds: that it took
    """
    compute, memory = roof.compute(flops), roof.memory(moved)
    start = roof.t0 if t0 is None else t0
    if start > max(compute, memory) or start >= MOSTLY * seconds:
        return "launch"
    if _inside(flops / moved if moved else math.inf, roof.ridge):
        return "cannot tell"
    return "memory" if memory >= compute else "compute"
