"""Work cut into k chunks so that moving and computing overlap: what was hidden, and the best k.

    serial sum    T = T_c + T_m
    max law       T = max(T_c, T_m)
    k chunks      T(k) = a max + (sum - a max) / k + k alpha,  least at k = sqrt((sum - a max) / alpha)
    overlap       omega = (T_c + T_m - T) / min(T_c, T_m): 0 serial, 1 hidden

T_c and T_m are the times of the parts alone; alpha is what each further chunk costs; a is by how much the
parts slow each other down while they overlap (memory, cores and caches that both need), 1 for none.

A link drifts by more between two moments than chunks change a time. So nothing is compared across moments:
every visit times the parts and the chunked passes within a second, omega(k) is taken within it, and what is
said of several visits is about these. T(k) is told for the typical parts, T(k) = sum - omega(k) min.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import bounded_interval, student
from bench.profile.records import Interval

Array = NDArray[np.float64]

LEAST_ALPHA = 1e-9
"""Second a chunk below which no best k is predicted: there would be no end to cutting."""

FEWEST_FOR_SLOWDOWN = 3
"""Numbers of chunks above 1 from which on a and alpha can be told apart."""

SLOWED = (0.8, 3.0)
"""Least and most that a may be: below 1 where chunks of a part are faster than the part in one piece."""

OMEGA = (-1.0, 1.25)
"""Ends that an interval of omega is cut to: beyond them lies no overlap of two parts."""

CLOSE = 0.02
"""Share by which a measured time may lie beyond one of the laws and still count as between them."""


def law(chunks: float, total: float, longest: float, alpha: float, slowed: float = 1.0) -> float:
    """T(k) in s."""
    return slowed * longest + (total - slowed * longest) / chunks + chunks * alpha


def describe(
    chunks: Sequence[float],
    seconds: Sequence[Sequence[float]],
    compute: Sequence[float] | Sequence[Sequence[float]],
    movement: Sequence[float] | Sequence[Sequence[float]],
) -> dict[str, Any]:
    """What a sweep over k says, plain JSON values.

    chunks: k, rising, n of them;  seconds: T(k) in every visit, n x visits
    compute, movement: T_c, T_m of each visit, or n x visits where each T(k) has its own beside it
    best_chunks: measured, with the k from best_from to best_to that cannot be told from it (paired t-test);
    predicted_chunks: by the law fitted to all k, rounded to a k of the sweep;  serial_seconds, max_seconds:
    the two laws;  times: (value, low, high) of T(k) in s;  a single visit has no ends
    """
    k, t = np.asarray(chunks, dtype=float), np.asarray(seconds, dtype=float)
    parts = [np.broadcast_to(np.asarray(one, dtype=float), t.shape) for one in (compute, movement)]
    hidden = (parts[0] + parts[1] - t) / np.minimum(*parts)
    typical = [float(np.median(one)) for one in parts]
    total, longest, shortest = sum(typical), max(typical), min(typical)
    middle = np.median(hidden, axis=1)
    best = int(np.argmax(middle))
    first, last = _alike(hidden, best)
    omega = bounded_interval(hidden[best].tolist(), *OMEGA)
    alpha, slowed = _costs(k, total - middle * shortest, total, longest)
    ideal = max(1.0, float(np.sqrt(max(total - slowed * longest, 0.0) / alpha)))
    times = [_time(row.tolist(), total, shortest) for row in hidden]
    return {
        "compute_seconds": typical[0],
        "movement_seconds": typical[1],
        "serial_seconds": total,
        "max_seconds": longest,
        "best_seconds": times[best][0],
        "omega": omega.value,
        "omega_low": omega.low,
        "omega_high": omega.high,
        "visits": int(t.shape[1]),
        "chunk_s": alpha,
        "slowed": slowed,
        "best_chunks": int(k[best]),
        "best_from": int(k[first]),
        "best_to": int(k[last]),
        "predicted_chunks": int(k[np.argmin(np.abs(np.log(k / ideal)))]),
        "between_laws": _is_between(times[best], longest, total),
        "times": times,
    }


def _is_between(time: Sequence[float | None], longest: float, total: float) -> bool:
    """Whether a time, by its interval where it has one, may lie between the two laws."""
    value, low, high = time
    least, most = (value if end is None else end for end in (low, high))
    assert least is not None and most is not None
    return bool(most >= longest * (1 - CLOSE) and least <= total * (1 + CLOSE))


def _time(hidden: Sequence[float], total: float, shortest: float) -> list[float | None]:
    """T(k) for the typical parts, its ends from those of omega(k), which is unbounded here."""
    found: Interval = bounded_interval(hidden, -np.inf, np.inf)
    ends = (None if end is None else max(total - end * shortest, 0.0) for end in (found.high, found.low))
    return [total - found.value * shortest, *ends]


def _alike(hidden: Array, best: int) -> tuple[int, int]:
    """First and last k around the best one whose omega is not clearly lower, visit by visit."""

    def is_lower(row: int) -> bool:
        left = (hidden[best] - hidden[row]).tolist()
        if len(left) < 2:
            return True
        return bool(fmean(left) > student(len(left) - 1) * stdev(left) / len(left) ** 0.5)

    first, last = best, best
    while first > 0 and not is_lower(first - 1):
        first -= 1
    while last + 1 < len(hidden) and not is_lower(last + 1):
        last += 1
    return first, last


def _costs(k: Array, t: Array, total: float, longest: float) -> tuple[float, float]:
    """alpha (s a chunk) and a: least squares on T relative to itself, without k = 1, which has neither."""
    inside = k > 1
    if not np.any(inside):
        return LEAST_ALPHA, 1.0
    weight = 1 / np.maximum(t[inside], 1e-3 * longest)
    left = weight * (t[inside] - total / k[inside])
    whole, count = weight * longest * (1 - 1 / k[inside]), weight * k[inside]
    slowed = 1.0
    if np.sum(inside) >= FEWEST_FOR_SLOWDOWN:
        slowed = float(np.linalg.lstsq(np.stack([whole, count], axis=1), left, rcond=None)[0][0])
    slowed = float(np.clip(slowed, *SLOWED))
    alpha = float(count @ (left - slowed * whole) / (count @ count))
    if alpha > LEAST_ALPHA:
        return alpha, slowed
    return LEAST_ALPHA, float(np.clip(whole @ left / (whole @ whole), *SLOWED))  # chunks cost nothing
