"""The time of moving V byte over a link: T = alpha + V / beta, or two such lines where the data ask for it.

A link that changes its protocol with the size follows the faster of two lines, T = min(alpha_1 + V/beta_1,
alpha_2 + V/beta_2), Hockney's form per protocol; one whose buffers overflow follows the slower, T = max(...).
All are fitted to log(T), so that a microsecond counts as much as a second; AICc over the sizes chooses, and
two lines must win clearly. n_half is the size at which half of the asymptotic beta is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.fitting.intervals import interval
from bench.fitting.solve import aicc
from bench.profile.records import Interval

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LINE, LEAST, MOST = "line", "minimum of two lines", "maximum of two lines"
"""The forms."""

FEWEST, FEWEST_FOR_TWO = 3, 8
"""Sizes from which on there is a fit, and one of two lines."""

EVIDENCE = 6.0
"""AICc by which two lines must win against one."""

MODEL_ERROR = 0.005
"""No line is truer than this share: noise-free data would else choose by rounding."""

ALPHA_FLOOR, ON_FLOOR = 1e-4, 2.0
"""Share of the shortest time below which alpha cannot be told from 0, and the factor up to which it counts as
lying there."""

MOST_OFF = 10.0
"""Factor between alpha and an end of its interval from which it is no figure, and only its bound is told."""

STEPS, SWAPS, STARTS = 25, 6, 5
"""Damped Gauss-Newton steps of a line; times that points change between two lines; first divisions."""


@dataclass(frozen=True)
class AlphaBeta:
    """A fitted link.

    alpha: s of the smallest transfer;  beta: byte/s that the largest approach;  half_bytes: n_half, byte
    lines: (alpha s, beta byte/s) of each line, that of small sizes first;  rms: of the log residuals
    aicc: by form;  reached: share of beta that the largest measured transfer reached
    shortest: s of the quickest transfer, which alpha cannot exceed
    """

    form: str
    alpha: Interval
    beta: Interval
    half_bytes: Interval
    lines: tuple[tuple[float, float], ...]
    rms: float
    aicc: dict[str, float]
    reached: float
    shortest: float

    @property
    def has_alpha(self) -> bool:
        """Whether the sizes tell alpha; where beta decides even the smallest time, rounds say anything."""
        width = self.alpha.half_width
        on_floor = self.alpha.value <= ON_FLOOR * ALPHA_FLOOR * self.shortest
        return not on_floor and (width is None or width < MOST_OFF - 1)

    def seconds(self, volume: float) -> float:
        """Predicted time of `volume` byte, s."""
        return float(_seconds(self.form, np.array(self.lines), np.array([volume]))[0])


def fit(volumes: Sequence[float], seconds: Sequence[Sequence[float]]) -> AlphaBeta | None:
    """The form that fits best; None with fewer than three sizes.

    volumes: byte, n of them;  seconds: of each in every round, n x rounds
    Values are those of all rounds together, intervals from fits to each round in the same form.
    """
    v, t = np.asarray(volumes, dtype=float), np.asarray(seconds, dtype=float)
    if t.ndim != 2 or len(v) != len(t):
        raise ValueError(f"{len(v)} sizes and times of shape {t.shape} do not fit together")
    if len(set(volumes)) < FEWEST:
        return None
    middle = np.median(t, axis=1)
    solved = {LINE: (_line(v, middle)[None, :], 2)}
    if len(set(volumes)) >= FEWEST_FOR_TWO:
        solved |= {form: (_two(form, v, middle, None), 4) for form in (LEAST, MOST)}
    scores = {form: _aicc(form, lines, v, middle, count) for form, (lines, count) in solved.items()}
    form = min(scores, key=lambda f: scores[f])
    if scores[form] > scores[LINE] - EVIDENCE:
        form = LINE
    lines = solved[form][0]
    rounds = [_again(form, lines, v, t[:, r]) for r in range(t.shape[1])]
    return _described(form, lines, rounds, v, middle, scores)


def _again(form: str, lines: Array, v: Array, t: Array) -> Array:
    """The same form fitted to one round."""
    return _line(v, t)[None, :] if form == LINE else _two(form, v, t, _nearer(form, lines, v))


def _described(
    form: str, lines: Array, rounds: Sequence[Array], v: Array, t: Array, scores: dict[str, float]
) -> AlphaBeta:
    def over(what: Callable[[Array], float]) -> Interval:
        return interval([what(one) for one in rounds], what(lines))

    beta = over(lambda one: float(one[-1, 1]))
    residual = np.log(_seconds(form, lines, v) / t)
    return AlphaBeta(
        form=form,
        alpha=over(lambda one: float(one[0, 0])),
        beta=beta,
        half_bytes=over(lambda one: _half(form, one)),
        lines=tuple((float(a), float(b)) for a, b in lines),
        rms=float(np.sqrt(np.mean(residual**2))),
        aicc=scores,
        reached=float(np.max(v / t) / beta.value),
        shortest=float(np.min(t)),
    )


def _seconds(form: str, lines: Array, v: Array) -> Array:
    every = lines[:, 0, None] + v[None, :] / lines[:, 1, None]
    return np.asarray(every.max(axis=0) if form == MOST else every.min(axis=0))


def _aicc(form: str, lines: Array, v: Array, t: Array, count: int) -> float:
    """Corrected Akaike criterion of `count` parameters, infinite where the sizes are too few for it."""
    n = len(v)
    if n <= count + 2:
        return float("inf")
    cost = float(np.sum(np.log(_seconds(form, lines, v) / t) ** 2)) + n * MODEL_ERROR**2
    return aicc(cost, n, count)


def _line(v: Array, t: Array) -> Array:
    """alpha and beta of one line, least squares on log(T)."""
    floor = float(np.log(ALPHA_FLOOR * t.min()))
    theta = np.array([np.log(max(t.min() * 0.5, 1e-12)), np.log(np.max(v / t))])
    cost, damping = np.inf, 1e-3
    for _ in range(STEPS):
        start, moving = np.exp(theta[0]), v / np.exp(theta[1])
        residual = np.log(t) - np.log(start + moving)
        slopes = np.stack([start / (start + moving), -moving / (start + moving)], axis=1)
        square = slopes.T @ slopes
        heavier = damping * (np.diag(np.diag(square)) + 1e-12 * np.eye(2))
        step = np.linalg.solve(square + heavier, slopes.T @ residual)
        trial = theta + np.clip(step, -3.0, 3.0)
        trial[0] = max(trial[0], floor)
        new = float(np.sum((np.log(t) - np.log(np.exp(trial[0]) + v / np.exp(trial[1]))) ** 2))
        if new <= cost + 1e-15:
            settled = cost - new < 1e-6 * (new + 1e-12)
            theta, cost, damping = trial, new, damping / 5
            if settled:
                break
        else:
            damping *= 10
    return np.asarray(np.exp(theta))


def _two(form: str, v: Array, t: Array, assigned: Mask | None) -> Array:
    """Two lines, that of small sizes first: points go to the line that counts for them until none moves."""
    order = np.argsort(v)
    splits = sorted(set(np.linspace(FEWEST, len(v) - FEWEST, STARTS).astype(int).tolist()))
    starts = [assigned] if assigned is not None else [_split(order, k) for k in splits]
    best, lowest = np.tile(_line(v, t), (2, 1)), np.inf
    for large in starts:
        lines = _settled(form, v, t, large)
        if lines is None:
            continue
        cost = float(np.sum(np.log(_seconds(form, lines, v) / t) ** 2))
        if cost < lowest:
            best, lowest = lines, cost
    return best


def _split(order: NDArray[np.intp], k: int) -> Mask:
    large = np.zeros(len(order), dtype=bool)
    large[order[k:]] = True
    return large


def _settled(form: str, v: Array, t: Array, large: Mask) -> Array | None:
    """The lines of a division into small and large sizes, None where it leaves one side too few."""
    lines = None
    for _ in range(SWAPS):
        if min(np.sum(large), np.sum(~large)) < FEWEST:
            return lines
        lines = np.stack([_line(v[~large], t[~large]), _line(v[large], t[large])])
        nearer = _nearer(form, lines, v)
        if np.array_equal(nearer, large):
            break
        large = nearer
    return lines


def _nearer(form: str, lines: Array, v: Array) -> Mask:
    """Which sizes the second line counts for."""
    first, second = (lines[i, 0] + v / lines[i, 1] for i in (0, 1))
    return np.asarray(second > first if form == MOST else second < first)


def _half(form: str, lines: Array) -> float:
    """The least size that moves at half of the asymptotic beta, byte."""
    beta = float(lines[-1, 1])
    sizes = []
    for alpha, own in lines:
        rest = 2 / beta - 1 / own
        size = float(alpha / rest) if rest > 0 else np.inf
        if np.isfinite(size) and _seconds(form, lines, np.array([size]))[0] * beta / 2 <= size * 1.001:
            sizes.append(size)
    return min(sizes, default=float(lines[-1, 0] * beta))
