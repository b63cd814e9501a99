"""Real machines on which triage must not accuse the wrong cause, beside those on which the cause is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import reference
from bench.profile.records import Point, Precision, Repetitions, Sample
from bench.store import Log
from bench.triage import Context, Finding, clocks, diagnose, tenancy, workloads
from bench.triage.case import Case
from bench.triage.datasheet import sheet_of
from bench.triage.refitted import whose
from tests.crafted import ceiling, near, only, placement, profile
from tests.triaged import clocked, cut, diagnosed, of, slower, where
from tests.triaged import cpu as cpu
from tests.triaged import gpu as gpu


def seen(log: Log, **values: Any) -> Log:
    """The same run where the conditions before every round say this as well; a list has one value a round."""
    conditions = []
    for i, one in enumerate(log.conditions):
        own = {k: v[i] if isinstance(v, list) else v for k, v in values.items()}
        conditions.append({**one, "values": {**one["values"], **own}})
    return replace(log, conditions=conditions)


# -- containers ----------------------------------------------------------------------------------


def test_a_quota_is_no_neighbour(cpu: Log) -> None:
    """What a container's quota stopped is counted by the system, and nobody else need be there."""
    stopped = [100.0 + 20.0 * i for i in range(len(cpu.conditions))]
    found = diagnosed(seen(cpu, throttled_seconds=stopped), cut, cpu_quota=1.5)
    one = only([f for f in found if f.subject == "repetitions"], "cpu-quota")
    assert "CPU quota of 1.5 CPUs stopped" in one.sentence
    assert float(one.evidence["stopped_seconds"]) == pytest.approx(20.0 * (len(stopped) - 1))
    long_ago = diagnosed(seen(cpu, throttled_seconds=100.0), cut, cpu_quota=1.5)
    assert "noisy-neighbour" in {f.cause for f in long_ago} and "cpu-quota" not in {f.cause for f in long_ago}


# -- shared GPUs ---------------------------------------------------------------------------------


def test_a_gpu_in_use_before_the_rounds_has_a_neighbour(gpu: Log) -> None:
    """Time slicing: every repetition is as slow as the next, and a container sees no other processes."""
    one = only(diagnosed(seen(gpu, utilisation=0.97)), "noisy-neighbour")
    assert "in use for 97 % of the time before the first round" in one.sentence
    own = [0.1, *[0.97] * (len(gpu.conditions) - 1)]  # behind a round of ours the device still shows it
    assert diagnosed(seen(gpu, utilisation=own)) == []


def test_short_repetitions_that_are_all_start_have_no_neighbour(cpu: Log) -> None:
    """One round did a tenth of the work in as much time, as where starting takes most of it."""

    def tenth(s: Sample) -> Sample:
        work = {"flops": s.flops / 10, "bytes_read": s.bytes_read / 10, "bytes_written": s.bytes_written / 10}
        return replace(s, **work)

    causes = {f.cause for f in diagnosed(cpu, where(lambda s: s.status == "ok" and s.round == 2, tenth))}
    assert "noisy-neighbour" not in causes


def half(s: Sample) -> Sample:
    return slower(s, 2.5) if s.repetitions.seconds else s


def test_time_slicing_is_not_only_the_timer(gpu: Log) -> None:
    assert "time slicing" in only(diagnosed(gpu, half), "timer").sentence
    causes = {f.cause for f in diagnosed(seen(gpu, utilisation=0.9), half)}
    assert "noisy-neighbour" in causes and not causes & {"timer", "memory-clock", "narrow-probe"}
    fast = diagnosed(gpu, lambda s: slower(s, 0.5) if s.repetitions.seconds else s)
    assert "time slicing" not in only(fast, "timer").sentence


@pytest.mark.parametrize(("values", "facts"), [({"utilisation": 0.98}, {}), ({}, {"power_limit_w": 120.0})])
def test_a_board_that_others_load_is_the_right_one(
    gpu: Log, values: Mapping[str, float], facts: Mapping[str, float]
) -> None:
    """It draws as much before the rounds as in them, because somebody else is at work on it."""

    def loaded(s: Sample) -> Sample:
        return replace(s, repetitions=replace(s.repetitions, power_w=(100.0,) * len(s.repetitions)))

    bare = seen(gpu, power_w=99.0)
    assert "wrong-device" in {f.cause for f in diagnosed(bare, loaded)}
    found = diagnosed(seen(bare, **values), loaded, **facts)
    assert "wrong-device" not in {f.cause for f in found}


def test_a_board_that_has_not_come_to_rest_is_the_right_one(gpu: Log) -> None:
    """Read right behind a round, a mean over a second is that of the round."""

    def loaded(s: Sample) -> Sample:
        return replace(s, repetitions=replace(s.repetitions, power_w=(700.0,) * len(s.repetitions)))

    rest = [70.0, *[690.0] * (len(gpu.conditions) - 1)]
    assert diagnosed(seen(gpu, power_w=rest), loaded) == []


# -- host links ----------------------------------------------------------------------------------


def copies(rate: float, generation: int, width: int) -> Case:
    """Pinned and pageable copies at one rate over a link of that generation and width (0: not told)."""
    kernels = ("copy-pinned", "copy-pageable")
    made = [ceiling("fp32", rate, "beta", kernel=k, level="host link", access="h2d") for k in kernels]
    crossing = Point("link", "copy-pinned", "", Precision.of("int8"), "host link", "h2d")
    facts = {"pcie_generation": generation, "pcie_width": width} if generation else {}
    timed = Repetitions(start=(0.0, 1.0), seconds=(0.1, 0.1))
    sample = Sample(crossing, 1, 1, 0, bytes_read=rate / 10, repetitions=timed, facts=facts)
    return Case(profile({"kind": "cuda", "name": "GPU", "facts": {}}, made), (sample,))


@pytest.mark.parametrize(
    ("rate", "generation", "width", "pinned"),
    [
        (3.2e9, 3, 4, True),  # few lanes: a laptop, an external box
        (6.2e9, 3, 8, True),
        (9.9e9, 4, 16, False),
        (6.0e9, 3, 16, False),
        (9.9e9, 0, 0, False),
        (350e9, 0, 0, True),  # one address space with the CPU
    ],
)
def test_copies_that_fill_their_link_are_pinned(
    rate: float, generation: int, width: int, pinned: bool
) -> None:
    found = tenancy.pageable(copies(rate, generation, width))
    assert (found is None) == pinned, found


# -- clocks --------------------------------------------------------------------------------------


def test_small_cores_are_judged_by_their_own_highest_clock() -> None:
    """The clock of a point is that of its slowest thread; the highest may be another core's."""
    facts = {"max_clock_hz": 3.9e9, "least_max_clock_hz": 2.8e9}
    assert clocks.nominal(Case(profile({"kind": "cpu", "facts": facts}), ())) == ("highest", 2.8e9)
    del facts["least_max_clock_hz"]
    assert clocks.nominal(Case(profile({"kind": "cpu", "facts": facts}), ())) == ("highest", 3.9e9)


def test_turbo_that_is_off_is_said(cpu: Log) -> None:
    off, silent = (diagnosed(log, lambda s: clocked(s, 0.6)) for log in (seen(cpu, turbo=False), cpu))
    assert ["turbo is switched off" in f.sentence for f in off if f.cause == "stuck-clock"] == [True]
    assert not any("turbo" in f.sentence for f in silent)


# -- arithmetic ----------------------------------------------------------------------------------


def products(unit: str, library: float) -> set[str]:
    """Causes of a library's fp32 product beside 1 TFLOP/s of the vector units, on CPU threads or on SMs."""
    made = [ceiling("fp32", 1e12), ceiling("fp32 library", library, kernel="gemm")]
    return {f.cause for f in diagnose(profile({"kind": "simulated", "facts": {"unit": unit}}, made), ())}


def test_only_gpus_have_tf32_and_it_has_its_limits() -> None:
    assert products("SM", 8e12) == {"tf32"}
    assert products("SM", 900e12) == {"unexplained"}  # what is wrong is the vector figure
    assert products("thread", 2.5e12) == products("", 2.5e12) == set()


def test_a_chain_far_below_the_library_of_a_cpu_is_a_weak_probe() -> None:
    """As where every repetition is as short as its start: no workload is judged by such a roof."""
    made = [ceiling("fp32", 1e9), ceiling("fp32 library", 8e12, kernel="gemm")]
    fast = placement(
        binds="compute", precision=Precision.of("fp32"), achieved=near(5e12), efficiency=near(5e3)
    )
    found = diagnose(profile({"kind": "cpu", "facts": {}}, made, fast), ())
    assert "0.00 times the library's π of 8.00 TFLOP/s" in only(found, "narrow-probe").sentence


def test_a_chain_a_thousand_times_too_slow_is_no_step_of_the_sweeps(cpu: Log) -> None:
    def steps(factor: float) -> bool:
        found = diagnosed(cpu, where(of("fma"), lambda s: slower(s, factor)))
        return "sweep-step" in {f.cause for f in found}

    assert steps(1.5) and not steps(1000.0)


def test_no_neighbour_makes_a_roof_a_thousand_times_too_low() -> None:
    neighbour = Finding("repetitions", "noisy-neighbour", "somebody else")
    for times, cause in ((1.5, "noisy-neighbour"), (1000.0, "unexplained")):
        above = placement(achieved=near(1e11 * times), efficiency=near(times))
        (one,) = workloads.placed(Case(profile({"kind": "cpu", "facts": {}}, (), above), ()), [neighbour])
        assert one.cause == cause, one.sentence


# -- caches --------------------------------------------------------------------------------------


def of_l3(s: Sample) -> bool:
    return of("cache", "cache-read", level="L3")(s) and "plateau" in s.point.sizes


def test_a_cache_that_others_fill_does_not_make_the_memory_one(cpu: Log) -> None:
    """On a virtual machine the set meant for L3 reads from DRAM; so do working sets far beyond it."""
    assert any(map(of_l3, cpu.samples))
    found: list[Finding] = diagnosed(cpu, where(of_l3, lambda s: slower(s, 5.0)))
    assert "cache-resident" not in {f.cause for f in found}, [f.sentence for f in found]


# -- whose figures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rtx_4090_laptop", "rtx-3090-ti", "rtx_4090_d", "h200_nvl", "h200_mig_1g", "rtx_5090_mobile"]
)
def test_a_file_named_after_a_variant_is_nobodys(name: str) -> None:
    assert whose(Path(f"{name}.csv"), "") == ("", "")


def test_a_file_named_after_a_device_is_its_own() -> None:
    assert whose(Path("roofline_rtx_4090_run2.csv"), "")[0] == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("label", "precision"),
    [
        ("fp32 library tf32", "fp32 matrix tf32"),
        ("bf16>fp32 library", "bf16>fp32 matrix"),
        ("fp64 library", "fp64 matrix"),
        ("fp32 library", "fp32"),
    ],
)
def test_a_library_product_is_judged_by_the_units_that_do_it(label: str, precision: str) -> None:
    sheet = sheet_of(Context("pi", "NVIDIA H200", label), reference.known().of("H200 SXM"), 1e13)
    assert sheet is not None and sheet.precision == precision
