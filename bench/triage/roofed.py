"""Why a workload lies below half of its roof: what of its own samples and of its other sizes says so.

    launch-bound       its start takes most of its time, by the T0 of what runs it
    latency            it lasts only a few starts; or each call loses a fixed time, by its two sizes
    wrong-precision    it has the rate of a wider type
    library            it is a product of a library whose measured ceiling is little higher
    cold-start         its executions began after pauses, none in a row
    instructions       it runs no faster with its operands in a cache: no memory binds it, nor the FLOP;
                       or it gains little from one, and stands near its roof from DRAM

Each hypothesis gives a Reason, or in words why it does not hold, or "" where it cannot apply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median

from bench.profile.records import Placement, Sample
from bench.report.units import duration, percent, si
from bench.triage.case import Case
from bench.triage.finding import Evidence
from bench.workloads.roof import MOSTLY, started
from kernels.launch import BY_BLAS

LAUNCHES = 5.0
"""Times T0 below which an execution is too short to fill a device."""

NO_FASTER = 1.25
"""Rate from a cache over that from DRAM, either way, within which the level of the operands does not matter:
where the cached run is far slower each call costs something, and what memory does cannot be told."""

LOST, SHORT = 0.35, 0.25
"""Share of a call that its two sizes do not explain by their rate, from which on the call itself costs; and
the work of the short one over that of the long one at most."""

PAUSE, ALONE = 0.5e-3, 0.5
"""Seconds between two executions that are not in a row, and the share of them from which on few are."""

AT_ROOF = 0.6
"""Share of its roof from which on a workload is bound by the memory that its roof is of."""

AS_LIBRARY = 0.7
"""Share of the library's ceiling from which on a product of it is about as fast as the library is."""

OF_PI = 0.5
"""Share of π from which on the arithmetic that is counted may bind after all."""


@dataclass(frozen=True)
class Reason:
    """Why one workload is slow: `shared` is what all of its cause have in common, `proof` its own figures."""

    cause: str
    shared: str
    proof: str
    evidence: Evidence = field(default_factory=dict)


def reason(case: Case, p: Placement) -> Reason | list[str]:
    """The first hypothesis that holds, else what each test said."""
    tested: list[str] = []
    for hypothesis in (_start, _wider, _library, _pauses, _each_call, _instructions):
        said = hypothesis(case, p)
        if isinstance(said, Reason):
            return said
        tested += [said] if said else []
    turns = p.efficiency.value + (1 - p.idle) + (start_of(case, p) or 0.0) / p.seconds.value
    return [*tested, f"bytes, FLOP and start in turn ({percent(turns)} of its time)"]


def start_of(case: Case, p: Placement) -> float | None:
    """T0 (s) of what runs it; on other devices that of an empty launch, or of the sweep's fit."""
    own = started(p.implementation, p.threads, case.profile.ceilings)
    if own is not None:
        return own.value
    if case.device.get("kind") == "cpu":
        return None
    empty = [c for c in case.profile.ceilings if (c.quantity, c.kernel) == ("t0", "empty")]
    fits = [f.t0 for c in case.profile.curves if c.threads == p.threads for f in c.fits if f.chosen]
    return min((c.estimate.value for c in empty), default=max(fits, default=0.0))


def _start(case: Case, p: Placement) -> Reason | str:
    t0, seconds = start_of(case, p), p.seconds.value
    if t0 is None:
        return f"start (T₀ of {p.implementation} was not measured)"
    facts = {"t0_seconds": t0, "seconds": seconds}
    told = f"{duration(t0)} of {duration(seconds)}"
    if t0 >= MOSTLY * seconds:
        return Reason("launch-bound", "the launch alone takes most of the time", told, facts)
    if p.binds == "launch":
        return Reason("launch-bound", "the launch takes longer than its work would on the roof", told, facts)
    if t0 and seconds < LAUNCHES * t0:
        times = f"{seconds / t0:.1f} launches of {duration(t0)}"
        return Reason("latency", "one execution is too short to fill the device", times, facts)
    return f"start ({told})"


def _wider(case: Case, p: Placement) -> Reason | str:
    """A product at the pi of a wider type: it was computed in that one."""
    if p.binds != "compute" or p.precision.inputs == "fp64":
        return ""
    wide = "fp64" if p.precision.inputs == "fp32" else "fp32"
    roofs = [c.estimate.value for c in case.peaks if c.precision.inputs == wide and c.threads == p.threads]
    top = max(roofs, default=0.0)
    if not top or not 0.8 <= p.achieved.value / top <= 1.02:
        return f"wider precision ({f'{wide} gives {si(top, p.unit)}' if top else f'no π {wide}'})"
    told = f"{percent(p.achieved.value / top)} of π {wide}, {si(top, p.unit)}"
    return Reason("wrong-precision", "it has the rate of a wider type", told, {"wide_pi": top})


def _library(case: Case, p: Placement) -> Reason | str:
    """A product of a library that was hardly faster anywhere in the run."""
    if p.binds == "memory" or not (p.implementation == BY_BLAS or p.precision.unit == "library"):
        return ""
    own = [c for c in case.peaks if c.precision.unit == "library" and c.threads == p.threads]
    rates = [c.estimate.value for c in own if c.precision.inputs == p.precision.inputs]
    if not rates or p.achieved.value < AS_LIBRARY * max(rates):
        return f"library ({f'its ceiling is {si(max(rates), p.unit)}' if rates else 'no ceiling of it'})"
    told = f"{si(p.achieved.value, p.unit)} of {si(max(rates), p.unit)}"
    shared = "the library itself was measured at about that rate"
    return Reason("library", shared, told, {"library_pi": max(rates)})


def _samples(case: Case, p: Placement) -> list[Sample]:
    """Timed samples of a placement."""
    return [s for s in case.timed if s.point.family == "workload" and _same(s, p)]


def _same(s: Sample, p: Placement) -> bool:
    point = s.point
    return (point.kernel, point.level or "DRAM", point.threads, point.precision, point.variant) == (
        *(p.name, p.level, p.threads, p.precision, p.implementation),
    )


def _after(sample: Sample) -> list[tuple[float, bool]]:
    """(s, whether it began after a pause) of every repetition; the first of a sample did."""
    r = sample.repetitions
    if len(r.start) != len(r):
        return []
    ends = [a + s for a, s in zip(r.start, r.seconds, strict=True)]
    gaps = [PAUSE, *(b - e for b, e in zip(r.start[1:], ends, strict=False))]
    return [(s, gap >= PAUSE) for s, gap in zip(r.seconds, gaps, strict=True)]


def _pauses(case: Case, p: Placement) -> Reason | str:
    """Executions one by one, with pauses far longer than they last: the first after one is slow."""
    rows = [row for s in _samples(case, p) for row in _after(s)]
    alone = [s for s, paused in rows if paused]
    if not rows or p.seconds.value > PAUSE:
        return ""
    if len(alone) < ALONE * len(rows):
        return f"pauses ({len(alone)} of {len(rows)} executions began after one)"
    others = [ratio for s in case.timed if _like(s, p) and (ratio := _slower(s))]
    if not others or max(others) < NO_FASTER:
        return f"pauses (all others of {p.level} lose nothing by one)"
    shared = (
        "executions began after pauses, not in a row, after which others of that level take up to "
        f"{max(others):.1f} times as long"
    )
    facts = {"alone": float(len(alone)), "executions": float(len(rows)), "most_loss": max(others)}
    return Reason("cold-start", shared, f"{len(alone)} of {len(rows)}", facts)


def _like(s: Sample, p: Placement) -> bool:
    point = s.point
    return (point.family, point.level, point.variant) == ("workload", p.level, p.implementation)


def _slower(sample: Sample) -> float:
    """Executions after a pause over those in a row, by their medians, 0 without five in a row."""
    rows = _after(sample)
    alone, row = [s for s, paused in rows if paused], [s for s, paused in rows if not paused]
    return median(alone) / median(row) if alone and len(row) >= 5 else 0.0


def _twin(case: Case, p: Placement) -> Placement | None:
    """The same workload with its operands at another level: DRAM's for a cache, the fastest for DRAM."""
    same = [
        q
        for q in case.profile.placements
        if (q.name, q.precision, q.threads, q.implementation)
        == (p.name, p.precision, p.threads, p.implementation)
    ]
    others = [q for q in same if (q.level == "DRAM") != (p.level == "DRAM")]
    return max(others, key=lambda q: q.achieved.value, default=None)


def _each_call(case: Case, p: Placement) -> Reason | str:
    """What a short execution takes beyond its work at the rate of a long one."""
    twin = _twin(case, p)
    work = p.flops or p.bytes
    if twin is None or work > SHORT * (twin.flops or twin.bytes):
        return ""
    at_rate = work / twin.achieved.value
    lost = p.seconds.value - at_rate
    told = f"{duration(at_rate)} of its {duration(p.seconds.value)} are work at that rate"
    if lost < LOST * p.seconds.value:
        return f"call cost ({told})"
    shared = "short executions lose time that a long one of the same code does not"
    proof = f"a long one does {si(twin.achieved.value, p.unit)}: {told}"
    return Reason("latency", shared, proof, {"lost_seconds": lost, "long_rate": twin.achieved.value})


def _instructions(case: Case, p: Placement) -> Reason | str:
    """As fast from DRAM as from a cache, and far from π: neither memory nor the FLOP counted bind it."""
    twin = _twin(case, p)
    if twin is None:
        return "pace (not measured at another level)"
    near, far = (twin, p) if p.level == "DRAM" else (p, twin)
    gain = near.achieved.value / far.achieved.value
    roofs = [c.estimate.value for c in case.peaks if c.precision.inputs == p.precision.inputs and p.flops]
    share = p.achieved.value / max(roofs, default=p.achieved.value)
    fast, slow = si(near.achieved.value, p.unit).split(), si(far.achieved.value, p.unit).split()
    unit = "" if fast[-1] == slow[-1] else f" {fast[-1]}"
    rates = f"{near.level} {fast[0]}{unit}, DRAM {' '.join(slow)}"
    freed = p is near and far.efficiency.value >= AT_ROOF and gain > NO_FASTER
    if not (freed or 1 / NO_FASTER <= gain <= NO_FASTER) or share > OF_PI:
        return f"pace ({rates}; {percent(share)} of π)"
    shared = "no faster from a cache than from DRAM, so not memory but its own instructions bind"
    if freed:
        shared = "near the roof from DRAM, little faster from a cache: there the instructions bind"
    facts: dict[str, float | str] = {"cache_over_dram": gain, "share_of_pi": share}
    if as_one := re.search(r"(\w[\w ]*?) \(?count(?:ed)? 1\)?", p.source):
        facts["counted_as_one_flop"] = as_one[1]
    return Reason("instructions", shared, rates, facts)
