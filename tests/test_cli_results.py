"""Verbs on results from the command line: their files, strict JSON and refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bench import arguments
from tests.synthetic import synthetic_profile
from tests.test_cli import Call, strict, written
from tests.test_cli import folder as folder

# files


def test_folder_without_profile(call: Call, tmp_path: Path) -> None:
    for words in (["export", tmp_path, "--to", "csv"], ["laws", tmp_path], ["compare", tmp_path, tmp_path]):
        code, out, err = call(*words)
        assert (code, out) == (4, "")
        assert f"cannot read {tmp_path / 'profile.json'}" in err


def test_report_of_a_file_that_is_no_result_names_that_file(call: Call, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    code, out, err = call("report", tmp_path / "notes.md")
    assert (code, out) == (4, "")
    assert err.startswith(
        f"Error: {tmp_path / 'notes.md'} is no result folder: name one that holds a profile"
    )
    assert arguments.home(folder / "profile.json") == arguments.home(folder / "samples.jsonl") == folder


def test_corrupt_profile(call: Call, folder: Path) -> None:
    (folder / "profile.json").write_text('{"schema_version": 1}')
    code, _, err = call("laws", folder)
    assert code == 4
    assert "is not a profile (profile lacks: identity" in err


# compare


def test_compare_json_and_text(call: Call, folder: Path, tmp_path: Path) -> None:
    base = synthetic_profile()
    half = tuple(
        dataclasses.replace(
            c,
            estimate=dataclasses.replace(
                c.estimate, value=c.estimate.value / 2, low=c.estimate.low / 2, high=c.estimate.high / 2
            ),
        )
        for c in base.ceilings
    )
    other = written(tmp_path / "b", dataclasses.replace(base, ceilings=half))
    code, out, _ = call("compare", folder, other, "--json")
    found = strict(out)
    assert code == 0
    assert {row["verdict"] for row in found["rows"]} == {"slower"}
    assert {row["ratio"]["value"] for row in found["rows"]} == {0.5}
    assert found["simulated"] == [False, False]
    code, out, _ = call("compare", folder, other)
    assert f"{len(base.ceilings)} slower" in out


def test_compare_draws_both(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("bench.report.plot.draw", lambda *arguments: drawn.append(arguments))
    assert call("compare", folder, folder, "--plot", folder / "both.png")[0] == 0
    assert call("compare", folder, folder, "--plot", folder / "no" / "both")[0] == 4
    ((profiles, svg, png),) = drawn
    assert (len(profiles), svg, png) == (2, folder / "both.svg", folder / "both.png")
    code, _, err = call("compare", folder, folder, "--plot", folder / "both.pdf")
    assert code == 2 and "cannot draw .pdf files; valid endings: .svg, .png" in err


def test_compare_of_simulated_with_measured(call: Call, folder: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "b", synthetic_profile(simulated=True))
    code, _, err = call("compare", folder, other)
    assert code == 2 and "B is SIMULATED" in err
    code, out, _ = call("compare", folder, other, "--allow-simulated")
    assert code == 0 and "SIMULATED" in out


# export


def test_export_writes_into_the_folder_or_elsewhere(call: Call, folder: Path, tmp_path: Path) -> None:
    code, out, _ = call("export", folder, "--to", "prometheus", "--json")
    path = folder / "roofline.prom"
    assert (code, strict(out)) == (0, {"format": "prometheus", "file": path.as_posix()})
    assert "roofline_peak_flops{" in path.read_text(encoding="utf-8")
    code, out, _ = call("export", folder / "profile.json", "--to", "csv", "--output", tmp_path / "t.csv")
    assert (code, out) == (0, f"{tmp_path / 't.csv'}\n")
    assert (tmp_path / "t.csv").read_text(encoding="utf-8").startswith("device,vendor,arch,cc,quantity,")


def test_export_refusals(call: Call, folder: Path, tmp_path: Path) -> None:
    code, _, err = call("export", folder, "--to", "xml")
    valid = "csv, json, parquet, prometheus, nsight, ert, tracelens, aiconfigurator"
    assert (code, err) == (2, f"Error: unknown format 'xml'; valid: {valid}\n")
    code, _, err = call("export", folder, "--to", "csv", "--output", tmp_path / "no" / "t.csv")
    assert code == 4 and err.startswith(f"Error: {tmp_path / 'no'} is no folder")
    code, _, err = call("export", folder, "--to", "csv", "--output", tmp_path)
    assert code == 4 and err.startswith(f"Error: {tmp_path} is a folder: name a file in it")
    assert call("export", folder, "--to", "csv", "--output", "")[0] == 4
    simulated = written(tmp_path / "s", synthetic_profile(simulated=True))
    code, _, err = call("export", simulated, "--to", "csv")
    assert code == 2 and "--allow-simulated" in err
    assert not (simulated / "roofline.csv").exists()
    assert call("export", simulated, "--to", "csv", "--allow-simulated")[0] == 0


# laws


def test_laws_of_the_essay(call: Call) -> None:
    code, out, _ = call("laws", "--movement", "1", "--compute", "9", "--json")
    ways = {(w["way"], w["factor"]): w for w in strict(out)["ways"]}
    assert code == 0
    assert [ways["raise pi", s]["serial"] for s in (3, 9, None)] == pytest.approx([2.5, 5.0, 10.0])
    assert ways["raise pi", 3]["measured"] is None


def test_laws_of_the_newest_folder(call: Call, folder: Path) -> None:
    written(folder.parent.parent / "sim-x" / "20261129T000000Z-0000000", synthetic_profile(simulated=True))
    code, out, _ = call(
        "laws", "--results", folder.parent.parent, "--intensity", "1", "--factor", "2", "--json"
    )
    found = strict(out)
    assert code == 0
    assert (found["roof"]["pi"], found["roof"]["ridge"], found["intensity"]) == (90e9, 4.5, 1.0)
    assert "SIMULATED" not in found["roof"]["source"]
    assert [w["factor"] for w in found["ways"]] == [2.0, None] * 4
    for way in found["ways"]:
        low, high = sorted((way["serial"], way["overlapped"]))
        assert low <= way["measured"]["value"] <= high
    assert "at 4.50 FLOP/byte both bind" in call("laws", folder)[1]


def test_laws_of_given_numbers(call: Call) -> None:
    code, out, _ = call("laws", "--pi", "100 GFLOP/s", "--beta", "1e10", "--overlap", "0", "--json")
    found = strict(out)
    assert code == 0
    assert (found["roof"]["ridge"], found["intensity"], found["job"]["compute_share"]) == (10.0, 10.0, 0.5)
    for way in found["ways"]:
        assert way["measured"]["value"] == pytest.approx(way["serial"])
    assert call("laws", "--pi", "100 GFLOP/s", "--beta", "1e10")[1].count("overlap not known") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pi", "1e9"], "--pi and --beta belong together"),
        (["x", "--pi", "1e9", "--beta", "1e9"], "give a FOLDER or --pi and --beta, not both"),
        (["--movement", "1"], "--movement and --compute belong together"),
        (["--movement", "1", "--compute", "1", "--flops", "1"], "--movement and --compute stand alone"),
        (["--pi", "1e9", "--beta", "1e9", "--factor", "0"], "--factor must be a positive number"),
        (["--pi", "1e308", "--beta", "1"], "--pi must lie within 1e-50 to 1e+50, got 1e+308"),
        (["--movement", "1e-320", "--compute", "1"], "--movement must lie within"),
    ],
)
def test_laws_refusals(call: Call, words: list[str], told: str) -> None:
    code, _, err = call("laws", *words)
    assert code == 2
    assert told in err


def test_laws_without_any_result(call: Call, tmp_path: Path) -> None:
    code, _, err = call("laws", "--results", tmp_path / "none")
    assert code == 4
    assert "measure first with `python -m bench run`" in err
