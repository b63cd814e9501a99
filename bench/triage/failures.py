"""What was not measured although it was tried: no answer, no memory, no such precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

from bench.profile.records import Point, Sample
from bench.report.units import capacity
from bench.triage.case import Case
from bench.triage.finding import Finding, found

SILENT = ("no answer within", "did not answer")
"""How a reason begins that the watchdog wrote."""

NO_MEMORY = "out of memory"
"""How the reason of a MemoryError begins."""

AT_ONCE = 4.0
"""Times what π alone takes that a first trial may last: two repetitions, by a library at half of π."""

TIMER = ("the timer returned", "clock of this device", "they cannot be used")
"""Words of a reason by which the suite refused a clock: not a failure of the point, but of the timer."""

UNIVERSAL = ("fp64", "fp32")
"""Precisions that every CPU and every GPU we know has."""


def lost(case: Case) -> list[Finding]:
    """One finding a kind of failure: what it struck, how often, and whether the rest was measured."""
    failed = [s for s in case.samples if s.status == "failed" and not any(w in s.reason for w in TIMER)]
    failed = [s for s in failed if not _too_large(case, s)]
    silent = [s for s in failed if s.reason.startswith(SILENT)]
    full = [s for s in failed if s.reason.startswith(NO_MEMORY)]
    gone = {id(s) for s in (*silent, *full, *_without_precision(case))}
    others = [s for s in failed if id(s) not in gone]
    return [*_hang(case, silent), *_memory(case, full), *_others(case, others)]


def _too_large(case: Case, sample: Sample) -> bool:
    """Whether a matrix product was ended that this device takes longer for than was waited: no hang."""
    p = sample.point
    same = (c for c in case.ceilings if c.quantity == "pi" and c.threads == p.threads)
    rates = [c.estimate.value for c in same if c.precision.inputs == p.precision.inputs]
    edges = [p.sizes[name] for name in "mnk" if name in p.sizes]
    waited = float(sample.facts.get("wall_seconds", 0.0))
    silent = p.family == "gemm" and sample.reason.startswith(SILENT)
    return silent and bool(rates) and len(edges) == 3 and 2 * prod(edges) / max(rates) > waited / AT_ONCE


def _hang(case: Case, failed: Sequence[Sample]) -> list[Finding]:
    if not failed:
        return []
    waited = max(float(s.facts.get("wall_seconds", 0.0)) for s in failed)
    sentence = (
        f"{_struck(failed)} gave no answer ({failed[0].reason}; {waited:.0f} s were waited): the watchdog "
        f"ended it and the run went on, {_rest(case, failed)}"
    )
    return [found("hang", _struck(failed), sentence, samples=float(len(failed)), waited_seconds=waited)]


def _memory(case: Case, failed: Sequence[Sample]) -> list[Finding]:
    if not failed:
        return []
    largest = max(s.point.sizes.get("bytes", 0) for s in failed)
    size = f" with arrays of {capacity(largest)}" if largest else ""
    total = float(case.device.get("memory_bytes") or 0)
    has = f" on a device of {capacity(total)}" if total else ""
    sentence = f"{_struck(failed)} found no memory{size}{has} ({failed[0].reason}), {_rest(case, failed)}"
    evidence = {"samples": float(len(failed)), "bytes": float(largest), "memory_bytes": total}
    return [found("out-of-memory", _struck(failed), sentence, **evidence)]


def _others(case: Case, failed: Sequence[Sample]) -> list[Finding]:
    """What failed for a reason of its own: told as it is."""
    told = []
    for reason, count in Counter(s.reason for s in failed).items():
        these = [s for s in failed if s.reason == reason]
        sentence = (
            f"{_struck(these)} failed ({reason}), {_rest(case, these)}; not explained; tested: no hang "
            "(it answered), no lack of memory, no missing precision (others of it were measured)"
        )
        told.append(found("unexplained", _struck(these), sentence, samples=float(count), reason=reason))
    return told


def _struck(samples: Iterable[Sample]) -> str:
    """What was struck, in words, at most three points by name."""
    names = list(dict.fromkeys(described(s.point) for s in samples))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def described(p: Point) -> str:
    """A point in words."""
    return " ".join(filter(None, (p.kernel, p.precision.label, p.level)))


def _rest(case: Case, failed: Sequence[Sample]) -> str:
    lost_keys = {s.point.key for s in failed}
    kept = {s.point.key for s in case.timed}
    again = len(lost_keys & kept)
    measured = f"{len(failed)} of {len(case.samples)} samples lost"
    return measured + (f", {again} of {len(lost_keys)} points measured in other rounds" if again else "")


def missing(case: Case) -> list[Finding]:
    """Precisions that the device was said to have and of which nothing could be measured, with the reason."""
    told = []
    for name, samples in _absent(case).items():
        reason = Counter(s.reason for s in samples).most_common(1)[0][0]
        sentence = (
            f"nothing in {name} could be measured ({reason}), {len(samples)} samples at "
            f"{len({s.point.key for s in samples})} points, although the device is described as having it"
        )
        told.append(found("missing-precision", name, sentence, samples=float(len(samples)), reason=reason))
    return told + [f for f in _described_without(case) if f.subject not in _absent(case)]


def _described_without(case: Case) -> list[Finding]:
    """fp64 or fp32 refused by the description itself: no device we know lacks them."""
    stated = case.device.get("precisions") or {}
    return [
        found(
            "missing-precision",
            name,
            f"nothing in {name} could be measured ({stated[name]})",
            reason=stated[name],
        )
        for name in UNIVERSAL
        if stated.get(name)
    ]


def _precision(sample: Sample) -> str:
    return sample.point.precision.mode or sample.point.precision.inputs


def _absent(case: Case) -> dict[str, list[Sample]]:
    """Skipped and failed samples of the precisions without any good one, less those known to be absent.

    Under "PRECISION FAMILY" failed ones of a family that has no good one in that precision, but in others.
    """
    stated = case.device.get("precisions") or {}
    measured = [s for s in case.samples if s.status == "ok" and s.regime != "pilot"]
    good = {_precision(s) for s in measured}
    parts, families = {(_precision(s), s.point.family) for s in measured}, {s.point.family for s in measured}
    bad: dict[str, list[Sample]] = {}
    for sample in case.samples:
        name, family = _precision(sample), sample.point.family
        if sample.status == "ok" or not _own_reason(sample) or stated.get(name):
            continue
        if name not in good:
            bad.setdefault(name, []).append(sample)
        elif sample.status == "failed" and (name, family) not in parts and family in families:
            bad.setdefault(f"{name} {family}", []).append(sample)
    return bad


def _own_reason(sample: Sample) -> bool:
    """Whether a failure may speak of the precision: no hang, no lack of memory, no broken timer."""
    foreign = (
        *SILENT,
        NO_MEMORY,
        *TIMER,
    )  # also where that is why the rest was given up
    return not any(words in sample.reason for words in foreign) and sample.facts.get("verified") is not False


def _without_precision(case: Case) -> list[Sample]:
    return [s for samples in _absent(case).values() for s in samples]
