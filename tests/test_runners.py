"""Measuring processes: what they answer, what follows when they hang, die or talk nonsense, how they end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench import errors
from bench.checkout import CHECKOUT
from bench.planning.planned import Planned
from bench.profile.encoding import loads, plain
from bench.profile.records import Point, Precision
from bench.running.child import WORKER, Child, Died, Silent, named_error
from bench.running.runners import Children, InProcess
from bench.running.worker import Worker, serve
from tests.fake_device import FakeBackend

FP64 = Precision.of("fp64")
POINT = Point("stream", "read", "s3u4", FP64, "DRAM", "read", threads=2, sizes={"bytes": 1 << 27})
PLANNED = Planned(POINT, 0, 0.1, 0.5, 0.01, 1e-3, 0.01, 6)


def fake_command(**faults: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.fake_worker", json.dumps(faults))


def printing(code: str) -> tuple[str, ...]:
    """A process that does what `code` says instead of answering."""
    return (sys.executable, "-c", f"import os, sys, time; {code}")


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie has)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


@pytest.fixture
def children() -> Iterator[Children]:
    runner = Children("fake", fake_command(copy="hang", scale="crash", add="verify", write="bug"))
    yield runner
    runner.close(kill=True)


def test_a_child_that_lists_no_loops_in_time_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Children("slow", printing("""print('{"ready": true}', flush=True); time.sleep(60)"""))
    runner.open(0)
    monkeypatch.setattr("bench.running.runners.START_LIMIT", 1.0)
    with pytest.raises(errors.DeviceError, match="slow cannot list its loops: no answer within 1 s"):
        runner.variants("read", FP64, "DRAM", 2)
    runner.close(kill=True)


def pid_of(runner: Children) -> int:
    assert runner._child is not None
    return runner._child._process.pid


def of(kernel: str) -> Planned:
    return replace(PLANNED, point=replace(POINT, kernel=kernel))


def test_a_round_in_a_child_process(children: Children) -> None:
    children.open(4)
    assert children.variants("read", FP64, "DRAM", 2) == ("first", "second")
    children.warm_up(0.01)
    sample = children.measure(PLANNED, order=3, scale=1.0, limit=20)
    assert (sample.status, sample.point, sample.round, sample.order) == ("ok", POINT, 4, 3)
    assert sample.process == 1 and len(sample.repetitions) >= 6
    first = pid_of(children)
    children.open(5)
    assert gone(first), "each round has a process of its own"
    assert children.measure(PLANNED, 0, 1.0, 20).process == 2


def test_a_failure_inside_the_child_is_its_sample(children: Children) -> None:
    children.open(1)
    sample = children.measure(of("add"), 0, 1.0, 20)
    assert (sample.status, sample.reason) == ("failed", "read differs from its reference: it is not timed")
    assert children.measure(PLANNED, 1, 1.0, 20).process == 1, "the process goes on"


def test_a_hang_is_killed_recorded_and_the_round_goes_on(children: Children) -> None:
    children.open(1)
    hung = pid_of(children)
    sample = children.measure(of("copy"), 0, 1.0, limit=0.3)
    assert (sample.status, sample.reason) == ("failed", "no answer within 0 s")
    assert (sample.round, sample.process) == (1, 1) and sample.facts["wall_seconds"] >= 0.3
    assert gone(hung)
    after = children.measure(PLANNED, 1, 1.0, 20)
    assert (after.status, after.process, after.round) == ("ok", 2, 1)


def test_a_crash_is_recorded_with_its_last_words(children: Children) -> None:
    children.open(1)
    sample = children.measure(of("scale"), 0, 1.0, 20)
    assert sample.reason == "the measuring process ended with signal 6: the loop ran away"
    assert children.measure(of("write"), 1, 1.0, 20).reason.endswith("exit code 1: RuntimeError: a bug")
    assert children.measure(PLANNED, 2, 1.0, 20).status == "ok"


def test_a_process_that_lost_its_gpu_ends_with_the_reason() -> None:
    runner = Children("fake", fake_command(copy="lost"))
    runner.open(1)
    first = pid_of(runner)
    sample = runner.measure(of("copy"), 0, 1.0, 20)
    ended = "the measuring process ended with exit code 3: an illegal address ended the GPU's context"
    assert (sample.status, sample.reason, sample.facts["lost"]) == ("failed", ended, True)
    assert gone(first)
    assert runner.measure(PLANNED, 1, 1.0, 20).process == 2
    runner.close(kill=True)


def family(name: str, kernel: str = "read") -> Planned:
    return replace(PLANNED, point=replace(POINT, family=name, kernel=kernel))


def test_each_family_has_a_process_and_never_two_have_the_device_open() -> None:
    runner = Children("fake", fake_command(scale="crash"), by_family=True)
    runner.open(0)
    chooser = pid_of(runner)
    assert runner.measure(family("fma"), 0, 1.0, 20).process == 1, "the one that listed the variants goes on"
    assert runner._spare is not None
    waiting = runner._spare._process.pid
    assert not gone(waiting)
    assert runner.measure(family("stream"), 1, 1.0, 20).process == 2
    assert gone(chooser) and pid_of(runner) == waiting, "the one that waited has imported meanwhile"
    assert runner.measure(family("stream"), 2, 1.0, 20).process == 2
    dead = runner.measure(family("stream", "scale"), 3, 1.0, 20)
    assert dead.facts["lost"] and runner._child is None
    assert runner.measure(family("gemm"), 4, 1.0, 20).process == 3
    last, spare = pid_of(runner), runner._spare
    runner.open(2)
    assert gone(last) and runner._child is None and runner._spare is spare
    runner.close(kill=True)
    assert spare is not None and gone(spare._process.pid)


def test_a_round_of_processes_warms_each_of_them_up_once() -> None:
    code = (
        "import json; from bench.running import worker; answers = worker.own_stdout()\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line); print(line, file=open(os.environ['SEEN'], 'a'), end='')\n"
        "    reply = {'error': 3, 'message': 'busy'} if 'measure' in request else {}\n"
        "    answers.write(json.dumps(reply) + chr(10))"
    )
    with tempfile.NamedTemporaryFile("r") as seen:
        runner = Children("cuda:0", printing(code), {"SEEN": seen.name}, by_family=True)
        runner.open(1)
        runner.warm_up(0.5)
        failed = [runner.measure(family(name), 0, 1.0, 20) for name in ("fma", "fma", "stream")]
        runner.close(kill=True)
        requests = [loads(line) for line in seen if "import" not in line]
    assert [s.reason for s in failed] == ["busy"] * 3, "an error of one family is not the end of the run"
    names = [next(iter(request)) for request in requests]
    assert names == ["open", "warm_up", "measure"] * 3
    assert [r["process"] for r in requests if "open" in r] == [1, 2, 3]


@pytest.mark.parametrize("by_family", [True, False])
def test_a_warm_up_that_fails_costs_a_gpu_its_points_and_not_the_run(by_family: bool) -> None:
    code = (
        "import json; from bench.running import worker; answers = worker.own_stdout()\n"
        "for line in sys.stdin:\n"
        "    reply = {'error': 3, 'message': 'no clock'} if 'warm_up' in line else {}\n"
        "    answers.write(json.dumps(reply) + chr(10))"
    )
    runner = Children("cuda:0", printing(code), by_family=by_family)
    runner.open(0)
    try:
        if not by_family:
            with pytest.raises(errors.DeviceError, match="no clock"):
                runner.warm_up(0.5)
            return
        runner.warm_up(0.5)
        sample = runner.measure(family("fma"), 0, 1.0, 20)
        assert (sample.status, sample.reason) == ("failed", "no clock")
    finally:
        runner.close(kill=True)


def test_a_worker_imports_ahead_and_answers_what_nobody_waits_for() -> None:
    child = Child((*WORKER,))
    try:
        child.send({"import": "fake:0"})
        child.send({"import": "cpu"})
        with pytest.raises(errors.DeviceError, match="unknown device 'abacus'"):
            child.ask({"open": "abacus", "round": 0, "process": 1}, 30)
        with pytest.raises(errors.DeviceError, match="unknown device 'sundial'"):
            child.ask({"open": "sundial", "round": 0, "process": 1}, 30)
    finally:
        child.end(kill=True)


def test_children_are_given_the_environment_that_pins_their_gpu() -> None:
    code = 'print(chr(123) + f\'"seen": "{os.environ[chr(71)]}"\' + chr(125), flush=True); time.sleep(60)'
    child = Child(printing(code), {"G": "GPU-1"})
    assert child.ask({}, 10) == {"seen": "GPU-1"}
    child.end(kill=True)


def test_a_process_that_cannot_start_is_a_device_error() -> None:
    runner = Children("fake", printing("sys.exit('no such library')"))
    with pytest.raises(errors.DeviceError, match=r"could not be opened: .* exit code 1: no such library"):
        runner.open(0)


def test_errors_with_a_name_keep_it() -> None:
    child = Child((*WORKER,))
    try:
        with pytest.raises(errors.DeviceError, match="unknown device 'abacus'"):
            child.ask({"open": "abacus", "round": 0, "process": 1}, 30)
    finally:
        child.end(kill=True)
    assert type(named_error(5, "full")) is errors.ResourceError
    assert type(named_error(99, "odd")) is errors.BenchError


def test_nonsense_and_silence() -> None:
    child = Child(printing("print('hello', flush=True); time.sleep(60)"))
    with pytest.raises(Died, match="answered nonsense"):
        child.ask({}, 10)
    with pytest.raises(Silent):
        child.ask({}, 0.05)
    child.end(kill=True)


def test_a_child_that_cannot_die_does_not_hold_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(printing("time.sleep(60)"))

    def wait(timeout: float | None = None) -> int:
        assert timeout is not None, "this would wait for ever"
        raise subprocess.TimeoutExpired("child", timeout)

    with monkeypatch.context() as hung:
        hung.setattr(child._process, "wait", wait)
        child.end(kill=True)
    assert child._process.wait(5) == -signal.SIGKILL


def test_what_a_library_prints_does_not_reach_the_answers() -> None:
    code = (
        "from bench.running import worker; answers = worker.own_stdout(); print('library chatter');"
        "os.system('echo chatter of a process'); worker.serve(sys.stdin, answers, worker.Worker())"
    )
    child = Child(printing(code))
    try:
        with pytest.raises(errors.DeviceError, match="unknown device"):
            child.ask({"open": "abacus", "round": 0, "process": 1}, 30)
    finally:
        child.end(kill=False)


def test_a_worker_ends_with_its_input() -> None:
    done = subprocess.run([*WORKER, str(os.getpid())], input="", cwd=CHECKOUT, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_worker_dies_with_its_parent_even_in_a_hang() -> None:
    code = (
        "import sys; from tests.test_runners import *\n"
        "runner = Children('fake', fake_command(copy='hang')); runner.open(1)\n"
        "print(pid_of(runner), flush=True); runner.measure(of('copy'), 0, 1.0, 60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.2)
    assert not gone(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_gone(child)


def test_a_worker_whose_parent_is_gone_already_does_not_start() -> None:
    done = subprocess.run([*WORKER, "1"], input="", cwd=CHECKOUT, text=True, capture_output=True)
    assert done.returncode == (1 if sys.platform == "linux" else 0)


def test_serving_line_by_line() -> None:
    requests = io.StringIO(
        "".join(
            json.dumps(request) + "\n"
            for request in (
                {"open": "fake", "round": 2, "process": 9},
                {"variants": ["read", plain(FP64), "DRAM", 2]},
                {"warm_up": 0.5},
                {"measure": plain(PLANNED), "order": 1, "scale": 1.0},
            )
        )
    )
    answers = io.StringIO()
    serve(requests, answers, Worker(lambda _: FakeBackend()))
    ready, variants, warm, sample = (loads(line) for line in answers.getvalue().splitlines())
    assert (ready, warm) == ({"ready": True}, {"warm": True})
    assert variants == {"variants": ["first", "second"]}
    assert (sample["sample"]["round"], sample["sample"]["process"]) == (2, 9)


def test_a_missing_package_is_an_answer() -> None:
    def opener(device: str) -> FakeBackend:
        raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")

    reply = Worker(opener).answer({"open": "cpu", "round": 0, "process": 1})
    assert reply["error"] == 3 and "'llvmlite' is missing" in reply["message"]


def test_a_request_before_open_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="no device is open yet"):
        Worker().answer({"warm_up": 1.0})


def test_the_simulated_device_runs_in_this_process() -> None:
    backend = FakeBackend(faults={"copy": "hang"})
    runner = InProcess(backend)
    runner.open(3)
    assert backend.calls == [("begin_round", 3)]
    assert runner.variants("read", FP64, "DRAM", 2) == ("first", "second")
    runner.warm_up(0.5)
    assert runner.now() == 0.5
    sample = runner.measure(PLANNED, 2, 1.0, limit=20)
    assert (sample.status, sample.round, sample.process) == ("ok", 3, 1)
    hung = runner.measure(of("copy"), 3, 1.0, limit=20)
    assert (hung.status, hung.reason) == ("failed", "no answer within 20 s")
    assert runner.conditions()["load"] == 0.0
    runner.close()
