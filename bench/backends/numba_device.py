"""Whether Numba can drive a GPU in this process, which one it is, and what its errors mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.device import Cache, Device
from bench.errors import BenchError, DeviceError
from bench.gpu.faults import FATAL, OUT_OF_MEMORY, WORDS, ContextLost


def missing(simulator: bool = False) -> str:
    """Why Numba CUDA cannot drive a GPU in this process, in one line; "" where it can."""
    try:
        import numba
        import numba.cuda

        package: Any = numba
        if bool(package.config.ENABLE_CUDASIM) != simulator:
            return "no simulator" if simulator else "its simulator is no GPU: unset NUMBA_ENABLE_CUDASIM"
        if not package.cuda.is_available():
            return _absent(package.cuda)
    except Exception as error:  # a broken package may raise anything; it disables this backend alone
        return f"numba-cuda cannot be imported ({_line(error)}): install it, or go on without it"
    return ""


def _absent(cuda: Any) -> str:
    """Why Numba says that it is not available."""
    try:
        there = len(cuda.list_devices())
    except ImportError:  # its CudaSupportError is one
        there = 0
    if there:
        return "Numba finds no libnvvm to compile with: install nvidia-nvvm, or a CUDA toolkit"
    return "Numba finds no usable driver or GPU (see `python -m bench devices`)"


def numba_device(cuda: Any) -> Device:
    """The GPU as Numba sees it; DeviceError where it is not the one this process was started for."""
    found = cuda.get_current_device()
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if wanted.startswith("GPU-") and found.uuid[4:].lower() != wanted[4:].lower():  # of a slice: its board's
        raise DeviceError(f"this process was started for {wanted}, Numba opened {found.uuid}: report it")
    major, minor = found.compute_capability
    sms, name = int(found.MULTIPROCESSOR_COUNT), str(found.name)
    memory = cuda.current_context().get_memory_info()
    return Device(
        id="numba:0",
        kind="cuda",
        name=f"{name} through Numba",
        slug="".join(c if c.isalnum() else "-" for c in f"numba-{name}".lower()),
        state="quiet",
        threads=sms,
        memory_bytes=int(memory.total),
        caches=(Cache("L2", int(found.L2_CACHE_SIZE), sms, 1),),
        precisions=dict.fromkeys(("fp64", "fp32", "int32"), ""),
        identity={"device": name, "compute_capability": major * 10 + minor, "sms": sms},
        facts={
            "unit": "SM",
            "sm_count": sms,
            "max_threads_per_sm": int(found.MAX_THREADS_PER_MULTIPROCESSOR),
            "free_bytes": int(memory.free),
        },
    )


@contextmanager
def explained() -> Iterator[None]:
    """Whatever Numba or the driver raises as MemoryError, ContextLost or one sentence."""
    try:
        yield
    except (BenchError, MemoryError):
        raise
    except Exception as error:  # numba-cuda has a dozen classes of errors, some of them ImportErrors
        code = _code(error)
        if code == OUT_OF_MEMORY:
            raise MemoryError(_line(error)) from None
        if code in FATAL:
            raise ContextLost(f"Numba: {FATAL[code]} ended the GPU's context ({_line(error)})") from None
        words = WORDS.get(code, "")
        raise DeviceError(
            f"Numba failed on this GPU: {words} ({_line(error)})"
            if words
            else f"Numba failed on this GPU: {_line(error)}"
        ) from None


def _code(error: Exception) -> int:
    """The driver's status behind an error, 0 where there is none; the bindings make it an enumeration."""
    try:
        return int(getattr(error, "code", 0))
    except (TypeError, ValueError):
        return 0


def _line(error: Exception) -> str:
    """Class and first line of an error."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
