"""What starting a repetition costs beside its work, and which figures are no more than that.

T0 is read from repetitions of one point that do different amounts of work: T = T0 + work / rate. Where it
takes a good part of a repetition every rate is too low, each by another share, as repetitions are unequally
long: loops that move the same differ, curves bend, a ceiling lies below what longer executions reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median, quantiles

from bench.fitting.pooled import work
from bench.profile.records import WHOLE, Sample
from bench.report.units import duration, percent
from bench.triage.case import Case, agree
from bench.triage.finding import Finding, found

FAMILIES = ("fma", "stream", "mix", "cache", "tensor", "gemm")
"""Families whose time grows with the work that they declare."""

LEAST_FACTOR = 1.5
"""Of the work of two repetitions of one point that tell T0."""

FEW, CLOSE = 6, 0.8
"""Points below which all must tell nearly one T0, the least of them so much of the highest."""

SAME = 0.1
"""How near the work of samples must be that are taken together."""

ALIKE = 0.5
"""Lower quartile of the points' T0 over their median: noise scatters about zero, an overhead does not."""

SHARE = 0.05
"""Share of the repetitions from which on T0 is told: figures are compared to 6 % and wider."""

MOSTLY = 0.9
"""The same from which on a rate says nothing: it is the difference of two nearly equal times."""

BESIDE = 1.1
"""Factor between two figures that needs no reason beside T0."""


def overhead(case: Case) -> Finding | None:
    """T0 where it takes a good part of repetitions that make ceilings and sweeps; None elsewhere."""
    t0 = start_seconds(case)
    shares = _shares(case, t0)
    if max(shares.values(), default=0.0) < SHARE:
        return None
    low, high = min(shares.values()), max(shares.values())
    sentence = (
        f"starting a repetition takes {duration(t0)}, {percent(low)} to {percent(high)} of the usual one of "
        "a loop: rates are too low by as much, each by its own share"
    )
    return found("launch-bound", "repetitions", sentence, t0_seconds=t0, least_share=low, share=high)


def explains(told: Finding, figure: Finding) -> bool:
    """Whether T0 alone makes two figures differ as much as a finding says, or it says by how much not."""
    share = float(told.evidence["share"])
    ratio = _ratio(figure.evidence)
    return ratio is None or share >= MOSTLY or max(ratio, 1 / ratio) <= BESIDE / (1 - share)


def _ratio(evidence: Mapping[str, float | str]) -> float | None:
    """The factor between the two figures of a finding."""
    if before := evidence.get("before"):
        return float(evidence["behind"]) / float(before)
    factor = float(evidence.get("factor") or evidence.get("ratio") or 0.0)
    return factor if factor > 0 else None


def start_seconds(case: Case) -> float:
    """T0 of a repetition (s) as most points tell it, 0 where they do not agree that there is one."""
    told = [t0 for samples in _alike(case).values() for t0 in _intercept(samples)]
    if len(told) < 2:
        return 0.0
    middle = median(told)
    low, least = (
        (min(told), CLOSE * max(told)) if len(told) < FEW else (quantiles(told, n=4)[0], ALIKE * middle)
    )
    return middle if low >= least > 0 else 0.0


def _alike(case: Case) -> Mapping[str, Sequence[Sample]]:
    """Samples of one point, in windows of any length."""
    groups: dict[str, list[Sample]] = {}
    for s in case.timed:
        if s.point.family in FAMILIES and s.point.scope in WHOLE:
            sizes = {name: size for name, size in s.point.sizes.items() if name != "window"}
            groups.setdefault(replace(s.point, sizes=sizes).key, []).append(s)
    return groups


def _intercept(samples: Sequence[Sample]) -> Iterator[float]:
    """Seconds of no work, by the samples of least and of most work; none where these are too near."""
    timed = [(work(s), median(s.repetitions.seconds)) for s in samples if work(s) > 0]
    few, many = min(timed, default=(0.0, 0.0))[0], max(timed, default=(0.0, 0.0))[0]
    if few and many >= LEAST_FACTOR * few:
        short, long = (median(t * of / w for w, t in timed if agree(w, of, SAME)) for of in (few, many))
        yield (short * many - long * few) / (many - few)


def _shares(case: Case, t0: float) -> Mapping[tuple[str, str], float]:
    """Of the usual repetition of each kernel of arithmetic or of DRAM, where T0 is known."""
    groups: dict[tuple[str, str], list[float]] = {}
    for samples in _alike(case).values() if t0 else ():
        p = samples[0].point
        if p.level in ("", "DRAM"):
            usual = median(median(s.repetitions.seconds) for s in samples)
            groups.setdefault((p.family, p.kernel), []).append(min(1.0, t0 / usual))
    return {key: median(shares) for key, shares in groups.items()}
