"""The launch queue of a GPU that is not there: who waits for whom, what was bound by the host, its clocks."""

from __future__ import annotations

from typing import Any

import pytest

from bench.backends.cuda import CudaBackend
from bench.gpu import visible
from bench.gpu.batches import PATIENCE, Batches, Task
from bench.gpu.engine import Engine
from bench.profile.records import Point, Precision
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import Board, device, held, no_threads_are_left
from tests.test_cuda_backend import gpu as gpu

FP32 = Precision.of("fp32")
__all__ = ["no_threads_are_left"]


def short(engine: Engine, gpu: FakeGpu, seconds: float) -> Task:
    """Launches that take the GPU `seconds` each."""

    def launch(amount: int) -> None:
        gpu.call("launch")
        gpu.queue(seconds, "short")

    return Task("short", launch)


@pytest.mark.parametrize(("seconds", "bound"), [(2e-5, False), (1e-6, True)])
@pytest.mark.parametrize("launches", [1000, 20_000])
def test_only_kernels_shorter_than_their_launches_are_bound_by_the_host(
    gpu: FakeGpu, seconds: float, bound: bool, launches: int
) -> None:
    """Behind a full queue the host waits nearly as long as the GPU works: that says nothing."""
    batches = Batches(Engine(gpu.now))
    evidence = batches.run(short(batches.engine, gpu, seconds), launches, 1).evidence
    assert evidence["blocker"] == "on" and evidence["host_bound"] is bound


def test_few_launches_lie_in_the_queue_and_are_never_bound_by_the_host(gpu: FakeGpu) -> None:
    batches = Batches(Engine(gpu.now))
    assert not batches.run(short(batches.engine, gpu, 1e-7), 100, 2).evidence["host_bound"]


@pytest.mark.parametrize(("launches", "batches_wanted"), [(200, 5), (60, 2), (1000, 0)])
def test_repetitions_that_the_queue_holds_are_timed_in_it_where_the_host_is_slow(
    gpu: FakeGpu, launches: int, batches_wanted: int
) -> None:
    """Small copies: behind the first of them the GPU would wait for the host, whose time would be taken."""
    batches = Batches(Engine(gpu.now))
    found = batches.run(short(batches.engine, gpu, 1e-6), launches, 5)
    assert held(gpu) == 1 + batches_wanted and len(found.seconds) == len(found.starts) == 5
    if batches_wanted:
        assert found.seconds == pytest.approx([launches * 1e-6] * 5, rel=1e-3)
        assert not found.evidence["host_bound"] and list(found.starts) == sorted(found.starts)
    else:
        assert min(found.seconds[1:]) > launches * 4e-6 and found.evidence["host_bound"]


class MemoryClock(Board):
    """Also tells its memory clock, 2.5 GHz at first and 1 GHz later."""

    def moment(self) -> dict[str, Any]:
        return {**super().moment(), "memory_clock_hz": 2.5e9 if self.read < 2 else 1.0e9}


def test_the_memory_clock_under_load_is_kept_beside_the_sample(gpu: FakeGpu) -> None:
    point = Point(
        "stream", "copy", "", FP32, "DRAM", "copy", "ordinary", "device", 2, sizes={"bytes": 1 << 20}
    )
    for board, wanted in ((MemoryClock(), True), (Board(), False)):
        backend = CudaBackend(device(), board, Engine(gpu.now))
        prepared = backend.prepare(point)
        backend.measure(prepared, 1, 3)
        assert ("memory_clock_hz" in prepared.facts) is wanted
        if wanted:
            assert 1.0e9 <= prepared.facts["memory_clock_hz"] <= 2.5e9


def test_every_wait_has_a_ticket_above_all_before_it(gpu: FakeGpu) -> None:
    engine = Engine(gpu.now)
    two = Batches(engine), Batches(engine)
    for batches in (*two, *two):
        batches.run(short(engine, gpu, 1e-5), 1, 1)
    assert held(gpu) == 4 and engine.ticket == 4 and list(engine.flags) == [4, 0]


def test_gpus_wait_for_each_other_whatever_each_of_them_did_before(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket that a GPU has had before would let it begin at once, before the others."""
    known = {"ROOFLINE_GPU": "cuda:0", "ROOFLINE_GPUS": "0=GPU-a,1=GPU-b"}
    gpu.devices = 2
    for name, value in {**known, **visible.widened(known)}.items():
        monkeypatch.setenv(name, value)
    backend = CudaBackend(device(), Board(), Engine(gpu.now))
    alone = backend.prepare(Point("fma", "fma", "8 chains b256", FP32, scope="device", threads=2))
    backend.measure(alone, 4, 3)
    backend.measure(alone, 4, 3)
    together = Point("scaling", "fma", "8 chains b256", FP32, scope="device", threads=2, sizes={"devices": 2})
    tickets: list[tuple[int, int]] = []
    genuine = Engine.hold

    def hold(self: Engine, ticket: int, seconds: float) -> None:
        assert seconds == PATIENCE and ticket > self.flags[0], "it would not wait"
        tickets.append((self.ordinal, ticket))
        genuine(self, ticket, seconds)

    monkeypatch.setattr(Engine, "hold", hold)
    for _ in range(2):
        prepared = backend.prepare(together)
        backend.measure(prepared, 4, 2)
        backend.release(prepared)
    backend.measure(alone, 4, 1)
    assert [t for t in tickets if t[0] == 1] == [(1, 3), (1, 4), (1, 5), (1, 6)]
    assert tickets[-1] == (0, 7) and gpu.hangs == []
