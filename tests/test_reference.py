"""The reference figures: each row has its source, its unit and a plausible value; names find their device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import reference
from bench.errors import FileError, UsageError
from bench.fitting import normal
from bench.gpu.rates import HALVED, RATES
from bench.profile.records import Precision
from bench.reference import Figure
from tests.h200 import GIB, gpu
from tests.synthetic import ceiling

TABLES = reference.known()


def value(device: str, precision_or_level: str, kind: str = "datasheet") -> float:
    (found,) = [f for f in TABLES.of(device) if (f.precision_or_level, f.kind) == (precision_or_level, kind)]
    return found.value


# the data

UNITS = {
    "peak_flops": {"FLOP/s", "OP/s"},
    "bandwidth": {"byte/s"},
    "link_bandwidth": {"byte/s"},
    "collective_busbw": {"byte/s"},
    "cache_size": {"byte"},
    "memory_capacity": {"byte"},
    "sm_count": {"count"},
    "clock": {"Hz"},
    "latency": {"cycle"},
    "op_latency": {"s"},
    "collective_min_latency": {"s"},
}


def test_every_row_has_a_source_a_unit_of_its_quantity_and_a_plausible_value() -> None:
    assert len(TABLES.devices) == 32 and len(TABLES.figures) > 500
    bounds = {"FLOP/s": (1e11, 2e16), "OP/s": (1e13, 2e16), "byte/s": (1e9, 1e14), "Hz": (5e8, 3e9)}
    for f in TABLES.figures:
        assert f.unit in UNITS[f.quantity], f
        assert len(f.source) > 5 and f.vendor in ("NVIDIA", "AMD") and f.arch and f.cc, f
        low, high = bounds.get(f.unit, (0, 1e13))
        assert low < f.value < high, f
        assert (f.unit == "OP/s") == f.precision.startswith("int8"), f


def test_no_figure_is_there_twice_and_a_device_is_described_one_way() -> None:
    keys = Counter((f.device, f.quantity, f.precision_or_level, f.kind) for f in TABLES.figures)
    assert max(keys.values()) == 1
    sheets = Counter(
        (f.device, f.quantity, f.precision, f.level)
        for f in TABLES.figures
        if f.kind == "datasheet" and f.quantity in ("peak_flops", "bandwidth")
    )
    assert [key for key, count in sheets.items() if count > 1 and key[-1] in ("", "DRAM")] == []
    for device in TABLES.devices:
        assert len({(f.vendor, f.arch, f.cc) for f in TABLES.of(device)}) == 1
    assert len({n.reported_name for n in TABLES.names}) == len(TABLES.names)


def test_peaks_are_labelled_and_bandwidths_have_a_level() -> None:
    for f in TABLES.figures:
        assert bool(f.precision) == (f.quantity == "peak_flops"), f
        assert bool(f.level) == (f.quantity == "bandwidth"), f
        assert (f.sparsity == "dense") == (f.quantity == "peak_flops" and f.kind == "datasheet"), f
        assert not (f.kind == "datasheet" and (f.access or "library" in f.precision)), f


PASCAL = {"fp64": 64, "fp32": 128, "fp16": 256}
HALF_RATE = ("RTX 3090", "RTX 4090", "RTX 5090", "L40")
"""Boards that do half of the chip's matrix rate with fp32 accumulation."""


def counted(f: Figure) -> float | None:
    """SMs x rate x clock of a datasheet peak, None where one is not known."""
    sms = [s.value for s in TABLES.of(f.device) if s.quantity == "sm_count"]
    rates = {cc: rate for cc, (rate, _) in RATES.get(f.precision, {}).items()}
    rate = PASCAL.get(f.precision) if f.cc == "6.0" else None
    if f.vendor == "NVIDIA":
        rate = rate or rates.get(round(10 * float(f.cc)))
    if not (sms and rate and f.sm_clock_mhz):
        return None
    half = f.device in HALF_RATE and f.precision in HALVED
    return sms[0] * rate * (0.5 if half else 1) * f.sm_clock_mhz * 1e6


def test_datasheet_peaks_are_what_sms_rate_and_clock_make() -> None:
    peaks = [f for f in TABLES.figures if f.kind == "datasheet" and f.quantity == "peak_flops"]
    checked = [(f, counted(f)) for f in peaks]
    assert sum(known is not None for _, known in checked) > 110
    for f, known in checked:
        if known is not None:
            assert f.value == pytest.approx(known, rel=0.02), f


@pytest.mark.parametrize(
    ("device", "name", "expected"),
    [
        ("H100 SXM5", "fp16_tensor", 989.4e12),
        ("H100 SXM5", "fp8_tensor", 1978.9e12),
        ("H100 PCIe", "bf16_tensor", 756e12),
        ("H200 SXM", "int8_tensor", 1979e12),
        ("A100 SXM4 80GB", "tf32_tensor", 156e12),
        ("A100 SXM4 80GB", "dram", 2039e9),
        ("A100 SXM4 40GB", "dram", 1555e9),
        ("H200 SXM", "dram", 4800e9),
        ("H100 PCIe", "dram", 2039e9),
        ("RTX 4090", "fp16_tensor", 165e12),
        ("B200 SXM", "fp4_tensor", 9000e12),
    ],
)
def test_dense_figures(device: str, name: str, expected: float) -> None:
    assert value(device, name) == pytest.approx(expected)


def test_tensor_rates_stand_in_the_ratio_of_dense_figures() -> None:
    for device in ("A100 SXM4 40GB", "H100 SXM5", "H100 PCIe", "H200 SXM", "B200 SXM", "A10"):
        fp16 = value(device, "fp16_tensor")
        assert fp16 / value(device, "tf32_tensor") == pytest.approx(2, rel=0.01)
        assert value(device, "int8_tensor") / fp16 == pytest.approx(2, rel=0.01)


def test_nothing_published_lies_far_above_the_datasheet() -> None:
    shares = {}
    for f in TABLES.figures:
        if f.kind != "measured" or f.quantity not in ("peak_flops", "bandwidth"):
            continue
        unit = "library" if "library" in f.precision else "matrix" if "matrix" in f.precision else "vector"
        types, _, mode = f.precision.partition(f" {unit}")
        inputs, _, accumulate = types.partition(">")
        precision = Precision(inputs, accumulate or inputs, inputs, unit, mode.strip())
        quantity = "pi" if f.quantity == "peak_flops" else "beta"
        c = ceiling(quantity, f.value, precision=precision, level=f.level, access=f.access)
        sheet = normal.datasheet(c, TABLES.of(f.device))
        if sheet:
            shares[f.device, f.precision_or_level] = f.value / sheet.value
    assert len(shares) > 80
    assert max(shares.values()) < 1.07 and min(shares.values()) > 0.35


def test_names_fit_their_devices() -> None:
    for n in TABLES.names:
        assert n.source and n.device in TABLES.devices
        for part in reference.words(n.device):
            if part.endswith("gb") and "gh200" not in n.reported_name.lower():
                assert n.memory_gib == float(part[:-2]), n


# matching


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA T4", "T4"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        # another's figures are never borrowed
        ("NVIDIA H100", ""),
        ("NVIDIA H100 NVL", ""),
        ("NVIDIA H100 64GB HBM2", ""),
        ("NVIDIA H200 NVL", ""),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", ""),
        ("NVIDIA A100-SXM-64GB", ""),
        ("NVIDIA A100", ""),
        ("NVIDIA A10G", ""),
        ("NVIDIA A40-48Q", ""),
        ("GRID A100-40C", ""),
        ("NVIDIA GeForce RTX 4090 D", ""),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", ""),
        ("NVIDIA GeForce RTX 3090 Ti", ""),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", ""),
        ("Tesla P100-PCIE-12GB", ""),
        ("Tesla V100-FHHL-16GB", ""),
        ("AMD Instinct MI250X", ""),
        ("AMD EPYC 9654", ""),
        ("", ""),
        ("NVIDIA", ""),
    ],
)
def test_a_name_means_one_device_or_none(name: str, device: str) -> None:
    found = reference.match(name)
    assert found.device == device
    assert bool(found.why) != bool(device)


def test_every_reported_name_finds_its_own_device() -> None:
    for n in TABLES.names:
        assert reference.match(n.reported_name, n.memory_gib * GIB).device == n.device


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ({"memory_bytes": 79.1 * GIB}, "H100 SXM5"),
        ({"memory_bytes": 79.1 * GIB, "sms": 132, "cc": "9.0"}, "H100 SXM5"),
        ({"memory_bytes": 94 * GIB}, ""),
        ({"memory_bytes": 40 * GIB}, ""),
        ({"sms": 114}, ""),
        ({"sms": 16}, ""),
        ({"cc": "8.0"}, ""),
    ],
)
def test_memory_sms_and_capability_must_agree(given: dict[str, Any], device: str) -> None:
    assert reference.match("NVIDIA H100 80GB HBM3", **given).device == device


def test_memory_with_ecc_on_gddr_is_the_same_board() -> None:
    assert reference.match("NVIDIA A10", 22.5 * GIB).device == "A10"
    assert reference.match("Tesla V100-SXM2-16GB", 31.7 * GIB).device == ""


@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ({}, "H200 SXM"),
        ({"kind": "simulated"}, ""),
        ({"kind": "cpu"}, ""),
        ({"facts": {"compute_capability": 90, "mig": {"profile": "1g.18gb"}}}, ""),
        ({"identity": {"mig": "1g.18gb"}}, ""),
        ({"name": "NVIDIA H200 MIG 1g.18gb"}, ""),
        ({"threads": 120}, ""),
        ({"facts": {"compute_capability": 100}}, ""),
        ({"facts": {}}, "H200 SXM"),
    ],
)
def test_only_a_whole_real_gpu_is_compared(changes: dict[str, Any], device: str) -> None:
    assert reference.of_device(gpu(**changes)).device == device


# searching


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("H100", ["H100 PCIe", "H100 SXM5"]),
        ("h100 sxm", ["H100 SXM5"]),
        ("NVIDIA H100 80GB HBM3", ["H100 SXM5"]),
        ("L40", ["L40"]),
        ("A100-SXM4-40GB", ["A100 SXM4 40GB"]),
        ("volta", ["V100 SXM2", "V100 PCIe"]),
        ("gfx942", ["MI300X", "MI325X"]),
    ],
)
def test_search(text: str, devices: list[str]) -> None:
    assert list(reference.search(text)) == devices


def test_an_empty_search_lists_all_and_a_vendor_its_own() -> None:
    assert reference.search("") == reference.search("  ") == TABLES.devices
    assert set(reference.search("AMD")) == {f.device for f in TABLES.figures if f.vendor == "AMD"}


@pytest.mark.parametrize("text", ["H100 NVL", "RTX 4090 D", "EPYC", "H1000", "?!", "no such thing"])
def test_an_unknown_device_is_said_to_be_unknown(text: str) -> None:
    with pytest.raises(UsageError, match=r"is unknown: .*lists the 32 devices"):
        reference.search(text)


# files that are bad


def copied(folder: Path, name: str, change: Callable[[str], str]) -> Path:
    """The two tables in another folder, one of them changed."""
    for path in reference.FOLDER.glob("*.csv"):
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(change(text) if path.name == name else text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("figures.csv", lambda t: t.replace(",5.3e+12,", ",much,", 1), "line 2: value is 'much'"),
        ("figures.csv", lambda t: t.replace(",5.3e+12,", ",-1,", 1), "line 2: value is '-1'"),
        ("figures.csv", lambda t: t.replace(",5.3e+12,", ",nan,", 1), "line 2: value is 'nan'"),
        ("figures.csv", lambda t: t.replace(",dense,1480,", ",dense,fast,", 1), "sm_clock_mhz is 'fast'"),
        ("figures.csv", lambda t: t.replace("datasheet", "guess", 1), "kind is 'guess'"),
        ("figures.csv", lambda t: t.replace("FLOP/s", "", 1), "line 2: unit is empty"),
        ("figures.csv", lambda t: t.replace("\n", "\nx,y\n", 1), "line 2: 18 cells are needed"),
        ("figures.csv", lambda t: t.replace("kind,", "sort,", 1), "must begin with the line device,"),
        ("figures.csv", lambda t: "", "must begin with the line device,"),
        ("figures.csv", lambda t: t.replace('"', "", 1), "correct the line|cells are needed"),
        ("names.csv", lambda t: t.replace(",16,", ",some,", 1), "line 2: memory_gib is 'some'"),
        ("names.csv", lambda t: t.replace("P100 SXM2 16GB", "P100", 1), "of which figures.csv holds nothing"),
    ],
)
def test_a_bad_table_is_named_with_its_line(
    name: str, change: Callable[[str], str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=told):
        reference.load(copied(tmp_path, name, change))


def test_missing_and_binary_tables_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot be read \(figures.csv"):
        reference.load(tmp_path)
    (tmp_path / "figures.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"cannot be read \(figures.csv"):
        reference.load(tmp_path)


def test_a_copy_reads_as_the_original(tmp_path: Path) -> None:
    assert reference.load(copied(tmp_path, "", str)) == TABLES


# verdicts
