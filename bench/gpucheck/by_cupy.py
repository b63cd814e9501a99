"""What the device checks need of CuPy itself, behind the back of the suite's own GPU layer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

SECONDS = 30.0
"""For the child that breaks its own context."""

BUSY = (46, 999)
"""What CUDA says to a second process where only one may use the GPU."""

SOURCE = 'extern "C" __global__ void fault(int* nowhere) { nowhere[threadIdx.x] = 1; }'


@contextmanager
def another_stream() -> Iterator[None]:
    """Inside the block another stream than the backend's is CuPy's current one."""
    cupy: Any = import_module("cupy")

    with cupy.cuda.Stream(non_blocking=True):
        yield


def faulty_child() -> str:
    """What became of a child that writes where nothing is: "fault" as it should, else what it said."""
    words = [sys.executable, "-m", "bench.gpucheck.by_cupy"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {SECONDS:.0f} s"
    return (done.stdout.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def fault() -> str:
    """Write to an address that does not exist; "fault" when CUDA noticed."""
    cupy: Any = import_module("cupy")
    import numpy

    try:
        cupy.cuda.Device(0).use()
        cupy.cuda.runtime.free(0)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return "busy: the GPU takes one process only" if error.status in BUSY else f"not opened: {error}"
    try:
        cupy.RawKernel(SOURCE, "fault")((1,), (1,), (numpy.uintp(16),))
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return "fault"
    return "no fault was noticed"


if __name__ == "__main__":
    print(fault(), flush=True)
