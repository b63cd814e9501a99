"""A realistic profile of a two-core CPU, built from known numbers, for tests that need one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from bench.profile import roofline
from bench.profile.records import (
    SCHEMA_VERSION,
    Ceiling,
    Curve,
    CurvePoint,
    Fit,
    Interval,
    Placement,
    Precision,
    Profile,
)

G = 1e9
THREADS = 2
PI = {"fp64": 90 * G, "fp32": 180 * G}
BETA = {"read": 20 * G, "update": 30 * G, "copy": 28 * G, "triad": 27 * G, "write": 24 * G}
CACHE_BETA = {"L1": (270 * G, 300 * G), "L2": (150 * G, 130 * G), "L3": (110 * G, 90 * G)}
CACHE_BYTES = {"L1": 48 << 10, "L2": 2 << 20, "L3": 32 << 20}
P = {"read-only": 6.0, "in-place": 4.0}
ACCESS_OF_MODE = {"read-only": "read", "in-place": "update"}


def around(value: float, half_width: float) -> Interval:
    """An interval that is symmetric on the log scale with the given half-width."""
    return Interval(value, value / (1 + half_width), value * (1 + half_width))


def ceiling(quantity: str, value: float, **changes: Any) -> Ceiling:
    """One ceiling of five rounds; keywords replace any field, half_width its interval."""
    half_width = changes.pop("half_width", 0.006 if quantity == "pi" else 0.03)
    precision = changes.pop("precision", "fp64")
    fields: dict[str, Any] = {
        "precision": precision if isinstance(precision, Precision) else Precision.of(precision),
        "level": "" if quantity == "pi" else "DRAM",
        "access": "none",
        "store": "none",
        "scope": "all",
        "threads": THREADS,
        "operands": "random",
        "kernel": "fma",
        "variant": "12 chains",
        "estimate": around(value, half_width),
        "best": value * (1.012 if quantity == "pi" else 1.06),
        "unit": "FLOP/s" if quantity == "pi" else "byte/s",
        "regime": "typical",
        "statistic": "p75" if quantity == "pi" else "median",
        "rounds": 5,
        "cap": 0.02 if quantity == "pi" else 0.10,
        "converged": True,
        "contended": 0.02,
    }
    return Ceiling(quantity, **{**fields, **changes})


def _compute_ceilings() -> Iterator[Ceiling]:
    for name, value in PI.items():
        library = Precision.of(name, "library")
        yield ceiling("pi", value, precision=name, clock_hz=2.9e9, per_clock_per_unit=value / 2.9e9 / 2)
        yield ceiling("pi", value * 1.01, precision=name, regime="burst")
        yield ceiling("pi", value * 0.51, precision=name, scope="core", threads=1)
        yield ceiling(
            "pi",
            value * 0.96,
            precision=library,
            kernel="gemm",
            variant="square",
            half_width=0.026,
            converged=False,
        )


def _memory_ceilings() -> Iterator[Ceiling]:
    streams = [
        ("read", "read", "none", 20.0, 0.0),
        ("write", "write", "nontemporal", 24.0, 0.0),
        ("write", "write", "ordinary", 15.5, 1.0),
        ("update", "update", "ordinary", 30.0, 0.0),
        ("copy", "copy", "nontemporal", 28.0, 0.0),
        ("copy", "copy", "ordinary", 21.0, 0.5),
        ("scale", "copy", "nontemporal", 27.8, 0.0),
        ("add", "triad", "nontemporal", 27.2, 0.0),
        ("triad", "triad", "nontemporal", 27.0, 0.0),
        ("triad", "triad", "ordinary", 23.0, 1 / 3),
    ]
    for kernel, access, store, value, hidden in streams:
        yield ceiling(
            "beta",
            value * G,
            kernel=kernel,
            access=access,
            store=store,
            variant="s3u4",
            hidden_traffic=hidden,
            contended=0.31 if kernel == "add" else 0.04,
        )
    for kernel, access, store, value in [
        ("read", "read", "none", 14.0),
        ("copy", "copy", "nontemporal", 19.0),
    ]:
        yield ceiling(
            "beta",
            value * G,
            kernel=kernel,
            access=access,
            store=store,
            variant="s6u2",
            scope="core",
            threads=1,
        )
    for level, rates in CACHE_BETA.items():
        for access, store, value in zip(("read", "copy"), ("none", "ordinary"), rates, strict=True):
            for scope, threads in (("all", THREADS), ("core", 1)):
                yield ceiling(
                    "beta",
                    value * threads / THREADS,
                    kernel=f"cache-{access}",
                    access=access,
                    store=store,
                    level=level,
                    variant="s1u8",
                    scope=scope,
                    threads=threads,
                    half_width=0.012,
                    cap=0.05,
                )


def _mix(mode: str, precision: str, noise: random.Random) -> Curve:
    pi, beta, p = PI[precision] * 0.99, BETA[ACCESS_OF_MODE[mode]] * 0.98, P[mode]
    item, written = (8 if precision == "fp64" else 4), (2 if mode == "in-place" else 1)
    points = []
    for fma in (1, 2, 4, 6, 12, 24, 36, 48, 72, 96, 144, 192, 384, 768, 1536, 3072, 6144):
        x = 2 * fma / 12 / item / written
        rates = tuple(roofline.rate(x, pi, beta, p) * noise.lognormvariate(0, 0.02) for _ in range(5))
        value, moved = sorted(rates)[2], 256e6
        estimate = around(value, 0.02 + 0.03 * (x < 1))
        points.append(CurvePoint(x, estimate, x * moved, moved, x * moved / value, rates, "s6u2p512"))
    return Curve(
        "mix",
        mode,
        Precision.of(precision),
        "all",
        THREADS,
        "FLOP/s",
        tuple(points),
        tuple(_fits(pi, beta, p)),
    )


def _fits(pi: float, beta: float, p: float) -> Iterator[Fit]:
    ridge = around(pi / beta, 0.04)
    yield Fit("hard-min", around(pi, 0.03), around(beta, 0.05), ridge, Interval(1.0), None, 0.0, 0.071, -40.0)
    omega = roofline.overlap(p)
    interval = Interval(omega, omega - 0.03, omega + 0.03)
    yield Fit("p-norm", around(pi, 0.01), around(beta, 0.03), ridge, interval, p, 2e-6, 0.024, -81.5, True)


def _cache(scope: str, threads: int) -> Curve:
    points = []
    for exponent in range(12, 29):
        size = float(1 << exponent)
        level = next((name for name, capacity in CACHE_BYTES.items() if size <= capacity), "")
        value = (CACHE_BETA[level][0] if level else BETA["read"]) * threads / THREADS
        points.append(CurvePoint(size, around(value, 0.02), 0.0, size, size / value, (value,) * 5, "s1u8"))
    return Curve("cache", "read", Precision.of("fp64"), scope, threads, "byte/s", tuple(points))


def _gemm(precision: str) -> Curve:
    points = []
    for n in (64, 128, 256, 512, 1024, 2048):
        flops, moved = 2.0 * n**3, 4.0 * n * n * (8 if precision == "fp64" else 4)
        value = PI[precision] * 0.96 / (1 + (60 / n) ** 2)
        points.append(CurvePoint(float(n), around(value, 0.02), flops, moved, flops / value, (value,) * 5))
    library = Precision.of(precision, "library")
    return Curve("gemm", "square", library, "all", THREADS, "FLOP/s", tuple(points))


WORKLOADS = (
    # name, precision, implementation, FLOP, bytes read, bytes written, efficiency, note
    ("gemm-square", "fp64", "OpenBLAS", 1.72e10, 1.01e8, 3.4e7, 0.95, ""),
    ("gemm-tall", "fp64", "OpenBLAS", 8.39e9, 2.7e8, 1.3e8, 0.78, ""),
    ("gemv", "fp64", "OpenBLAS", 1.34e8, 5.37e8, 6.6e4, 0.91, ""),
    ("dot", "fp64", "numba threads", 6.7e7, 5.37e8, 8.0, 0.97, ""),
    ("stencil-7-point", "fp64", "numba threads", 1.34e8, 1.34e8, 1.34e8, 0.83, ""),
    ("spmv-csr", "fp64", "numba threads", 1.0e8, 6.2e8, 8e6, 0.64, "gather of x counted once"),
    ("softmax", "fp32", "numba threads", 3.4e8, 2.7e8, 2.7e8, 0.71, "exp counts 1 FLOP"),
    ("layernorm", "fp32", "numba threads", 5.4e8, 2.7e8, 2.7e8, 0.82, ""),
    ("fft", "fp64", "scipy.fft", 4.2e9, 2.7e8, 2.7e8, 0.31, "5 n log2 n"),
    ("transpose", "fp64", "numba threads", 0.0, 2.7e8, 2.7e8, 0.58, ""),
    ("resnet50-conv3x3", "fp32", "scipy.fft", 7.4e9, 2.6e7, 2.6e7, 0.41, "layer conv3_2, batch 32"),
    ("adam-step", "fp32", "numba threads", 2.4e8, 3.2e8, 2.4e8, 0.88, ""),
)


def placement(row: tuple[Any, ...]) -> Placement:
    """A placement by the hard roof with beta interpolated between read and copy."""
    name, precision, implementation, flops, reads, writes, share, note = row
    moved = reads + writes
    beta = BETA["read"] + (BETA["copy"] - BETA["read"]) * min(1.0, 2 * writes / moved)
    compute, memory = flops / PI[precision], moved / beta
    least, work = max(compute, memory), flops or moved
    taken = least / share
    return Placement(
        name=name,
        precision=Precision.of(precision),
        level="DRAM",
        threads=THREADS,
        implementation=implementation,
        flops=flops,
        bytes_read=reads,
        bytes_written=writes,
        seconds=around(taken, 0.02),
        achieved=around(work / taken, 0.02),
        attainable=around(work / least, 0.03),
        efficiency=around(share, 0.035),
        unit="FLOP/s" if flops else "byte/s",
        binds="compute" if compute > memory else "memory",
        idle=1 - min(compute, memory) / taken,
        least_seconds=least,
        source="counted from the definition",
        note=note,
    )


def synthetic_profile(simulated: bool = False) -> Profile:
    """Two cores: fp64 90 and fp32 180 GFLOP/s, read 20, copy 28, update 30, triad 27 GB/s."""
    noise = random.Random(2)
    name = "Simulated two-core CPU" if simulated else "Synthetic CPU @ 2.90GHz"
    identity = {
        "device": name,
        "kind": "simulated" if simulated else "cpu",
        "state": "vm",
        "threads": THREADS,
        "source": "0123abc",
        "schema_version": SCHEMA_VERSION,
    }
    provenance = {
        "tool": "empirical-roofline",
        "tool_version": "0.1.0",
        "commit": "58d8d2f",
        "source_hash": "0123456789ab",
        "label": "58d8d2f",
        "command": "python -m bench run --minutes 3",
        "time": "2026-11-30T02:50:00Z",
    }
    condition = {
        "busy_processes": 0,
        "steal_share": 0.004,
        "governor": "",
        "clock_hz": 2.9e9,
        "temperature_c": None,
        "turbo": None,
        "on_battery": False,
        "memory_available_bytes": 13 << 30,
        "swap_used_bytes": 0,
    }
    conditions = [{"round": i, "load_average": [0.1 * i, 0.1, 0.1], **condition} for i in range(1, 6)]
    mixes = [_mix(mode, precision, noise) for precision in PI for mode in P]
    caches = [_cache("all", THREADS), _cache("core", 1)]
    return Profile(
        schema_version=SCHEMA_VERSION,
        identity=identity,
        provenance=provenance,
        conditions=tuple(conditions),
        simulated=simulated,
        ceilings=(*_compute_ceilings(), *_memory_ceilings()),
        curves=(*mixes, *caches, *(_gemm(precision) for precision in PI)),
        placements=tuple(placement(row) for row in WORKLOADS),
        skipped=(
            {"what": "fma fp16", "reason": "this CPU has no fp16 vector arithmetic (needs AVX512-FP16)"},
            {"what": "fma bf16", "reason": "this CPU has no bf16 FMA on full vectors"},
        ),
        not_measured=("gemm fp32 core/1: the time box ended first",),
        facts={
            "naive": {
                label: {
                    "rate": 0.33 * pi,
                    "variant": "numba",
                    "threads": 1,
                    "scope": "core",
                    "ratio": 0.33 / 0.51,
                }
                for label, pi in PI.items()
            },
            "device": {
                "name": name,
                "state": "simulated" if simulated else "vm",
                "threads": THREADS,
                "memory_bytes": 16 << 30,
            },
        },
    )
