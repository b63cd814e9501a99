"""What a defect of a simulated device is: a distortion of what the protocol returns, never of the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.backends import Prepared
from bench.profile.encoding import FormatError
from bench.profile.records import Repetitions

if TYPE_CHECKING:
    from bench.backends.simulation.cost import Cost


@dataclass(frozen=True)
class Call:
    """What a defect may know of the call it distorts.

    seconds(cost, amount, core): of a typical repetition at that share of the core clock, s
    resident(fill): cost of the point in arrays of `fill` times the last cache; its own without a cache
    drawn(): the defect's own generator, so that the healthy noise stays untouched; made where it is wanted
    """

    prepared: Prepared
    amount: int
    seconds: Callable[[Cost, int, float], float]
    resident: Callable[[float], Cost]
    drawn: Callable[[], np.random.Generator]

    @property
    def cost(self) -> Cost:
        """What one unit costs in truth."""
        cost: Cost = self.prepared.handle
        return cost

    def ratio(self, cost: Cost | None = None, amount: int = 0, core: float = 1.0) -> float:
        """Seconds of another cost, amount or core clock over those of the call as it is."""
        true = self.seconds(self.cost, self.amount, 1.0)
        return self.seconds(cost or self.cost, amount or self.amount, core) / true


@dataclass(frozen=True)
class Defect:
    """A device without defects: every verb returns what it was given."""

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        """Distort or refuse what prepare() returns; `allocated` is in bytes."""
        return prepared

    def verify(self, prepared: Prepared) -> None:
        """Raise VerificationError where the defect spoils results."""

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        """Distort how long repetitions last and their evidence; their starts follow."""
        return repetitions

    def told(self, repetitions: Repetitions, call: Call) -> Repetitions:
        """Distort what the device's timer says of them; the time that passes stays as it is."""
        return repetitions

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        """Distort what conditions() returns at `now` (s)."""
        return values


def stretched(repetitions: Repetitions, factor: Any, where: Any = True) -> Repetitions:
    """Repetitions that last `factor` times as long, those only `where` it holds."""
    seconds = np.asarray(repetitions.seconds)
    return replace(repetitions, seconds=tuple(np.where(where, seconds * factor, seconds).tolist()))


def scaled(values: tuple[float, ...], factor: float, where: Any = True) -> tuple[float, ...]:
    """Evidence multiplied by `factor` where it holds; empty where there is none."""
    return tuple(np.where(where, np.asarray(values) * factor, values).tolist()) if values else ()


def check(defect: Any, shares: tuple[str, ...] = (), may_be_zero: tuple[str, ...] = ()) -> None:
    """FormatError unless every number of the defect is positive and finite, and `shares` at most 1."""
    for name, value in asdict(defect).items():
        if isinstance(value, str):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in may_be_zero):
            raise FormatError(f"{name} must be positive, got {value}")
        if name in shares and value > 1:
            raise FormatError(f"{name} is a share and must not exceed 1, got {value}")
