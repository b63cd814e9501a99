"""Fits random devices whose truth is known, says how often it was right: python -m tests.fit_evaluation [N].

A device: pi 10^10 to 10^14 FLOP/s, ridge 0.5 to 20 FLOP/byte, p log-uniform from 1.1 to 20 (one in eight a
sharp corner), every other one with T0. A sweep: 40 points from 1/48 to 512 FLOP/byte, dense where ridges lie,
5 rounds, 2 % noise within and 3 % between rounds in pi and in beta; six of the points are short where there
is T0, as the suite measures it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.fitting.fit import fit_sweep
from bench.fitting.forms import CAPPED, NORM
from bench.profile.records import CurvePoint, Fit, Interval
from bench.profile.roofline import INFINITY, capped_overlap, overlap
from tests.cap_power import DEPTHS, bounds, capped
from tests.sweeps import BETWEEN, ROUNDS, WITHIN, Truth, grid, sweep

LONG_SECONDS = 4e-3
SHORT_SECONDS = (2e-5, 5e-5, 2e-4)
SHORT_AT = (0.1, 10.0)


@dataclass(frozen=True)
class Case:
    """A device, what was measured of it, and the fit that was chosen."""

    truth: Truth
    omega: float
    points: tuple[CurvePoint, ...]
    fits: tuple[Fit, ...]

    @property
    def fit(self) -> Fit:
        """The fit that predicts."""
        return next(f for f in self.fits if f.chosen)


def measured(truth: Truth, rng: np.random.Generator, noise: float = 1.0) -> tuple[CurvePoint, ...]:
    """Forty points of the device; where it has T0 six of them short.  noise: share of the usual one"""
    x = grid(34 if truth.t0 else 40)
    long = np.full(len(x), LONG_SECONDS)
    if truth.t0:
        x = np.concatenate([x, np.repeat(SHORT_AT, len(SHORT_SECONDS))])
        long = np.concatenate([long, np.tile(SHORT_SECONDS, len(SHORT_AT))])
    return sweep(
        truth,
        x,
        long / np.maximum(x / truth.pi, 1 / truth.beta),
        ROUNDS,
        noise * WITHIN,
        noise * BETWEEN,
        rng,
    )


def norms(n: int, seed: int) -> list[Case]:
    """n random p-norm devices."""
    rng, found = np.random.default_rng(seed), []
    for i in range(n):
        pi, ridge = 10 ** rng.uniform(10, 14), 10 ** rng.uniform(-0.3, 1.3)
        p = INFINITY if i % 8 == 0 else float(np.exp(rng.uniform(np.log(1.1), np.log(20))))
        truth = Truth(pi, pi / ridge, p, float(10 ** rng.uniform(-6, -4.7)) if i % 2 else 0.0)
        points = measured(truth, rng)
        found.append(Case(truth, overlap(p), points, fit_sweep(points)[1]))
    return found


def sharp(n: int, seed: int) -> list[Case]:
    """n random devices with a sharp corner, measured without any noise."""
    rng, found = np.random.default_rng(seed), []
    for i in range(n):
        pi, ridge = 10 ** rng.uniform(10, 14), 10 ** rng.uniform(-0.3, 1.3)
        truth = Truth(pi, pi / ridge, t0=float(10 ** rng.uniform(-6, -4.7)) if i % 2 else 0.0)
        points = measured(truth, rng, noise=0.0)
        found.append(Case(truth, 1.0, points, fit_sweep(points)[1]))
    return found


def caps(n: int, seed: int, depth: tuple[float, float]) -> list[Case]:
    """n random power-capped devices whose knee costs a share of the rate between the two of `depth`."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        truth = capped(rng, depth)
        points = measured(truth, rng)
        omega = capped_overlap(truth.pi, truth.beta, truth.pi_c, truth.beta_c)
        found.append(Case(truth, omega, points, fit_sweep(points)[1]))
    return found


def covers(interval: Interval, value: float) -> bool:
    """Whether the interval holds the value."""
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def right(interval: Interval, value: float) -> bool:
    """Error within the larger of 2 % and the interval."""
    return abs(interval.value / value - 1) <= 0.02 or covers(interval, value)


def coverage(cases: Sequence[Case]) -> dict[str, float]:
    """Share of the 95 % intervals of each parameter that hold the truth."""
    shares = {
        name: float(np.mean([covers(getattr(c.fit, name), getattr(c.truth, name)) for c in cases]))
        for name in ("pi", "beta", "ridge")
    }
    return shares | {"omega": float(np.mean([covers(c.fit.omega, c.omega) for c in cases]))}


def figures(cases: Sequence[Case]) -> dict[str, float]:
    """How right the chosen fits of p-norm devices are."""
    misses = [abs(c.fit.omega.value - c.omega) for c in cases]
    soft = [abs(c.fit.p / c.truth.p - 1) if c.fit.p else 1.0 for c in cases if c.truth.p <= 4]
    overheads = [abs(c.fit.t0 / c.truth.t0 - 1) for c in cases if c.truth.t0]
    return {
        "pi right": float(np.mean([right(c.fit.pi, c.truth.pi) for c in cases])),
        "beta right": float(np.mean([right(c.fit.beta, c.truth.beta) for c in cases])),
        "omega miss p90": float(np.quantile(misses, 0.9)),
        "p miss p90": float(np.quantile(soft, 0.9)),
        "p within 15 %": float(np.mean(np.array(soft) <= 0.15)),
        "T0 miss p90": float(np.quantile(overheads, 0.9)),
        "a limit is named": float(np.mean([bool(c.fit.limits) for c in cases])),
    }


def main(n: int = 1000) -> None:
    """Prints every figure."""
    cases = norms(n, seed=1)
    print("p-norm devices:", Counter(c.fit.form for c in cases))
    for name, value in {**figures(cases), **{f"{k} covered": v for k, v in coverage(cases).items()}}.items():
        print(f"  {name:18} {value:.4f}")
    mistaken = {
        name: [c for c in cases if (name == "sharp") == np.isinf(c.truth.p)] for name in ("norm", "sharp")
    }
    for name, alike in mistaken.items():
        wrong = np.mean([c.fit.form == CAPPED for c in alike])
        print(f"  {name + ' taken for a cap':18} {wrong:.4f} of {len(alike)}")
    corners = sharp(n // 10, 5)
    norm = [next(f for f in c.fits if f.form == NORM).p or 0.0 for c in corners]
    hard = Counter(c.fit.form for c in corners)
    print(f"noise-free sharp corners: p >= 20 in {sum(p >= 20 for p in norm)} of {len(norm)}, chosen: {hard}")
    for depth in DEPTHS[1:]:
        found = caps(n // 10, 2, depth)
        forms, share = Counter(c.fit.form for c in found), np.mean([c.fit.form == CAPPED for c in found])
        most = np.mean([one.found for one in bounds([c.truth for c in found], 3)])
        print(f"power-capped, knee {depth}: {share:.3f} found, {most:.3f} by the best possible test; {forms}")
        print("  covered", {k: round(v, 3) for k, v in coverage(found).items()})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
