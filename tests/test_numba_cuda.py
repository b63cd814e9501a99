"""The Numba CUDA backend without a GPU: its kernels in the simulator, what it offers, its reasons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.backends import numba_device, open_backend
from bench.backends.numba_cuda import VARIANTS, NumbaCudaBackend
from bench.backends.numba_reference import CHAINS, chain_reference, operands, sum_reference
from bench.errors import DeviceError
from bench.gpu.faults import ContextLost
from bench.gpu.launch import split_variant, stream_form
from bench.profile.records import Point, Precision

TOP = Path(__file__).resolve().parent.parent


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(TOP), **environment}
    return subprocess.run([sys.executable, *words], cwd=TOP, env=env, capture_output=True, text=True)


def test_every_kernel_equals_numpy_in_the_simulator() -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning")
    done = run(*words, "tests/numba_simulator.py", NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 50 and "skipped" not in done.stdout, done.stdout


# alone


def test_neither_engine_imports_the_other() -> None:
    cupy_path = "import bench.backends.cuda, bench.gpu.crosscheck, bench.gpu.described"
    assert loaded(cupy_path, "numba") == []
    assert loaded("import bench.backends.numba_cuda, bench.backends.numba_kernels", "cupy") == []
    assert loaded("import bench.backends.numba_cuda", "numba") == [], "heavy imports when it is opened"


def loaded(code: str, name: str) -> list[str]:
    done = run("-c", f"{code}; import sys; print([m for m in sys.modules if m.split('.')[0] == {name!r}])")
    assert done.returncode == 0, done.stderr
    return list(eval(done.stdout))


def test_numpy_without_row_stack_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.backends.numba_kernels import guard_numpy

    monkeypatch.delattr(np, "row_stack", raising=False)
    guard_numpy()
    assert np.row_stack is np.vstack


# reasons


def broken(**what: Any) -> dict[str, Any]:
    """A numba package with these values."""
    numba, cuda = ModuleType("numba"), ModuleType("numba.cuda")
    cuda.is_available = lambda: what.get("available", True)  # type: ignore[attr-defined]
    cuda.list_devices = lambda: what.get("devices", [])  # type: ignore[attr-defined]
    numba.config = SimpleNamespace(ENABLE_CUDASIM=what.get("simulator", 0))  # type: ignore[attr-defined]
    numba.cuda = cuda  # type: ignore[attr-defined]
    return {"numba": numba, "numba.cuda": cuda, **what.get("modules", {})}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({}, ""),
        ({"available": False}, "Numba finds no usable driver or GPU (see `python -m bench devices`)"),
        (
            {"available": False, "devices": ["one"]},
            "Numba finds no libnvvm to compile with: install nvidia-nvvm",
        ),
        ({"simulator": 1}, "its simulator is no GPU: unset NUMBA_ENABLE_CUDASIM"),
        ({"modules": {"numba.cuda": None}}, "numba-cuda cannot be imported (ModuleNotFoundError: "),
        ({"modules": {"numba": None}}, "numba-cuda cannot be imported (ModuleNotFoundError: "),
    ],
)
def test_one_reason_in_one_line(what: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in broken(**what).items():
        monkeypatch.setitem(sys.modules, name, module)
    told = numba_device.missing()
    assert told.startswith(reason) and bool(told) == bool(reason)
    assert "\n" not in told
    if reason:
        with pytest.raises(DeviceError, match="the Numba backend cannot run here: "):
            NumbaCudaBackend()


def test_numba_zero_is_a_device_of_its_own_that_never_runs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []
    monkeypatch.setattr("bench.gpu.described.pin", pinned.append)
    monkeypatch.setattr("bench.backends.numba_cuda.missing", lambda simulator: "no GPU in this test")
    with pytest.raises(DeviceError, match="no GPU in this test"):
        open_backend("numba:1")
    assert pinned == ["cuda:1"]


class DriverError(Exception):
    """As of numba-cuda: its code is a member of an enumeration."""

    def __init__(self, code: int) -> None:
        self.code = Enum("Status", {"FAILED": code}, type=int).FAILED  # type: ignore[attr-defined]
        super().__init__(f"[{code}] it failed\nsecond line")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (DriverError(2), MemoryError, "DriverError: [2] it failed"),
        (DriverError(700), ContextLost, "an access to memory that is not there ended the GPU's context"),
        (DriverError(222), DeviceError, "the driver is older than the CUDA"),
        (DriverError(1), DeviceError, "Numba failed on this GPU: DriverError: [1] it failed"),
        (ImportError("libnvvm"), DeviceError, "Numba failed on this GPU: ImportError: libnvvm"),
        (AttributeError(), DeviceError, "Numba failed on this GPU: AttributeError"),
        (DeviceError("ours"), DeviceError, "ours"),
    ],
)
def test_what_numba_raises_in_our_words(error: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as raised, numba_device.explained():
        raise error
    assert words in str(raised.value) and "second line" not in str(raised.value)
    assert isinstance(raised.value, ContextLost) == (kind is ContextLost)


@pytest.mark.parametrize(
    ("visible", "fits"), [("GPU-AB12", True), ("GPU-0000", False), ("MIG-0000", True), ("0", True)]
)
def test_another_gpu_than_the_pinned_one_is_refused(
    visible: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = SimpleNamespace(
        uuid="GPU-ab12",
        name="Chip 7",
        compute_capability=(9, 0),
        MULTIPROCESSOR_COUNT=4,
        L2_CACHE_SIZE=1 << 20,
        MAX_THREADS_PER_MULTIPROCESSOR=2048,
    )
    memory = SimpleNamespace(total=1 << 30, free=1 << 29)
    context = SimpleNamespace(get_memory_info=lambda: memory)
    cuda = SimpleNamespace(get_current_device=lambda: found, current_context=lambda: context)
    if not fits:
        with pytest.raises(DeviceError, match="started for GPU-0000, Numba opened GPU-ab12"):
            numba_device.numba_device(cuda)
        return
    device = numba_device.numba_device(cuda)
    assert (device.threads, device.last_level_cache_bytes, device.is_gpu) == (4, 1 << 20, True)
    assert device.facts["max_threads_per_sm"] == 2048 and device.facts["free_bytes"] == 1 << 29


# what it offers


def unsupported(point: Point) -> str:
    return NumbaCudaBackend.unsupported(NumbaCudaBackend.__new__(NumbaCudaBackend), point)


@pytest.mark.parametrize(
    ("family", "kernel", "precision", "variant", "reason"),
    [
        ("fma", "fma", Precision.of("fp64"), "8 chains b256", ""),
        ("fma", "fma", Precision.of("int32"), "8 chains b512", ""),
        ("stream", "triad", Precision.of("fp32"), "v16 l4 b256", ""),
        ("stream", "triad", Precision.of("fp64"), "v8 l1 b128", ""),
        ("fma", "fma", Precision.of("fp16"), "8 chains b256", "has no fp16 fma"),
        ("fma", "fma", Precision.of("fp32", "matrix"), "8 chains b256", "has no fp32 matrix fma"),
        ("stream", "copy", Precision.of("int32"), "v16 l4 b256", "has no int32 copy"),
        ("gemm", "gemm", Precision.of("fp32"), "cublas", "has no gemm"),
        ("fma", "fma", Precision.of("fp32"), "16 chains b256", "has 8 chains, not '16 chains'"),
        ("fma", "fma", Precision.of("fp32"), "8 chains", "names no block size"),
        ("fma", "fma", Precision.of("fp32"), "8 chains b250", "multiples of 32"),
        ("stream", "copy", Precision.of("fp64"), "v4 l4 b256", "has no 'v4 l4'"),
        ("stream", "copy", Precision.of("fp32"), "v16 l64 b256", "has no 'v16 l64'"),
        ("stream", "copy", Precision.of("fp32"), "v16 l4 cs b256", "no form of a stream"),
    ],
)
def test_what_it_lacks_it_says(
    family: str, kernel: str, precision: Precision, variant: str, reason: str
) -> None:
    told = unsupported(Point(family, kernel, variant, precision))
    assert bool(told) == bool(reason) and reason in told


def test_its_own_guesses_are_forms_it_has() -> None:
    for variant in VARIANTS["fma"]:
        assert unsupported(Point("fma", "fma", variant, Precision.of("fp32"))) == ""
    for variant in VARIANTS["stream"]:
        assert stream_form(split_variant(variant)[0])[0] == 16
        assert unsupported(Point("stream", "read", variant, Precision.of("fp64"))) == ""


# references


def test_references_by_another_way() -> None:
    tile = np.arange(5.0)
    assert sum_reference(tile, 13, 2.0) == 2 + np.resize(tile, 13).sum()
    signed = operands(np.float32, 4000, signs=True)
    assert signed.dtype == np.float32 and 0.4 < (signed < 0).mean() < 0.6
    assert abs(signed).min() >= 0.5 and abs(signed).max() <= 1.5
    whole = operands(np.int32, 2 * CHAINS)
    once = (whole.reshape(2, CHAINS).astype(np.int64) * 3 + whole[:2, None]).astype(np.int32)
    assert np.array_equal(chain_reference(whole, np.int32(3), 1), once.sum(axis=1, dtype=np.int32))
