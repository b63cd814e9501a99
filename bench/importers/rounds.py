"""Rows of one setting in several rounds as one point with its rates, where a table names its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bench.errors import FileError
from bench.fitting.intervals import interval
from bench.fitting.pooled import whole_rounds
from bench.importers.rows import MOST_POINTS
from bench.profile.records import CurvePoint


def pooled(rows: Sequence[tuple[CurvePoint, str]]) -> tuple[CurvePoint, ...]:
    """Points with their rates by round; rows without a round, or alone in theirs, stay what they are.

    A setting is an intensity to six digits. Of two rows of one setting and round the later one counts.
    """
    named = all(number for _, number in rows)
    points = _by_setting(rows) if named else tuple(point for point, _ in rows)
    if len(points) > MOST_POINTS:
        raise FileError(
            f"a sweep of more than {MOST_POINTS} points: cut it down, or name its rounds in a column"
        )
    return points


def _by_setting(rows: Sequence[tuple[CurvePoint, str]]) -> tuple[CurvePoint, ...]:
    order = {name: number for number, name in enumerate(dict.fromkeys(name for _, name in rows))}
    settings: dict[str, dict[int, CurvePoint]] = {}
    for point, name in rows:
        settings.setdefault(f"{point.x:.6g}", {})[order[name]] = point
    whole = whole_rounds([set(found) for found in settings.values()])
    return tuple(_one(found, whole) for found in settings.values())


def _one(found: dict[int, CurvePoint], whole: tuple[int, ...]) -> CurvePoint:
    rates = {number: point.estimate.value for number, point in sorted(found.items())}
    estimate = interval(list(rates.values()))
    first = next(iter(found.values()))
    flops = median(point.flops for point in found.values())
    aligned = tuple(rates[n] for n in whole) if set(whole) <= set(rates) and len(whole) > 1 else ()
    return replace(
        first,
        estimate=estimate,
        flops=flops,
        bytes=flops / first.x,
        seconds=flops / estimate.value,
        rates=aligned,
    )
