"""Reference figures: sourced and consistent data, one match or none, search, shares, words of a verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import cli, reference
from bench.errors import FileError, UsageError
from bench.fitting import normal
from bench.fitting.ceilings import derive
from bench.gpu.rates import HALVED, RATES
from bench.profile.records import Ceiling, Precision
from bench.reference import Figure, Reference
from bench.report import bands, normality, roofs
from bench.report.table import render
from tests.synthetic import ceiling, synthetic_profile

TABLES = reference.known()
GIB = 2**30


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


def gpu(**changes: Any) -> dict[str, Any]:
    """The device of a header: an H200."""
    facts = {"compute_capability": 90, "mig": {}, "unit": "SM"}
    fields = {"kind": "cuda", "name": "NVIDIA H200", "threads": 132, "memory_bytes": 139.8 * GIB}
    return {**fields, "facts": facts, "identity": {"mig": ""}, **changes}


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


def pi(rate: float, precision: Precision, **changes: Any) -> Ceiling:
    return ceiling("pi", rate, precision=precision, scope="device", threads=132, **changes)


def beta(rate: float, access: str, **changes: Any) -> Ceiling:
    return ceiling("beta", rate, kernel=access, access=access, scope="device", **{"threads": 132, **changes})


BF16 = Precision("bf16", "fp32", "bf16", "library")


@pytest.mark.parametrize(
    ("measured", "share", "told"),
    [
        (pi(33.5e12, Precision.of("fp64")), 1.0, "unjudged: 1.00 of the datasheet, no measurement"),
        (pi(60.3e12, Precision.of("fp32")), 0.9, "normal: 0.90 of the datasheet, published 0.89"),
        (pi(60.3e12, Precision.of("fp64", "library")), 0.9, "unjudged: 0.90 of the datasheet, no"),
        (pi(800e12, BF16), 0.809, "normal: 0.81 of the datasheet, published 0.67-0.95"),
        (pi(500e12, BF16), 0.506, "low: 0.51 of the datasheet, published 0.67-0.95"),
        (pi(1300e12, BF16), 1.314, "high: 1.31 of the datasheet, published 0.67-0.95"),
        (pi(1979e12, Precision("fp8", "fp32", "fp32", "matrix")), 1.0, "unjudged: 1.00 of the datasheet"),
        (beta(4.32e12, "read"), 0.9, "normal: 0.90 of the datasheet, published 0.81-0.91"),
        (beta(2.4e12, "read"), 0.5, "low: 0.50 of the datasheet, published 0.81-0.91"),
        (beta(9.6e12, "copy"), 2.0, "high: 2.00 of the datasheet, published 0.84"),
        (beta(4.32e12, "update"), 0.9, "normal: 0.90 of the datasheet, published 0.79-0.91 (other accesses)"),
        (beta(9.5e12, "read", level="L2"), None, "normal: published 9.80 TB/s"),
        (beta(4e12, "read", level="L2"), None, "low: published 9.80 TB/s"),
        (beta(20e12, "read", level="L2"), None, "high: published 9.80 TB/s"),
    ],
    ids=lambda x: x.split(":")[0] if isinstance(x, str) else None,
)
def test_share_and_verdict_on_an_h200(measured: Ceiling, share: float | None, told: str) -> None:
    found = normal.judged(measured, gpu())
    assert found.share_of_datasheet == (None if share is None else pytest.approx(share, abs=0.001))
    assert found.checks[normal.CHECK].startswith(told), found.checks


def test_the_library_uses_the_matrix_units_of_fp64_only_where_there_are_some() -> None:
    fp64 = pi(6.24e12, Precision.of("fp64", "library"))
    volta = gpu(name="Tesla V100-SXM2-16GB", threads=80, memory_bytes=15.8 * GIB, facts={})
    assert normal.judged(fp64, volta).share_of_datasheet == pytest.approx(0.8)
    assert normal.judged(fp64, gpu()).share_of_datasheet == pytest.approx(6.24 / 67)


def test_a_clock_above_the_datasheets_explains_a_share_above_one() -> None:
    fp32, board = (
        Precision.of("fp32"),
        gpu(name="NVIDIA GeForce RTX 4090", threads=128, memory_bytes=24 * GIB, facts={}),
    )
    boosted = normal.judged(pi(88.4e12, fp32, clock_hz=2.73e9), board).checks["normal"]
    assert boosted.startswith("unjudged: 1.07 of the datasheet (at 2.73 GHz, it counts 2.52 GHz)")
    nominal = normal.judged(pi(88.4e12, fp32, clock_hz=2.52e9), board).checks["normal"]
    assert nominal.startswith("high: 1.07 of the datasheet, ")
    slow = normal.judged(pi(40e12, fp32, clock_hz=1.2e9), gpu()).checks["normal"]
    assert slow.startswith("low: 0.60 of the datasheet (at 1.20 GHz, it counts 1.98 GHz)")


@pytest.mark.parametrize("kind", ["cpu", "simulated"])
def test_nothing_is_said_of_cpus_and_simulations(kind: str) -> None:
    measured = pi(60e12, Precision.of("fp32"))
    assert normal.judged(measured, gpu(kind=kind)) is measured


def test_an_unknown_gpu_and_a_slice_are_unknown_and_a_part_is_not_judged() -> None:
    measured = pi(60e12, Precision.of("fp32"))
    for device, why in (
        (gpu(name="NVIDIA H100 NVL"), "no reference figures of 'NVIDIA H100 NVL'"),
        (gpu(identity={"mig": "1g.18gb"}), "'NVIDIA H200' is a slice of a GPU"),
        (gpu(threads=120), "120 SMs are usable where a H200 SXM has 132"),
    ):
        found = normal.judged(measured, device)
        assert found.share_of_datasheet is None
        assert found.checks["normal"].startswith(f"unknown: {why}")
    part = ceiling("pi", 60e12, precision="fp32", scope="core", threads=1)
    assert normal.judged(part, gpu()) is part


def test_unreadable_tables_never_stop_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Reference:
        raise FileError("reference figures cannot be read (figures.csv: gone): restore it")

    monkeypatch.setattr(reference, "known", fail)
    found = normal.judged(pi(60e12, Precision.of("fp32")), gpu())
    assert found.checks["normal"].startswith("unknown: reference figures cannot be read")


def test_a_fit_fills_the_share_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.profile.records import Point, Repetitions, Sample

    point = Point("stream", "read", "v16 l4", Precision.of("fp32"), "DRAM", "read", "none", "device", 132)
    samples = [
        Sample(
            point, r, r, 0, bytes_read=4.32e9, repetitions=Repetitions(start=(0.0,) * 5, seconds=(1e-3,) * 5)
        )
        for r in range(1, 6)
    ]
    (found,) = derive({"device": gpu()}, [], samples).ceilings
    assert found.share_of_datasheet == pytest.approx(0.9)
    assert found.checks["normal"] == "normal: 0.90 of the datasheet, published 0.81-0.91"
    (plain,) = derive({"device": gpu(kind="simulated")}, [], samples).ceilings
    assert plain.share_of_datasheet is None and "normal" not in plain.checks


# what is printed


def test_lines_count_the_normal_and_name_the_others() -> None:
    measured = [
        pi(800e12, BF16, kernel="gemm"),
        beta(4.32e12, "read"),
        beta(2.4e12, "copy", regime="burst"),
    ]
    lines = normality.lines([normal.judged(c, gpu()) for c in measured])
    assert lines == [
        "normal: 2 of them, by datasheet and published measurements",
        "DRAM copy burst: low: 0.50 of the datasheet, published 0.84",
    ]
    unknown = [normal.judged(c, gpu(name="NVIDIA H100 NVL")) for c in measured]
    assert normality.lines(unknown) == ["is it normal? unknown: no reference figures of 'NVIDIA H100 NVL'"]
    assert normality.lines(measured) == []


def test_the_report_has_a_column_only_where_shares_are_known() -> None:
    from dataclasses import replace

    profile = synthetic_profile()
    assert "datasheet" not in render(profile, width=160) and "normal:" not in render(profile, width=160)
    known = replace(profile, ceilings=(normal.judged(pi(60.3e12, Precision.of("fp32")), gpu()),))
    text = render(known, width=160)
    assert "datasheet" in text and "90 %" in text
    assert "normal: 1 of them, by datasheet and published measurements" in text
    assert roofs.NORMAL == normal.CHECK and normality.USUAL == normal.NORMAL


# bands


def test_a_band_runs_over_regimes_with_their_clocks_and_operands_beside() -> None:
    fp32 = Precision.of("fp32")
    measured = [
        pi(93e12, fp32, regime="sustained", clock_hz=1.76e9),
        pi(100e12, fp32, regime="burst", clock_hz=1.98e9),
        pi(97e12, fp32),
        pi(106.7e12, fp32, operands="zeros"),
        pi(50e12, Precision.of("fp64")),
    ]
    (found,) = bands.bands(measured)
    assert found.text == (
        "burst 1.00 at 1.98 GHz to typical 0.97 to sustained 0.93 at 1.76 GHz; zeros 1.10 of random"
    )
    assert (found.low, found.high) == (pytest.approx(0.93), pytest.approx(1.067))
    assert [c.regime for c in found.ceilings] == ["burst", "typical", "sustained", "typical"]


def test_zeros_alone_make_a_band_and_other_kernels_do_not() -> None:
    random, zeros = pi(700e12, BF16), pi(805e12, BF16, operands="zeros", regime="burst")
    (found,) = bands.bands([random, zeros])
    assert found.text == "zeros burst 1.15 of random typical"
    assert bands.bands([random, pi(1e12, BF16, kernel="mma", operands="zeros")]) == ()
    assert bands.bands([]) == ()


# the verb


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["reference", *words])
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return called


Call = Callable[..., tuple[int, str, str]]


def test_the_verb_lists_a_line_a_device(call: Call) -> None:
    code, out, _ = call()
    lines = out.splitlines()
    assert code == 0 and len(lines) == 1 + 32 + 2
    (line,) = [line for line in lines if line.startswith("H100 SXM5 ")]
    cells = ["Hopper GH100", "3.35 TB/s", "33.5 TFLOP/s", "66.9 TFLOP/s", "495 TFLOP/s", "989 TFLOP/s"]
    assert all(cell in line for cell in cells) and max(map(len, lines)) <= 140


def test_the_verb_shows_a_device_in_full(call: Call) -> None:
    code, out, _ = call("H200")
    assert code == 0 and "reported as NVIDIA H200\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("π bf16>fp32 library")]
    assert line.split()[-4:] == ["0.67", "to", "0.95", "3"]
    (line,) = [line for line in out.splitlines() if line.startswith("β DRAM read ")]
    assert "3.89 TB/s to 4.35 TB/s" in line and "0.81 to 0.91" in line
    assert "never compared" in call("MI250X")[1]


def test_the_json_of_the_verb_holds_every_figure_with_its_source(call: Call) -> None:
    code, out, _ = call("H100", "--json")
    found = json.loads(out)["devices"]
    assert code == 0 and [d["device"] for d in found] == ["H100 PCIe", "H100 SXM5"]
    assert found[1]["reported_names"][0]["reported_name"] == "NVIDIA H100 80GB HBM3"
    assert len(found[1]["figures"]) == len(TABLES.of("H100 SXM5"))
    assert all(f["source"] and f["unit"] for d in found for f in d["figures"])


def test_the_verb_says_unknown_in_one_sentence(call: Call) -> None:
    code, out, err = call("H100 NVL")
    assert (code, out) == (2, "") and err.startswith("Error: 'H100 NVL' is unknown: ")
    assert err.count("\n") == 1
