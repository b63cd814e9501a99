"""Random truths of simulated devices, and the YAML file that hands one to the CLI."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from bench.backends import Prepared
from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import truth_of
from bench.profile.records import Point, Precision
from kernels import KERNELS

QUIET = {"within": 0.0, "between": 0.0}


def random_truth(seed: int, within: float = 0.02, between: float = 0.03) -> dict[str, Any]:
    """Plain values of a complete truth: pi 10 GFLOP/s to 10 TFLOP/s, ridge 2 to 20, p 1.5 to 8.

    within, between: standard deviations of log seconds per repetition and per round
    """
    draw = random.Random(seed)
    threads = draw.choice([1, 2, 4, 8, 16, 64])
    pi = 10 ** draw.uniform(10, 13)
    read = pi / 2 / 10 ** draw.random()
    near = {access: read * draw.uniform(0.8, 1.5) for access in ("write", "update", "copy", "triad")}
    caches, beta = [], read
    for level, size in reversed((("L1", 32), ("L2", 512), ("L3", 8192))):
        beta *= draw.uniform(1.5, 3.0)
        own = level != "L3"
        caches.insert(
            0,
            {
                "level": level,
                "bytes": size * 1024 * draw.choice([1, 2]) * (1 if own else threads),
                "sharers": 1 if own else threads,
                "instances": threads if own else 1,
                "read": beta,
                "copy": beta * draw.uniform(0.7, 1.2),
            },
        )
    return {
        "threads": threads,
        "seed": seed,
        "clock_hz": draw.uniform(1e9, 4e9),
        "pi": {"fp64": pi, "fp32": pi * draw.uniform(1.6, 2.1)},
        "unsupported": {"fp16": "not in this truth"},
        "memory": {"bytes": 256e9, "read": read, **near, "write_allocate": draw.random() < 0.7},
        "caches": caches,
        "p": draw.uniform(1.5, 8.0),
        "t0": 10 ** draw.uniform(-7.5, -6),
        "one_thread": {"pi": 1 / threads, "memory": threads ** -draw.uniform(0.3, 0.9)},
        "noise": {"within": within, "between": between},
        "workloads": {"default": draw.uniform(0.5, 0.95)},
    }


def write_truth(folder: Path, values: dict[str, Any], name: str = "truth") -> Path:
    """The YAML file (JSON is YAML) for `--device sim:FILE.yaml`."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(values, indent=1))
    return path


def changed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The truth with whole fields replaced."""
    return {**values, **changes}


def backend(values: dict[str, Any]) -> SimulatedBackend:
    """A simulated device of plain values."""
    return SimulatedBackend("truth", truth_of(values, "test"))


def point(kernel: str, precision: str = "fp64", threads: int = 1, **changes: Any) -> Point:
    """A point of `kernel` with the sizes and places that the planner would give it."""
    known = KERNELS[kernel]
    sizes = {
        "stream": {"bytes": 4 << 30},
        "mix": {"bytes": 4 << 30, "fma": 24},
        "gemm": {"m": 512, "n": 512, "k": 512},
        "cache": {"bytes": 8192},
    }.get(known.family, {})
    fields: dict[str, Any] = {
        "level": "" if known.family in ("fma", "tensor") else "DRAM",
        "access": known.access,
        "store": "none" if known.access in ("none", "read") else "ordinary",
        "scope": "all",
        "sizes": sizes,
    }
    unit = "library" if known.family == "gemm" else "vector"
    variant = {"fma": "12 chains", "mix": "s6u2", "gemm": "square", "cache": "s1u8"}.get(known.family, "s3u4")
    fields |= changes
    return Point(known.family, kernel, variant, Precision.of(precision, unit), threads=threads, **fields)


def once(device: SimulatedBackend, what: Point, amount: int = 1_000_000) -> tuple[Prepared, float]:
    """The prepared point and the seconds of a single repetition."""
    prepared = device.prepare(what)
    return prepared, device.measure(prepared, amount, 1).seconds[0]
