"""GPUs as devices: which are visible, what each is, and every state in one sentence; all on stand-ins."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import devices
from bench.errors import DeviceError
from bench.gpu import described, probe, states
from bench.gpu.nvml import Board, Nvml, NvmlAbsent, open_nvml
from bench.gpu.visible import AMBIGUOUS, Visible, child_environment, select
from tests import fake_nvml
from tests.fake_nvml import FakeBoard, FakeSlice

GPU = Path(probe.__file__).parent
FAKES = Path(__file__).parent / "fake_cuda"

A, B, C = (f"GPU-{digit * 8}-1111-2222-3333-444444444444" for digit in "abc")
M, N = "MIG-dddddddd-1111-2222-3333-444444444444", "MIG-eeeeeeee-1111-2222-3333-444444444444"

ATTRIBUTES = {
    "MultiProcessorCount": 132,
    "L2CacheSize": 50 << 20,
    "GlobalMemoryBusWidth": 5120,
    "MaxThreadsPerMultiProcessor": 2048,
    "MaxSharedMemoryPerMultiprocessor": 228 << 10,
    "MaxRegistersPerMultiprocessor": 65536,
    "ClockRate": 1_980_000,
    "MemoryClockRate": 2_619_000,
    "WarpSize": 32,
}


def gpu(uuid: str = A, bus: int = 0x10, capability: int = 90, **more: Any) -> dict[str, Any]:
    """What CUDA says of a GPU."""
    found = {
        "name": "NVIDIA Test 9000",
        "capability": capability,
        "uuid": re.sub("^(GPU|MIG)|-", "", uuid),
        "pci": f"0000:{bus:02X}:00.0",
        "attributes": ATTRIBUTES,
        "memory": [60 << 30, 64 << 30],
    }
    return found | more


class Machine:
    """This machine with the GPUs, packages and failures of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.patch, self.root = monkeypatch, root
        self.asked: list[dict[str, str]] = []

    def has(self, *boards: FakeBoard, **more: Any) -> Any:
        """NVML with these boards; the module."""
        made = fake_nvml.module(*boards, **more)
        self.patch.setitem(sys.modules, "pynvml", made)
        return made

    def says(self, **said: Any) -> None:
        """CuPy in the children, which are quick calls in this process."""
        self.patch.setenv("FAKE_CUPY", json.dumps(said))
        self.patch.setattr(probe, "ask", self._answers)

    def has_children(self, **said: Any) -> None:
        """CuPy in real child processes."""
        self.patch.setenv("PYTHONPATH", str(FAKES))
        self.patch.setenv("FAKE_CUPY", json.dumps(said))

    def _answers(
        self, environments: Sequence[Mapping[str, str]], words: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        answers = []
        for environment in environments:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                answers.append(self._run(probe.count if words else probe.report))
        return answers

    def _run(self, asked: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        real = sys.modules.pop("cupy", None)
        sys.path.insert(0, str(FAKES))
        try:
            return asked()
        finally:
            sys.path.remove(str(FAKES))
            sys.modules.pop("cupy", None)
            if real is not None:
                sys.modules["cupy"] = real

    def report(self, **said: Any) -> dict[str, Any]:
        """What the probe says with this CuPy."""
        self.says(**said)
        return self._run(probe.report)

    def file(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def rows(self, **environ: str) -> list[dict[str, Any]]:
        for name, value in environ.items():
            self.patch.setenv(name, value)
        return described.gpu_devices(self.root, environ)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROOFLINE_GPU", "CUDA_MODULE_LOADING"):
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr(described, "_SESSION", [])
    yield Machine(monkeypatch, tmp_path)


def boards(*fakes: FakeBoard) -> tuple[Board, ...]:
    return Nvml(fake_nvml.module(*fakes)).boards()[0]


# visible


THREE = (FakeBoard(B, bus=0x20), FakeBoard(A, bus=0x10), FakeBoard(C, bus=0x30))
"""Three alike; NVML's own order is not that of their PCI addresses."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [A, B, C]),
        ("0,1,2", [A, B, C]),
        ("2,0", [C, A]),
        ("", []),
        ("NoDevFiles", []),
        ("-1", []),
        ("1,-1,0", [B]),
        ("1,9,0", [B]),
        ("0,0", []),
        (" 2 , 1", [C, B]),
        ("1abc,2", [B, C]),
        ("0,,2", [A]),
        (C, [C]),
        (f"{C},{A}", [C, A]),
        ("GPU-b", [B]),
        ("GPU-bbbb,GPU-c", [B, C]),
        ("GPU-", []),
        (f"{A},1", [A]),
        (f"1,{A}", [B]),
        ("GPU-ffff", []),
        (f"{A},GPU-a", []),
        (M, []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(value: str | None, expected: list[str]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = select(boards(*THREE), environ)
    assert [v.uuid for v in found] == expected
    assert [v.id for v in found] == [f"cuda:{n}" for n in range(len(expected))]


SPLIT = FakeBoard(
    B,
    "NVIDIA Test 9000",
    0x20,
    mig=True,
    slices=(FakeSlice(M), FakeSlice(N, "2g.35gb", 32, 33000, (3, 1), pids=(1,))),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [A, M, N]),
        ("0,1", [A, M]),
        (N, [N]),
        ("MIG-e,MIG-d", [N, M]),
        (f"MIG-{B}/3/1", [N]),
        (f"MIG-{B}/3/2", []),
        ("MIG-", []),
        (B, [M]),
    ],
)
def test_slices_are_devices_of_their_own(value: str | None, expected: list[str]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = select(boards(FakeBoard(A, bus=0x10), SPLIT), environ)
    assert [v.uuid for v in found] == expected
    for visible in found:
        if visible.uuid == N:
            assert (visible.profile, visible.sms, visible.memory_bytes) == ("2g.35gb", 32, 33000 << 20)
            assert visible.parent_uuid == B


def test_numbers_among_different_models_are_said_to_be_ambiguous() -> None:
    mixed = boards(FakeBoard(A, "NVIDIA Slow", 0x10), FakeBoard(B, "NVIDIA Fast", 0x20))
    assert [v.note for v in select(mixed, {"CUDA_VISIBLE_DEVICES": "1"})] == [AMBIGUOUS]
    settled = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [(v.uuid, v.note) for v in select(mixed, settled)] == [(B, "")]
    assert [v.note for v in select(mixed, {"CUDA_VISIBLE_DEVICES": B})] == [""]
    assert {v.note for v in select(boards(*THREE), {"CUDA_VISIBLE_DEVICES": "1,2"})} == {""}


def test_a_child_is_pinned_by_uuid() -> None:
    assert child_environment(Visible(3, N, N, "slice")) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": N,
        "ROOFLINE_GPU": "cuda:3",
    }


def test_a_pinned_process_knows_its_gpu_by_the_number_its_parent_gave() -> None:
    (found,) = select(boards(*THREE), child_environment(Visible(2, C, C, "x")))
    assert (found.id, found.uuid) == ("cuda:2", C)


# NVML


def test_a_reading_holds_everything_in_si() -> None:
    fake = FakeBoard(A, pids=(os.getpid(), 4_000_001, 4_000_002), limit=350_000, compute_mode=3)
    reading = Nvml(fake_nvml.module(fake)).board(A).reading()
    expected = {
        "power_limit_w": 350.0,
        "power_limit_default_w": 700.0,
        "ecc": True,
        "mig": False,
        "persistence": True,
        "compute_mode": "exclusive_process",
        "performance_state": 0,
        "memory_bytes": 64 << 30,
        "memory_used_bytes": 512 << 20,
        "memory_free_bytes": (64 << 30) - (512 << 20),
        "utilisation": 0.25,
        "processes": 2,
        "memory_bus_bits": 4096,
        "max_sm_clock_hz": 1.98e9,
        "whole_board": False,
    }
    assert {name: reading[name] for name in expected} == pytest.approx(expected)
    assert reading["unsupported"] == []


def test_a_process_of_ours_under_a_foreign_number_is_not_another() -> None:
    fake = FakeBoard(A, pids=(4_000_001, 4_000_002))
    board = Nvml(fake_nvml.module(fake)).board(A)
    assert (board.reading()["processes"], board.reading(own_context=True)["processes"]) == (2, 1)


def test_the_measuring_child_is_no_neighbour_of_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        fake = FakeBoard(A, pids=(child.pid, os.getppid(), 4_000_001))
        assert Nvml(fake_nvml.module(fake)).board(A).reading()["processes"] == 2
        assert child.stdin is not None
        child.stdin.close()
        child.kill()


def test_every_value_may_be_unsupported_and_is_then_named() -> None:
    fake = FakeBoard(A, errors=fake_nvml.everything(), instant_milliwatts=None)
    reading = Board(fake_nvml.module(fake), fake, A).reading()
    told = {k: v for k, v in reading.items() if k not in ("unsupported", "whole_board")}
    assert set(told.values()) == {None} and len(told) > 20
    assert set(reading["unsupported"]) == set(told) - {"processes"}
    assert Board.silent().reading()["unsupported"] == reading["unsupported"]


def test_not_available_and_passing_failures_are_no_values() -> None:
    fake = FakeBoard(A, milliwatts=2**32 - 1, performance_state=32, errors={"nvmlDeviceGetTemperature": 15})
    board = Board(fake_nvml.module(fake), fake, A)
    reading = board.reading()
    assert (reading["power_w"], reading["performance_state"], reading["temperature_c"]) == (None,) * 3
    assert "temperature_c" not in reading["unsupported"], "a lost GPU may come back"
    fake.errors.clear()
    assert board.moment()["temperature_c"] == 55.0


def test_older_packages_call_clock_events_throttle_reasons() -> None:
    fake = FakeBoard(A, reasons=0x4)
    names = [n for n in fake_nvml.CONSTANTS if "ClocksEventReason" in n]
    old = fake_nvml.module(fake, absent=("nvmlDeviceGetCurrentClocksEventReasons", *names))
    old.__dict__.update({n.replace("Event", "Throttle"): fake_nvml.CONSTANTS[n] for n in names})
    assert Board(old, fake, A).moment()["throttle"] == ("sw_power_cap",)
    fake.errors["nvmlDeviceGetCurrentClocksEventReasons"] = 13
    assert Board(fake_nvml.module(fake), fake, A).moment()["throttle"] == ("sw_power_cap",)


def test_a_slice_has_memory_and_processes_of_its_own_and_the_board_s_clocks() -> None:
    board = Nvml(fake_nvml.module(SPLIT)).board(N)
    reading = board.reading()
    assert (board.uuid, board.parent_uuid, board.whole_board) == (N, B, True)
    assert (reading["memory_bytes"], reading["processes"], reading["mig"]) == (33000 << 20, 1, True)
    assert reading["power_w"] == pytest.approx(300)
    assert reading["whole_board"] is True


def test_a_uuid_that_is_not_there_is_a_state() -> None:
    with pytest.raises(NvmlAbsent) as absent:
        Nvml(fake_nvml.module(FakeBoard(A))).board(B)
    assert absent.value.state.code == "nvml-failed"


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (12, "no-driver"),
        (9, "not-loaded"),
        (4, "no-permission"),
        (18, "mismatch-driver"),
        (999, "nvml-failed"),
    ],
)
def test_what_keeps_nvml_from_starting_has_a_name(machine: Machine, start: int, code: str) -> None:
    machine.has(start=start)
    with pytest.raises(NvmlAbsent) as absent, open_nvml():
        pass
    assert absent.value.state.code == code


def test_a_missing_package_has_a_name_and_sessions_are_closed(machine: Machine) -> None:
    made = machine.has(FakeBoard(A))
    with open_nvml() as session:
        assert (session.driver, session.cuda, made.driven.sessions) == ("580.65.06", 13000, 1)
    assert made.driven.sessions == 0
    machine.patch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlAbsent) as absent, open_nvml():
        pass
    assert absent.value.state.code == "no-package"


def calls_of_nvml() -> set[str]:
    """Every name of NVML that the sources mention."""
    text = "".join((GPU / name).read_text() for name in ("nvml.py", "quantities.py"))
    return set(re.findall(r"\b(?:nvml[A-Z]\w+|NVML_\w+|NVMLError)\b", text))


def test_nothing_of_nvml_is_ever_set() -> None:
    text = "".join(path.read_text() for path in GPU.glob("*.py"))
    assert not re.findall(r"nvml\w*(?:Set|Reset|Clear|Register|Create|Destroy|Modify|Freeze)[A-Z]\w*", text)
    assert len(calls_of_nvml()) > 30


def test_the_stand_in_has_what_the_sources_call() -> None:
    made = vars(fake_nvml.module())
    parts = {"nvmlClocksEventReason", "nvmlClocksThrottleReason", "nvmlReturn"}  # of names; a field
    assert calls_of_nvml() - parts - set(made) == set()


def test_names_and_signatures_are_those_of_the_real_package() -> None:
    real = pytest.importorskip("pynvml")
    made = vars(fake_nvml.module())
    for name, value in fake_nvml.CONSTANTS.items():
        assert getattr(real, name) == value, name
    for name, call in made.items():
        if name.startswith("nvml") and callable(call):
            theirs = inspect.signature(getattr(real, name)).parameters.values()
            least = sum(p.default is p.empty for p in theirs)
            ours = fake_nvml._ASKED.get(name, call)
            assert least <= len(inspect.signature(ours).parameters) <= len(theirs), name
    assert issubclass(real.NVMLError, Exception) and real.NVMLError(3).value == 3
    assert real.NVML_FI_DEV_POWER_INSTANT == 186
    struct = dict(real.c_nvmlFieldValue_t._fields_)
    assert {"nvmlReturn", "valueType", "value"} <= set(struct)
    assert {"dVal", "uiVal", "ulVal", "ullVal"} <= {name for name, _ in struct["value"]._fields_}
    assert {"multiprocessorCount", "memorySizeMB"} <= {n for n, _ in real.c_nvmlDeviceAttributes._fields_}
    assert {"domain", "bus", "device"} <= {n for n, _ in real.nvmlPciInfo_t._fields_}


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


# states


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
