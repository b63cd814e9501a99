"""Work cut into k chunks so that moving and computing overlap: what was hidden, and the best k.

    serial sum    T = T_c + T_m
    max law       T = max(T_c, T_m)
    k chunks      T(k) = max + (sum - max) / k + k alpha,  least at k = sqrt((sum - max) / alpha)
    overlap       omega = (T_c + T_m - T) / min(T_c, T_m): 0 serial, 1 hidden

T_c and T_m are the times of the parts alone; alpha is what each further chunk costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import bounded_interval, interval

Array = NDArray[np.float64]

LEAST_ALPHA = 1e-9
"""Second a chunk below which no best k is predicted: there would be no end to cutting."""


def law(chunks: float, total: float, longest: float, alpha: float) -> float:
    """T(k) in s."""
    return longest + (total - longest) / chunks + chunks * alpha


def describe(
    chunks: Sequence[float],
    seconds: Sequence[Sequence[float]],
    compute: Sequence[float],
    movement: Sequence[float],
) -> dict[str, Any]:
    """What a sweep over k says, plain JSON values.

    chunks: k, rising;  seconds: T(k) in every round, n x rounds;  compute, movement: T_c, T_m of each round
    best_chunks: measured, predicted_chunks: by the law, rounded to a k of the sweep;  serial_seconds,
    max_seconds: the two laws that the measured times lie between;  without several rounds omega has no ends
    """
    k, t = np.asarray(chunks, dtype=float), np.asarray(seconds, dtype=float)
    parts = np.asarray(compute, dtype=float), np.asarray(movement, dtype=float)
    total, longest, shortest = parts[0] + parts[1], np.maximum(*parts), np.minimum(*parts)
    middle = np.median(t, axis=1)
    best = int(np.argmin(middle))
    omega = bounded_interval(((total - t[best]) / shortest).tolist(), -1.0, 1.0)
    alphas = [_alpha(k, t[:, r], total[r], longest[r]) for r in range(t.shape[1])]
    alpha = interval([max(a, LEAST_ALPHA) for a in alphas])
    ideal = float(np.sqrt(np.median(total - longest) / alpha.value))
    return {
        "compute_seconds": float(np.median(parts[0])),
        "movement_seconds": float(np.median(parts[1])),
        "serial_seconds": float(np.median(total)),
        "max_seconds": float(np.median(longest)),
        "best_seconds": float(middle[best]),
        "omega": omega.value,
        "omega_low": omega.low,
        "omega_high": omega.high,
        "chunk_s": alpha.value,
        "best_chunks": int(k[best]),
        "predicted_chunks": int(k[np.argmin(np.abs(np.log(k / ideal)))]),
        "between_laws": bool(np.median(longest) * 0.98 <= middle[best] <= np.median(total) * 1.02),
    }


def _alpha(k: Array, t: Array, total: float, longest: float) -> float:
    """Cost of a chunk in one round: least squares on T relative to the law, without k = 1, which has none."""
    inside = k > 1
    if not np.any(inside):
        return LEAST_ALPHA
    left = t[inside] - (longest + (total - longest) / k[inside])
    weight = 1 / t[inside] ** 2
    return float(np.sum(weight * k[inside] * left) / np.sum(weight * k[inside] ** 2))
