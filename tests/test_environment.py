"""The set-up: what it refuses and the line it tells to type, when it works and when it has nothing to do."""

from __future__ import annotations

import ast
import builtins
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import driver, environment, wheels
from bench.wheels import Refusal
from tests.set_up import plain_surroundings as plain_surroundings
from tests.set_up import use

SOURCES = [Path(module.__file__ or "") for module in (environment, driver, wheels)]


def test_first_call_makes_installs_and_stamps_the_second_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, venv = use(monkeypatch), tmp_path / "env"
    assert environment.main(["--venv", str(venv)]) == 0
    assert [words[1:4] for words in runs.started] == [
        ["-m", "venv", "--clear"],
        ["-m", "pip", "config"],
        ["-m", "pip", "install"],
        ["-c", "import numpy, scipy, llvmlite.binding, numba"],
    ]
    assert "numpy>=2.0" in runs.started[2]
    assert not any(word.startswith("pytest") for word in runs.started[2])
    assert json.loads((venv / environment.STAMP).read_text())["made"] is True
    assert f"ready in {venv}" in capsys.readouterr().out
    runs.started.clear()
    assert environment.main(["--venv", str(venv)]) == 0
    assert runs.started == []
    assert capsys.readouterr().out == ""


def test_a_new_extra_installs_more_and_the_old_one_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, venv = use(monkeypatch), str(tmp_path / "env")
    monkeypatch.setattr(environment, "works", lambda python: Path(python).exists())
    environment.main(["--venv", venv])
    runs.started.clear()
    assert environment.main(["--venv", venv, "--extra", "dev"]) == 0
    installs = [words for words in runs.started if "install" in words]
    assert any(word.startswith("pytest") for word in installs[0])
    assert not any("--clear" in words for words in runs.started), "the environment is kept"
    assert environment.is_ready(venv, {"dev"}) and environment.is_ready(venv, set())


def test_another_pyproject_is_another_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    environment.main(["--venv", str(tmp_path / "env")])
    assert environment.is_ready(str(tmp_path / "env"), set())
    monkeypatch.setattr(wheels, "fingerprint", lambda: "another")
    assert not environment.is_ready(str(tmp_path / "env"), set())


def test_only_an_environment_made_here_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / environment.STAMP).write_text('{"made": false}')
    environment.main(["--venv", str(ours)])
    use(monkeypatch, pip=(1, "no luck"))
    failed = tmp_path / "failed"
    assert environment.main(["--venv", str(failed)]) == 1
    for folder in (theirs, ours, failed, tmp_path / "never"):
        assert environment.main(["--venv", str(folder), "--remove"]) == 0
    assert theirs.exists()
    assert not ours.exists()
    assert not failed.exists(), "made here, though its packages never came"


@pytest.mark.parametrize("version", [(3, 8), (3, 9), (3, 14)])
def test_an_unfit_python_is_refused_with_a_line_to_type(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.shutil, "which", lambda name: name if name == "python3.12" else None)
    monkeypatch.setattr(environment, "succeeds", lambda words: True)
    with pytest.raises(Refusal, match=r"type: make bench PYTHON=python3\.12"):
        environment.check_python("bench", version)
    monkeypatch.setattr(environment, "succeeds", lambda words: False)
    with pytest.raises(Refusal, match=r"install one \(apt install python3\.11 python3\.11-venv"):
        environment.check_python("bench", version)


def test_accepted_pythons_and_no_other_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    for minor in (10, 11, 12, 13):
        environment.check_python("setup", (3, minor))
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    monkeypatch.setattr(environment.sys, "implementation", SimpleNamespace(name="pypy"))
    with pytest.raises(Refusal, match="pypy cannot run Numba"):
        environment.check_python("setup", (3, 11))


@pytest.mark.parametrize(("user", "line"), [(0, ": apt install python"), (1000, ": sudo apt install python")])
def test_debian_without_venv_gets_the_exact_line(
    user: int, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ensurepip":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(Refusal) as refusal:
        environment.create(str(tmp_path / "env"), "setup")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"{line}{version}-venv;" in str(refusal.value)
    assert "make bench VENV= PYTHON=python3" in str(refusal.value)


def test_a_folder_with_other_things_is_not_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = use(monkeypatch)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Refusal, match="with other things in it"):
        environment.create(str(tmp_path), "setup")
    assert runs.started == []


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("OSError: [Errno 28] No space left on device", "VENV=/scratch/venv PIP_CACHE_DIR=/scratch/pip"),
        ("OSError: [Errno 122] Disk quota exceeded", "TMPDIR=/scratch"),
        ("[Errno 30] Read-only file system: 'x'", "a folder cannot be written"),
        ("NewConnectionError('Temporary failure in name resolution')", "make bench VENV= PYTHON=python3"),
        (
            "noise\nERROR: No matching distribution found for numpy>=2.0\nhint",
            "ERROR: No matching distribution",
        ),
        ("", "no reason was given"),
    ],
)
def test_what_pip_says_becomes_what_to_do(
    output: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(monkeypatch, pip=(1, output))
    monkeypatch.setattr(wheels, "missing", lambda needs: {"numpy": "numpy"})
    assert environment.main(["--venv", str(tmp_path / "env"), "--goal", "bench"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("set-up: the packages could not be installed: ")
    assert remedy in said
    assert not environment.is_ready(str(tmp_path / "env"), set())


OFFLINE = (1, "NewConnectionError('Temporary failure in name resolution')")


def test_without_a_network_the_packages_that_are_here_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, venv = use(monkeypatch, pip=OFFLINE), str(tmp_path / "env")
    monkeypatch.setattr(environment, "succeeds", lambda words: words[2] == environment.BORROWED)
    assert environment.main(["--venv", venv, "--goal", "bench"]) == 0
    assert runs.started[-1] == [sys.executable, "-m", "venv", "--clear", "--without-pip", venv]
    assert f"the packages that {sys.executable} has are used instead" in capsys.readouterr().out
    assert environment.is_ready(venv, set()) and environment.was_made_here(venv)


def test_borrowed_packages_are_those_of_this_python_be_it_an_environment_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "check_packages", lambda extra, cuda="": None)
    monkeypatch.setattr(environment, "BORROWED", "import numpy")
    environment.borrow(str(tmp_path / "env"), "", "none", Refusal("no network"))
    code = "import numpy, pytest; print(numpy.__file__, pytest.__file__)"
    words = [str(tmp_path / "env" / "bin" / "python"), "-c", code]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [np.__file__, pytest.__file__]


def test_without_the_means_to_install_the_packages_that_are_here_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, venv = builtins.__import__, str(tmp_path / "env")

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ensurepip":
            raise ImportError(name)
        return real(name, *rest, **more)

    runs = use(monkeypatch)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(environment, "succeeds", lambda words: words[2] == environment.BORROWED)
    assert environment.main(["--venv", venv, "--goal", "bench"]) == 0
    assert [words[4] for words in runs.started if "venv" in words] == ["--without-pip"]
    assert environment.is_ready(venv, set()) and environment.was_made_here(venv)


@pytest.mark.parametrize("works", [True, False])
def test_gpu_check_passes_over_an_environment_that_holds_nothing(works: bool, tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexit {int(not works)}\n")
    python.chmod(0o755)
    words = ["make", "-n", "gpu-check", f"VENV={tmp_path / 'env'}", f"PYTHON={sys.executable}"]
    told = subprocess.run(words, cwd=wheels.CHECKOUT, capture_output=True, text=True, check=True)
    begun = [line.split(" -m ")[0] for line in told.stdout.splitlines() if " -m bench gpu-check" in line]
    assert begun == [f'"{python if works else sys.executable}"']


def test_without_a_network_an_environment_of_others_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = use(monkeypatch, pip=OFFLINE)
    monkeypatch.setattr(environment, "works", lambda python: True)
    monkeypatch.setattr(environment, "succeeds", lambda words: True)
    assert environment.main(["--venv", str(tmp_path)]) == 1
    assert not any("--clear" in words for words in runs.started)


@pytest.mark.parametrize("extra", ["", "dev"])
def test_without_a_network_and_packages_the_remedies_are_told(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, venv = use(monkeypatch, pip=OFFLINE), str(tmp_path / "env")
    lacking = "pytest" if extra else "numpy"
    monkeypatch.setattr(
        wheels, "missing", lambda needs: {lacking: lacking} if any(lacking in n for n in needs) else {}
    )
    monkeypatch.setattr(environment, "succeeds", lambda words: words[2] == environment.BORROWED)
    assert environment.main(["--venv", venv, "--extra", extra, "--goal", "test"]) == 1
    assert "no package index could be reached: bring the packages" in capsys.readouterr().err
    assert not any("--without-pip" in words for words in runs.started)
    assert not environment.is_ready(venv, set())


@pytest.mark.parametrize(
    ("variable", "config", "lifted"),
    [
        ("pins.txt", "", "PIP_CONSTRAINT=pins.txt holds pip back; {} PIP_CONSTRAINT="),
        (
            "",
            "global.constraint='pins.txt'\n",
            "configuration pins.txt holds pip back; {} PIP_CONFIG_FILE=/dev/null",
        ),
    ],
)
def test_a_constraint_file_is_named_with_the_way_around_it(
    variable: str, config: str, lifted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, pip=(1, "The user requested (constraint) numpy==1.24.4"), config=(0, config))
    if variable:
        monkeypatch.setenv("PIP_CONSTRAINT", variable)
    with pytest.raises(Refusal) as refusal:
        wheels.install("python", ["numpy"], "setup")
    assert str(refusal.value).endswith(lifted.format("lift it for this one command: make setup"))


def test_a_constraint_file_is_not_blamed_for_a_missing_network(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, pip=(1, "NewConnectionError"))
    monkeypatch.setenv("PIP_CONSTRAINT", "pins.txt")
    with pytest.raises(Refusal, match="no package index could be reached"):
        wheels.install("python", ["numpy"], "setup")


def test_packages_that_do_not_load_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, other=(1, "Traceback\nImportError: GLIBC_2.28 not found"))
    with pytest.raises(Refusal, match=r"do not load: ImportError: GLIBC_2\.28 not found"):
        environment.prepare(str(tmp_path / "env"), "", "setup")


def test_without_an_environment_missing_and_old_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        wheels, "requirements", lambda *extras: ["numpy>=999.1", "scipy>=0.1", "no-such-thing>=1"]
    )
    with pytest.raises(Refusal) as refusal:
        environment.check_packages("")
    assert "numpy (has 2." in str(refusal.value) and "needs 999.1)" in str(refusal.value)
    assert "no-such-thing" in str(refusal.value)
    assert "scipy" not in str(refusal.value)


def test_this_very_python_has_what_the_suite_needs() -> None:
    assert environment.main(["--goal", "bench"]) == 0


@pytest.mark.parametrize("extra", ["", "dev", "cuda12", "cuda13"])
def test_requirements_are_those_of_pyproject(extra: str) -> None:
    words = wheels.requirements(extra)
    if sys.version_info >= (3, 11):
        import tomllib

        project = tomllib.loads((SOURCES[0].parent.parent / "pyproject.toml").read_text())["project"]
        more = project["optional-dependencies"][extra] if extra else []
        assert words == project["dependencies"] + more
    assert "numba>=0.61" in words


def test_run_keeps_the_output_and_shows_the_lines_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-c", "print('Downloading a.whl (3 MB)\\nnoise'); raise SystemExit(3)"]
    done = wheels.run(words, echo=r"Downloading (\S+)")
    assert (done.returncode, done.stdout) == (3, "Downloading a.whl (3 MB)\nnoise\n")
    assert capsys.readouterr().out == "  a.whl\n"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_set_up_parses_on_old_pythons_and_imports_only_the_standard_library(source: Path) -> None:
    tree = ast.parse(source.read_text(), feature_version=(3, 6))
    assert not any(isinstance(node, ast.NamedExpr | ast.Match) for node in ast.walk(tree))
    modules = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in modules} <= sys.stdlib_module_names | {"bench"}
    assert {name for name in modules if name.startswith("bench")} <= {"bench", "bench.wheels"}
    assert "__future__" not in modules, "Python 3.6 does not know the annotations of __future__"


def test_set_up_starts_with_nothing_on_its_path(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", str(SOURCES[0]), "--venv", str(tmp_path / "no"), "--remove"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# GPUs


# no environment of ours


# wheels


def test_audit_packages_follow_the_toolkit_of_the_gpu() -> None:
    assert environment.named("dev,audit") == {"dev", "audit"}
    assert environment.named("dev,audit", "cuda13") == {"dev", "audit", "cuda13"}
    assert environment.named("dev,audit", "cuda12") == {"dev", "audit12", "cuda12"}
    assert environment.named("") == set()
