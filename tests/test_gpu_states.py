"""Every state that a GPU or its machine can be in, in one sentence; on stand-ins."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from bench.errors import DeviceError
from bench.gpu import described, probe, states
from tests import fake_nvml
from tests.fake_nvml import FakeBoard
from tests.gpu_machine import ATTRIBUTES, THREE, A, B, C, Machine, gpu
from tests.gpu_machine import machine as machine


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ({"status": 35, "driver": 12040}, "driver-too-old", ["CUDA 12.4", "CUDA 13", "make setup CUDA=12"]),
        ({"status": 35, "driver": 11040}, "driver-too-old", ["CUDA 11.4", "update the driver"]),
        (
            {"status": 35, "driver": 11040, "runtime": 12090},
            "driver-too-old",
            ["update the driver", "CUDA 12"],
        ),
        ({"status": 35, "driver": 0}, "no-driver", ["install one"]),
        ({"status": 100}, "no-device", []),
        ({"status": 46, "at": "memory"}, "busy", ["exclusive-process", "name another GPU"]),
        ({"status": 2, "at": "memory"}, "full", ["wait"]),
        ({"status": 304}, "no-permission", ["--gpus all"]),
        ({"status": 802}, "fabric", ["nvidia-fabricmanager"]),
        ({"status": 803}, "mismatch-driver", ["restart"]),
        ({"status": 214, "at": "memory"}, "lost", ["restart"]),
        ({"status": 999}, "failed", ["cudaErrorNumber999: as the test asked"]),
        ({"count": 0}, "no-device", []),
        ({"import": "libcudart.so.13: not there"}, "cupy-broken", ["libcudart.so.13", "make setup"]),
        ({"gpus": {A: gpu(capability=70)}}, "gpu-too-old", ["7.0", "CUDA 13", "make setup CUDA=12"]),
        ({"gpus": {A: gpu(capability=61)}, "runtime": 12090}, "gpu-too-old", ["6.1", "7.0 or newer"]),
        ({"compile": 'Failure finding "libnvrtc.so.13" No such file'}, "no-nvrtc", ["cupy-cuda13x[ctk]"]),
        ({"compile": 'cannot open source file "cuda_fp16.h"'}, "no-headers", ["cupy-cuda13x[ctk]"]),
        ({"compile": "internal error"}, "failed", ["a test kernel does not compile: internal error"]),
    ],
)
def test_states_of_a_child(machine: Machine, said: dict[str, Any], code: str, words: list[str]) -> None:
    answer = machine.report(**{"gpus": {A: gpu()}} | said)
    assert answer["state"] == code
    assert all(word in answer["message"] for word in words), answer["message"]
    assert "\n" not in answer["message"]


def test_volta_is_fine_with_the_older_wheel(machine: Machine) -> None:
    answer = machine.report(gpus={A: gpu(capability=70)}, runtime=12090)
    assert answer["compute_capability"] == 70


def test_a_missing_attribute_is_none(machine: Machine) -> None:
    answer = machine.report(gpus={A: gpu()}, lacking=["ClockRate", "MemoryClockRate"])
    assert (answer["max_sm_clock_hz"], answer["max_memory_clock_hz"]) == (None, None)
    assert answer["sm_count"] == 132


def test_no_cupy_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "cupy":
                raise ModuleNotFoundError("No module named 'cupy'", name="cupy")

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    assert probe.report() == {"state": "no-cupy", "message": states.SENTENCES["no-cupy"]}


def test_a_child_that_hangs_or_dies_is_a_state(machine: Machine) -> None:
    machine.has_children(hang=True)
    started, start = [], probe._start
    machine.patch.setattr(probe, "_start", lambda *given: started.append(start(*given)) or started[-1])
    (answer,) = probe.ask([{}], seconds=0.5)
    assert answer["state"] == "hung" and "did not answer in 0.5 s" in answer["message"]
    assert started[0].poll() is not None, "it is not left behind"
    machine.has_children(die=True)
    (answer,) = probe.ask([{}])
    assert answer["state"] == "failed" and "the GPU cannot be used (" in answer["message"]


@pytest.mark.parametrize(
    ("said", "fake", "sentence"),
    [
        (
            {"status": 46, "at": "memory"},
            FakeBoard(A, bus=0x10, compute_mode=2),
            states.SENTENCES["prohibited"],
        ),
        ({"status": 46, "at": "memory"}, FakeBoard(A, bus=0x10, compute_mode=3), states.SENTENCES["busy"]),
        ({"status": 35, "driver": 0}, FakeBoard(A, bus=0x10), states.SENTENCES["no-libcuda"]),
        ({"status": 100}, FakeBoard(A, bus=0x10), states.SENTENCES["no-permission"]),
    ],
)
def test_nvml_explains_what_cuda_only_hints_at(
    machine: Machine, said: dict[str, Any], fake: FakeBoard, sentence: str
) -> None:
    machine.has(fake)
    machine.says(**said, gpus={A: gpu()})
    (row,) = machine.rows()
    assert (row["id"], row["status"]) == ("cuda:0", "unusable")
    assert row["note"] == f"NVIDIA Test 9000: {sentence}"
    with pytest.raises(DeviceError) as named:
        described.cuda_device("cuda:0", machine.root, {})
    assert str(named.value) == f"cuda:0: {sentence}"


DRIVER, NODES = "proc/driver/nvidia/version", "dev/nvidiactl"


@pytest.mark.parametrize(
    ("start", "files", "code"),
    [
        (12, [], "no-driver"),
        (12, [DRIVER], "container"),
        (9, [DRIVER], "container"),
        (9, [DRIVER, NODES], "not-loaded"),
        (9, [], "not-loaded"),
        (4, [DRIVER, NODES], "no-permission"),
        (18, [DRIVER, NODES], "mismatch-driver"),
        (None, [], "no-driver"),
        (None, [DRIVER], "container"),
    ],
)
def test_states_of_a_machine(machine: Machine, start: int | None, files: list[str], code: str) -> None:
    if start is None:
        machine.patch.setitem(sys.modules, "pynvml", None)
    else:
        machine.has(start=start)
    for path in files:
        machine.file(path)
    sentence = states.SENTENCES[code]
    (row,) = machine.rows()
    assert (row["id"], row["status"], row["note"]) == ("", "absent", f"GPU: {sentence}")
    with pytest.raises(DeviceError) as named:
        described.cuda_device("cuda:0", machine.root, {})
    assert str(named.value) == f"cuda:0: {sentence}"
    assert described.usable(machine.root, {}) is None


@pytest.mark.parametrize(
    ("held", "code"),
    [
        ({"driver", "nodes", "readable"}, "no-libcuda"),
        ({"driver", "nodes"}, "no-permission"),
        ({"driver"}, "container"),
        ({"wsl", "nodes"}, "wsl"),
        (set(), "no-driver"),
    ],
)
def test_files_tell_why_no_driver_answers(held: set[str], code: str) -> None:
    names = ("nodes", "readable", "driver", "wsl", "jetson")
    assert states.without_driver({name: name in held for name in names}).code == code


def test_a_driver_without_a_gpu_and_a_lost_gpu(machine: Machine) -> None:
    machine.has()
    assert machine.rows()[0]["note"] == f"GPU: {states.SENTENCES['container']}"
    machine.file(NODES)
    assert machine.rows()[0]["note"] == f"GPU: {states.SENTENCES['no-device']}"
    machine.has(FakeBoard(A), lost={0: 15})
    assert machine.rows()[0]["note"].startswith("GPU: the GPU does not work any more (GPU is lost)")


def test_gpus_of_other_jobs_are_named_only_where_we_have_none(machine: Machine) -> None:
    machine.has(FakeBoard(B), FakeBoard(A, bus=0x10), FakeBoard(C), lost={0: 4, 2: 4})
    machine.says(gpus={A: gpu()})
    assert [row["id"] for row in machine.rows()] == ["cuda:0"]
    machine.has(FakeBoard(B), FakeBoard(C), lost={0: 4, 1: 4})
    (row,) = machine.rows()
    assert row["note"] == f"GPU: {states.SENTENCES['no-permission']}"


@pytest.mark.parametrize("value", ["", "-1", "7", "GPU-nothere"])
def test_a_variable_that_hides_every_gpu_is_named(machine: Machine, value: str) -> None:
    machine.has(*THREE)
    (row,) = machine.rows(CUDA_VISIBLE_DEVICES=value)
    assert row["note"].startswith(f"GPU: CUDA_VISIBLE_DEVICES={value!r} leaves no GPU")
    assert "0 to 2" in row["note"]


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("proc/sys/kernel/osrelease", "5.15.0-microsoft-standard-WSL2", "wsl"),
        ("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit", "jetson"),
    ],
)
def test_wsl_and_jetson_without_nvml_are_asked_by_cuda(
    machine: Machine, path: str, text: str, code: str
) -> None:
    machine.has(start=12)
    machine.file(path, text)
    machine.says(status=35, driver=0)
    assert machine.rows()[0]["note"] == f"GPU: {states.SENTENCES[code]}"
    machine.says(count=2, gpus={"0": gpu(A, name="Orin", capability=87), "1": gpu(B, 0x20)})
    rows = machine.rows()
    assert [row["id"] for row in rows] == ["cuda:0", "cuda:1"]
    assert all(row["status"] == "ready" and "no telemetry: " in row["note"] for row in rows)
    assert rows[0]["facts"]["max_sm_clock_hz"] == 1.98e9, "from CUDA where NVML tells nothing"


def test_without_the_monitoring_package_a_gpu_is_still_measured(machine: Machine) -> None:
    machine.patch.setitem(sys.modules, "pynvml", None)
    machine.file(NODES)
    machine.has_children(gpus={"5": gpu(A)})
    (row,) = machine.rows(CUDA_VISIBLE_DEVICES="5,6")
    assert (row["id"], row["status"], row["name"]) == ("cuda:0", "ready", "NVIDIA Test 9000")
    assert "nvidia-ml-py is not installed" in row["note"]
    assert described.environment("cuda:0", machine.root, os.environ)["CUDA_VISIBLE_DEVICES"] == "5"
    machine.says(**{"import": "broken"}, gpus={})
    assert "CuPy cannot be imported (broken)" in machine.rows()[0]["note"]


def test_a_jetson_whose_nvml_tells_little(machine: Machine) -> None:
    machine.has(FakeBoard(A, "Orin (nvgpu)", 0x10, errors=dict(fake_nvml.JETSON)))
    orin = gpu(
        A, capability=87, name="Orin", attributes={**ATTRIBUTES, "Integrated": 1, "MultiProcessorCount": 16}
    )
    machine.says(gpus={A: orin})
    device = described.cuda_device("cuda:0", machine.root, {})
    assert (device.name, device.threads, device.memory_bytes) == ("Orin", 16, 64 << 30)
    assert device.facts["memory_bus_bits"] == 5120
    assert {"memory_bytes", "power_w", "energy_j", "ecc", "pcie_width"} <= set(device.facts["unsupported"])
    assert "GPU and CPU share one memory" in device.facts["notes"][0]


def test_auto_takes_the_first_gpu_that_works(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10), FakeBoard(B, bus=0x20))
    machine.says(gpus={A: gpu(C, 0x30), B: gpu(B, 0x20)})  # the first opens another than the one meant
    device = described.usable(machine.root, {})
    assert device is not None and device.id == "cuda:1"
