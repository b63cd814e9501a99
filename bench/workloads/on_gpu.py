"""The zoo on a GPU: the same work by the same formulas, done by CuPy's libraries or by our own CUDA code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu.batches import Task
from bench.gpu.bodies import MOST_LAUNCHES, Ready
from bench.gpu.engine import Engine
from bench.gpu.faults import translated
from bench.profile.records import Point, Precision
from bench.workloads import gpu_execution as by
from bench.workloads.workload import agree
from bench.workloads.zoo import ZOO
from kernels import gemm
from kernels.spec import ITEM_BYTES, Work

LEAST_CACHE = 128 << 20
"""Cache (byte) that sizes are chosen for at least: a GPU needs long arrays to come up to speed."""

OWN, CUBLAS, CUFFT = "own CUDA code", "cuBLAS", "cuFFT"

HALF = Precision("fp16", "fp32", "fp16", "matrix")


@dataclass(frozen=True)
class OnGpu:
    """How one workload is done on a GPU: who does it, sets of operands to take in turn, its small sizes."""

    implementation: str
    make: by.Make
    small: Mapping[str, int]
    precision: Precision
    work: Callable[[Mapping[str, int]], Work]
    terms: Callable[[Mapping[str, int]], int]
    tolerance: str


def _zoo(name: str, implementation: str, make: by.Make, **small: int) -> OnGpu:
    """A workload of the zoo on a GPU: its precision, cost and longest sum are the zoo's."""
    known = ZOO[name]
    sizes = {**known.small, **small}
    return OnGpu(
        implementation, make, sizes, Precision.of(known.precision), known.work, known.terms, known.precision
    )


def half_work(sizes: Mapping[str, int]) -> Work:
    """2 m n k FLOP; A and B read once, C written once, all in fp16."""
    return gemm.cost(ITEM_BYTES["fp16"], sizes, "DRAM")


ON_GPU: Mapping[str, OnGpu] = {
    "gemm fp16": OnGpu(
        CUBLAS, by.product("fp16"), {"m": 96, "n": 80, "k": 72}, HALF, half_work, lambda s: s["k"], "fp16"
    ),
    "gemm": replace(_zoo("gemm", CUBLAS, by.product("fp64")), precision=Precision.of("fp64", "library")),
    "fft": _zoo("fft", CUFFT, by.fft),
    "stencil 7-point": _zoo("stencil 7-point", OWN, by.seven_point),
    "layernorm": _zoo("layernorm", OWN, by.normalised),
    "softmax": _zoo("softmax", OWN, by.softmax),
    "adam": _zoo("adam", OWN, by.optimiser, n=1004),
    "gemv": _zoo("gemv", CUBLAS, by.gemv),
    "dot": _zoo("dot", CUBLAS, by.dot),
    "spmv csr": _zoo("spmv csr", OWN, by.sparse),
    "transpose": _zoo("transpose", OWN, by.turned),
}
"""By name, in the order of the zoo; the convolution needs cuDNN, the tall product a kernel of its own."""


def sizes_for(name: str, memory_bytes: float, cache_bytes: float, units: int) -> dict[str, int]:
    """Sizes on a GPU with so much memory, L2 (byte) and SMs: operands well beyond the cache."""
    if name == "gemm fp16":
        edge = 8192 if memory_bytes > 8 * 3 * 2 * 8192**2 else 2048
        return {"m": edge, "n": edge, "k": edge}
    found = ZOO[name].sizes(memory_bytes, max(cache_bytes, LEAST_CACHE), units)
    found.pop("sets", None)
    return {**found, "n": found["n"] // 4 * 4} if name == "adam" else found


def points(memory_bytes: float, cache_bytes: float, units: int) -> tuple[Point, ...]:
    """The workloads of a GPU, each at sizes that fit it."""
    return tuple(
        Point(
            "workload",
            name,
            how.implementation,
            how.precision,
            "DRAM",
            scope="device",
            threads=units,
            sizes=sizes_for(name, memory_bytes, cache_bytes, units),
        )
        for name, how in ON_GPU.items()
    )


def prepare(point: Point, engine: Engine) -> Prepared:
    """A workload ready to be timed; DeviceError for one that no GPU code does."""
    if point.kernel not in ON_GPU:
        raise DeviceError(f"no GPU code for workload {point.kernel!r}; there is: {', '.join(ON_GPU)}")
    how = ON_GPU[point.kernel]
    name = f"workload {point.kernel}"
    with translated(name):  # a library that is missing or refuses costs this workload alone
        made = [how.make(engine, point.sizes, seed) for seed in _seeds(point, how, engine)]
    turn = itertools.cycle(made)

    def check() -> None:
        with translated(name):
            trial = how.make(engine, how.small, 1)
            want = trial.expected()
            trial.launch()
            agree(point.kernel, trial.result(), want, how.tolerance, how.terms(how.small))

    task = Task(name, lambda amount: next(turn).launch())
    known = ZOO.get(point.kernel)
    facts = {
        "cold": "the operands exceed the L2 cache" if len(made) == 1 else f"{len(made)} sets in turn",
        "source": known.source if known else "BLAS convention",
        "in_place": bool(known and known.in_place and point.kernel != "fft"),
    }
    ready = Ready(task, check, [made])
    return Prepared(
        point, lambda amount: how.work(point.sizes).times(amount), 1, MOST_LAUNCHES, 1, facts, ready
    )


def _seeds(point: Point, how: OnGpu, engine: Engine) -> range:
    """One set of operands, or as many as exceed twice the L2 cache together."""
    bytes = how.work(point.sizes).bytes("DRAM")
    return range(1, 2 + int(2 * int(engine.properties["l2CacheSize"]) // max(bytes, 1)) * 8, 8)
