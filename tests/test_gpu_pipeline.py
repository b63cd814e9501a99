"""Pipelining on a GPU that is not there: streams overlap, nothing is computed on before it has arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.backends import Prepared
from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.fitting import pipelining
from bench.gpu import stages
from bench.gpu.batches import Batch, Batches, Task
from bench.gpu.host_memory import Buffer
from bench.gpu.lanes import Lanes
from bench.gpu.pipeline import MOST_CHUNKS, VARIANTS, block_sums, numbers
from bench.planning.plan import plan
from bench.profile.records import Point, Precision
from kernels import CUDA, KERNELS, overlap
from tests import link_bodies
from tests.fake_cupy import Stream
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left

FP64 = Precision.of("fp64")
MIB = 1 << 20
__all__ = ["no_threads_are_left"]


@pytest.fixture
def real(gpu: FakeGpu) -> FakeGpu:
    link_bodies.install(gpu)
    return gpu


def passes(access: str = "h2d", variant: str = "pipelined", chunks: int = 4, percent: int = 100) -> Point:
    sizes = {"bytes": MIB, "percent": percent} | ({"chunks": chunks} if variant == "pipelined" else {})
    level = "host link"
    return Point("overlap", "pipeline", variant, FP64, level, access, scope="device", threads=2, sizes=sizes)


@contextmanager
def prepared(backend: CudaBackend, point: Point) -> Iterator[Prepared]:
    made = backend.prepare(point)
    yield made
    backend.release(made)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("access", ["h2d", "both"])
def test_a_pass_is_prepared_verified_measured_and_released(
    real: FakeGpu, backend: CudaBackend, access: str, variant: str
) -> None:
    before = real.used()
    point = passes(access, variant)
    assert backend.unsupported(point) == ""
    with prepared(backend, point) as made:
        backend.verify(made)
        taken = backend.measure(made, 1, 3)
        assert len(taken) == 3 and min(taken.seconds) > 0
        items = MIB // 8
        work, fma = made.work(1), made.facts["fma"]
        assert work.flops == items * (2 * fma + (access == "h2d"))
        assert work.reads["host link"] == MIB and work.writes["host link"] == (MIB if access == "both" else 0)
    assert real.used() == before and real.hangs == [] and real.races() == []


def test_stages_overlap_as_far_as_they_can(real: FakeGpu, backend: CudaBackend) -> None:
    with prepared(backend, passes(chunks=16)) as made:
        (seconds, *_) = backend.measure(made, 1, 3).seconds
    facts = made.facts
    move, compute, serial = facts["t_move"], facts["t_compute"], facts["t_serial"]
    assert serial == pytest.approx(move + compute, rel=0.02)
    ideal = max(move, compute) + min(move, compute) / 16
    assert seconds == pytest.approx(ideal, rel=0.05)
    assert facts["ratio"] == pytest.approx(1.0, abs=0.35)
    assert facts["move_slowdown"] == pytest.approx(1.0, abs=0.02)
    assert facts["compute_slowdown"] == pytest.approx(1.0, abs=0.02)


def test_a_stage_that_slows_another_shows(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more than the timed stream is at work, computing takes half as long again."""
    plain, beside = real.seconds, [False]
    genuine = Lanes.beside

    @contextmanager
    def slower(self: Lanes) -> Iterator[None]:
        beside[0] = True
        with genuine(self):
            yield
        beside[0] = False

    monkeypatch.setattr(Lanes, "beside", slower)
    real.seconds = lambda *shape: plain(*shape) * (1.5 if beside[0] else 1.0)
    with prepared(backend, passes()) as made:
        backend.measure(made, 1, 2)
    assert made.facts["compute_slowdown"] == pytest.approx(1.5, rel=0.02)
    assert made.facts["move_slowdown"] == pytest.approx(1.0, abs=0.02)


def test_a_watched_pass_that_was_held_too_long_counts_once(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, late = Batches._attempt, ["pipeline, watched"]

    def attempt(self: Batches, task: Task, amount: int, n: int) -> tuple[Batch, bool]:
        batch, _ = genuine(self, task, amount, n)
        return batch, bool(late) and task.name == late[-1] and bool(late.pop())

    with prepared(backend, passes()) as made:
        monkeypatch.setattr(Batches, "_attempt", attempt)
        backend.measure(made, 1, 1)
        assert not late and 0.9 < made.facts["compute_slowdown"] < 1.5


def test_three_stages_hide_behind_the_longest(real: FakeGpu, backend: CudaBackend) -> None:
    with prepared(backend, passes("both", chunks=16, percent=200)) as made:
        (seconds, *_) = backend.measure(made, 1, 3).seconds
    facts = made.facts
    assert facts["t_serial"] == pytest.approx(facts["t_move"] + facts["t_compute"], rel=0.02)
    assert facts["t_compute"] <= seconds <= 1.15 * facts["t_compute"]


@pytest.mark.parametrize(
    ("access", "forgotten"), [("h2d", "arrival"), ("both", "arrival"), ("both", "result")]
)
def test_a_stage_that_does_not_wait_is_a_race(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, access: str, forgotten: str
) -> None:
    if forgotten == "arrival":
        timed = backend.engine.stream
        genuine = Stream.wait_event
        monkeypatch.setattr(Stream, "wait_event", lambda s, e: None if s is timed else genuine(s, e))
    else:
        monkeypatch.setattr(Lanes, "wait", lambda self, lane, event: None)
    with prepared(backend, passes(access)) as made:
        real.ran.clear()
        backend.measure(made, 1, 1)
    assert real.races(), "the stand-in must notice"


@pytest.mark.parametrize("access", ["h2d", "both"])
def test_a_lost_chunk_is_found(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, access: str
) -> None:
    with prepared(backend, passes(access)) as made:
        backend.verify(made)
        genuine = stages.Stages.compute
        lost = lambda self, chunk: None if chunk == 2 else genuine(self, chunk)  # noqa: E731
        monkeypatch.setattr(stages.Stages, "compute", lost)
        with pytest.raises(VerificationError, match="a chunk was lost or computed on too early"):
            backend.verify(made)


@pytest.mark.parametrize("access", ["h2d", "both"])
def test_one_step_too_few_is_found(real: FakeGpu, backend: CudaBackend, access: str) -> None:
    with prepared(backend, passes(access)) as made:
        for name in ("pipeline_sum", "pipeline_back"):
            genuine = real.bodies[name]
            real.bodies[name] = lambda *a, genuine=genuine: genuine(*a[:-1], a[-1] - 1)
        with pytest.raises(VerificationError):
            backend.verify(made)


def test_work_is_calibrated_once_for_all_numbers_of_chunks(real: FakeGpu, backend: CudaBackend) -> None:
    found = {}
    for percent in (25, 100, 400):
        for chunks in (1, 8):
            with prepared(backend, passes(chunks=chunks, percent=percent)) as made:
                found[percent, chunks] = made.facts["fma"]
    assert all(found[percent, 1] == found[percent, 8] for percent in (25, 100, 400))
    assert found[400, 1] > 2 * found[100, 1] >= found[25, 1] >= 1


@pytest.mark.parametrize("chunks", [0, 3, MOST_CHUNKS * 2])
def test_what_cannot_be_cut_is_said(real: FakeGpu, backend: CudaBackend, chunks: int) -> None:
    with pytest.raises(DeviceError, match="byte cannot be cut into"):
        backend.prepare(passes(chunks=chunks))


def test_other_pipelines_are_refused_with_the_reason(backend: CudaBackend) -> None:
    assert "it is h2d or both" in backend.unsupported(passes("d2h"))
    assert "over storage" in backend.unsupported(replace(passes(), level="storage"))
    assert "no pass of the pipeline" in backend.unsupported(replace(passes(), variant="twice"))


def test_the_analysis_takes_what_is_measured(real: FakeGpu, backend: CudaBackend) -> None:
    alone = {}
    for variant in ("copy alone", "compute alone"):
        with prepared(backend, passes(variant=variant)) as made:
            alone[variant] = list(backend.measure(made, 1, 3).seconds)
    chunks, seconds = (1, 2, 4, 8, 16), []
    for k in chunks:
        with prepared(backend, passes(chunks=k)) as made:
            seconds.append(list(backend.measure(made, 1, 3).seconds))
    found = pipelining.describe(chunks, seconds, alone["compute alone"], alone["copy alone"])
    assert found["between_laws"] and 0.6 < found["omega"] <= 1.0
    assert seconds[0][0] == pytest.approx(found["serial_seconds"], rel=0.03), "one chunk hides nothing"


# the functions and the numbers


def test_sums_over_blocks_show_one_item() -> None:
    view = np.zeros(8 * 1000, np.uint8)
    numbers(view)
    items = view.view(np.float64)
    assert items.min() >= 1.0 and items.max() < 2.0 and len(np.unique(items)) == 1000
    sums = block_sums(Buffer(0, view))
    assert len(sums) == 4 and sums.sum() == pytest.approx(items.sum())
    items[700] *= 1 + overlap.FACTOR
    assert not np.allclose(block_sums(Buffer(0, view)), sums, rtol=1e-9, atol=0)


def test_work_counts_a_way_back() -> None:
    there = overlap.cost(8, {"n": 10, "fma": 3}, "host link")
    back = overlap.cost(8, {"n": 10, "fma": 3, "leaving": 10}, "host link")
    assert (there.flops, there.writes["host link"]) == (70, 0)
    assert (back.flops, back.reads["host link"], back.writes["host link"]) == (60, 80, 80)


def test_both_sides_of_the_ridge_are_planned() -> None:
    from bench.backends import open_backend

    found = open_backend("sim:gpu-large")
    points = [
        p.point for p in plan(found.device, found.variants, "standard").points if p.point.family == "overlap"
    ]
    by = {(p.access, p.sizes["percent"]) for p in points}
    assert by == {("h2d", 25), ("h2d", 100), ("h2d", 400), ("both", 100), ("both", 400)}
    piped = [p for p in points if p.variant == "pipelined"]
    assert {p.sizes["chunks"] for p in piped if p.sizes["percent"] == 100} == {1, 2, 4, 8, 16, 32, 64}
    for access, percent in by:
        own = {p.variant for p in points if (p.access, p.sizes["percent"]) == (access, percent)}
        assert own == set(VARIANTS)
    assert all(p.sizes["bytes"] % (p.sizes.get("chunks", 1) * 16) == 0 for p in points)
    assert {p.kernel for p in points} == {"pipeline"} and KERNELS["pipeline"].family == "overlap"


def test_forms_are_those_of_the_accesses() -> None:
    assert {form.variant for form in CUDA["overlap"].forms} == set(overlap.CUDA_FORMS.values())
    for form in CUDA["overlap"].forms:
        assert form.expect.opcodes == {"DFMA": 2} and form.flops == 4


def test_a_simulated_gpu_shows_its_overlap() -> None:
    from bench.backends import open_backend

    device: Any = open_backend("sim:gpu-large")
    point = replace(passes(), sizes={"bytes": 64 * MIB, "percent": 100, "chunks": 16})
    alone = {}
    for variant in VARIANTS:
        made = device.prepare(replace(point, variant=variant))
        alone[variant] = np.median(device.measure(made, 1, 9).seconds)
    total = alone["copy alone"] + alone["compute alone"]
    hidden = (total - alone["pipelined"]) / min(alone["copy alone"], alone["compute alone"])
    assert 0.7 < hidden < 0.9
