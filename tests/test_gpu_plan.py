"""What is planned on a GPU: the budget of every preset, sizes that fit memory and time, regimes, refusals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backends import open_backend
from bench.device import Device
from bench.errors import ResourceError, UsageError
from bench.fitting import in_theory
from bench.gpu.products import PRODUCTS
from bench.planning import gpu_memory_points, gpu_points
from bench.planning.gpu_budget import BUDGETS, HEADLINES, table
from bench.planning.gpu_points import WINDOW
from bench.planning.plan import plan
from bench.planning.planned import PRESETS, Plan, Planned
from bench.planning.points import Draft
from bench.planning.timebox import Ledger, allot
from bench.profile.records import Point, Precision
from bench.workloads import on_gpu
from kernels import CUDA
from kernels.mix import cuda_points
from tests.fake_device import FAKE, FakeBackend

MIB, GIB = 1 << 20, 1 << 30
LARGE, SMALL, SLICE = (open_backend(f"sim:{name}").device for name in ("gpu-large", "gpu-small", "gpu-mig"))


def planned(preset: str = "standard", device: Device = LARGE, **options: Any) -> Plan:
    variants = open_backend(device.id).variants
    return plan(device, variants, preset, **options)


def of(drafted: Plan, family: str, regime: str = "typical") -> list[Planned]:
    return [p for p in drafted.points if p.point.family == family and p.regime == regime]


def with_facts(**facts: Any) -> Device:
    return replace(LARGE, facts={**LARGE.facts, **facts})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_whole_device_is_measured_and_every_key_is_once(preset: str) -> None:
    drafted = planned(preset)
    own = {"cache", "latency", "launch", "link"} | ({"scaling", "overlap"} if preset != "quick" else set())
    assert {p.point.family for p in drafted.points} == {"fma", "stream", "mix", "gemm", "tensor", *own}
    whole = [p.point for p in drafted.points if p.point.family not in ("latency", "scaling")]
    assert {(p.scope, p.threads) for p in whole} == {("device", 64)}
    fewer = {(p.point.scope, p.point.threads) for p in drafted.points if p.point not in whole}
    assert all(scope == ("device" if threads == 64 else "core") for scope, threads in fewer)
    assert max(Counter(p.key for p in drafted.points).values()) == 1
    assert drafted.unit == "SM"
    assert not any("on CPUs only" in note for note in drafted.notes)


@pytest.mark.parametrize("preset", PRESETS)
def test_everything_planned_has_a_function_or_a_library(preset: str) -> None:
    forms = {(f.kernel, f.precision) for family in CUDA.values() for f in family.forms}
    for p in planned(preset).points:
        label = p.point.precision.label
        if p.point.family in ("latency", "launch"):
            continue  # their forms follow from chains and ways of starting: tests/test_cuda_hierarchy.py
        if p.point.family == "link":
            continue  # moved by copy engines and by the forms of streams: tests/test_gpu_links.py
        if p.point.family == "gemm":
            assert PRODUCTS[label].output == p.point.precision.output
            assert all(p.point.sizes[n] % PRODUCTS[label].multiple == 0 for n in "mnk")
        else:
            assert (p.point.kernel, label) in forms
        if p.point.family == "mix":
            assert p.point.variant.rsplit(" ", 1)[0] in {
                f.variant for f in CUDA["mix"].forms if (f.kernel, f.precision) == (p.point.kernel, label)
            }


def test_the_headlines_come_first_and_are_never_given_up() -> None:
    drafted = planned("quick")
    kept = {(p.point.family, p.point.precision.inputs) for p in drafted.points if p.priority == 0}
    memory = {(family, "fp32") for family in ("stream", "cache", "launch")}
    assert kept == {(f, n) for f in ("fma", "gemm") for n in HEADLINES} | memory
    assert [p.point.family for p in drafted.pilot] == sorted(
        (p.point.family for p in drafted.pilot), key=gpu_points.OFFERED.index
    )
    kernels = [p.point.kernel for p in drafted.pilot if p.point.family == "stream"]
    assert set(kernels[:6]) == {"read", "triad"}
    first = next(p for p in drafted.pilot if p.point.family == "fma")
    assert (first.point.precision.label, first.point.variant) == ("fp32", "8 chains b256")


def test_presets_measure_more_with_more_time_and_say_what_they_leave_out() -> None:
    counts = [sum(p.visits for p in planned(name).points) for name in PRESETS]
    assert counts[0] < 0.5 * counts[1] < 0.5 * counts[2]
    notes = planned("quick").notes
    assert "fma in int32, int8: not in the quick preset" in notes
    assert "sustained rates: 10 s each do not fit into the quick preset" in notes
    assert planned("full").notes == (
        "cache: L1 writes through, so that stores are measured in L2 and DRAM only",
        "link from GPU to GPU: one whole GPU is visible to this run",
        "collective: one whole GPU is visible to this run",
        "several GPUs at once: one whole GPU is visible to this run",
    )


def test_what_is_asked_for_by_name_is_planned_in_every_preset() -> None:
    drafted = planned("quick", precisions=["int8", "fp8"])
    found = {(p.point.family, p.point.precision.label) for p in drafted.points}
    assert found == {
        ("fma", "int8>int32"),
        ("stream", "fp32"),
        ("gemm", "int8>int32 library"),
        ("gemm", "fp8>fp32 library"),
        ("tensor", "int8>int32 matrix"),
        ("tensor", "fp8>fp32 matrix"),
    }
    only = planned("standard", precisions=["fp64"])
    assert {p.point.precision.inputs for p in only.points} == {"fp64"}, "streams, too"


def test_a_lacking_precision_is_planned_once_without_variants() -> None:
    found = [p for p in planned("standard", SMALL).points if p.point.precision.inputs == "fp8"]
    assert [(p.point.family, p.tune, p.visits) for p in found] == [("gemm", "", 1)]
    on_slice = [p for p in planned("standard", SLICE).points if p.point.precision.inputs == "int32"]
    assert [(p.point.family, p.tune) for p in on_slice] == [("fma", "")]


@pytest.mark.parametrize("device", [SMALL, FAKE])
def test_asking_only_for_what_is_lacking_is_refused_with_the_reasons(device: Device) -> None:
    name = "fp8" if device.is_gpu else "bf16"
    variants = FakeBackend().variants
    with pytest.raises(UsageError, match=rf"\({name}: .*\); this device has: fp64, fp32"):
        plan(device, variants, "quick", precisions=[name])
    assert plan(device, variants, "quick", precisions=[name, "fp64"]).points


@pytest.mark.parametrize("family", ["workload"])
def test_families_that_no_gpu_has_leave_nothing(family: str) -> None:
    with pytest.raises(
        UsageError, match=f"no points of {family} .*its families: fma, stream, mix, gemm, ten"
    ):
        planned(families=[family])


def test_workloads_are_planned_in_whole_windows_and_skipped_where_the_precision_lacks() -> None:
    found = on_gpu.points(64 << 30, 50e6, 132)
    drafted = planned(families=["workload"], workloads=found)
    assert [p.point for p in drafted.points] == list(found)
    assert {p.target for p in drafted.points} == {WINDOW} and {p.priority for p in drafted.points} == {1}


def test_threads_are_for_cpus() -> None:
    with pytest.raises(UsageError, match="--threads is for CPUs: a GPU is measured on all its SMs"):
        planned(threads=64)


@pytest.mark.parametrize(
    ("l2", "memory", "bytes"),
    [(48 * MIB, 64 * GIB, GIB), (48 * MIB, 2 * GIB, 512 * MIB), (512 * MIB, 64 * GIB, 2 * GIB)],
)
def test_arrays_exceed_the_cache_and_leave_room(l2: int, memory: int, bytes: int) -> None:
    device = replace(LARGE, caches=(*LARGE.caches[:-1], replace(LARGE.caches[-1], bytes=l2)))
    mixes, streams = (
        {p.point.sizes["bytes"] for p in of(planned("quick", device, memory=memory), family)}
        for family in ("mix", "stream")
    )
    assert mixes == {bytes} and 4 * l2 <= bytes <= memory / 4
    assert streams == {max(bytes, min(3051 * MIB, memory // 4))}, "3.2 TB/s for a millisecond"
    least = {p.least_bytes for p in of(planned("quick", device, memory=memory), "stream")}
    assert least == {4 * l2}


@pytest.mark.parametrize(
    ("bits", "clock", "bytes"), [(None, 2.5e9, GIB), (384, 1.2e9, GIB), (8192, 4e9, 7812 * MIB)]
)
def test_a_pass_over_a_stream_takes_a_millisecond_of_the_bus(
    bits: int | None, clock: float, bytes: int
) -> None:
    device = with_facts(memory_bus_bits=bits, max_memory_clock_hz=clock)
    assert {p.point.sizes["bytes"] for p in of(planned("quick", device), "stream")} == {bytes}


def test_too_little_memory_is_said_with_the_way_out() -> None:
    with pytest.raises(ResourceError, match=r"4x the .* MiB L2 cache.*--families fma,gemm,tensor"):
        planned("quick", memory=700 * MIB)
    assert planned("quick", memory=700 * MIB, families=["fma", "gemm", "tensor"]).points


def test_a_point_is_halved_once_and_never_below_four_caches() -> None:
    streams = [p for p in of(planned("quick"), "stream") if "window" not in p.point.sizes]
    (read,) = [p for p in streams if p.point.kernel == "read"]
    half = read.halved()
    assert half.point.sizes["bytes"] == read.point.sizes["bytes"] // 2
    assert half.halved() is half
    tight = replace(read, least_bytes=0.6 * read.point.sizes["bytes"])
    assert tight.halved() is tight
    sweep = of(planned("quick"), "mix")[0]
    assert sweep.halved().point.sizes == {**sweep.point.sizes, "bytes": sweep.point.sizes["bytes"] // 2}
    (chain, *_) = of(planned("quick"), "fma")
    assert chain.halved() is chain


@pytest.mark.parametrize(("preset", "dense"), [("quick", False), ("full", True)])
def test_the_sweep_is_the_one_that_the_kernels_declare(preset: str, dense: bool) -> None:
    mix = [p.point for p in of(planned(preset), "mix") if p.point.precision.inputs == "fp32"]
    found = [point for point in mix if "blocks_per_sm" not in point.sizes]
    settings = {(p.kernel, p.variant, p.sizes["fma"], p.sizes["block"]) for p in found}
    kernels = {"mix-read-only": False, "mix-in-place": True} if preset == "full" else {"mix-read-only": False}
    assert settings == {
        (kernel, variant, fma, block)
        for kernel, write_back in kernels.items()
        for variant, fma, block, _ in cuda_points(4, write_back, dense)
    }
    assert not any(p.tune for p in of(planned(preset), "mix")), "its forms follow from the intensity"


def draft(device: Device, memory: float = 64e9) -> Draft:
    return Draft(device, PRESETS["standard"], device.threads, memory)


@pytest.mark.parametrize("device", [LARGE, SMALL, SLICE])
@pytest.mark.parametrize("preset", PRESETS)
def test_products_fit_into_time_and_memory(device: Device, preset: str) -> None:
    memory = 2e9
    for p in of(planned(preset, device, memory=memory), "gemm"):
        m, n, k = (p.point.sizes[name] for name in "mnk")
        taken = gpu_points.seconds(draft(device), p.point.precision, (m, n, k))
        unknown = taken == float("inf") and max(m, n, k) <= 4096
        assert taken <= BUDGETS[preset].longest or unknown or (m, n, k) == (2048, 2048, 2048)
        assert m * k + k * n <= memory


def test_slow_units_get_small_products_and_unknown_ones_stop_at_4096() -> None:
    fp64, fp32 = Precision.of("fp64", "library"), Precision.of("fp32", "library")
    rate = 0.5 * 4 * 20 * 1.2e9 * 1.1  # half of 4 FLOP a clock, 20 SMs, burst clock
    assert gpu_points.seconds(draft(SMALL), fp64, (1000, 1000, 1000)) == pytest.approx(2e9 / rate)
    largest = {
        p.point.precision.inputs: max(p.point.sizes.values())
        for p in reversed(of(planned("full", SMALL), "gemm"))
    }
    assert largest["fp64"] <= 4096 < largest["fp16"]
    unknown = with_facts(compute_capability=133)
    assert gpu_points.seconds(draft(unknown), fp32, (8, 8, 8)) == float("inf")
    sizes = {max(p.point.sizes.values()) for p in of(planned("full", unknown), "gemm")}
    assert max(sizes) == 4096 and min(sizes) == 512


def test_an_unknown_minor_capability_is_planned_by_its_major() -> None:
    near = with_facts(compute_capability=95)
    precision = Precision.of("fp32", "library")
    assert gpu_points.seconds(draft(near), precision, (8, 8, 8)) == gpu_points.seconds(
        draft(LARGE), precision, (8, 8, 8)
    )
    kernels = {p.point.kernel for p in of(planned("standard", near), "tensor")}
    assert kernels == {"mma"}, "wgmma belongs to one capability alone"


@pytest.mark.parametrize(
    ("name", "measured", "said"),
    [
        ("NVIDIA GeForce RTX 2060", True, ""),
        (
            "NVIDIA GeForce GTX 1660",
            False,
            "tensor: NVIDIA GeForce GTX 1660 has no Tensor Cores: other units ",
        ),
        (
            "NVIDIA Graphics Device",
            True,
            "tensor: unknown whether 'NVIDIA Graphics Device' has Tensor Cores: ",
        ),
    ],
)
def test_emulated_matrix_instructions_are_no_ceiling(name: str, measured: bool, said: str) -> None:
    """Nor is what a library reaches by them a share of a rate that the board does not have."""
    turing = replace(with_facts(compute_capability=75), kind="cuda", name=name)
    drafted = plan(turing, open_backend(LARGE.id).variants, "standard")
    assert bool(of(drafted, "tensor")) is measured
    assert [n[: len(said)] for n in drafted.notes if "Tensor Cores" in n] == [said] * bool(said)
    half, single = (replace(Precision.of(p, "library"), accumulate="fp32") for p in ("fp16", "fp32"))
    point = Point("gemm", "gemm", "", half, "DRAM")
    as_header = {"kind": "cuda", "name": name, "facts": {"compute_capability": 75}}
    assert in_theory.share(point, 512.0, 1e12, as_header) == (pytest.approx(1.0) if not said else None)
    assert in_theory.share(replace(point, precision=single), 64.0, 1e12, as_header) == pytest.approx(0.5)


def test_matrix_units_follow_from_the_forms() -> None:
    assert ("wgmma", "fp8>fp32 matrix") in gpu_points.matrix_units(90)
    assert ("mma", "fp8>fp32 matrix") not in gpu_points.matrix_units(90), "compiled to something else there"
    assert ("mma", "fp8>fp32 matrix") in gpu_points.matrix_units(89)
    assert {kernel for kernel, _ in gpu_points.matrix_units(86)} == {"mma"}
    assert gpu_points.matrix_units(70) == ()
    assert "tensor fp64 matrix: this GPU has no instruction for it" in planned("standard", SMALL).notes


def test_burst_and_sustained_are_the_headlines_in_other_regimes() -> None:
    drafted = planned("standard")
    burst = {(p.point.family, p.point.precision.label) for p in drafted.points if p.regime == "burst"}
    assert burst == {
        ("fma", "fp32"),
        ("fma", "fp16"),
        ("gemm", "fp32 library"),
        ("gemm", "fp16>fp32 library"),
    }
    sustained = [p for p in drafted.points if p.regime == "sustained"]
    assert {(p.point.kernel, p.point.precision.label) for p in sustained} == {
        ("fma", "fp32"),
        ("read", "fp32"),
        ("gemm", "fp16>fp32 library"),
    }
    assert {p.times for p in sustained} == {1} and all(p.settle + p.budget > 10 for p in sustained)
    assert {p.times for p in planned("full").points if p.regime == "sustained"} == {3}
    assert {p.regime for p in planned("quick").points} == {"typical"}
    bf16 = planned("standard", precisions=["bf16", "fp64"])
    assert {(p.point.family, p.point.precision.inputs) for p in bf16.points if p.regime == "sustained"} == {
        ("gemm", "bf16"),
        ("stream", "fp64"),
    }


def test_zeros_stand_beside_random_operands() -> None:
    found = [p.point for p in planned("standard").points if p.point.operands == "zeros"]
    assert [(p.family, p.precision.label) for p in found] == [("gemm", "fp16>fp32 library")]


def test_windows_are_long_enough_for_batches() -> None:
    """What is one launch (trips of one kernel) has no gaps to hide, and starts shall lie in one queue."""
    windows = {f: min(p.target for p in of(planned("full"), f)) for f in (*gpu_points.OFFERED[:5], "cache")}
    assert all(seconds >= 0.02 for family, seconds in windows.items() if family != "cache")
    assert windows["cache"] == gpu_memory_points.TARGET
    assert {p.target for p in of(planned("full"), "launch")} == {gpu_memory_points.SHORT}


def test_what_is_measured_once_costs_once() -> None:
    (sustained, *_) = [p for p in planned("standard").points if p.regime == "sustained"]
    typical = of(planned("standard"), "fma")[0]
    ledger = Ledger()
    once, each = ledger.predict(sustained, 0.35), ledger.predict(typical, 1.0)
    assert once >= 10, "never scaled"
    assert ledger.rounds([sustained, typical], 1.0, 5) == pytest.approx(once + 5 * each)
    room = allot(ledger, [sustained, typical], once + 5 * each + 0.01, 5, 5)
    assert (room.rounds, room.scale, room.dropped) == (5, 1.0, ())
    tight = allot(ledger, [sustained, typical], 5 * each, 5, 5)
    assert tight.dropped == (sustained,) and tight.rounds == 5


def test_the_page_about_the_budget_is_what_the_planner_says() -> None:
    page = (Path(__file__).parents[1] / "docs/gpu-budget.md").read_text(encoding="utf-8")
    assert table() in page
