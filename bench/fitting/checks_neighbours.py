"""The neighbours check: nothing jumps beside a ceiling on the sweep that leads to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bench.fitting import steps
from bench.fitting.evidence import ACCESS_OF, FAR, SWEEP_OF, Evidence, Setting, ratio
from bench.fitting.intervals import MEDIAN, P75, student
from bench.fitting.pooled import Pooled
from bench.fitting.working_sets import settings
from bench.profile.records import Ceiling, Interval
from bench.profile.verdict import fails, ok, untested
from bench.report.units import capacity, number, percent

JUMP = 0.10
"""Change between two neighbours on a plateau that is a jump, beyond that of a form that does not overlap."""

CERTAIN = 0.999
"""Confidence of the interval of the change that must exclude no change as well: a sweep has a dozen pairs,
and five rounds on a shared machine scatter by 10 %."""

ABOVE, BELOW = 0.05, 0.30
"""Share by which a sweep may lie above the ceiling, which would then be none, and below it: a loop that also
moves bytes keeps fewer accumulators in flight, and comes within 15 % where we have looked."""

ABOVE_MEMORY = 0.10
"""The same above a beta: streams and sweeps take turns on a machine whose memory others use as well."""

OF_SETS = 0.25
"""Change from one working set to the next inside a level that is a jump: replacement, associativity and the
overhead of short passes make plateaus that are not quite flat."""

FEWEST = 3
"""Settings on a plateau from which there is something beside the ceiling."""

GROWING = 0.25
"""Gain from the second largest product to the largest from which the library may not be at its best yet,
and loss from the best to the next larger one that is a jump."""


def neighbours(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether the settings beside a ceiling lead to it without a jump."""
    if ceiling.regime != "typical" or ceiling.operands != "random":
        return untested("sweeps are measured in the typical regime with random operands")
    if best.point.family == "gemm":
        return _products(ceiling, evidence)
    if best.point.family == "cache":
        return _sets(ceiling, best, evidence)
    if ceiling.quantity == "pi":
        return _plateau_of_pi(ceiling, evidence)
    return _plateau_of_beta(ceiling, evidence)


def _plateau_of_pi(ceiling: Ceiling, evidence: Evidence) -> str:
    for kernel, access in ACCESS_OF.items():
        beta = evidence.memory(ceiling, access)
        swept = evidence.sweep(ceiling, kernel, P75)
        if not swept or beta is None:
            continue
        ridge = ceiling.estimate.value / beta.estimate.value
        return _plateau(ceiling, swept, ridge, kernel, False)
    return untested(f"no intensity sweep in {ceiling.precision.label} on as many threads leads to it")


def _plateau_of_beta(ceiling: Ceiling, evidence: Evidence) -> str:
    kernel, pi = SWEEP_OF.get(ceiling.access), evidence.arithmetic(ceiling)
    if kernel is None:
        return untested(f"no sweep has the traffic of {ceiling.access}")
    swept = evidence.sweep(ceiling, kernel, MEDIAN)
    if not swept or pi is None:
        return untested("no intensity sweep of this traffic on as many threads leads to it")
    ridge = pi.estimate.value / ceiling.estimate.value
    return _plateau(ceiling, swept, ridge, kernel, True)


def _plateau(ceiling: Ceiling, swept: Sequence[Setting], ridge: float, kernel: str, moved: bool) -> str:
    """Verdict on the settings of a sweep that should show the ceiling: level, and without a jump.

    ridge: FLOP/byte, far from which they lie;  moved: rates are divided by intensity, to byte/s
    """
    flat = [s.x <= ridge / FAR if moved else s.x >= FAR * ridge for s in swept]
    beside = [s for s, inside in zip(swept, flat, strict=True) if inside]
    if len(beside) < FEWEST:
        return untested(f"{len(beside)} settings of {kernel} lie far enough from the ridge, {FEWEST} needed")
    if jump := _jump(swept, flat, ridge, moved):
        return fails(f"{jump} in {kernel}, beside the ceiling")
    value, unsure = _level(beside, moved)
    share = value / ceiling.estimate.value
    slack = math.hypot(unsure, ceiling.estimate.half_width or 0.0)
    said = f"{len(beside)} settings of {kernel} reach {number(share)} of it"
    if share > 1 + (ABOVE_MEMORY if moved else ABOVE) + slack:
        return fails(f"{said}: it is no ceiling")
    if share < (1 - BELOW) / (1 + slack):
        return fails(f"{said}: something else made it higher")
    return ok(f"{said}, without a jump")


def _level(beside: Sequence[Setting], moved: bool) -> tuple[float, float]:
    """The median over settings (FLOP/s, or byte/s), and the half-width of a typical one."""
    values = sorted(s.rate.value / (s.x if moved else 1.0) for s in beside)
    widths = sorted(s.rate.half_width or 0.0 for s in beside)
    return values[len(values) // 2], widths[len(widths) // 2]


def _jump(swept: Sequence[Setting], flat: Sequence[bool], ridge: float, moved: bool) -> str:
    """The largest jump on the plateau in words, "" where there is none."""
    found = [(size, k) for size, k in _candidates(swept, ridge, moved) if flat[k - 1] and flat[k]]
    clear = [(size, k) for size, k in found if size > _reach(swept[k - 1], swept[k])]
    if not clear:
        return ""
    size, k = max(clear)
    return f"a jump of {percent(math.expm1(size))} at {number(swept[k].x)} FLOP/byte"


def _candidates(swept: Sequence[Setting], ridge: float, moved: bool) -> list[tuple[float, int]]:
    """(size on the log scale, k) of what breaks the shape of a roof in front of setting k.

    A change as large as that of serial execution (p = 1) between the two is part of that shape.
    """
    x = np.log([s.x for s in swept])
    y = np.log([s.rate.value for s in swept])
    level = y - x if moved else y
    beyond = x - np.log(ridge)
    serial = -np.log1p(np.exp(beyond if moved else -beyond))
    plain = [(_beyond(level[k] - level[k - 1], serial[k] - serial[k - 1]), k) for k in range(1, len(swept))]
    jumps = [(size, k) for size, k in plain if size > JUMP]
    return jumps + (steps.breaks(x, y) if len(swept) >= steps.FEWEST else [])


def _beyond(change: float, shape: float) -> float:
    """How far a change lies outside 0 to what the shape of the roof explains."""
    low, high = min(0.0, shape), max(0.0, shape)
    return float(max(low - change, change - high, 0.0))


def _reach(a: Setting, b: Setting) -> float:
    """How far log(b / a) may lie from its true value; infinite where they share too few rounds."""
    common = [n for n in a.by_round if n in b.by_round]
    if len(common) < 2:
        return math.inf
    off = [math.log(b.by_round[n] / a.by_round[n]) for n in common]
    return student(len(off) - 1, CERTAIN) * float(np.std(off, ddof=1)) / math.sqrt(len(off))


def _sets(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    own = best.point.sizes["bytes"]
    sets = settings(ceiling, best, evidence)
    mine = next((s for s in sets if s.x == own), None)
    near = [max((s for s in sets if s.x < own), key=lambda s: s.x, default=None)]
    near += [min((s for s in sets if s.x > own), key=lambda s: s.x, default=None)]
    beside = [s for s in near if s is not None]
    if mine is None or not beside:
        return untested(f"no other working set inside {ceiling.level} was measured with this kernel")
    told = []
    for s in beside:
        change = ratio(s.by_round, mine.by_round, lambda r: r)
        if change is not None:
            if _outside(change, OF_SETS):
                word = f"{capacity(s.x)} reach {number(change.value)} of what {capacity(own)} do"
                return fails(f"{word}, both inside {ceiling.level}")
            told.append(f"{capacity(s.x)} {number(change.value)}")
    if not told:
        return untested("its neighbours were not timed in the same rounds")
    return ok(f"beside {capacity(own)}: {', '.join(told)} of it")


def _outside(change: Interval, share: float) -> bool:
    """Whether the whole interval of a ratio lies further from 1 than allowed."""
    if change.low is None or change.high is None:
        return False
    return change.low > 1 + share or change.high < 1 / (1 + share)


def _products(ceiling: Ceiling, evidence: Evidence) -> str:
    """Whether the library gets faster with size and stays so."""
    sized: dict[int, Pooled] = {}
    for p in evidence.alike(ceiling, ceiling.kernel):
        m, n, k = (p.point.sizes.get(name, 0) for name in "mnk")
        if m == n == k:
            sized[n] = p
    if len(sized) < 2:
        return untested("one size of this product was measured")
    order = sorted(sized)
    top = max(order, key=lambda n: sized[n].estimate(P75).value)
    later = [n for n in order if n > top]
    if later:
        fall = ratio(sized[later[0]].rounds(P75), sized[top].rounds(P75), lambda r: r)
        if fall is not None and _outside(fall, GROWING):
            return fails(f"n = {later[0]} reaches only {number(fall.value)} of n = {top}")
        return ok(f"larger products reach {_shares(sized, later, top)} of n = {top}")
    second = order[-2]
    gain = sized[top].estimate(P75).value / sized[second].estimate(P75).value
    if gain > 1 + GROWING:
        return untested(f"the largest, n = {top}, is still {percent(gain - 1)} faster than n = {second}")
    return ok(f"n = {second} reaches {number(1 / gain)} of n = {top}, the largest")


def _shares(sized: dict[int, Pooled], sizes: Sequence[int], top: int) -> str:
    best = sized[top].estimate(P75).value
    return ", ".join(number(sized[n].estimate(P75).value / best) for n in sizes)
