"""The lines of the printed report about T0: what each way of starting something takes before any work."""

from __future__ import annotations

from collections.abc import Iterator

from bench.profile.records import Interval, Profile
from bench.report import heading
from bench.report.units import duration, plus_minus
from kernels.launch import RUNNERS


def starts(profile: Profile) -> Iterator[str]:
    """T0 of an empty launch each way, and of the smallest call of what runs the workloads."""
    empty = [c for c in profile.ceilings if (c.quantity, c.kernel) == ("t0", "empty")]
    ways: list[str] = []
    runners: list[str] = []
    for c in sorted(empty, key=lambda c: -c.threads):
        several = len({e.threads for e in empty if e.variant == c.variant}) > 1
        count = f" on {heading.counted(profile, c.threads)}" if several or c.variant in RUNNERS else ""
        said = f"{c.variant}{count} {_told(c.estimate)}"
        (runners if c.variant in RUNNERS else ways).append(said)
    if ways:
        yield f"T₀, starting nothing: {', '.join(ways)}"
    if runners:
        yield f"T₀ of what runs the workloads, by its smallest call: {'; '.join(runners)}"


def _told(t0: Interval) -> str:
    """A time with its half-width, or with its ends where it may be twice as long: nobody reads 742 %."""
    if t0.half_width is None or t0.low is None:
        return duration(t0.value)
    if t0.half_width < 1:
        return f"{duration(t0.value)} {plus_minus(t0.half_width)}"
    return f"{duration(t0.value)} ({duration(t0.low)} to {duration(t0.high)})"
