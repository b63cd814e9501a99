"""Triage of workloads below half of their roof: each cause by its own evidence, told once and shortly."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import pytest
from rich.text import Text

from bench.backends import workload_start
from bench.backends.cpu import CpuBackend
from bench.planning.link_points import BYTES
from bench.prediction import limits
from bench.profile.records import Ceiling, Interval, Placement, Point, Precision, Profile, Repetitions, Sample
from bench.report import findings, starts
from bench.triage import Finding, diagnose, plain
from bench.triage.finding import REMEDIES
from bench.workloads import place
from bench.workloads.roof import Roof, binding, started
from bench.workloads.zoo import ZOO
from kernels.launch import BY_BLAS, BY_FFT, BY_THREADS, RUNNERS
from tests.crafted import ceiling, near, only, placement, profile

CPU = {"kind": "cpu", "caches": [{"level": "L3", "bytes": 32_000_000, "sharers": 8, "instances": 1}]}


def t0(variant: str, seconds: float) -> Ceiling:
    return ceiling("fp64", seconds, "t0", unit="s", kernel="empty", variant=variant)


def near_cache(name: str, seconds: float, share: float = 0.2, **changes: Any) -> Placement:
    """A workload of 1e5 FLOP and 2e5 + 2e5 byte with its operands in L2."""
    values: dict[str, Any] = {
        "name": name,
        "level": "L2",
        "implementation": BY_THREADS,
        "flops": 1e5,
        "bytes_read": 2e5,
        "bytes_written": 2e5,
        "seconds": near(seconds),
        "achieved": near(1e5 / seconds),
        "attainable": near(1e5 / seconds / share),
        "efficiency": near(share),
    }
    return placement(**{**values, **changes})


def from_dram(like: Placement, faster: float, share: float = 0.8, longer: float = 1e3) -> Placement:
    """The same code over `longer` times the operands, at `faster` times its rate."""
    rate = like.achieved.value * faster
    return replace(
        like,
        level="DRAM",
        flops=like.flops * longer,
        bytes_read=like.bytes_read * longer,
        bytes_written=like.bytes_written * longer,
        seconds=near(like.flops * longer / rate),
        achieved=near(rate),
        attainable=near(rate / share),
        efficiency=near(share),
    )


def told(*placed: Placement, ceilings: tuple[Ceiling, ...] = (), samples: tuple[Sample, ...] = ()) -> Any:
    return diagnose(profile(CPU, ceilings, *placed), samples)


# -- the start of what runs it ------------------------------------------------------------------


def test_every_implementation_of_the_zoo_has_a_start_of_its_own() -> None:
    assert set(RUNNERS) == {w.implementation for w in ZOO.values()}


def test_the_start_is_that_of_the_implementation() -> None:
    slow = near_cache("fft", 4e-5, implementation=BY_FFT)
    both = (t0(BY_THREADS, 3e-7), t0(BY_FFT, 2.5e-5))
    one = only(told(slow, ceilings=both), "launch-bound")
    assert "25.0 µs of 40.0 µs" in one.sentence and one.evidence["t0_seconds"] == 2.5e-5
    short = only(told(replace(slow, seconds=near(1e-4)), ceilings=both), "latency")
    assert "4.0 launches of 25.0 µs" in short.sentence
    other = only(told(slow, ceilings=both[:1]), "unexplained")
    assert "start (T₀ of scipy.fft, workers was not measured)" in other.sentence
    assert (
        "start,"
        in only(told(replace(slow, implementation=BY_THREADS), ceilings=both), "unexplained").sentence
    )


def test_the_verdict_is_launch_where_the_start_takes_most_of_the_time() -> None:
    roof = Roof(near(1e11), near(1e11))
    assert started(BY_FFT, 8, [t0(BY_THREADS, 1e-7), t0(BY_FFT, 2e-5)]) == near(2e-5)
    assert started(BY_BLAS, 8, [t0(BY_FFT, 2e-5)]) is None
    assert started(BY_FFT, 4, [t0(BY_FFT, 2e-5)]) is None
    assert binding(1e6, 1e6, roof, 2e-5, 1e-3) == "launch", "longer than the work on the roof"
    assert binding(1e6, 4e6, roof, 2e-5, 3e-5) == "launch", "most of what it took"
    assert binding(1e6, 4e6, roof, 2e-5, 1e-3) == "memory"


def test_a_prediction_is_bound_by_the_start_of_what_runs_it() -> None:
    known = profile(CPU, [t0("team", 1e-7), t0(BY_FFT, 2e-5)])
    own, team = limits.start(known, 8, BY_FFT), limits.start(known, 8, BY_THREADS)
    assert own is not None and own.value == 2e-5
    assert team is not None and team.value == 1e-7, "not measured: that of the team"


def test_placement_uses_the_start_of_what_ran() -> None:
    point = Point("workload", "fft", BY_FFT, Precision.of("fp64"), "L2", threads=8)
    taken = Repetitions((0.0, 1.0), (3e-5, 3e-5))
    sample = Sample(point, 1, 0, 0, flops=1e5, bytes_read=1e5, bytes_written=1e5, repetitions=taken)
    roof = (ceiling("fp64", 1e11), ceiling("fp64", 1e11, "beta", level="L2"))
    (bare,) = place.place([sample], roof, ())
    (own,) = place.place([sample], (*roof, t0(BY_FFT, 2e-5)), ())
    assert (bare.binds, own.binds) == ("memory", "launch")


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_smallest_call_is_checked_and_timed(runner: str, backend: CpuBackend) -> None:
    point = Point("launch", "empty", runner, BYTES, threads=len(backend.team.cpus))
    assert backend.unsupported(point) == ""
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, 4, 3)
    assert len(taken) == 3 and all(0 < s < 1 for s in taken.seconds) and prepared.work(9).flops == 0
    assert list(taken.start) == sorted(taken.start)
    backend.release(prepared)


def test_an_execution_of_nothing_is_summed_over_the_amount(backend: CpuBackend) -> None:
    point = Point("launch", "empty", BY_THREADS, BYTES, threads=1)
    handle = workload_start.prepare(point, backend.team, backend.isa).handle
    few, many = (min(handle.measure(n, 5).seconds) for n in (1, 200))
    assert many > 20 * few


def test_starts_are_named_in_the_report() -> None:
    lines = list(starts.starts(profile(CPU, [t0("team", 1e-7), t0(BY_FFT, 2e-5), t0(BY_THREADS, 3e-7)])))
    assert lines[0].startswith("T₀, starting nothing: team 100 ns ± ")
    (fft, numba) = lines[1].split(": ")[1].split("; ")
    assert fft.endswith("%") and "scipy.fft, workers on 8 threads 20.0 µs ± " in fft
    assert numba.startswith("Numba, native threads on 8 threads 300 ns ± ")
    wide = replace(t0("team", 11e-6), estimate=Interval(11e-6, 2e-6, 151e-6))
    (line,) = starts.starts(profile(CPU, [wide]))
    assert line.endswith("team 11.0 µs (2.00 µs to 151 µs)")


# -- what else keeps it below -------------------------------------------------------------------


def test_no_faster_from_a_cache_than_from_dram() -> None:
    slow = near_cache("softmax", 5e-5, source="maximum, exp (counted 1), addition")
    peak, far = ceiling("fp64", 1e11), from_dram(slow, 0.95)
    one = only(told(slow, far, ceilings=(peak,)), "instructions")
    assert "L2 2.00, DRAM 1.90 GFLOP/s" in one.sentence
    assert one.evidence["counted_as_one_flop"] == "exp"
    for faster in (0.5, 1.4):
        off = [
            f for f in told(slow, from_dram(slow, faster, share=0.5), ceilings=(peak,)) if "L2" in f.sentence
        ]
        assert only(off, "unexplained")
    assert only(told(slow, far, ceilings=(ceiling("fp64", 3e9),)), "unexplained"), "two thirds of π"


def test_little_faster_from_a_cache_than_from_dram_at_its_roof() -> None:
    slow, peak = near_cache("stencil", 5e-5), ceiling("fp64", 1e11)
    one = only(told(slow, from_dram(slow, 0.6), ceilings=(peak,)), "instructions")
    assert "there the instructions bind" in one.sentence and "L2 2.00, DRAM 1.20 GFLOP/s" in one.sentence
    assert only(told(slow, from_dram(slow, 0.6, share=0.55), ceilings=(peak,)), "unexplained"), "far from it"


def test_short_executions_that_lose_what_a_long_one_does_not() -> None:
    slow = near_cache("fft", 3e-4, implementation=BY_FFT)
    one = only(told(slow, from_dram(slow, 2.0), ceilings=(t0(BY_FFT, 2e-5),)), "latency")
    assert "150 µs of its 300 µs" in one.sentence
    assert float(one.evidence["lost_seconds"]) == pytest.approx(1.5e-4)
    assert only(told(slow, from_dram(slow, 2.0, longer=2.0)), "unexplained"), "no longer one was measured"


def test_a_product_as_fast_as_its_library() -> None:
    slow = placement(name="gemm", implementation=BY_BLAS, binds="compute", achieved=near(4.4e11))
    slow = replace(slow, attainable=near(1e12), efficiency=near(0.43))
    peaks = (ceiling("fp64", 1e12), ceiling("fp64 library", 6.1e11, kernel="gemm"))
    found = [f for f in told(slow, ceilings=peaks) if f.subject == "gemm fp64"]
    assert "440 GFLOP/s of 610 GFLOP/s" in only(found, "library").sentence
    faster = (peaks[0], ceiling("fp64 library", 8e11, kernel="gemm"))
    assert "library" in only(told(slow, ceilings=faster), "unexplained").sentence


def executions(name: str, starts_: tuple[float, ...], seconds: tuple[float, ...]) -> Sample:
    point = Point("workload", name, BY_THREADS, Precision.of("fp64"), "L2", threads=8)
    return Sample(point, 1, 0, 0, flops=1e5, bytes_read=4e5, repetitions=Repetitions(starts_, seconds))


def test_executions_that_were_never_in_a_row() -> None:
    alone = executions("dot", tuple(2e-3 * i for i in range(8)), (4e-5,) * 8)
    row = executions("gemv", tuple(2e-5 * i for i in range(8)), (4e-5,) + (1e-5,) * 7)
    slow = near_cache("dot", 4e-5)
    one = only([f for f in told(slow, samples=(alone, row)) if f.cause != "noisy-neighbour"], "cold-start")
    assert "(8 of 8)" in one.sentence and "4.0 times as long" in one.sentence
    steady = replace(row, repetitions=Repetitions(row.repetitions.start, (1e-5,) * 8))
    assert "cold-start" not in {f.cause for f in told(slow, samples=(alone, steady))}
    in_row = executions("dot", tuple(5e-5 * i for i in range(8)), (4e-5,) * 8)
    assert "cold-start" not in {f.cause for f in told(slow, samples=(in_row, row))}


def test_where_pi_is_wrong_no_workload_is_judged_by_it() -> None:
    folded = replace(ceiling("fp64", 4e12), share_at_clock=2.0)
    slow = placement(name="gemm tall", achieved=near(4e10), efficiency=near(0.4))
    assert [f.cause for f in told(slow, ceilings=(folded,))] == ["folded-chain"]
    assert [f.cause for f in told(slow)] == ["unexplained"]


def test_tf32_is_told_of_no_cpu() -> None:
    fast = (ceiling("fp32 library", 2e12, kernel="gemm"), ceiling("fp32", 1e12))
    assert [f.cause for f in told(ceilings=fast)] == []
    gpu = profile({**CPU, "kind": "cuda"}, fast)
    assert [f.cause for f in diagnose(gpu, ())] == ["tf32"]


# -- the telling --------------------------------------------------------------------------------


def test_no_remedy_repeats_its_heading() -> None:
    assert not [r for r in REMEDIES.values() if r.lower().startswith("try")]


def test_workloads_of_one_cause_are_told_once() -> None:
    both = [near_cache("transpose", 1.2e-5, 0.3), near_cache("layernorm", 1.3e-5, 0.2)]
    far = [from_dram(p, 1.0) for p in both]
    one = only(told(*both, *far, ceilings=(ceiling("fp64", 1e11),)), "instructions")
    assert one.subjects == ("layernorm fp64 L2", "transpose fp64 L2"), "the lowest first"
    assert one.sentence.startswith("2 workloads below half of their roof")
    assert one.evidence["ratio of layernorm fp64 L2"] == pytest.approx(0.2)
    (kept,) = plain([one])
    assert kept["subjects"] == list(one.subjects)
    many = only(told(*(near_cache(f"w{i}", 1e-4) for i in range(5))), "unexplained")
    assert "and 2 more" in many.sentence and len(many.subjects) == 5
    assert all("start (T₀ of" in str(many.evidence[f"tested of w{i} fp64 L2"]) for i in range(5))


def printed(count: int, words: int) -> list[str]:
    long = [
        Finding(f"s{i}", "timer", " ".join(["word"] * words), {}, "look at it again") for i in range(count)
    ]
    empty: Profile = profile(CPU)
    lines = list(findings.triage(replace(empty, facts={**empty.facts, "findings": plain(long)})))
    return [line.plain for line in lines if isinstance(line, Text)][1:]


def test_the_printed_block_is_short() -> None:
    lines = printed(9, 200)
    assert len(lines) == findings.MOST and lines[-1].startswith("and 4 more (timer), in facts.findings")
    assert all(
        len(textwrap.wrap(line, 100)) <= 3 and "… Try: look at it again." in line for line in lines[:-1]
    )
    assert len(printed(6, 3)) == 6
    assert (
        findings._clause("softmax 0.1x (L2 11, DRAM 9), dot 0.2x (L2, 11") == "softmax 0.1x (L2 11, DRAM 9)"
    )
    whole = "a, of which the end alone would be lost"
    assert findings._clause(whole) == whole
    assert printed(1, 3) == ["timer: word word word. Try: look at it again."]


def test_memory_that_reads_and_writes_at_once_may_give_more_than_a_line_between_two_accesses() -> None:
    """Four arrays read and three of them written: each way no faster than another access goes that way."""
    known = {"update": 74e9, "triad": 61e9, "read": 56e9, "write": 43e9}
    ceilings = tuple(ceiling("fp64", beta, "beta", access=access) for access, beta in known.items())

    def adam(rate: float) -> Placement:
        seconds = 1e9 / rate
        return placement(
            name="adam",
            bytes_read=1e9 * 4 / 7,
            bytes_written=1e9 * 3 / 7,
            seconds=near(seconds),
            achieved=near(1e9 / seconds),
            attainable=near(68e9),
            efficiency=near(rate / 68e9),
        )

    assert [f for f in told(adam(79e9), ceilings=ceilings) if f.subject == "adam fp64"] == []
    assert only([f for f in told(adam(99e9), ceilings=ceilings) if "adam" in f.subject], "unexplained")
