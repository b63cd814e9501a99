"""What a prediction is: the time of one piece of work with its interval, and what stands behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.profile.records import Interval, Precision

SURE = 0.1
"""Two causes whose times differ by less than this share cannot be told apart."""


@dataclass(frozen=True)
class Prediction:
    """The time of one piece of work on one device.

    seconds: as a run of the suite would measure it, with the interval in which 95 of 100 such times lie
        (rounds of the profile, and the error of the model where it was checked); low alone is a bound
    rate: work over time, `unit` FLOP/s, or byte/s where there is no arithmetic
    binds: memory | compute | launch | cannot tell
    roof_seconds: on the measured roof alone, without what the curve or the workload's own placement adds
    nominal_seconds: on the roof of the datasheet or the nominal clock, None where that is not known
    basis: in words, which measurements and which model;  notes: what else a reader must know
    """

    what: str
    precision: Precision
    threads: int
    level: str
    flops: float
    bytes_read: float
    bytes_written: float
    seconds: Interval
    binds: str
    roof_seconds: float
    basis: str
    nominal_seconds: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def unit(self) -> str:
        """Unit of the rate."""
        return "FLOP/s" if self.flops else "byte/s"

    @property
    def rate(self) -> float:
        """FLOP or byte a second at the predicted time."""
        return (self.flops or self.bytes) / self.seconds.value


def spread(value: float, *widths: float) -> Interval:
    """An interval around a time from independent half-widths on the log scale."""
    reach = math.exp(math.hypot(*widths))
    return Interval(value, value / reach, value * reach)


def log_width(interval: Interval | None) -> float:
    """Half-width of an interval on the log scale, 0 where there is none."""
    width = None if interval is None else interval.half_width
    return math.log1p(width) if width else 0.0


def largest(times: dict[str, float]) -> str:
    """The cause that takes longest, or "cannot tell" where the second takes nearly as long."""
    ordered = sorted(times, key=lambda name: -times[name])
    first, second = (times[name] for name in ordered[:2])
    return "cannot tell" if second > (1 - SURE) * first else ordered[0]
