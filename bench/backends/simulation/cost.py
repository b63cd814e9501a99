"""What a point costs on a simulated device: seconds at pi and at beta of each level, per unit of work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.backends.simulation import links
from bench.backends.simulation.truth import Truth
from bench.fitting.intervals import MEDIAN, P75, sweep_quantile
from bench.profile.records import Point
from bench.profile.roofline import seconds as p_norm
from kernels import KERNELS
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ITEM_BYTES, Kernel, StreamShape, Work
from kernels.stream import hidden_streams

VECTOR_BYTES = 32
"""Width of the pretended vectors: it sets the grain of a repetition, no rate depends on it."""

TYPICAL_EFFICIENCY = 0.8
"""Efficiency of a workload that the truth says nothing about."""

GPU_VARIANTS = {
    "fma": ("8 chains b256", "8 chains b512", "8 chains b128"),
    "stream": ("v16 l4 b256", "v16 l8 b256", "v16 l2 b256"),
    "gemm": ("library",),
    "mma": ("mma b256", "mma b128"),
    "wgmma": ("wgmma b256", "wgmma b128"),
}

VARIANTS = {
    "fma": ("12 chains", "10 chains", "16 chains", "8 chains"),
    "fma-naive": ("numba",),
    "stream": ("s3u4", "s6u2", "s1u8"),
    "mix": ("s6u2p512", "s6u2", "s3u4"),
    "gemm": ("square",),
    "cache": ("s1u8", "s1u12"),
}


@dataclass(frozen=True)
class Cost:
    """What one unit takes, in s: `compute` at pi of `precision`, `memory` at beta by level.

    unit: its work;  allocated: bytes that all arrays of the point take together
    read_at: quantile of the rates that the suite reads this kind of point at
    bare: whether the device's overhead per repetition is part of what is priced already
    p: overlap norm of the two, None for the device's
    """

    unit: Work
    allocated: float
    precision: str
    compute: float = 0.0
    memory: tuple[tuple[str, float], ...] = ()
    read_at: float = MEDIAN
    bare: bool = False
    p: float | None = None

    def slower(self, factor: float) -> Cost:
        """The same work, every second of it `factor` times as long."""
        memory = tuple((level, seconds * factor) for level, seconds in self.memory)
        return replace(self, compute=self.compute * factor, memory=memory)


def variants(kernel: str, gpu: bool = False) -> tuple[str, ...]:
    """Names of the forms of a kernel; of a workload, the only one."""
    if kernel not in KERNELS:
        return ("simulated",)
    known, family = GPU_VARIANTS if gpu else VARIANTS, KERNELS[kernel].family
    return known.get(kernel) or known.get(family) or ("simulated",)


def known_kernels(family: str, gpu: bool = False) -> tuple[str, ...]:
    """Names that a point of this family may have."""
    return tuple(zoo(gpu)) if family == "workload" else tuple(KERNELS)


def _far(truth: Truth, point: Point) -> Cost:
    """A point of the links and latencies."""
    unit, allocated, times = links.price(truth, point)
    return Cost(unit, allocated, next(iter(truth.pi)), memory=times, bare=True)


def zoo(gpu: bool = False) -> Mapping[str, Any]:
    """The workloads by name; imported late because the zoo brings its compilers."""
    if gpu:
        from bench.workloads.on_gpu import ON_GPU

        return ON_GPU
    from bench.workloads.zoo import ZOO

    return ZOO


def cost(truth: Truth, point: Point) -> Cost:
    """Cost of one unit of `point`: a block of 12 vectors, a pass over a cache, a product, a workload."""
    if point.family == "workload":
        return _workload(truth, point)
    if point.family in links.FAMILIES:
        return _far(truth, point)
    if point.family == "scaling":
        one = cost(truth, replace(point, family=KERNELS[point.kernel].family))
        return replace(one, unit=one.unit.times(point.sizes.get("devices", 1)))  # all of them at once
    kernel, precision = KERNELS[point.kernel], truth.rate_of(point.precision)
    arrays = _arrays(kernel)
    unit = kernel.work(ITEM_BYTES.get(point.precision.inputs, 1), _unit_sizes(point, arrays), point.level)
    compute = unit.flops / truth.pi_at(precision, point.threads)
    if point.family in ("fma", "tensor"):
        share = truth.naive if point.kernel == "fma-naive" else 1.0
        found = Cost(unit, 0.0, precision, compute / share, read_at=P75)
    elif point.family == "gemm":
        share = truth.library_share(point.sizes["m"], point.sizes["n"], point.sizes["k"])
        found = Cost(unit, unit.bytes(point.level), precision, compute / share, read_at=P75)
    else:
        own = "whole" not in point.sizes  # else one set that all SMs read
        together = (point.threads if own else 1) if point.family == "cache" else arrays
        allocated = float(point.sizes["bytes"] * together)
        traffic = _traffic(truth, point, kernel, unit, allocated)
        mixed, p = point.family == "mix", _norm(truth, point)
        read_at = sweep_quantile(compute / _together(compute, traffic, p)) if mixed else MEDIAN
        found = Cost(unit, allocated, precision, compute if mixed else 0.0, traffic, read_at=read_at, p=p)
    return found.slower(1 / _variant_share(truth, point))


def _together(compute: float, traffic: Sequence[tuple[str, float]], p: float) -> float:
    return p_norm(compute, sum(seconds for _, seconds in traffic), 1.0, 1.0, p)


def _norm(truth: Truth, point: Point) -> float:
    """p: of few blocks an SM its own where the truth has one, since they hide less behind each other."""
    sparse = truth.gpu.sparse_p if truth.gpu and point.sizes.get("blocks_per_sm") else None
    return sparse or truth.p


def _arrays(kernel: Kernel) -> int:
    shape = kernel.shape
    return len({*shape.loads, *shape.stores}) if isinstance(shape, StreamShape) else 1


def _unit_sizes(point: Point, arrays: int) -> Mapping[str, int]:
    """Sizes of one unit in the kernel's own words."""
    item_bytes = ITEM_BYTES.get(point.precision.inputs, 1)
    if point.family == "gemm":
        return point.sizes
    if point.family == "cache":
        return {"n": point.sizes["bytes"] * point.threads // (item_bytes * arrays)}
    block = {"n": BLOCK_VECTORS * VECTOR_BYTES // item_bytes * point.threads}
    names = ("fma", "block") if point.family == "mix" else ()
    return {**block, **{name: point.sizes[name] for name in names if name in point.sizes}}


def _traffic(
    truth: Truth, point: Point, kernel: Kernel, unit: Work, working_set: float
) -> tuple[tuple[str, float], ...]:
    """Seconds per unit at each level that serves part of it; write-allocate slows the DRAM part."""
    passed = "L1" if truth.gpu and _passes_l1(point) else ""
    shares = truth.residency(working_set, point.threads, passed)
    traffic = dict.fromkeys(shares, unit.bytes(point.level))
    if "DRAM" in traffic:
        traffic["DRAM"] *= 1 + hidden_traffic(truth, kernel, point.store)
    return tuple(
        (level, share * traffic[level] / truth.beta_at(level, kernel.access, point.threads))
        for level, share in shares.items()
    )


def _passes_l1(point: Point) -> bool:
    """Whether a GPU's accesses pass L1 by: those of a plateau behind it, and the operator that says so."""
    behind = "plateau" in point.sizes and point.level != "L1"
    return point.family == "cache" and (behind or point.variant.startswith(("cg", "na")))


def hidden_traffic(truth: Truth, kernel: Kernel, store: str) -> float:
    """Bytes that write-allocate moves in DRAM beside each counted byte."""
    if not truth.memory.write_allocate or not isinstance(kernel.shape, StreamShape):
        return 0.0
    return hidden_streams(kernel.shape, store) / (len(kernel.shape.loads) + len(kernel.shape.stores))


def _workload(truth: Truth, point: Point) -> Cost:
    """The p-norm at the work's own read fraction, slower by a fixed efficiency per workload."""
    unit: Work = zoo(truth.gpu is not None)[point.kernel].work(point.sizes)
    level = point.level or "DRAM"
    memory = unit.bytes(level) / truth.beta_of_mixture(unit.read_fraction(level), point.threads)
    compute = unit.flops / truth.pi_at(truth.rate_of(point.precision), point.threads)
    efficiency = truth.workloads.get(point.kernel, truth.workloads.get("default", TYPICAL_EFFICIENCY))
    found = Cost(unit, unit.bytes(level), point.precision.inputs, compute, (("DRAM", memory),))
    return found.slower(1 / efficiency)


def _variant_share(truth: Truth, point: Point) -> float:
    """1 for the best variant, 1 - variant_spread for the worst; which is which depends on the seed."""
    names = variants(point.kernel, truth.gpu is not None)
    if not truth.variant_spread or len(names) < 2 or point.variant not in names:
        return 1.0
    text = f"{truth.seed}|{point.kernel}|{point.precision.label}"
    best = hashlib.blake2b(text.encode()).digest()[0] % len(names)
    rank = (names.index(point.variant) - best) % len(names)
    return 1.0 - truth.variant_spread * rank / (len(names) - 1)
