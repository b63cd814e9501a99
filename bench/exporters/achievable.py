"""What other tools take from a profile: rates of a device, its memory levels and links, and who says so."""

from __future__ import annotations

from collections.abc import Iterable

from bench.profile.records import WHOLE, Ceiling, Profile
from bench.report import heading, roofs
from bench.report.units import si

REGIMES = ("typical", "sustained")
"""The regime that all ceilings have comes first: figures of different regimes would not compare."""


def rate(profile: Profile, inputs: str, *units: str, mode: str = "") -> Ceiling | None:
    """The pi of a type of input on the first of `units` that has one: dense, random operands, whole device.

    Of several accumulators a wider one than the input, as jobs need it; of several kernels the fastest. None
    where there is none.
    """
    for unit in units:
        for regime in REGIMES:
            found = [c for c in profile.ceilings if _is(c, inputs, unit, mode) and c.regime == regime]
            if found:
                wide = [c for c in found if c.precision.accumulate != inputs]
                return max(wide or found, key=lambda c: c.estimate.value)
    return None


def _is(c: Ceiling, inputs: str, unit: str, mode: str) -> bool:
    told = (c.quantity, c.precision.inputs, c.precision.unit, c.precision.mode, c.operands)
    return told == ("pi", inputs, unit, mode, "random") and c.scope in WHOLE


def matrix(profile: Profile, inputs: str) -> Ceiling | None:
    """The pi of products of a type: by the library, else by the instructions of matrix units.

    A library that is no faster than the vector units used them; then there is none.
    """
    found = rate(profile, inputs, "library", "matrix")
    plain = rate(profile, inputs, "vector")
    slow = found and plain and found.estimate.value < 1.2 * plain.estimate.value
    return None if slow else found


def memory(profile: Profile, access: str = "read") -> dict[str, Ceiling]:
    """The beta of each level for an access by the whole device, nearest level first."""
    found = [c for c in roofs.diagonals(profile) if c.access == access and c.scope in WHOLE]
    return {c.level: c for c in sorted(found, key=lambda c: (c.level == "DRAM", c.level))}


def fastest_link(profile: Profile, *kinds: str) -> Ceiling | None:
    """The best way in one direction over the first of these kinds of link that was measured."""
    for kind in kinds:
        found = [
            c
            for c in roofs.links(profile)
            if c.level.startswith(kind) and c.access not in ("both", "exchange")
        ]
        if found:
            return max(found, key=lambda c: c.estimate.value)
    return None


def memory_bytes(profile: Profile) -> int | None:
    """Byte of the device's memory, as it reports it."""
    found = profile.facts.get("device", {}).get("memory_bytes")
    return int(found) if found else None


def held(peaks: Iterable[Ceiling]) -> str:
    """In which regime and at which clock rates were measured: "typical at 1.50 GHz", "typical"."""
    peaks = list(peaks)
    clocks = sorted({c.clock_hz for c in peaks if c.clock_hz})
    ends = dict.fromkeys(si(clock, "Hz") for clock in (clocks[0], clocks[-1])) if clocks else ()
    at = f" at {' to '.join(ends)}" if ends else ""
    return " and ".join(dict.fromkeys(c.regime for c in peaks)) + at


def who(profile: Profile, peaks: Iterable[Ceiling]) -> str:
    """Whose numbers these are, in one line: device, tool, commit, time, regime and clock, SIMULATED if so."""
    said, made = profile.provenance, "made by" if profile.simulated else "measured by"
    known = [
        heading.device_name(profile),
        f"{made} {said.get('tool', 'empirical-roofline')} {heading.commit(profile)}",
    ]
    simulated = profile.simulated and "SIMULATED" not in known[0]
    known += filter(None, (heading.date(profile), held(peaks)))
    return "SIMULATED " * simulated + ", ".join(known)
