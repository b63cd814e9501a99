"""The CPU backend: every kind of point prepared, verified and measured; work that fits what ran."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bench.backends.cpu import CpuBackend
from bench.backends.emitted import chain_counts, form_of
from bench.errors import DeviceError, VerificationError
from bench.native import isa, loops
from bench.native.emit import Form
from bench.profile.records import Point, Precision
from kernels import KERNELS

FP64, FP32 = Precision.of("fp64"), Precision.of("fp32")
MIB = 1 << 20
STREAM = {"family": "stream", "level": "DRAM", "sizes": {"bytes": 8 * MIB}}


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def stream(kernel: str, variant: str, store: str = "ordinary", **other: Any) -> Point:
    access = KERNELS[kernel].access
    return Point(
        kernel=kernel, variant=variant, precision=FP64, access=access, store=store, **STREAM, **other
    )


POINTS = [
    Point("fma", "fma", "8 chains", FP64),
    Point("fma", "fma", "10 chains", FP32),
    Point("fma", "fma-naive", "numba", FP64),
    stream("read", "s3u4", "none"),
    stream("update", "s1u12"),
    stream("triad", "s1u4", "nontemporal"),
    stream("write", "s1u8"),
    Point("mix", "mix-read-only", "s6u2", FP64, "DRAM", "read", sizes={"bytes": 8 * MIB, "fma": 3}),
    Point(
        "mix",
        "mix-in-place",
        "s6u2p512",
        FP32,
        "DRAM",
        "update",
        sizes={"bytes": 8 * MIB, "fma": 48},
    ),
    Point("cache", "cache-read", "s1u8", FP64, "L1", "read", sizes={"bytes": 16384}),
    Point("cache", "cache-copy", "s1u4", FP64, "L1", "copy", sizes={"bytes": 16384}),
    Point("cache", "cache-write", "s1u8", FP64, "L1", "write", sizes={"bytes": 16384}),
    Point("cache", "cache-update", "s1u8", FP64, "L1", "update", sizes={"bytes": 16384}),
    Point("latency", "chase", "4 chains", FP64, "L1", "read", sizes={"bytes": 16384}),
    Point("scaling", "fma", "8 chains", FP64),
    Point("scaling", "read", "s3u4", FP64, "DRAM", "read", sizes={"bytes": 8 * MIB}),
    Point("scaling", "cache-read", "s1u8", FP64, "L1", "read", sizes={"bytes": 16384}),
    Point(
        "gemm", "gemm", "square", Precision.of("fp64", "library"), "DRAM", sizes={"m": 96, "n": 96, "k": 96}
    ),
]


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.key)
def test_every_kind_of_point_is_measured(backend: CpuBackend, point: Point) -> None:
    assert backend.unsupported(point) == ""
    prepared = backend.prepare(point)
    assert prepared.clock_source == ("host" if point.kernel in ("gemm", "fma-naive") else "")
    backend.verify(prepared)
    taken = backend.measure(prepared, 3, 4)
    assert len(taken) == 4
    assert all(s > 0 for s in taken.seconds)
    assert list(taken.start) == sorted(taken.start)
    work = prepared.work(3)
    assert (work.flops > 0) == (point.kernel not in ("write", "cache-copy", "cache-write", "chase"))
    if point.level:
        assert work.bytes(point.level) > 0
    backend.release(prepared)


def test_work_is_proportional_to_the_amount_and_the_threads(backend: CpuBackend) -> None:
    one = backend.prepare(stream("triad", "s1u4", threads=1))
    assert one.work(10) == one.work(1).times(10)
    block = 4 * backend.isa.vector_bytes
    assert one.work(1).reads["DRAM"] == 2 * block
    assert one.work(1).writes["DRAM"] == block
    chain = backend.prepare(Point("fma", "fma", "8 chains", FP64, threads=1))
    lanes = backend.isa.vector_bytes // 8
    assert chain.work(5).flops == 5 * 4 * 8 * lanes * 2


def test_more_than_the_array_means_whole_passes(backend: CpuBackend) -> None:
    prepared = backend.prepare(stream("copy", "s1u4", threads=1))
    most = prepared.handle.window.most
    assert prepared.work(most + 1) == prepared.work(2 * most)
    assert len(backend.measure(prepared, most + 1, 1)) == 1


def test_the_arrays_hold_what_the_kernel_made(backend: CpuBackend) -> None:
    prepared = backend.prepare(stream("add", "s1u8", threads=1))
    a, b, c = prepared.handle.addresses[0]
    backend.measure(prepared, prepared.handle.window.most, 1)
    n = prepared.handle.window.most * prepared.handle.window.unit // 8
    arena = next(iter(backend.machine.arenas.values()))
    base = {name: arena._regions[name].address for name in "abc"}
    got = [
        arena._regions[name].view(np.float64, at - base[name], n)
        for name, at in zip("abc", (a, b, c), strict=True)
    ]
    np.testing.assert_array_equal(got[0], got[1] + got[2])


def test_a_working_set_is_each_threads_own(backend: CpuBackend) -> None:
    threads = len(backend.team.cpus)
    point = Point("cache", "cache-copy", "s1u4", FP64, "L2", "copy", threads=threads, sizes={"bytes": 65536})
    prepared = backend.prepare(point)
    spans = sorted((a - 32768, a + 32768) for a, *_ in prepared.handle.addresses)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert prepared.work(1).bytes("L2") == 65536 * threads


@pytest.mark.parametrize("access", ["write", "update"])
def test_a_stored_working_set_is_the_whole_set_of_every_thread(backend: CpuBackend, access: str) -> None:
    threads, bytes = len(backend.team.cpus), 64 * 1024
    point = Point(
        "cache", f"cache-{access}", "s1u8", FP64, "L2", access, threads=threads, sizes={"bytes": bytes}
    )
    prepared = backend.prepare(point)
    starts = sorted(a for a, *_ in prepared.handle.addresses)
    assert all(second - first >= bytes for first, second in itertools.pairwise(starts))
    moved = bytes * threads
    work = prepared.work(2)
    assert work.writes["L2"] == 2 * moved and work.reads["L2"] == (2 * moved if access == "update" else 0)
    backend.measure(prepared, 1, 1)
    arena = next(a for a in backend.machine.arenas.values())
    view = arena._regions["a"].view(np.float64, 0, arena.bytes // 8)
    where = (np.array(starts) - arena._regions["a"].address) // 8
    if access == "write":  # the factor 1 over the whole of every set, and nowhere else near it
        assert all((view[w : w + bytes // 8] == 1.0).all() for w in where)
        assert view[where[-1] + bytes // 8] != 1.0


def test_scaling_runs_the_kernel_of_another_family(backend: CpuBackend) -> None:
    sizes = {"bytes": 16384}
    cached = Point("cache", "cache-read", "s1u8", FP64, "L1", "read", threads=1, sizes=sizes)
    scaled = Point("scaling", "cache-read", "s1u8", FP64, "L1", "read", threads=1, sizes=sizes)
    one, other = backend.prepare(cached), backend.prepare(scaled)
    assert one.work(3) == other.work(3) and one.handle.function == other.handle.function
    assert other.facts["cpus"] == list(backend.team.cpus[:1])


def test_chains_count_every_lane_of_every_thread(backend: CpuBackend) -> None:
    assert loops.scalar_fmas(Form(chains=10), 4, 3, 7) == 7 * loops.CHAIN_UNROLL * 10 * 4 * 3
    threads, lanes = len(backend.team.cpus), backend.isa.vector_bytes // 8
    flops = backend.prepare(Point("fma", "fma", "10 chains", FP64, threads=threads)).work(7).flops
    assert flops == 2 * 7 * loops.CHAIN_UNROLL * 10 * lanes * threads


def test_hidden_traffic_is_a_fact(backend: CpuBackend) -> None:
    stored = [("copy", "ordinary"), ("copy", "nontemporal"), ("triad", "ordinary"), ("update", "ordinary")]
    shares = {key: backend.prepare(stream(key[0], "s1u4", key[1])).facts["hidden_traffic"] for key in stored}
    assert shares == {
        ("copy", "ordinary"): 0.5,
        ("copy", "nontemporal"): 0.0,
        ("triad", "ordinary"): pytest.approx(1 / 3),
        ("update", "ordinary"): 0.0,
    }
    for level, hidden in (("L2", 0.0), ("DRAM", 1.0)):
        point = Point("cache", "cache-write", "s1u8", FP64, level, "write", "ordinary", sizes={"bytes": MIB})
        assert backend.prepare(point).facts["hidden_traffic"] == hidden


def test_what_cannot_be_measured_says_why(backend: CpuBackend) -> None:
    assert "fp16" in backend.unsupported(Point("fma", "fma", "8 chains", Precision.of("fp16")))
    many = Point("fma", "fma", "8 chains", FP64, threads=10_000)
    assert "10000 threads wanted" in backend.unsupported(many)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (Point("stream", "tirad", "s1u4", FP64, "DRAM", sizes={"bytes": MIB}), "unknown kernel 'tirad'"),
        (stream("triad", "fast"), "is no layout of triad"),
        (Point("workload", "gmm", "", FP64, "DRAM"), "unknown workload 'gmm'; valid: gemm"),
        (
            Point("cache", "cache-read", "s1u12", FP64, "L1", "read", sizes={"bytes": 128}),
            "less than one block",
        ),
    ],
)
def test_bad_points_are_refused_in_words(backend: CpuBackend, point: Point, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        backend.prepare(point)


def test_more_memory_than_there_is_is_a_memory_error(backend: CpuBackend) -> None:
    with pytest.raises(MemoryError):
        backend.prepare(
            Point("stream", "read", "s1u4", FP64, "DRAM", "read", "none", sizes={"bytes": 1 << 59})
        )


def test_blas_threads_are_limited_and_restored(backend: CpuBackend) -> None:
    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = threads()
    sizes = {"m": 64, "n": 64, "k": 64}
    prepared = backend.prepare(Point("gemm", "gemm", "square", FP64, "DRAM", threads=1, sizes=sizes))
    assert set(threads()) == {1}
    assert prepared.facts["library"]
    backend.release(prepared)
    assert threads() == before


def test_a_wrong_blas_is_caught(backend: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"m": 64, "n": 64, "k": 64}
    prepared = backend.prepare(Point("gemm", "gemm", "square", FP64, "DRAM", threads=1, sizes=sizes))
    monkeypatch.setattr(np, "matmul", lambda a, b: a @ b * 1.001)
    with pytest.raises(VerificationError, match="BLAS"):
        backend.verify(prepared)
    monkeypatch.undo()
    backend.release(prepared)


def test_a_workload_runs_on_the_team(backend: CpuBackend) -> None:
    from bench.workloads.zoo import ZOO

    chosen, threads = ZOO["dot"], len(backend.team.cpus)
    sizes = chosen.sizes(1 << 24, 1 << 20, threads)
    point = Point("workload", "dot", chosen.implementation, FP64, "DRAM", threads=threads, sizes=sizes)
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, 1, 3)
    assert len(taken) == 3
    assert prepared.work(1) == chosen.work(sizes)
    backend.release(prepared)


def test_variants_are_layouts(backend: CpuBackend) -> None:
    for kernel in KERNELS.values():
        for variant in backend.variants(kernel.name, FP64, "DRAM", 1):
            if kernel.family in ("stream", "fma", "mix", "cache") and variant != "numba":
                assert isinstance(form_of(Point(kernel.family, kernel.name, variant, FP64)), Form)


def test_chain_counts_fit_the_registers() -> None:
    for target in isa.KNOWN.values():
        assert max(chain_counts(target)) + (1 if target.fma else 2) <= target.registers
        assert min(chain_counts(target)) >= 6


def test_warm_up_and_clock(backend: CpuBackend) -> None:
    start = backend.now()
    backend.warm_up(0.02)
    assert backend.now() - start >= 0.02
    backend.begin_round(3)
    assert "load_1min" in backend.conditions() or len(backend.conditions()) > 0
