"""gpu-check without a GPU: checks pass on a sound device and fail on a broken one; a stage costs itself."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from bench import cli, store
from bench.backends import Prepared, open_backend
from bench.backends.simulated import SimulatedBackend
from bench.errors import DeviceError, ResourceError, UsageError, VerificationError
from bench.gpucheck import by_cupy, device, process, result, stages, verb
from bench.gpucheck.bed import SMALL, Bed
from bench.gpucheck.check import FAILED, OK, SKIPPED, Check, passed, run, run_all, within
from bench.planning.planned import Planned
from bench.profile.records import Point, Precision, Profile, Repetitions, Sample
from tests.synthetic import ceiling, synthetic_profile

GPU = "sim:gpu-large"


@pytest.fixture(scope="module")
def bed() -> Bed:
    return Bed(open_backend(GPU))


def statuses(checks: Iterable[Check]) -> set[str]:
    return {check.status for check in checks}


# the device checks


@pytest.mark.parametrize("name", device.CHECKS)
def test_a_sound_device_passes(name: str, bed: Bed) -> None:
    found = list(device.CHECKS[name](bed))
    assert found and FAILED not in statuses(found)
    needs_hardware = name in ("flush", "second stream", "fault of a child")
    assert (OK in statuses(found)) == (not needs_hardware) or name == "fault of a child"


def test_results_cover_every_family_and_say_what_is_lacking(bed: Bed) -> None:
    lines = {check.name: check for check in device.results(bed)}
    families = {name.split()[1] for name in lines}
    memory = {"cache", "latency", "launch", "scaling", "link", "overlap"}
    assert families == {"fma", "stream", "mix", "gemm", "tensor", *memory}
    assert lines["results stream fp32"].value.startswith("15 of 15 loops right")
    assert lines["results gemm fp4>fp32 library"].status == SKIPPED
    assert "later GPU" in lines["results gemm fp4>fp32 library"].value


def test_results_are_checked_on_small_arrays(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    prepare = bed.backend.prepare
    monkeypatch.setattr(bed.backend, "prepare", lambda p: seen.append(p.sizes.get("bytes", 0)) or prepare(p))
    list(device.results(bed))
    assert max(seen) == SMALL


class Broken(SimulatedBackend):
    """A simulated GPU with one thing wrong, given as a function of the true answer."""

    seconds: Callable[[float, Prepared, int], float] = staticmethod(lambda s, prepared, amount: s)
    wrong_kernel = ""
    memory = float("inf")

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        found = super().measure(prepared, amount, n)
        return replace(found, seconds=tuple(self.seconds(s, prepared, amount) for s in found.seconds))

    def verify(self, prepared: Prepared) -> None:
        if prepared.point.kernel == self.wrong_kernel:
            raise VerificationError("item 3 is 1, not 2")

    def prepare(self, point: Point) -> Prepared:
        if 3 * point.sizes.get("bytes", 0) > self.memory:
            raise MemoryError("3 arrays wanted, 2 fit")
        return super().prepare(point)


def broken(**what: Any) -> Bed:
    backend = Broken.named("gpu-large")
    for name, value in what.items():
        setattr(backend, name, value)
    return Bed(backend)


def test_a_wrong_result_is_named() -> None:
    found = {c.name: c for c in device.results(broken(wrong_kernel="triad"))}
    assert found["results stream fp32"].status == FAILED
    assert (
        "triad" in found["results stream fp32"].value and "item 3 is 1" in found["results stream fp32"].value
    )
    assert found["results fma fp32"].status == OK


def test_a_loop_that_was_folded_away_does_not_double() -> None:
    constant = broken(seconds=lambda s, prepared, amount: 0.02)
    assert statuses(device.doubled_flops(constant)) == {FAILED}


def test_a_kernel_that_touches_half_of_its_arrays_does_not_double() -> None:
    def seconds(s: float, prepared: Prepared, amount: int) -> float:
        return s if prepared.point.sizes["bytes"] < 1 << 30 else s / 2

    assert statuses(device.doubled_bytes(broken(seconds=seconds))) == {FAILED}
    assert statuses(device.doubled_flops(broken(seconds=lambda s, p, a: s))) == {OK}


def test_multiply_adds_that_cost_nothing_are_noticed() -> None:
    per_fma = broken(seconds=lambda s, prepared, amount: s / prepared.point.sizes.get("fma", 1))
    assert statuses(device.more_intensity(per_fma)) == {FAILED}


def test_events_that_run_slow_disagree_with_the_host(bed: Bed) -> None:
    slow = broken(seconds=lambda s, prepared, amount: 0.9 * s)
    assert [c.status for c in device.event_clock(slow)] == [FAILED, OK]


def test_memory_that_ends_is_refused_in_words_and_the_next_array_is_made() -> None:
    found = list(device.out_of_memory(broken(memory=64e9)))
    assert [c.status for c in found] == [OK, OK]
    assert "3 arrays wanted, 2 fit" in found[0].value
    stuck = list(run("out of memory", lambda: device.out_of_memory(broken(memory=1.0))))
    assert [c.status for c in stuck] == [OK, FAILED], "what comes after must work"


def test_impossible_telemetry_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Bed(open_backend(GPU))
    measure = sound.backend.measure

    def cooking(prepared: Prepared, amount: int, n: int) -> Repetitions:
        found = measure(prepared, amount, n)
        return replace(found, temperature_c=(400.0,) * n, clock_hz=(1e3,) * n, power_w=())

    monkeypatch.setattr(sound.backend, "measure", cooking)
    assert [c.status for c in device.telemetry(sound)] == [FAILED, SKIPPED, FAILED]


# what only a real GPU has, on one that pretends to be real


def pretending(**what: Any) -> Bed:
    bed = broken(**what)
    bed.backend.device = replace(bed.backend.device, kind="cuda")
    return bed


def test_a_flush_that_does_nothing_is_noticed() -> None:
    def flushed(s: float, prepared: Prepared, amount: int) -> float:
        return amount * (3e-6 if amount == prepared.least else 1e-6)

    assert statuses(device.flush(pretending(seconds=flushed))) == {OK}
    assert statuses(device.flush(pretending(seconds=lambda s, prepared, amount: 1e-6 * amount))) == {FAILED}


def test_work_that_follows_the_current_stream_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []

    @contextmanager
    def another_stream() -> Iterator[None]:
        inside.append(1)
        yield
        inside.pop()

    monkeypatch.setattr(by_cupy, "another_stream", another_stream)
    follows = pretending(seconds=lambda s, prepared, amount: s / 10 if inside else s)
    assert [c.status for c in device.second_stream(follows)] == [FAILED, FAILED]
    assert [c.status for c in device.second_stream(pretending())] == [OK, OK]


@pytest.mark.parametrize(
    ("said", "status"),
    [("fault", OK), ("no fault was noticed", FAILED), ("busy: the GPU takes one process only", SKIPPED)],
)
def test_a_fault_in_a_child_must_be_noticed_there_and_harmless_here(
    said: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_cupy, "faulty_child", lambda: said)
    assert [c.status for c in device.fault_of_a_child(pretending())] == [status, OK]


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


def fake_cupy(open_status: int = 0, wait_status: int = 0) -> SimpleNamespace:
    """As much of CuPy as the faulty child touches."""

    def answer(status: int) -> None:
        if status:
            raise CUDARuntimeError(status)

    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        free=lambda address: answer(open_status),
        deviceSynchronize=lambda: answer(wait_status),
    )
    used = SimpleNamespace(use=lambda: None)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda number: used)
    return SimpleNamespace(cuda=cuda, RawKernel=lambda code, name: lambda grid, block, arguments: None)


@pytest.mark.parametrize(
    ("cupy", "said"),
    [
        (fake_cupy(wait_status=700), "fault"),
        (fake_cupy(), "no fault was noticed"),
        (fake_cupy(open_status=46), "busy: the GPU takes one process only"),
        (fake_cupy(open_status=100), "not opened: cudaError 100"),
    ],
)
def test_what_the_faulty_child_says(cupy: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert by_cupy.fault() == said


def test_a_faulty_child_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_cupy.sys, "executable", "/bin/false")
    assert by_cupy.faulty_child() == "exit code 1"


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

    def answer(words: list[str], **more: Any) -> SimpleNamespace:
        asked.append(words)
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

    def open(self, round: int) -> None:
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


def test_no_second_opinion_is_a_skip_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = cross_checked(monkeypatch, tmp_path, refusal="numba-cuda cannot be imported")
    assert (found.status, found.value) == (SKIPPED, "numba-cuda cannot be imported")
    monkeypatch.setattr(Turns, "refusal", "")
    late = cross_checked(monkeypatch, tmp_path, 0.0)
    assert late and statuses(late) == {SKIPPED}, "no kernel is begun when the time is up"


# the result


def point(family: str, precision: str = "fp32") -> Point:
    return Point(family, family, "", Precision.of(precision), scope="device")


def sample(family: str = "fma", precision: str = "fp32", **changes: Any) -> Sample:
    return replace(Sample(point(family, precision), 1, 1, 0), **changes)


def with_shares(*shares: tuple[str, float, str]) -> Profile:
    made = [
        ceiling("pi" if kernel == "fma" else "beta", 1e12, kernel=kernel, precision="fp32", regime=regime)
        for kernel, _, regime in shares
    ]
    return replace(
        synthetic_profile(),
        ceilings=tuple(replace(c, share_at_clock=s[1]) for c, s in zip(made, shares, strict=True)),
    )


def test_a_family_without_a_value_needs_a_reason() -> None:
    lacking = sample("tensor", "fp8", status="skipped", reason="needs compute capability 8.9")
    found = {c.name: c for c in result.present([sample(), lacking], synthetic_profile())}
    assert found["measured tensor"].status == OK and "fp8" in found["measured tensor"].value
    dead = sample("gemm", status="failed", reason="no answer within 20 s")
    found = {c.name: c for c in result.present([sample(), dead], synthetic_profile())}
    assert found["measured gemm"].status == FAILED and "no answer" in found["measured gemm"].value
    half = [replace(dead, status="ok", reason=""), replace(dead, point=point("gemm", "fp16"))]
    assert FAILED in statuses(result.present(half, synthetic_profile())), "one point failed, another did not"
    again = [dead, replace(dead, status="ok", reason="", round=2)]
    assert statuses(result.present(again, synthetic_profile())) == {OK}, "what came right later is measured"
    silent = list(result.present([sample(status="skipped")], synthetic_profile()))
    assert [c.status for c in silent if c.name == "every gap has its reason"] == [FAILED]


def test_faster_than_the_hardware_is_a_fault() -> None:
    good = with_shares(("fma", 0.985, "typical"), ("read", 0.93, "typical"))
    assert statuses(result.possible(good)) == {OK}
    assert FAILED in statuses(result.possible(with_shares(("fma", 1.2, "typical"))))
    assert FAILED in statuses(result.possible(with_shares(("read", 1.05, "typical"))))
    assert FAILED in statuses(result.possible(with_shares(("fma", 0.7, "typical")))), "half a loop is missing"
    assert FAILED not in statuses(result.possible(with_shares(("fma", 0.92, "sustained"))))
    assert statuses(result.possible(synthetic_profile())) == {SKIPPED}


def test_a_value_outside_its_interval_is_a_fault() -> None:
    one = ceiling("pi", 1e12)
    wrong = replace(one, estimate=replace(one.estimate, low=2e12))
    assert FAILED in statuses(result.intervals(replace(synthetic_profile(), ceilings=(wrong,))))
    assert FAILED not in statuses(result.intervals(replace(synthetic_profile(), ceilings=(one,))))


def test_launches_that_waited_for_the_host_are_a_fault() -> None:
    assert statuses(result.evidence([sample(facts={"event_share": 0.9})])) == {OK}
    assert FAILED in statuses(result.evidence([sample(facts={"host_bound": True})]))
    assert FAILED in statuses(result.evidence([sample(facts={"event_share": 1.2})]))


# the verb


def test_the_verb_refuses_what_it_cannot_check(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"valid: tests, audit, cross-check, run, checks"):
        verb.check_gpu(GPU, tmp_path, "all", print)
    with pytest.raises(UsageError, match="gpu-check is for GPUs"):
        verb.check_gpu("cpu", tmp_path, "", print)
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_it_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.gpu import described

    def none(id: str) -> None:
        raise DeviceError("cuda:0: no NVIDIA driver found")

    monkeypatch.setattr(described, "cuda_device", none)
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-check", "--out", str(tmp_path / "out")])
    assert stop.value.code == 3
    assert capsys.readouterr().err == "Error: cuda:0: no NVIDIA driver found\n"
    assert not (tmp_path / "out").exists()


def test_one_stage_of_a_simulated_gpu_through_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-check", "--device", GPU, "--stage", "tests", "--json"])
    assert stop.value.code in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / verb.FOLDER / verb.RECORD).read_text()) | {
        "seconds": found["seconds"]
    }
    assert found["simulated"] is True and found["passed"] is True and found["count"][FAILED] == 0
    assert [stage["stage"] for stage in found["stages"]] == ["tests"]
    assert "SIMULATED, no hardware is checked" in (tmp_path / verb.FOLDER / verb.TABLE).read_text()


def fake_run(files: dict[str, str], code: int | None) -> Callable[..., tuple[int | None, str]]:
    """Stands in for the measured run: leaves files where the words say."""

    def run(words: list[str], seconds: float) -> tuple[int | None, str]:
        if "--results" in words:
            home = Path(words[words.index("--results") + 1]) / "gpu-quiet" / "time"
            home.mkdir(parents=True)
            for name, text in files.items():
                (home / name).write_text(text)
        return code, "Error: the GPU fell off"

    return run


WHOLE = {
    "samples.jsonl": "s" * 10,
    "profile.json": "{}",
    "roofline.png": "p",
    "roofline.svg": "v",
    "table.txt": "t",
}


def test_of_a_run_four_files_stay_beside_record_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_run", fake_run(WHOLE, 0))
    found = list(verb.measured(GPU, tmp_path, 100.0, []))
    assert statuses(found) == {OK}
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(verb.KEPT), "no folder stays behind"


def test_samples_too_large_to_travel_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "LARGEST", 5)
    monkeypatch.setattr(verb, "_run", fake_run({**WHOLE, "profile.json": ""}, 0))
    notes: list[str] = []
    monkeypatch.setattr(verb.shutil, "copyfileobj", lambda plain, file: None)
    list(verb.measured(GPU, tmp_path, 100.0, notes))
    assert "samples.jsonl is packed: it was 10 byte" in notes
    assert "samples.jsonl is left out: packed it was still above 5 byte" in notes
    assert not (tmp_path / "samples.jsonl").exists() and not (tmp_path / "samples.jsonl.gz").exists()


def test_packed_samples_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "LARGEST", 90)
    monkeypatch.setattr(verb, "_run", fake_run({**WHOLE, "samples.jsonl": "s" * 5000}, 0))
    list(verb.measured(GPU, tmp_path, 100.0, []))
    with gzip.open(tmp_path / "samples.jsonl.gz", "rt") as file:
        assert file.read() == "s" * 5000
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("code", "told"), [(3, "exit code 3: Error: the GPU fell off"), (None, "no end in time")]
)
def test_a_run_that_fails_keeps_what_it_measured(
    code: int | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_run", fake_run({"samples.jsonl": "s"}, code))
    found = list(verb.measured(GPU, tmp_path, 100.0, []))
    assert [(c.status, c.value) for c in found] == [(FAILED, told), (FAILED, "none")]
    assert (tmp_path / "samples.jsonl").read_text() == "s"


def test_every_stage_but_the_run_has_its_process_and_a_result_is_needed_for_checks(tmp_path: Path) -> None:
    assert set(verb.LIMITS) == {*stages.STAGES, "run"}
    (found,) = verb.staged("checks", GPU, tmp_path, {}, [])
    assert found.status == SKIPPED and "no measured run" in found.value


@pytest.mark.slow
def test_the_whole_verb_on_a_simulated_gpu(tmp_path: Path) -> None:
    lines: list[str] = []
    record = verb.check_gpu(GPU, tmp_path, "", lines.append)
    assert record.failed == []
    assert [stage["stage"] for stage in record.stages] == list(verb.LIMITS)
    kept = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.name for p in kept} == {*verb.KEPT, verb.RECORD, verb.TABLE}
    assert all(p.parent == tmp_path / verb.FOLDER and p.stat().st_size < 16e6 for p in kept)
    assert store.read_profile(tmp_path / verb.FOLDER).simulated
    assert (tmp_path / verb.FOLDER / verb.TABLE).read_text() == "\n".join(lines) + "\n"


def test_a_simulated_cpu_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sim:small-cpu is a simulated CPU"):
        verb.check_gpu("sim:small-cpu", tmp_path, "", print)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match=r"cannot be made .*name another with --out"):
        verb.check_gpu("sim:gpu-large", tmp_path / "file", "checks", print)
