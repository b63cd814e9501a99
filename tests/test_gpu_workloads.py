"""Workloads of a GPU without one: library calls on NumPy, our CUDA code by the compiler, costs and sizes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.errors import DeviceError, VerificationError
from bench.gpu.batches import Task
from bench.workloads import gpu_code, gpu_execution, on_gpu
from bench.workloads.zoo import ZOO

LIBRARY = ("gemm fp16", "gemm", "gemv", "dot", "fft")
GIB = 1 << 30


class Blas:
    """cupy.cublas on NumPy."""

    @staticmethod
    def gemv(trans: str, alpha: float, a: Any, x: Any, beta: float, y: Any) -> None:
        assert (trans, alpha, beta) == ("N", 1.0, 0.0)
        y[...] = a @ x

    @staticmethod
    def dot(a: Any, b: Any, out: Any) -> None:
        out[...] = a @ b


class Cufft:
    """cupy.cuda.cufft on NumPy."""

    CUFFT_Z2Z, CUFFT_FORWARD = 105, -1

    class Plan1d:
        def __init__(self, n: int, kind: int, batch: int) -> None:
            assert kind == Cufft.CUFFT_Z2Z
            self.shape = (batch, n)

        def fft(self, x: Any, y: Any, direction: int) -> None:
            assert x.shape == y.shape == self.shape and direction == Cufft.CUFFT_FORWARD
            y[...] = np.fft.fft(x, axis=1)


class Engine:
    """As much of bench/gpu/engine.py as a workload asks for, on NumPy arrays."""

    def __init__(self, wrong: float = 1.0) -> None:
        self.properties = {"l2CacheSize": 1 << 20}

        def dot(a: Any, b: Any, out: Any) -> None:
            out[...] = wrong * (a.astype(np.float64) @ b.astype(np.float64))

        def ndarray(shape: tuple[int, ...], dtype: Any, memptr: Any) -> Any:
            return memptr[: int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)

        self.cupy = SimpleNamespace(
            ndarray=ndarray, dot=dot, empty=np.empty, empty_like=np.empty_like, asnumpy=np.asarray
        )
        self.cupy.cuda = SimpleNamespace(cufft=Cufft)  # its library is loaded by this attribute alone
        self.filled: list[int] = []

    def random(self, bytes: int, kind: str, operands: str = "random", seed: int = 1) -> Any:
        dtype = gpu_execution.FLOAT[kind]
        self.filled.append(bytes)
        values = np.random.default_rng(seed).uniform(0.5, 1, bytes // np.dtype(dtype).itemsize)
        return values.astype(dtype).view(np.uint8)

    def synchronize(self) -> None: ...


@pytest.fixture(autouse=True)
def on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy.cublas", Blas)
    monkeypatch.setitem(sys.modules, "cupy.cuda.cufft", None)  # by itself it finds no libcufft of a wheel


def point(name: str) -> Any:
    """The workload at its small sizes, where nothing is large."""
    (found,) = (p for p in on_gpu.points(64 * GIB, 50e6, 100) if p.kernel == name)
    return SimpleNamespace(kernel=name, sizes=on_gpu.ON_GPU[name].small, whole=found)


@pytest.mark.parametrize("name", LIBRARY)
def test_library_workloads_equal_their_references_and_count_what_they_do(name: str) -> None:
    engine = Engine()
    prepared = on_gpu.prepare(point(name), engine)  # type: ignore[arg-type]
    prepared.handle.check()
    assert isinstance(prepared.handle.task, Task)
    prepared.handle.task.launch(3)
    small = on_gpu.ON_GPU[name].small
    assert prepared.work(3).flops == 3 * on_gpu.ON_GPU[name].work(small).flops
    made = prepared.facts["cold"]
    assert "sets in turn" in made, "small operands would stay in the cache: several sets are taken in turn"


def test_a_wrong_product_is_not_timed() -> None:
    prepared = on_gpu.prepare(point("gemm"), Engine(wrong=1.001))  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="gemm differs"):
        prepared.handle.check()


@pytest.mark.parametrize("error", [ImportError("no libcufft.so.12"), RuntimeError("CUFFT_INTERNAL_ERROR")])
def test_a_library_that_fails_costs_its_workload_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*words: int) -> None:
        raise error

    made = on_gpu.prepare(point("fft"), Engine())  # type: ignore[arg-type]
    monkeypatch.setattr(Cufft, "Plan1d", refuse)
    for failing in (lambda: on_gpu.prepare(point("fft"), Engine()), made.handle.check):  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match=f"workload fft: {error}"):
            failing()


def test_what_no_gpu_code_does_is_refused_with_the_list() -> None:
    with pytest.raises(DeviceError, match=r"no GPU code for workload 'convolution'.*softmax"):
        on_gpu.prepare(SimpleNamespace(kernel="convolution", sizes={}), Engine())  # type: ignore[arg-type]


def test_points_fit_the_memory_and_exceed_the_cache() -> None:
    for memory, cache in ((4 * GIB, 4e6), (140 * GIB, 60e6)):
        for p in on_gpu.points(memory, cache, 100):
            moved = on_gpu.ON_GPU[p.kernel].work(p.sizes).bytes("DRAM")
            assert moved <= memory / 2, p.kernel
            sets = on_gpu._seeds(
                p, on_gpu.ON_GPU[p.kernel], SimpleNamespace(properties={"l2CacheSize": cache})
            )  # type: ignore[arg-type]
            assert moved * len(sets) >= 1.5 * cache, p.kernel


def test_costs_are_those_of_the_zoo_and_half_of_it_in_fp16() -> None:
    sizes = {"m": 64, "n": 64, "k": 64}
    whole, half = ZOO["gemm"].work(sizes), on_gpu.half_work(sizes)
    assert (half.flops, half.bytes("DRAM")) == (whole.flops, whole.bytes("DRAM") / 4)
    assert all(on_gpu.ON_GPU[name].work is ZOO[name].work for name in on_gpu.ON_GPU if name in ZOO)


@pytest.mark.parametrize(("columns", "want"), [(2048, (512, 128)), (272, (68, 32)), (1024, (256, 64))])
def test_a_row_is_held_by_one_block(columns: int, want: tuple[int, int]) -> None:
    vectors, block = gpu_execution.rows_of(columns)
    assert (vectors, block) == want
    assert vectors <= block * gpu_code.HELD and block % 32 == 0


@pytest.mark.parametrize("columns", [10, 32768])
def test_rows_that_no_block_holds_are_refused(columns: int) -> None:
    with pytest.raises(DeviceError, match="multiple of 4, at most 16384"):
        gpu_execution.rows_of(columns)


def test_the_gpu_path_never_imports_numba() -> None:
    code = "import sys, bench.workloads.on_gpu; print(sorted({'numba', 'cupy', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_our_own_code_compiles_without_spills() -> None:
    if find_spec("cuda.core") is None:
        pytest.fail("cuda-core is missing: install the audit extra (make setup-dev)")
    from cuda.core import Program, ProgramOptions

    for arch in ("sm_75", "sm_90"):
        options = ProgramOptions(std="c++17", arch=arch)
        cubin = Program(gpu_code.CODE, "c++", options).compile("cubin").code
        for name in ("softmax", "layernorm", "adam", "stencil", "transpose", "connect", "spmv"):
            assert f".text.{name}".encode() in cubin, name
