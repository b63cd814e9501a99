"""The command line: every verb, its strict JSON, every refusal and its exit code."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import arguments, cli, errors, outcome, store
from bench.profile import encoding
from bench.profile.records import TOOL_VERSION, Profile
from tests.synthetic import synthetic_profile

Call = Callable[..., tuple[int, str, str]]


def written(folder: Path, profile: Profile | None = None) -> Path:
    """A result folder that holds a profile."""
    folder.mkdir(parents=True)
    (folder / "samples.jsonl").write_text("")
    store.write_profile(folder, profile or synthetic_profile())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "results" / "cpu-vm" / "20261130T025000Z-58d8d2f")


def strict(text: str) -> Any:
    return encoding.loads(text)


# what starts and ends


def test_help_lists_the_verbs(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for verb in ("run", "devices", "fit", "report", "compare", "export", "laws"):
        assert f"\n  {verb} " in out


def test_help_says_in_one_line_what_each_verb_does(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = call("--help")[1].partition("Commands:\n")[2].splitlines()
    assert len([line for line in shown if line]) == len(cli.VERBS)
    assert [line for line in shown if line.endswith("...")] == []


def test_version(call: Call) -> None:
    assert call("--version")[:2] == (0, f"empirical-roofline {TOOL_VERSION} (schema 1)\n")


def test_python_without_packages_is_told_so() -> None:
    done = subprocess.run([sys.executable, "-S", "-m", "bench", "run"], capture_output=True, text=True)
    told = "Error: the Python package 'typer' is missing: run `make setup` and use .venv/bin/python"
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(told) and done.stderr.count("\n") == 1


STOPPED = """
import sys

class Stopper:
    def find_spec(self, name, path=None, target=None):
        if name == "bench.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stopper())
from bench.__main__ import start
start()
"""


def test_ctrl_c_while_it_is_loaded_has_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


LAWS = [sys.executable, "-m", "bench", "laws", "--pi", "9e10", "--beta", "2e10"]


def test_terminal_without_greek_gets_question_marks_and_json_stays_utf8() -> None:
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(LAWS, capture_output=True, env=narrow, check=True)
    assert done.stdout.startswith(b"roof: ? 90.0 GFLOP/s, ? 20.0 GB/s (given)\n")
    name = ["run", "--device", "sim:\N{GREEK SMALL LETTER PI}"]
    done = subprocess.run([*LAWS[:3], *name], capture_output=True, env=narrow)
    assert (done.returncode, done.stderr[:32]) == (3, b"Error: unknown simulated device ")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str) -> None:
    done = subprocess.run(["sh", "-c", f"{shlex.join(LAWS)} {closed}"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join([*LAWS, '--factor', '0'])} {closed}"], capture_output=True
    )
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_printed_is_one_sentence() -> None:
    for words in (LAWS, [*LAWS[:3], "--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 5
        assert (
            done.stderr.startswith("Error: no space left for the output: ") and done.stderr.count("\n") == 1
        )


def test_reader_that_goes_away_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "bench", "laws", "--pi", "9e10", "--beta", "2e10"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (outcome.BROKEN_PIPE, "")


# how failures end


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


FAILURES = [
    (errors.DeviceError("no such device"), 3, "Error: no such device\n"),
    (errors.VerificationError("wrong sum"), 6, "Error: wrong sum\n"),
    (encoding.FormatError("profile lacks: x"), 4, "profile lacks: x; the file is corrupt"),
    (OSError(errno.ENOSPC, "No space left", "/r/s"), 5, "no space left for /r/s: free some"),
    (OSError(errno.EDQUOT, "Quota", "/r/s"), 5, "no space left for /r/s"),
    (OSError(errno.EROFS, "Read-only", "/r/s"), 5, "/r/s lies on a read-only file system: choose"),
    (PermissionError(errno.EACCES, "Permission denied", "/r/s"), 5, "no permission for /r/s"),
    (FileNotFoundError(errno.ENOENT, "No such file", "/r/s"), 4, "/r/s: no such file; check the path"),
    (OSError(errno.ENAMETOOLONG, "Name too long", "/r/s"), 4, "/r/s: name too long; check the path"),
    (OSError(errno.ELOOP, "Too many levels", "/r/s"), 4, "/r/s: too many levels; check the path"),
    (OSError(errno.ENOMEM, "Cannot allocate"), 5, "not enough memory (Cannot allocate)"),
    (OSError(errno.EIO, "Input/output error", "/r/s"), 5, "/r/s: Input/output error"),
    (MemoryError(), 5, "not enough memory: free some, or ask for fewer threads"),
    (ModuleNotFoundError("No", name="numba.core"), 3, "package 'numba' is missing: run `make setup`"),
    (ImportError("bad ELF header", name="llvmlite"), 3, "cannot be imported (bad ELF header)"),
    (ModuleNotFoundError("No module", name="bench.gone"), 1, "internal error: ModuleNotFoundError"),
    (ZeroDivisionError("division by zero"), 1, "internal error: ZeroDivisionError: division by zero; please"),
    (KeyboardInterrupt("go on with: python -m bench run --resume r"), 130, "interrupted; go on with: python"),
    (KeyboardInterrupt(), 130, "interrupted\n"),
]


@pytest.mark.parametrize(("error", "code", "words"), FAILURES, ids=lambda v: type(v).__name__)
def test_failure_is_one_sentence(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    monkeypatch.setattr("bench.devices.list_devices", raising(error))
    found, out, err = call("devices")
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_debug_shows_the_traceback_wherever_it_stands(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.devices.list_devices", raising(ZeroDivisionError("oh")))
    for words in (["--debug", "devices"], ["devices", "--debug"]):
        code, _, err = call(*words)
        assert code == 1
        assert "Traceback (most recent call last)" in err and "in fail" in err
        assert err.splitlines()[-1].startswith("Error: internal error: ZeroDivisionError: oh")


def test_every_exit_code_has_its_meaning() -> None:
    raised = {kind.exit_code for kind in errors.BenchError.__subclasses__()} | {1, 0, 130, 141}
    assert raised == set(outcome.EXIT_CODES)


def test_wrong_flag_is_refused(call: Call) -> None:
    code, _, err = call("run", "--minuts", "1")
    assert code == 2
    assert "No such option: --minuts" in err


# run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--preset", "huge"], "unknown preset 'huge'; valid: quick, standard, full"),
        (["--preset", ""], "unknown preset ''; valid: quick, standard, full"),
        (["--families", ","], "',' names nothing: give words with commas between them"),
        (["--precisions", " , "], "' , ' names nothing: give words with commas between them"),
        (["--minutes", "0"], "--minutes must be a positive number, got 0"),
        (["--minutes", "nan"], "--minutes must be a positive number, got nan"),
        (["--minutes", "1", "--preset", "quick"], "give --minutes or --preset, not both"),
        (["--families", "workload", "--no-workloads"], "leaves nothing of --families workload"),
        (["--resume", "x"], "--resume goes on as the run was begun: leave out --device"),
    ],
)
def test_run_refuses_wrong_values(call: Call, words: list[str], told: str) -> None:
    code, _, err = call("run", "--device", "sim:none", *words)
    assert code == 2
    assert told in err


def test_run_refuses_to_resume_nothing(call: Call, tmp_path: Path) -> None:
    code, _, err = call("run", "--resume", tmp_path)
    told = f"Error: nothing to resume: {tmp_path} holds no samples.jsonl; give the folder of a run\n"
    assert (code, err) == (4, told)
    assert call("run", "--resume", tmp_path / "samples.jsonl") == (4, "", told)


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


# strict


def test_strict_names_what_did_not_converge() -> None:
    with pytest.raises(errors.NotConverged, match="did not converge: pi fp64 library gemm; pi fp32 library"):
        arguments.check_converged(synthetic_profile())
    base = synthetic_profile()
    few = dataclasses.replace(base.ceilings[0], converged=None)
    with pytest.raises(errors.NotConverged, match="too few rounds for a verdict: pi fp64 fma"):
        arguments.check_converged(dataclasses.replace(base, ceilings=(few,)))
    good = tuple(c for c in base.ceilings if c.converged)
    arguments.check_converged(dataclasses.replace(base, ceilings=good))


def test_json_of_devices(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": "cpu", "note": "two cores"}]
    monkeypatch.setattr("bench.devices.list_devices", lambda: rows)
    assert json.loads(call("devices", "--json")[1]) == {"devices": rows}
    assert call("devices")[1] == "cpu  two cores\n"
