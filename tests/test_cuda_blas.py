"""Products by cuBLAS and cublasLt: what the libraries are told, how results are checked, who is fastest."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.gpu import blaslt
from bench.gpu.batches import QUEUED
from bench.gpu.blas import settings, version
from bench.gpu.bodies import MOST_LAUNCHES
from bench.gpu.engine import Engine
from bench.gpu.faults import ContextLost
from bench.gpu.products import FP4, PRODUCTS, decoded
from bench.planning.planned import Planned
from bench.profile.records import Point, Precision
from bench.running.measure import Session
from tests.fake_cublas import FakeCublas, FakeLt
from tests.fake_cupy import CUBLASError, Stream, fake_cupy
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import Board, device

PRECISIONS = {
    "fp64": Precision.of("fp64", "library"),
    "fp32": Precision.of("fp32", "library"),
    "tf32": Precision("fp32", "fp32", "fp32", "library", "tf32"),
    "fp16": Precision("fp16", "fp32", "fp16", "library"),
    "fp16 sum": Precision.of("fp16", "library"),
    "bf16": Precision("bf16", "fp32", "bf16", "library"),
    "int8": Precision("int8", "int32", "int32", "library"),
    "fp8": Precision("fp8", "fp32", "fp16", "library"),
    "fp4": Precision("fp4", "fp32", "fp16", "library"),
}
CASES = [(n, lib) for n, p in PRECISIONS.items() for lib in PRODUCTS[p.label].libraries]
M, N, K = 256, 128, 384


class Machine:
    """A backend with both libraries behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu = FakeGpu()
        self.blas, self.lt = FakeCublas(self.gpu), FakeLt(self.gpu)
        monkeypatch.setitem(sys.modules, "cupy", fake_cupy(self.gpu, self.blas))
        monkeypatch.setattr(blaslt, "load", lambda cupy: self.lt)
        monkeypatch.delenv("ROOFLINE_NO_BLOCKER", raising=False)
        blackwell = device()
        blackwell.precisions["fp4"] = ""  # type: ignore[index]
        self.backend = CudaBackend(blackwell, Board(), Engine(self.gpu.now))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def product(name: str, library: str, m: int = M, n: int = N, k: int = K, operands: str = "random") -> Point:
    sizes = {"m": m, "n": n, "k": k}
    return Point("gemm", "gemm", library, PRECISIONS[name], "DRAM", operands=operands, sizes=sizes)


@pytest.mark.parametrize(("name", "library"), CASES)
def test_a_product_is_verified_measured_and_released(machine: Machine, name: str, library: str) -> None:
    backend, gpu, point = machine.backend, machine.gpu, product(name, library)
    backend.release(backend.prepare(product("fp32", "cublas")))  # the handle and the engine's own are there
    before = gpu.used()
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, 5, 2)
    assert taken.seconds == pytest.approx([5e-4] * 2) and gpu.hangs == []
    work = prepared.work(3)
    sizes = {"fp64": (8, 8), "fp16": (2, 2), "fp16 sum": (2, 2), "bf16": (2, 2), "int8": (1, 4)}
    of_input, of_output = sizes.get(name, {"fp8": (1, 2), "fp4": (0.5, 2)}.get(name, (4, 4)))
    assert work.flops == 3 * 2 * M * N * K
    assert work.reads["DRAM"] == 3 * of_input * (M * K + K * N)
    assert work.writes["DRAM"] == 3 * of_output * M * N
    assert prepared.facts["library"] == ("cuBLAS 13.1.2" if library == "cublas" else "cublasLt 13.1.2")
    backend.release(prepared)
    kept = blaslt.WORKSPACE if library == "cublaslt" else 0
    assert gpu.used() - before == kept and machine.lt.left == []


COMPUTE = {"fp64": 70, "fp32": 68, "tf32": 77, "fp16": 68, "fp16 sum": 64, "bf16": 68, "int8": 72}
TYPES = {"fp64": 1, "fp32": 0, "tf32": 0, "fp16": 2, "fp16 sum": 2, "bf16": 14, "int8": 3}


@pytest.mark.parametrize("name", TYPES)
def test_cublas_is_told_the_compute_type(machine: Machine, name: str) -> None:
    machine.backend.prepare(product(name, "cublas"))
    (call,) = machine.blas.calls
    _, transa, transb, m, n, k, *_ = call
    assert (m, n, k) == (M, N, K) and (transa, transb) == ((1, 0) if name == "int8" else (0, 0))
    assert call[8] == call[11] == TYPES[name] and call[15] == (10 if name == "int8" else TYPES[name])
    assert call[17:] == (COMPUTE[name], -1)
    assert machine.blas.set == {"stream": 77, "pointers": 0, "math": 0}


def test_strict_fp32_that_is_really_tf32_is_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = machine.backend.prepare(product("fp32", "cublas", 64, 64, 4096))
    machine.backend.verify(prepared)
    honest = machine.blas.gemmEx

    def dishonest(*args: Any) -> None:
        honest(*args[:17], 77, args[18])

    monkeypatch.setattr(machine.blas, "gemmEx", dishonest)
    prepared = machine.backend.prepare(product("fp32", "cublas", 64, 64, 4096))
    with pytest.raises(VerificationError, match="fp32 library product by cublas: the product is off"):
        machine.backend.verify(prepared)
    prepared = machine.backend.prepare(product("tf32", "cublas", 64, 64, 4096))
    machine.backend.verify(prepared)


@pytest.mark.parametrize("name", TYPES)
def test_one_wrong_element_in_a_corner_is_found(machine: Machine, name: str) -> None:
    prepared = machine.backend.prepare(product(name, "cublas"))
    machine.blas.broken = True
    with pytest.raises(VerificationError):
        machine.backend.verify(prepared)


def test_what_is_never_written_is_no_product(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.blas, "gemmEx", lambda *args: None)
    for name in ("fp32", "fp16", "int8"):
        with pytest.raises(VerificationError):
            machine.backend.verify(machine.backend.prepare(product(name, "cublas")))


def test_products_run_on_the_stream_that_is_timed(machine: Machine) -> None:
    other = SimpleNamespace(ptr=1)
    prepared = machine.backend.prepare(product("fp32", "cublas"))
    for action in (lambda: machine.backend.verify(prepared), lambda: machine.backend.measure(prepared, 2, 1)):
        Stream.current = other  # type: ignore[assignment]
        action()
        assert Stream.current is machine.backend.engine.stream


def test_small_products_lie_in_the_queue_and_are_not_timed_as_the_host_queues_them(machine: Machine) -> None:
    machine.blas.seconds = 1e-6
    prepared = machine.backend.prepare(product("fp16", "cublas", 64, 64, 64))
    assert prepared.most < QUEUED
    taken = machine.backend.measure(prepared, prepared.most, 3)
    assert not prepared.facts["host_bound"]
    assert taken.seconds == pytest.approx([prepared.most * 1e-6] * 3, rel=1e-3)
    large = machine.backend.prepare(product("fp16", "cublas", 1024, 1024, 1040))
    assert large.most == MOST_LAUNCHES


def test_zeros_are_a_variant_of_their_own(machine: Machine) -> None:
    prepared = machine.backend.prepare(product("bf16", "cublas", operands="zeros"))
    machine.backend.verify(prepared)
    operands = prepared.handle.memory[0]
    assert not machine.backend.engine.download(operands.a, 2 * M * K).any()


def test_the_fastest_algorithm_that_runs_is_kept(machine: Machine) -> None:
    prepared = machine.backend.prepare(product("bf16", "cublaslt"))
    assert prepared.facts["algorithm"] == "2 of the heuristic's"
    assert machine.lt.launched.count(0) >= 1
    machine.lt.launched.clear()
    machine.backend.measure(prepared, 3, 1)
    assert machine.lt.launched == [1, 1, 1]
    machine.lt.launched.clear()
    machine.backend.prepare(product("bf16", "cublaslt"))
    assert machine.lt.launched == [1], "chosen once a product, not for each point"


def sampled(machine: Machine, point: Point) -> tuple[str, str]:
    """Status and reason of the sample that a run would keep."""
    found = Session(machine.backend, 1, 1).sample(Planned(point, 0, 0.02, 0.5, 0.01, 1e-3, 0.01, 2), 1)
    return found.status, found.reason


@pytest.mark.parametrize(
    ("name", "speeds", "statuses", "words"),
    [
        ("fp4", (), (15, 0), "this cublasLt has no algorithm for fp4>fp32 library 256 x 128 x 384 on"),
        ("fp8", (), (0, 0), "this cublasLt has no algorithm for fp8>fp32 library 256 x 128 x 384 on"),
        ("bf16", (), (8, 0), "no algorithm for bf16>fp32 library 256 x 128 x 384"),
        ("fp8", (None, None), (0, 15), "that runs on this GPU (cublasLtMatmul: not supported)"),
        ("fp16", (None,), (0, 8), "that runs on this GPU (cublasLtMatmul: not on this GPU)"),
    ],
)
def test_a_product_without_algorithm_is_a_skip_with_its_reason(
    machine: Machine, name: str, speeds: Any, statuses: tuple[int, int], words: str
) -> None:
    machine.lt.speeds, (machine.lt.none, machine.lt.refusal) = speeds, statuses
    status, reason = sampled(machine, product(name, "cublaslt"))
    assert status == "skipped" and words in reason
    assert machine.lt.left == [], "what was made is destroyed"


def test_a_library_that_is_older_than_a_type_does_not_have_it(machine: Machine) -> None:
    machine.lt.version = 120605
    status, reason = sampled(machine, product("fp4", "cublaslt"))
    assert (status, reason) == ("skipped", "this is cublasLt 12.6.5: fp4 products begin with 12.8.0")
    assert [sampled(machine, product(name, "cublaslt"))[0] for name in ("fp8", "bf16")] == ["ok", "ok"]


def test_algorithms_that_break_are_a_failure_and_not_something_that_is_lacking(machine: Machine) -> None:
    machine.lt.speeds = (None, None)
    status, reason = sampled(machine, product("fp8", "cublaslt"))
    assert status == "failed" and reason.endswith("that runs on this GPU (cublasLtMatmul: internal error)")


@pytest.mark.parametrize("words", ["CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_ARCH_MISMATCH"])
def test_what_cublas_does_not_make_is_a_skip_and_what_breaks_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def refuse(*args: Any) -> None:
        raise CUBLASError(said)

    monkeypatch.setattr(machine.blas, "gemmEx", refuse)
    for said, status in ((words, "skipped"), ("CUBLAS_STATUS_EXECUTION_FAILED", "failed")):
        found, reason = sampled(machine, product("fp16 sum", "cublas"))
        assert found == status and reason.startswith("fp16 library product by cublas: ") and said in reason


def test_further_proposals_are_tried_where_the_first_do_not_run(machine: Machine) -> None:
    machine.lt.speeds = (None, None, None, None, 3e-4, 2e-4)
    prepared = machine.backend.prepare(product("fp8", "cublaslt"))
    assert prepared.facts["algorithm"] == "6 of the heuristic's"


def test_an_algorithm_that_ends_the_context_is_no_algorithm_passed_over(machine: Machine) -> None:
    def lost(launch: Any) -> float:
        raise ContextLost("an illegal instruction")

    machine.backend._library("cublaslt")._time = lost
    with pytest.raises(ContextLost, match="illegal instruction"):
        machine.backend.prepare(product("fp8", "cublaslt"))


def test_fp8_says_how_it_adds_up(machine: Machine) -> None:
    prepared = machine.backend.prepare(product("fp8", "cublaslt"))
    assert "fast" in prepared.facts["accumulation"]
    assert prepared.facts["layout"] == "TN"


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (product("fp8", "cublaslt", 100), "multiples of 16"),
        (product("fp4", "cublaslt", 64), "multiples of 128"),
        (product("int8", "cublas", 254), "multiples of 4"),
        (product("fp8", "cublas"), "done by cublaslt, not by 'cublas'"),
        (Point("gemm", "gemm", "cublas", Precision.of("int32", "library"), sizes={}), "no library product"),
    ],
)
def test_products_that_no_library_does_are_skipped_with_the_reason(
    machine: Machine, point: Point, words: str
) -> None:
    assert words in machine.backend.unsupported(point)


def test_a_missing_library_is_one_sentence(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cupy = fake_cupy(machine.gpu)
    monkeypatch.setattr(blaslt, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    monkeypatch.setattr(cupy.cuda.runtime, "runtimeGetVersion", lambda: 99000)
    with pytest.raises(DeviceError, match=r"cublasLt cannot be loaded: libcublasLt.so.99"):
        blaslt.load(cupy)


def test_the_environment_that_decides_is_recorded() -> None:
    assert settings({"HOME": "x"}) == {}
    found = settings({"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PATH": "x"})
    assert found == {"environment": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0"}}
    assert version(130102) == "13.1.2"


def test_fp4_lies_two_to_a_byte_low_half_first() -> None:
    assert decoded("fp4", np.array([[0x2F, 0x81]], np.uint8)).tolist() == [[-6.0, 1.0, 0.5, -0.0]]
    assert FP4.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
