"""Theoretical rates of an SM and of a memory bus, against arithmetic on published figures."""

from __future__ import annotations

import pytest

from bench.gpu.rates import (
    LABELS,
    RATES,
    bus_bytes_per_second,
    flops_per_clock_per_sm,
    has_matrix_units,
)
from bench.profile.records import Precision

PRECISIONS = (
    *(Precision.of(name) for name in ("fp64", "fp32", "fp16", "bf16", "int32")),
    Precision("int8", "int32", "int32"),
    Precision("fp16", "fp32", "fp16", "matrix"),
    Precision.of("fp16", "matrix"),
    Precision("bf16", "fp32", "bf16", "matrix"),
    Precision("fp32", "fp32", "fp32", "matrix", "tf32"),
    Precision("int8", "int32", "int32", "matrix"),
    Precision.of("fp64", "matrix"),
    Precision("fp8", "fp32", "fp16", "matrix"),
)


def test_every_precision_that_is_measured_has_a_row() -> None:
    assert {p.label for p in PRECISIONS} <= set(LABELS)


@pytest.mark.parametrize(
    ("capability", "sms", "gigahertz", "label", "tera"),
    [
        (70, 80, 1.530, "fp64", 7.8),
        (70, 80, 1.530, "fp16>fp32 matrix", 125),
        (75, 40, 1.590, "fp32", 8.1),
        (75, 40, 1.590, "int8>int32 matrix", 130),
        (80, 108, 1.410, "fp64", 9.7),
        (80, 108, 1.410, "fp64 matrix", 19.5),
        (80, 108, 1.410, "fp16", 78),
        (80, 108, 1.410, "bf16", 39),
        (80, 108, 1.410, "fp32 matrix tf32", 156),
        (86, 72, 1.695, "fp16>fp32 matrix", 125),
        (89, 142, 2.520, "fp8>fp32 matrix", 733),
        (90, 132, 1.980, "fp32", 66.9),
        (90, 132, 1.830, "bf16>fp32 matrix", 989.4),
        (90, 132, 1.830, "fp8>fp32 matrix", 1978.9),
        (100, 148, 1.965, "fp64", 37),
        (100, 148, 1.850, "bf16>fp32 matrix", 2250),
        (120, 170, 2.407, "fp32", 104.8),
        (120, 170, 2.407, "fp16 matrix", 419),
    ],
)
def test_rates_give_the_data_sheets_figures(
    capability: int, sms: int, gigahertz: float, label: str, tera: float
) -> None:
    rate, source = flops_per_clock_per_sm(capability, label)
    assert rate is not None and source
    assert rate * sms * gigahertz * 1e9 == pytest.approx(tera * 1e12, rel=0.02)


@pytest.mark.parametrize(
    ("name", "label", "tera"),
    [
        ("NVIDIA GeForce RTX 4090", "bf16>fp32 matrix", 165.2),
        ("NVIDIA GeForce RTX 4090", "fp16 matrix", 330.3),
    ],
)
def test_a_geforce_halves_matrix_rates_with_fp32_accumulation(name: str, label: str, tera: float) -> None:
    rate, note = flops_per_clock_per_sm(89, label, name)
    assert rate is not None and rate * 128 * 2.52e9 == pytest.approx(tera * 1e12, rel=0.01)
    assert ("halved" in note) == (label == "bf16>fp32 matrix")
    whole, said = flops_per_clock_per_sm(89, "bf16>fp32 matrix")
    assert whole == 1024 and "GeForce boards do half" in said
    assert flops_per_clock_per_sm(90, "bf16>fp32 matrix", "NVIDIA H200")[0] == 4096


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", True),
        ("NVIDIA TITAN RTX", True),
        ("Quadro RTX 4000", True),
        ("Tesla T4", True),
        ("NVIDIA T4G", True),
        ("NVIDIA GeForce GTX 1660 Ti", False),
        ("GeForce GTX 1650", False),
        ("NVIDIA GeForce MX450", False),
        ("NVIDIA T1000 8GB", False),
        ("NVIDIA T400 4GB", False),
        ("Quadro T2000 with Max-Q Design", False),
        ("NVIDIA CMP 30HX", None),
        ("NVIDIA Graphics Device", None),
    ],
)
def test_turing_boards_have_matrix_units_by_their_name(name: str, there: bool | None) -> None:
    assert has_matrix_units(75, name) is there
    rate, said = flops_per_clock_per_sm(75, "fp16 matrix", name)
    assert rate == (1024 if there else None)
    assert ("has no Tensor Cores" in said) == (there is False)
    assert ("unknown whether" in said) == (there is None)
    assert flops_per_clock_per_sm(75, "fp16", name)[0] == 256, "vector units do fp16 on all of them"
    assert has_matrix_units(80, name) is has_matrix_units(70, name) is True
    assert has_matrix_units(61, name) is False


def test_an_unknown_capability_takes_the_nearest_lower_of_its_major_and_says_so() -> None:
    assert flops_per_clock_per_sm(121, "fp32") == (256, f"fallback to 12.0: {RATES['fp32'][120][1]}")
    assert flops_per_clock_per_sm(87, "fp16")[1].startswith("fallback to 8.6: ")
    rate, why = flops_per_clock_per_sm(130, "fp32")
    assert rate is None and why == "no fp32 rate is known for capability 13.0"
    assert flops_per_clock_per_sm(110, "fp64")[0] is None, "another major must not stand in"


def test_what_a_gpu_lacks_has_no_rate_and_a_wrong_label_lists_the_right_ones() -> None:
    for capability, label in (
        (75, "bf16"),
        (86, "fp64 matrix"),
        (80, "fp8>fp32 matrix"),
        (103, "fp64 matrix"),
    ):
        rate, why = flops_per_clock_per_sm(capability, label)
        assert rate is None and why.startswith(f"no {label} rate to compare with")
    rate, why = flops_per_clock_per_sm(90, "fp128")
    assert rate is None and "known: fp64, fp32" in why


@pytest.mark.parametrize(
    ("bits", "megahertz", "gigabytes"),
    [
        (5120, 1215, 1555),  # HBM2, A100 40 GB
        (6144, 3201, 4917),  # HBM3e, H200 at the clock NVML names
        (384, 10501, 1008),  # GDDR6X, RTX 4090
        (512, 14001, 1792),  # GDDR7, RTX 5090
        (384, 2505, 240),  # GDDR5, K80: CUDA names the doubled clock, and the factor is applied once
        (7680, 3996, 7672),  # B200 after the driver corrected its bus
    ],
)
def test_a_bus_carries_two_transfers_a_clock_exactly_once(
    bits: int, megahertz: float, gigabytes: float
) -> None:
    assert bus_bytes_per_second(bits, megahertz * 1e6) == pytest.approx(gigabytes * 1e9, rel=0.002)


def test_a_bus_of_which_something_is_unknown_has_no_rate() -> None:
    assert bus_bytes_per_second(None, 1e9) is None
    assert bus_bytes_per_second(5120, None) is None
    assert bus_bytes_per_second(5120, 0.0) is None
