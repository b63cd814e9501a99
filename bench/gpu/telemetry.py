"""Samples a GPU's clocks, power and temperature in a thread, and says what they were in a span of time."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol

PERIOD = 0.02
"""Seconds between samples; drivers renew clocks and power every 20 to 100 ms."""

MOST_SHARE = 0.25
"""Share of the time that reading may take: where NVML answers slowly, samples are taken less often."""

ENERGY_SPAN = 1.0
"""Seconds from which the energy counter, which moves in steps of up to 100 ms, says something."""

MARGIN = 3
"""Samples outside a span on each side that help to say what was at its ends."""

NO_THROTTLE = ("idle",)
"""Words that explain a low clock but hold nothing back."""


class Readable(Protocol):
    """What can be sampled: a bench.gpu.nvml.Board."""

    @property
    def whole_board(self) -> bool:
        """Whether the values are those of a board shared with other MIG slices."""

    def moment(self) -> Mapping[str, Any]:
        """Quantities by name, None where not supported."""


@dataclass(frozen=True)
class Window:
    """What the GPU did in a span of time; None (or "") where it does not tell.

    clock_hz, memory_clock_hz: means over time;  temperature_c: the highest
    power_w: mean, from the energy counter where the span is at least 1 s;  energy_j: only then
    throttle: what held the clock back, words joined by commas;  pcie_*: the most seen, under load
    samples: how many fell into the span (0: the nearest are used);  whole_board: power of all slices
    """

    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    energy_j: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    samples: int = 0
    whole_board: bool = False


class Telemetry:
    """A thread that samples `board` about every `period` s while entered; times are time.monotonic()."""

    def __init__(
        self, board: Readable, period: float = PERIOD, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.board, self.period = board, period
        self._now = now
        self._times: list[float] = []
        self._moments: list[Mapping[str, Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Telemetry:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(2.0)  # a driver that hangs must not hold us

    def sample(self) -> float:
        """Take one sample now; the seconds that it took."""
        before = self._now()
        moment = self.board.moment()
        after = self._now()
        self._moments.append(moment)
        self._times.append((before + after) / 2)  # last: whoever reads sees as many moments as times
        return after - before

    def _run(self) -> None:
        taken = 0.0
        while not self._stop.wait(pause(self.period, taken)):
            taken = self.sample()

    def between(self, start: float, end: float) -> Window:
        """What the samples say of the span; where none fell into it, what those around it say."""
        first, last = bisect_left(self._times, start), bisect_right(self._times, end)
        times = self._times[max(0, first - MARGIN) : last + MARGIN]
        moments = self._moments[max(0, first - MARGIN) : max(0, first - MARGIN) + len(times)]
        inside = self._moments[first:last]
        near = inside or _around(times, moments, start)
        energy = _energy(times, moments, start, end)
        mean = _Mean(times, moments, start, end)
        return Window(
            clock_hz=mean.of("sm_clock_hz"),
            memory_clock_hz=mean.of("memory_clock_hz"),
            power_w=mean.of("power_instant_w", "power_w") if energy is None else energy / (end - start),
            temperature_c=_most(near, "temperature_c"),
            throttle=_throttle(near),
            energy_j=energy,
            pcie_generation=_most(near, "pcie_generation"),
            pcie_width=_most(near, "pcie_width"),
            samples=len(inside),
            whole_board=self.board.whole_board,
        )


def pause(period: float, taken: float) -> float:
    """Seconds to wait after a sample that took `taken`, so that sampling keeps under MOST_SHARE."""
    return max(period - taken, taken * (1 / MOST_SHARE - 1), 0.0)


@dataclass(frozen=True)
class _Mean:
    """Means over time of quantities within start..end."""

    times: Sequence[float]
    moments: Sequence[Mapping[str, Any]]
    start: float
    end: float

    def of(self, *names: str) -> float | None:
        """Of the first of the names that the board supports."""
        for name in names:
            points = _points(self.times, self.moments, name)
            if points:
                return mean_over(points, self.start, self.end)
        return None


def _points(
    times: Sequence[float], moments: Sequence[Mapping[str, Any]], name: str
) -> list[tuple[float, float]]:
    pairs = zip(times, moments, strict=True)
    return [(when, float(m[name])) for when, m in pairs if m.get(name) is not None]


def mean_over(points: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Mean over time of what runs straight from point to point, level before the first and after the last."""
    edges = [(start, value_at(points, start)), (end, value_at(points, end))]
    if end <= start:
        return edges[0][1]
    inner = [p for p in points if start < p[0] < end]
    path = [edges[0], *inner, edges[1]]
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(path))
    return area / (end - start)


def value_at(points: Sequence[tuple[float, float]], when: float) -> float:
    """The value at a time, on the straight line between the points around it."""
    place = bisect_left(points, (when,))
    if place == 0 or place == len(points):
        return points[min(place, len(points) - 1)][1]
    (t0, v0), (t1, v1) = points[place - 1], points[place]
    return v0 + (v1 - v0) * (when - t0) / (t1 - t0) if t1 > t0 else v1


def _energy(
    times: Sequence[float], moments: Sequence[Mapping[str, Any]], start: float, end: float
) -> float | None:
    """Joule by the board's counter; None for a short span, no counter, or a span that lacks samples."""
    points = _points(times, moments, "energy_j")
    if end - start < ENERGY_SPAN or len(points) < 2:
        return None
    used = value_at(points, end) - value_at(points, start)
    covered = min(end, points[-1][0]) - max(start, points[0][0])
    return used * (end - start) / covered if used > 0 and covered > 0.9 * (end - start) else None


def _around(
    times: Sequence[float], moments: Sequence[Mapping[str, Any]], when: float
) -> Sequence[Mapping[str, Any]]:
    """The samples before and after a time that none fell on."""
    place = bisect_left(times, when)
    return moments[max(0, place - 1) : place + 1]


def _most(moments: Sequence[Mapping[str, Any]], name: str) -> Any:
    return max((m[name] for m in moments if m.get(name) is not None), default=None)


def _throttle(moments: Sequence[Mapping[str, Any]]) -> str:
    words = (word for m in moments for word in m.get("throttle") or () if word not in NO_THROTTLE)
    return ",".join(dict.fromkeys(words))
