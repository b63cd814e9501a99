"""Plateaus of a sweep over working sets: which levels there are, what each holds, how sure that is.

On logarithmic axes a sweep is a staircase with soft edges: flat where one level serves everything, falling
where the next takes over. Among all ways to cut it into flat parts and falls between them, the cheapest by a
criterion like BIC is taken (squared residuals over the noise, a price for every part and for every point that
no level explains). What a level holds is read where the rate has fallen half-way to the next one, on the
logarithmic scale. Nothing here knows a name: bench/fitting/level_names.py gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import interval
from bench.profile.records import Interval

Array = NDArray[np.float64]

FEWEST = 8
"""Points below which a staircase cannot be told from anything else."""

MODEL_ERROR = 0.02
"""No plateau is flatter than this share."""

FALL_SCATTER = 0.25
"""Scatter on the log scale of points between two levels about a straight line: falls are curved."""

PER_FALLING_POINT = 2.0
"""Price of a point that no level explains, in units of twice the log likelihood."""

SPAN = 1.25
"""Factor in the working set that a plateau spans at least."""

STEP = 0.10
"""Fall in the logarithm from one level to the next, at least; what differs by less is one level."""

TILT = 0.4
"""Share of the fall behind it that a plateau may itself fall from end to end: more is part of a slope."""

WIDE, CONFIRMED = 2.0, 0.5
"""Factor that a plateau must span to count on its own word; a narrower one must show in this share of three
or more rounds, or end the sweep: three neighbours on a long slope look alike by chance."""

HEAD = 0.9
"""Share of the fastest rate from which the first level counts: smaller sets pay for starting the loop."""


@dataclass(frozen=True)
class Plateau:
    """One flat part of a sweep.

    first, last: its points;  low, high: working sets of those (byte);  value: its rate, byte/s
    capacity: byte where the rate has fallen half-way to the next plateau, None for the last one
    seen: in how many rounds a plateau like this is found without the others;  rounds: of how many
    """

    first: int
    last: int
    low: float
    high: float
    value: Interval
    capacity: Interval | None
    seen: int
    rounds: int


def detect(sizes: Sequence[float], rates: Sequence[Sequence[float]]) -> tuple[Plateau, ...]:
    """The plateaus of a sweep, nearest level first; () with fewer than eight points.

    sizes: working sets in byte, rising, n of them;  rates: byte/s of each in every round, n x rounds
    Of latencies hand in their reciprocals. ValueError when the two do not fit together.
    """
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(rates, dtype=float))
    if y.ndim != 2 or len(x) != len(y):
        raise ValueError(f"{len(x)} working sets and rates of shape {y.shape} do not fit together")
    if len(x) < FEWEST:
        return ()
    middle = np.median(y, axis=1)
    alone = [_alone(x, y[:, r]) for r in range(y.shape[1])] if y.shape[1] > 1 else []
    found = _flats(x, middle, _noise(y, x))
    parts = _merged(x, middle, [p for p in found if _is_sure(x, y, p, alone)])
    return tuple(_plateau(sizes, y, parts, k, alone) for k in range(len(parts)))


Part = tuple[int, int]
"""First and last point of a plateau."""


def _is_sure(x: Array, y: Array, part: Part, alone: Sequence[tuple[list[Part], Array]]) -> bool:
    """Whether a plateau is wide, or confirmed by the rounds."""
    if x[part[1]] - x[part[0]] >= np.log(WIDE) or part[1] == len(x) - 1:
        return True
    seen = sum(_is_seen(x, y, part, found, column) for found, column in alone)
    return len(alone) >= 3 and seen >= CONFIRMED * len(alone)


def _alone(x: Array, y: Array) -> tuple[list[Part], Array]:
    """The plateaus that one round shows, and its rates."""
    return _flats(x, y, _neighbour_noise(x, y)), y


def _noise(y: Array, x: Array) -> float:
    """Standard deviation of the medians over rounds: from several rounds, or else from neighbours."""
    if y.shape[1] < 3:
        return _neighbour_noise(x, np.median(y, axis=1))
    left = y - np.median(y, axis=1, keepdims=True)
    left = left - np.median(left, axis=0, keepdims=True)
    spread = np.median(np.std(left, axis=1, ddof=1))
    return float(np.hypot(1.25 * spread / np.sqrt(y.shape[1]), MODEL_ERROR))


def _neighbour_noise(x: Array, y: Array) -> float:
    """Scatter of a point about the line through its neighbours, by the lower quartile: edges are no noise."""
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    off = np.abs(y[1:-1] - (1 - share) * y[:-2] - share * y[2:])
    return float(np.hypot(np.quantile(off, 0.25) / 0.319 / np.sqrt(1.5), MODEL_ERROR))


def _flats(x: Array, y: Array, noise: float) -> list[Part]:
    """The flat parts of a staircase whose points scatter by `noise`."""
    start = int(np.argmax(y >= np.max(y[: max(2, len(y) // 2)]) + np.log(HEAD)))
    parts = _cut(x[start:], _without_outliers(y[start:], noise), noise)
    parts = [(a + start, b + start) for a, b in parts]
    return _merged(x, y, parts)


def _without_outliers(y: Array, noise: float) -> Array:
    """Lone points off both of their neighbours, which agree, are moved onto them."""
    found = y.copy()
    for i in range(1, len(y) - 1):
        before, after = y[i] - y[i - 1], y[i] - y[i + 1]
        if before * after > 0 and min(abs(before), abs(after)) > 4 * noise > abs(y[i + 1] - y[i - 1]):
            found[i] = (y[i - 1] + y[i + 1]) / 2
    return np.asarray(found)


def _cut(x: Array, y: Array, noise: float) -> list[Part]:
    """The cheapest cut of the points into flat parts and the falls between them."""
    n = len(x)
    flat, fall = _flat_costs(x, y, noise), _fall_costs(x, y)
    on_flat, on_fall = np.full(n + 1, np.inf), np.full(n + 1, np.inf)  # best with the first k points done
    from_flat, from_fall = np.zeros(n + 1, dtype=int), np.zeros(n + 1, dtype=int)
    before = np.full(n + 1, np.inf)
    before[0] = 0.0
    for k in range(1, n + 1):
        ways = before[:k] + flat[:k, k - 1]
        from_flat[k] = int(np.argmin(ways))
        on_flat[k] = ways[from_flat[k]]
        ways = on_flat[:k] + fall[:k, k - 1]
        from_fall[k] = int(np.argmin(ways))
        on_fall[k] = ways[from_fall[k]]
        before[k] = min(on_flat[k], on_fall[k])
    return _traced(on_flat, on_fall, from_flat, from_fall)


def _traced(on_flat: Array, on_fall: Array, from_flat: Array, from_fall: Array) -> list[Part]:
    """The flat parts of the cheapest way, first one first."""
    k, parts = len(on_flat) - 1, []
    while k > 0 and np.isfinite(min(on_flat[k], on_fall[k])):
        if on_fall[k] < on_flat[k]:
            k = int(from_fall[k])
        parts.append((int(from_flat[k]), k - 1))
        k = int(from_flat[k])
    return parts[::-1]


def _sums(values: Array) -> Array:
    """Sums of values[i..j] as a matrix."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[None, 1:] - total[:-1, None])


def _counts(n: int) -> Array:
    """How many points i..j are, at least 1."""
    i, j = np.indices((n, n))
    return np.asarray(np.maximum(j - i + 1, 1), dtype=float)


def _flat_costs(x: Array, y: Array, noise: float) -> Array:
    """Price of calling points i..j flat."""
    count = _counts(len(y))
    spread = np.maximum(_sums(y * y) - _sums(y) ** 2 / count, 0.0)
    cost = spread / noise**2 + 2 * np.log(len(y))
    allowed = (x[None, :] - x[:, None] >= np.log(SPAN)) & (count >= 2)
    return np.asarray(np.where(allowed & (np.tri(len(y), dtype=bool).T), cost, np.inf))


def _fall_costs(x: Array, y: Array) -> Array:
    """Price of calling points i..j a fall from one level to the next."""
    count = _counts(len(y))
    xx = np.maximum(_sums(x * x) - _sums(x) ** 2 / count, 1e-12)
    xy = _sums(x * y) - _sums(x) * _sums(y) / count
    yy = _sums(y * y) - _sums(y) ** 2 / count
    left = np.maximum(yy - xy**2 / xx, 0.0)
    cost = left / FALL_SCATTER**2 + np.log(len(y)) + PER_FALLING_POINT * count
    falling = np.asarray((xy <= 0) | (count < 2))
    return np.asarray(np.where(falling & np.tri(len(y), dtype=bool).T, cost, np.inf))


def _merged(x: Array, y: Array, parts: list[Part]) -> list[Part]:
    """Levels that differ too little become one; what tilts, or lies below its successor, is none."""
    changed = True
    while changed and len(parts) > 1:
        changed = False
        for k in range(len(parts) - 1):
            (a, b), (c, d) = parts[k], parts[k + 1]
            fall = float(np.median(y[a : b + 1]) - np.median(y[c : d + 1]))
            if abs(fall) < STEP:
                parts[k : k + 2] = [(a, d)]
            elif fall < 0 or _tilt(x, y, parts[k]) > TILT * fall:
                del parts[k]
            else:
                continue
            changed = True
            break
    return parts


def _tilt(x: Array, y: Array, part: Part) -> float:
    """How far a part falls from end to end by its straight line, in the logarithm."""
    at, of = x[part[0] : part[1] + 1], y[part[0] : part[1] + 1]
    off = at - at.mean()
    return float(-(off @ of) / (off @ off) * (at[-1] - at[0]))


def _half_way(x: Array, y: Array, near: Part, far: Part) -> float:
    """log(byte) where the rate has fallen half-way from one part to the next."""
    target = (float(np.median(y[near[0] : near[1] + 1])) + float(np.median(y[far[0] : far[1] + 1]))) / 2
    inside = np.arange(near[1], far[0] + 1)
    falling = np.minimum.accumulate(y[inside])
    after = int(np.argmax(falling <= target)) if np.any(falling <= target) else len(inside) - 1
    if after == 0:
        return float(x[inside[0]])
    high, low = falling[after - 1], falling[after]
    share = (high - target) / (high - low) if high > low else 0.5
    left, right = x[inside[after - 1]], x[inside[after]]
    return float(left + min(1.0, max(0.0, share)) * (right - left))


def _plateau(
    sizes: Sequence[float], y: Array, parts: list[Part], k: int, alone: Sequence[tuple[list[Part], Array]]
) -> Plateau:
    x = np.log(np.asarray(sizes, dtype=float))
    first, last = parts[k]
    values = np.exp(np.median(y[first : last + 1], axis=0))
    middle = float(np.exp(np.median(y[first : last + 1])))
    capacity = None
    if k + 1 < len(parts):
        own = [_half_way(x, y[:, r], parts[k], parts[k + 1]) for r in range(y.shape[1])]
        all_rounds = _half_way(x, np.median(y, axis=1), parts[k], parts[k + 1])
        capacity = interval(np.exp(own).tolist(), float(np.exp(all_rounds)))
    seen = sum(_is_seen(x, y, parts[k], found, column) for found, column in alone)
    low, high = sizes[first], sizes[last]
    return Plateau(first, last, low, high, interval(values.tolist(), middle), capacity, seen, len(alone) or 1)


def _is_seen(x: Array, y: Array, part: Part, found: Sequence[Part], column: Array) -> bool:
    """Whether one round has a plateau that shares half of this one's working sets, at about its rate."""
    value = float(np.median(y[part[0] : part[1] + 1]))
    for first, last in found:
        shared = x[min(last, part[1])] - x[max(first, part[0])]
        near = abs(float(np.median(column[first : last + 1])) - value) < 2 * STEP
        if near and shared >= 0.5 * (x[part[1]] - x[part[0]]):
            return True
    return False
