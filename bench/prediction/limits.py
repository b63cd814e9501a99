"""What no prediction may promise: work shorter than its own start, operands larger than the memory."""

from __future__ import annotations

from collections.abc import Sequence

from bench.profile.records import Interval, Profile
from bench.report.units import capacity, duration
from bench.workloads.roof import started

STARTS = ("team", "plain")
"""Ways of starting nothing, of a team of threads and of a GPU's kernel, that a single execution pays."""


def start(profile: Profile, threads: int, runner: str = "") -> Interval | None:
    """Measured T0 in s of an empty launch on so many threads (SMs), None where it was not measured.

    runner: the implementation of a workload, whose own T0 counts where it was measured
    """
    if own := started(runner, threads, profile.ceilings) if runner else None:
        return own
    found = [
        c.estimate
        for c in profile.ceilings
        if (c.quantity, c.kernel, c.threads) == ("t0", "empty", threads) and c.variant in STARTS
    ]
    return min(found, key=lambda estimate: estimate.value, default=None)


def above_start(
    profile: Profile, threads: int, seconds: Interval, notes: Sequence[str], runner: str = ""
) -> tuple[Interval, tuple[str, ...], str]:
    """The time as a bound where it is shorter than T0, with the note and what binds ("" otherwise)."""
    empty = start(profile, threads, runner)
    if empty is None or seconds.value >= empty.value:
        return seconds, tuple(notes), ""
    note = f"shorter than starting it ({duration(empty.value)}): one execution alone takes that on top"
    return Interval(seconds.value, seconds.low or seconds.value), (*notes, note), "launch"


def beyond_memory(profile: Profile, footprint: float) -> list[str]:
    """In words, that operands of so many byte do not fit into the device's memory."""
    whole = profile.facts.get("device", {}).get("memory_bytes")
    if not whole or footprint <= whole:
        return []
    return [f"its operands have {capacity(footprint)}, more than the device's {capacity(float(whole))}"]
