"""Fits the forms of the roofline to one sweep: rounds aligned, steps named, intervals from whole rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.fitting import choice, marks, steps
from bench.fitting.forms import NORM, Array, Sweep
from bench.fitting.reach import intensities, reached, rewrite
from bench.fitting.rounds import Rounds, aligned, rounds_of
from bench.fitting.solve import Solution, best
from bench.profile.records import CurvePoint, Fit

PASSES = 2
"""Times that rounds are aligned to the fit and the fit is made again."""

CLOCK_SPREAD = 0.02
"""Clocks that differ by more than this along a sweep are worth a form of their own."""


def fit_sweep(points: Sequence[CurvePoint]) -> tuple[tuple[CurvePoint, ...], tuple[Fit, ...]]:
    """The points, marked where one is launch-limited or left out, and every form fitted to them, one chosen.

    points: FLOP, byte and rate (FLOP/s) of each setting; `rates` one per round, the same rounds in every
    point that has as many as any. A hard corner, when chosen, still carries the overlap that the
    p-norm leaves possible (omega.low). pi and beta are the asymptotes of the form: where the sweep does not
    reach one, it is a bound, its interval one-sided and `limits` says so; steps of the sweep are named there
    too. A form needs two points more than parameters; with fewer there is no fit.
    """
    order = sorted(
        (i for i, p in enumerate(points) if _counts(p)), key=lambda i: points[i].flops / points[i].bytes
    )
    out = {order[i] for i in marks.resident([points[i] for i in order])}
    used = [points[i] for i in order if i not in out]
    fits = _fits(used) if intensities(used) >= choice.FEWEST else ()
    chosen = next((f for f in fits if f.chosen), None)
    return marks.marked(points, out, chosen), fits


def _counts(point: CurvePoint) -> bool:
    return point.flops > 0 and point.bytes > 0 and point.estimate.value > 0


def _fits(points: Sequence[CurvePoint]) -> tuple[Fit, ...]:
    flops, moved = np.array([p.flops for p in points]), np.array([p.bytes for p in points])
    sweep = Sweep.plain(flops, moved, np.log([p.estimate.value for p in points]))
    rounds, clocks = rounds_of(points), _clocks(points)
    sweep, norm = _on_common_ground(sweep, rounds)
    sweep, found = steps.find(sweep, norm, clocks)
    if found:
        sweep, norm = _on_common_ground(sweep, rounds)
    held = None if clocks is None else choice.Held.of(clocks, any(step.clocks for step in found))
    t0 = norm.form.split(norm.theta)[2]
    words = [*_findings(found, sweep, norm, clocks), steps.lone(sweep, norm), marks.brief(points, t0)]
    fits = [_with_limits(fit, points, found, words) for fit in choice.candidates(sweep, rounds, norm, held)]
    return choice.choose(fits)


def _findings(found: Sequence[steps.Step], sweep: Sweep, norm: Solution, clocks: Array | None) -> list[str]:
    """A bandwidth that drifts and a clock that varies, in words, where no step says so."""
    words = [] if found else [w for w in [steps.drift(sweep, norm)] if w]
    if clocks is not None and not any(step.clocks for step in found):
        ends = f"{np.min(clocks) / 1e9:.3g} and {np.max(clocks) / 1e9:.3g}"
        words.append(f"the clock varies between {ends} GHz along the sweep")
    return words


def _on_common_ground(sweep: Sweep, rounds: Rounds) -> tuple[Sweep, Solution]:
    """The sweep with its rounds aligned, and the p-norm that they are aligned to."""
    norm = best(NORM, sweep)
    for _ in range(PASSES if rounds.count else 0):
        sweep = aligned(norm, sweep, rounds)
        norm = best(NORM, sweep)
    return sweep, norm


def _with_limits(
    fit: Fit, points: Sequence[CurvePoint], found: Sequence[steps.Step], words: Sequence[str]
) -> Fit:
    """What the sweep does not reach, its steps but for a drop that is already told, other findings."""
    reach = reached(fit, points)
    fit = rewrite(fit, reach, points)
    last = np.inf if reach.drop_from is None else reach.drop_from
    told = [step.sentence for step in found if step.clocks or step.intensity <= last]
    return replace(fit, limits="; ".join([part for part in (fit.limits, *told, *words) if part]))


def _clocks(points: Sequence[CurvePoint]) -> Array | None:
    """Hz of every point where all are known and they differ."""
    known = [p.clock_hz for p in points if p.clock_hz]
    if len(known) < len(points) or max(known) < (1 + CLOCK_SPREAD) * min(known):
        return None
    return np.array(known)
