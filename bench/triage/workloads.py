"""Why a workload lies above its roof, which is not possible, or below half of it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.profile.records import Ceiling, Placement
from bench.profile.roofline import attainable, fitted_rate
from bench.report.units import capacity, duration, percent, si
from bench.triage.case import Case
from bench.triage.finding import Finding, Number, about, unexplained

ABOVE, BELOW = 1.03, 0.45
"""Achieved over attainable beyond which a reason is told: half, less what a roof at a read share between two
measured ones may be off."""

LAUNCHES = 5.0
"""Times T0 below which an execution is too short to fill a device."""

ENOUGH = 2.0
"""Operands over last-level cache below which they stay there from one execution to the next."""


OF_MEMORY = ("cache-resident", "byte-count", "memory-clock")
OF_UNITS = ("folded-chain", "dual-issue", "narrow-probe", "partition", "tf32")
"""Causes that make the roof itself wrong, for workloads that memory or that the units bind."""


def placed(case: Case, others: Sequence[Finding]) -> list[Finding]:
    """Findings of the placements that need one; `others` are those of the device itself.

    None of a workload whose roof is wrong: what is wrong with that is told already.
    """
    causes = {f.cause for f in others}
    memory, units = causes & set(OF_MEMORY), causes & {*OF_UNITS, "cache-resident", "byte-count"}
    told = []
    for p in case.profile.placements:
        if memory if p.binds == "memory" else units if p.binds == "compute" else memory | units:
            continue
        low, high = p.efficiency.low, p.efficiency.high
        number = Number(_name(p), p.achieved.value, p.attainable.value, p.unit, "its roof")
        if p.efficiency.value > ABOVE and (low is None or low > 1.0) and not _between(case, p):
            told.append(_above(case, p, number, others))
        elif max(p.efficiency.value, high or 0.0) < BELOW * _rounded(case, p):
            told.append(_below(case, p, number, others))
    return told


def _between(case: Case, p: Placement) -> bool:
    """Whether DRAM was seen to move as much by another access: then its roof is too low, not it too fast."""
    same = [c for c in case.ceilings if c.quantity == "beta" and (c.level, c.threads) == (p.level, p.threads)]
    best = max((c.estimate.value * (1 + c.hidden_traffic) for c in same), default=0.0)
    return p.binds != "compute" and p.bytes / p.seconds.value <= best


def _rounded(case: Case, p: Placement) -> float:
    """What the fitted curve delivers at an intensity, over what the sharp corner promises."""
    fit = case.fit("read-only") or case.fit("in-place")
    if fit is None or not p.flops or not p.bytes:
        return 1.0
    return min(1.0, fitted_rate(p.intensity, fit) / attainable(p.intensity, fit.pi.value, fit.beta.value))


def _name(p: Placement) -> str:
    return f"{p.name} {p.precision.label}" + (f" {p.level}" if p.level not in ("", "DRAM") else "")


def _above(case: Case, p: Placement, number: Number, others: Sequence[Finding]) -> Finding:
    """Above roof: not possible, so the count, the timing or the level is another."""
    resident = _resident(case, p, number)
    if isinstance(resident, Finding):
        return resident
    level = _level(case, p, number)
    if isinstance(level, Finding):
        return level
    library = _matrix(case, p, number)
    if isinstance(library, Finding):
        return library
    causes = {f.cause for f in others}
    unsteady = "the roof moved (no clock fell and nobody else was seen)"
    for cause in ("throttling", "noisy-neighbour"):
        if cause in causes:
            because = "above roof: the roof itself was measured while the device was slower, as told above"
            return about(number, cause, because)
    return unexplained(
        number,
        ["above roof: not possible, check the count or the timing", resident, level, library, unsteady],
    )


def _resident(case: Case, p: Placement, number: Number) -> Finding | str:
    cache = case.cache_bytes
    if p.binds == "compute" or not cache:
        return "cache-resident (memory does not bind it)" if cache else "cache-resident (no cache size known)"
    if p.bytes >= ENOUGH * cache:
        return f"cache-resident (operands of {capacity(p.bytes)}, {case.last_level} {capacity(cache)})"
    because = (
        f"above roof: its operands of {capacity(p.bytes)} stay in the {case.last_level} of {capacity(cache)}"
        f", so {p.level} is not its roof"
    )
    return about(number, "cache-resident", because, operand_bytes=p.bytes, cache_bytes=cache)


def _level(case: Case, p: Placement, number: Number) -> Finding | str:
    """The roof of a nearer level holds it: then part of the declared bytes never reached this one."""
    if p.binds == "compute" or not p.bytes:
        return "level (memory does not bind it)"
    near = [c for c in case.ceilings if _near(c, p)]
    rate = p.bytes / p.seconds.value
    above = [c for c in near if c.estimate.value >= rate]
    if not above:
        return f"level (no cache was measured to move {si(rate, 'byte/s')})"
    best = min(above, key=lambda c: c.estimate.value)
    because = (
        f"above roof: its bytes move at {si(rate, 'byte/s')}, which only the {best.level} can "
        f"({si(best.estimate.value, 'byte/s')}): fewer bytes than declared reach {p.level}"
    )
    return about(number, "byte-count", because, rate=rate, level=best.level)


def _near(c: Ceiling, p: Placement) -> bool:
    return c.quantity == "beta" and c.level not in ("", p.level) and c.threads == p.threads


def _matrix(case: Case, p: Placement, number: Number) -> Finding | str:
    """A product above the vector roof that the matrix units of another mode allow."""
    if p.binds != "compute" or p.precision.inputs not in ("fp32", "fp64"):
        return "other units (not a product of vector units)"
    faster = [
        c for c in case.peaks if c.precision.inputs == p.precision.inputs and c.precision.unit == "matrix"
    ]
    if not faster:
        return "other units (none measured)"
    best = max(faster, key=lambda c: c.estimate.value)
    if p.achieved.value > best.estimate.value:
        return f"other units ({best.precision.label} gives {si(best.estimate.value, best.unit)})"
    because = (
        f"above roof: {best.precision.label} gives {si(best.estimate.value, best.unit)}, so it ran there"
    )
    cause = "tf32" if best.precision.mode == "tf32" else "wrong-precision"
    return about(number, cause, because)


def _below(case: Case, p: Placement, number: Number, others: Sequence[Finding]) -> Finding:
    """Far below: the launch, the latency, another precision's roof, or a library's own rate."""
    t0 = _t0(case, p)
    if p.binds == "launch":
        because = f"of its {duration(p.seconds.value)} the launch alone takes {duration(t0)}"
        return about(number, "launch-bound", because, t0_seconds=t0, seconds=p.seconds.value)
    if t0 and p.seconds.value < LAUNCHES * t0:
        because = (
            f"its {duration(p.seconds.value)} are only {p.seconds.value / t0:.1f} launches of {duration(t0)}"
        )
        return about(number, "latency", because, t0_seconds=t0, seconds=p.seconds.value)
    tested = [
        f"launch-bound (T₀ {duration(t0)} of {duration(p.seconds.value)})",
        f"latency ({duration(p.seconds.value)} are long against T₀)",
    ]
    wider = _wider(case, p, number)
    if isinstance(wider, Finding):
        return wider
    cut = [f"{f.cause} ({f.subject})" for f in others if f.cause in ("noisy-neighbour", "throttling")]
    told = ", as seen above and no reason for a factor of two" if cut else ""
    return unexplained(
        number, [*tested, wider, f"other tenants and clocks ({', '.join(cut) or 'none seen'}{told})"]
    )


def _t0(case: Case, p: Placement) -> float:
    measured = [c.estimate.value for c in case.profile.ceilings if c.quantity == "t0"]
    fits = [f.t0 for c in case.profile.curves if c.threads == p.threads for f in c.fits if f.chosen]
    return min(measured) if measured else max(fits, default=0.0)


def _wider(case: Case, p: Placement, number: Number) -> Finding | str:
    """A product at the pi of a wider type: it was computed in that one."""
    if p.binds != "compute" or p.precision.inputs == "fp64":
        return f"wrong precision ({'memory binds it' if p.binds != 'compute' else 'fp64 is the widest'})"
    wide = "fp64" if p.precision.inputs == "fp32" else "fp32"
    roofs = [c.estimate.value for c in case.peaks if c.precision.inputs == wide and c.threads == p.threads]
    top = max(roofs, default=0.0)
    if not top or not 0.8 <= p.achieved.value / top <= 1.02:
        return (
            f"wrong precision ({wide} gives {si(top, p.unit)})" if top else f"wrong precision (no π {wide})"
        )
    share = percent(p.achieved.value / top)
    because = f"it does {share} of π {wide} ({si(top, p.unit)}): it may be computed in {wide}"
    return about(number, "wrong-precision", because, wide_pi=top)
