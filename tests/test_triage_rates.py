"""Triage of memory, arithmetic and sweeps: one crafted case a cause, with no neighbour beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.profile.records import Sample
from bench.store import Log
from tests.crafted import only
from tests.triaged import (
    clocked,
    diagnosed,
    fp32_chain,
    of,
    slower,
    where,
)
from tests.triaged import cpu as cpu
from tests.triaged import gpu as gpu

# -- memory -----------------------------------------------------------------------------------------


def unread(log: Log) -> Log:
    """The same run where the memory clock cannot be read."""
    values = ({k: v for k, v in c["values"].items() if k != "memory_clock_hz"} for c in log.conditions)
    return replace(log, conditions=[{**c, "values": v} for c, v in zip(log.conditions, values, strict=True)])


def test_memory_clock_by_the_bus(gpu: Log) -> None:
    found = [f for f in diagnosed(unread(gpu), slow_memory) if f.subject != "workloads"]
    assert "61 % of the bus" in only(found, "memory-clock").sentence


def slow_memory(s: Sample) -> Sample:
    """Everything that DRAM binds takes 1.6 times as long."""
    cache = s.point.family == "cache" and s.point.sizes["bytes"] * s.point.threads > 4e6
    bound = s.point.family in ("stream", "workload", "mix") or (cache and "plateau" not in s.point.sizes)
    return slower(s, 1.6) if bound and s.repetitions.seconds else s


def memory_at(log: Log, hertz: float) -> Log:
    """The same run where the memory clock is read so before every round."""
    conditions = [{**c, "values": {**c["values"], "memory_clock_hz": hertz}} for c in log.conditions]
    return replace(log, conditions=conditions)


def test_memory_clock_as_it_is_read(gpu: Log) -> None:
    one = only(diagnosed(memory_at(gpu, 5e9), slow_memory), "memory-clock")
    assert "5.00 GHz, 62 % of the 8.00 GHz" in one.sentence


@pytest.mark.parametrize("hertz", [0.4e9, 4e9])
def test_an_idle_memory_clock_alone_is_no_finding(gpu: Log, hertz: float) -> None:
    """Read between the rounds, while the bandwidth exceeds what a bus at that clock could give."""
    assert diagnosed(memory_at(gpu, hertz)) == []


def test_memory_clock_under_load(gpu: Log) -> None:
    """Readings under load decide, whatever the idle board says."""
    lowered = where(of("stream"), lambda s: replace(s, facts={**s.facts, "memory_clock_hz": 4e9}))
    assert "4.00 GHz, 50 %" in only(diagnosed(gpu, lowered), "memory-clock").sentence
    full = where(of("stream"), lambda s: replace(s, facts={**s.facts, "memory_clock_hz": 8e9}))
    assert diagnosed(memory_at(gpu, 7e9), full) == []


def test_cache_resident_beyond_the_bus(gpu: Log) -> None:
    change = where(of("stream"), lambda s: slower(s, 0.4))
    one = only(diagnosed(gpu, change), "cache-resident")
    assert one.evidence["unit"] == "byte/s" and "L2 of 1.9" in one.sentence and "so too" in one.sentence


def test_cache_resident_as_fast_as_the_cache(cpu: Log) -> None:
    """L3 reads at 100 GB/s here, DRAM at 20 GB/s."""
    change = where(of("stream", "read", threads=2), lambda s: slower(s, 0.2))
    one = only([f for f in diagnosed(cpu, change) if "ratio" in f.evidence], "cache-resident")
    assert "that is what its L3 gives" in one.sentence


def test_byte_count_by_its_own_formula(gpu: Log) -> None:
    """Triad counted with two loads too many."""
    change = where(of("stream", "triad"), lambda s: replace(s, bytes_read=s.bytes_read * 2))
    one = only([f for f in diagnosed(gpu, change) if f.subject == "triad"], "byte-count")
    assert float(one.evidence["factor"]) == pytest.approx(5 / 3, rel=0.01)


def test_byte_count_of_a_kernel_without_flop(gpu: Log) -> None:
    def twice(s: Sample) -> Sample:
        return replace(s, bytes_read=s.bytes_read * 2, bytes_written=s.bytes_written * 2)

    one = only(
        [f for f in diagnosed(gpu, where(of("stream", "copy"), twice)) if f.subject == "copy"], "byte-count"
    )
    assert float(one.evidence["factor"]) == pytest.approx(2.0, rel=0.01)


def reads_twice(s: Sample) -> Sample:
    return replace(s, bytes_read=s.bytes_read * 2)


def test_byte_count_of_the_reads_of_a_kernel_without_flop(gpu: Log) -> None:
    """Twice the reads are half as many bytes again, as copies of the same loop shape tell."""
    found = diagnosed(gpu, where(of("stream", "copy"), reads_twice))
    one = only([f for f in found if f.subject == "copy"], "byte-count")
    assert float(one.evidence["factor"]) == pytest.approx(1.5, rel=0.01)
    assert "copy counts 1.5 times the bytes" in one.sentence


def test_byte_count_where_only_its_share_of_reads_is_known(gpu: Log) -> None:
    """Nothing says how many units a repetition did: reads or writes may be wrong, and that is said."""

    def change(s: Sample) -> Sample:
        bare = replace(s, facts={k: v for k, v in s.facts.items() if k != "amount"})
        return reads_twice(bare) if of("stream", "copy")(s) else bare

    one = only([f for f in diagnosed(gpu, change) if f.subject == "copy"], "byte-count")
    assert "2 times as many bytes read for each byte written" in one.sentence and "factor" not in one.evidence
    assert (one.evidence["if_reads"], one.evidence["if_writes"]) == (1.5, 0.75)


# -- arithmetic -------------------------------------------------------------------------------------


def test_folded_chain(gpu: Log) -> None:
    one = only(diagnosed(gpu, where(fp32_chain, lambda s: slower(s, 0.5))), "folded-chain")
    assert one.subject == "π fp32" and "near 2" in one.sentence and "TFLOP/s" in one.sentence


def test_folded_chain_without_theory(cpu: Log) -> None:
    both = where(lambda s: s.status == "ok" and s.point.family == "fma", lambda s: slower(s, 0.5))
    one = only(diagnosed(cpu, both), "folded-chain")
    assert "the π of the fitted sweep" in one.sentence or "the library" in one.sentence


def test_dual_issue(gpu: Log) -> None:
    """The sweep is as fast as the chain: theory is too low, not the count too high."""

    def change(s: Sample) -> Sample:
        return slower(s, 1 / 1.33) if s.status == "ok" and s.point.family in ("fma", "mix") else s

    found = diagnosed(gpu, where(lambda s: s.point.precision.label == "fp32", change))
    assert [f.cause for f in found if f.subject == "π fp32"] == ["dual-issue"]
    assert not {"folded-chain", "timer"} & {f.cause for f in found}


def test_tf32(gpu: Log) -> None:
    def library(s: Sample) -> bool:
        return of("gemm")(s) and s.point.precision.label == "fp32 library"

    one = only(diagnosed(gpu, where(library, lambda s: slower(s, 0.25))), "tf32")
    assert "the library used TF32" in one.sentence


def test_narrow_probe(gpu: Log) -> None:
    change = where(of("tensor"), lambda s: slower(s, 2.0))
    assert "the probe may not reach the peak" in only(diagnosed(gpu, change), "narrow-probe").sentence


def test_partition(gpu: Log) -> None:
    found = diagnosed(
        gpu, where(of("tensor"), lambda s: slower(s, 2.0)), mig={"profile": "1g.5gb", "sms": 14}
    )
    assert (
        "slice 1g.5gb with 14 SMs" in only([f for f in found if "matrix" in f.subject], "partition").sentence
    )


# -- sweeps -----------------------------------------------------------------------------------------


def test_byte_count_against_loops_of_the_same_traffic(cpu: Log) -> None:
    """Copy moves half of what it counts: its own working-set sweep does not."""
    copies = where(of("stream", "copy"), lambda s: slower(s, 0.5))
    found = diagnosed(cpu, copies)
    assert {f.cause for f in found} == {"byte-count"} and "copy" in [f.subject for f in found]
    one = next(f for f in found if f.subject == "copy")
    assert float(one.evidence["factor"]) == pytest.approx(2.0, rel=0.1)


def test_byte_count_of_one_of_a_pair(cpu: Log) -> None:
    triads = where(of("stream", "triad"), lambda s: slower(s, 2 / 3))
    one = only(diagnosed(cpu, triads), "byte-count")
    assert one.subject == "triad" and float(one.evidence["factor"]) == pytest.approx(1.5, rel=0.1)


def test_cache_resident_against_the_working_sets(cpu: Log) -> None:
    """Streams and sweeps read 1.4 times what large working sets do, and no more than a cache would give."""

    def change(s: Sample) -> Sample:
        return slower(s, 1 / 1.4) if of("stream")(s) or (of("mix")(s) and s.flops / s.bytes < 2) else s

    one = only(diagnosed(cpu, change), "cache-resident")
    assert float(one.evidence["stream"]) / float(one.evidence["sweep_end"]) == pytest.approx(1.4, rel=0.05)


def test_a_slow_part_of_a_sweep(cpu: Log) -> None:
    """Slower between 0.2 and 1.5 FLOP/byte only."""

    def inside(s: Sample) -> bool:
        return of("mix")(s) and 0.2 <= s.flops / s.bytes < 1.5

    found = diagnosed(cpu, where(inside, lambda s: slower(s, 1.5)))
    assert {f.cause for f in found} == {"sweep-step"}
    assert all(0.2 <= float(f.evidence["intensity"]) <= 2 for f in found)


def test_a_step_down_behind_the_knee(cpu: Log) -> None:
    def high(s: Sample) -> bool:
        return of("mix")(s) and s.flops / s.bytes >= 24

    found = diagnosed(cpu, where(high, lambda s: slower(s, 1.2)))
    assert {f.cause for f in found} == {"sweep-step"}
    assert all(float(f.evidence["behind"]) < float(f.evidence["before"]) for f in found)


def test_one_cause_silences_what_follows_from_it(cpu: Log) -> None:
    """A stuck clock makes caches look like memory and lone loops slow: only the clock is told."""
    slow = [f for f in diagnosed(cpu, lambda s: clocked(s, 0.3)) if f.cause != "unexplained"]
    assert [f.cause for f in slow] == ["stuck-clock"]


def test_step_in_a_sweep(gpu: Log) -> None:
    """From 8 FLOP/byte on part of the data stays in a cache: bytes move faster."""

    def high(s: Sample) -> bool:
        return of("mix")(s) and s.flops / s.bytes >= 8

    one = only(diagnosed(gpu, where(high, lambda s: slower(s, 0.7))), "sweep-step")
    assert "FLOP/byte" in one.sentence and float(one.evidence["behind"]) > float(one.evidence["before"])
