"""Rounds of one sweep: aligned to the pi and beta they share, averaged point by point, weighted by scatter.

pi and beta of whole rounds differ by more than points within a round. Averaged as they come, rounds whose
ridges differ round off the corner (Jensen: by 1.7 % at 3 % between rounds); so each round is first moved onto
the pi and beta in its middle, with the corner as the fit has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.fitting.forms import SOFT_SCALE, Array, Sweep, log_rates, slopes
from bench.fitting.solve import Solution
from bench.profile.records import CurvePoint

MODEL_ERROR = 0.01
"""No form is truer than this, so no point weighs more than its scatter and this together allow."""

SCATTER_WINDOW = 9
"""A point is weighted by the median scatter of so many points around it: scatter belongs to the resource
that binds, and a variance of five rounds that sets its own weight makes intervals too narrow (0.91 to
0.93 of them covered, against 0.945)."""

WHOLE = 0.8
"""Share of the points that must have every round, or the rounds' refits would not be fits to the curve."""

HELD = 1e-3
"""Curvature added to each move: one that no point of the sweep tells stays near 0."""

ALIGNMENTS = 4
"""Gauss-Newton steps that move a round onto the fit."""


@dataclass(frozen=True)
class Rounds:
    """log(FLOP/s) of the points `chosen` of a sweep (rows) in every round (columns); none where too few."""

    chosen: Array
    log_rate: Array

    @property
    def count(self) -> int:
        """How many rounds."""
        return int(self.log_rate.shape[1])


def rounds_of(points: Sequence[CurvePoint]) -> Rounds:
    """The points that took part in every round."""
    count = max((len(p.rates) for p in points), default=0)
    chosen = [i for i, p in enumerate(points) if len(p.rates) == count]
    if count < 2 or len(chosen) < WHOLE * len(points):
        return Rounds(np.zeros(0, dtype=int), np.zeros((0, 0)))
    return Rounds(np.array(chosen), np.log(np.array([points[i].rates for i in chosen])))


def each(rounds: Rounds, sweep: Sweep) -> list[Sweep]:
    """One sweep a round."""
    if not rounds.count:
        return []
    part = sweep.take(rounds.chosen)
    return [replace(part, log_rate=rounds.log_rate[:, r]) for r in range(rounds.count)]


def _moves(solution: Solution, sweep: Sweep, shortest: float) -> Array:
    """What a round adds to log(pi) and log(beta) of the solution, its corner held."""
    theta = solution.theta.copy()
    for _ in range(ALIGNMENTS):
        residual = sweep.log_rate - log_rates(solution.form, theta, sweep, shortest)
        trust = sweep.weight**2 / np.sqrt(1 + (residual * sweep.weight / SOFT_SCALE) ** 2)
        columns = slopes(solution.form, theta, sweep, shortest)[:, :2]
        square = columns.T @ (trust[:, None] * columns) + HELD * np.eye(2)
        theta[:2] += np.linalg.solve(square, columns.T @ (trust * residual))
    return np.asarray(theta[:2] - solution.theta[:2])


def _middle(values: Array) -> Array:
    """Hodges-Lehmann estimate along the last axis: nearly as tight as a mean, hardly moved by one outlier."""
    i, j = np.triu_indices(values.shape[-1])
    return np.asarray(np.median((values[..., i] + values[..., j]) / 2, axis=-1))


def aligned(solution: Solution, sweep: Sweep, rounds: Rounds) -> Sweep:
    """The sweep with rounds averaged on common ground, weighted by what scatter is left."""
    if not rounds.count:
        return sweep
    shortest = sweep.shortest
    parts = each(rounds, sweep)
    moves = np.array([_moves(solution, part, shortest) for part in parts])
    moved = [np.concatenate([solution.theta[:2] + move, solution.theta[2:]]) for move in moves]
    left = [
        p.log_rate - log_rates(solution.form, theta, p, shortest)
        for p, theta in zip(parts, moved, strict=True)
    ]
    scatter = np.stack(left, axis=1)
    centre = np.concatenate([solution.theta[:2] + np.median(moves, axis=0), solution.theta[2:]])
    log_rate = sweep.log_rate.copy()
    log_rate[rounds.chosen] = log_rates(solution.form, centre, parts[0], shortest) + _middle(scatter)
    return replace(
        sweep,
        log_rate=log_rate,
        weight=_weights(rounds.chosen, np.var(scatter, axis=1, ddof=1), len(log_rate)),
    )


def _weights(known: Array, variance: Array, n: int) -> Array:
    """Inverse scatter over rounds around each point, relative to the curve's."""
    nearest = [np.argsort(np.abs(known - i), kind="stable")[:SCATTER_WINDOW] for i in range(n)]
    around = np.array([np.median(variance[near]) for near in nearest]) + MODEL_ERROR**2
    return np.asarray(np.sqrt(np.median(around) / around))
