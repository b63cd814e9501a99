"""Launch kernels: what starting work costs, T0, the time that nothing overlaps.

kernel     work                    what its time is
empty      none                    T0
smallest   a = b, V bytes moved    T0 + V / b: the smallest useful kernel, V from one kB on

seconds a start = seconds of a repetition / its amount, whatever a start is:

plain      a kernel launched into a queue in which the GPU finds the next one waiting
graph      a kernel of a CUDA graph that is replayed: launched once for many
host       what the host needs to queue a launch
sync       a launch, and the host's wait until it is known to be done
team       a thread team that is released and comes back, spinning (CPU); woken: one that sleeps

On a CPU a variant may also be an implementation of workloads (RUNNERS): its smallest call, on all threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels import stream
from kernels.spec import CudaFamily, CudaForm, Expect, Kernel, StreamShape, Work

VARIANTS = ("plain", "graph", "host", "sync")
"""How a GPU is made to start a kernel."""

BY_THREADS, BY_FFT, BY_BLAS = "Numba, native threads", "scipy.fft, workers", "BLAS of NumPy"
RUNNERS = (BY_THREADS, BY_FFT, BY_BLAS)
"""What runs the workloads on a CPU, each with a T0 of its own."""


def empty(a: Any, b: Any) -> None:
    """Nothing."""


def smallest(a: Any, b: Any) -> None:
    for i in range(len(a)):
        a[i] = b[i]


def _nothing(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    return Work(0.0)


def _copied(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["starts"]` (default 1) copies of `sizes["n"]` items."""
    once = stream.cost("copy", item_bytes, {"n": sizes["n"]}, level)
    return once.times(sizes.get("starts", 1))


KERNELS = (
    Kernel("empty", "launch", "none", _nothing, empty, lambda np, a, b: a, StreamShape((), ())),
    Kernel(
        "smallest",
        "launch",
        "copy",
        _copied,
        smallest,
        lambda np, a, b: b.copy(),
        StreamShape(("b",), ("a",)),
    ),
)

# CUDA: a thread of `smallest` moves 16 bytes; n is a multiple of 4 items.
PREAMBLE = r"""
#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(1024) NAME( \
    float* a, const float* b, const float* c, const float* s, long long n, int count)
"""

SMALLEST = """{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i < n) reinterpret_cast<int4*>(a)[i] = reinterpret_cast<const int4*>(b)[i];
}"""

MOVED = {r"LDG\.E\.128(\.CONSTANT)?(\.SYS)?": 1, r"STG\.E\.128(\.SYS)?": 1}

CUDA = CudaFamily(
    PREAMBLE,
    (
        CudaForm(
            *("empty", "ENTRY(empty) {}", "empty", "fp32", "plain"),
            expect=Expect({"EXIT": 1}, loop=False, registers=32, forbidden=("LDG.*", "STG.*")),
            grid="persistent",
            blocks=(32,),
        ),
        CudaForm(
            *("smallest", f"ENTRY(smallest) {SMALLEST}", "smallest", "fp32", "plain"),
            expect=Expect(MOVED, loop=False, load_bits=128, registers=32),
            items=4,
        ),
    ),
)
