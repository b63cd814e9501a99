"""Telemetry: what a span of samples says, on boards that tell much, little or nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from bench.gpu.nvml import Board, Nvml, Slice, of_slice
from bench.gpu.telemetry import MOST_SHARE, Telemetry, Window, mean_over, pause, value_at
from tests import fake_nvml
from tests.fake_nvml import FakeBoard


class Script:
    """A board that says what the script holds at each time, and the clock that goes with it."""

    whole_board = False

    def __init__(self, script: Mapping[float, Mapping[str, Any]]) -> None:
        self.script, self.time = script, 0.0

    def moment(self) -> Mapping[str, Any]:
        return self.script[self.time]

    def now(self) -> float:
        return self.time


def played(script: Mapping[float, Mapping[str, Any]]) -> Telemetry:
    """Telemetry that has sampled each moment of the script, without its thread."""
    board = Script(script)
    telemetry = Telemetry(board, now=board.now)
    for when in script:
        board.time = when
        telemetry.sample()
    return telemetry


def ramp(seconds: int, per_second: int = 10) -> dict[float, dict[str, Any]]:
    """A GPU at 1.5 GHz and 300 W whose energy counter follows."""
    ticks = [n / per_second for n in range(seconds * per_second + 1)]
    return {t: {"sm_clock_hz": 1.5e9, "power_w": 250.0, "energy_j": 1000 + 300 * t} for t in ticks}


def test_clock_is_a_mean_over_time_not_over_samples() -> None:
    script = {t: {"sm_clock_hz": hz} for t, hz in ((0.0, 2e9), (0.1, 2e9), (0.2, 1e9), (1.0, 1e9))}
    window = played(script).between(0.0, 1.0)
    assert window.clock_hz == pytest.approx((0.1 * 2e9 + 0.1 * 1.5e9 + 0.8 * 1e9) / 1.0)
    assert window.samples == 4


def test_a_short_span_between_two_samples_reads_the_line_between_them() -> None:
    telemetry = played({0.0: {"sm_clock_hz": 1e9}, 1.0: {"sm_clock_hz": 2e9}})
    window = telemetry.between(0.4, 0.6)
    assert (window.samples, window.clock_hz) == (0, pytest.approx(1.5e9))


def test_a_span_after_the_last_sample_reads_the_last() -> None:
    telemetry = played(
        {0.0: {"sm_clock_hz": 1e9, "throttle": ()}, 1.0: {"sm_clock_hz": 2e9, "throttle": ("hw_thermal",)}}
    )
    window = telemetry.between(5.0, 5.02)
    assert (window.throttle, window.samples) == ("hw_thermal", 0)
    assert window.clock_hz == pytest.approx(2e9)
    assert telemetry.between(-2.0, -1.0).clock_hz == pytest.approx(1e9)


def test_power_is_the_energy_counters_from_one_second_on() -> None:
    telemetry = played(ramp(3))
    long = telemetry.between(0.5, 2.5)
    assert (long.energy_j, long.power_w) == (pytest.approx(600), pytest.approx(300))
    short = telemetry.between(0.5, 1.4)
    assert (short.energy_j, short.power_w) == (None, pytest.approx(250)), "the mean of the samples"


def test_the_instantaneous_power_is_preferred_to_the_board_s_mean() -> None:
    script = {t: {"power_w": 100.0, "power_instant_w": 400.0} for t in (0.0, 0.1, 0.2)}
    assert played(script).between(0.0, 0.2).power_w == pytest.approx(400)


def test_energy_of_a_span_the_samples_do_not_cover_is_not_told() -> None:
    telemetry = played(ramp(2))
    assert telemetry.between(1.0, 9.0).energy_j is None
    still = {t: {"energy_j": 7.0} for t in (0.0, 1.0, 2.0)}
    assert played(still).between(0.0, 2.0).energy_j is None, "a counter that stands still counts nothing"
    fallen = {0.0: {"energy_j": 9000.0}, 2.0: {"energy_j": 3.0}}
    assert played(fallen).between(0.0, 2.0).energy_j is None, "the driver was loaded anew"


def test_throttle_words_are_the_union_without_idle_and_temperature_the_highest() -> None:
    script: dict[float, dict[str, Any]] = {
        0.0: {"throttle": ("idle",), "temperature_c": 50.0, "pcie_generation": 1},
        0.1: {"throttle": ("sw_power_cap",), "temperature_c": 70.0, "pcie_generation": 5},
        0.2: {"throttle": ("sw_power_cap", "sw_thermal"), "temperature_c": 65.0, "pcie_generation": 5},
    }
    window = played(script).between(0.0, 0.2)
    assert window.throttle == "sw_power_cap,sw_thermal"
    assert (window.temperature_c, window.pcie_generation) == (70.0, 5)
    assert played(script).between(0.0, 0.01).throttle == ""


def test_only_samples_of_the_span_count() -> None:
    script = {float(t): {"temperature_c": 100.0 if t == 9 else 40.0, "throttle": ()} for t in range(20)}
    telemetry = played(script)
    assert telemetry.between(2.0, 6.0).temperature_c == 40.0
    assert telemetry.between(2.0, 9.0).temperature_c == 100.0


def test_a_value_that_failed_once_leaves_the_others_of_its_kind() -> None:
    script = {0.0: {"sm_clock_hz": 1e9}, 0.1: {"sm_clock_hz": None}, 0.2: {"sm_clock_hz": 1e9}}
    assert played(script).between(0.0, 0.2).clock_hz == pytest.approx(1e9)


def test_a_silent_board_gives_an_empty_window() -> None:
    with Telemetry(Board.silent(), period=0.001) as telemetry:
        pass
    assert telemetry.between(0.0, 1e12) == Window(samples=len(telemetry._times))
    assert Telemetry(Board.silent()).between(0.0, 1.0) == Window()


def test_a_board_that_supports_nothing_gives_an_empty_window() -> None:
    fake = FakeBoard(errors=fake_nvml.everything())
    board = Board(fake_nvml.module(fake), fake, fake.uuid)
    with Telemetry(board, period=0.001) as telemetry:
        pass
    window = telemetry.between(0.0, 1e12)
    assert window == Window(samples=window.samples)
    asked = len(fake.calls)
    board.moment()
    assert len(fake.calls) == asked, "what is not supported is not asked again"


def test_a_function_that_an_old_driver_lacks_is_a_value_that_is_not_told() -> None:
    class NVMLLibraryMismatchError(Exception):
        pass

    def refuse(handle: Any) -> None:
        raise NVMLLibraryMismatchError("Unversioned function called")

    library: Any = fake_nvml.module(FakeBoard())
    library.NVMLLibraryMismatchError, library.nvmlDeviceGetComputeRunningProcesses = (
        NVMLLibraryMismatchError,
        refuse,
    )
    ((board,), _) = Nvml(library).boards()
    found = board.reading()
    assert found["processes"] is None and found["sm_clock_hz"] == 1.5e9 and found["unsupported"] == []


def test_power_of_a_slice_is_marked_as_the_whole_board_s() -> None:
    fake = FakeBoard(mig=True)
    board = of_slice(Board(fake_nvml.module(fake), fake, fake.uuid), Slice(None, "MIG-1", "x MIG 1g.18gb"))
    telemetry = Telemetry(board)
    telemetry.sample()
    window = telemetry.between(0.0, 1e12)
    assert (window.whole_board, window.power_w) == (True, pytest.approx(310))


def test_the_thread_samples_until_it_is_left() -> None:
    seen = threading.Semaphore(0)

    class Counting(Script):
        def moment(self) -> Mapping[str, Any]:
            seen.release()
            return {"sm_clock_hz": 1e9}

    with Telemetry(Counting({}), period=0.001) as telemetry:
        assert all(seen.acquire(timeout=30) for _ in range(5))
        thread = telemetry._thread
        assert thread.is_alive() and thread.daemon
    assert not thread.is_alive()
    assert len(telemetry._times) == len(telemetry._moments) >= 5
    assert telemetry._times == sorted(telemetry._times)


def test_sampling_keeps_to_its_share_of_the_time_where_nvml_is_slow() -> None:
    assert pause(0.02, 0.001) == pytest.approx(0.019)
    for taken in (0.01, 0.1, 1.0):
        assert taken / (taken + pause(0.02, taken)) <= MOST_SHARE + 1e-9


def test_line_and_mean_of_points() -> None:
    points = [(0.0, 0.0), (1.0, 10.0), (3.0, 10.0)]
    assert [value_at(points, t) for t in (-1.0, 0.5, 2.0, 9.0)] == [0.0, 5.0, 10.0, 10.0]
    assert mean_over(points, 0.0, 2.0) == pytest.approx((5 + 10) / 2)
    assert mean_over(points, 0.5, 0.5) == 5.0
    assert mean_over(points, -1.0, 1.0) == pytest.approx(5 / 2)


def test_moments_of_nvml_are_si() -> None:
    fake = FakeBoard(reasons=0x4 | 0x40 | 0x1)
    moment = Nvml(fake_nvml.module(fake)).board(fake.uuid).moment()
    assert moment == {
        "sm_clock_hz": 1.5e9,
        "memory_clock_hz": 2e9,
        "power_w": pytest.approx(300),
        "power_instant_w": pytest.approx(310),
        "temperature_c": 55.0,
        "throttle": ("idle", "sw_power_cap", "hw_thermal"),
        "energy_j": pytest.approx(5000),
        "pcie_generation": 5,
        "pcie_width": 16,
    }
