"""A device that computes nothing: known seconds per unit, virtual or real clock, faults by kernel name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from bench.backends import Prepared
from bench.device import Cache, Device
from bench.errors import DeviceError, VerificationError
from bench.gpu.faults import ContextLost
from bench.profile.records import Point, Precision, Repetitions
from kernels.spec import Work

FAKE = Device(
    id="fake",
    kind="cpu",
    name="Fake CPU",
    slug="fake-cpu",
    state="vm",
    threads=2,
    memory_bytes=8 << 30,
    caches=(Cache("L1", 32 << 10, 1, 2), Cache("L2", 512 << 10, 1, 2), Cache("L3", 16 << 20, 2, 1)),
    precisions={"fp64": "", "fp32": "", "bf16": "no bf16 here"},
    identity={"device": "Fake CPU", "threads": 2},
)

BIG = Device(
    id="big",
    kind="cpu",
    name="Big CPU",
    slug="big-cpu",
    state="quiet",
    threads=256,
    memory_bytes=1 << 40,
    caches=(Cache("L1", 48 << 10, 1, 256), Cache("L2", 2 << 20, 1, 256), Cache("L3", 256 << 20, 64, 4)),
    precisions={"fp64": "", "fp32": ""},
)

UNIT_SECONDS = 1e-6
FLOPS, BYTES = 100.0, 1600.0
"""Of one unit."""


class FakeBackend:
    """The verbs; every call is kept in `calls`.

    faults: kernel -> what goes wrong: "memory", "device", "verify", "hang", "crash", "lost", "zero", "bug"
    slow:   kernel -> factor on its seconds;  real: sleep instead of counting virtual seconds
    """

    clock_source = "native"

    def __init__(
        self,
        device: Device = FAKE,
        faults: Mapping[str, str] | None = None,
        slow: Mapping[str, float] | None = None,
        real: bool = False,
        switches: int = 0,
    ) -> None:
        self.device = device
        self.faults = dict(faults or {})
        self.slow = dict(slow or {})
        self.real = real
        self.switches = switches
        self.calls: list[tuple[Any, ...]] = []
        self.most = 1 << 30
        self.available = device.memory_bytes
        self._seconds = 0.0

    def begin_round(self, round: int) -> None:
        self.calls.append(("begin_round", round))

    def begin_visit(self, regime: str, visit: int) -> None:
        """Every visit of a virtual clock is alike."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        return ("first", "second")

    def unsupported(self, point: Point) -> str:
        return self.device.precisions.get(point.precision.inputs, "")

    def prepare(self, point: Point) -> Prepared:
        self.calls.append(("prepare", point.kernel))
        fault = self.faults.get(point.kernel)
        if fault == "memory":
            raise MemoryError("no room for 5 GB")
        if fault == "device":
            raise DeviceError("the BLAS is missing: install one")
        if fault == "bug":
            raise RuntimeError("a bug")
        if fault == "lost":
            raise ContextLost("an illegal address ended the GPU's context")
        if fault == "hang":
            self._pass(40.0)
        if fault == "crash":
            print("the loop ran away", file=sys.stderr, flush=True)
            os.abort()
        return Prepared(point, lambda amount: self._work(point, amount), 1, self.most, facts={"isa": "fake"})

    def _work(self, point: Point, amount: int) -> Work:
        if not point.level:
            return Work(FLOPS * amount)
        return Work.at(point.level, FLOPS * amount, BYTES * amount, 0.0)

    def verify(self, prepared: Prepared) -> None:
        self.calls.append(("verify", prepared.point.kernel))
        if self.faults.get(prepared.point.kernel) == "verify":
            raise VerificationError("read differs from its reference: it is not timed")

    def warm_up(self, seconds: float) -> None:
        self.calls.append(("warm_up", seconds))
        self._pass(seconds)

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        kernel = prepared.point.kernel
        self.calls.append(("measure", kernel, amount, n))
        factor = self.slow.get(kernel, 1.0) * (0.9 if prepared.point.variant == "second" else 1.0)
        seconds = 0.0 if self.faults.get(kernel) == "zero" else UNIT_SECONDS * amount * factor
        start = self.now()
        self._pass(n * seconds)
        starts = tuple(start + i * seconds for i in range(n))
        return Repetitions(starts, (seconds,) * n, (self.switches,) * n, (1.0,) * n)

    def release(self, prepared: Prepared) -> None:
        self.calls.append(("release", prepared.point.kernel))

    def conditions(self) -> Mapping[str, Any]:
        return {"load": 0.0, "memory_available_bytes": self.available}

    def now(self) -> float:
        return time.monotonic() if self.real else self._seconds

    def _pass(self, seconds: float) -> None:
        if self.real:
            time.sleep(seconds)
        self._seconds += seconds
