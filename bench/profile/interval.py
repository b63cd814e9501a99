"""A value with its 95 % interval: what every estimate of the suite is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval (same unit); low and high are None where not known."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the value is a bound: one end is known, nothing lies beyond the value on the other side."""
        return (self.low is None) != (self.high is None)

    @property
    def half_width(self) -> float | None:
        """Half-width on the log scale as a share of the value, None without an interval."""
        if self.low is None or self.high is None or self.low <= 0:
            return None
        return float((self.high / self.low) ** 0.5 - 1.0)
