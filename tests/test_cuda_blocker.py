"""Launches of the CUDA backend that wait behind the blocker, the flush, and the stream that is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError
from bench.gpu.batches import PATIENCE, QUEUED, Batches, Task
from bench.gpu.engine import Engine
from tests.fake_cupy import Stream
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import Board, device, held, stream
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left as no_threads_are_left


@pytest.mark.parametrize("launches", [1, QUEUED - 1, QUEUED, QUEUED + 1, 3000])
def test_launches_wait_behind_the_blocker_and_none_hangs(
    gpu: FakeGpu, backend: CudaBackend, launches: int
) -> None:
    prepared = backend.prepare(stream("copy"))
    taken = backend.measure(prepared, launches, 2)
    assert held(gpu) == 1 and gpu.hangs == []
    assert taken.seconds == pytest.approx([launches * 1.1e-5] * 2, rel=1e-6)
    assert prepared.facts["blocker"] == "on" and prepared.facts["launches"] == launches
    assert not prepared.facts["host_bound"]
    assert prepared.facts["event_share"] == pytest.approx(1.0, abs=0.7 if launches == 1 else 0.05)


def test_without_the_blocker_the_queueing_shows(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_NO_BLOCKER", "1")
    gpu.seconds = lambda *_: 1e-6
    backend = CudaBackend(device(), Board(), Engine(gpu.now))
    prepared = backend.prepare(stream("copy"))
    taken = backend.measure(prepared, 1000, 1)
    assert held(gpu) == 0 and prepared.facts["blocker"] == "off: --no-blocker"
    assert taken.seconds[0] > 1000 * 4e-6 and prepared.facts["host_bound"]


def test_with_serialised_launches_nothing_is_held(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    batches = Batches(Engine(gpu.now))
    batches.run(slow_task(batches.engine, gpu), 1, 1)
    assert held(gpu) == 0


def slow_task(engine: Engine, gpu: FakeGpu, host_seconds: float = 0.0) -> Task:
    """One launch that takes the host a while to queue."""

    def launch(amount: int) -> None:
        gpu.call("launch")
        gpu.clock += host_seconds
        gpu.look()
        gpu.queue(1e-3, "slow")

    return Task("slow", launch)


def test_a_blocker_that_gives_up_is_tried_again_and_then_left_out(gpu: FakeGpu) -> None:
    batches = Batches(Engine(gpu.now))
    task = slow_task(batches.engine, gpu, 1.1 * PATIENCE)
    batch = batches.run(task, 2, 1)
    assert held(gpu) == 2 and batch.evidence["blocker"] == "off: the GPU waited 2 s for the host, 2 times"
    batches.run(slow_task(batches.engine, gpu), 1, 1)
    assert held(gpu) == 2


def test_a_late_blocker_does_not_spoil_the_next_batch(gpu: FakeGpu) -> None:
    batches = Batches(Engine(gpu.now))
    slow = iter([0.0, 1.1 * PATIENCE, *[0.0] * 9])

    def launch(amount: int) -> None:
        gpu.clock += next(slow)
        gpu.call("launch")
        gpu.queue(1e-3, "now and then")

    batch = batches.run(Task("now and then", launch), 1, 1)
    assert held(gpu) == 2 and batch.seconds == pytest.approx([1e-3]) and batch.evidence["blocker"] == "on"


def test_calls_within_a_whole_launch_fill_the_queue_too(gpu: FakeGpu) -> None:
    batches = Batches(Engine(gpu.now))

    def launch(amount: int) -> None:
        for _ in range(4 * amount):  # a library queues several entries a call
            gpu.call("launch")
            gpu.queue(1e-5, "operation")

    batches.run(Task("operations", launch, whole=True, each=1), 20, 16)
    assert gpu.hangs == [] and held(gpu) == 1
    batches.run(Task("operations", launch, whole=True), 20, 16)
    assert gpu.hangs and held(gpu) == 3


def test_a_flush_is_queued_before_each_repetition_and_not_timed(gpu: FakeGpu) -> None:
    engine = Engine(gpu.now)
    batches, order = Batches(engine), gpu.calls
    task = replace(slow_task(engine, gpu), flushed=True)
    batches.run(task, 1, 1)
    before = len(order)
    batch = batches.run(task, 2, 2)
    kept = [name for name in order[before:] if name in ("memsetAsync", "eventRecord", "launch")]
    assert kept[1:] == ["memsetAsync", "eventRecord", "launch", "launch", "eventRecord"] * 2, (
        "first: the hold"
    )
    assert batch.seconds == pytest.approx([2e-3] * 2) and engine._flushed._size == 2 * (1 << 16)


def test_arrays_that_fit_the_cache_are_flushed_out_of_it(gpu: FakeGpu, backend: CudaBackend) -> None:
    cache = backend.device.last_level_cache_bytes
    for bytes, flushes in ((cache // 4, 3), (4 * cache, 0)):
        prepared = backend.prepare(stream("read", bytes=bytes))
        gpu.calls.clear()
        backend.measure(prepared, 2, 3)
        assert gpu.calls.count("memsetAsync") == flushes


def test_memory_is_taken_on_the_stream_that_is_timed(gpu: FakeGpu, backend: CudaBackend) -> None:
    used: list[Any] = []
    own = backend.engine.allocate

    def allocate(bytes: int) -> Any:
        used.append(Stream.current)
        return own(bytes)

    backend.engine.allocate = allocate  # type: ignore[method-assign]
    Stream.current = None  # as after a block of somebody else's stream
    backend.prepare(stream("copy"))
    assert used and all(stream is backend.engine.stream for stream in used)


def test_events_that_run_backwards_are_no_clock(gpu: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(stream("copy"))
    gpu.wrong = True
    with pytest.raises(DeviceError, match="cannot be used"):
        backend.measure(prepared, 1, 1)
