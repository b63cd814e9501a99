"""A ceiling of a pooled point: what all quantities take from the point in one place, with the verdict."""

from __future__ import annotations

from typing import Any

from bench.fitting.intervals import MIN_ROUNDS
from bench.fitting.pooled import Pooled
from bench.fitting.swept import clock
from bench.profile.records import Ceiling, Interval


def verdict(rounds: int, width: float | None, cap: float) -> bool | None:
    """Whether an interval of that half-width keeps its cap; None while there are too few rounds to tell."""
    return None if rounds < MIN_ROUNDS or width is None else width <= cap


def record(
    quantity: str, pooled: Pooled, estimate: Interval, best: float, unit: str, cap: float, **more: Any
) -> Ceiling:
    """A ceiling of a pooled point with its verdict.

    best: in `unit`, as the estimate;  cap: relative half-width that it may have
    more: fields that are this quantity's own, in place of what is usual (variant, statistic, ...)
    """
    p, rounds = pooled.point, len(pooled.by_round)
    usual = {"variant": p.variant, "statistic": "median", "clock_hz": clock(pooled)}
    return Ceiling(
        quantity=quantity,
        precision=p.precision,
        level=p.level,
        access=p.access,
        store=p.store,
        scope=p.scope,
        threads=p.threads,
        operands=p.operands,
        kernel=p.kernel,
        estimate=estimate,
        best=best,
        unit=unit,
        regime=pooled.regime,
        rounds=rounds,
        cap=cap,
        converged=verdict(rounds, estimate.half_width, cap),
        contended=pooled.contended,
        **(usual | more),
    )
