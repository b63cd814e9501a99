"""Sweeps as curves: rate against intensity, working set or matrix size, with fits and plateaus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.fitting import swept
from bench.fitting.fit import fit_sweep
from bench.fitting.intervals import MEDIAN, P75, interval, sweep_quantile
from bench.fitting.pooled import Pooled, whole_rounds, winner
from bench.profile.records import Ceiling, Curve, CurvePoint, Fit, Point
from bench.profile.roofline import INFINITY, attainable, fitted_rate
from kernels.mix import MODES

Key = tuple[str, str, int, str]
"""What makes one curve of a family: mode, scope, threads, precision label."""

OBLONG = "oblong"
"""Mode of a curve of matrix products with three edges; its plateaus name the `shapes` of its points."""


def rate_unit(inputs: str) -> str:
    """FLOP/s, or OP/s where the type of the inputs is an integer one."""
    return "OP/s" if inputs.lower().startswith("int") else "FLOP/s"


def curves(
    points: Iterable[Pooled], ceilings: Sequence[Ceiling], device: Mapping[str, Any] | None = None
) -> tuple[Curve, ...]:
    """Every sweep among `points`; an intensity sweep carries its fits, all carry their plateaus.

    device: what its system reports of its caches names the levels of a sweep over working sets.
    Those of latencies, links and the like are made by bench/fitting/swept.py.
    """
    groups: dict[tuple[str, Key], list[Pooled]] = {}
    for pooled in points:
        if _is_swept(pooled.point) and pooled.regime == "typical" and pooled.point.operands == "random":
            groups.setdefault((pooled.point.family, _key(pooled)), []).append(pooled)
    order = {"mix": 0, "cache": 1, "gemm": 2}
    keys = sorted(groups, key=lambda g: (order[g[0]], -g[1][2], g[1][3] != "fp64", g[1]))
    return tuple(_curve(kind, groups[kind, key], ceilings, device or {}) for kind, key in keys)


def _key(pooled: Pooled) -> Key:
    p = pooled.point
    shared = f"{p.access} shared" if p.level == "shared" else p.access  # memory of its own, beside the caches
    mode = {"mix": p.kernel.removeprefix("mix-"), "cache": shared}.get(p.family, p.variant)
    if "whole" in p.sizes:  # one set that all SMs read
        mode += " whole"
    if few := p.sizes.get("blocks_per_sm"):
        mode += f", {few} block{'s' * (few > 1)} an SM"
    if p.family == "gemm" and not is_square(p):
        mode = OBLONG
    return mode, p.scope, p.threads, p.precision.label


def _x(pooled: Pooled) -> float:
    """FLOP/byte of a mix, bytes of a working set, n of a matrix."""
    sizes = pooled.point.sizes
    if pooled.point.family == "mix":
        return pooled.flops / pooled.bytes if pooled.bytes else INFINITY
    if pooled.point.family == "gemm" and not is_square(pooled.point):
        return math.exp(sum(math.log(sizes[name]) for name in "mnk") / 3)
    return float(sizes["bytes"] if pooled.point.family == "cache" else sizes["n"])


def _setting(pooled: Pooled) -> object:
    """What candidates for one point of a curve share: x, and the array's size in an intensity sweep.

    One intensity at two sizes or in two windows is two points: their times together tell the overhead T0.
    """
    sizes = pooled.point.sizes
    size = (sizes["bytes"], sizes.get("window", 0)) if pooled.point.family == "mix" else 0
    shape = tuple(sizes.get(name, 0) for name in "mnk") if pooled.point.family == "gemm" else ()
    return f"{_x(pooled):.6g}", size, shape


def is_square(point: Point) -> bool:
    """Whether a matrix product has one edge, n."""
    return len({size for name, size in point.sizes.items() if name in "mnk"}) == 1


def _is_swept(point: Point) -> bool:
    """Whether a point belongs to a curve: no plateau of a cache."""
    if point.family == "gemm":
        return True
    return point.family in ("mix", "cache") and "plateau" not in point.sizes


def _shares(kind: str, candidates: Sequence[Pooled]) -> dict[int, float]:
    """Quantile of a round for each candidate, by position."""
    if kind != "mix":
        return dict.fromkeys(range(len(candidates)), P75 if kind == "gemm" else MEDIAN)
    rates = [c.estimate(MEDIAN).value for c in candidates]
    return {i: sweep_quantile(r / max(rates)) for i, r in enumerate(rates)}


def _winners(kind: str, candidates: Sequence[Pooled]) -> list[tuple[Pooled, float]]:
    """The fastest variant at each setting with its quantile, in rising x."""
    shares = _shares(kind, candidates)
    groups: dict[object, list[int]] = {}
    for i, candidate in enumerate(candidates):
        groups.setdefault(_setting(candidate), []).append(i)
    best = []
    for group in groups.values():
        share = max(shares[i] for i in group)
        best.append((winner([candidates[i] for i in group], share), share))
    return sorted(best, key=lambda pair: _x(pair[0]))


def _points(kind: str, candidates: Sequence[Pooled]) -> tuple[CurvePoint, ...]:
    best = _winners(kind, candidates)
    whole = whole_rounds([set(pooled.by_round) for pooled, _ in best])
    points = []
    for pooled, share in best:
        rates = pooled.rounds(share)
        estimate = interval(list(rates.values()))
        aligned = tuple(rates[n] for n in whole) if set(whole) <= set(rates) else ()
        amount = pooled.bytes if kind == "cache" else pooled.flops
        seconds = amount / estimate.value
        point = pooled.point
        points.append(
            CurvePoint(
                _x(pooled),
                estimate,
                pooled.flops,
                pooled.bytes,
                seconds,
                aligned,
                point.variant,
                swept.clock(pooled),
            )
        )
    return tuple(points)


def _curve(
    kind: str, candidates: Sequence[Pooled], ceilings: Sequence[Ceiling], device: Mapping[str, Any]
) -> Curve:
    point, mode = candidates[0].point, _key(candidates[0])[0]
    points = _points(kind, candidates)
    # GEMM's compulsory bytes are its traffic at no level, so a beta or ridge fitted to it would mean nothing.
    points, fits = fit_sweep(points) if kind == "mix" else (points, ())
    same = [c for c in ceilings if (c.scope, c.threads, c.regime) == (point.scope, point.threads, "typical")]
    plateaus = {"mix": _mix_plateaus, "cache": _cache_plateaus, "gemm": _gemm_plateaus}[kind]
    unit = "byte/s" if kind == "cache" else rate_unit(point.precision.inputs)
    beside = plateaus(mode, points, fits, [c for c in same if _of(c, kind, point.precision.inputs)])
    if kind == "cache" and point.level != "shared":
        rates = swept.passes([best for best, _ in _winners(kind, candidates)], MEDIAN)
        sharers = 1 if "whole" in point.sizes else point.threads  # one set for all, or one for each
        beside = {**beside, **swept.staircase([p.x for p in points], rates, device, sharers)}
    if mode == OBLONG:
        beside = {"shapes": [[c.point.sizes[name] for name in "mnk"] for c, _ in _winners(kind, candidates)]}
    return Curve(kind, mode, point.precision, point.scope, point.threads, unit, points, fits, beside)


def _of(ceiling: Ceiling, kind: str, inputs: str) -> bool:
    """Whether a ceiling belongs to the precision: bytes are bytes, so a mix takes any DRAM beta."""
    return ceiling.precision.inputs == inputs or (kind == "mix" and ceiling.quantity == "beta")


def _mix_plateaus(
    mode: str, points: Sequence[CurvePoint], fits: Sequence[Fit], same: Sequence[Ceiling]
) -> Mapping[str, Any]:
    """Dedicated pi and beta of this traffic mix, the fit's share of each, by what the corner overpromises."""
    pi = [c for c in same if c.quantity == "pi" and c.precision.unit == "vector"]
    access = MODES.get(mode.split(",")[0], mode)
    beta = [c for c in same if c.level == "DRAM" and c.access == access]
    beside: dict[str, Any] = {}
    for name, found in (("pi", pi), ("beta", beta)):
        if found:
            beside[name] = max(c.estimate.value for c in found)
    fit = next((f for f in fits if f.chosen), None)
    if fit:
        beside |= {
            f"fitted_{n}_share": getattr(fit, n).value / beside[n] for n in ("pi", "beta") if n in beside
        }
        ridge = fit.ridge.value
        corner = attainable(ridge, fit.pi.value, fit.beta.value)
        beside["corner_overpromise"] = corner / fitted_rate(ridge, fit) - 1
    return beside


def _cache_plateaus(
    mode: str, points: Sequence[CurvePoint], fits: Sequence[Fit], same: Sequence[Ceiling]
) -> Mapping[str, Any]:
    """The dedicated beta of each level, by its name."""
    return {c.level: c.estimate.value for c in same if c.kernel == f"cache-{mode}"}


def _gemm_plateaus(
    mode: str, points: Sequence[CurvePoint], fits: Sequence[Fit], same: Sequence[Ceiling]
) -> Mapping[str, Any]:
    """The vector pi beside the library's best, and the size that reaches half of that best."""
    best = max(p.estimate.value for p in points)
    beside: dict[str, Any] = {"library_pi": best}
    pi = [c.estimate.value for c in same if c.quantity == "pi" and c.precision.unit == "vector"]
    if pi:
        beside["pi"] = max(pi)
    half = next((p.x for p in points if p.estimate.value >= best / 2), None)
    return beside if half is None else beside | {"half_rate_n": half}
