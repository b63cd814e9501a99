"""Working sets, starts and fewer SMs on a GPU that is not there: shapes, work, checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.backends.cuda import MAKERS, CudaBackend
from bench.errors import VerificationError
from bench.gpu.hierarchy import SHARED
from bench.gpu.overheads import MOST_QUEUED, REPLAYED
from bench.planning.plan import plan
from bench.profile.records import Point, Precision
from bench.running.measure import Session
from kernels import CUDA, working_sets
from tests import hierarchy_bodies as does
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import BLOCKS_PER_SM, SMS, device, no_threads_are_left
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu

FP32 = Precision.of("fp32")
__all__ = ["no_threads_are_left"]


@pytest.fixture
def real(gpu: FakeGpu) -> FakeGpu:
    does.install(gpu)
    return gpu


def cached(access: str, variant: str, level: str, bytes: int, threads: int = SMS, **more: int) -> Point:
    store = "none" if access == "read" else "ordinary"
    sizes = {"bytes": bytes, **({"plateau": 1} | more)}
    scope = "device" if threads == SMS else "core"
    return Point("cache", f"cache-{access}", variant, FP32, level, access, store, scope, threads, sizes=sizes)


def chased(chains: int, level: str, bytes: int, threads: int = 1, **more: int) -> Point:
    sizes = {"bytes": bytes, "line": 128, **more}
    variant = f"{chains} chain" + "s" * (chains > 1)
    return Point("latency", "chase", variant, FP32, level, "read", scope="core", threads=threads, sizes=sizes)


def started(kernel: str, variant: str, **sizes: int) -> Point:
    level, access = ("DRAM", "copy") if sizes else ("", "none")
    return Point("launch", kernel, variant, FP32, level, access, scope="device", threads=SMS, sizes=sizes)


SETS = (
    cached("read", "ca l8 b1024", "L1", 40_000),
    cached("read", "nc l8 b512", "L1", 40_000),
    cached("read", "cg l8 b1024", "L2", 300_000),
    cached("read", "cg l8 whole b1024", "L2", 300_000, whole=1),
    cached("write", "cg l4 b512", "L2", 300_000),
    cached("update", "cg l8 b1024", "L2", 300_000),
    cached("copy", "cg l4 b1024", "L2", 300_000),
    cached("read", "na l8 b1024", "L2", 300_000),
    cached("read", "na l8 whole b1024", "L2", 300_000, whole=1),
    *(cached(access, "shared l8 b1024", SHARED, 32768) for access in ("read", "write", "update", "copy")),
)
CHASES = (
    chased(1, "L2", 1 << 18, plateau=1),
    chased(1, "L1", 1 << 14),
    chased(16, "L2", 1 << 16, SMS),
    chased(64, "DRAM", 1 << 16, 1),
    chased(256, "DRAM", 1 << 18, SMS),
    Point(
        "latency",
        "chase",
        "1 chain",
        FP32,
        SHARED,
        "read",
        scope="core",
        sizes={"bytes": 16384, "plateau": 1},
    ),
)
STARTS = (
    *(started("empty", variant) for variant in ("plain", "graph", "host", "sync")),
    started("smallest", "plain", bytes=100_000),
)


@pytest.mark.parametrize("point", [*SETS, *CHASES, *STARTS], ids=lambda p: p.key)
def test_a_point_is_prepared_verified_measured_and_released(
    real: FakeGpu, backend: CudaBackend, point: Point
) -> None:
    before = real.used()
    assert backend.unsupported(point) == ""
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, 3 * prepared.step, 2)
    assert len(taken) == 2 and min(taken.seconds) > 0
    backend.release(prepared)
    flushed = backend.engine._flushed
    assert real.used() == before + (flushed._size if flushed else 0) and real.hangs == []


@pytest.mark.parametrize("point", SETS, ids=lambda p: p.key)
def test_a_walk_that_leaves_a_trip_out_is_found(real: FakeGpu, backend: CudaBackend, point: Point) -> None:
    prepared = backend.prepare(point)
    form = backend.bodies.choose(point).form
    real.bodies[form.entry] = does.passing(form.entry, point.access, skip=3 if point.access != "read" else 1)
    with pytest.raises(VerificationError, match="it is not timed"):
        backend.verify(prepared)


# working sets


def test_a_set_is_the_sms_and_every_load_is_counted(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(SETS[0])
    name, grid, block, args, _ = real.launches[-1]
    assert (name, grid, block) == ("cache_read_ca_l8", SMS * BLOCKS_PER_SM, 1024)
    vectors = 40_000 // BLOCKS_PER_SM // 16 // 32 * 32
    assert args[4] == 4 * vectors and prepared.facts["set_bytes"] == grid * 16 * vectors
    assert prepared.work(5).reads == {"L1": 5 * grid * 1024 * 8 * 16} and prepared.work(5).writes == {"L1": 0}
    assert prepared.facts["sms"] == grid, "the stand-in has an SM for each block"


def test_a_launch_passes_a_large_set_at_least_once(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(replace(SETS[0], level="DRAM", sizes={"bytes": 3 << 20}))
    assert prepared.least == prepared.step == (3 << 20) // BLOCKS_PER_SM // (1024 * 8 * 16)
    assert prepared.most % prepared.step == 0
    small = backend.prepare(cached("read", "ca l8 b1024", "L1", 4096))
    assert (small.least, small.facts["set_bytes"]) == (1, 4096 * SMS)


def test_a_whole_set_is_there_once_and_walked_from_different_places(
    real: FakeGpu, backend: CudaBackend
) -> None:
    prepared = backend.prepare(SETS[3])
    assert prepared.facts["passes"] == "whole" and prepared.facts["set_bytes"] == 300_000 // 512 * 512
    assert prepared.work(1).reads["L2"] == SMS * BLOCKS_PER_SM * 1024 * 8 * 16, "by all blocks"


def test_copies_count_both_arrays_of_the_set(real: FakeGpu, backend: CudaBackend) -> None:
    copy = backend.prepare(SETS[6])
    assert copy.facts["set_bytes"] == pytest.approx(300_000 * SMS, rel=0.02)
    work = copy.work(copy.step)
    assert work.reads == work.writes and work.flops == 0


def test_a_level_has_the_operators_that_stay_in_it(backend: CudaBackend) -> None:
    ways = {level: backend.variants("cache-read", FP32, level, SMS) for level in ("L1", SHARED, "L2", "DRAM")}
    assert {v.split()[0] for v in ways["L1"]} == {"ca", "nc"} and ways["L1"][0] == "ca l8 b1024"
    assert {v.split()[0] for v in ways["L2"]} == {"cg", "na"} and ways["L2"] == ways["DRAM"]
    assert ways["L2"][:3] == ("cg l8 b1024", "cg l4 b1024", "na l8 b1024"), "even a quick run tries all"
    assert {v.split()[0] for v in ways[SHARED]} == {"shared"}
    assert "does not measure L1" in backend.unsupported(cached("read", "cg l8 b1024", "L1", 4096))
    assert "does not measure L2" in backend.unsupported(cached("read", "cg l8 b1024", "L2", 4096, whole=1))
    assert "does not measure shared" in backend.unsupported(cached("read", "ca l8 b1024", SHARED, 4096))
    assert "has 2 SMs, not 3" in backend.unsupported(replace(SETS[0], threads=3))
    assert backend.unsupported(Point("latency", "chase-local", "", FP32)).startswith(
        "chase-local is for CPUs"
    )


def test_l1_is_asked_for_as_large_as_it_gets(gpu: FakeGpu, backend: CudaBackend, monkeypatch: Any) -> None:
    from tests import fake_cupy

    asked: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        fake_cupy.RawKernel,
        "__setattr__",
        lambda self, name, value: (asked.append((name, value)), object.__setattr__(self, name, value))[1],
    )
    backend.prepare(SETS[0])
    assert ("preferred_shared_memory_carveout", 0) in asked
    asked.clear()
    backend.prepare(SETS[-1])
    assert ("max_dynamic_shared_size_bytes", working_sets.SHARED_BYTES) in asked
    assert not [value for name, value in asked if name == "preferred_shared_memory_carveout"]


# fewer SMs, few blocks


@pytest.mark.parametrize("kernel", ["cache-read", "fma"])
def test_fewer_sms_get_one_block_each(real: FakeGpu, backend: CudaBackend, kernel: str) -> None:
    variant = "8 chains b1024" if kernel == "fma" else "cg l8 b1024"
    point = replace(cached("read", variant, "L2", 1 << 18, 1), family="scaling", kernel=kernel)
    point = replace(point, sizes={"bytes": 1 << 18} if kernel != "fma" else {})
    assert backend.unsupported(point) == ""
    one = backend.prepare(point)
    assert real.launches[-1][1:3] == (1, 1024)
    two = backend.prepare(replace(point, threads=SMS, scope="device"))
    assert real.launches[-1][1:3] == (SMS, 1024), "one block an SM, also on all of them"
    ratio = (
        two.work(1).flops / one.work(1).flops
        if kernel == "fma"
        else two.work(1).bytes("L2") / one.work(1).bytes("L2")
    )
    assert ratio == SMS
    assert "not measured on fewer SMs" in backend.unsupported(
        replace(point, kernel="copy", variant="v16 l4 b256")
    )


def test_a_slice_lies_behind_those_before_it(real: FakeGpu, backend: CudaBackend) -> None:
    point = replace(cached("read", "cg l8 b1024", "L2", 1 << 18, 1), family="scaling")
    first = backend.prepare(replace(point, sizes={"bytes": 1 << 18}))
    begins = int(real.launches[-1][3][1])
    third = backend.prepare(replace(point, sizes={"bytes": 1 << 18, "slice": 2}))
    memory = third.handle.memory[1]
    assert int(real.launches[-1][3][1]) == memory.ptr == memory.whole.ptr + (2 << 18) and begins
    assert first.work(1) == third.work(1)


def test_the_sweep_runs_with_as_few_blocks_as_it_is_told(gpu: FakeGpu, backend: CudaBackend) -> None:
    sizes = {"bytes": 1 << 17, "fma": 16 * 64, "block": 16}
    point = Point("mix", "mix-read-only", "coarse b128", FP32, "DRAM", "read", scope="device", sizes=sizes)
    grids = []
    for few in ({}, {"blocks_per_sm": 1}, {"blocks_per_sm": 99}):
        backend.prepare(replace(point, sizes={**sizes, **few}))
        grids.append(gpu.launches[-1][1])
    assert grids == [SMS * BLOCKS_PER_SM, SMS, SMS * BLOCKS_PER_SM]
    covering = replace(point, kernel="mix-in-place", sizes={**sizes, "blocks_per_sm": 1})
    with pytest.raises(Exception, match="blocks an SM cannot be chosen"):
        backend.prepare(covering)


# starts


def test_starts_lie_in_the_queue_before_the_first_begins(real: FakeGpu, backend: CudaBackend) -> None:
    real.seconds = lambda *_: 2e-6
    prepared = backend.prepare(started("empty", "plain"))
    assert prepared.most == MOST_QUEUED and prepared.clock_source == ""
    taken = backend.measure(prepared, 200, 3)
    assert [s / 200 for s in taken.seconds] == pytest.approx([2e-6] * 3), "not what the host needs"
    assert np.diff(taken.start).min() > 0


def test_a_graph_is_recorded_once_and_an_amount_counts_its_kernels(
    real: FakeGpu, backend: CudaBackend
) -> None:
    real.seconds = lambda *_: 1e-6
    prepared = backend.prepare(started("empty", "graph"))
    assert prepared.step == REPLAYED
    before = real.calls.count("graphLaunch")
    taken = backend.measure(prepared, 4 * REPLAYED, 2)
    assert real.calls.count("graphLaunch") - before == 4 * 2
    assert [s / (4 * REPLAYED) for s in taken.seconds] == pytest.approx([1e-6] * 2)


@pytest.mark.parametrize(("variant", "waits"), [("host", 2), ("sync", 7)])
def test_the_hosts_share_and_the_round_trip_are_by_its_own_clock(
    real: FakeGpu, backend: CudaBackend, variant: str, waits: int
) -> None:
    prepared = backend.prepare(started("empty", variant))
    assert prepared.clock_source == "host"
    real.calls.clear()
    backend.measure(prepared, 5, 1)
    assert (real.calls.count("launch"), real.calls.count("streamSynchronize")) == (5, waits)


def test_the_smallest_kernel_moves_what_it_says(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(started("smallest", "plain", bytes=1 << 14))
    assert real.launches[-1][1:3] == (2, 256)
    work = prepared.work(10)
    assert work.reads == work.writes == {"DRAM": 10 * (1 << 13)}
    real.bodies["smallest"] = lambda *words: does.copying(*words[:6], words[6] - 4, words[7])
    with pytest.raises(VerificationError, match="smallest kernel differs"):
        backend.verify(prepared)
    assert "it has plain" in backend.unsupported(started("smallest", "graph", bytes=64))
    with pytest.raises(Exception, match="ask for 32 or more"):
        backend.prepare(started("smallest", "plain", bytes=16))


# the whole plan


def test_every_planned_point_can_be_prepared_and_measured(real: FakeGpu, backend: CudaBackend) -> None:
    """With the sizes of a small GPU, so that all memory is there."""
    from bench.device import Cache

    caches = (Cache("L1", 1 << 13, 1, SMS), Cache("L2", 1 << 16, SMS, 1))
    known = replace(device(shared_per_sm=1 << 16), caches=caches)
    families = ["cache", "latency", "launch", "scaling"]
    drafted = plan(known, backend.variants, "standard", families=families, memory=1 << 28)
    session, statuses = Session(backend, 1, 1), {}
    for planned in drafted.settled(drafted.guesses):
        if planned.point.kernel == "fma":
            continue  # the stand-in has no body for it
        sample = session.sample(replace(planned, budget=1e-3, target=1e-5, minimum=1), 1)
        statuses[planned.point.key] = (sample.status, sample.reason)
    assert {*statuses.values()} == {("ok", "")}, [k for k, v in statuses.items() if v != ("ok", "")]
    assert len(statuses) > 60


def test_every_maker_is_there_and_its_families_have_kernels() -> None:
    for place in MAKERS.values():
        module, name = place.split(":")
        assert hasattr(__import__(module, fromlist=[name]), name)
    assert {*CUDA} >= {"cache", "latency", "launch"}


@pytest.fixture(autouse=True)
def nothing_hangs(gpu: FakeGpu) -> Iterator[None]:
    yield
    assert gpu.hangs == []
