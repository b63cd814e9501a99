"""Triage: one crafted case a cause, named with its numbers and with no neighbour beside it; healthy: none.

Every case is a healthy run on a simulated device whose samples are changed as the cause would change them:
what is tested is what triage concludes from seconds, clocks, counts and reasons, not what a simulator does.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import reference, triage
from bench.fitting.ceilings import derive
from bench.profile.records import Repetitions, Sample
from bench.report import findings
from bench.report.table import render
from bench.running import suite
from bench.store import Log, read_log
from bench.triage import CAUSES, diagnose
from bench.triage.finding import REMEDIES, Number, unexplained
from tests.crafted import ceiling, cuda, only, profile
from tests.triaged import (
    clocked,
    cut,
    diagnosed,
    failing,
    fp32_chain,
    of,
    slower,
    where,
)
from tests.triaged import cpu as cpu
from tests.triaged import gpu as gpu


@pytest.mark.slow
@pytest.mark.parametrize("device", ["small-cpu", "gpu-large", "gpu-pair"])
def test_a_healthy_standard_run_of_all_families_has_no_finding(device: str, tmp_path: Path) -> None:
    log = read_log(suite.run(f"sim:{device}", preset="standard", results=tmp_path, quiet=True))
    assert diagnose(derive(log.header, log.conditions, log.samples), log.samples) == ()


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_healthy_device_has_no_finding(device: str, request: pytest.FixtureRequest) -> None:
    assert diagnosed(request.getfixturevalue(device)) == []


# -- what was not measured -----------------------------------------------------------------------


def test_hang(gpu: Log) -> None:
    lost = failing(
        lambda s: s.point.family == "gemm" and s.round == 2,
        "no answer within 22 s",
        lost=True,
        wall_seconds=22.0,
    )
    one = only(diagnosed(gpu, lost), "hang")
    assert "22 s were waited" in one.sentence and "measured in other rounds" in one.sentence


def test_a_product_too_large_for_the_time_is_no_hang(gpu: Log) -> None:
    def largest(s: Sample) -> bool:
        return s.point.family == "gemm" and s.point.sizes["n"] == 8192 and s.point.precision.inputs == "bf16"

    assert any(map(largest, gpu.samples))
    lost = failing(largest, "no answer within 0 s", lost=True, wall_seconds=0.05)
    assert "hang" not in {f.cause for f in diagnosed(gpu, lost)}


def test_out_of_memory(gpu: Log) -> None:
    one = only(diagnosed(gpu, failing(of("stream", "triad"), "out of memory: 3 GiB")), "out-of-memory")
    assert "arrays of 1 GiB" in one.sentence and "5.59 GiB" in one.sentence


def test_missing_precision(gpu: Log) -> None:
    def bf16(s: Sample) -> bool:
        return s.point.precision.inputs == "bf16"

    one = only(diagnosed(gpu, failing(bf16, "bf16 does not compile here", "skipped")), "missing-precision")
    assert one.subject == "bf16" and "bf16 does not compile here" in one.sentence
    assert one.evidence["samples"] == sum(map(bf16, gpu.samples))


def test_a_precision_that_the_device_never_had_is_no_finding(cpu: Log) -> None:
    assert any(s.status == "skipped" for s in cpu.samples)
    assert "missing-precision" not in {f.cause for f in diagnosed(cpu)}


def test_another_failure_is_told_as_it_is(gpu: Log) -> None:
    change = failing(lambda s: s.point.family == "tensor" and s.round == 1, "the result differs by 0.5")
    one = only(diagnosed(gpu, change), "unexplained")
    assert "the result differs by 0.5" in one.sentence and "no lack of memory" in one.sentence


# -- the clock of the measurement ----------------------------------------------------------------


def test_timer_that_stands_still(gpu: Log) -> None:
    def change(s: Sample) -> Sample:
        r = s.repetitions
        return replace(s, repetitions=replace(r, seconds=(0.0, *r.seconds[1:]))) if r.seconds else s

    one = only(diagnosed(gpu, where(lambda s: s.round == 2, change)), "timer")
    assert "took 0 s" in one.sentence


def test_timer_that_is_coarse(gpu: Log) -> None:
    def change(s: Sample) -> Sample:
        seconds = tuple(max(1, round(t / 5e-3)) * 5e-3 for t in s.repetitions.seconds)
        return replace(s, repetitions=replace(s.repetitions, seconds=seconds))

    one = only(diagnosed(gpu, change), "timer")
    assert "took exactly as long as another" in one.sentence and "ms" in one.sentence


def test_timer_whose_seconds_are_too_short(gpu: Log) -> None:
    def change(s: Sample) -> Sample:
        seconds = tuple(t / 2 for t in s.repetitions.seconds)
        return replace(s, repetitions=replace(s.repetitions, seconds=seconds))

    assert "0.50 of the time until the next begins" in only(diagnosed(gpu, change), "timer").sentence


def test_timer_off_by_one_factor_against_theory(gpu: Log) -> None:
    one = only(diagnosed(gpu, lambda s: slower(s, 0.5) if s.repetitions.seconds else s), "timer")
    assert float(one.evidence["factor"]) == pytest.approx(1.9, abs=0.1)


def test_refused_clock(gpu: Log) -> None:
    change = failing(lambda s: s.round > 2, "the timer returned 0 s for the largest amount")
    assert "the timer returned 0 s" in only(diagnosed(gpu, change), "timer").sentence


def test_timer_that_runs_fast_against_the_host(cpu: Log) -> None:
    """Each repetition is told 1.3 times as long as the host waited, batches begin when they did."""
    one = only(diagnosed(cpu, lambda s: told(s, 1.3)), "timer")
    assert "times" in one.sentence and "host" in one.sentence and float(one.evidence["factor"]) > 1.05


def test_timer_that_runs_slow_against_the_host(cpu: Log) -> None:
    one = only(diagnosed(cpu, lambda s: told(s, 0.8)), "timer")
    assert "which no pause does" in one.sentence
    assert float(one.evidence["factor"]) == pytest.approx(0.8, abs=0.02)


def test_a_pause_between_batches_is_no_wrong_timer(cpu: Log) -> None:
    """As long behind a short batch as behind a long one."""
    assert "timer" not in {f.cause for f in diagnosed(cpu, lambda s: paused(s, 1e-3))}


def test_the_pause_before_the_last_of_three_repetitions_is_no_wrong_timer(cpu: Log) -> None:
    """Of two gaps neither is the usual one: half of them lie inside the batch."""
    count = itertools.count()

    def few_or_many(s: Sample) -> Sample:
        """Three repetitions in two batches, or eleven in three, of thirty samples; nothing of the others."""
        if not s.repetitions.seconds or (k := next(count)) >= 30:
            return replace(s, repetitions=replace(s.repetitions, start=()))
        firsts, n, t = ((2,), 3, 3e-3 * (1 + 1e-4 * k)) if k % 3 else ((5, 9), 11, 1.5e-3)
        start = tuple(t * i + 1.42e-3 * sum(f <= i for f in firsts) for i in range(n))
        return replace(s, repetitions=Repetitions(start, (t,) * n, (0,) * n, (1.0,) * n))

    found = diagnosed(cpu, where(lambda s: s.point.family == "fma", few_or_many))
    assert "timer" not in {f.cause for f in found}


def batches(sample: Sample) -> list[int]:
    """Index of the first repetition of each batch of four."""
    return list(range(0, len(sample.repetitions), 4 + sample.order % 12))


def told(sample: Sample, factor: float) -> Sample:
    """What a timer off by a factor tells; the host's clock gives the first start of each batch."""
    r, firsts = sample.repetitions, batches(sample)
    if not r.seconds:
        return sample
    start, seconds = [], tuple(t * factor for t in r.seconds)
    for i, begin in enumerate(r.start):
        first = r.start[max(f for f in firsts if f <= i)]
        start.append(first + (begin - first) * factor)
    wall = sample.facts["wall_seconds"] - sum(seconds) + sum(r.seconds)  # `waited` adds it again
    changed = replace(r, start=tuple(start), seconds=seconds)
    return replace(sample, repetitions=changed, facts={**sample.facts, "wall_seconds": wall})


def paused(sample: Sample, pause: float) -> Sample:
    """Every batch begins `pause` s later than the one before it ended."""
    r, firsts = sample.repetitions, batches(sample)
    start = tuple(t + pause * sum(0 < f <= i for f in firsts) for i, t in enumerate(r.start))
    return replace(sample, repetitions=replace(r, start=start))


def test_wrong_stream(gpu: Log) -> None:
    """Enqueue times: the same whatever the work."""

    def change(s: Sample) -> Sample:
        if not s.repetitions.seconds or s.point.family == "workload":
            return s
        draw = random.Random(s.order)
        scale = 16.0 if s.round % 2 else 1.0
        n = len(s.repetitions)
        seconds = tuple(5e-3 * draw.uniform(0.98, 1.02) for _ in range(n))
        start = tuple(s.repetitions.start[0] + 5.1e-3 * i for i in range(n))
        work = {"flops": s.flops * scale, "bytes_read": s.bytes_read * scale}
        timed = replace(s.repetitions, seconds=seconds, start=start)
        return replace(s, repetitions=timed, bytes_written=s.bytes_written * scale, **work)

    assert "does not depend on the work" in only(diagnosed(gpu, change), "wrong-stream").sentence


@pytest.mark.parametrize("family", ["latency", "link", "overlap", "launch", "collective", "scaling"])
def test_time_that_need_not_grow_is_no_wrong_stream(gpu: Log, family: str) -> None:
    """Sixteen chains take as long as one: they run at once."""

    def chains(s: Sample) -> Sample:
        scale = 16.0 if s.round % 2 else 1.0
        return replace(s, point=replace(s.point, family=family), bytes_read=s.bytes_read * scale)

    samples = [chains(s) for s in gpu.samples if of("stream")(s)]
    found = diagnose(derive(gpu.header, gpu.conditions, samples), samples)
    assert "wrong-stream" not in {f.cause for f in found}


# -- the clock of the device ---------------------------------------------------------------------


def test_throttling(gpu: Log) -> None:
    times = sorted(s.repetitions.start[0] for s in gpu.samples if s.repetitions.start and s.round > 0)
    moment = times[len(times) // 2]
    late = [s.order for s in gpu.samples if s.repetitions.start and s.repetitions.start[0] >= moment]
    assert late
    change = where(
        lambda s: bool(s.repetitions.start) and s.repetitions.start[0] >= moment, lambda s: clocked(s, 0.8)
    )
    one = only(diagnosed(gpu, change), "throttling")
    assert "from 1.20 GHz to 960 MHz (20 %)" in one.sentence
    first = min(s.repetitions.start[0] for s in gpu.samples if s.repetitions.start)
    assert float(one.evidence["since_seconds"]) == pytest.approx(moment - first, abs=2.0)


def test_stuck_clock(gpu: Log) -> None:
    one = only(diagnosed(gpu, lambda s: clocked(s, 0.7)), "stuck-clock")
    assert "840 MHz" in one.sentence and "70 %" in one.sentence


@pytest.mark.parametrize(("word", "cause"), [("sw_power_cap", "power-cap"), ("sw_thermal", "thermal-cap")])
def test_caps(gpu: Log, word: str, cause: str) -> None:
    def change(s: Sample) -> Sample:
        n = len(s.repetitions)
        r = replace(s.repetitions, throttle=(word,) * n, power_w=(99.5,) * n, temperature_c=(88.0,) * n)
        return clocked(replace(s, repetitions=r), 0.8)

    one = only(diagnosed(gpu, change, power_limit_w=300.0), cause)
    assert "960 MHz" in one.sentence and "100 W of 300 W" in one.sentence and "88 °C" in one.sentence


def test_a_clock_that_falls_for_memory_alone_is_no_throttling(gpu: Log) -> None:
    """The clock is read lower but no arithmetic follows: a reading, not a cause."""

    def change(s: Sample) -> Sample:
        clocks = tuple(hz * 0.8 for hz in s.repetitions.clock_hz)
        return replace(s, repetitions=replace(s.repetitions, clock_hz=clocks))

    causes = {f.cause for f in diagnosed(gpu, where(lambda s: s.round > 2, change))}
    assert "throttling" not in causes


# -- who else was there --------------------------------------------------------------------------


def test_noisy_neighbour_by_cpu_time(cpu: Log) -> None:
    one = only([f for f in diagnosed(cpu, cut) if f.subject == "repetitions"], "noisy-neighbour")
    assert float(one.evidence["disturbed_share"]) == pytest.approx(0.2, abs=0.03)
    assert "lost their CPU" in one.sentence
    for count, said in ((1, "1 other process was at work"), (3, "3 other processes were at work")):
        busy = [{**c, "values": {**c["values"], "busy_processes": count}} for c in cpu.conditions]
        beside = diagnosed(replace(cpu, conditions=busy), cut)
        assert said in only([f for f in beside if f.subject == "repetitions"], "noisy-neighbour").sentence


def test_noisy_neighbour_by_slow_repetitions(gpu: Log) -> None:
    def change(s: Sample) -> Sample:
        draw, r = random.Random(s.order * 100 + s.round), s.repetitions
        seconds = tuple(t * (1.6 if draw.random() < 0.15 else 1.0) for t in r.seconds)
        return replace(s, repetitions=replace(r, seconds=seconds, cpu_share=(), start=()))

    one = only([f for f in diagnosed(gpu, change) if f.subject == "repetitions"], "noisy-neighbour")
    assert "at the same clock" in one.sentence and float(one.evidence["slowdown"]) == pytest.approx(
        0.375, abs=0.03
    )


def test_telemetry_of_another_board(gpu: Log) -> None:
    def change(s: Sample) -> Sample:
        return replace(s, repetitions=replace(s.repetitions, power_w=(15.2,) * len(s.repetitions)))

    assert "15 W under full load" in only(diagnosed(gpu, change), "wrong-device").sentence


def test_numbers_of_another_device() -> None:
    """A board called H100 whose rates are an L4's."""
    device = cuda("H100 SXM5", sms=132)
    figures = {f.precision or f.level: f.value for f in reference.known().of("L4") if f.kind == "datasheet"}
    made = [
        ceiling("fp32", 0.95 * figures["fp32"]),
        ceiling("bf16>fp32 matrix", 0.9 * figures["bf16>fp32 matrix"], kernel="mma"),
        ceiling("fp32", 0.9 * figures["DRAM"], quantity="beta"),
    ]
    one = only([f for f in diagnose(profile(device, made), ()) if f.cause == "wrong-device"], "wrong-device")
    assert "those of a L4, not of a H100 SXM5" in one.sentence


def test_pageable_memory() -> None:
    made = [
        ceiling("fp32", 9.9e9, quantity="beta", kernel=k, level="host link", access="h2d")
        for k in ("copy-pinned", "copy-pageable")
    ]
    one = only(diagnose(profile({"facts": {}}, made), ()), "pageable-memory")
    assert "9.90 GB/s" in one.sentence


# -- the words -----------------------------------------------------------------------------------


def test_every_cause_has_a_remedy() -> None:
    assert set(CAUSES) == set(REMEDIES) and len(CAUSES) >= 25


def test_unexplained_says_what_was_tested() -> None:
    one = unexplained(Number("π fp32", 2e12, 1e12, "FLOP/s", "theory"), ["tf32 (no)", "timer (no)"])
    assert one.sentence == (
        "π fp32 is 2.00 TFLOP/s, 2.00 times theory of 1.00 TFLOP/s: not explained; "
        "tested: tf32 (no); timer (no)"
    )


def test_findings_are_kept_and_printed(gpu: Log) -> None:
    samples = [where(fp32_chain, lambda s: slower(s, 0.5))(s) for s in gpu.samples]
    made = derive(gpu.header, gpu.conditions, samples)
    (one,) = made.facts["findings"]
    assert set(one) == {"subject", "subjects", "cause", "sentence", "evidence", "remedy"}
    assert one["cause"] == "folded-chain" and made.facts["findings"] == triage.plain(diagnose(made, samples))
    text = " ".join(render(made).split())
    assert f"folded-chain: {one['sentence']}. Try: {one['remedy']}." in text
    healthy = render(derive(gpu.header, gpu.conditions, gpu.samples))
    assert findings.NOTHING in " ".join(healthy.split())


def test_triage_does_not_know_the_simulator() -> None:
    room = Path(triage.__file__).parent
    for path in room.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "backends" not in re.sub(r'"""(.|\n)*?"""', "", text), path
        assert "parameters" not in text and '"defects"' not in text, path
