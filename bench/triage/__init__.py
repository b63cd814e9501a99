"""Triage: a number that cannot be, is far below, or disagrees, diagnosed by testing the hypotheses in turn.

    clock of the measurement   timing       zero, coarse, constant, overlapping, off by a factor; wrong stream
    what was not measured      failures     hang, out of memory, missing precision
    start of a repetition      starting     an overhead beside which comparisons say nothing
    clock of the device        clocks       throttling, power or thermal cap, stuck
    who else was there         tenancy      neighbour, wrong device, slice, pageable buffers
    what was counted           counting, siblings, sweeps
                                            bytes by formula and by loops alike, steps inside a sweep
    memory, arithmetic         memory, compute
    code of a library          library
    figures of the device      datasheet    also for bare numbers of others: `explain`
    workloads on the roof      workloads, roofed

A clock that cannot be believed ends the matter: no rate is judged by it. Nothing here knows what a simulated
device truly is; it sees what the backends return.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from bench.profile.records import Profile, Sample
from bench.triage import (
    clocks,
    compute,
    counting,
    datasheet,
    failures,
    library,
    memory,
    siblings,
    starting,
    sweeps,
    tenancy,
    timing,
    workloads,
)
from bench.triage.case import Case
from bench.triage.datasheet import Context as Context
from bench.triage.datasheet import explain as explain
from bench.triage.finding import CAUSES as CAUSES
from bench.triage.finding import Finding as Finding
from bench.triage.finding import merged, ordered

FELL = ("throttling", "power-cap", "thermal-cap")
"""Causes by which repetitions are slow without a neighbour."""


UNSTEADY = ("cache-resident", "byte-count", "folded-chain", "sweep-step", "narrow-probe", "unexplained")

SYMPTOMS = {
    **dict.fromkeys(("throttling", "stuck-clock", "thermal-cap", "power-cap"), UNSTEADY),
    **dict.fromkeys(("noisy-neighbour", "cpu-quota"), UNSTEADY),
    "sweep-step": ("narrow-probe",),
    "byte-count": ("narrow-probe", "unexplained"),
    "cache-resident": ("byte-count", "narrow-probe"),
}
"""What follows from a cause, where figures are compared with each other: of a device that was not the same
all along, or was not as fast as it is, two loops differ although both count what they do."""

DIRECT = {"array_bytes", "formula"}
"""Evidence that stands by itself: sizes and formulas do not change with clocks and neighbours."""


def diagnose(profile: Profile, samples: Iterable[Sample]) -> tuple[Finding, ...]:
    """What is wrong with a profile, in the order of CAUSES; () for a healthy one.

    profile: as derived from `samples`, all of one run
    """
    case = Case(profile, tuple(samples))
    told = [*failures.lost(case), *failures.missing(case)]
    broken = timing.timer(case)
    if broken is not None:
        return ordered([*told, broken])
    return ordered([*told, *_rates(case)])


def _rates(case: Case) -> list[Finding]:
    """Findings that believe the clock of the measurement."""
    told = clocks.clock(case)
    fell = any(f.cause in FELL for f in told)
    told += [f for f in (tenancy.neighbours(case, fell), tenancy.pageable(case)) if f]
    foreign = tenancy.wrong_device(case)
    figures = [foreign] if foreign else _figures(case)
    told += _without_symptoms(told, figures)
    slow = starting.overhead(case)
    if slow is not None:
        told = [slow, *(f for f in told if not _follows(slow, f))]
    return [*told, *workloads.placed(case, told)]


def _figures(case: Case) -> list[Finding]:
    """Findings about rates: what was counted, what was not the memory, what theory and datasheet say."""
    counts, steps, small = counting.counts(case), sweeps.findings(case.sweeps), siblings.resident(case)
    known = {f.subject for f in counts}
    if small is None:
        counts += [f for f in siblings.counted(case) if f.subject not in known]
    known = {f.subject for f in counts}
    bandwidths = memory.bandwidths(case, known) if small is None else []
    narrow = library.narrow(case)
    known = {subject for f in narrow for subject in f.subjects}
    peaks = [f for f in compute.peaks(case) if f.subject not in known]
    numbers = [*([small] if small else []), *bandwidths, *narrow, *peaks]
    seen = {f.subject for f in numbers}
    numbers += [f for f in datasheet.ceilings(case) if f.subject not in seen]
    return [*counts, *steps, *merged(numbers)]


def _without_symptoms(told: Iterable[Finding], figures: list[Finding]) -> list[Finding]:
    """The figures less those that follow from what is told already, or from another of them."""
    follow: set[str] = set()
    for one in (*told, *figures):
        follow.update(SYMPTOMS.get(one.cause, ()))
    return [f for f in figures if f.cause not in follow or DIRECT & set(f.evidence)]


def _follows(slow: Finding, figure: Finding) -> bool:
    """Whether a comparison of figures says no more than that starting a repetition takes its time."""
    return figure.cause in UNSTEADY and not DIRECT & set(figure.evidence) and starting.explains(slow, figure)


def plain(findings: Iterable[Finding]) -> list[Mapping[str, Any]]:
    """Findings as JSON values, for a profile's facts."""
    return [{**asdict(f), "evidence": dict(f.evidence), "subjects": list(f.subjects)} for f in findings]
