"""The list of devices: the CPU, the simulated catalogue, and GPUs or why there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import devices, host
from bench.errors import DeviceError
from bench.gpu import states
from tests import fake_nvml


def test_cpu_first_then_every_simulated_device_then_gpus() -> None:
    from bench.backends.simulation.truth import catalogue

    rows = devices.list_devices()
    assert rows[0]["id"] == "cpu"
    assert rows[0]["threads"] == host.cpu_device().threads
    assert rows[0]["state"] in rows[0]["note"]
    simulated = [row["id"] for row in rows if row["kind"] == "simulated"]
    assert simulated == [f"sim:{name}" for name in catalogue()]
    assert all("SIMULATED" in row["note"] for row in rows if row["kind"] == "simulated")
    notes = {row["id"]: row["note"] for row in rows}
    assert (notes["sim:gpu-mig"], notes["sim:small-cpu"]) == ("SIMULATED; 8 SMs", "SIMULATED; 2 threads")
    assert rows[-1]["kind"] == "cuda"


def test_gpus_are_rows_and_their_states_are_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml.module(start=12))
    (row,) = devices._gpus(tmp_path)
    assert (row["id"], row["kind"], row["status"]) == ("", "cuda", "absent")
    assert row["note"] == f"GPU: {states.SENTENCES['no-driver']}"


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
