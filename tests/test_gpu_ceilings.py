"""Ceilings of a GPU: units, order, names, energy, and what share of the theoretical rate they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.fitting import in_theory
from bench.fitting.ceilings import derive
from bench.gpu.rates import bus_bytes_per_second, flops_per_clock_per_sm
from bench.profile.records import Ceiling, Point, Precision, Profile, Repetitions, Sample
from bench.report.roofs import peaks
from bench.report.scene import scene
from bench.report.table import render
from bench.workloads import place

SMS, CLOCK, CAPABILITY = 10, 1e9, 90
FACTS = {
    "unit": "SM",
    "compute_capability": CAPABILITY,
    "sm_count": SMS,
    "memory_bus_bits": 1024,
    "max_memory_clock_hz": 1e9,
}
HEADER: dict[str, Any] = {"device": {"kind": "cuda", "name": "GPU", "state": "quiet", "facts": FACTS}}

FP16 = Precision("fp16", "fp32", "fp16", "matrix")
CHAIN = Point("fma", "fma", "8 chains b256", Precision.of("fp32"), scope="device", threads=SMS)
TENSOR = replace(CHAIN, family="tensor", kernel="mma", variant="mma b256", precision=FP16)
DP4A = replace(CHAIN, precision=Precision("int8", "int32", "int32"))
PRODUCT = replace(
    CHAIN, family="gemm", kernel="gemm", variant="cublas", precision=replace(FP16, unit="library")
)
COPY = Point("stream", "copy", "v16 l4 b256", Precision.of("fp32"), "DRAM", "copy", "ordinary", "device", SMS)


def samples(point: Point, rate: float, seconds: float = 0.02, **more: Any) -> list[Sample]:
    """Two rounds of five repetitions at `rate` (byte/s for streams, else FLOP/s)."""
    amount = rate * seconds
    work = {"bytes_read": amount} if point.family == "stream" else {"flops": amount}
    found = Repetitions(seconds=(seconds,) * 5, clock_hz=(CLOCK,) * 5, power_w=(100.0,) * 5)
    return [Sample(point, n, n, 0, repetitions=found, **work, **more) for n in (1, 2)]


def profile(*groups: list[Sample]) -> Profile:
    """What is derived from the samples on a GPU."""
    return derive(HEADER, [], [s for group in groups for s in group])


def one(group: list[Sample]) -> Ceiling:
    """The only ceiling."""
    (found,) = profile(group).ceilings
    return found


def test_vector_matrix_and_library_ceilings_stand_in_this_order_each_on_its_own() -> None:
    found = profile(
        samples(replace(PRODUCT, sizes={"m": 8, "n": 8, "k": 8}), 5e12),
        samples(TENSOR, 6e12),
        samples(CHAIN, 1e12),
        samples(COPY, 1e11),
    ).ceilings
    labels = [(c.quantity, c.precision.label) for c in found]
    assert labels == [
        ("pi", "fp32"),
        ("pi", "fp16>fp32 matrix"),
        ("pi", "fp16>fp32 library"),
        ("beta", "fp32"),
    ]


def test_integers_count_operations_and_not_flop() -> None:
    assert (one(samples(DP4A, 1e12)).unit, one(samples(CHAIN, 1e12)).unit) == ("OP/s", "FLOP/s")


@pytest.mark.parametrize(
    ("sizes", "name"), [((64, 64, 64), "cublas n=64"), ((128, 64, 32), "cublas 128x64x32")]
)
def test_a_product_is_named_by_its_shape(sizes: tuple[int, int, int], name: str) -> None:
    point = replace(PRODUCT, sizes=dict(zip("mnk", sizes, strict=True)))
    assert one(samples(point, 1e12)).variant == name


def test_only_square_products_of_random_operands_make_the_curve_over_sizes() -> None:
    square, flat = ({"m": 64, "n": 64, "k": 64}, {"m": 128, "n": 64, "k": 32})
    zeros = replace(PRODUCT, operands="zeros", sizes={"m": 32, "n": 32, "k": 32})
    groups = [samples(replace(PRODUCT, sizes=s), 1e12) for s in (square, flat)]
    curves = {curve.mode: curve for curve in profile(*groups, samples(zeros, 2e12)).curves}
    assert set(curves) == {"cublas", "oblong"}
    assert [point.x for point in curves["cublas"].points] == [64.0]
    assert curves["oblong"].plateaus["shapes"] == [[128, 64, 32]]


def test_the_share_of_theory_is_taken_at_the_clock_held() -> None:
    for point in (CHAIN, TENSOR, PRODUCT):
        whole = in_theory.in_units(point.precision).label
        rate, _ = flops_per_clock_per_sm(CAPABILITY, whole)
        assert rate is not None
        sized = replace(point, sizes={"m": 8, "n": 8, "k": 8} if point.family == "gemm" else {})
        found = one(samples(sized, 0.5 * rate * CLOCK * SMS))
        assert found.per_clock_per_unit == pytest.approx(0.5 * rate)
        assert found.share_at_clock == pytest.approx(0.5)


def test_a_bandwidth_is_compared_with_the_bus() -> None:
    bus = bus_bytes_per_second(1024, 1e9)
    assert bus == pytest.approx(1024 / 8 * 1e9 * 2)
    assert one(samples(COPY, 0.9 * bus)).share_at_clock == pytest.approx(0.9)


def test_no_share_without_a_known_device() -> None:
    assert in_theory.share(CHAIN, 100.0, 1e12, {"facts": {}}) is None
    assert in_theory.share(CHAIN, None, 1e12, HEADER["device"]) is None


def test_energy_is_told_only_where_the_load_lasted() -> None:
    assert one(samples(CHAIN, 1e12)).energy_j is None
    assert one(samples(CHAIN, 1e12, seconds=0.5)).energy_j == pytest.approx(100 / 1e12)
    metered = {"energy_j": 500.0, "energy_seconds": 2.5}
    assert one(samples(CHAIN, 1e12, seconds=0.5, facts=metered)).energy_j == pytest.approx(200 / 1e12)


def test_a_workload_on_matrix_units_stands_under_their_roof() -> None:
    works = samples(replace(TENSOR, family="workload", kernel="matmul", variant="cublas"), 3e12)
    roof = place.roof_of(works[0], profile(samples(CHAIN, 1e12), samples(TENSOR, 6e12)).ceilings, ())
    assert roof.pi is not None and roof.pi.value == pytest.approx(6e12)
    vector = replace(works[0], point=replace(CHAIN, family="workload", kernel="dot"))
    roof = place.roof_of(vector, profile(samples(CHAIN, 1e12), samples(TENSOR, 6e12)).ceilings, ())
    assert roof.pi is not None and roof.pi.value == pytest.approx(1e12)


def test_equal_peaks_share_a_line_of_the_plot_and_a_label() -> None:
    half, brain = (
        samples(TENSOR, 6.00e12),
        samples(replace(TENSOR, precision=replace(FP16, inputs="bf16")), 6.05e12),
    )
    lines = scene([profile(half, brain, samples(CHAIN, 1e12), samples(COPY, 1e11))]).horizontals
    texts = [line.text for line in lines]
    assert len(texts) == 2 and texts[1].startswith("fp16>fp32, bf16>fp32 matrix  π 6.00 TFLOP/s")


def test_integers_and_zeros_make_no_roof() -> None:
    zeros = samples(replace(CHAIN, operands="zeros"), 2e12)
    labels = [c.estimate.value for c in peaks(profile(samples(DP4A, 9e12), zeros, samples(CHAIN, 1e12)))]
    assert labels == [pytest.approx(1e12)]


def test_the_table_counts_sms_and_tells_of_burst_and_sustained_in_one_line() -> None:
    groups = [samples(CHAIN, 1.0e12), samples(CHAIN, 1.1e12, regime="burst")]
    groups.append(samples(CHAIN, 0.9e12, seconds=0.5, regime="sustained"))
    text = render(profile(*groups))
    assert "GPU · 10 SMs" in text
    assert text.count("fma, 8 chains b256") == 1
    (row,) = [line for line in text.splitlines() if line.startswith("fp32 fma:")]
    told = "fp32 fma: sustained 900 GFLOP/s at 1.00 GHz (111 pJ/FLOP), burst 1.10 TFLOP/s at 1.00 GHz"
    assert row.startswith(f"{told}; band 0.82"), "the lowest is 0.82 of the highest"


def test_a_burst_without_its_typical_rate_has_its_own_row() -> None:
    assert "fp32 burst" in render(profile(samples(CHAIN, 1e12, regime="burst")))


def test_the_cross_check_is_shown_with_what_does_not_agree() -> None:
    point = {"kernel": "fma", "precision": {"inputs": "fp32"}, "variant": "8 chains b256"}
    good = {"value": 1.001, "low": 0.999, "high": 1.003}
    compared = [
        {"point": point, "unit": "FLOP/s", "rates": [[1e12, 1.001e12]] * 3, "ratio": good}
        | {"verdict": "agree", "sentence": "they agree"},
        {"point": point | {"kernel": "copy"}, "unit": "byte/s", "rates": [], "ratio": None}
        | {"verdict": "not compared", "sentence": "copy: the second side died"},
    ]
    found = {"names": ["cuda", "numba"], "limit": 0.02, "compared": compared}
    text = render(derive(HEADER | {"cross_check": found}, [], samples(CHAIN, 1e12)))
    assert "Cross-check  numba over cuda; a fault from 2.0 % on" in text
    (row,) = [line for line in text.splitlines() if line.startswith("fma fp32, 8")]
    assert row.split()[5:] == [
        "1.00",
        "TFLOP/s",
        "1.00",
        "TFLOP/s",
        "1.001",
        "0.9990",
        "to",
        "1.003",
        "agree",
    ]
    assert "copy: the second side died" in text and "they agree" not in text
    assert "Cross-check" not in render(profile(samples(CHAIN, 1e12)))


def test_a_library_is_judged_by_the_units_that_it_may_take() -> None:
    double = Precision.of("fp64", "library")
    product = replace(PRODUCT, precision=double, sizes={"m": 8, "n": 8, "k": 8})
    rate, _ = flops_per_clock_per_sm(CAPABILITY, "fp64 matrix")
    assert rate is not None
    assert one(samples(product, 0.9 * rate * CLOCK * SMS)).share_at_clock == pytest.approx(0.9)
    vector, matrix = (replace(CHAIN, precision=Precision.of("fp64", unit)) for unit in ("vector", "matrix"))
    work = samples(replace(product, family="workload"), 1e12)[0]
    found = profile(
        samples(vector, 1e12), samples(replace(matrix, family="tensor", kernel="mma"), 2e12)
    ).ceilings
    roof = place.roof_of(work, found, ())
    assert roof.pi is not None and roof.pi.value == pytest.approx(2e12)
