"""gpu-check without a GPU: checks pass on a sound device and fail on a broken one; a stage costs itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bench.backends import Prepared, open_backend
from bench.backends.simulated import SimulatedBackend
from bench.errors import Unsupported, VerificationError
from bench.gpucheck import by_cupy, device, doubling
from bench.gpucheck.bed import SMALL, SMALL_EDGE, Bed
from bench.gpucheck.check import FAILED, OK, SKIPPED, Check, run
from bench.profile.records import Point, Precision, Repetitions

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
    needs_hardware = name in ("layouts", "flush", "second stream", "fault of a child", "PyTorch")
    assert (OK in statuses(found)) == (not needs_hardware) or name == "fault of a child"


def test_results_cover_every_family_and_say_what_is_lacking(bed: Bed) -> None:
    lines = {check.name: check for check in device.results(bed)}
    families = {name.split()[1] for name in lines}
    memory = {"cache", "latency", "launch", "scaling", "link", "overlap"}
    assert families == {"fma", "stream", "mix", "gemm", "tensor", *memory}
    assert lines["results stream fp32"].value.startswith("15 of 15 loops right")
    assert lines["results gemm fp4>fp32 library"].status == SKIPPED
    assert "later GPU" in lines["results gemm fp4>fp32 library"].value


def test_results_are_checked_on_small_arrays_and_products(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    prepare = bed.backend.prepare
    monkeypatch.setattr(bed.backend, "prepare", lambda p: seen.append(p.sizes) or prepare(p))
    list(device.results(bed))
    assert max(sizes.get("bytes", 0) for sizes in seen) == SMALL
    assert max(sizes.get(edge, 0) for sizes in seen for edge in "mnk") == SMALL_EDGE


class Broken(SimulatedBackend):
    """A simulated GPU with one thing wrong, given as a function of the true answer."""

    seconds: Callable[[float, Prepared, int], float] = staticmethod(lambda s, prepared, amount: s)
    wrong_kernel = ""
    memory = float("inf")
    lacking: Callable[[Point], bool] = staticmethod(lambda point: False)

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        found = super().measure(prepared, amount, n)
        return replace(found, seconds=tuple(self.seconds(s, prepared, amount) for s in found.seconds))

    def verify(self, prepared: Prepared) -> None:
        if prepared.point.kernel == self.wrong_kernel:
            raise VerificationError("item 3 is 1, not 2")

    def prepare(self, point: Point) -> Prepared:
        if 3 * point.sizes.get("bytes", 0) > self.memory:
            raise MemoryError("3 arrays wanted, 2 fit")
        if self.lacking(point):
            raise Unsupported("this library has no algorithm for it")
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


def test_what_no_library_makes_is_a_skip_and_what_one_makes_is_checked() -> None:
    def lacking(point: Point) -> bool:
        label = point.precision.label
        return label == "fp8>fp32 library" or (label, point.kernel) == ("fp32", "triad")

    found = {c.name: c for c in device.results(broken(lacking=lacking))}
    none, some = found["results gemm fp8>fp32 library"], found["results stream fp32"]
    assert (none.status, none.value) == (SKIPPED, "this library has no algorithm for it")
    assert some.status == OK and some.value.startswith("12 of 12 loops right")


def test_a_loop_that_was_folded_away_does_not_double() -> None:
    constant = broken(seconds=lambda s, prepared, amount: 0.02)
    assert statuses(device.doubled_flops(constant)) == {FAILED}


@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_clock_that_changes_in_the_first_pair_decides_nothing(factor: float) -> None:
    """As where a power limit bites after the first repetitions: they were faster than all that follow."""
    seen: list[int] = []

    def seconds(amount: int) -> float:
        seen.append(amount)
        return amount * (1.0 if len(seen) == 1 else factor)

    assert doubling.interleaved(seconds, 10, 20) == pytest.approx(2.0)
    assert seen == [10, 20, 20, 10, 10, 20], "neither comes first in every pair"


def test_a_kernel_that_touches_half_of_its_arrays_does_not_double() -> None:
    def seconds(s: float, prepared: Prepared, amount: int) -> float:
        return s if prepared.point.sizes["bytes"] < 2 << 30 else s / 2

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


def test_layouts_are_of_every_precision_of_wgmma_and_a_wrong_one_is_named() -> None:
    groups = [Precision(kind, "fp32", "fp32", "matrix") for kind in ("fp16", "bf16")]
    points = [Point("tensor", kernel, "", p) for p in groups for kernel in ("mma", "wgmma", "wgmma")]
    asked: list[str] = []
    bodies = SimpleNamespace(
        check_layout=lambda point: asked.append(f"{point.kernel} {point.precision.inputs}")
    )
    bed = Bed(SimpleNamespace(bodies=bodies, unsupported=lambda point: ""))
    vars(bed)["points"] = points
    (found,) = device.layouts(bed)
    assert (found.status, found.value) == (OK, "2 of 2 precisions right")
    assert asked == ["wgmma fp16", "wgmma bf16"], "each once, and mma has no layout in shared memory"

    def wrong(point: Point) -> None:
        raise VerificationError(f"the CUDA {point.precision.inputs} differs")

    bodies.check_layout = wrong
    (found,) = run("layouts", lambda: device.layouts(bed))
    assert found.status == FAILED and found.value == "the CUDA fp16 differs"


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
