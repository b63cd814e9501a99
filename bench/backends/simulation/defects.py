"""Defects of a simulated device: each distorts only what the protocol returns, never the truth below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import UsageError
from bench.gpu.faults import ContextLost
from bench.profile.encoding import FormatError, decode
from bench.profile.records import Repetitions


@dataclass(frozen=True)
class Call:
    """What a defect may know of the call it distorts.

    slowdown(share): seconds of a repetition when the core clock has `share` of its rate, over
    its seconds at full clock; generator: its own, so that the healthy noise stays untouched
    """

    prepared: Prepared
    amount: int
    slowdown: Callable[[float], float]
    generator: np.random.Generator


@dataclass(frozen=True)
class Defect:
    """A device without defects: every verb returns what it was given."""

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        """Distort or refuse what prepare() returns; `allocated` is in bytes."""
        return prepared

    def verify(self, prepared: Prepared) -> None:
        """Raise VerificationError where the defect spoils results."""

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        """Distort seconds and evidence; starts are strung together again afterwards."""
        return repetitions

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        """Distort what conditions() returns at `now` (s)."""
        return values


@dataclass(frozen=True)
class NoisyNeighbour(Defect):
    """Another tenant takes the CPU in a `share` of the repetitions, which last `stretch` times longer."""

    share: float = 0.3
    stretch: float = 2.0

    def __post_init__(self) -> None:
        _positive(self, at_most_one=("share",))
        if self.stretch <= 1:
            raise FormatError(f"noisy-neighbour.stretch must exceed 1, got {self.stretch}")

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        hit = call.generator.random(len(repetitions)) < self.share
        share = np.where(hit, np.asarray(repetitions.cpu_share) / self.stretch, repetitions.cpu_share)
        seconds = np.where(hit, np.asarray(repetitions.seconds) * self.stretch, repetitions.seconds)
        return replace(
            repetitions,
            seconds=tuple(seconds.tolist()),
            switches=tuple((np.asarray(repetitions.switches) + hit).tolist()),
            cpu_share=tuple(share.tolist()),
        )

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        return {**values, "load": values["load"] + self.share}


@dataclass(frozen=True)
class Throttle(Defect):
    """From `after` seconds on the clock, and with it pi and the caches, fall to `share`."""

    after: float = 5.0
    share: float = 0.7

    def __post_init__(self) -> None:
        _positive(self, at_most_one=("share",), may_be_zero=("after",))

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        hot = np.asarray(repetitions.start) >= self.after
        slow = call.slowdown(self.share)
        return replace(
            repetitions,
            seconds=tuple(
                np.where(hot, np.asarray(repetitions.seconds) * slow, repetitions.seconds).tolist()
            ),
            clock_hz=tuple(
                np.where(hot, np.asarray(repetitions.clock_hz) * self.share, repetitions.clock_hz)
            ),
            throttle=tuple("thermal" if h else "" for h in hot.tolist()),
        )

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        return {**values, "clock_hz": values["clock_hz"] * (self.share if now >= self.after else 1)}


@dataclass(frozen=True)
class OutOfMemory(Defect):
    """Allocations above `limit_bytes` fail although the device claims to have the memory."""

    limit_bytes: float = 1e8

    def __post_init__(self) -> None:
        _positive(self)

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        if allocated > self.limit_bytes:
            raise MemoryError(f"SIMULATED: no room for {allocated:.4g} byte, limit {self.limit_bytes:.4g}")
        return prepared


@dataclass(frozen=True)
class Dies(Defect):
    """The process that measures `family` (of it only `kernel`, if given) loses the device."""

    family: str = "tensor"
    kernel: str = ""

    def prepare(self, prepared: Prepared, allocated: float) -> Prepared:
        point = prepared.point
        if point.family == self.family and self.kernel in ("", point.kernel):
            raise ContextLost(f"SIMULATED: an illegal address in {point.kernel}")
        return prepared


@dataclass(frozen=True)
class Hangs(Defect):
    """Every call of `family` takes so many `seconds` that the watchdog gives it up."""

    family: str = "tensor"
    seconds: float = 60.0

    def __post_init__(self) -> None:
        _positive(self)

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        if call.prepared.point.family != self.family:
            return repetitions
        return replace(repetitions, seconds=(self.seconds,) * len(repetitions))


@dataclass(frozen=True)
class OffBy(Defect):
    """Every time of `family` (all families where it is "") is told `factor` times as long as it was."""

    factor: float = 1.05
    family: str = ""

    def __post_init__(self) -> None:
        _positive(self)

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        if self.family not in ("", call.prepared.point.family):
            return repetitions
        return replace(repetitions, seconds=tuple(s * self.factor for s in repetitions.seconds))


DEFECTS: dict[str, type[Defect]] = {
    "noisy-neighbour": NoisyNeighbour,
    "throttle": Throttle,
    "out-of-memory": OutOfMemory,
    "dies": Dies,
    "hangs": Hangs,
    "off-by": OffBy,
}


def kind_of(defect: Defect) -> str:
    """The name by which a defect is asked for."""
    return next(kind for kind, form in DEFECTS.items() if form is type(defect))


def _positive(defect: Any, at_most_one: tuple[str, ...] = (), may_be_zero: tuple[str, ...] = ()) -> None:
    for name, value in asdict(defect).items():
        if isinstance(value, str):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in may_be_zero):
            raise FormatError(f"{name} must be positive, got {value}")
        if name in at_most_one and value > 1:
            raise FormatError(f"{name} is a share and must not exceed 1, got {value}")


def defect_of(values: Mapping[str, Any]) -> Defect:
    """The defect that {kind: ..., ...} describes; UsageError lists what is valid."""
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in DEFECTS:
        raise UsageError(f"unknown defect {kind!r}; valid: {', '.join(DEFECTS)}")
    try:
        return decode(DEFECTS[kind], {k: v for k, v in values.items() if k != "kind"}, kind)
    except FormatError as error:
        raise UsageError(f"defect {kind}: {error}") from None


def parse(text: str) -> dict[str, Any]:
    """{kind: ..., ...} from "throttle" or "throttle,after=1,share=0.5"; UsageError names a wrong part."""
    kind, *settings = text.split(",")
    values: dict[str, Any] = {"kind": kind}
    words = {f.name for f in fields(DEFECTS.get(kind, Defect)) if f.type == "str"}
    for setting in settings:
        name, sign, number = setting.partition("=")
        try:
            values[name] = number if name in words else float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise UsageError(
                f"defect {text!r}: {setting!r} is not NAME=NUMBER, as in throttle,after=1,share=0.5"
            )
    return values
