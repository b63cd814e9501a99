"""The memory and link hierarchy of a run: what follows from its latency, link, launch and scaling points.

Every sweep becomes a curve with what the analysis found in its `plateaus`; what is a figure of the device on
its own becomes a ceiling: the latency of a level, what a level holds, alpha (t0) and beta of a link or a
collective, the overhead of a launch. Of times the smallest counts, which is the highest rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.fitting import swept
from bench.fitting.intervals import CAP_CACHE, MEDIAN, inverse, memory_cap
from bench.fitting.level_names import SLOW_FALL
from bench.fitting.pooled import Pooled, winner
from bench.fitting.recorded import record, verdict
from bench.fitting.swept import chains, line_bytes
from bench.profile.records import Ceiling, Curve, Interval

CAP_OVERHEAD = 0.10
"""Half-width allowed for an overhead: of a launch, of a link."""


def ceilings(
    points: Sequence[Pooled],
    sweeps: Sequence[swept.Swept],
    caches: Sequence[Curve],
    device: Mapping[str, Any],
) -> list[Ceiling]:
    """Every figure of the hierarchy.

    sweeps: of `swept.curves`;  caches: curves over working sets;  device: as in a run's header
    """
    cap = memory_cap(str(device.get("state", "")))
    found = [*_latencies(points, cap), *_launches(points)]
    for curve, about in sweeps:
        found += _lines(curve, about, cap)
    found += [c for curve in (*caches, *(c for c, _ in sweeps)) for c in capacities(curve, device)]
    return [_judged(ceiling) for ceiling in found]


def _judged(ceiling: Ceiling) -> Ceiling:
    """The ceiling with a verdict where it exceeds its cap already in the few rounds planned for its family.

    Few rounds make an interval wide, never narrow: they withhold an "ok", not a "did not converge".
    """
    width = ceiling.estimate.half_width
    wide = ceiling.converged is None and width is not None and width > ceiling.cap
    return replace(ceiling, converged=False) if wide else ceiling


def _grouped(points: Iterable[Pooled], key: Callable[[Pooled], object]) -> list[list[Pooled]]:
    groups: dict[object, list[Pooled]] = {}
    for pooled in points:
        groups.setdefault(key(pooled), []).append(pooled)
    return list(groups.values())


def _latencies(points: Sequence[Pooled], cap: float) -> list[Ceiling]:
    """The latency of each level from its plateau points of one chain."""
    flat = [
        p
        for p in points
        if p.point.family == "latency" and "plateau" in p.point.sizes and chains(p) * p.point.threads == 1
    ]
    found = []
    for group in _grouped(flat, lambda p: (p.point.kernel, p.point.level, p.point.scope, p.regime)):
        best = winner(group, MEDIAN)
        size = line_bytes(best)
        estimate = inverse(best.estimate(MEDIAN), size)
        allowed = cap if best.point.level == "DRAM" else CAP_CACHE
        found.append(record("latency", best, estimate, size / best.fastest, "s", allowed))
    return found


def _launches(points: Sequence[Pooled]) -> list[Ceiling]:
    """The overhead of starting nothing, one ceiling a way of starting it."""
    empty = [p for p in points if p.point.family == "launch" and not p.point.sizes.get("bytes")]
    found = []
    for group in _grouped(empty, lambda p: (p.point.kernel, p.point.variant, p.point.threads, p.regime)):
        best = winner(group, MEDIAN)
        estimate = inverse(best.estimate(MEDIAN))
        found.append(record("t0", best, estimate, 1 / best.fastest, "s", CAP_OVERHEAD))
    return found


def _lines(curve: Curve, about: Sequence[Pooled], cap: float) -> list[Ceiling]:
    """alpha and beta of a link, collective or smallest kernel, each only where the sweep tells it."""
    known, found = curve.plateaus, []
    if "alpha_s" not in known:
        return []
    beta = Interval(known["beta"], known["beta_low"], known["beta_high"])
    largest = max(about, key=lambda p: p.point.sizes["bytes"])
    smallest = min(about, key=lambda p: p.point.sizes["bytes"])
    fastest = max(pooled.fastest for pooled in about)
    if known["alpha_s"] is not None:
        alpha = Interval(known["alpha_s"], known["alpha_low"], known["alpha_high"])
        found.append(record("t0", smallest, alpha, alpha.value, "s", CAP_OVERHEAD))
    if curve.kind != "launch" and known["reached_share"] >= swept.REACHED:
        found.append(record("beta", largest, beta, fastest, "byte/s", cap))
    return found


def capacities(curve: Curve, device: Mapping[str, Any]) -> list[Ceiling]:
    """What one instance of each named level holds, from reads and from chases over working sets."""
    if (curve.kind, curve.mode) not in (("cache", "read"), ("latency", "chase")):
        return []
    return [
        _capacity(curve, level, _instance(level["name"], curve.threads, device))
        for level in curve.plateaus.get("levels", ())
        if level["name"] and level["capacity_bytes"] and not _falls_slowly(level)
    ]


def _falls_slowly(level: Mapping[str, Any]) -> bool:
    """Whether the half-way point lies too far behind the reported capacity to tell what a level holds."""
    return float(level["capacity_bytes"]) > SLOW_FALL * float(level["reported_bytes"] or float("inf"))


def _instance(level: str, threads: int, device: Mapping[str, Any]) -> float:
    """How many threads share an instance of a level: its capacity over what one of them has of it."""
    for cache in device.get("caches", ()):
        if cache["level"] == level.split()[0]:
            return threads / min(threads, int(cache["instances"]))
    return 1.0


def _capacity(curve: Curve, level: Mapping[str, Any], sharers: float) -> Ceiling:
    """What an instance holds; its interval is over passes of the sweep, of which a round may have several."""
    low, high = (level[name] and level[name] * sharers for name in ("capacity_low", "capacity_high"))
    held = Interval(level["capacity_bytes"] * sharers, low, high)
    rounds = max(1, *(len(p.rates) for p in curve.points))
    return Ceiling(
        quantity="capacity",
        precision=curve.precision,
        level=level["name"],
        access="read",
        store="none",
        scope=curve.scope,
        threads=curve.threads,
        operands="random",
        kernel=f"cache-{curve.mode}" if curve.kind == "cache" else curve.mode,
        variant="half-way to the next level",
        estimate=held,
        best=held.value,
        unit="byte",
        regime="typical",
        statistic="median",
        rounds=rounds,
        cap=CAP_OVERHEAD,
        converged=verdict(rounds, held.half_width, CAP_OVERHEAD),
        contended=0.0,
    )
