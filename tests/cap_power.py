"""How often any test could tell a power cap from a p-norm at all: python -m tests.cap_power [N].

Neyman and Pearson (1933): between two devices that are known in every parameter no test that mistakes the
p-norm for the cap in 5 % of the sweeps finds the cap more often than Phi(d - 1.645), where d is the distance
of their log rates over all points and rounds in units of the noise within rounds. The p-norm here is the
nearest one, with a pi and a beta of its own in every round and one p: a fit knows less, so it finds less.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.optimize import least_squares

from tests.sweeps import BETWEEN, ROUNDS, WITHIN, Array, Capped, Truth, grid

FALSE_CHOICE = 0.05
DEPTHS = ((0.03, 0.03), (0.03, 0.06), (0.06, 0.1), (0.1, 0.2), (0.2, 0.4))
"""Shares of the sharp corner's rate that a knee costs at the ridge, 1 - 1/(a + b)."""

SHARPEST = 1e-3
"""Least 1/p: a hard corner."""


@dataclass(frozen=True)
class Nearest:
    """The p-norm nearest to a cap: its p, how far off in units of noise, the greatest share it departs by."""

    p: float
    distance: float
    departs: float

    @property
    def found(self) -> float:
        """Greatest probability with which the cap is told from it."""
        normal = NormalDist()
        return normal.cdf(self.distance - normal.inv_cdf(1 - FALSE_CHOICE))


def around(ridge: float, n: int = 40) -> Array:
    """n intensities (FLOP/byte), 60 % within a factor 1.8 of a ridge that nobody knows before."""
    ends, middle = (n - round(0.6 * n)) // 2, round(0.6 * n)
    low, high = np.geomspace(1 / 60, 1 / 1.8, ends, endpoint=False), np.geomspace(60, 1.8, ends, False)
    return ridge * np.concatenate([low, np.geomspace(1 / 1.8, 1.8, middle), high[::-1]])


def capped_at(plain: Truth, total: float, on_compute: float) -> Capped:
    """The device with a cap: `total` times the longer time at the ridge, `on_compute` of it for FLOP."""
    pi_c, beta_c = plain.pi / on_compute, plain.beta / (total - on_compute)
    return Capped(plain.pi, plain.beta, pi_c=pi_c, beta_c=beta_c)


def capped(rng: np.random.Generator, depth: tuple[float, float]) -> Capped:
    """A random device whose cap takes a share of the sharp corner's rate at its ridge, 1 - 1/(a + b)."""
    pi, ridge = 10 ** rng.uniform(10, 14), 10 ** rng.uniform(-0.3, 1.3)
    total = 1 / (1 - rng.uniform(*depth))
    a = rng.uniform(max(0.1, total - 1), min(1.0, total - 0.1))
    return capped_at(Truth(pi, pi / ridge), total, a)


def nearest(truth: Truth, x: Array, noise: float, factors: Array) -> Nearest:
    """The nearest p-norm to a cap on a sweep over intensities `x` in rounds of these pi and beta.

    noise: log-normal, of a point within a round;  factors: of pi and beta in each round, rounds x 2
    """
    one = np.ones_like(x)
    rounds = [truth.seconds(x, one, truth.pi * up, truth.beta * along) for up, along in factors]
    seen, at, count = np.log(np.array(rounds)), np.log(x), len(factors)
    start = np.concatenate([np.log(truth.pi * factors[:, 0]), np.log(truth.beta * factors[:, 1])])
    depth = np.log2(np.max(seen - np.maximum(at - start[:count, None], -start[count:, None]), initial=0) + 1)

    def off(theta: Array) -> Array:
        compute, memory = at - theta[:count, None], -theta[count:-1, None]
        longest, apart = np.maximum(compute, memory), np.abs(compute - memory)
        return np.asarray(longest + theta[-1] * np.log1p(np.exp(-apart / theta[-1])) - seen)

    low = np.append(start - 1, SHARPEST)
    fits = [
        least_squares(lambda t: off(t).ravel(), np.append(start, u), bounds=(low, np.append(start + 1, 1.0)))
        for u in (2 * SHARPEST, float(np.clip(depth, 2 * SHARPEST, 0.99)))
    ]
    best = min(fits, key=lambda f: float(f.cost))
    departs = float(np.expm1(np.max(np.abs(off(best.x)))))
    return Nearest(1 / float(best.x[-1]), float(np.sqrt(2 * best.cost)) / noise, departs)


def bounds(truths: Sequence[Truth], seed: int, dense: bool = False) -> list[Nearest]:
    """The nearest p-norms to devices on the sweep of the evaluation, or on a dense one around each ridge."""
    rng = np.random.default_rng(seed)
    return [
        nearest(
            truth,
            around(truth.ridge) if dense else grid(),
            WITHIN,
            np.exp(rng.normal(0, BETWEEN, (ROUNDS, 2))),
        )
        for truth in truths
    ]


def main(n: int = 100) -> None:
    """Prints the table of docs/fitting.md."""
    print("knee, greatest share found: sweep | dense | dense, 0.5 % noise | nearest p, departs by (medians)")
    for depth in DEPTHS:
        rng = np.random.default_rng(2)
        truths = [capped(rng, depth) for _ in range(n)]
        plain, dense = bounds(truths, 3), bounds(truths, 3, dense=True)
        quiet = [Nearest(one.p, 4 * one.distance, one.departs) for one in dense]
        shares = " | ".join(f"{np.mean([one.found for one in kind]):.3f}" for kind in (plain, dense, quiet))
        p, departs = np.median([one.p for one in plain]), np.median([one.departs for one in plain])
        print(f"{depth}: {shares} | {p:.1f}, {departs:.2%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
