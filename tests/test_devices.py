"""The list of devices: the CPU, the simulated catalogue and an honest word about GPUs."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from bench import devices, host
from bench.errors import DeviceError


def test_cpu_first_then_every_simulated_device_then_gpus() -> None:
    from bench.backends.simulation.truth import catalogue

    rows = devices.list_devices()
    assert rows[0]["id"] == "cpu"
    assert rows[0]["threads"] == host.cpu_device().threads
    assert rows[0]["state"] in rows[0]["note"]
    simulated = [row["id"] for row in rows if row["kind"] == "simulated"]
    assert simulated == [f"sim:{name}" for name in catalogue()]
    assert all("SIMULATED" in row["note"] for row in rows if row["kind"] == "simulated")
    assert rows[-1]["kind"] == "cuda"


def test_no_driver_is_said_in_words(tmp_path: Path) -> None:
    row = devices._gpus(tmp_path)[0]
    assert (row["id"], row["status"]) == ("", "absent")
    assert row["note"] == (
        "GPU: no NVIDIA driver found (this version measures CPUs and simulated devices; CUDA comes next)"
    )


def test_a_driver_without_its_python_package_is_found_by_its_files(tmp_path: Path) -> None:
    for card, text in (("0000:01:00.0", "Model: \t NVIDIA H200\nIRQ: 5\n"), ("0000:02:00.0", "")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / card
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)
    rows = devices._gpus(tmp_path)
    assert [(row["id"], row["name"]) for row in rows] == [("cuda:0", "NVIDIA H200"), ("cuda:1", "NVIDIA GPU")]
    assert rows[0]["note"].startswith("NVIDIA H200: found but not yet measured by this version")


def nvml(count: int, fails: bool = False) -> types.ModuleType:
    """A stand-in for nvidia-ml-py."""
    module = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def start() -> None:
        if fails:
            raise NVMLError("driver not loaded")

    module.__dict__.update(
        NVMLError=NVMLError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda n: n,
        nvmlDeviceGetName=lambda n: b"NVIDIA A100" if n else "NVIDIA H200",
    )
    return module


def test_nvml_names_the_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(2))
    assert devices._by_nvml() == ["NVIDIA H200", "NVIDIA A100"]
    assert [row["id"] for row in devices.list_devices()[-2:]] == ["cuda:0", "cuda:1"]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(2, fails=True))
    assert devices._by_nvml() == []


def test_an_unusable_cpu_is_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DeviceError("no such call here")

    monkeypatch.setattr(host, "cpu_device", refuse)
    row = devices.list_devices()[0]
    assert (row["id"], row["status"], row["note"]) == ("cpu", "unusable", "no such call here")


def test_table_is_one_line_a_device_and_fits() -> None:
    rows = devices.list_devices()
    lines = devices.table(rows).splitlines()
    assert len(lines) == len(rows)
    assert lines[0].startswith("cpu ")
    assert max(len(line) for line in lines) <= 100
