"""What bench/gpu asks of CuPy, held against the one that is installed: names, arguments, widths, compiler."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.gpu.engine import OWN_CODE
from bench.gpu.faults import NOT_THERE
from bench.gpu.modules import STANDARD
from kernels import CUDA

TOP = Path(__file__).resolve().parent.parent
cupy: Any = pytest.importorskip("cupy", exc_type=ImportError)

SIGNED = {
    "runtime.memcpyAsync": "intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream",
    "runtime.memcpy2D": "dst, size_t dpitch, intptr_t src, size_t spitch, size_t width, size_t height",
    "runtime.memsetAsync": "intptr_t ptr, int value, size_t size, intptr_t stream",
    "runtime.memGetInfo": "()",
    "runtime.deviceGetAttribute": "int attrib, int device",
    "runtime.getDeviceProperties": "int device",
    "runtime.free": "intptr_t ptr",
    "driver.occupancyMaxActiveBlocksPerMultiprocessor": "func, int blockSize, size_t dynamicSMemSize",
    "alloc": "(size)",
    "malloc_managed": "size_t size",
    "MemoryPool.free_all_blocks": "stream=None",
    "Graph.launch": "stream=None",
    "Graph.upload": "stream=None",
}
"""By name in cupy.cuda, a part of what its documentation says of its arguments."""

NAMES = """Device.use Device.__enter__ Stream.use Stream.record Stream.wait_event Stream.synchronize Event
    Stream.begin_capture Stream.end_capture get_elapsed_time compiler.CompileException nvrtc.getVersion
    runtime.getDeviceCount runtime.setDevice runtime.runtimeGetVersion runtime.driverGetVersion
    runtime.deviceSynchronize"""

KERNEL = """num_regs local_size_bytes max_threads_per_block max_dynamic_shared_size_bytes kernel
    preferred_shared_memory_carveout"""


def found(name: str) -> Any:
    """What cupy.cuda has under a dotted name."""
    thing = cupy.cuda
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("name", SIGNED)
def test_arguments_are_those_that_are_given(name: str) -> None:
    assert SIGNED[name] in " ".join(found(name).__doc__.split())


def test_every_name_is_there() -> None:
    for name in NAMES.split():
        assert found(name) is not None, name
    for name in KERNEL.split():
        assert hasattr(cupy.RawKernel, name), name
    assert "tuple options=()" in cupy.RawModule.__doc__ and hasattr(cupy.RawModule, "get_function")
    assert [*inspect.signature(cupy.cuda.PinnedMemory).parameters][:2] == ["size", "flags"]
    assert "non_blocking" in inspect.signature(cupy.cuda.Stream).parameters
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert cupy.cuda.runtime.CUDARuntimeError.__name__ == "CUDARuntimeError", (
        "as bench/gpu/faults.py knows it"
    )
    assert cupy.cuda.driver.CUDADriverError.__name__ == "CUDADriverError"


def test_what_cublas_lacks_is_said_in_the_words_that_are_known() -> None:
    place = importlib.util.find_spec("cupy_backends.cuda.libs.cublas")
    assert place is not None and place.origin is not None
    code = Path(place.origin).read_bytes()
    assert NOT_THERE and all(name.encode() in code for name in NOT_THERE)
    assert all(word.encode() in code for words in NOT_THERE.values() for word in words)


def test_numbers_are_passed_to_kernels_as_wide_as_they_are() -> None:
    from cupy._core import _scalar

    for value in (
        np.uintp(1 << 63),
        np.int64(-1),
        np.int32(-1),
        np.uint64(1 << 63),
        np.float32(1),
        np.float64(1),
    ):
        passed = _scalar.CScalar(value)
        assert getattr(passed, "dtype", None) == value.dtype


DRIVER = """
#include <cstdio>
static int none() { return 100; }
extern "C" int cuInit(unsigned) { std::fputs("asked\\n", stderr); return 100; }
extern "C" int cuDriverGetVersion(int* v) { std::fputs("asked\\n", stderr); *v = 13000; return 0; }
extern "C" int cuGetProcAddress_v2(const char*, void** call, int, unsigned long, int* found) {
    *call = reinterpret_cast<void*>(none);
    if (found) *found = 0;
    return 0;
}
extern "C" int cuGetProcAddress(const char* name, void** call, int version, unsigned long flags) {
    return cuGetProcAddress_v2(name, call, version, flags, nullptr);
}
"""
"""A CUDA driver that says when it is asked for something, and has no GPU."""


def test_cupy_may_be_imported_before_it_is_known_which_gpus_are_seen(tmp_path: Path) -> None:
    """A process that waits for its turn has CuPy already: the driver must not have looked by then."""
    (tmp_path / "driver.cpp").write_text(DRIVER)
    library = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(["g++", *library, str(tmp_path / "driver.cpp")], check=True)
    code = (
        "import sys, bench.backends.cuda, cupy\nprint('imported', file=sys.stderr, flush=True)\n"
        "try:\n    cupy.cuda.runtime.getDeviceCount()\nexcept RuntimeError:\n    pass"
    )
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **paths}, capture_output=True, text=True
    )
    said = done.stderr.splitlines()
    assert said.index("imported") < said.index("asked"), done.stderr


def compiled(source: str, *options: str) -> bytes:
    """Machine code by CuPy's compiler, with the options that CuPy adds to ours."""
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(source, "kern.cu", (), ())
    try:
        nvrtc.compileProgram(program, (STANDARD, *options, "--device-as-default-execution-space"))
        return bytes(nvrtc.getCUBIN(program))
    finally:
        nvrtc.destroyProgram(program)


@pytest.fixture(scope="module")
def compiler() -> None:
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"CuPy finds no NVRTC ({error}): make setup-dev")


@pytest.mark.usefixtures("compiler")
def test_the_engines_own_code_compiles_as_cupy_compiles_it() -> None:
    for capability in (75, 80, 90, 120):
        assert compiled(OWN_CODE, "-ftz=true", f"-arch=sm_{capability}").startswith(b"\x7fELF")


@pytest.mark.usefixtures("compiler")
def test_the_architecture_with_a_letter_prevails_over_the_one_that_cupy_adds() -> None:
    form = next(form for form in CUDA["tensor"].forms if form.only == ("90a",) and "fp8" in form.precision)
    source = CUDA["tensor"].source(form.entry)
    assert compiled(source, "-arch=sm_90a", "-ftz=true", "-arch=sm_90").startswith(b"\x7fELF")
    with pytest.raises(cupy.cuda.nvrtc.NVRTCError):
        compiled(source, "-ftz=true", "-arch=sm_90")
    assert "//" in cupy.cuda.compiler._preprocess("", (STANDARD, "-arch=sm_90a"), "90", "nvrtc")
