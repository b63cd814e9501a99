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

import pytest

from bench import driver, environment, wheels
from bench.wheels import Refusal

SOURCES = [Path(module.__file__ or "") for module in (environment, driver, wheels)]
NO_GPU = driver.Found()
H200 = driver.Found("580.65.06", "13.0", (("NVIDIA H200", (9, 0)),))


class Runs:
    """Stands in for the programs that set-up starts: keeps their words, answers with prepared output."""

    def __init__(self, **outputs: tuple[int, str]) -> None:
        self.started: list[list[str]] = []
        self.outputs = outputs

    def __call__(self, words: list[str], echo: str = "") -> Any:
        self.started.append(words)
        kind = "pip" if "install" in words else "config" if "config" in words else "other"
        if "venv" in words:
            kind = "venv"
            python = Path(words[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("#!/bin/sh\n")
            python.chmod(0o755)
        code, text = self.outputs.get(kind, (0, ""))
        return subprocess.CompletedProcess(words, code, text)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_CONSTRAINT", "PYTHONPATH", "ROOFLINE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(driver, "look", lambda: NO_GPU)


def use(monkeypatch: pytest.MonkeyPatch, **outputs: tuple[int, str]) -> Runs:
    runs = Runs(**outputs)
    monkeypatch.setattr(wheels, "run", runs)
    return runs


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
    assert environment.main(["--venv", str(tmp_path / "env"), "--goal", "bench"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("set-up: the packages could not be installed: ")
    assert remedy in said
    assert not environment.is_ready(str(tmp_path / "env"), set())


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


def on(monkeypatch: pytest.MonkeyPatch, found: driver.Found, mark: str = "a") -> list[int]:
    """The machine has these GPUs; the list grows each time it is looked at."""
    looks: list[int] = []
    monkeypatch.setattr(driver, "look", lambda: looks.append(1) or found)
    monkeypatch.setattr(driver, "mark", lambda: mark)
    monkeypatch.setattr(environment, "works", lambda python: Path(python).exists())
    return looks


def installed(runs: Runs) -> list[str]:
    """What the last call of pip was asked to install."""
    return next(words for words in reversed(runs.started) if "install" in words)


def test_a_gpu_machine_gets_its_packages_once_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, looks, venv = use(monkeypatch), on(monkeypatch, H200), str(tmp_path / "env")
    assert environment.main(["--venv", venv]) == 0
    assert "cupy-cuda13x>=14" in installed(runs) and "nvidia-ml-py>=13" in installed(runs)
    assert runs.started[-1][-1] == environment.SMOKE + ", cupy"
    told = (
        "GPU packages: cuda13 (NVIDIA H200 (9.0), driver 580.65.06, CUDA 13.0); CUDA=12, 13 or none overrides"
    )
    assert told in capsys.readouterr().out
    runs.started.clear()
    assert environment.main(["--venv", venv]) == 0
    assert (runs.started, looks) == ([], [1]), "neither pip nor nvidia-smi is asked again"
    assert capsys.readouterr().out == ""


def test_a_login_node_takes_what_cuda_names_and_the_compute_node_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, venv = use(monkeypatch), str(tmp_path / "env")
    on(monkeypatch, NO_GPU)
    assert environment.main(["--venv", venv, "--cuda", "13"]) == 0
    assert "cupy-cuda13x>=14" in installed(runs)
    runs.started.clear()
    on(monkeypatch, H200, mark="b")
    assert environment.main(["--venv", venv]) == 0
    on(monkeypatch, NO_GPU)
    assert environment.main(["--venv", venv]) == 0
    assert runs.started == [], "both find the environment ready"


def test_none_keeps_a_gpu_machine_without_gpu_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, looks = use(monkeypatch), on(monkeypatch, H200)
    assert environment.main(["--venv", str(tmp_path / "env"), "--cuda", "none"]) == 0
    assert not any("cupy" in word for word in installed(runs))
    assert looks == []


@pytest.mark.parametrize(
    ("said", "extra"),
    [
        ("12", "cuda12"),
        ("13.0", "cuda13"),
        ("cuda12", "cuda12"),
        ("none", "none"),
        ("/opt/cuda", ""),
        ("", ""),
    ],
)
def test_words_that_cuda_may_have(said: str, extra: str) -> None:
    assert environment.chosen(said) == extra


def test_a_word_that_cuda_may_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert environment.main(["--cuda", "11"]) == 1
    assert "CUDA=11 is no choice: 12, 13 or none" in capsys.readouterr().err


def test_one_build_of_cupy_makes_way_for_the_other_only_in_our_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, venv = use(monkeypatch), str(tmp_path / "env")
    on(monkeypatch, H200)
    environment.main(["--venv", venv])
    monkeypatch.setattr(wheels, "cupys", lambda python: ["cupy-cuda13x"])
    assert environment.main(["--venv", venv, "--cuda", "12"]) == 0
    assert ["uninstall", "-y", "cupy-cuda13x"] in [words[-3:] for words in runs.started]
    assert "cupy-cuda12x>=14" in installed(runs)
    assert environment.extras(venv) == {"cuda12"}
    with pytest.raises(Refusal, match=r"theirs has cupy-cuda13x, but this machine needs cupy-cuda12x"):
        environment.make_way("theirs", "python", "cuda12", ["cupy-cuda12x>=14"])
    monkeypatch.setattr(wheels, "cupys", lambda python: ["cupy"])
    kept = environment.make_way("theirs", "python", "cuda13", ["numpy>=2", "cupy-cuda13x>=14"])
    assert kept == ["numpy>=2"], "a CuPy built for this machine stays"


# no environment of ours


LACKING = {"cupy-cuda13x": "cupy-cuda13x", "scipy": "scipy", "psutil": "psutil (has 1, needs 5.9)"}


def bare(monkeypatch: pytest.MonkeyPatch, found: driver.Found, cupys: list[str], lacking: list[str]) -> None:
    monkeypatch.setattr(driver, "look", lambda: found)
    monkeypatch.setattr(wheels, "cupys", lambda python: cupys)
    monkeypatch.setattr(wheels, "missing", lambda needs: {name: LACKING.get(name, name) for name in lacking})


def test_a_gpu_needs_little_and_what_else_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare(monkeypatch, H200, ["cupy-cuda13x"], ["scipy", "psutil"])
    for words in ([], ["--measuring", "cuda:0"]):
        assert environment.main(words) == 0
        assert "without scipy, psutil (has 1, needs 5.9): what needs them" in capsys.readouterr().out
    bare(monkeypatch, H200, ["cupy-cuda13x"], ["numpy"])
    assert environment.main([]) == 1
    assert "lacks numpy;" in capsys.readouterr().err


def test_without_cupy_the_cpu_serves_unless_a_gpu_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare(monkeypatch, H200, [], [])
    assert environment.main([]) == 0
    said = capsys.readouterr().out
    assert "this Python lacks CuPy: install cupy-cuda13x" in said and "the CPU is measured" in said
    assert environment.main(["--measuring", "cuda:0"]) == 1
    assert "device cuda:0 was asked for, but this Python lacks CuPy" in capsys.readouterr().err
    bare(monkeypatch, H200, [], ["scipy"])
    assert environment.main([]) == 1, "a CPU needs all of its packages"
    assert environment.main(["--measuring", "sim:small-cpu"]) == 1


def test_a_cupy_too_new_for_the_driver_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = driver.Found("550.54.15", "12.4", (("NVIDIA A100", (8, 0)),))
    bare(monkeypatch, old, ["cupy-cuda13x"], [])
    assert environment.main(["--measuring", "cuda:0"]) == 1
    assert "too old for: install cupy-cuda12x" in capsys.readouterr().err
    bare(monkeypatch, H200, ["cupy-cuda12x"], [])
    assert environment.main(["--measuring", "cuda:0"]) == 0, "drivers run older CUDA"


# wheels


def test_a_folder_of_wheels_is_installed_from_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, house = use(monkeypatch), tmp_path / "wheelhouse"
    words = ["--venv", str(tmp_path / "env"), "--wheelhouse", str(house)]
    assert environment.main(words) == 0
    assert "--no-index" not in installed(runs), "there is none yet"
    house.mkdir()
    (house / "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert environment.main([*words, "--extra", "dev"]) == 0
    at = installed(runs).index("--no-index")
    assert installed(runs)[at + 1 : at + 3] == ["--find-links", str(house)]
    use(monkeypatch, pip=(1, "ERROR: No matching distribution found for scipy>=1.13"))
    monkeypatch.setattr(wheels, "fingerprint", lambda: "another")
    assert environment.main(words) == 1
    assert f"{house} was made for another Python" in capsys.readouterr().err


def test_wheels_are_collected_for_the_machine_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, house = use(monkeypatch), tmp_path / "wheelhouse"
    house.mkdir()
    (house / "a.whl").write_bytes(b"1234")
    words = ["--collect", "--wheelhouse", str(house), "--cuda", "13"]
    assert environment.main(words) == 0
    plain = runs.started[-1]
    assert plain[1:4] == ["-m", "pip", "download"] and plain[plain.index("--dest") + 1] == str(house)
    assert "cupy-cuda13x>=14" in plain and "numpy>=2.0" in plain and "--platform" not in plain
    assert f"1 wheels, 0.0 GB in {house}" in capsys.readouterr().out
    assert environment.main([*words, "--for-python", "3.12", "--for-machine", "aarch64"]) == 0
    other = runs.started[-1]
    assert other[other.index("--python-version") + 1] == "3.12"
    assert "manylinux_2_28_aarch64" in other and "manylinux2014_aarch64" in other
    assert not any("x86_64" in word for word in other)


def test_pip_keeps_its_cache_where_all_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", "room")
    show = [sys.executable, "-c", "import os; print(os.environ.get('PIP_CACHE_DIR'))"]
    assert wheels.run(show).stdout.strip() == os.path.join("room", "pip")
    monkeypatch.setenv("PIP_CACHE_DIR", "mine")
    assert wheels.run(show).stdout.strip() == "mine"


def test_missing_packages_and_builds_of_cupy_of_this_very_python() -> None:
    absent = wheels.missing(["numpy>=2.0", "numpy>=999", "cuda-nothing[a,b]==13.0.*"])
    assert set(absent) == {"numpy", "cuda-nothing"} and "needs 999" in absent["numpy"]
    assert all(name.startswith("cupy") for name in wheels.cupys(sys.executable))


def test_audit_packages_follow_the_toolkit_of_the_gpu() -> None:
    assert environment.named("dev,audit") == {"dev", "audit"}
    assert environment.named("dev,audit", "cuda13") == {"dev", "audit", "cuda13"}
    assert environment.named("dev,audit", "cuda12") == {"dev", "audit12", "cuda12"}
    assert environment.named("") == set()
