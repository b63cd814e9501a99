"""The board of a simulated GPU: its clock under load, its telemetry, and what a driver would say of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.backends.simulation.truth import Truth

SETTLE = 20.0
"""Seconds of load in which most of the way to the highest temperature is gone."""

POWER_CAP = "sw_power_cap"

Row = tuple[float, float, float]
"""Of a repetition: seconds, share of the nominal clock, seconds under this load before it."""


class Board:
    """State of a board: `warm` since a round's warm-up, `loaded` seconds by the point being measured.

    A CPU has one too, whose clock always holds and which tells nothing.
    """

    def __init__(self, truth: Truth) -> None:
        self.gpu, self.truth = truth.gpu, truth
        self.warm = False
        self.loaded = 0.0

    def clocked(self, model: Callable[[float], Any]) -> list[Row]:
        """Repetitions at the clock that the board holds at each; model(share) -> their seconds."""
        if self.gpu is None:
            return [(s, 1.0, 0.0) for s in model(1.0).tolist()]
        free, capped = 1.0 if self.warm else self.gpu.burst, self.gpu.sustained
        unheld = model(free).tolist()
        rows = []
        for fast, slow in zip(unheld, model(capped).tolist() if capped < 1 else unheld, strict=True):
            held = self.loaded >= self.gpu.after and capped < 1
            seconds, share = (slow, capped) if held else (fast, free)
            rows.append((seconds, share, self.loaded))
            self.loaded += seconds
        return rows

    def telemetry(self, rows: Sequence[Row]) -> dict[str, tuple[Any, ...]]:
        """Fields of Repetitions that only a GPU's telemetry fills."""
        gpu = self.gpu
        if gpu is None:
            return {}
        watts = (gpu.idle_w + (gpu.load_w - gpu.idle_w) * min(1.0, share) for _, share, _ in rows)
        return {
            "power_w": () if gpu.mig else tuple(watts),  # of all slices together, as on a real board
            "temperature_c": tuple(self._celsius(since) for _, _, since in rows),
            "throttle": tuple(POWER_CAP if share < 1 else "" for _, share, _ in rows),
        }

    def _celsius(self, loaded: float) -> float:
        assert self.gpu is not None
        return self.gpu.idle_c + (self.gpu.load_c - self.gpu.idle_c) * (1 - math.exp(-loaded / SETTLE))

    @property
    def facts(self) -> dict[str, Any]:
        """What every sample must say: the power of a slice is that of all its board."""
        return {"whole_board": True} if self.gpu and self.gpu.mig else {}

    def conditions(self) -> dict[str, Any]:
        """Power (W), temperature (degree Celsius), the memory's clock (Hz) and processes before a round."""
        if self.gpu is None:
            return {}
        shown = {} if self.gpu.mig else {"memory_clock_hz": self.gpu.memory_clock_hz}
        return {"power_w": self.gpu.idle_w, "temperature_c": self.gpu.idle_c, "processes": 0, **shown}


def gpu_facts(truth: Truth) -> Mapping[str, Any]:
    """The facts of Device that a real GPU has, named alike."""
    gpu = truth.gpu
    if gpu is None:
        return {}
    slice = {"profile": gpu.mig, "sms": truth.threads, "memory_bytes": int(truth.memory.bytes)}
    note = {"note": "clocks, power and temperature are the whole board's"}
    return {
        "unit": "SM",
        "compute_capability": gpu.compute_capability,
        "sm_count": truth.threads,
        "l2_bytes": int(truth.caches[-1].shown) if truth.caches else None,
        "memory_bus_bits": None if gpu.mig else gpu.memory_bus_bits,
        "max_memory_clock_hz": gpu.memory_clock_hz,
        "max_sm_clock_hz": truth.clock_hz * gpu.burst,
        "free_bytes": int(truth.memory.bytes),
        "gpus": list(range(truth.peers.devices if truth.peers else 1)),
        "mig": slice | note if gpu.mig else {},
        "notes": [],
    }


def gpu_identity(name: str, truth: Truth) -> Mapping[str, Any]:
    """What tells this GPU from another of its kind, as a real one's hashed UUID does."""
    if truth.gpu is None:
        return {}
    uuid = hashlib.sha256(f"{name}|{truth.seed}".encode()).hexdigest()[:12]
    return {
        "cc": f"{truth.gpu.compute_capability / 10:.1f}",
        "sms": truth.threads,
        "mig": truth.gpu.mig,
        "uuid": uuid,
    }
