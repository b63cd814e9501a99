"""Links of a GPU that is not there: every way over them arrives, is timed on its stream, and is checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.backends import cuda
from bench.backends.cuda import CudaBackend
from bench.backends.simulated import SimulatedBackend
from bench.errors import DeviceError, VerificationError
from bench.fitting import offload
from bench.gpu import boards, capacity, copies, host_memory, visible
from bench.gpu.boards import Boards
from bench.gpu.copies import MOST_BOTH, MOST_QUEUED, WAYS
from bench.gpu.engine import Engine
from bench.gpu.host_memory import TILE, Buffer, compare, nearest, patterned
from bench.gpu.lanes import Lanes
from bench.gpu.peers import pair_of
from bench.gpu.telemetry import Window
from bench.gpucheck import links
from bench.gpucheck.bed import Bed
from bench.planning import gpu_link_points
from bench.planning.gpu_budget import BUDGETS
from bench.planning.plan import plan
from bench.planning.planned import TOGETHER
from bench.profile.records import Point, Precision, Sample
from bench.running.measure import Session
from kernels import KERNELS
from tests import link_bodies
from tests.fake_cupy import CALL, LATENCY, RATES, FakeGpu
from tests.synthetic import ceiling, synthetic_profile
from tests.test_cuda_backend import Board, device, no_threads_are_left
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu

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


def test_pages_are_sent_back_before_every_repetition(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(crossing("managed", "h2d", variant="prefetch"))
    assert (prepared.least, prepared.most) == (1, 1)
    real.calls.clear()
    taken = backend.measure(prepared, 1, 3)
    assert real.calls.count("memPrefetchAsync") == 6
    assert taken.seconds == pytest.approx([LATENCY + MIB / RATES["h2d"]] * 3, abs=CALL * 1.01)
    fault = backend.prepare(crossing("managed", "d2h", variant="fault"))
    assert fault.clock_source == "host" and prepared.clock_source == ""


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
            for p in _planned("standard", gpus=[0])
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


def machine(root: Path, nodes: dict[int, str], node: str) -> None:
    for number, cpus in nodes.items():
        place = root / f"sys/devices/system/node/node{number}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cpus + "\n")
        (place / "meminfo").write_text(f"Node {number} MemTotal: 1048576 kB\n")
    place = root / "sys/bus/pci/devices/0000:3b:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text(node + "\n")


@pytest.mark.parametrize(
    ("node", "number", "words"),
    [
        ("0", 0, "touched first by CPUs of node 0"),
        ("1", 1, "no CPU of ours is on the GPU's memory node 1"),
        ("-1", None, "does not tell"),
    ],
)
def test_buffers_lie_on_the_node_next_to_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, number: int | None, words: str
) -> None:
    machine(tmp_path, {0: "0-3", 1: ""}, node)
    asked: list[frozenset[int]] = []
    monkeypatch.setattr(host_memory.os, "sched_getaffinity", lambda pid: {0, 1, 7})
    monkeypatch.setattr(host_memory.os, "sched_setaffinity", lambda pid, cpus: asked.append(frozenset(cpus)))
    near = nearest("0000:3B:00.0", tmp_path)
    assert near.node == number and words in near.facts["buffers"]
    assert near.facts["nodes_without_cpus"] == [1], "memory of a GPU on GH200, told apart"
    with near.threads():
        pass
    assert asked == ([frozenset({0, 1})] if number == 0 else []) + [frozenset({0, 1, 7})]


def test_facts_say_where_buffers_lie_and_the_link_under_load(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(crossing("copy-pinned", "h2d"))
    assert {"gpu_node", "buffers", "nodes_without_cpus", "cupy"} <= {*prepared.facts}
    windows = [Window(pcie_generation=1, pcie_width=16), Window(pcie_generation=5, pcie_width=16), Window()]
    assert cuda.under_load(windows) == {"pcie_generation": 5, "pcie_width": 16}
    assert cuda.under_load([Window()]) == {}


def test_locked_memory_stays_for_the_next_point(real: FakeGpu, backend: CudaBackend) -> None:
    for size in (MIB, 4 * KIB, MIB):
        backend.release(backend.prepare(crossing("copy-pinned", "h2d", size)))
    assert sorted(real.pinned.values()) == [64, MIB, MIB]


def test_no_two_tiles_of_the_pattern_are_alike() -> None:
    view = np.zeros(3 * TILE + 100, np.uint8)
    patterned(view)
    tiles = view[: 3 * TILE].reshape(3, TILE)
    assert not np.array_equal(tiles[0], tiles[1]) and not np.array_equal(tiles[1], tiles[2])
    swapped = np.concatenate([tiles[1], tiles[0], tiles[2], view[3 * TILE :]])
    with pytest.raises(VerificationError):
        compare("a copy", Buffer(0, view), lambda start, stop: swapped[start:stop])
    compare("a copy", Buffer(0, view), lambda start, stop: view[start:stop])


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


# other GPUs


TWO = {"ROOFLINE_GPU": "cuda:2", "ROOFLINE_GPUS": "2=GPU-c,0=GPU-a,1=GPU-b"}


@pytest.fixture
def three(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    """cuda:2 measures, and sees cuda:0 and cuda:1 as its ordinals 1 and 2."""
    link_bodies.install(gpu)
    gpu.devices = 3
    for name, value in {**TWO, **visible.widened(TWO)}.items():
        monkeypatch.setenv(name, value)
    return CudaBackend(device(), Board(), Engine(gpu.now))


def peer(one: int, other: int, access: str = "write", size: int = MIB) -> Point:
    return replace(crossing("copy-peer", access, size), level=f"peer {one}>{other}")


@pytest.mark.parametrize("access", ["write", "both"])
@pytest.mark.parametrize("pair", [(2, 0), (0, 1), (1, 2)])
def test_every_pair_of_gpus_is_measured_where_its_memory_is(
    gpu: FakeGpu, three: CudaBackend, pair: tuple[int, int], access: str
) -> None:
    before = gpu.used()
    prepared = three.prepare(peer(*pair, access))
    three.verify(prepared)
    taken = three.measure(prepared, 4, 2)
    assert taken.seconds == pytest.approx([4 * (LATENCY + MIB / RATES["peer"])] * 2, rel=1e-6)
    assert prepared.facts["peer_access"] == [True, True]
    three.release(prepared)
    assert gpu.used() == before and gpu.hangs == [] and gpu.current == 0
    three.prepare(peer(*pair, access))  # peer access is enabled already


def test_without_direct_access_the_copy_goes_over_the_host(gpu: FakeGpu, three: CudaBackend) -> None:
    gpu.peers = False
    prepared = three.prepare(peer(2, 0))
    assert prepared.facts["peer_access"] == [False, False]
    assert min(three.measure(prepared, 1, 1).seconds) > 3 * MIB / RATES["peer"]


def test_a_copy_between_gpus_that_loses_its_way_is_found(
    gpu: FakeGpu, three: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = three.prepare(peer(2, 0, "both"))
    runtime, genuine = three.engine.cupy.cuda.runtime, three.engine.cupy.cuda.runtime.memcpyPeerAsync
    runtime.memcpyPeerAsync = lambda to, on, source, device, size, stream: (
        genuine(to, on, source, device, size, stream) if on == 1 else None
    )
    with pytest.raises(VerificationError, match="what arrived differs"):
        three.verify(prepared)


def test_a_process_sees_one_gpu_unless_it_needs_the_others() -> None:
    a, b, slice = (visible.Visible(n, f"GPU-{n}", f"GPU-{n}", "x") for n in range(3))
    slice = replace(slice, profile="1g.10gb")
    alone, several = visible.child_environment(a, [a]), visible.child_environment(b, [a, b, slice])
    assert "ROOFLINE_GPUS" not in alone and "ROOFLINE_GPUS" not in visible.child_environment(slice, [a, b])
    assert several["CUDA_VISIBLE_DEVICES"] == "GPU-1" and several["ROOFLINE_GPUS"] == "1=GPU-1,0=GPU-0"
    assert visible.numbers(several) == (1,)
    assert visible.widened(alone) == {}
    assert visible.numbers({**several, **visible.widened(several)}) == (1, 0)


def test_only_the_process_for_all_gpus_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.running.worker import Worker
    from tests.fake_device import FakeBackend

    for name, value in {**TWO, "CUDA_VISIBLE_DEVICES": "GPU-c"}.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []

    def opened(name: str) -> FakeBackend:
        seen.append(cuda_visible())
        return FakeBackend()

    for more in ({}, {"together": True}):
        Worker(opened).answer({"open": "cuda:2", "round": 1, "process": 1, **more})
    assert seen == ["GPU-c", "GPU-c,GPU-a,GPU-b"]


def cuda_visible() -> str:
    import os

    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_pairs_are_named_by_number() -> None:
    assert pair_of("peer 3>11") == (3, 11)
    for wrong in ("peer 1>1", "peer 1", "3>4", "peer a>b"):
        with pytest.raises(DeviceError, match="no pair of GPUs"):
            pair_of(wrong)


# the same work on several GPUs


def at_once(kernel: str, devices: int) -> Point:
    if kernel == "fma":
        return Point(
            "scaling", "fma", "8 chains b256", FP32, scope="device", threads=2, sizes={"devices": devices}
        )
    sizes = {"bytes": MIB, "devices": devices}
    return Point(
        "scaling", "read", "v16 l4 b256", FP32, "DRAM", "read", scope="device", threads=2, sizes=sizes
    )


@pytest.mark.parametrize("kernel", ["fma", "read"])
def test_several_gpus_begin_together_and_the_slowest_counts(
    gpu: FakeGpu, three: CudaBackend, kernel: str
) -> None:
    one, all = three.prepare(at_once(kernel, 1)), three.prepare(at_once(kernel, 3))
    assert all.work(5).flops == 3 * one.work(5).flops
    alone, together = three.measure(one, 200, 2), three.measure(all, 200, 2)
    assert together.seconds == pytest.approx(alone.seconds, rel=0.1), "each has its own SMs"
    assert all.facts["gpus"] == [2, 0, 1] and all.facts["slowest_over_fastest"] == pytest.approx(1.0, abs=0.1)
    three.release(all)
    three.release(one)
    assert gpu.hangs == [] and gpu.current == 0
    assert "3 GPUs visible here, 4 wanted" in three.unsupported(at_once(kernel, 4))


def test_every_gpu_waits_for_the_host_and_an_early_one_is_noticed(
    gpu: FakeGpu, three: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = three.prepare(at_once("fma", 3))
    gpu.launches.clear()
    three.measure(prepared, 10, 2)
    assert [name for name, *_ in gpu.launches].count("hold") == 2 * 3
    monkeypatch.setattr(boards, "PATIENCE", 1e-6)
    with pytest.raises(DeviceError, match=r"GPUs \[.*\] began before the others"):
        three.measure(prepared, 10, 1)


def test_more_gpus_than_are_visible_are_not_measured(backend: CudaBackend) -> None:
    assert backend.unsupported(at_once("fma", 2)) == "1 GPU visible here, 2 wanted"
    with pytest.raises(DeviceError, match="cuda:1 is not visible"):
        Boards(backend.bodies).ordinal(1)


# the plan


def _planned(preset: str, **facts: Any) -> Any:
    from bench.backends import open_backend

    found = open_backend("sim:gpu-large")
    known = replace(found.device, facts={**found.device.facts, **facts})
    return plan(known, found.variants, preset).points


def test_every_planned_link_is_one_that_a_gpu_has() -> None:
    for preset in BUDGETS:
        for p in _planned(preset, gpus=[0, 1, 3]):
            if p.point.family == "link":
                assert p.point.access in WAYS[p.point.kernel]
                assert p.point.kernel not in ("zero-copy", "managed") or p.point.sizes["bytes"] >= 64 * KIB
                assert KERNELS[p.point.kernel].family == "link"


def test_ceilings_of_the_host_link_are_measured_in_every_round_and_over_enough_sizes() -> None:
    for preset, least in (("quick", 3), ("standard", 8), ("full", 8)):
        pinned = [p for p in _planned(preset) if p.point.kernel == "copy-pinned"]
        for access in BUDGETS[preset].host_ways:
            sizes = {p.point.sizes["bytes"] for p in pinned if p.point.access == access}
            assert len(sizes) >= least and min(sizes) == (64 * KIB if preset == "quick" else KIB)
        assert not any(p.times for p in pinned)


def test_the_matrix_of_peers_is_full_and_has_its_own_process() -> None:
    points = [p for p in _planned("standard", gpus=[0, 1, 3]) if p.point.kernel == "copy-peer"]
    assert {p.point.level for p in points} == {
        f"peer {i}>{j}" for i in (0, 1, 3) for j in (0, 1, 3) if i != j
    }
    assert {p.process for p in points} == {TOGETHER}
    for level in {p.point.level for p in points}:
        own = [p.point.sizes["bytes"] for p in points if (p.point.level, p.point.access) == (level, "write")]
        assert len(own) >= 3, "a line needs three sizes"
    assert {p.point.level for p in points if p.point.access == "both"} == {"peer 0>1", "peer 0>3", "peer 1>3"}
    several = [p for p in _planned("standard", gpus=[0, 1, 3]) if "devices" in p.point.sizes]
    assert {p.process for p in several} == {TOGETHER}
    assert {p.point.sizes["devices"] for p in several if p.point.family == "scaling"} == {1, 2, 3}


def test_one_gpu_is_said_to_be_alone() -> None:
    from bench.backends import open_backend

    found = open_backend("sim:gpu-large")
    notes = plan(found.device, found.variants, "standard").notes
    for what in ("link from GPU to GPU", "collective", "several GPUs at once"):
        assert any(note.startswith(what) and "one whole GPU" in note for note in notes)
    assert not [p for p in _planned("standard") if p.process == TOGETHER]


def test_transfers_leave_room_in_memory() -> None:
    small = [p.point for p in _planned("full") if p.point.family == "link"]
    from bench.backends import open_backend

    found = open_backend("sim:gpu-small")
    tight = plan(found.device, found.variants, "full", memory=1e9).points
    largest = max(p.point.sizes["bytes"] for p in tight if p.point.family == "link")
    assert largest <= 1e9 * gpu_link_points.DEVICE_SHARE
    assert max(p.sizes["bytes"] for p in small) == 1 << 30


# checks of gpu-check


@pytest.mark.parametrize(
    ("rate", "generation", "width", "status", "words"),
    [
        (0.985, 5, 16, "ok", "at least"),
        (0.97, 5, 16, "FAIL", "at least"),
        (0.5, 5, 8, "ok", "no published figure"),
        (0.5, 9, 16, "ok", "no published figure"),
        (0.5, None, None, "ok", "told, not judged"),
    ],
)
def test_the_host_link_is_judged_by_what_its_generation_gives_others(
    rate: float, generation: int | None, width: int | None, status: str, words: str
) -> None:
    known = links.published(5, "h2d")
    assert known and 5e10 < known < 6.3e10, "below what 16 lanes carry"
    (check,) = links.judged("host link", rate * known, "h2d", generation, width)
    assert check.status == status and words in check.expected
    assert not list(links.judged("host link", None, "h2d", 5, 16))


def test_a_run_is_judged_by_the_link_that_its_samples_saw() -> None:
    beta = ceiling(
        quantity="beta", value=4e10, unit="byte/s", kernel="copy-pinned", access="h2d", level="host link"
    )
    point = crossing("copy-pinned", "h2d")
    idle, busy = (
        Sample(point, 1, 1, 0, facts={"pcie_generation": generation, "pcie_width": 16})
        for generation in (1, 5)
    )
    profile = replace(synthetic_profile(), ceilings=(beta,))
    (check,) = links.measured([idle, busy], profile)
    assert check.status == "FAIL" and "PCIe 5 x16 under load" in check.value
    (check,) = links.measured([], profile)
    assert check.status == "ok" and "link not told" in check.value


def test_a_working_set_beyond_the_memory_costs_the_links_slope() -> None:
    common = {"quantity": "beta", "unit": "byte/s", "regime": "typical"}
    dram = ceiling(**common, value=4e12, kernel="read", access="read", level="DRAM")
    zero = ceiling(**common, value=5e10, kernel="zero-copy", access="h2d", level="host link")
    fault = ceiling(**common, value=2e10, kernel="managed", access="h2d", level="host link")
    pinned = ceiling(**common, value=6e10, kernel="copy-pinned", access="h2d", level="host link")
    found = offload.beyond([dram, zero, fault, pinned])
    assert (found["kernel"], found["beta"], found["slowdown"]) == ("zero-copy", 5e10, 80.0)
    assert offload.beyond([zero, pinned]) == {} and offload.beyond([dram, pinned]) == {}


def test_a_copy_engine_that_is_slower_than_pages_is_noticed() -> None:
    class Slow(SimulatedBackend):
        def measure(self, prepared: Any, amount: int, n: int) -> Any:
            found = super().measure(prepared, amount, n)
            factor = 3.0 if prepared.point.kernel == "copy-pinned" else 1.0
            return replace(found, seconds=tuple(factor * s for s in found.seconds))

    sound = {c.name: c.status for c in links.links(Bed(SimulatedBackend.named("gpu-large")))}
    broken = {c.name: c.status for c in links.links(Bed(Slow.named("gpu-large")))}
    assert set(sound.values()) <= {"ok", "skip"} and sound["both ways at once / one way"] == "ok"
    assert broken["zero-copy / copy of locked memory"] == "FAIL"


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
