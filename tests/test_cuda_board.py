"""The CUDA backend on its board: warming up, clocks, power and energy, conditions, opening by id."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backends import cuda, open_backend
from bench.backends.cuda import CudaBackend
from bench.device import Device
from bench.errors import DeviceError
from bench.gpu import described
from bench.gpu.engine import Engine
from bench.planning.planned import Planned
from bench.running.measure import Session
from tests.fake_cupy import entries_launched
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import Board, chain, device, stream
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left as no_threads_are_left


def test_a_session_finds_the_rate_of_the_device(gpu: FakeGpu, backend: CudaBackend) -> None:
    gpu.seconds = lambda entry, grid, block, count: grid * block * 64 * 2 / 2e12
    planned = (
        Planned(replace(stream("copy", operands="zeros"), bytes=1), 0, 0.02, 0.5, 0.01, 0.02, 0.2, 5)
        if False
        else (Planned(stream("copy", bytes=1 << 24), 0, 0.02, 0.5, 0.01, 0.02, 0.2, 5))
    )
    backend.verify = lambda prepared: None  # type: ignore[method-assign]
    sample = Session(backend, 1, 1).sample(planned, 1)
    assert sample.status == "ok", sample.reason
    assert sample.bytes / sample.repetitions.seconds[0] == pytest.approx(2e12)
    assert sample.repetitions.seconds[0] == pytest.approx(0.02, rel=0.05)
    assert all(sample.repetitions.clean) and sample.clock_source == "event"


def test_warming_up_ends_when_the_clock_is_flat(gpu: FakeGpu, backend: CudaBackend) -> None:
    before = gpu.clock
    backend.warm_up(30.0)
    assert 0.4 <= gpu.clock - before < 2.0
    assert set(entries_launched(gpu)) == {"fma_f32_c8"} and gpu.hangs == []


def test_without_a_clock_it_takes_all_its_time(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Board, "clocks", (None,))
    backend = CudaBackend(device(), Board(), Engine(gpu.now))
    before = gpu.clock
    backend.warm_up(3.0)
    assert gpu.clock - before == pytest.approx(3.0, abs=0.1)


def test_repetitions_carry_what_the_board_says(gpu: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(chain())
    taken = backend.measure(prepared, 20_000, 3)
    assert taken.power_w == (300.0,) * 3 and taken.temperature_c == (50.0,) * 3
    assert taken.throttle == ("sw_power_cap",) * 3 and len(taken.clock_hz) == 3
    assert "energy_j" not in prepared.facts, "shorter than a second"


def test_energy_is_kept_of_points_that_last(
    gpu: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def between(start: float, end: float) -> Any:
        asked.append((start, end))
        return replace(cuda.Window(power_w=300.0), energy_j=300.0 * (end - start))

    monkeypatch.setattr(backend._telemetry, "between", between)
    prepared = backend.prepare(chain())
    for _ in range(2):
        backend.measure(prepared, 600_000, 2)
    assert prepared.facts["energy_seconds"] == pytest.approx(2 * 2 * 0.60001)
    assert prepared.facts["energy_j"] == pytest.approx(300 * prepared.facts["energy_seconds"])


def test_a_slice_is_not_charged_with_the_power_of_the_board(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Board, "whole_board", True)
    backend = CudaBackend(device(), Board(), Engine(gpu.now))
    prepared = backend.prepare(chain())
    taken = backend.measure(prepared, 600_000, 2)
    assert taken.power_w == () and "energy_j" not in prepared.facts
    assert prepared.facts["board_power_w"] == 300.0 and len(taken.clock_hz) == 2


def test_without_a_board_a_point_is_measured_all_the_same(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = described.Board.silent()
    backend = CudaBackend(device(), silent, Engine(gpu.now))
    taken = backend.measure(backend.prepare(chain()), 1000, 2)
    assert (taken.clock_hz, taken.power_w, taken.throttle) == ((), (), ()) and len(taken) == 2


def test_conditions_are_the_boards_with_the_free_memory(gpu: FakeGpu, backend: CudaBackend) -> None:
    found = backend.conditions()
    assert found["processes"] == 0 and found["free_bytes"] == gpu.total - gpu.used()


def test_the_device_is_opened_by_its_id(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(described, "in_child", lambda id: (asked.append(id), device())[1])
    monkeypatch.setattr(described, "own_board", Board)
    made = open_backend("cuda:3")
    assert isinstance(made, CudaBackend) and asked == ["cuda:3"] and made.device.name == "Fake"
    assert "setDevice 0" in gpu.calls


def test_a_wrong_device_is_refused_before_anything_is_opened(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mismatch(id: str) -> Device:
        raise DeviceError(f"{id}: CUDA opened another GPU")

    monkeypatch.setattr(described, "in_child", mismatch)
    with pytest.raises(DeviceError, match="another GPU"):
        open_backend("cuda:0")
    assert gpu.calls == []


def test_the_backend_needs_nothing_that_a_gpu_machine_may_lack() -> None:
    absent = ("scipy", "psutil", "yaml", "pyarrow", "threadpoolctl", "cpuinfo", "pandas", "numba")
    code = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        "import bench.backends.cuda, bench.gpu.blaslt\nprint(sorted(set(sys.modules) & {'cupy', 'llvmlite'}))"
    )
    top = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
