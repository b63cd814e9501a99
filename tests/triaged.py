"""Healthy runs on simulated devices, and what changes their samples as a cause would change them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bench import provenance
from bench.fitting.ceilings import derive
from bench.profile.records import WHOLE, Point, Precision, Sample
from bench.running import suite
from bench.running.campaign import Campaign
from bench.store import Log, read_log
from bench.triage import Finding, diagnose

Change = Callable[[Sample], Sample]


ROUNDS = 4
"""Rounds that are kept: enough for an interval, few enough to fit in a moment."""


FAMILIES = ("fma", "stream", "mix", "gemm", "tensor", "cache", "workload")
"""Families of the crafted cases; those of links and latencies are in the slow test of whole runs."""


def measured(folder: Path, name: str, families: tuple[str, ...]) -> Log:
    """One minute on a healthy simulated device, without rounds beyond the planned ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "source_hash", lambda *_: "0123456789ab")
        patch.setattr(Campaign, "extra_rounds", lambda *_: None)
        log = read_log(suite.run(f"sim:{name}", minutes=1, results=folder, families=families, quiet=True))
    return replace(log, samples=[s for s in log.samples if s.round <= ROUNDS and whole(s)])


def whole(sample: Sample) -> bool:
    """Whether a sample is of all threads, sweeps of their first precision and mode: what most cases need."""
    p = sample.point
    extra = p.family == "mix" and (p.precision.inputs == "fp16" or "blocks_per_sm" in p.sizes)
    return p.scope in WHOLE and not extra


@cache
def healthy(name: str) -> Log:
    """The run of a healthy device that the cases change: made once a process."""
    families = FAMILIES if name.startswith("gpu") else ("fma", "stream", "mix", "cache")
    with TemporaryDirectory() as folder:
        return measured(Path(folder), name, families)


@pytest.fixture(scope="module")
def gpu() -> Log:
    return healthy("gpu-small")


@pytest.fixture(scope="module")
def cpu() -> Log:
    return healthy("small-cpu")


def diagnosed(log: Log, change: Change = lambda s: s, **facts: Any) -> list[Finding]:
    """Findings of the run with every sample changed, its wall time with it; facts: of the device."""
    device = {**log.header["device"], "facts": {**log.header["device"]["facts"], **facts}}
    samples = [waited(s, change(s)) for s in log.samples]
    profile = derive({**log.header, "device": device}, log.conditions, samples)
    return list(diagnose(profile, samples))


def waited(old: Sample, new: Sample) -> Sample:
    """The host waits as much longer as the repetitions take longer."""
    more = sum(new.repetitions.seconds) - sum(old.repetitions.seconds)
    if not new.repetitions.seconds or not more or "wall_seconds" not in new.facts:
        return new
    return replace(new, facts={**new.facts, "wall_seconds": new.facts["wall_seconds"] + more})


def slower(sample: Sample, factor: float, **lists: Any) -> Sample:
    """Every repetition takes `factor` times as long; starts move with it."""
    r, first = sample.repetitions, sample.repetitions.start[0]
    start = tuple(first + (t - first) * factor for t in r.start)
    changed = replace(r, start=start, seconds=tuple(t * factor for t in r.seconds), **lists)
    return replace(sample, repetitions=changed)


def clocked(sample: Sample, factor: float) -> Sample:
    """At another core clock; what it does not bind keeps its time."""
    if not sample.repetitions.seconds:
        return sample
    compute = sample.point.family == "mix" and sample.flops / sample.bytes > 30
    compute |= sample.point.kernel.startswith("gemm") or sample.point.kernel in ("fft", "stencil 7-point")
    bound = compute or sample.point.family in ("fma", "tensor", "cache")
    clocks = tuple(hz * factor for hz in sample.repetitions.clock_hz)
    return slower(sample, 1 / factor if bound else 1.0, clock_hz=clocks)


def cut(s: Sample) -> Sample:
    """A fifth of the repetitions lost their CPU for a third of their time."""
    draw, r = random.Random(s.order * 100 + s.round), s.repetitions
    hit = [draw.random() < 0.2 for _ in r.seconds]
    seconds = tuple(t * (1.4 if h else 1.0) for t, h in zip(r.seconds, hit, strict=True))
    share = tuple(0.7 if h else 1.0 for h in hit)
    return replace(s, repetitions=replace(r, seconds=seconds, cpu_share=share, start=()))


def of(family: str, kernel: str = "", **wanted: Any) -> Callable[[Sample], bool]:
    """Whether a good sample is of that family, kernel and so on."""

    def test(s: Sample) -> bool:
        same = all(getattr(s.point, k) == v for k, v in wanted.items())
        return s.status == "ok" and s.point.family == family and kernel in ("", s.point.kernel) and same

    return test


def where(test: Callable[[Sample], bool], change: Change) -> Change:
    return lambda s: change(s) if test(s) else s


def failing(test: Callable[[Sample], bool], reason: str, status: str = "failed", **facts: Any) -> Change:
    empty = replace(Sample(Point("", "", "", Precision.of("fp64")), 0, 0, 0)).repetitions
    return where(
        test,
        lambda s: replace(s, status=status, reason=reason, repetitions=empty, facts={**s.facts, **facts}),
    )


def fp32_chain(s: Sample) -> bool:
    return s.status == "ok" and s.point.family == "fma" and s.point.precision.label == "fp32"
