"""Whether bytes and FLOP are what was counted, by each kernel's own formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from bench.profile.records import Ceiling, Sample
from bench.report.units import si
from bench.triage.case import Case
from bench.triage.finding import Finding, found
from kernels import KERNELS
from kernels.spec import ITEM_BYTES, StreamShape, Work

ITEMS = 1 << 20
"""Items for which a formula is asked: only its ratios matter."""

WRONG = 0.02
"""Share by which counts may differ from the formula: cutting arrays to whole tiles takes a few per mille."""

CONSTANT = 0.002
"""Scatter of bytes a unit of work within which they are one number: those of a window that wraps vary."""


def counts(case: Case) -> list[Finding]:
    """Kernels whose bytes are not what their own formula gives for the same work."""
    units = _units(case)
    told = []
    for kernel, samples in _by_kernel(case).items():
        factor, how = _by_formula(kernel, samples)
        if factor is None:
            factor, how = _by_amount(kernel, samples, units)
        if factor is None or abs(factor - 1) < WRONG:
            told += _by_share(kernel, samples)
            continue
        rates = [c.estimate.value for c in case.ceilings if c.kernel == kernel]
        rate = max(rates, default=0.0)
        was = f", so its {si(rate, 'byte/s')} are {si(rate / factor, 'byte/s')}" if rate else ""
        sentence = f"{kernel} counts {factor:.3g} times the bytes that {how}{was}"
        told.append(found("byte-count", kernel, sentence, factor=factor, rate=rate, formula=how))
    return told


def bytes_counted(case: Case, c: Ceiling) -> str:
    """In words: what the recount of a ceiling's kernel said."""
    samples = _by_kernel(case).get(c.kernel, [])
    factor, how = _by_formula(c.kernel, samples)
    return (
        f"byte count ({factor:.2f} of what {how})" if factor else "byte count (no formula to recount it by)"
    )


def _by_kernel(case: Case) -> dict[str, list[Sample]]:
    """Good samples of kernels that move bytes, those of the pilot as well."""
    groups: dict[str, list[Sample]] = {}
    for s in case.samples:
        if (
            s.status == "ok"
            and s.point.kernel in KERNELS
            and s.point.family in ("stream", "mix", "cache")
            and s.bytes
        ):
            groups.setdefault(s.point.kernel, []).append(s)
    return groups


def _formula(sample: Sample) -> Work | None:
    """The work of some items of the same loop."""
    item = ITEM_BYTES.get(sample.point.precision.inputs)
    if item is None:
        return None
    try:
        return KERNELS[sample.point.kernel].work(item, {**sample.point.sizes, "n": ITEMS}, sample.point.level)
    except KeyError:
        return None


def _by_formula(kernel: str, samples: Sequence[Sample]) -> tuple[float | None, str]:
    """Bytes over those that the formula gives for the same FLOP."""
    factors = []
    for s in samples:
        work = _formula(s)
        if work is not None and work.flops and s.flops:
            factors.append(s.bytes / s.flops / (work.bytes(s.point.level) / work.flops))
    return (median(factors), "its formula gives for the same work") if factors else (None, "")


def _by_share(kernel: str, samples: Sequence[Sample]) -> list[Finding]:
    """Bytes read for each byte written over what the formula gives: one of the two is wrong."""
    ratios, shares = [], []
    for s in samples:
        work = _formula(s)
        share = work.read_fraction(s.point.level) if work else 0.0
        if 0 < share < 1 and s.bytes_read and s.bytes_written:
            ratios.append(s.bytes_read / s.bytes_written / (share / (1 - share)))
            shares.append(share)
    ratio, share = (median(ratios), median(shares)) if ratios else (1.0, 0.0)
    if abs(ratio - 1) < WRONG:
        return []
    reads_off, writes_off = share * ratio + 1 - share, share + (1 - share) / ratio
    sentence = (
        f"{kernel} counts {ratio:.3g} times as many bytes read for each byte written as its formula gives: "
        f"in all {reads_off:.3g} times the bytes that it moves if its reads are miscounted, "
        f"{writes_off:.3g} times if its writes are"
    )
    evidence = {"read_over_written": ratio, "if_reads": reads_off, "if_writes": writes_off}
    how = "its formula gives for each byte written"
    return [found("byte-count", kernel, sentence, **evidence, formula=how)]


def _streams(kernel: str) -> int:
    shape = KERNELS[kernel].shape
    return len(shape.loads) + len(shape.stores) if isinstance(shape, StreamShape) else 0


def _unit(sample: Sample) -> float:
    """Bytes a stream, thread and unit of the amount; 0 where not known."""
    amount, streams = float(sample.facts.get("amount") or 0), _streams(sample.point.kernel)
    return sample.bytes / amount / streams / sample.point.threads if amount and streams else 0.0


def _units(case: Case) -> Mapping[tuple[str, str, int], dict[str, list[float]]]:
    """Bytes a stream and unit by loop shape, precision and threads, for each kernel of DRAM streams."""
    found_units: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for kernel, samples in _by_kernel(case).items():
        for s in samples:
            unit = _unit(s)
            if s.point.family == "stream" and unit:
                p = s.point
                key = (p.variant, p.precision.inputs, p.threads)
                found_units.setdefault(key, {}).setdefault(kernel, []).append(unit)
    return found_units


def _by_amount(
    kernel: str, samples: Sequence[Sample], units: Mapping[tuple[str, str, int], dict[str, list[float]]]
) -> tuple[float | None, str]:
    """Bytes a stream over those of other kernels with the same loop shape, where both are one number each."""
    factors = []
    for by in units.values():
        own = by.get(kernel, [])
        others = [v for k, values in by.items() if k != kernel and _one(values) for v in values]
        if _one(own) and others and _one(others):
            factors.append(median(own) / median(others))
    constant = bool(factors) and max(factors) <= min(factors) * (1 + WRONG) and len(samples) >= 3
    return (
        (median(factors), "other kernels of the same loop shape count for each stream")
        if constant
        else (None, "")
    )


def _one(values: Sequence[float]) -> bool:
    return len(values) >= 2 and max(values) <= min(values) * (1 + CONSTANT)
