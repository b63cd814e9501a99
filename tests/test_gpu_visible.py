"""Which GPUs are visible, as CUDA counts them, and what NVML says of each; on stand-ins."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys

import pytest

from bench.gpu.nvml import Board, Nvml, NvmlAbsent, open_nvml
from bench.gpu.visible import AMBIGUOUS, Visible, child_environment, select
from tests import fake_nvml
from tests.fake_nvml import FakeBoard
from tests.gpu_machine import GPU, SPLIT, THREE, A, B, C, M, Machine, N, boards
from tests.gpu_machine import machine as machine

# visible


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
