"""When to stop repeating: enough clean repetitions in a narrow interval, or no time left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from bench.fitting.intervals import MEDIAN, clean_rates
from bench.profile.records import Repetitions

Z95 = 1.96
LARGEST_BATCH = 16
MOST = 10_000
"""Repetitions after which to stop whatever is asked for: a loop that was folded away takes no time at all,
and seconds of it would be millions."""

PATIENCE = 4.0
"""How many time limits the minimum number of repetitions may cost before it is given up."""

EVIDENCE = tuple(f.name for f in fields(Repetitions))
"""What there is of each repetition, in the order of the record."""


def relative_half_width(rates: Sequence[float], q: float) -> float:
    """Half-width of the 95 % interval of quantile `q`, on the log scale as a share of the value.

    Distribution-free: between the order statistics around the ranks q n -+ 1.96 sqrt(n q (1-q)).
    Infinite while the sample is too small to hold both ranks.
    """
    ordered, n = sorted(rates), len(rates)
    spread = Z95 * math.sqrt(n * q * (1 - q))
    low, high = math.floor(n * q - spread), math.ceil(n * q + spread)
    if low < 0 or high > n - 1:
        return math.inf
    return math.sqrt(ordered[high] / ordered[low]) - 1.0


def joined(first: Repetitions, second: Repetitions) -> Repetitions:
    """All repetitions of two batches in order."""
    return Repetitions(*((*getattr(first, name), *getattr(second, name)) for name in EVIDENCE))


@dataclass
class StopRule:
    """Says when one point is measured well enough, and why; keeps what was measured so far.

    minimum:    clean repetitions that are always wanted
    half_width: relative half-width of the quantile `q` of the clean rates at which to stop; below 0: never
    limit:      seconds after which to stop anyway
    """

    minimum: int
    half_width: float
    limit: float
    q: float = MEDIAN
    repetitions: Repetitions = field(default_factory=Repetitions)

    def add(self, batch: Repetitions) -> None:
        """Take a batch of repetitions of equal work; ValueError when a time is not positive."""
        for seconds in batch.seconds:
            if not (seconds > 0 and math.isfinite(seconds)):
                raise ValueError(f"the timer returned {seconds} s for a repetition")
        self.repetitions = joined(self.repetitions, batch)

    def batch(self, elapsed: float, expected: float) -> int:
        """Repetitions of about `expected` seconds each to run next in one native call."""
        fitting = max(1, int((self.limit - elapsed) / expected))
        done = len(self.repetitions)
        wanted = self.minimum - done if done < self.minimum else max(4, done // 2)
        return min(wanted, fitting, LARGEST_BATCH)

    def verdict(self, elapsed: float) -> str:
        """Why to stop after `elapsed` seconds, "" to go on."""
        done = len(self.repetitions)
        if done >= MOST:
            return f"{done} repetitions"
        if done < self.minimum:
            late = done > 0 and elapsed > PATIENCE * self.limit
            return f"time limit after {done} of {self.minimum} repetitions" if late else ""
        if self.half_width >= 0 and self._narrow():
            return "converged"
        return "time limit" if elapsed >= self.limit else ""

    def _narrow(self) -> bool:
        """Whether the interval of the clean rates is as narrow as wanted."""
        found = clean_rates(1.0, self.repetitions)
        enough = found.total - found.disturbed >= self.minimum
        return enough and relative_half_width(found.rates, self.q) <= self.half_width
