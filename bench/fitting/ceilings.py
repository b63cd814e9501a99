"""Samples to the profile: ceilings with intervals and verdicts, curves, placements and what is absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from bench import triage
from bench.fitting import capacity, checks, hierarchy, in_theory, normal, recorded, swept
from bench.fitting.curves import curves, is_square, rate_unit
from bench.fitting.intervals import CAP_CACHE, CAP_PI, MEDIAN, P75, memory_cap
from bench.fitting.pooled import Pooled, pool, usable, winner, work
from bench.profile.records import SCHEMA_VERSION, Ceiling, Placement, Point, Profile, Sample
from bench.workloads.roof import REGIMES

PI_FAMILIES, BETA_FAMILIES = ("fma", "tensor", "gemm"), ("stream", "cache")
QUANTITIES = ("pi", "beta", "latency", "t0", "capacity")
UNITS = ("vector", "matrix", "library")
TYPES = ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "int32", "int8")

LEVEL_ORDER = ("L1", "L2", "L3", "DRAM")

NEAR = 0.01
"""How far a ceiling may be from the rates of those repetitions that it stands for; else their nearest quarter
does."""

ENERGY_SECONDS = 1.0
"""Repetitions of a sample must last so long together that its power means anything."""


def _is_textbook(point: Point) -> bool:
    """The readable loop that is shown beside the ceilings and never is one."""
    return point.kernel.endswith("-naive")


def _is_ceiling(point: Point) -> bool:
    if point.family == "cache":
        return "plateau" in point.sizes
    doubled = "window" in point.sizes  # for the self-checks: bench/planning/doublings.py
    return point.family in PI_FAMILIES + BETA_FAMILIES and not _is_textbook(point) and not doubled


def _cap(point: Point, state: str) -> float:
    if point.family in PI_FAMILIES:
        return CAP_PI
    return CAP_CACHE if point.level[:1] == "L" and point.level[1:].isdigit() else memory_cap(state)


def _group(pooled: Pooled) -> tuple[object, ...]:
    """What makes two points the same ceiling: all but variant and sizes."""
    p = pooled.point
    return p.precision, p.level, p.access, p.store, p.scope, p.threads, p.operands, p.kernel, pooled.regime


def ceilings(
    points: Sequence[Pooled], device: Mapping[str, Any], samples: Sequence[Sample] = ()
) -> tuple[Ceiling, ...]:
    """One ceiling for every kernel, precision, level, store, scope and regime: its fastest variant.

    device: its state, in words joined by "-", decides the cap of a memory bandwidth; its facts say
    what its units could do in theory.  samples: the raw ones, for the self-checks.
    """
    groups: dict[tuple[object, ...], list[Pooled]] = {}
    for pooled in points:
        if _is_ceiling(pooled.point):
            groups.setdefault(_group(pooled), []).append(pooled)
    found = []
    for candidates in groups.values():
        compute = candidates[0].point.family in PI_FAMILIES
        best = winner(candidates, P75 if compute else MEDIAN)
        ceiling = _ceiling(best, compute, _cap(best.point, str(device.get("state", ""))), device)
        found.append((ceiling, best))
    made = (normal.judged(c, device) for c in checks.checked(found, points, device, samples))
    return tuple(sorted(made, key=_order))


def _order(c: Ceiling) -> tuple[object, ...]:
    """Report order: pi, beta, latency, ...; vector, matrix, library; wide types first, near levels first."""
    inputs = c.precision.inputs
    kind_of = TYPES.index(inputs) if inputs in TYPES else len(TYPES)
    level = LEVEL_ORDER.index(c.level) if c.level in LEVEL_ORDER else len(LEVEL_ORDER)
    regime = REGIMES.index(c.regime) if c.regime in REGIMES else len(REGIMES)
    kind = (QUANTITIES.index(c.quantity), UNITS.index(c.precision.unit), regime, level)
    of_level = (c.level, c.access, c.variant) if c.quantity not in ("pi", "beta") else ()
    return (*kind, kind_of, c.precision.label, c.kernel, c.store, -c.threads, c.scope, c.operands, *of_level)


def _ceiling(best: Pooled, compute: bool, cap: float, device: Mapping[str, Any]) -> Ceiling:
    point = best.point
    estimate = best.estimate(P75 if compute else MEDIAN)
    clock = _clock(best, estimate.value)
    per_clock = estimate.value / clock / point.threads if clock else None
    return recorded.record(
        "pi" if compute else "beta",
        best,
        estimate,
        best.fastest,
        rate_unit(point.precision.inputs) if compute else "byte/s",
        cap,
        variant=_named(point),
        statistic="p75" if compute else "median",
        hidden_traffic=median(float(s.facts.get("hidden_traffic", 0.0)) for s in best.samples),
        clock_hz=clock,
        per_clock_per_unit=per_clock,
        share_at_clock=in_theory.share(point, per_clock, estimate.value, device) if clock else None,
        energy_j=_energy(best, estimate.value),
    )


def _clock(best: Pooled, value: float) -> float | None:
    """Clock of those clean repetitions that `value` stands for, None where telemetry saw none.

    Where power or heat lowers it in the middle of a visit, the fast repetitions, which a p75 is made of, and
    the slow ones ran at different clocks: over that of all of them a rate would exceed what is possible.
    """
    seen: list[tuple[float, float]] = []
    for sample in best.samples:
        r = sample.repetitions
        if len(r.clock_hz) == len(r):
            rows = zip(r.seconds, r.clock_hz, r.clean, strict=True)
            seen += ((abs(work(sample) / s / value - 1), c) for s, c, ok in rows if ok and s > 0 and c > 0)
    seen.sort()
    near = [clock for away, clock in seen if away <= NEAR] or [c for _, c in seen[: -(-len(seen) // 4)]]
    return median(near) if near else None


def _named(point: Point) -> str:
    """The variant, for a matrix product with its size: each size is a candidate of its own."""
    if point.family != "gemm":
        return point.variant
    if is_square(point):
        return f"{point.variant} n={point.sizes['n']}"
    return f"{point.variant} {'x'.join(str(point.sizes[name]) for name in 'mnk')}"


def _energy(best: Pooled, rate: float) -> float | None:
    """J per FLOP or byte from the power of those samples that ran for at least a second, else None.

    Power meters of boards average over up to a second: under a shorter load they show something else.
    """
    long = [s for s in best.samples if sum(s.repetitions.seconds) >= ENERGY_SECONDS]
    metered = [
        float(s.facts["energy_j"]) / float(s.facts["energy_seconds"])
        for s in long
        if s.facts.get("energy_j") and s.facts.get("energy_seconds")
    ]
    power = median(metered) if metered else _median(replace(best, samples=tuple(long)), "power_w")
    return power / rate if power else None


def _median(best: Pooled, field: str) -> float | None:
    """Median over the clean repetitions of what telemetry saw, None where it saw nothing."""
    seen = []
    for sample in best.samples:
        values = getattr(sample.repetitions, field)
        if len(values) == len(sample.repetitions):
            seen += [v for v, ok in zip(values, sample.repetitions.clean, strict=True) if ok and v > 0]
    return median(seen) if seen else None


def naive(points: Iterable[Pooled], found: Sequence[Ceiling]) -> dict[str, Any]:
    """Textbook loops by precision label: rate (FLOP/s), variant, threads, ratio to pi of the same threads."""
    rows: dict[str, Any] = {}
    for pooled in points:
        point = pooled.point
        if not _is_textbook(point):
            continue
        label, value = point.precision.label, pooled.estimate(P75).value
        same = [
            c.estimate.value
            for c in found
            if (c.quantity, c.precision, c.threads) == ("pi", point.precision, point.threads)
            and c.regime == pooled.regime
        ]
        row = {"rate": value, "variant": point.variant, "threads": point.threads, "scope": point.scope}
        row["ratio"] = value / max(same) if same else None
        if label not in rows or rows[label]["rate"] < value:
            rows[label] = row
    return rows


def _described(point: Point) -> str:
    """A point in words: kernel, precision, level, store, threads."""
    store = "non-temporal" if point.store == "nontemporal" else ""
    where = f"{point.scope}/{point.threads}"
    return " ".join(filter(None, (point.kernel, point.precision.label, point.level, store, where)))


def skipped(samples: Sequence[Sample]) -> tuple[dict[str, str], ...]:
    """One row for everything that was skipped, with its reason; the same words appear once.

    A form that the pilot could not try is no gap where another form was measured.
    """
    good = {_described(s.point) for s in samples if usable(s)}
    gaps = [(_described(s.point), s.reason) for s in samples if s.status == "skipped" and s.round > 0]
    tried = [(_described(s.point), s.reason) for s in samples if s.status == "skipped" and s.round == 0]
    found = dict.fromkeys([*(row for row in tried if row[0] not in good), *gaps])
    return tuple({"what": what, "reason": reason} for what, reason in found)


def failed(samples: Sequence[Sample]) -> tuple[dict[str, Any], ...]:
    """Every sample that failed or whose times are not positive: what, round and reason."""
    rows = []
    for sample in samples:
        empty = sample.status == "ok" and not any(s > 0 for s in sample.repetitions.seconds)
        if sample.status == "failed" or empty:
            reason = sample.reason or "no repetition took a positive time"
            rows.append({"what": _described(sample.point), "round": sample.round, "reason": reason})
    return tuple(rows)


def not_measured(header: Mapping[str, Any], samples: Sequence[Sample]) -> tuple[str, ...]:
    """In words: what the run left out, planned points without any sample, points that always failed."""
    texts = dict.fromkeys(str(text) for text in header.get("not_measured", ()))
    rounds = [s for s in samples if s.round > 0 and s.regime != "pilot"]
    planned = header.get("plan", {}).get("points", ())
    seen = {s.point.key for s in rounds}
    if not isinstance(planned, int):
        texts |= dict.fromkeys(f"{key}: planned, not reached" for key in planned if key not in seen)
    good = {s.point.key for s in rounds if usable(s)}
    rows = failed([s for s in rounds if s.point.key not in good])
    texts |= dict.fromkeys(f"{row['what']}: failed: {row['reason']}" for row in rows)
    return tuple(texts)


def _placements(
    samples: Sequence[Sample], found: Sequence[Ceiling], sweeps: Sequence[Any]
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Workloads on the roof, and in words those that no roof was measured for."""
    timed = [s for s in samples if s.point.family == "workload" and usable(s)]
    works = [s for s in timed if all(seconds > 0 for seconds in s.repetitions.seconds)]
    broken = tuple(
        f"workload {s.point.kernel}, round {s.round}: a repetition took no time, so it is not placed"
        for s in timed
        if s not in works
    )
    if not works:
        return (), broken
    from bench.workloads import place

    return place.place(works, found, sweeps), (*broken, *place.unplaced(works, found))


def _facts(header: Mapping[str, Any], samples: Sequence[Sample], found: Sequence[Ceiling]) -> dict[str, Any]:
    verdicts = [c.converged for c in found]
    return {
        "device": dict(header.get("device", {})),
        "plan": {k: v for k, v in header.get("plan", {}).items() if k != "points" or isinstance(v, int)},
        "rounds": len({s.round for s in samples if usable(s)}),
        "verdicts": {
            "converged": verdicts.count(True),
            "did_not_converge": verdicts.count(False),
            "within_this_process": verdicts.count(None),
        },
        "failed": list(failed(samples)),
        "libraries": sorted({_library(s) for s in samples if "library" in s.facts}),
    } | ({"cross_check": header["cross_check"]} if "cross_check" in header else {})


def _library(sample: Sample) -> str:
    set_by = sample.facts.get("library_set_by", "")
    return f"{sample.facts['library']} ({set_by})" if set_by else str(sample.facts["library"])


def derive(
    header: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]], samples: Sequence[Sample]
) -> Profile:
    """Everything that follows from the raw samples of one run; nothing is measured or read here.

    header: identity, provenance, device (state, kind), plan, not_measured.
    """
    device = header.get("device", {})
    points = pool(samples)
    found = ceilings(points, device, samples)
    sweeps, wider = curves(points, found, device), swept.curves(points, device)
    beside = hierarchy.ceilings(points, wider, sweeps, device)
    beside += capacity.memory(device, conditions, samples)
    found = tuple(sorted((*found, *beside), key=_order))
    sweeps = (*sweeps, *(curve for curve, _ in wider))
    placements, unplaced = _placements(samples, found, sweeps)
    profile = Profile(
        schema_version=SCHEMA_VERSION,
        identity=dict(header.get("identity", {})),
        provenance=dict(header.get("provenance", {})),
        conditions=tuple(dict(c) for c in conditions),
        simulated=bool(header.get("simulated", device.get("kind") == "simulated")),
        ceilings=found,
        curves=sweeps,
        placements=placements,
        skipped=skipped(samples),
        not_measured=(*not_measured(header, samples), *unplaced),
        facts=_facts(header, samples, found) | {"naive": naive(points, found)},
    )
    findings = triage.plain(triage.diagnose(profile, samples))
    return replace(profile, facts={**profile.facts, "findings": findings})
