"""Defects of time: clocks that fall or are stuck, a timer that is wrong, another tenant that takes turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.backends.simulation.distortion import Call, Defect, check, scaled, stretched
from bench.profile.encoding import FormatError
from bench.profile.records import Repetitions

HOT_C = 90.0
"""Degrees Celsius at which a board's clock is taken back."""

HOST_WORD, BOARD_WORD = "thermal", "hw_thermal"
"""Why the clock fell, for a CPU and in the words of a GPU's driver."""


def slowed(repetitions: Repetitions, call: Call, share: float, where: Any = True) -> Repetitions:
    """Repetitions at a `share` of the core clock, which pi and the caches follow, and a board's power."""
    slow = stretched(repetitions, call.ratio(core=share), where)
    return replace(
        slow,
        clock_hz=scaled(repetitions.clock_hz, share, where),
        power_w=scaled(repetitions.power_w, share, where),
    )


@dataclass(frozen=True)
class Throttling(Defect):
    """From `after` seconds on the clock, and with it pi and the caches, fall to `share`; it is told why."""

    after: float = 5.0
    share: float = 0.7

    def __post_init__(self) -> None:
        check(self, shares=("share",), may_be_zero=("after",))

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        hot = np.asarray(repetitions.start) >= self.after
        cool, words = repetitions.temperature_c, repetitions.throttle or ("",) * len(repetitions)
        why = BOARD_WORD if cool else HOST_WORD
        told = [(*filter(None, (word, why * h)),) for word, h in zip(words, hot.tolist(), strict=True)]
        return replace(
            slowed(repetitions, call, self.share, hot),
            throttle=tuple(",".join(parts) for parts in told),
            temperature_c=tuple(np.where(hot, np.maximum(HOT_C, cool), cool).tolist()) if cool else (),
        )

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        return {**values, "clock_hz": values["clock_hz"] * (self.share if now >= self.after else 1)}


@dataclass(frozen=True)
class StuckClock(Defect):
    """The clock, and with it pi and the caches, is at `share` of its rate all the time; nothing says why."""

    share: float = 0.6

    def __post_init__(self) -> None:
        check(self, shares=("share",))

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        return slowed(repetitions, call, self.share)

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        return {**values, "clock_hz": values["clock_hz"] * self.share}


@dataclass(frozen=True)
class MemoryClock(Defect):
    """The memory's clock, and with it every beta of DRAM, is at `share` of its rate; caches are not."""

    share: float = 0.6

    def __post_init__(self) -> None:
        check(self, shares=("share",))

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        memory = tuple((level, s / self.share if level == "DRAM" else s) for level, s in call.cost.memory)
        return stretched(repetitions, call.ratio(replace(call.cost, memory=memory)))

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        clock = values.get("memory_clock_hz")
        return {**values, "memory_clock_hz": clock * self.share} if clock else values


@dataclass(frozen=True)
class NoisyNeighbour(Defect):
    """Another tenant takes the device in a `share` of the repetitions, which last `stretch` times longer.

    On a CPU the threads that had to wait show it; on a GPU only the driver's list of processes does.
    """

    share: float = 0.3
    stretch: float = 2.0

    def __post_init__(self) -> None:
        check(self, shares=("share",))
        if self.stretch <= 1:
            raise FormatError(f"noisy-neighbour.stretch must exceed 1, got {self.stretch}")

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        hit = call.drawn().random(len(repetitions)) < self.share
        slow = stretched(repetitions, self.stretch, hit)
        if call.prepared.point.scope == "device":
            return slow
        return replace(
            slow,
            switches=tuple((np.asarray(repetitions.switches) + hit).tolist()),
            cpu_share=scaled(repetitions.cpu_share, 1 / self.stretch, hit),
        )

    def conditions(self, values: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        others = {"processes": values["processes"] + 1} if "processes" in values else {}
        return {**values, "load": values["load"] + self.share, **others}


@dataclass(frozen=True)
class Timer(Defect):
    """The timer says `factor` times the time (0: it stands still), in whole ticks of `tick` seconds.

    The first start of a batch is the host's; what follows in it, as all durations, is the timer's. The time
    that passes for the host, and so the time box and the wall time of a sample, is the true one.
    """

    factor: float = 1.0
    tick: float = 0.0

    def __post_init__(self) -> None:
        check(self, may_be_zero=("factor", "tick"))

    def told(self, repetitions: Repetitions, call: Call) -> Repetitions:
        start, seconds = np.asarray(repetitions.start), np.asarray(repetitions.seconds)
        first = self._read(start)
        taken = self._read(start + seconds) - first
        if self.tick:
            taken = np.round(taken / self.tick) * self.tick  # no trace of how the difference was made
        told = start[0] + first - first[0]
        return replace(repetitions, start=tuple(told.tolist()), seconds=tuple(taken.tolist()))

    def _read(self, moments: Any) -> Any:
        """What the timer shows at these moments (s)."""
        shown = moments * self.factor
        return np.floor(shown / self.tick) * self.tick if self.tick else shown


@dataclass(frozen=True)
class OffBy(Defect):
    """Every time of `family` (all families where it is "") is told `factor` times as long as it was."""

    factor: float = 1.05
    family: str = ""

    def __post_init__(self) -> None:
        check(self)

    def measure(self, repetitions: Repetitions, call: Call) -> Repetitions:
        hit = self.family in ("", call.prepared.point.family)
        return stretched(repetitions, self.factor) if hit else repetitions
