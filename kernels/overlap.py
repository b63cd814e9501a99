"""Pipelining: data arrive in chunks over a link while the chunk before is being computed on.

    for every item x of every chunk:   `fma` steps x <- x m + x, then total <- total + x
    n items:  n (2 fma + 1) FLOP,  n items read,  total = (1 + m)^fma sum(x)

The chunks tile the data, so the total is the same for any number of them: a chunk that was lost, computed on
twice or computed on before it had arrived shows in it. `fma` sets the intensity (2 fma + 1) / item bytes,
and with it which of the two sides is the longer one: T_compute = r T_move for any r. m is tiny, so that the
items stay close to themselves; 2^-20 shows in every total and is exact.

On a GPU a chunk comes from the host (access h2d: what is kept of it is a sum) and may go back there when it
is done (access both: x is stored where it was); then every item crosses the link twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.spec import CudaFamily, CudaForm, Expect, Kernel, LibraryShape, Work

FACTOR = 2.0**-20
"""m."""


def pipeline(chunks: Sequence[Any], m: Any, fma: int) -> Any:
    """The textbook form: chunk after chunk, item after item."""
    total = m - m
    for chunk in chunks:
        for i in range(len(chunk)):
            x = chunk[i]
            for _ in range(fma):
                x = x * m + x
            total = total + x
    return total


def reference(np: Any, chunks: Sequence[Any], m: float, fma: int) -> Any:
    """The closed form in fp64."""
    return (1.0 + m) ** fma * sum(float(np.sum(np.asarray(chunk, np.float64))) for chunk in chunks)


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """fma multiply-adds an item, and one addition where it does not go back over the link (`leaving`)."""
    n, fma, leaving = sizes["n"], sizes["fma"], sizes.get("leaving", 0)
    flops = 2 * fma * n + (n - leaving)
    return Work.at(level, float(flops), reads=float(item_bytes * n), writes=float(item_bytes * leaving))


KERNELS = (Kernel("pipeline", "overlap", "read", cost, pipeline, reference, LibraryShape()),)

# CUDA: a persistent grid over pairs of doubles. The two items of a pair are two chains; the warps of an SM
# hide their latency, as they do in any kernel of moderate work. `sum` starts from c where there is one: the
# chunks of a pass follow each other on one stream and add to the same pair of sums of each thread.
PREAMBLE = r"""
#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(512) NAME( \
    double* a, const double* b, const double* c, const double* s, long long n, int count)

struct alignas(16) Two { double x, y; };

__device__ Two worked(Two v, double m, int count) {
    for (int k = 0; k < count; ++k) {
        v.x = __fma_rn(v.x, m, v.x);
        v.y = __fma_rn(v.y, m, v.y);
    }
    return v;
}
"""

SUM = """{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    const double m = s[0];
    Two total = {0, 0};
    if (c) total = reinterpret_cast<const Two*>(c)[thread];
    for (long long i = thread; 2 * i < n; i += threads) {
        Two v = worked(reinterpret_cast<const Two*>(b)[i], m, count);
        total.x = total.x + v.x;
        total.y = total.y + v.y;
    }
    reinterpret_cast<Two*>(a)[thread] = total;
}"""

BACK = """{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    const double m = s[0];
    for (long long i = thread; 2 * i < n; i += threads)
        reinterpret_cast<Two*>(a)[i] = worked(reinterpret_cast<const Two*>(b)[i], m, count);
}"""

CUDA_FORMS = {"h2d": "sum", "both": "back"}
"""Which form a pipeline of each access runs."""

CUDA = CudaFamily(
    PREAMBLE,
    tuple(
        CudaForm(
            entry=f"pipeline_{variant}",
            code=f"ENTRY(pipeline_{variant}) {body}",
            kernel="pipeline",
            precision="fp64",
            variant=variant,
            expect=Expect({"DFMA": 2}, load_bits=128, registers=64),
            flops=4,
            grid="persistent",
            blocks=(256,),
        )
        for variant, body in (("sum", SUM), ("back", BACK))
    ),
)
