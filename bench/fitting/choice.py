"""Every form solved on one sweep and written down with intervals; the one that predicts chosen by AICc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.fitting.forms import CAPPED, CLOCKED, HARD, NORM, Array, Sweep, log_rates, shifted
from bench.fitting.intervals import bounded_interval, interval
from bench.fitting.rounds import Rounds, each
from bench.fitting.solve import Solution, best, solve
from bench.profile.records import Fit, Interval
from bench.profile.roofline import capped_overlap, overlap

PARAMETERS = {HARD: 2, NORM: 3, CAPPED: 4, CLOCKED: 3}
"""Free parameters of each form besides T0, in the order of the fits."""

FEWEST = min(PARAMETERS.values()) + 2
"""Points from which on there is a fit."""


@dataclass(frozen=True)
class Held:
    """The clocks of a sweep: Hz of the reference, and log of each point's share of it.

    stepped: a step of pi in this sweep is one of the clock, so that its shift must not count twice
    """

    reference: float
    share: Array
    stepped: bool = False

    @classmethod
    def of(cls, clocks: Array, stepped: bool = False) -> Held:
        """Refers pi to the highest clock."""
        return cls(float(np.max(clocks)), np.log(clocks / np.max(clocks)), stepped)

    def applied(self, sweep: Sweep) -> Sweep:
        """The sweep with pi in proportion to the clock."""
        none = np.zeros(len(self.share))
        return replace(sweep, pi_shift=self.share) if self.stepped else shifted(sweep, self.share, none)


def candidates(sweep: Sweep, rounds: Rounds, norm: Solution, held: Held | None) -> Iterator[Fit]:
    """Each form for which there are points enough; the clock-normalised one only where clocks vary."""
    for name, parameters in PARAMETERS.items():
        if len(sweep.flops) < parameters + 2:
            continue
        if name != CLOCKED:
            yield _fitted(norm if name == NORM else best(name, sweep, norm), sweep, rounds)
        elif held is not None:
            own = held.applied(sweep)
            yield _clocked(_fitted(best(NORM, own), own, rounds), own, held)


def _fitted(solution: Solution, sweep: Sweep, rounds: Rounds) -> Fit:
    refits = [solve(solution.form, part, [solution.theta], sweep.shortest) for part in each(rounds, sweep)]
    return describe(solution, sweep, refits)


def overlap_of(solution: Solution) -> float:
    """omega = 2 - T(ridge) / T_max of a solution."""
    _, shape, _, _ = solution.form.split(solution.theta)
    if solution.form.corner == NORM:
        return overlap(1 / float(shape[0]))
    if solution.form.corner == CAPPED:  # pi/pi_c and beta/beta_c: in units of the asymptotes
        return capped_overlap(float(shape[0]), float(shape[1]), 1.0, 1.0)
    return 1.0


def describe(solution: Solution, sweep: Sweep, refits: Sequence[Solution]) -> Fit:
    """A solution as a record: values from all rounds together, intervals from the rounds' refits."""
    form, (roofs, shape, share, _) = solution.form, solution.form.split(solution.theta)
    every = np.array([r.theta[:2] for r in refits]).reshape(-1, 2)
    residual = log_rates(form, solution.theta, sweep, sweep.shortest) - sweep.log_rate
    pi, beta = (float(v) for v in np.exp(roofs))
    capped = form.corner == CAPPED
    omega = bounded_interval([overlap_of(r) for r in refits], 0.0, 1.0, overlap_of(solution))
    return Fit(
        form=form.corner,
        pi=interval(np.exp(every[:, 0]).tolist(), pi),
        beta=interval(np.exp(every[:, 1]).tolist(), beta),
        ridge=interval(np.exp(every[:, 0] - every[:, 1]).tolist(), pi / beta),
        omega=Interval(1.0) if form.corner == HARD else omega,
        p=1 / float(shape[0]) if form.corner == NORM else None,
        t0=share * sweep.shortest,
        rms=float(np.sqrt(np.mean(residual**2))),
        aicc=solution.aicc,
        pi_c=pi / float(shape[0]) if capped else None,
        beta_c=beta / float(shape[1]) if capped else None,
    )


def _clocked(fit: Fit, sweep: Sweep, held: Held) -> Fit:
    """The p-norm on shifted clocks under its own name, with the clocks that predictions need."""
    at = np.exp(sweep.log_intensity)
    clocks = held.reference * np.exp(held.share)
    return replace(
        fit,
        form=CLOCKED,
        clock_hz=held.reference,
        held_intensity=tuple(at.tolist()),
        held_clock_hz=tuple(clocks.tolist()),
    )


def choose(fits: Sequence[Fit]) -> tuple[Fit, ...]:
    """The fits, that of lowest AICc marked; a hard corner keeps the overlap that the p-norm leaves open."""
    lowest = min((f.aicc for f in fits), default=0.0)
    chosen = next((i for i, f in enumerate(fits) if f.aicc == lowest), None)
    norm = next((f for f in fits if f.form == NORM), None)
    marked = [replace(f, chosen=i == chosen) for i, f in enumerate(fits)]
    if chosen is not None and norm and marked[chosen].form == HARD:
        marked[chosen] = replace(marked[chosen], omega=Interval(1.0, norm.omega.low, 1.0))
    return tuple(marked)
