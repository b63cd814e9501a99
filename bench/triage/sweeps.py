"""Steps inside an intensity sweep: by the words of its fit, and by the rule that no roofline breaks.

At one size of the data every roofline is concave on logarithmic axes: with more work for each byte bytes never
come faster and the rate never falls. Where neighbouring points break that on both sides of a gap, something
else than intensity changed there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.profile.records import Curve, CurvePoint
from bench.report.units import number as figure
from bench.report.units import si
from bench.triage.finding import Finding, found

if TYPE_CHECKING:
    from bench.triage.case import Case

NAMED = re.compile(
    r"step at ([0-9.e+-]+) FLOP/byte: (?:the )?(\w+) goes from ([0-9.e+-]+) to ([0-9.e+-]+) (\S+)"
)
"""How a fit names a step in its limits."""

FEWEST = 8
"""Intensities below which a step cannot be told from the knee."""

LEAST = 0.06
"""Share by which concavity must be broken: neighbouring points of a quiet run agree within 3 %."""

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


def steps(curve: Curve) -> tuple[Step, ...]:
    """The steps of an intensity sweep in rising intensity: those its fit names, else those that it shows."""
    limits = next((f.limits for f in curve.fits if f.chosen), "")
    named = [Step(float(at), of, float(a), float(b), unit) for at, of, a, b, unit in NAMED.findall(limits)]
    return tuple(named) or _seen(largest(curve.points), curve.unit)


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


def findings(case: Case) -> list[Finding]:
    """One finding for every sweep of the device with steps, with both sides of the first."""
    return [_told(curve, steps) for curve, steps in case.sweeps if steps]


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
