"""What gpu-check is made of: checks, stages in processes, the audit and the comparison of backends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from bench.backends import open_backend
from bench.errors import DeviceError
from bench.gpucheck import process, stages, verb
from bench.gpucheck.check import FAILED, OK, SKIPPED, Check, guarded, passed, run_all, within
from bench.planning.planned import Planned
from bench.profile.records import Repetitions, Sample
from tests.test_gpucheck import GPU, statuses

# checks and stages


def test_values_are_judged_by_their_limits() -> None:
    assert within("x", 1.0, 0.9, 1.1).status == OK
    assert within("x", 1.2, 0.9, 1.1).status == FAILED
    assert within("x", float("nan"), 0.9, 1.1).status == FAILED
    line = passed("name", False, "v" * 200, "e").line
    assert line.startswith("FAIL name") and len(line) <= 100


def test_a_failure_in_a_check_is_a_line_and_the_next_check_runs() -> None:
    def failing() -> Iterator[Check]:
        yield Check("first", OK)
        raise RuntimeError("cudaErrorUnknown")

    found = list(run_all([("a", failing), ("b", lambda: [Check("second", OK)])], float("inf")))
    assert [(c.name, c.status) for c in found] == [("first", OK), ("a", FAILED), ("second", OK)]
    assert found[1].value == "RuntimeError: cudaErrorUnknown"
    late = list(run_all([("b", lambda: [Check("second", OK)])], deadline=-1.0))
    assert [c.status for c in late] == [SKIPPED]


def test_from_its_end_a_stage_makes_no_further_check() -> None:
    clock = SimpleNamespace(now=0.0)

    def slow() -> Iterator[Check]:
        for n in range(3):
            clock.now += 10.0
            yield Check(str(n), OK)

    sources = [("a", slow), ("b", slow), ("c", slow)]
    found = list(run_all(sources, deadline=45.0, end=35.0, now=lambda: clock.now))
    assert [c.name for c in found] == ["0", "1", "2", "0", "b, the rest", "0", "c, the rest"]
    assert [c.status for c in found[-3:]] == [SKIPPED, OK, SKIPPED] and "time was up" in found[-1].value


def test_what_breaks_between_checks_is_one_more() -> None:
    def broken() -> Iterator[Check]:
        yield Check("first", OK)
        raise TypeError("no such field")

    found = list(guarded("run", broken()))
    assert [(c.name, c.status) for c in found] == [("first", OK), ("run", FAILED)]
    assert "TypeError: no such field" in found[1].value


SAY = 'import sys; print(\'{"name": "a", "status": "ok"}\', flush=True); '


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("import time; time.sleep(60)", "killed: no end within 1 s"),
        ("sys.exit('the driver fell over')", "ended with code 1: the driver fell over"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with signal 11"),
    ],
)
def test_a_stage_that_hangs_or_dies_keeps_its_lines(then: str, told: str) -> None:
    began = time.monotonic()
    found = list(process.lines("tests", [sys.executable, "-c", SAY + then], {}, 1.0))
    assert json.loads(str(found[0])) == {"name": "a", "status": "ok"}
    assert isinstance(found[1], Check) and found[1].status == FAILED and told in found[1].value
    assert time.monotonic() - began < 30


def test_a_stage_sees_the_gpu_that_it_was_given() -> None:
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    found = process.lines("tests", [sys.executable, "-c", code], {"CUDA_VISIBLE_DEVICES": "GPU-7"}, 20.0)
    assert list(found) == ["GPU-7"]


def test_the_limits_leave_a_gpu_under_four_and_a_half_minutes() -> None:
    assert sum(verb.LIMITS.values()) <= 262
    assert verb.LIMITS["tests"] == 90
    assert verb.LIMITS["run"] >= 60 * verb.MINUTES + 15


@pytest.mark.parametrize(
    ("code", "out", "error", "status", "said"),
    [
        (0, "audit: all 12 functions passed\n\ntable", "", OK, "audit: all 12 functions passed"),
        (
            8,
            "audit: 1 missed\ntable",
            "Error: 1 of 12 functions missed",
            FAILED,
            "Error: 1 of 12 functions missed",
        ),
        (
            3,
            "",
            "Error: the disassembler nvdisasm is missing",
            SKIPPED,
            "Error: the disassembler nvdisasm is missing",
        ),
    ],
)
def test_the_audit_is_of_this_gpu_and_absent_tools_are_a_skip(
    code: int, out: str, error: str, status: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from bench.gpu import described

    hopper = replace(open_backend(GPU).device, facts={"compute_capability": 90})
    monkeypatch.setattr(described, "in_child", lambda id: hopper)
    asked: list[list[str]] = []

    def answer(words: list[str], timeout: float, **more: Any) -> SimpleNamespace:
        asked.append(words)
        assert timeout <= 28.0, "the stage that waits for it is killed after 30 s"
        return SimpleNamespace(returncode=code, stdout=out, stderr=error)

    monkeypatch.setattr(stages.subprocess, "run", answer)
    (found,) = stages.audit("cuda:0", 30.0, tmp_path)
    assert (found.status, found.value) == (status, said)
    assert asked[0][-2:] == ["--arch", "90,90a"]


class Turns:
    """Stands in for the processes of one backend: its repetitions take `seconds`, or it cannot open."""

    seconds: Mapping[str, float] = MappingProxyType({"cuda:0": 0.02, "numba:0": 0.02})
    refusal = ""

    def __init__(self, device: str, environment: dict[str, str]) -> None:
        self.device = device
        assert environment == {"CUDA_VISIBLE_DEVICES": "GPU-7"}

    def ahead(self) -> None:
        self.early = True

    def open(self, round: int) -> None:
        assert self.early, "imports go on while the GPU is looked at"
        if self.refusal and self.device.startswith("numba"):
            raise DeviceError(self.refusal)

    def measure(self, planned: Planned, order: int, scale: float, limit: float) -> Sample:
        wobble = 1 + 0.001 * (order % 3)
        seconds = (self.seconds[self.device] * wobble,) * 3
        took = Repetitions(start=(0.0, 1.0, 2.0), seconds=seconds)
        return Sample(planned.point, 1, 1, order, flops=1e9, bytes_read=1e9, repetitions=took)

    def close(self, kill: bool = False) -> None:
        pass


def cross_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: float = 60.0, **what: Any
) -> list[Check]:
    from bench.gpu import described, survey
    from bench.running import runners

    for name, value in what.items():
        monkeypatch.setattr(Turns, name, value)
    monkeypatch.setattr(described, "cuda_device", lambda id: open_backend(GPU).device)
    monkeypatch.setattr(survey, "environment", lambda id: {"CUDA_VISIBLE_DEVICES": "GPU-7"})
    monkeypatch.setattr(runners, "Children", Turns)
    return list(stages.cross_check("cuda:0", limit, tmp_path))


def test_the_backends_are_compared_kernel_by_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    equal = cross_checked(monkeypatch, tmp_path)
    names = {f"cross-check fma {precision}" for precision in ("fp64", "fp32", "int32")}
    assert {c.name for c in equal} == names | {
        f"cross-check {kernel} fp32" for kernel in ("read", "copy", "triad")
    }
    assert statuses(equal) == {OK}
    slower = {"cuda:0": 0.02, "numba:0": 0.022}
    assert statuses(cross_checked(monkeypatch, tmp_path, seconds=slower)) == {FAILED}


def test_a_comparison_that_outlasts_the_stage_is_a_skip_and_no_kill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits: list[float] = []
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: clock.now))
    measure = Turns.measure

    def slow(self: Turns, planned: Planned, order: int, scale: float, limit: float) -> Sample:
        limits.append(limit)
        clock.now += 1.0
        return measure(self, planned, order, scale, limit)

    monkeypatch.setattr(Turns, "measure", slow)
    found = cross_checked(monkeypatch, tmp_path, 22.0)
    assert [c.status for c in found] == [OK] + [SKIPPED] * 5, "six pairs take 12 s, the next ones do not fit"
    assert "time was up" in found[1].value
    assert limits[:2] == [20.0, 19.0] and min(limits) == 1.0 and clock.now == 120.0


def test_no_second_opinion_is_a_skip_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cross_checked(monkeypatch, tmp_path, refusal="numba-cuda cannot be imported")
    assert (found.status, found.value) == (SKIPPED, "numba-cuda cannot be imported")
    monkeypatch.setattr(Turns, "refusal", "")
    late = cross_checked(monkeypatch, tmp_path, 0.0)
    assert late and statuses(late) == {SKIPPED}, "no kernel is begun when the time is up"
