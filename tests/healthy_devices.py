"""Healthy simulated devices drawn at random: CPUs and GPUs whose numbers lie as those of real ones do."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.gpu.rates import LABELS, bus_bytes_per_second, flops_per_clock_per_sm

CAPABILITIES = (75, 80, 86, 89, 90, 100)

LEVELS = (("L1", (32, 48)), ("L2", (256, 512, 1024)), ("L3", (16384, 32768)))
"""Caches of a CPU with their possible sizes in KiB; the last belongs to all threads, twice those below it."""


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def cpu(seed: int) -> dict[str, Any]:
    """Plain values of a CPU: pi 20 GFLOP/s to 1.3 TFLOP/s, ridge 2 to 20 FLOP/byte, p 2 to 10.

    Bandwidths differ by access up to 1.5 times, copy and triad by 6 % (both load and store, in that order);
    each cache is 1.5 to 3 times as fast as what lies behind it.
    """
    rng = np.random.default_rng([seed, 0])
    threads = int(rng.choice([2, 4, 8, 12, 16]))
    pi = _log(rng, 1e10, 8e10) * threads
    read = pi / _log(rng, 2, 20)
    copy = read * rng.uniform(0.9, 1.45)
    memory = {
        "bytes": float(rng.choice([16e9, 64e9, 256e9])),
        "read": read,
        "write": read * rng.uniform(0.85, 1.3),
        "update": read * rng.uniform(1.0, 1.5),
        "copy": copy,
        "triad": copy * rng.uniform(0.94, 1.06),
        "write_allocate": bool(rng.random() < 0.7),
    }
    return {
        "threads": threads,
        "seed": seed,
        "clock_hz": float(rng.uniform(1.8e9, 4.5e9)),
        "pi": {"fp64": pi, "fp32": pi * float(rng.uniform(1.9, 2.05))},
        "unsupported": {
            "fp16": "no fp16 arithmetic",
            "bf16": "no bf16 arithmetic",
            "int8": "no int8 product",
        },
        "memory": {k: v if isinstance(v, bool) else float(v) for k, v in memory.items()},
        "caches": _caches(rng, read, threads),
        "p": _log(rng, 2, 10),
        "t0": _log(rng, 1e-7, 5e-6),
        "one_thread": {"pi": 1 / threads, "memory": float(threads ** -rng.uniform(0.3, 0.8))},
        "noise": {"within": float(rng.uniform(0.004, 0.03)), "between": float(rng.uniform(0.002, 0.015))},
        "library": {"efficiency": float(rng.uniform(0.75, 0.95)), "half_size": _log(rng, 20, 100)},
        "naive": float(rng.uniform(0.1, 0.6)),
        "variant_spread": float(rng.uniform(0, 0.08)),
    }


def _caches(rng: np.random.Generator, behind: float, threads: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for level, sizes in reversed(LEVELS):
        behind, last = behind * rng.uniform(1.5, 3.0), level == LEVELS[-1][0]
        size = int(rng.choice(sizes)) * 1024
        where = {"sharers": threads if last else 1, "instances": 1 if last else threads}
        rates = {"read": float(behind), "copy": float(behind * rng.uniform(0.75, 1.1))}
        found.insert(0, {"level": level, "bytes": size, **where, **rates})
    found[-1]["bytes"] = max(found[-1]["bytes"], 2 * found[-2]["bytes"] * threads)
    return found


def gpu(seed: int) -> dict[str, Any]:
    """Plain values of a GPU: 0.93 to 0.99 of its SMs' theoretical rates, 0.85 to 0.95 of its memory bus.

    Its clock is up to 8 % higher in a burst; under some seconds of one load it may have to fall by a fifth.
    """
    rng = np.random.default_rng([seed, 1])
    capability, sms = int(rng.choice(CAPABILITIES)), int(rng.integers(20, 145))
    clock = float(rng.uniform(1.1e9, 2.2e9))
    rates = {label: flops_per_clock_per_sm(capability, label)[0] for label in LABELS}
    pi = {k: float(r * sms * clock * rng.uniform(0.93, 0.99)) for k, r in rates.items() if r}
    pi = {k: v for k, v in pi.items() if k.split(" ")[0].split(">")[0] != "fp4"}
    bus = {
        "memory_bus_bits": int(rng.choice([192, 256, 384])),
        "memory_clock_hz": float(rng.uniform(6e9, 1.1e10)),
    }
    if capability in (80, 90, 100):
        bits, hertz = int(rng.choice([4096, 5120, 6144])), float(rng.uniform(1.2e9, 3e9))
        bus = {"memory_bus_bits": bits, "memory_clock_hz": hertz}
    read = float(bus_bytes_per_second(*bus.values()) or 0.0) * float(rng.uniform(0.85, 0.95))
    near = {access: read * float(rng.uniform(0.92, 1.0)) for access in ("write", "update", "copy", "triad")}
    fast = read * float(rng.uniform(1.8, 3.5))
    l2 = {
        "level": "L2",
        "bytes": float(rng.choice([4e6, 6e6, 24e6, 40e6, 50e6])),
        "sharers": sms,
        "instances": 1,
    }
    return {
        "threads": sms,
        "seed": seed,
        "clock_hz": clock,
        "pi": pi,
        "memory": {
            "bytes": float(rng.choice([16e9, 24e9, 80e9])),
            "read": read,
            **near,
            "write_allocate": False,
        },
        "caches": [{**l2, "read": fast, "copy": fast * float(rng.uniform(0.7, 0.95))}],
        "p": _log(rng, 3, 15),
        "t0": _log(rng, 2e-6, 8e-6),
        "one_thread": {"pi": 1 / sms, "memory": 1.5 / sms},
        "noise": {"within": float(rng.uniform(0.001, 0.006)), "between": float(rng.uniform(0.001, 0.005))},
        "library": {"efficiency": float(rng.uniform(0.8, 0.95)), "half_size": _log(rng, 200, 500)},
        "variant_spread": float(rng.uniform(0, 0.05)),
        "gpu": {
            "compute_capability": capability,
            "burst": float(rng.uniform(1.0, 1.08)),
            "sustained": float(rng.choice([1.0, rng.uniform(0.8, 0.97)])),
            "after": float(rng.uniform(3, 6)),
            "idle_w": float(rng.uniform(10, 90)),
            "load_w": float(rng.uniform(120, 700)),
            **bus,
        },
    }


def device(seed: int) -> dict[str, Any]:
    """Even seeds are CPUs, odd ones GPUs."""
    return gpu(seed) if seed % 2 else cpu(seed)
