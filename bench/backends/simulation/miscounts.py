"""Defects of work: a kernel does something other than what is counted, so that its rate is no rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.backends import Prepared
from bench.backends.simulation.distortion import Call, Defect, check, stretched
from bench.errors import VerificationError
from bench.profile.encoding import FormatError
from bench.profile.records import Repetitions
from kernels import KERNELS


@dataclass(frozen=True)
class CacheResident(Defect):
    """The arrays of streams and intensity sweeps are handed out at `fill` times the last cache, not as asked.

    Up to 0.75 that cache serves all of them, from 1.5 on none; a device without caches is not touched.
    """

    fill: float = 0.5

    def __post_init__(self) -> None:
        check(self)

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        point = call.prepared.point
        if point.family not in ("stream", "mix") or point.level != "DRAM":
            return repetitions
        return stretched(repetitions, call.ratio(call.resident(self.fill)))


@dataclass(frozen=True)
class ByteCount(Defect):
    """`kernels` (names joined by "/") really move `moved` byte for every byte that is counted."""

    kernels: str = "triad"
    moved: float = 0.5

    def __post_init__(self) -> None:
        check(self)
        if unknown := [name for name in self.kernels.split("/") if name not in KERNELS]:
            raise FormatError(f"kernels has unknown names: {', '.join(unknown)}; valid: {', '.join(KERNELS)}")

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        if call.prepared.point.kernel not in self.kernels.split("/"):
            return repetitions
        memory = tuple((level, seconds * self.moved) for level, seconds in call.cost.memory)
        return stretched(repetitions, call.ratio(replace(call.cost, memory=memory)))


@dataclass(frozen=True)
class FoldedChain(Defect):
    """The compiler folded the FMA chains of `precision` ("": of all): they take 1/`factor` of the time.

    factor 0: nothing is left but one pass, however often it is asked for
    verifies: 1 where the result is right all the same, 0 where the check sees it
    """

    factor: float = 2.0
    precision: str = ""
    verifies: float = 1.0

    def __post_init__(self) -> None:
        check(self, shares=("verifies",), may_be_zero=("factor", "verifies"))

    def _folds(self, prepared: Prepared) -> bool:
        point = prepared.point
        return point.kernel == "fma" and self.precision in ("", point.precision.inputs)

    def verify(self, prepared: Prepared) -> None:
        if self._folds(prepared) and not self.verifies:
            raise VerificationError(f"SIMULATED: {prepared.point.kernel} differs from its reference")

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        if not self._folds(call.prepared):
            return repetitions
        if not self.factor:
            return stretched(repetitions, call.ratio(amount=call.prepared.least))
        shorter = replace(call.cost, compute=call.cost.compute / self.factor)
        return stretched(repetitions, call.ratio(shorter))


@dataclass(frozen=True)
class SweepStep(Defect):
    """In an intensity sweep everything from `start` up to `end` FLOP/byte takes `factor` times as long."""

    start: float = 8.0
    end: float = 1e12
    factor: float = 1.3

    def __post_init__(self) -> None:
        check(self)
        if self.end <= self.start:
            raise FormatError(f"end must lie beyond start ({self.start} FLOP/byte), got {self.end}")

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        point = call.prepared.point
        if point.family != "mix":
            return repetitions
        inside = self.start <= call.prepared.work(1).intensity(point.level) < self.end
        return stretched(repetitions, self.factor) if inside else repetitions
