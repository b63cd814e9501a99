"""The host CPU: native loops of the full vector width on pinned threads, BLAS beside them.

Linux on x86-64 or AArch64. Every number of a repetition is taken inside native code
(bench/native); only BLAS and other library calls are timed by the host clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from bench import host, links
from bench.backends import Prepared, calls, chases, emitted
from bench.backends.machine import Machine
from bench.device import Device
from bench.errors import DeviceError
from bench.profile.records import Point, Precision, Repetitions
from kernels import KERNELS
from kernels.spec import LOOPED, LibraryShape

Maker = Callable[[Point, Machine], Prepared]
"""Makes a point ready; its handle has check(), measure(amount, n) and close() (bench/backends/calls.py)."""

MAKERS: dict[str, Maker] = {
    "workload": lambda point, machine: calls.workload(point, machine.device, machine.timed),
    "latency": chases.prepare,
    **dict.fromkeys(links.FAMILIES, links.prepare),
}
"""Families whose points are no emitted loops and choose for themselves what they know."""


class CpuBackend:
    """The Backend protocol (bench/backends/__init__.py) for the CPU this process runs on."""

    clock_source = "native"

    def __init__(self, device: Device | None = None) -> None:
        self.machine = Machine(device)
        self.device, self.isa, self.team = self.machine.device, self.machine.isa, self.machine.team

    def begin_round(self, round: int) -> None:
        """Place the arrays anew: which pages they get moves a bandwidth by up to 10 %."""
        self.machine.arenas.clear()

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Layouts worth trying, best guess first."""
        return emitted.variants(kernel, self.isa)

    def unsupported(self, point: Point) -> str:
        """The reason why a point cannot be measured on this CPU, "" if it can."""
        if reason := self.device.precisions.get(point.precision.inputs, ""):
            return reason
        if point.family == "tensor":
            return "instructions of matrix units are measured on GPUs only"
        looped = {*LOOPED, *(self.isa.units if point.kernel == "fma" else ())}
        if point.precision.inputs not in looped and point.family not in MAKERS:
            return f"no loop for {point.precision.inputs} in this version"
        if point.threads > len(self.team.cpus):
            return f"{point.threads} threads wanted, {len(self.team.cpus)} CPUs may be used"
        return links.unsupported(point, self.device.facts) if point.family in links.FAMILIES else ""

    def prepare(self, point: Point) -> Prepared:
        """Compile and lay out one point; DeviceError for an unknown kernel, MemoryError when full."""
        if point.family in MAKERS:
            return MAKERS[point.family](point, self.machine)
        if point.kernel not in KERNELS:
            raise DeviceError(f"unknown kernel {point.kernel!r}; valid: {', '.join(KERNELS)}")
        kernel = KERNELS[point.kernel]
        if point.kernel == "fma-naive":
            return calls.naive(point, kernel)
        if isinstance(kernel.shape, LibraryShape):
            return calls.gemm(point, kernel)
        return emitted.prepare(point, self.machine)

    def verify(self, prepared: Prepared) -> None:
        """Compare the loop (on a small set) or the library call with its reference."""
        prepared.handle.check()

    def warm_up(self, seconds: float) -> None:
        """Run the chain on every CPU for `seconds`."""
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            self.machine.chain(4)

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` iterations, blocks, passes, trips or executions each."""
        taken: Repetitions = prepared.handle.measure(amount, n)
        return taken

    def release(self, prepared: Prepared) -> None:
        """Forget the point; the arrays stay for the next one."""
        prepared.handle.close()
        prepared.handle = None

    def conditions(self) -> Mapping[str, Any]:
        """Load, clocks and other tenants now."""
        return host.conditions()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()
