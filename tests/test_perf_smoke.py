"""`python -m tests.perf` end to end on this machine with a few windows: both sides run and are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.perf import __main__ as command

FEW = [
    "--pairs-pi",
    "2",
    "--pairs-beta",
    "2",
    "--pairs-cache",
    "2",
    "--pairs-latency",
    "2",
    "--pairs-sweep",
    "2",
    "--pairs-gemm",
    "2",
]


@pytest.mark.slow
def test_every_kind_of_comparison_runs_and_is_written(tmp_path: Path) -> None:
    wanted = ["--only", "peak,copy,cache,latency,sweep,gemm", "--threads", "1", "--seed", "1"]
    assert command.main([*wanted, *FEW, "--json", str(tmp_path / "perf.json")]) == 0
    found = json.loads((tmp_path / "perf.json").read_text())
    rows = {row["name"]: row for row in found["comparisons"]}
    assert {"peak fp64", "peak fp32", "copy ordinary", "copy nontemporal", "cache read L1"} <= set(rows)
    assert {"mix-read-only fp64, left", "mix-in-place fp64, right", "gemm fp64", "gemm fp32"} <= set(rows)
    assert all(row["ratio"]["pairs"] == 2 for row in rows.values())
    assert set(rows["peak fp64"]["beside"]) == {"naive Numba loop"}
    assert rows["copy nontemporal"]["unit"] == "byte/s"
    assert rows["gemm fp64"]["reference"] == "bare loop"


@pytest.mark.slow
def test_an_unwritable_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "no" / "perf.json"
    assert command.main(["--only", "peak", "--threads", "1", *FEW, "--json", str(target)]) == 4
    assert capsys.readouterr().err.startswith(f"perf: cannot write {target}: No such file")
