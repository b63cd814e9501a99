"""Chunked pipelines as curves: T(k) of every link and balance, each time beside the parts of its own visit.

Three kinds of points tell of a pipeline. "swept": one sample is a visit that timed the parts and all numbers
of chunks in turn (facts["passes"]). "pipelined": one number of chunks, with the parts beside it as facts
(t_compute, t_move). Where there are none of those, "compute alone" and "copy alone" are points of their own
and stand for the round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from bench.fitting import pipelining
from bench.fitting.intervals import MEDIAN
from bench.fitting.pooled import Pooled
from bench.profile.records import Curve, CurvePoint, Interval, Sample

SWEPT, PIPELINED = "swept", "pipelined"
"""Variants that time chunks."""

ALONE = {"t_compute": "compute alone", "t_move": "copy alone"}
"""Facts of the parts beside a chunked pass, and the variants that time them as points of their own."""

SLOWDOWNS = ("move_slowdown", "compute_slowdown")
"""Time inside each part while they overlap, over alone."""

Times = tuple[list[float], list[list[float]], list[list[float]], list[list[float]]]
"""Chunks, and for each of them in every visit T(k), T_c, T_m in s."""


def curves(points: Sequence[Pooled]) -> Iterator[Curve]:
    """Every sweep over numbers of chunks; without the parts beside it, it says nothing of the overlap."""
    groups: dict[tuple[Any, ...], list[Pooled]] = {}
    for pooled in (p for p in points if p.point.family == "overlap"):
        point = pooled.point
        shared = tuple(sorted((k, v) for k, v in point.sizes.items() if k != "chunks"))
        groups.setdefault((point.kernel, point.level, point.access, shared), []).append(pooled)
    for _, group in sorted(groups.items(), key=lambda item: (*item[0][:3], *map(_balance, item[1][:1]))):
        visits = [s for p in group if p.point.variant == SWEPT for s in p.samples if s.facts.get("passes")]
        times = _together(visits) if visits else _apart(group)
        if times and len(times[0]) > 1:
            yield _curve(group[0], times, visits or _chunked_samples(group))


def _balance(pooled: Pooled) -> int:
    """Percent of the time of moving that computing was to take."""
    return pooled.point.sizes.get("percent", 0)


def _together(visits: Sequence[Sample]) -> Times:
    """Of visits that timed everything: each pass over the serial sum of the same pass, medians of these."""
    chunks = [float(k) for k in visits[0].facts["passes"]["chunks"]]
    seconds: list[list[float]] = [[] for _ in chunks]
    compute, movement = [], []
    for passes in (sample.facts["passes"] for sample in visits):
        alone = list(zip(passes["compute"], passes["move"], strict=True))
        compute.append(median(passes["compute"]))
        movement.append(median(passes["move"]))
        for row, taken in zip(seconds, passes["seconds"], strict=True):
            share = median(t / sum(parts) for t, parts in zip(taken, alone, strict=True))
            row.append(share * (compute[-1] + movement[-1]))
    return chunks, seconds, [compute] * len(chunks), [movement] * len(chunks)


def _chunked_samples(group: Sequence[Pooled]) -> list[Sample]:
    return [s for p in group if p.point.sizes.get("chunks") and p.point.variant != SWEPT for s in p.samples]


def _apart(group: Sequence[Pooled]) -> Times | None:
    """Of points of one number of chunks each, round by round."""
    chunked = {
        float(p.point.sizes["chunks"]): p
        for p in group
        if p.point.variant not in (SWEPT, *ALONE.values()) and p.point.sizes.get("chunks")
    }
    chunks = sorted(chunked)
    if not chunks:
        return None
    rates = {k: chunked[k].rounds(MEDIAN) for k in chunks}
    numbers = sorted(set.intersection(*(set(of) for of in rates.values()))) or [0]
    seconds = [[1 / rates[k].get(n, median(rates[k].values())) for n in numbers] for k in chunks]
    compute, movement = ([_beside(chunked[k], group, fact, numbers) for k in chunks] for fact in ALONE)
    return (chunks, seconds, compute, movement) if all(compute + movement) else (chunks, seconds, [], [])


def _beside(pooled: Pooled, group: Sequence[Pooled], fact: str, numbers: Sequence[int]) -> list[float]:
    """Seconds of one part in each round, as measured beside a pass, or else by its own point; [] without."""
    found: dict[int, list[float]] = {}
    for sample in pooled.samples:
        if fact in sample.facts:
            found.setdefault(sample.round, []).append(float(sample.facts[fact]))
    by_round = {number: median(values) for number, values in found.items()}
    if not by_round:
        own = [p for p in group if p.point.variant == ALONE[fact]]
        by_round = {number: 1 / rate for number, rate in own[0].rounds(MEDIAN).items()} if own else {}
    return [by_round.get(n, median(by_round.values())) for n in numbers] if by_round else []


def _curve(first: Pooled, times: Times, samples: Sequence[Sample]) -> Curve:
    chunks, seconds, compute, movement = times
    point = first.point
    shared = {name: value for name, value in point.sizes.items() if name != "chunks"}
    found: dict[str, Any] = {"level": point.level, "access": point.access, "shared": shared}
    if compute:
        found |= pipelining.describe(chunks, seconds, compute, movement) | _slowdowns(samples)
    told = found.pop("times", [[median(row), None, None] for row in seconds])
    moved = float(shared.get("bytes", 0))
    curve = tuple(
        CurvePoint(k, Interval(*time), 0.0, moved, time[0], tuple(row), PIPELINED)
        for k, time, row in zip(chunks, told, seconds, strict=True)
    )
    settings = ", ".join(f"{name} {value}" for name, value in shared.items())
    mode = f"{point.level} {point.kernel} {point.access} ({settings})"
    return Curve("overlap", mode, point.precision, point.scope, point.threads, "s", curve, (), found)


def _slowdowns(samples: Sequence[Sample]) -> dict[str, float]:
    """By how much each part was slower while they overlapped, median over the visits that say it."""
    found = {name: [float(s.facts[name]) for s in samples if s.facts.get(name)] for name in SLOWDOWNS}
    return {name: median(values) for name, values in found.items() if values}
