"""The command line: how it starts and ends, every refusal and its exit code, and `run`."""

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
