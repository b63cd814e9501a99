"""What other tools take from a profile: rates of a device, its memory levels and links, and who says so."""

from __future__ import annotations

from bench.profile.records import WHOLE, Ceiling, Profile
from bench.report import heading, roofs

REGIMES = ("typical", "sustained")
"""The regime that all ceilings have comes first: figures of different regimes would not compare."""


def rate(profile: Profile, inputs: str, *units: str, mode: str = "") -> Ceiling | None:
    """The pi of a type of input on the first of `units` that has one: dense, random operands, whole device.

    Of several accumulators and kernels the fastest; None where there is none.
    """
    for unit in units:
        for regime in REGIMES:
            found = [c for c in profile.ceilings if _is(c, inputs, unit, mode) and c.regime == regime]
            if found:
                return max(found, key=lambda c: c.estimate.value)
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
    """The beta of each level for an access, nearest level first."""
    return {c.level: c for c in roofs.diagonals(profile) if c.access == access}


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


def who(profile: Profile) -> str:
    """Whose numbers these are, in one line: device, tool, commit, time, SIMULATED where they are."""
    said, made = profile.provenance, "made by" if profile.simulated else "measured by"
    known = [
        heading.device_name(profile),
        f"{made} {said.get('tool', 'empirical-roofline')} {heading.commit(profile)}",
    ]
    simulated = profile.simulated and "SIMULATED" not in known[0]
    return ("SIMULATED " * simulated) + ", ".join([*known, *filter(None, [heading.date(profile)])])
