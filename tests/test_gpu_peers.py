"""Links between GPUs and the same work on several of them at once, on a CuPy that pretends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.gpu import boards, visible
from bench.gpu.boards import Boards
from bench.gpu.engine import Engine
from bench.gpu.peers import pair_of
from bench.profile.records import Point
from tests import link_bodies
from tests.fake_cupy import LATENCY, RATES
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import Board, device
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left as no_threads_are_left
from tests.test_gpu_links import MIB, at_once, crossing

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
