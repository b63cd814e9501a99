"""Steps inside an intensity sweep: by the words of its fit, and by the rule that no roofline breaks.

At one size of the data every roofline is concave on logarithmic axes: with more work for each byte bytes
never come faster and the rate never falls. Where points break that, something else than intensity changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bench.profile.records import Curve, CurvePoint
from bench.report.units import number as figure
from bench.report.units import si
from bench.triage.finding import Finding, found

NAMED = re.compile(
    r"step at ([0-9.e+-]+) FLOP/byte: (?:the )?(\w+) goes from ([0-9.e+-]+) to ([0-9.e+-]+) (\S+)"
)
"""How a fit names a step in its limits."""

FEWEST = 8
"""Intensities below which a step cannot be told from the knee."""

LEAST, SIGMAS = 0.06, 4.0
"""Share by which concavity must be broken, and times the scatter of the sweep's own points: neighbouring ones
of a quiet run agree within 3 %."""

BEHIND = 3
"""Points behind a fall of the rate that must all stay below for one sweep to show it alone."""

FAST, FASTEST = 1.12, 10.0
"""Rate at which sweeps end over the dedicated π of their precision from which on a step up lies in the knee:
measured ones end at 0.84 to 1.00 of it; and that from which on it is the dedicated loop that is wrong, as may
be where sweeps end far below it."""

END, ALIKE = 3, 0.06
"""Last points of a sweep that are its rate without memory, and how near those of all modes must be."""

BY_CLOCK = 0.5
"""Share of a change that the clocks held at both points may explain before it is the clock's, not a step."""


@dataclass(frozen=True)
class Step:
    """From `intensity` FLOP/byte on `of` (bandwidth or rate, in `unit`) is another than before."""

    intensity: float
    of: str
    before: float
    behind: float
    unit: str

    @property
    def factor(self) -> float:
        """Behind over before."""
        return self.behind / self.before


def by_curve(curves: Sequence[Curve], pi: Mapping[str, float]) -> tuple[tuple[Curve, tuple[Step, ...]], ...]:
    """The steps of each intensity sweep in rising intensity, () for one without.

    Those that its fit names, else those that its points show alone, or at one place with another sweep of the
    device, else one hidden in the knee.  pi: dedicated vector rate (FLOP/s) by precision label
    """
    alone = [_alone(c) for c in curves]
    loose = [_loose(c) for c in curves]
    shared = [
        tuple(s for s in own if any(_same(s, o) for other in loose if other is not own for o in other))
        for own in loose
    ]
    seen = [a or s for a, s in zip(alone, shared, strict=True)]
    if not any(seen):
        seen = _hidden(curves, pi)
    return tuple(zip(curves, seen, strict=True))


def _alone(curve: Curve) -> tuple[Step, ...]:
    """By the words of the fit, or by points on both sides of a gap, or by all behind it."""
    limits = next((f.limits for f in curve.fits if f.chosen), "")
    named = [Step(float(at), of, float(a), float(b), unit) for at, of, a, b, unit in NAMED.findall(limits)]
    return tuple(named) or _seen(largest(curve.points), curve.unit) or _fallen(curve)


def _fallen(curve: Curve) -> tuple[Step, ...]:
    """The first fall of the rate after which it never comes back."""
    points = largest(curve.points)
    for step in _loose(curve):
        k = next(i for i, p in enumerate(points) if p.x >= step.intensity)
        behind, limit = points[k:], (1 - LEAST) * points[k - 1].estimate.value
        if step.of == "rate" and len(behind) >= BEHIND and all(p.estimate.value < limit for p in behind):
            return (step,)
    return ()


def _loose(curve: Curve) -> tuple[Step, ...]:
    """Gaps at which bytes come faster or the rate falls by more than the scatter; one point may do that."""
    points = largest(curve.points)
    if len(points) < FEWEST:
        return ()
    least = max(LEAST, SIGMAS * _scatter(points))
    told = []
    for last, first in pairwise(points):
        rate = math.log(first.estimate.value / last.estimate.value)
        bytes_ = rate - math.log(first.x / last.x)
        if (rate < -least or bytes_ > least) and not _by_clock(last, first):
            told.append(_step(last, first, curve.unit))
    return tuple(told)


def _scatter(points: Sequence[CurvePoint]) -> float:
    """Scatter of a point about the line through its neighbours on logarithmic axes, by the median."""
    off = []
    for a, b, c in zip(points, points[1:], points[2:], strict=False):
        share = math.log(b.x / a.x) / math.log(c.x / a.x)
        line = (1 - share) * math.log(a.estimate.value) + share * math.log(c.estimate.value)
        off.append(abs(math.log(b.estimate.value) - line))
    return 1.4826 * median(off) / math.sqrt(1.5)


def _same(a: Step, b: Step) -> bool:
    """Whether two sweeps break the rule in one way at one place, as near as their points lie."""
    return a.of == b.of and 0.5 <= a.intensity / b.intensity <= 2 and (a.factor > 1) == (b.factor > 1)


def _hidden(curves: Sequence[Curve], pi: Mapping[str, float]) -> list[tuple[Step, ...]]:
    """A step within the knee shows by where sweeps end alone: all modes of a precision at one wrong rate."""
    ends = [_end(c, pi.get(c.precision.label)) for c in curves]
    told: list[tuple[Step, ...]] = []
    for curve, end in zip(curves, ends, strict=True):
        same = [e for c, e in zip(curves, ends, strict=True) if e and c.precision == curve.precision]
        shares = [e.factor for e in same]
        alike = len(shares) >= 2 and max(shares) <= min(shares) * (1 + ALIKE)
        told.append((end,) if end and alike and FAST < min(shares) < FASTEST else ())
    return told


def _end(curve: Curve, pi: float | None) -> Step | None:
    """The end of a sweep beside the dedicated pi, as a step in its knee."""
    points = largest(curve.points)
    if pi is None or len(points) < FEWEST:
        return None
    rate = median(p.estimate.value for p in points[-END:])
    knee = next((p.x for p in points if p.estimate.value >= 0.9 * rate), points[-1].x)
    return Step(knee, "rate", pi, rate, curve.unit)


def largest(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Of points of one intensity that of most bytes, in rising intensity: small ones carry overheads."""
    chosen: dict[str, CurvePoint] = {}
    for p in sorted((p for p in points if p.flops and p.bytes), key=lambda p: p.x):
        other = chosen.setdefault(f"{p.x:.5g}", p)
        if p.bytes > other.bytes:
            chosen[f"{p.x:.5g}"] = p
    return list(chosen.values())


def _seen(points: Sequence[CurvePoint], unit: str) -> tuple[Step, ...]:
    """Gaps at which the points break concavity, as far as the clock does not explain them."""
    if len(points) < FEWEST:
        return ()
    import numpy as np

    from bench.fitting.steps import breaks

    x = np.log([p.x for p in points])
    y = np.log([p.estimate.value for p in points])
    gaps = sorted(k for excess, k in breaks(x, y) if excess > LEAST)
    return tuple(
        _step(points[k - 1], points[k], unit) for k in gaps if not _by_clock(points[k - 1], points[k])
    )


def _step(last: CurvePoint, first: CurvePoint, unit: str) -> Step:
    """As a bandwidth where that rose, else as a rate where that fell."""
    bytes_before, bytes_behind = (p.estimate.value / p.x for p in (last, first))
    if bytes_behind > bytes_before or first.estimate.value > last.estimate.value:
        return Step(first.x, "bandwidth", bytes_before, bytes_behind, "byte/s")
    return Step(first.x, "rate", last.estimate.value, first.estimate.value, unit)


def _by_clock(last: CurvePoint, first: CurvePoint) -> bool:
    if not (last.clock_hz and first.clock_hz):
        return False
    clock = math.log(first.clock_hz / last.clock_hz)
    rate = math.log(first.estimate.value / last.estimate.value)
    return clock * rate > 0 and abs(clock) > BY_CLOCK * abs(rate)


def findings(swept: Iterable[tuple[Curve, tuple[Step, ...]]]) -> list[Finding]:
    """One finding for every sweep with steps, as `by_curve` gives them, with both sides of the first."""
    return [_told(curve, steps) for curve, steps in swept if steps]


def _told(curve: Curve, steps: Sequence[Step]) -> Finding:
    first, subject = steps[0], f"{curve.precision.label} {curve.mode} sweep"
    others = ", ".join(f"{figure(s.intensity)}" for s in steps[1:])
    more = f" (others at {others} FLOP/byte)" if others else ""
    sentence = (
        f"the {subject} has a step at {figure(first.intensity)} FLOP/byte{more}: the {first.of} goes from "
        f"{si(first.before, first.unit)} to {si(first.behind, first.unit)}, {first.factor:.2f} times; from "
        "there on part of the data lies elsewhere, the clock is another, or the compiler made another loop"
    )
    evidence = {"intensity": first.intensity, "before": first.before, "behind": first.behind}
    return found("sweep-step", subject, sentence, **evidence, of=first.of)
