"""The doubling checks: what twice the flops or twice the bytes do to the time says which of them binds.

Of a pi, twice the flops take twice as long and twice the bytes nothing; of a beta it is the other way round.
Pairs come from points of a run that do the same in a longer repetition (bench/planning/doublings.py), from
neighbours in the intensity sweep far from the ridge, and from working sets inside one cache level. The work
of the two repetitions need not be equal: times are taken per byte where the check says equal bytes, per
FLOP where it says equal flops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.fitting.evidence import ACCESS_OF, FAR, SWEEP_OF, Evidence, Setting, judged, quantile_of, ratio
from bench.fitting.intervals import MEDIAN, P75
from bench.fitting.pooled import Pooled, work
from bench.fitting.working_sets import settings
from bench.profile.records import Ceiling
from bench.profile.verdict import untested
from bench.report.units import capacity, number

TOLERANCE = 0.12
"""Share by which a time may miss 1 or 2: what a form that does not overlap at all (p = 1) loses FAR from the
ridge, a ninth, and more than two repetitions of one kernel differ by."""

OF_SIZES = 0.25
"""The same where two working sets or two matrix sizes are compared, whose rates differ by themselves."""

DOUBLE, NEARLY = 2.0, 0.02
"""The factor, and the share by which the work of a pair may miss it."""

Pair = tuple[Setting, Setting, str]
"""Two settings of a sweep, the second of twice the intensity, and the kernel."""

LEAST_FACTOR = 1.5
"""Of the work of two repetitions, below which they are no pair: each is calibrated by itself."""

WITH_MORE_FLOPS = {"copy": ("copy", "scale"), "triad": ("add", "triad")}
"""Streams of the same bytes that differ by one FLOP an item: the plainer one, the other."""


def flops(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """What twice the flops do to the time."""
    if ceiling.quantity == "pi":
        return _flops_of_pi(ceiling, best, evidence)
    if ceiling.level != "DRAM":
        return untested(f"the arithmetic is not varied inside {ceiling.level}")
    if why := _unusual(ceiling):
        return untested(why)
    if ceiling.access in SWEEP_OF:
        return _flops_of_beta(ceiling, evidence)
    return _flops_of_streams(ceiling, evidence)


def bytes(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """What twice the bytes do to the time."""
    if ceiling.quantity == "pi":
        return _bytes_of_pi(ceiling, evidence)
    if best.point.family == "cache":
        return _bytes_of_cache(ceiling, best, evidence)
    return _longer(ceiling, best, evidence, "bytes") or untested(
        "no repetition of twice the bytes was timed in this run"
    )


def _unusual(ceiling: Ceiling) -> str:
    """Why no pair is measured for this ceiling, "" if it may be."""
    if ceiling.regime != "typical":
        return "doubled in the typical regime only"
    return "" if ceiling.operands == "random" else "doubled with random operands only"


def _flops_of_pi(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    if why := _unusual(ceiling):
        return untested(why)
    if best.point.family == "gemm":
        return _products(ceiling, best, evidence)
    said = _longer(ceiling, best, evidence, "flops")
    if said:
        return said
    pairs = _pairs(ceiling, evidence, compute=True)
    if not pairs:
        return untested(f"no repetition of twice the flops was timed, and {_no_sweep(ceiling)}")
    low, high, kernel = _clearest(pairs)
    taken = ratio(low.by_round, high.by_round, lambda r: DOUBLE * r)
    what = f"twice the flops at equal bytes ({_from_to(low, high)} in {kernel})"
    return judged(taken, DOUBLE, TOLERANCE, what)


def _bytes_of_pi(ceiling: Ceiling, evidence: Evidence) -> str:
    if ceiling.precision.unit == "library":
        return untested("the bytes of a library product follow from its size: they cannot be doubled alone")
    if why := _unusual(ceiling):
        return untested(why)
    pairs = _pairs(ceiling, evidence, compute=True)
    if not pairs:
        return untested(_no_sweep(ceiling))
    low, high, kernel = _clearest(pairs)
    taken = ratio(high.by_round, low.by_round, lambda r: r)
    what = f"twice the bytes at equal flops ({_from_to(high, low)} in {kernel})"
    return judged(taken, 1.0, TOLERANCE, what)


def _flops_of_beta(ceiling: Ceiling, evidence: Evidence) -> str:
    pairs = _pairs(ceiling, evidence, compute=False)
    if not pairs:
        return untested(_no_sweep(ceiling))
    low, high, kernel = _clearest(pairs)
    # Per byte: (2 I / rate at 2 I) over (I / rate at I).
    taken = ratio(low.by_round, high.by_round, lambda r: DOUBLE * r)
    what = f"twice the flops at equal bytes ({_from_to(low, high)} in {kernel})"
    return judged(taken, 1.0, TOLERANCE, what)


def _flops_of_streams(ceiling: Ceiling, evidence: Evidence) -> str:
    names = WITH_MORE_FLOPS.get(ceiling.access)
    if names is None:
        return untested(f"a {ceiling.access} with more arithmetic is not measured")
    found = [max(evidence.alike(ceiling, n), key=_median_rate, default=None) for n in names]
    plain, more = found
    if plain is None or more is None:
        return untested(
            f"{names[0]} and {names[1]}, which differ by one FLOP an item, were not both measured"
        )
    taken = ratio(plain.rounds(MEDIAN), more.rounds(MEDIAN), lambda r: r)
    return judged(taken, 1.0, TOLERANCE, f"one FLOP an item more at equal bytes ({names[1]} for {names[0]})")


def _median_rate(p: Pooled) -> tuple[bool, float]:
    return "window" not in p.point.sizes, p.estimate(MEDIAN).value


def _longer(ceiling: Ceiling, best: Pooled, evidence: Evidence, what: str) -> str:
    """The same kernel in repetitions of twice the work; "" where none was timed."""
    longer = [
        p
        for p in evidence.alike(ceiling, ceiling.kernel, ceiling.regime)
        if "window" in p.point.sizes and p.point.variant == best.point.variant
    ]
    if not longer:
        return ""
    other, share = longer[0], quantile_of(ceiling)
    factor = _typical_work(other) / _typical_work(best)
    if factor < LEAST_FACTOR:
        return untested(f"the longer repetition did only {number(factor)} times the work")
    taken = ratio(best.rounds(share), other.rounds(share), lambda r: factor * r)
    return judged(taken, factor, TOLERANCE, f"{number(factor)} times the {what} in one repetition")


def _typical_work(p: Pooled) -> float:
    amounts = sorted(work(s) for s in p.samples)
    return amounts[len(amounts) // 2]


def _products(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Two products of which one does twice the flops."""
    for other in evidence.alike(ceiling, ceiling.kernel):
        small, large = sorted((best, other), key=_flops_of_one)
        if abs(_flops_of_one(large) / (DOUBLE * _flops_of_one(small)) - 1) < NEARLY:
            taken = ratio(small.rounds(P75), large.rounds(P75), lambda r: DOUBLE * r)
            return judged(taken, DOUBLE, OF_SIZES, f"twice the flops of one product ({_shape(large)})")
    return untested("no two products of this run differ by a factor of two in their flops")


def _flops_of_one(p: Pooled) -> float:
    return 2.0 * math.prod(p.point.sizes.get(name, 1) for name in "mnk")


def _shape(p: Pooled) -> str:
    return "x".join(str(p.point.sizes[name]) for name in "mnk")


def _bytes_of_cache(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Two working sets inside the level of which one is twice the other, the nearest to the ceiling's own."""
    sets = settings(ceiling, best, evidence)
    pairs = [(a, b) for a in sets for b in sets if abs(b.x / a.x / DOUBLE - 1) < 5 * NEARLY]
    if not pairs:
        return untested(f"no two working sets of a factor of two lie inside {ceiling.level} in this run")
    own = best.point.sizes["bytes"]
    small, large = min(pairs, key=lambda p: abs(p[0].x * p[1].x / own**2 - 1))
    factor = large.x / small.x
    taken = ratio(small.by_round, large.by_round, lambda r: factor * r)
    what = f"passes over {number(factor)} times the bytes ({capacity(small.x)} to {capacity(large.x)})"
    return judged(taken, factor, OF_SIZES, what)


def _pairs(ceiling: Ceiling, evidence: Evidence, compute: bool) -> list[Pair]:
    """Settings of twice the intensity on the ceiling's own side, FAR from the ridge, by rising intensity."""
    kernels = ACCESS_OF if compute else [SWEEP_OF[ceiling.access]]
    for kernel in kernels:
        access = ACCESS_OF[kernel]
        other = evidence.memory(ceiling, access) if compute else evidence.arithmetic(ceiling)
        if other is None:
            continue
        pi, beta = (ceiling, other) if compute else (other, ceiling)
        ridge = pi.estimate.value / beta.estimate.value
        swept = evidence.sweep(ceiling, kernel, P75 if compute else MEDIAN)
        found = [
            (a, b, kernel)
            for a in swept
            for b in swept
            if abs(b.x / a.x / DOUBLE - 1) < NEARLY
            and (a.x >= FAR * ridge if compute else b.x <= ridge / FAR)
        ]
        if found:
            return found
    return []


def _clearest(pairs: Sequence[Pair]) -> Pair:
    """The pair whose times compare best: the one of the narrowest interval."""

    def width(pair: Pair) -> float:
        taken = ratio(pair[0].by_round, pair[1].by_round, lambda r: r)
        return math.inf if taken is None or taken.half_width is None else taken.half_width

    return min(pairs, key=width)


def _no_sweep(ceiling: Ceiling) -> str:
    what = ceiling.precision.label if ceiling.quantity == "pi" else ceiling.access
    where = f"beyond {FAR:g} times the ridge" if ceiling.quantity == "pi" else f"below 1/{FAR:g} of the ridge"
    return f"no sweep of {what} on as many threads has two intensities of a factor of two {where}"


def _from_to(low: Setting, high: Setting) -> str:
    return f"{number(low.x)} to {number(high.x)} FLOP/byte"
