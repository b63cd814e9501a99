"""The set-up on a GPU machine: which packages, when, and what is said where they are not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import driver, environment, wheels
from bench.wheels import Refusal
from tests.set_up import H200, NO_GPU, Runs, use
from tests.set_up import plain_surroundings as plain_surroundings


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
