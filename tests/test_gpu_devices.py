"""GPUs as devices: a row with its facts, and the child that measures it; on stand-ins."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import pytest

from bench import devices
from bench.errors import DeviceError
from bench.gpu import described, probe, states
from bench.gpu.visible import AMBIGUOUS, Visible
from tests import fake_nvml
from tests.fake_nvml import FakeBoard
from tests.gpu_machine import ATTRIBUTES, SPLIT, THREE, A, B, C, M, Machine, N, gpu
from tests.gpu_machine import machine as machine

# devices


def test_a_gpu_is_a_row_with_its_facts(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10))
    machine.says(gpus={A: gpu()})
    (row,) = machine.rows()
    assert (row["id"], row["kind"], row["status"], row["state"]) == ("cuda:0", "cuda", "ready", "quiet")
    assert row["note"] == "NVIDIA Test 9000, 132 SMs, 68.7 GB; capability 9.0; state quiet"
    assert (row["threads"], row["memory_bytes"]) == (132, 64 << 30)
    json.dumps(row, allow_nan=False)


def test_a_device_has_the_fields_that_the_others_read(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10))
    machine.says(gpus={A: gpu()})
    device = described.cuda_device("cuda:0", machine.root, {})
    assert (device.kind, device.slug, device.threads) == ("cuda", "nvidia-test-9000", 132)
    assert device.last_level_cache_bytes == 50 << 20
    expected = {
        "unit": "SM",
        "compute_capability": 90,
        "sm_count": 132,
        "l2_bytes": 50 << 20,
        "memory_bus_bits": 5120,
        "max_sm_clock_hz": 1.98e9,
        "max_memory_clock_hz": 2.619e9,
        "max_threads_per_sm": 2048,
        "shared_per_sm": 228 << 10,
        "registers_per_sm": 65536,
        "free_bytes": 60 << 30,
        "pcie": {"generation": 5, "width": 16, "max_generation": 5, "max_width": 16},
        "mig": {},
        "unsupported": [],
        "notes": [],
    }
    assert {name: device.facts[name] for name in expected} == expected
    identity = dict(device.identity)
    assert re.fullmatch("[0-9a-f]{12}", identity.pop("uuid"))
    assert identity == {
        "device": "NVIDIA Test 9000",
        "vendor": "NVIDIA",
        "cc": "9.0",
        "sms": 132,
        "memory_gib": 64,
        "driver": "580.65.06",
        "cuda": "13.0",
        "cupy": "14.2.0",
        "ecc": True,
        "mig": "",
    }
    assert A not in json.dumps([device.identity, device.facts]), "the UUID itself is kept nowhere"


def test_cudas_memory_clock_of_an_integrated_gpu_is_not_believed(machine: Machine) -> None:
    """It repeats the clock of the SMs there: a bus at that clock would be too slow for what it moves."""
    silent = {**fake_nvml.JETSON, "nvmlDeviceGetMaxClockInfo": fake_nvml.JETSON["nvmlDeviceGetPowerUsage"]}
    machine.has(FakeBoard(A, bus=0x10, errors=silent))
    for integrated, clock in ((0, 2.619e9), (1, None)):
        machine.says(gpus={A: gpu(attributes={**ATTRIBUTES, "Integrated": integrated})})
        device = described.cuda_device("cuda:0", machine.root, {})
        assert (device.facts["integrated"], device.facts["max_memory_clock_hz"]) == (bool(integrated), clock)


@pytest.mark.parametrize(
    ("capability", "lacking"),
    [(75, {"tf32", "bf16", "fp8", "fp4"}), (80, {"fp8", "fp4"}), (90, {"fp4"}), (100, set())],
)
def test_precisions_follow_the_compute_capability(
    machine: Machine, capability: int, lacking: set[str]
) -> None:
    machine.has(FakeBoard(A, bus=0x10))
    machine.says(gpus={A: gpu(capability=capability)})
    precisions = described.cuda_device("cuda:0", machine.root, {}).precisions
    assert {name for name, why in precisions.items() if why} == lacking
    assert set(precisions) == {"fp64", "fp32", "tf32", "fp16", "bf16", "int32", "int8", "fp8", "fp4"}
    assert not lacking or precisions["fp4"] == "needs compute capability 10.0"


@pytest.mark.parametrize(
    ("fake", "state"),
    [
        (FakeBoard(A, bus=0x10, pids=(4_000_001,)), "shared"),
        (FakeBoard(A, bus=0x10, limit=400_000), "capped"),
        (FakeBoard(A, bus=0x10, limit=400_000, pids=(4_000_001,)), "shared-capped"),
        (FakeBoard(A, bus=0x10, errors=dict(fake_nvml.JETSON)), "quiet"),
    ],
)
def test_the_state_names_what_disturbs(machine: Machine, fake: FakeBoard, state: str) -> None:
    machine.has(fake)
    machine.says(gpus={A: gpu()})
    assert described.cuda_device("cuda:0", machine.root, {}).state == state


def test_each_child_opens_the_gpu_that_its_row_is_about(machine: Machine) -> None:
    """In reverse order, with CUDA's own numbering that would put another first."""
    machine.has(FakeBoard(A, "Alpha", 0x10), FakeBoard(B, "Beta", 0x20))
    machine.has_children(gpus={A: gpu(A, 0x10, name="Alpha"), B: gpu(B, 0x20, name="Beta")})
    rows = machine.rows(CUDA_VISIBLE_DEVICES="1,0")
    assert [(r["id"], r["name"], r["status"]) for r in rows] == [
        ("cuda:0", "Beta", "ready"),
        ("cuda:1", "Alpha", "ready"),
    ]
    assert all(AMBIGUOUS in row["note"] for row in rows)


def test_a_gpu_that_is_another_than_the_one_meant_is_refused(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10))
    machine.says(gpus={A: gpu(B, 0x20)})
    (row,) = machine.rows()
    assert row["status"] == "unusable"
    assert "CUDA opened NVIDIA Test 9000 (0000:20:00.0) in place of NVIDIA Test 9000" in row["note"]
    with pytest.raises(DeviceError, match=r"^cuda:0: CUDA opened"):
        described.cuda_device("cuda:0", machine.root, {})


@pytest.mark.parametrize(
    ("start", "pci", "expected"),
    [
        ("aaaaaaaa11112222333344444444" + "4444", "", True),
        ("aaaaaaaa", "0000:99:00.0", True),
        ("bbbbbbbb", "0000:10:00.0", False),
        ("aa", "0000:10:00.0", True),
        ("aa", "0000:20:00.0", False),
        ("", "", True),
    ],
)
def test_a_uuid_cut_at_a_zero_byte_still_tells_gpus_apart(start: str, pci: str, expected: bool) -> None:
    visible = Visible(0, A, A, "x", "0000:10:00.0")
    assert described.same(visible, {"uuid_start": start, "pci": pci}) is expected


def test_a_slice_is_measured_as_what_it_is(machine: Machine) -> None:
    machine.has(SPLIT)
    own = {**ATTRIBUTES, "MultiProcessorCount": 32, "L2CacheSize": 12 << 20, "GlobalMemoryBusWidth": 4096}
    slice = gpu(N, 0x20, attributes=own, memory=[30 << 30, 32 << 30])
    machine.has_children(gpus={M: gpu(M, 0x20), N: slice})
    first, second = machine.rows()
    assert (first["id"], second["id"], second["state"]) == ("cuda:0", "cuda:1", "mig-shared")
    device = described.cuda_device("cuda:1", machine.root, {})
    assert (device.name, device.threads) == ("NVIDIA Test 9000 MIG 2g.35gb", 32)
    assert (device.memory_bytes, device.last_level_cache_bytes) == (32 << 30, 12 << 20)
    assert device.identity["mig"] == "2g.35gb"
    assert device.facts["mig"]["note"] == "clocks, power and temperature are the whole board's"
    assert device.facts["memory_bus_bits"] is None, "the whole board's bus is not a slice's"


def test_mig_without_slices_is_a_state_and_takes_no_number(machine: Machine) -> None:
    machine.has(FakeBoard(B, "Split", 0x05, mig=True), FakeBoard(A, bus=0x10))
    machine.says(gpus={A: gpu()})
    rows = machine.rows()
    assert [(r["id"], r["status"]) for r in rows] == [("cuda:0", "ready"), ("", "absent")]
    assert rows[1]["note"].startswith("GPU: Split: MIG is on but has no slices")
    machine.has(FakeBoard(B, "Split", 0x05, mig=True))
    with pytest.raises(DeviceError, match="cuda:0: Split: MIG is on but has no slices"):
        described.cuda_device("cuda:0", machine.root, {})


def test_an_unknown_number_lists_the_known(machine: Machine) -> None:
    machine.has(*THREE)
    for wrong in ("cuda:3", "cuda:x", "cuda", "cuda:-1"):
        with pytest.raises(DeviceError, match=r"unknown device .*cuda:0, cuda:1, cuda:2"):
            described.cuda_device(wrong, machine.root, {})
    assert described.environment("cuda:2", machine.root, {})["CUDA_VISIBLE_DEVICES"] == C


# the measuring process


class Opened:
    """Stands for probe.report in this very process."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = dict(said)

    def __call__(self) -> dict[str, Any]:
        return self.said


def report_of(machine: Machine, uuid: str, **more: Any) -> dict[str, Any]:
    return machine.report(gpus={uuid: gpu(uuid, **more)})


def test_the_child_is_the_device_that_its_parent_described(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10), FakeBoard(B, bus=0x20))
    said = report_of(machine, B, bus=0x20)
    parent = described.cuda_device("cuda:1", machine.root, {})
    for name, value in described.environment("cuda:1", machine.root, {}).items():
        machine.patch.setenv(name, value)
    machine.patch.setattr(probe, "report", Opened(said))
    child = described.in_child("cuda:1")
    assert child == parent
    assert described.own_board().uuid == B


def test_a_process_without_a_parent_pins_itself_once(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10), FakeBoard(B, bus=0x20))
    machine.patch.setattr(probe, "report", Opened(report_of(machine, A)))
    assert described.in_child("cuda:0").id == "cuda:0"
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["ROOFLINE_GPU"]) == (A, "cuda:0")
    with pytest.raises(DeviceError, match="cuda:1: this process measures cuda:0"):
        described.in_child("cuda:1")


def test_a_child_whose_cuda_was_already_elsewhere_refuses(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10), FakeBoard(B, bus=0x20))
    machine.patch.setattr(probe, "report", Opened(report_of(machine, B, bus=0x20)))
    with pytest.raises(DeviceError, match="cuda:0: CUDA opened"):
        described.in_child("cuda:0")


def test_a_child_without_nvml_measures_without_telemetry(machine: Machine) -> None:
    said = report_of(machine, A)
    machine.has(start=12)
    machine.patch.setenv("ROOFLINE_GPU", "cuda:0")
    machine.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine.patch.setattr(probe, "report", Opened(said))
    device = described.in_child("cuda:0")
    assert device.facts["notes"] == ["no telemetry: NVML cannot be read"]
    assert described.own_board().library is None


def test_every_state_is_one_sentence_with_a_remedy() -> None:
    for code, sentence in states.SENTENCES.items():
        assert "\n" not in sentence and len(sentence) < 160, code
        assert not sentence.endswith(".") and (": " in sentence or code == "failed"), code


def test_the_table_of_devices_shows_gpus_and_states(machine: Machine) -> None:
    machine.has(FakeBoard(A, bus=0x10), FakeBoard(B, bus=0x20))
    machine.says(gpus={A: gpu(A), B: gpu(C, 0x20)})
    rows = machine.rows()
    lines = devices.table(rows).splitlines()
    assert lines[0] == "cuda:0  NVIDIA Test 9000, 132 SMs, 68.7 GB; capability 9.0; state quiet"
    assert lines[1].startswith("cuda:1  NVIDIA Test 9000: CUDA opened")
