"""Which device a run is about: auto, a named GPU, what is said when a GPU cannot serve, what children get."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import host
from bench.backends import open_backend
from bench.errors import DeviceError, ResourceError
from bench.gpu import described, survey
from bench.gpu.states import state
from bench.gpu.survey import Gpu, Survey
from bench.gpu.visible import Visible
from bench.running import opening, suite
from bench.running.runners import Children, InProcess

GPU = replace(open_backend("sim:gpu-large").device, id="cuda:1", kind="cuda", name="Some GPU")
READING = {"power_w": 80.0, "memory_free_bytes": 5 << 30, "processes": 2, "power_limit_w": 200.0}


def visible(number: int) -> Gpu:
    return Gpu(Visible(number, f"GPU-{number}", f"GPU-{number}", "Some GPU"), READING)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """cuda:0 is taken, cuda:1 is free; which were probed is kept."""
    probed: list[str] = []

    def describe(id: str) -> Any:
        probed.append(id)
        if id == "cuda:0":
            raise state("busy").error(id)
        return GPU

    monkeypatch.setattr(host, "login_node", lambda: "")
    monkeypatch.setattr(survey, "survey", lambda *_: Survey((visible(0), visible(1))))
    monkeypatch.setattr(described, "cuda_device", describe)
    return probed


def automatic() -> tuple[str, list[str]]:
    said: list[str] = []
    return opening.automatic(said.append), said


def test_auto_takes_the_first_gpu_that_works_and_probes_it_once(machine: list[str]) -> None:
    assert automatic() == ("cuda:1", [])
    device, runner = opening.open_device("cuda:1")
    assert device is GPU and machine == ["cuda:0", "cuda:1"]
    assert isinstance(runner, Children) and runner.by_family and runner.device == "cuda:1"
    opening.open_device("cuda:1")
    assert machine[2:] == ["cuda:1"], "a device is described anew for a second run"


def test_a_child_sees_its_gpu_alone(machine: list[str]) -> None:
    _, runner = opening.open_device("cuda:1")
    assert isinstance(runner, Children)
    wanted = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
    }
    assert wanted.items() <= runner.environment.items()
    assert opening.NO_BLOCKER not in runner.environment
    _, bare = opening.open_device("cuda:1", blocker=False)
    assert isinstance(bare, Children) and bare.environment[opening.NO_BLOCKER] == "1"


def test_conditions_are_nvmls(machine: list[str]) -> None:
    _, runner = opening.open_device("cuda:1")
    assert runner.conditions() == {**READING, "memory_available_bytes": 5 << 30}
    assert opening.gpu_conditions("cuda:7") == {}


def test_a_gpu_that_tells_nothing_is_asked_once(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, runner = opening.open_device("cuda:1")
    looks: list[int] = []

    def blind(*_: Any) -> Survey:
        looks.append(1)
        return Survey((replace(visible(1), reading={"power_w": None}),))

    monkeypatch.setattr(survey, "survey", blind)
    assert runner.conditions() == runner.conditions() == {"power_w": None, "memory_available_bytes": None}
    assert len(looks) == 1
    assert suite._available(GPU, runner) == GPU.facts["free_bytes"], "as the probe saw it"


def test_a_named_gpu_that_fails_is_an_error_never_the_cpu(machine: list[str]) -> None:
    with pytest.raises(DeviceError, match="cuda:0: " + re.escape(state("busy").sentence)):
        opening.open_device("cuda:0")


def test_auto_says_why_a_gpu_does_not_serve(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "survey", lambda *_: Survey((visible(0),), (state("container"),)))
    device, said = automatic()
    assert device == "cpu" and len(said) == 1
    assert said[0].startswith("no GPU is measured (the host has an NVIDIA driver but nothing here may use it")
    assert f"cuda:0: {state('busy').sentence}" in said[0] and said[0].endswith("the CPU is, instead")


def test_a_machine_without_a_gpu_is_not_told_so(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "survey", lambda *_: Survey((), (state("no-driver"),)))
    assert automatic() == ("cpu", [])


def test_a_login_nodes_gpu_is_spared_too(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "login_node", lambda: "Slurm")
    with pytest.raises(DeviceError, match="Slurm is here, but no allocation"):
        automatic()
    assert machine == []


@pytest.mark.parametrize("name", ["numba", "matplotlib", "rich"])
def test_a_package_that_the_end_of_a_run_needs_is_missed_before_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening.check_packages(host.cpu_device())
    opening.check_packages(GPU)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError) as why:
        opening.check_packages(host.cpu_device())
    assert why.value.name == name
    if name in opening.PRINTING:
        with pytest.raises(ModuleNotFoundError, match=name):
            suite.run("sim:small-cpu", minutes=0.1, results=tmp_path, quiet=True)
        assert list(tmp_path.iterdir()) == []
    else:
        opening.check_packages(GPU)


def test_a_scratch_folder_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (("file", "is a file: name a folder with"), ("gone", "make it, or name another with")):
        with pytest.raises(ResourceError, match=f"{said} --scratch"):
            opening.with_scratch(host.cpu_device(), Children("cpu"), tmp_path / name, True)


def test_what_may_disturb_a_gpu_is_said() -> None:
    now = {**READING, "power_limit_default_w": 300.0}
    assert opening.remarks(GPU, now) == (
        "2 other processes on this GPU: close what can be closed",
        "its power is limited to 200 W of 300 W: sustained rates are lower",
    )
    part = open_backend("sim:gpu-mig").device
    assert opening.remarks(part, {}) == (
        "MIG slice 1s.8gb: its rates are its own, clocks, power and temperature are the whole board's",
    )


def test_simulated_ones_are_measured_here() -> None:
    device, runner = opening.open_device("sim:gpu-small")
    assert isinstance(runner, InProcess) and runner.by_family and device.is_gpu
    _, cpu = opening.open_device("sim:small-cpu")
    assert not cpu.by_family
