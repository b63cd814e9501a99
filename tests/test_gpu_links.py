"""Links of a GPU that is not there: every way over them arrives, is timed on its stream, and is checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bench.backends import cuda
from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.gpu import capacity, copies
from bench.gpu.copies import MOST_BOTH, MOST_QUEUED
from bench.gpu.engine import Engine
from bench.gpu.lanes import Lanes
from bench.planning.gpu_budget import BUDGETS
from bench.planning.plan import plan
from bench.profile.records import Point, Precision
from bench.running.measure import Session
from tests import link_bodies
from tests.fake_cupy import LATENCY, RATES
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left

FP32 = Precision.of("fp32")
KIB, MIB = 1 << 10, 1 << 20
__all__ = ["no_threads_are_left"]


@pytest.fixture
def real(gpu: FakeGpu) -> FakeGpu:
    link_bodies.install(gpu)
    return gpu


def crossing(kernel: str, access: str, size: int = MIB, variant: str = "", level: str = "host link") -> Point:
    level = {"copy-device": "device", "copy-peer": "peer 0>1"}.get(kernel, level)
    sizes = {"bytes": size}
    return Point("link", kernel, variant, FP32, level, access, scope="device", threads=2, sizes=sizes)


MEANS = (
    *(crossing("copy-pinned", access) for access in ("h2d", "d2h", "both")),
    *(crossing("copy-pageable", access) for access in ("h2d", "d2h")),
    *(crossing("zero-copy", access, variant="v16 l4 b256") for access in ("h2d", "d2h", "both")),
    *(crossing("managed", a, variant=v) for a in ("h2d", "d2h") for v in ("prefetch", "fault")),
    crossing("copy-device", "copy"),
    crossing("copy-pinned", "h2d", 1000),
)


def at_once(kernel: str, devices: int) -> Point:
    if kernel == "fma":
        return Point(
            "scaling", "fma", "8 chains b256", FP32, scope="device", threads=2, sizes={"devices": devices}
        )
    sizes = {"bytes": MIB, "devices": devices}
    return Point(
        "scaling", "read", "v16 l4 b256", FP32, "DRAM", "read", scope="device", threads=2, sizes=sizes
    )


def drafted(preset: str, **facts: Any) -> Any:
    from bench.backends import open_backend

    found = open_backend("sim:gpu-large")
    known = replace(found.device, facts={**found.device.facts, **facts})
    return plan(known, found.variants, preset).points


# every way from end to end


@pytest.mark.parametrize("point", MEANS, ids=lambda p: p.key)
def test_a_way_is_prepared_verified_measured_and_released(
    real: FakeGpu, backend: CudaBackend, point: Point
) -> None:
    before = real.used()
    assert backend.unsupported(point) == ""
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, min(3, prepared.most), 2)
    assert len(taken) == 2 and min(taken.seconds) > 0
    backend.release(prepared)
    assert real.used() == before and real.hangs == [] and real.races() == []


@pytest.mark.parametrize("point", MEANS, ids=lambda p: p.key)
def test_what_does_not_arrive_is_found(
    real: FakeGpu, backend: CudaBackend, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = backend.prepare(point)
    runtime = backend.engine.cupy.cuda.runtime
    real.bodies |= {name: lambda *_: None for name in real.bodies}

    def lost(*args: Any) -> None:
        real.call("memcpyAsync")

    download = Engine.download
    monkeypatch.setattr(
        Engine, "download", lambda *a, **k: _with(runtime, genuine, lambda: download(*a, **k))
    )
    genuine = runtime.memcpyAsync
    runtime.memcpyAsync = lost
    if (point.kernel == "managed" and point.variant == "prefetch") or (
        point.access == "d2h" and (point.kernel == "managed")
    ):
        prepared.handle.pages.view[17] ^= 1
    with pytest.raises(VerificationError, match=r"what arrived differs from what was sent; it is not timed"):
        backend.verify(prepared)


def _with(runtime: Any, genuine: Any, action: Callable[[], Any]) -> Any:
    broken, runtime.memcpyAsync = runtime.memcpyAsync, genuine
    try:
        return action()
    finally:
        runtime.memcpyAsync = broken


@pytest.mark.parametrize(
    ("point", "reads", "writes"),
    [
        (crossing("copy-pinned", "h2d"), MIB, 0),
        (crossing("copy-pinned", "d2h"), 0, MIB),
        (crossing("copy-pinned", "both"), MIB, MIB),
        (crossing("zero-copy", "d2h", MIB + 999, "v16 l4 b256"), 0, MIB),
        (crossing("copy-device", "copy"), MIB, 0),
    ],
    ids=lambda v: v.key if isinstance(v, Point) else None,
)
def test_bytes_count_one_way(
    real: FakeGpu, backend: CudaBackend, point: Point, reads: int, writes: int
) -> None:
    work = backend.prepare(point).work(7)
    assert (work.flops, work.reads[point.level], work.writes[point.level]) == (0.0, 7 * reads, 7 * writes)


# time


def seconds_of(backend: CudaBackend, point: Point, amount: int) -> float:
    prepared = backend.prepare(point)
    found = min(backend.measure(prepared, amount, 3).seconds)
    backend.release(prepared)
    return found


@pytest.mark.parametrize("access", ["h2d", "d2h"])
def test_copies_of_locked_memory_take_their_time_on_the_stream_and_no_more(
    real: FakeGpu, backend: CudaBackend, access: str
) -> None:
    found = seconds_of(backend, crossing("copy-pinned", access), 5)
    assert found == pytest.approx(5 * (LATENCY + MIB / RATES[access]), rel=1e-6)


def test_both_ways_at_once_overlap(real: FakeGpu, backend: CudaBackend) -> None:
    one = seconds_of(backend, crossing("copy-pinned", "h2d"), 5)
    both = seconds_of(backend, crossing("copy-pinned", "both"), 5)
    assert one <= both < 1.05 * one


def test_the_slower_way_ends_both(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RATES, "d2h", RATES["h2d"] / 3)
    both = seconds_of(backend, crossing("copy-pinned", "both"), 5)
    assert both == pytest.approx(5 * (LATENCY + MIB / RATES["d2h"]), rel=1e-3)


def test_a_lane_begins_when_the_timed_stream_comes_to_it(real: FakeGpu, backend: CudaBackend) -> None:
    engine, lanes = backend.engine, Lanes(backend.engine, [0])
    real.queue(1.0, "busy", stream=engine.stream.ptr, written=((1, 1),))
    with lanes.beside():
        real.queue(1e-3, "beside", stream=lanes.streams[0].ptr, engine="h2d", read=((2, 1),))
    busy, beside = real.ran[-2:]
    assert beside.start >= busy.end


def test_zero_copy_of_both_ways_leaves_nothing_on_the_gpu(real: FakeGpu, backend: CudaBackend) -> None:
    locked = {}
    for access in ("h2d", "d2h", "both"):
        backend.prepare(crossing("zero-copy", access, variant="v16 l4 b256"))
        args = real.launches[-1][3]
        locked[access] = real.locked(int(args[0])), real.locked(int(args[1]))
    assert locked == {"h2d": (False, True), "d2h": (True, False), "both": (True, True)}


def test_pageable_memory_goes_by_the_hosts_clock(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(crossing("copy-pageable", "h2d"))
    assert prepared.clock_source == "host"
    assert "hold" not in [name for name, *_ in real.launches[-4:]]
    backend.measure(prepared, 3, 1)
    assert real.hangs == [], "a held queue would never get there"


def test_all_copies_of_a_repetition_lie_in_the_queue(real: FakeGpu, backend: CudaBackend) -> None:
    one, both = (backend.prepare(crossing("copy-pinned", way, 1024)) for way in ("h2d", "both"))
    assert (one.most, both.most) == (MOST_QUEUED, MOST_BOTH)
    for prepared in (one, both):
        backend.measure(prepared, prepared.most, 10)
    assert real.hangs == []


def test_a_session_finds_alpha_and_beta(real: FakeGpu, backend: CudaBackend) -> None:
    rows = []
    for size in (KIB, MIB):
        planned = next(
            p
            for p in drafted("standard", gpus=[0])
            if p.point.kernel == "copy-pinned" and p.point.access == "h2d"
        )
        sample = Session(backend, 1, 1).sample(
            replace(planned, point=crossing("copy-pinned", "h2d", size)), 0
        )
        assert sample.status == "ok", sample.reason
        rows.append(min(sample.repetitions.seconds) / sample.facts["amount"])
    beta = (MIB - KIB) / (rows[1] - rows[0])
    assert beta == pytest.approx(RATES["h2d"], rel=0.01)
    assert rows[0] - KIB / beta == pytest.approx(LATENCY, rel=0.05)


# where the buffers lie


# capacity


def test_capacity_is_what_one_allocation_can_have(real: FakeGpu, backend: CudaBackend) -> None:
    held = backend.engine.allocate(MIB)
    found = capacity.usable(backend.engine)
    assert held and found["memory_total_bytes"] == real.total and found["memory_free_bytes"] < real.total
    assert found["memory_usable_bytes"] == pytest.approx(0.95 * found["memory_free_bytes"], rel=1e-6)
    prepared = backend.prepare(crossing("copy-device", "copy"))
    assert prepared.facts["memory_usable_bytes"] > 0 and prepared.facts["memory_traffic_per_byte"] == 2


def test_a_refused_allocation_is_a_capacity_of_nothing_with_its_reason(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Engine, bytes: int) -> None:
        raise MemoryError("fragmented")

    monkeypatch.setattr(Engine, "allocate", refuse)
    found = capacity.usable(backend.engine)
    assert (found["memory_usable_bytes"], found["memory_note"]) == (0, "fragmented")


# what cannot be measured


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (crossing("copy-pageable", "both"), "cannot send and receive at once"),
        (crossing("managed", "both"), "one way at a time"),
        (crossing("copy-device", "h2d"), "it has copy"),
        (crossing("managed", "h2d", variant="swap"), "valid are prefetch, fault"),
        (crossing("storage", "read", level="storage"), "on hosts only"),
        (crossing("copy-peer", "write"), "1 GPU visible here, 2 wanted: cuda:1"),
        (replace(crossing("copy-peer", "write"), level="peer 1"), "no pair of GPUs"),
    ],
    ids=lambda v: v.key if isinstance(v, Point) else None,
)
def test_what_a_gpu_has_not_is_said(backend: CudaBackend, point: Point, words: str) -> None:
    assert words in backend.unsupported(point)


def test_pages_that_do_not_move_on_demand_are_said(gpu: FakeGpu, backend: CudaBackend) -> None:
    gpu.managed = False
    assert "not paged on demand" in backend.unsupported(crossing("managed", "h2d", variant="fault"))


@pytest.mark.parametrize("kernel", ["zero-copy", "managed"])
def test_kernels_and_pages_move_whole_tiles(real: FakeGpu, backend: CudaBackend, kernel: str) -> None:
    with pytest.raises(DeviceError, match="1024 byte hold no tile of 16384 byte"):
        backend.prepare(crossing(kernel, "h2d", 1024))


# the installed CuPy


def test_every_name_exists_in_cupy() -> None:
    cupy: Any = pytest.importorskip("cupy", exc_type=ImportError)

    runtime = cupy.cuda.runtime
    used = """memcpyAsync memcpyPeerAsync memPrefetchAsync memsetAsync memGetInfo deviceCanAccessPeer
        deviceEnablePeerAccess deviceGetPCIBusId deviceGetAttribute CUDARuntimeError hostAllocMapped
        hostAllocPortable memcpyHostToDevice memcpyDeviceToHost memcpyDeviceToDevice cudaCpuDeviceId
        cudaDevAttrConcurrentManagedAccess"""
    for name in used.split():
        assert hasattr(runtime, name), name
    for name in ("PinnedMemory", "malloc_managed", "Stream", "Event", "Device", "get_elapsed_time", "alloc"):
        assert hasattr(cupy.cuda, name), name
    assert hasattr(cupy.cuda.Stream, "wait_event") and hasattr(cupy.cuda.Device, "__enter__")
    assert (runtime.cudaCpuDeviceId, runtime.cudaDevAttrConcurrentManagedAccess) == (-1, 89)
    for name, words in (
        ("memcpyPeerAsync", "dst, int dstDevice, intptr_t src, int srcDevice, size_t size, intptr_t stream"),
        ("memPrefetchAsync", "devPtr, size_t count, int dstDevice, intptr_t stream"),
        ("memcpyAsync", "dst, intptr_t src, size_t size, int kind, intptr_t stream"),
    ):
        assert words in getattr(runtime, name).__doc__


def test_copies_know_the_module_of_each_family() -> None:
    for place in cuda.MAKERS.values():
        module, name = place.split(":")
        assert hasattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name)
    assert cuda.maker_of(at_once("fma", 2)) == "devices"
    assert cuda.maker_of(replace(at_once("fma", 2), sizes={})) == "scaling"
    assert copies.ZERO_COPY[0] == BUDGETS["standard"].other_means["zero-copy"][0]
