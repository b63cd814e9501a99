"""Files for other tools: figures in the units that each reads, and what each cannot do without."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import exporters
from bench.errors import FileError, UsageError
from bench.exporters import achievable
from bench.importers import load
from bench.profile.records import Ceiling, Precision, Profile
from tests.synthetic import ceiling, synthetic_profile

NARROW = Precision("fp16", "fp16", "fp16", "library")
MIXED = Precision("fp16", "fp32", "fp16", "library")
PRODUCT = Precision("bf16", "fp32", "bf16", "library")
QUARTER = Precision("fp8", "fp32", "fp16", "library")


def on_link(level: str, access: str, value: float, **changes: Any) -> Ceiling:
    return ceiling("beta", value, level=level, access=access, kernel="copy-peer", variant="", **changes)


def board(**without: Any) -> Profile:
    """A board with rates of all units, DRAM of 3 TB/s, peers and a host link; `without` replaces fields."""
    profile = synthetic_profile()
    start = dataclasses.replace(on_link("peer 0>1", "write", 5e-6), quantity="t0", unit="s")
    chase = dataclasses.replace(ceiling("beta", 6e-7, kernel="chase", access="read"), quantity="latency")
    empty = dataclasses.replace(on_link("", "none", 4e-6), quantity="t0", kernel="empty", variant="plain")
    found = [
        ceiling("pi", 30e12, precision="fp64", clock_hz=1.5e9),
        ceiling("pi", 60e12, precision="fp32", clock_hz=1.5e9),
        ceiling("pi", 55e12, precision="fp32", regime="sustained"),
        ceiling("pi", 65e12, precision="fp32", regime="burst"),
        ceiling("pi", 1e12, precision="fp32", scope="core", threads=1),
        ceiling("pi", 58e12, precision=Precision.of("fp32", "library"), kernel="gemm"),
        ceiling("pi", 700e12, precision=PRODUCT, kernel="gemm"),
        ceiling("pi", 800e12, precision=PRODUCT, kernel="gemm", operands="zeros"),
        ceiling("pi", 1.4e15, precision=QUARTER, kernel="gemm"),
        ceiling("beta", 3e12, level="DRAM", access="read", kernel="read", variant=""),
        ceiling("beta", 9e12, level="L2", access="read", kernel="cache-read", variant=""),
        ceiling("beta", 2.7e12, level="DRAM", access="copy", kernel="copy", variant=""),
        chase,
        empty,
        on_link("peer 0>1", "write", 380e9),
        on_link("peer 0>1", "both", 700e9),
        start,
        on_link("host link", "h2d", 55e9),
    ]
    device = {
        **profile.facts.get("device", {}),
        "name": "BOARD",
        "memory_bytes": 141_000_000_000,
        "facts": {"compute_capability": 90, "gpus": [0, 1, 2, 3], "unit": "SM"},
    }
    whole = dataclasses.replace(profile, ceilings=tuple(found), facts={**profile.facts, "device": device})
    return dataclasses.replace(whole, **without)


def written(name: str, tmp_path: Path, profile: Profile | None = None) -> str:
    path = tmp_path / f"out{exporters.FORMATS[name]}"
    exporters.export(profile or board(), name, path)
    return path.read_text(encoding="utf-8")


def lacking(**fields: str) -> Profile:
    """The board without the ceilings that have these values."""
    kept = [c for c in board().ceilings if not all(getattr(c, k) == v for k, v in fields.items())]
    return board(ceilings=tuple(kept))


def test_a_rate_is_that_of_the_whole_device_on_random_operands_in_the_regime_of_all() -> None:
    found = achievable.rate(board(), "fp32", "vector")
    assert found is not None
    assert (found.estimate.value, found.regime, found.scope) == (60e12, "typical", "all")
    product = achievable.matrix(board(), "bf16")
    assert product is not None
    assert product.estimate.value == 700e12, "zeros are no operands of a job"
    assert achievable.matrix(board(), "fp32") is None, "as slow as the vector units: it ran on them"
    assert achievable.rate(board(), "fp4", "vector", "library") is None


def test_a_product_accumulates_in_a_wider_type_where_that_was_measured() -> None:
    """On boards for play fp16 accumulation is twice as fast, which no training job can use."""
    narrow, mixed = (
        ceiling("pi", v, precision=p, kernel="gemm") for v, p in ((400e12, NARROW), (200e12, MIXED))
    )
    both = achievable.matrix(board(ceilings=(narrow, mixed)), "fp16")
    alone = achievable.matrix(board(ceilings=(narrow,)), "fp16")
    assert both is not None and alone is not None
    assert (both.estimate.value, alone.estimate.value) == (200e12, 400e12)


def test_levels_are_those_of_the_whole_device_nearest_first() -> None:
    core = ceiling("beta", 1e12, level="L1", access="read", kernel="cache-read", scope="core", threads=1)
    found = achievable.memory(board(ceilings=(*board().ceilings, core)))
    assert [*found] == ["L2", "DRAM"]


def test_the_regime_and_the_clocks_are_told() -> None:
    slow = ceiling("pi", 1e12, regime="sustained", clock_hz=1.2e9)
    fast = ceiling("pi", 1e12, clock_hz=1.5e9)
    assert achievable.held([fast]) == "typical at 1.50 GHz"
    assert achievable.held([slow, fast]) == "sustained and typical at 1.20 GHz to 1.50 GHz"
    assert achievable.held([ceiling("pi", 1e12)]) == "typical"


def test_ert_is_in_giga_and_reads_back(tmp_path: Path) -> None:
    found = json.loads(written("ert", tmp_path))["empirical"]
    assert found["gbytes"]["data"] == [["L2", 9000.0], ["DRAM", 3000.0]]
    assert found["gflops"]["data"] == [["FP64 GFLOPs", 30000.0], ["FP32 GFLOPs", 60000.0]]
    (again,) = load(tmp_path / "out.ert.json")
    stated = {s.name: s.value for s in again.stated}
    assert stated["DRAM"] == pytest.approx(3e12)
    assert stated["FP32 GFLOPs"] == pytest.approx(60e12)


def test_tracelens_is_in_tera_and_decimal_giga(tmp_path: Path) -> None:
    found = json.loads(written("tracelens", tmp_path))
    assert (found["mem_bw_gbps"], found["memory_gb"]) == (3000.0, 141.0)
    peaks = found["max_achievable_tflops"]
    assert peaks == pytest.approx(
        {"matrix_bf16": 700, "matrix_fp8": 1400, "vector_fp32": 60, "vector_fp64": 30}
    )
    assert found["name"].startswith("BOARD, measured by empirical-roofline")


def test_aiconfigurator_is_in_base_units_one_way(tmp_path: Path) -> None:
    text = written("aiconfigurator", tmp_path)
    found = yaml.safe_load(text)
    assert found["gpu"]["mem_bw"] == 3e12
    assert found["gpu"]["mem_bw_empirical_scaling_factor"] == 1.0
    assert found["gpu"]["bfloat16_tc_flops"] == 700e12
    assert found["gpu"]["fp8_tc_flops"] == 1.4e15
    assert "int8_tc_flops" not in found["gpu"], "what was not measured is left out, and the tool says so"
    assert (found["gpu"]["sm_version"], found["gpu"]["mem_capacity"]) == (90, 141_000_000_000)
    assert found["gpu"]["mem_empirical_constant_latency"] == 4e-6, "the start of a kernel, not one access"
    node = {"num_gpus_per_node": 4, "inter_node_bw": 55e9, "intra_node_bw": 380e9, "pcie_bw": 55e9}
    assert found["node"] == {**node, "p2p_latency": 5e-6}
    assert "# inter_node_bw was not measured, and the tool needs it: it is that of the host link" in text
    assert "intra_node_bw was not" not in text
    assert text.splitlines()[0].endswith(", typical"), "none of its rates has a clock"
    network = board(ceilings=(*board().ceilings, on_link("node network", "send", 48e9)))
    again = written("aiconfigurator", tmp_path, network)
    assert yaml.safe_load(again)["node"]["inter_node_bw"] == 48e9
    assert "was not measured" not in again


def test_nsight_has_a_chart_for_each_type_with_balanced_braces(tmp_path: Path) -> None:
    text = written("nsight", tmp_path)
    assert text.count("{") == text.count("}")
    assert text.count("RooflineChart {") == 2
    assert 'Identifier: "EmpiricalRoofline_BOARD"' in text
    assert ', typical at 1.50 GHz"' in text
    roofs = re.findall(
        r"PeakWork \{ Constant: (\S+) \}\s+PeakTraffic \{ Constant: (\S+) \}\s+Options \{ Label: \"(.*?)\"",
        text,
    )
    known = {label: (float(work), float(traffic)) for work, traffic, label in roofs}
    assert known["fp32 / DRAM read, measured at 1.50 GHz"] == (60e12, 3e12)
    assert known["fp64 / L2 read, measured at 1.50 GHz"] == (30e12, 9e12)
    used = set(re.findall(r'ValuePerCycleMetrics \{ Label: "\w+" Name: "(\w+)"', text))
    assert used <= set(re.findall(r'    Name: "(\w+)"\n    Expression', text)), (
        "every counter used is defined"
    )
    assert 'op_ffma_pred_on.sum.per_cycle_elapsed * 2"' in text
    assert "ffma2" not in text, "such instructions come with capability 10.0"


def of_capability(capability: int, *more: Ceiling) -> Profile:
    device = board().facts["device"]
    facts = {**device["facts"], "compute_capability": capability, "gpus": [0]}
    ceilings = (*lacking(kernel="copy-peer", level="peer 0>1").ceilings, *more)
    return board(facts={"device": {**device, "facts": facts}}, ceilings=ceilings)


def test_nsight_counts_two_values_in_packed_instructions(tmp_path: Path) -> None:
    text = written("nsight", tmp_path, of_capability(100, ceiling("pi", 9e13, precision="fp16")))
    assert 'op_hfma_pred_on.sum.per_cycle_elapsed * 4"' in text, "two values in each, two FLOP for each"
    assert 'op_ffma2_pred_on.sum.per_cycle_elapsed * 4"' in text
    assert 'op_fadd2_pred_on.sum.per_cycle_elapsed * 2"' in text
    assert "dfma2" not in text


def test_one_gpu_needs_no_peers_and_several_do(tmp_path: Path) -> None:
    text = written("aiconfigurator", tmp_path, of_capability(90))
    assert yaml.safe_load(text)["node"]["intra_node_bw"] == 55e9
    assert "# intra_node_bw was not measured" in text
    with pytest.raises(FileError, match="measure the link family on all of its GPUs"):
        written("aiconfigurator", tmp_path, lacking(level="peer 0>1"))


@pytest.mark.parametrize(
    ("name", "profile", "sentence"),
    [
        ("nsight", synthetic_profile(), "Nsight Compute profiles NVIDIA GPUs"),
        ("aiconfigurator", synthetic_profile(), "AIConfigurator describes GPUs"),
        (
            "aiconfigurator",
            lacking(level="host link"),
            "needs the links of a node: measure the link family on all of its GPUs",
        ),
        ("aiconfigurator", lacking(level="DRAM", access="read"), "with the stream family measured"),
        ("nsight", lacking(quantity="pi"), "the chart needs a π and a β"),
        ("ert", lacking(quantity="beta"), "ERT's file needs a π and a β"),
        ("tracelens", lacking(level="DRAM", access="read"), "TraceLens needs a π and the β of DRAM"),
    ],
)
def test_what_a_tool_cannot_do_without_is_named(
    name: str, profile: Profile, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=re.escape(sentence)):
        written(name, tmp_path, profile)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ert", "tracelens", "aiconfigurator", "nsight"])
def test_simulated_figures_say_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(UsageError, match="this profile is SIMULATED"):
        exporters.export(board(simulated=True), name, path)
    exporters.export(board(simulated=True), name, path, allow_simulated=True)
    text = path.read_text(encoding="utf-8")
    assert "SIMULATED" in text
    assert "measured by" not in text
    assert ", measured" not in text
