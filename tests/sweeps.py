"""Synthetic intensity sweeps of devices whose pi, beta, p and T0 are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import interval
from bench.profile.records import CurvePoint

Array = NDArray[np.float64]
BYTES = 64e6

ROUNDS, WITHIN, BETWEEN = 5, 0.02, 0.03
"""Of the evaluation: rounds, log-normal noise of a point in a round, and of pi and beta of a whole round."""


@dataclass(frozen=True)
class Truth:
    """A device: pi FLOP/s, beta byte/s, p (inf is the sharp corner), T0 s."""

    pi: float = 1e11
    beta: float = 2e10
    p: float = float("inf")
    t0: float = 0.0

    @property
    def ridge(self) -> float:
        """FLOP/byte."""
        return self.pi / self.beta

    def seconds(self, flops: Array, moved: Array, pi: float, beta: float) -> Array:
        """The model, written once more and differently: by logaddexp on logs."""
        compute, memory = np.log(flops / pi), np.log(moved / beta)
        if np.isinf(self.p):
            return np.asarray(self.t0 + np.exp(np.maximum(compute, memory)))
        return np.asarray(self.t0 + np.exp(np.logaddexp(self.p * compute, self.p * memory) / self.p))


@dataclass(frozen=True)
class Capped(Truth):
    """A device whose power holds FLOP and byte together to F/pi_c + Q/beta_c at least."""

    pi_c: float = 1.2e11
    beta_c: float = 3e10

    def seconds(self, flops: Array, moved: Array, pi: float, beta: float) -> Array:
        """The cap moves with the round's pi and beta."""
        cap = flops / (self.pi_c * pi / self.pi) + moved / (self.beta_c * beta / self.beta)
        return np.asarray(self.t0 + np.maximum(np.maximum(flops / pi, moved / beta), cap))


def intensities(low: float, high: float, n: int = 40, ridge: float = 5.0) -> Array:
    """n intensities from `low` to `high` times the ridge, evenly in the logarithm."""
    return ridge * np.geomspace(low, high, n)


def grid(n: int = 40) -> np.ndarray:
    """n intensities (FLOP/byte) from 1/48 to 512, 60 % of them in the middle from 1/4 to 40."""
    middle = round(0.6 * n)
    low = (n - middle) // 2
    ends = (
        np.geomspace(1 / 48, 1 / 4, low, endpoint=False),
        np.geomspace(512, 40, n - middle - low, endpoint=False),
    )
    return np.concatenate([ends[0], np.geomspace(1 / 4, 40, middle), ends[1][::-1]])


def sweep(
    truth: Truth,
    x: Array,
    moved: Array | float = BYTES,
    rounds: int = 1,
    within: float = 0.0,
    between: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[CurvePoint, ...]:
    """The sweep as `derive` would make it.

    within, between: log-normal noise of every point in a round, and of pi and beta of a whole round
    """
    rng = rng or np.random.default_rng(0)
    moved = np.broadcast_to(np.asarray(moved, dtype=float), x.shape)
    flops = x * moved
    columns = []
    for _ in range(rounds):
        pi, beta = truth.pi * np.exp(rng.normal(0, between)), truth.beta * np.exp(rng.normal(0, between))
        columns.append(flops / truth.seconds(flops, moved, pi, beta) * np.exp(rng.normal(0, within, x.size)))
    rates = np.stack(columns, axis=1)
    return tuple(_point(*row) for row in zip(flops, moved, rates.tolist(), strict=True))


def _point(flops: float, moved: float, rates: Sequence[float]) -> CurvePoint:
    estimate = interval(rates)
    return CurvePoint(
        float(flops / moved),
        estimate,
        float(flops),
        float(moved),
        float(flops / estimate.value),
        tuple(rates),
    )
