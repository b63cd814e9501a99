"""Collectives: the formulas, their bandwidths, and NCCL's calls on GPUs that are not there."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.backends import open_backend
from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.fitting.swept import FACTORS
from bench.gpu import collectives, visible
from bench.gpu.collectives import windows
from bench.gpu.engine import Engine
from bench.planning.plan import plan
from bench.planning.planned import TOGETHER
from bench.profile.records import Point, Precision
from kernels import KERNELS, collective
from tests.fake_gpu import FakeGpu
from tests.fake_nccl import Nccl
from tests.test_cuda_backend import Board, device, no_threads_are_left
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu

FP32 = Precision.of("fp32")
__all__ = ["no_threads_are_left"]


def operation(name: str, size: int = 12_000, devices: int = 3) -> Point:
    sizes = {"bytes": size, "devices": devices}
    return Point(
        "collective",
        name,
        "nccl",
        FP32,
        f"{devices} devices",
        "exchange",
        scope="device",
        threads=2,
        sizes=sizes,
    )


@pytest.fixture
def three(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    """A process that sees three GPUs."""
    gpu.devices = 3
    known = {"ROOFLINE_GPU": "cuda:0", "ROOFLINE_GPUS": "0=GPU-a,1=GPU-b,2=GPU-c"}
    for name, value in {**known, **visible.widened(known)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", Nccl(gpu))
    return CudaBackend(device(), Board(), Engine(gpu.now))


# the formulas


@pytest.mark.parametrize("name", collective.NAMES)
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_the_index_formula_is_the_textbook_form(name: str, devices: int) -> None:
    items = 12 * devices
    arrays = [collective.pattern(np, device, 0, items) for device in range(devices)]
    want = KERNELS[name].plain([a.tolist() for a in arrays])
    got = KERNELS[name].reference(np, arrays)
    for one, other in zip(got, want, strict=True):
        assert len(one) == collective.held(name, items, devices)
        assert np.array_equal(one, np.asarray(other, np.float32))
    part = collective.expected(np, name, devices, items, devices - 1, 5, 4)
    assert np.array_equal(part, got[devices - 1][5:9])


def test_what_each_operation_means() -> None:
    a, b = [1.0, 2.0], [10.0, 20.0]
    meant = {
        "all-reduce": [[11, 22], [11, 22]],
        "reduce-scatter": [[11], [22]],
        "all-gather": [[1, 10], [1, 10]],
        "broadcast": [[1, 2], [1, 2]],
        "all-to-all": [[1, 10], [2, 20]],
    }
    assert {name: collective.collective(name, [a, b]) for name in collective.NAMES} == meant


def test_no_two_parts_of_the_pattern_are_alike() -> None:
    tiles = collective.pattern(np, 1, 0, 8 << 16).reshape(8, -1)
    assert len({tile.tobytes() for tile in tiles}) == 8
    assert not np.array_equal(collective.pattern(np, 0, 0, 100), collective.pattern(np, 1, 0, 100))
    sums = sum(collective.pattern(np, device, 0, 1000) for device in range(16))
    assert sums.max() < 2**24 and np.array_equal(sums, np.round(sums)), "exact in any order"


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all-reduce", 1.5),
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("all-to-all", 0.75),
        ("broadcast", 1.0),
    ],
)
def test_bus_bandwidth_follows_the_convention(name: str, factor: float) -> None:
    assert FACTORS[name](4) == factor
    assert KERNELS[name].work(4, {"n": 100}, "4 devices").bytes("4 devices") == 400, "the whole array"


# through the binding


@pytest.mark.parametrize("name", collective.NAMES)
def test_an_operation_is_prepared_verified_measured_and_released(
    gpu: FakeGpu, three: CudaBackend, name: str
) -> None:
    before = gpu.used()
    point = operation(name)
    assert three.unsupported(point) == ""
    prepared = three.prepare(point)
    three.verify(prepared)
    nccl = sys.modules["cupy.cuda.nccl"]
    started = nccl.operations
    assert prepared.handle.task.each == 1, "each operation is a call that fills the queue"
    taken = three.measure(prepared, 4, 2)
    assert nccl.operations == started + 8
    assert taken.seconds == pytest.approx([4 * (1e-5 + 12_000 / 50e9)] * 2, rel=1e-3)
    assert prepared.work(4).bytes("3 devices") == 48_000
    assert prepared.facts["gpus"] == [0, 1, 2] and prepared.facts["nccl"] == 22703
    three.release(prepared)
    assert gpu.used() == before and gpu.hangs == [] and gpu.current == 0


@pytest.mark.parametrize("name", collective.NAMES[:4])
def test_a_wrong_result_on_one_gpu_is_found(gpu: FakeGpu, three: CudaBackend, name: str) -> None:
    prepared = three.prepare(operation(name))
    sys.modules["cupy.cuda.nccl"].spoil = name
    with pytest.raises(VerificationError, match="GPU 2 holds another result; it is not timed"):
        three.verify(prepared)


def test_a_part_sent_to_the_wrong_gpu_is_found(
    gpu: FakeGpu, three: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_to_all(n: Any, one: Any, sent: int, got: int, items: int, devices: int, stream: int) -> None:
        part = items // devices
        for other in range(devices):
            one.send(sent + (devices - 1 - other) * part * 4, part, n.NCCL_FLOAT32, other, stream)
            one.recv(got + other * part * 4, part, n.NCCL_FLOAT32, other, stream)

    monkeypatch.setitem(collectives.OPERATIONS, "all-to-all", all_to_all)
    with pytest.raises(VerificationError, match="holds another result"):
        three.verify(three.prepare(operation("all-to-all")))


def test_members_are_connected_once(gpu: FakeGpu, three: CudaBackend) -> None:
    for name in ("all-reduce", "all-gather"):
        three.release(three.prepare(operation(name)))
    three.release(three.prepare(operation("all-reduce", devices=2)))
    assert sys.modules["cupy.cuda.nccl"].groups == 2


def test_arrays_are_whole_parts_and_long_ones_repeat_the_tile(gpu: FakeGpu, three: CudaBackend) -> None:
    size = 4 * (collective.PERIOD * 2 + 100)
    prepared = three.prepare(operation("all-gather", size))
    items = size // 4 // 3 * 3
    assert prepared.work(1).bytes("3 devices") == 4 * items
    three.verify(prepared)


def test_long_results_are_compared_at_three_places() -> None:
    assert windows(1000) == [(0, 1000)]
    (first, _, last) = windows(100 << 20)
    assert first == (0, 1 << 20) and sum(last) == 100 << 20


# one GPU, no library


def test_one_gpu_is_a_skip_with_its_reason(gpu: FakeGpu, backend: CudaBackend) -> None:
    assert backend.unsupported(operation("all-reduce")) == "1 GPU visible here, 3 wanted"
    assert "nobody to combine with" in backend.unsupported(operation("all-reduce", devices=1))


def test_without_nccl_it_is_said_how_to_get_it(three: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cupy.cuda.nccl"], "available", False)
    assert "install nvidia-nccl-cu12 or -cu13" in three.unsupported(operation("broadcast"))


# simulated boards, the plan


@pytest.mark.parametrize(("name", "count"), [("gpu-pair", 2), ("gpu-quad", 4)])
def test_simulated_boards_measure_every_operation(name: str, count: int) -> None:
    found = open_backend(f"sim:{name}")
    points = [
        p for p in plan(found.device, found.variants, "standard").points if p.point.family == "collective"
    ]
    assert {p.point.kernel for p in points} == set(collective.NAMES) and {p.process for p in points} == {
        TOGETHER
    }
    assert {p.point.level for p in points if p.point.kernel == "all-gather"} == {f"{count} devices"}
    for p in points:
        assert found.unsupported(p.point) == ""
    largest = max((p.point for p in points if p.point.kernel == "all-reduce"), key=lambda p: p.sizes["bytes"])
    largest = replace(largest, sizes={**largest.sizes, "devices": count}, level=f"{count} devices")
    made = found.prepare(largest)
    seconds = np.median(found.measure(made, 1, 9).seconds)
    bus = FACTORS["all-reduce"](count) * made.work(1).bytes(largest.level) / seconds
    assert bus == pytest.approx(180e9, rel=0.03), "the truth of both boards"


def test_several_simulated_gpus_at_once_do_so_many_times_the_work() -> None:
    found = open_backend("sim:gpu-quad")
    points = [
        p.point for p in plan(found.device, found.variants, "standard").points if "devices" in p.point.sizes
    ]
    chains = {p.sizes["devices"]: p for p in points if p.family == "scaling" and p.kernel == "fma"}
    assert set(chains) == {1, 2, 4}
    rates = {}
    for count, point in chains.items():
        made = found.prepare(point)
        rates[count] = made.work(1000).flops / np.median(found.measure(made, 1000, 9).seconds)
    assert rates[4] / rates[1] == pytest.approx(4, rel=0.03)
    assert "4 devices, not 5" in found.unsupported(replace(chains[4], sizes={"devices": 5}))


# the installed library


def test_every_call_exists_in_the_binding() -> None:
    pytest.importorskip("cupy", exc_type=ImportError)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cupy.cuda import nccl

    if not nccl.available:  # the binding has no names then; it must be said how to get it
        with pytest.raises(DeviceError, match="NCCL cannot be loaded: install nvidia-nccl-cu"):
            collectives.nccl()
        return
    for name in ("groupStart", "groupEnd", "get_version", "NCCL_FLOAT32", "NCCL_SUM", "NcclCommunicator"):
        assert hasattr(nccl, name), name
    assert (nccl.NCCL_FLOAT32, nccl.NCCL_SUM) == (7, 0)
    wanted = {
        "allReduce": "sendbuf, intptr_t recvbuf, size_t count, int datatype, int op, intptr_t stream",
        "allGather": "sendbuf, intptr_t recvbuf, size_t count, int datatype, intptr_t stream",
        "reduceScatter": "sendbuf, intptr_t recvbuf, size_t recvcount, int datatype, int op, intptr_t stream",
        "broadcast": "sendbuff, intptr_t recvbuff, size_t count, int datatype, int root, intptr_t stream",
        "send": "sendbuf, size_t count, int datatype, int peer, intptr_t stream",
        "recv": "recvbuf, size_t count, int datatype, int peer, intptr_t stream",
    }
    for name, words in wanted.items():
        assert words in getattr(nccl.NcclCommunicator, name).__doc__, name
    assert hasattr(nccl.NcclCommunicator, "initAll")
