"""The CUDA backend where something fails: memory, addresses, opening, the compiler."""

from __future__ import annotations

import pytest

from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError
from bench.gpu.engine import Engine
from bench.gpu.faults import ContextLost, translated
from bench.planning.planned import Planned
from bench.running.measure import Session
from tests.fake_gpu import CUDARuntimeError, FakeGpu
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left as no_threads_are_left
from tests.test_cuda_backend import stream


def test_out_of_memory_says_how_much_was_free(gpu: FakeGpu, backend: CudaBackend) -> None:
    with pytest.raises(MemoryError, match=r"2147467264 byte wanted, \d+ byte of the GPU's memory are free"):
        backend.prepare(stream("copy", bytes=(1 << 31) - 4096))
    assert gpu.calls[-1] == "free"
    backend.prepare(stream("copy"))


def test_an_illegal_address_ends_the_context_once(gpu: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(stream("copy"))
    gpu.fail["copy_fp32_v16_l4"] = 700
    with pytest.raises(ContextLost, match="memory that is not there ended the GPU's context"):
        backend.measure(prepared, 1, 1)
    touched = len(gpu.calls)
    for again in (lambda: backend.measure(prepared, 1, 1), lambda: backend.prepare(stream("copy"))):
        with pytest.raises(ContextLost):
            again()
    backend.release(prepared)
    assert len(gpu.calls) == touched


@pytest.mark.parametrize("error", [AttributeError("no attribute 'gemv'"), TypeError("want an integer")])
def test_what_nobody_foresaw_costs_its_point_alone(
    backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def surprise(point: object) -> None:
        raise error

    session = Session(backend, 1, 1)
    planned = Planned(stream("copy"), 0, 0.02, 0.5, 0.01, 1e-3, 0.01, 2)
    with monkeypatch.context() as patched:
        patched.setattr(backend.bodies, "prepare", surprise)
        sample = session.sample(planned, 1)
    assert (sample.status, sample.reason) == (
        "failed",
        f"preparing fp32 copy: {type(error).__name__}: {error}",
    )
    prepared = backend.prepare(stream("copy"))
    monkeypatch.setattr(prepared.handle, "check", lambda: surprise(None))
    with pytest.raises(DeviceError, match=f"{type(error).__name__}: {error}"):
        backend.verify(prepared)


def test_a_librarys_own_statuses_are_not_cudas() -> None:
    class NcclError(RuntimeError):
        status = 2

    with pytest.raises(DeviceError, match="all-reduce: unhandled system error"), translated("all-reduce"):
        raise NcclError("unhandled system error")
    with pytest.raises(MemoryError), translated("all-reduce"):
        raise CUDARuntimeError(2)


def test_a_fault_that_appears_when_memory_is_given_back_ends_the_context(
    gpu: FakeGpu, backend: CudaBackend
) -> None:
    prepared = backend.prepare(stream("copy"))
    gpu.fail["free"] = 700
    with pytest.raises(ContextLost, match="a call of CuPy: an access to memory that is not there"):
        backend.release(prepared)
    with pytest.raises(ContextLost):
        backend.prepare(stream("copy"))


def test_a_failure_of_a_point_is_a_sample_with_its_reason(gpu: FakeGpu, backend: CudaBackend) -> None:
    session = Session(backend, 1, 1)
    planned = Planned(stream("copy", bytes=1 << 31), 0, 0.02, 0.5, 0.01, 0.02, 1.0, 5)
    sample = session.sample(planned, 1)
    assert sample.status == "failed" and sample.reason.startswith("out of memory: 2147483648 byte wanted")


@pytest.mark.parametrize(
    ("status", "words"),
    [(46, "exclusive"), (100, "CUDA_VISIBLE_DEVICES"), (802, "fabricmanager"), (1, "cudaError1")],
)
def test_a_gpu_that_does_not_open_says_why_in_one_line(gpu: FakeGpu, status: int, words: str) -> None:
    gpu.fail["getDeviceProperties"] = status
    with pytest.raises(DeviceError, match=words) as caught:
        Engine(gpu.now)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('x.cu(1): catastrophic error: could not open source file "cuda_fp16.h"', "headers are missing"),
        (
            "x.cu(3): error: this is no C++\n1 error detected",
            "refuses fill, hold: x.cu.3.: error: this",
        ),
    ],
)
def test_a_compiler_that_refuses_is_quoted(gpu: FakeGpu, said: str, words: str) -> None:
    gpu.refuse = said
    with pytest.raises(DeviceError, match=words):
        Engine(gpu.now)
