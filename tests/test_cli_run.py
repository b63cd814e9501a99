"""The verbs that measure and derive, end to end through the command line on a simulated device."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from bench import cli, outcome, store
from bench.profile import encoding, schema

VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema.FILE.read_text(encoding="utf-8")))


class Said(NamedTuple):
    code: int | str | None
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return Said(stop.value.code, *capsys.readouterr())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short simulated run of the compute chains, streams and intensity sweep."""
    results = tmp_path_factory.mktemp("results")
    with pytest.raises(SystemExit) as stop:
        cli.main(
            f"run --device sim:small-cpu --preset quick --families fma,stream,mix --no-workloads --quiet "
            f"--results {results}".split()
        )
    assert stop.value.code == 0
    (folder,) = results.glob("*/*")
    return folder


def test_run_leaves_a_valid_result(measured: Path) -> None:
    names = {path.name for path in measured.iterdir()}
    files = "samples.jsonl profile.json table.txt report.html roofline.svg roofline.png"
    assert names == set(files.split())
    profile = json.loads((measured / "profile.json").read_text(encoding="utf-8"))
    assert [error.message for error in VALIDATOR.iter_errors(profile)] == []
    assert profile["simulated"] is True
    pi = {
        c["precision"]["inputs"]: c["estimate"]["value"] for c in profile["ceilings"] if c["kernel"] == "fma"
    }
    assert set(pi) == {"fp64", "fp32"}
    samples = [json.loads(line) for line in (measured / "samples.jsonl").read_text().splitlines()]
    of_sample = jsonschema.Draft202012Validator({**VALIDATOR.schema, "$ref": "#/$defs/Sample"})
    for line in [s for s in samples if s.pop("record") == "sample"][:50]:
        assert [error.message for error in of_sample.iter_errors(line)] == []


def test_fit_remakes_the_same_profile(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "copy"))
    before = store.read_profile(folder)
    (folder / "profile.json").unlink()
    samples = (folder / "samples.jsonl").read_bytes()
    said = call(capsys, "fit", folder, "--json")
    document = encoding.loads(said.out)
    assert said.code == 0
    assert document["folder"] == folder.as_posix()
    assert document["profile"] == json.loads(encoding.dumps(before))
    assert store.read_profile(folder) == before
    assert (folder / "samples.jsonl").read_bytes() == samples
    text = call(capsys, "fit", folder).out
    assert f"{len(before.ceilings)} ceilings, {len(before.curves)} curves, 0 workloads" in text


def test_report_remakes_table_and_plot_of_the_newest(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "sim" / measured.name))
    table = (folder / "table.txt").read_text(encoding="utf-8")
    for name in ("table.txt", "roofline.svg", "roofline.png"):
        (folder / name).unlink()
    said = call(capsys, "report", "--results", tmp_path)
    assert said.code == 0
    assert said.out.rstrip("\n") == table.rstrip("\n")
    assert "SIMULATED" in said.out
    assert (folder / "roofline.svg").stat().st_size > 1000
    assert (folder / "roofline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("terminal", "asked", "coloured"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False)],
)
def test_a_terminal_shows_the_table_in_colour(
    terminal: bool,
    asked: dict[str, str],
    coloured: bool,
    measured: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    said = call(capsys, "report", measured)
    assert (said.code, "\x1b[" in said.out) == (0, coloured)
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", said.out).splitlines()]
    assert plain == (measured / "table.txt").read_text(encoding="utf-8").splitlines()


def test_other_verbs_take_a_real_result(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = encoding.loads(call(capsys, "compare", measured, measured, "--json").out)
    assert {row["ratio"]["value"] for row in compared["rows"]} == {1.0}
    assert compared["differences"] == []
    target = tmp_path / "t.csv"
    assert call(capsys, "export", measured, "--to", "csv", "--output", target).code == 2
    assert call(capsys, "export", measured, "--to", "csv", "--output", target, "--allow-simulated").code == 0
    assert ",simulated," in target.read_text(encoding="utf-8")
    ways = encoding.loads(call(capsys, "laws", measured, "--json").out)
    assert "SIMULATED" in ways["roof"]["source"]
    assert 0.5 < ways["overlap"]["value"] < 1


def test_corrupt_samples_are_named(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "copy"))
    lines = (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    lines[4] = lines[4][:30]
    (folder / "samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = call(capsys, "fit", folder)
    assert said.code == 4
    assert "samples.jsonl, line 5 is corrupt" in said.err


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, measured: Path) -> dict[str, Any]:
    """What the command line asks the suite for; nothing is measured."""
    asked: dict[str, Any] = {}

    def remember(**options: Any) -> Path:
        asked.update(options)
        return measured

    monkeypatch.setattr("bench.running.suite.run", remember)
    monkeypatch.setattr("bench.report.remake.report", lambda folder: "the table")
    return asked


def test_flags_reach_the_suite(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--device cpu --minutes 2 --threads 3 --precisions fp64, --families fma,stream --no-workloads"
    said = call(capsys, "run", *flags.split(), "--quiet", "--results", tmp_path)
    assert (said.code, said.out) == (0, "the table\n")
    assert options == {
        "device": "cpu",
        "minutes": 2.0,
        "preset": None,
        "results": tmp_path,
        "resume": None,
        "threads": 3,
        "precisions": ("fp64",),
        "families": ("fma", "stream"),
        "scratch": None,
        "workloads": False,
        "quiet": True,
        "blocker": True,
        "cross_check": False,
        "peer": "",
    }


def test_plain_run_leaves_the_choice_to_the_suite(
    options: dict[str, Any], measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = encoding.loads(call(capsys, "run", "--json").out)
    assert document["folder"] == measured.as_posix()
    assert VALIDATOR.is_valid(document["profile"])
    chosen = {name: options[name] for name in ("device", "minutes", "preset", "precisions", "families")}
    assert chosen == {"device": "auto", "minutes": None, "preset": None, "precisions": (), "families": ()}
    assert options["workloads"] is True


def test_resume_hands_the_folder_on(
    options: dict[str, Any], measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "run", "--resume", measured).code == 0
    assert options["resume"] == measured


def test_strict_run_prints_first_and_fails_then(
    options: dict[str, Any],
    measured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = store.read_profile(measured)
    wide = dataclasses.replace(profile.ceilings[0], converged=False)
    spoiled = dataclasses.replace(profile, ceilings=(wide,))
    monkeypatch.setattr("bench.store.read_profile", lambda path: spoiled)
    said = call(capsys, "run", "--strict")
    assert (said.code, said.out) == (7, "the table\n")
    assert said.err.splitlines()[0] == f"table, plot and samples: {measured}"
    assert "did not converge: pi" in said.err
    assert call(capsys, "run").code == 0


def test_interrupted_run_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(**_: Any) -> Path:
        raise KeyboardInterrupt("go on with: python -m bench run --resume r")

    monkeypatch.setattr("bench.running.suite.run", stop)
    said = call(capsys, "run")
    assert (said.code, said.out) == (outcome.INTERRUPTED, "")
    assert said.err == "interrupted; go on with: python -m bench run --resume r\n"


def test_interrupted_report_says_how_to_go_on(
    options: dict[str, Any],
    measured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(folder: Path) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.report.remake.report", stop)
    said = call(capsys, "run")
    told = f"interrupted; all is measured; for table and plot: python -m bench report {measured}\n"
    assert said == (outcome.INTERRUPTED, "", told)


@pytest.mark.parametrize(
    ("flag", "value", "code", "told"),
    [
        ("--device", "sim:none", 3, "valid: small-cpu, big-cpu"),
        ("--precisions", "fp12", 2, "unknown precision 'fp12'; this device knows: fp64, fp32"),
        (
            "--families",
            "foo",
            2,
            "unknown family 'foo'; valid: fma, stream, mix, gemm, tensor, cache, latency, scaling,",
        ),
        (
            "--precisions",
            "fp16,int8",
            2,
            "fp16: no fp16 arithmetic; int8: no int8 dot product); this device has: ",
        ),
        ("--families", "tensor", 2, "no points of tensor"),
        ("--threads", "99", 2, "1 to 2 threads"),
        ("--threads", "0", 2, "--threads 0: this device has 1 to 2 threads"),
        ("--threads", "-1", 2, "--threads -1: this device has 1 to 2 threads"),
    ],
)
def test_unknown_names_list_the_valid(
    flag: str, value: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call(capsys, "run", "--device", "sim:small-cpu", flag, value, "--results", tmp_path)
    assert said.code == code
    assert told in said.err
    assert list(tmp_path.iterdir()) == []


def test_results_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results"
    path.write_text("")
    said = call(capsys, "run", "--device", "sim:small-cpu", "--results", path)
    assert said.code == 2
    assert "is a file" in said.err
