"""Defects that end a point: memory that is not there, arithmetic that is refused, a hang, a lost device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.backends import Prepared
from bench.backends.simulation.distortion import Call, Defect, check
from bench.errors import DeviceError
from bench.gpu.faults import ContextLost
from bench.profile.records import Point, Repetitions


def _meant(point: Point, family: str, kernel: str = "") -> bool:
    """Whether a point is of the family and kernel, "" meaning all."""
    return family in ("", point.family) and kernel in ("", point.kernel)


@dataclass(frozen=True)
class OutOfMemory(Defect):
    """Allocations above `limit_bytes` fail although the device claims to have the memory."""

    limit_bytes: float = 1e8

    def __post_init__(self) -> None:
        check(self)

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        if allocated > self.limit_bytes:
            asked, limit = f"{allocated:.0f} byte", f"{self.limit_bytes:.0f} byte"
            raise MemoryError(f"SIMULATED: no room for {asked}, the limit is {limit}")
        return prepared


@dataclass(frozen=True)
class MissingPrecision(Defect):
    """Points with `precision` as input ("" `family`: all of them) are refused though the device claims it."""

    precision: str = "fp32"
    family: str = ""

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        point = prepared.point
        if point.precision.inputs == self.precision and _meant(point, self.family):
            raise DeviceError(f"SIMULATED: no {self.precision} code of {point.kernel} loads on this device")
        return prepared


@dataclass(frozen=True)
class Hang(Defect):
    """Every call of `family` (of it only `kernel`, if given) takes `seconds`: the watchdog gives it up."""

    family: str = "tensor"
    kernel: str = ""
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check(self)

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        if not _meant(call.prepared.point, self.family, self.kernel):
            return repetitions
        return replace(repetitions, seconds=(self.seconds,) * len(repetitions))


@dataclass(frozen=True)
class Dies(Defect):
    """The process that measures `family` (of it only `kernel`, if given) loses the device."""

    family: str = "tensor"
    kernel: str = ""

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        if _meant(prepared.point, self.family, self.kernel):
            raise ContextLost(f"SIMULATED: an illegal address in {prepared.point.kernel}")
        return prepared
