"""Which working sets of a cache sweep surely lie in one level, by the capacities that the device tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.fitting.evidence import Evidence, Setting
from bench.fitting.intervals import MEDIAN
from bench.fitting.pooled import Pooled
from bench.profile.records import Ceiling, Point

FITS, EXCEEDS = 0.7, 1.5
"""Share of a level's capacity up to which a set stays in it (replacement is no exact LRU, code and stacks
need room), and of the level below from which little of it is left there."""

WHOLE, SHARED, PAST_L1, THROUGH_L1 = "whole", "shared", "cg", {"ca", "nc"}
"""On a GPU: the size of a set that all SMs read, the level that programs fill, loads that pass L1 by, and
those that look there first."""


def room(device: Mapping[str, Any], point: Point) -> tuple[float, float] | None:
    """Bytes a thread that the level below and the level itself hold; None where the device does not tell.

    Of a level behind all caches the upper end is infinite. A set that all SMs read is as large for each of
    them.
    """
    level, threads, facts = point.level, 1 if WHOLE in point.sizes else point.threads, device.get("facts", {})
    if level == SHARED:
        return (0.0, float(facts["shared_per_sm"])) if facts.get("shared_per_sm") else None
    lower = 0.0
    for cache in device.get("caches", ()):
        size, instances = float(cache["bytes"]), int(cache["instances"])
        own = min(size, size * instances / threads)
        if cache["level"] == level:
            return lower, own
        passed = cache["level"] == "L1" and _passes_l1(point, facts)
        lower = lower if passed else max(lower, own)
    return (lower, float("inf")) if level == "DRAM" and lower else None


def _passes_l1(point: Point, facts: Mapping[str, Any]) -> bool:
    """Whether a GPU's accesses pass L1 by: their operator says so, or they store, which L1 writes through.

    A plateau behind L1 is measured past it (bench/gpu/hierarchy.py) unless its variant names another.
    """
    words = set(point.variant.split())
    plateau = facts.get("unit") == "SM" and "plateau" in point.sizes
    return PAST_L1 in words or (plateau and (point.store != "none" or not words & THROUGH_L1))


def last_level_bytes(device: Mapping[str, Any]) -> float:
    """Bytes of all instances of the last cache level together, 0 where the device tells of none."""
    caches = device.get("caches", ())
    return float(caches[-1]["bytes"]) * int(caches[-1]["instances"]) if caches else 0.0


def lies_inside(size: float, ends: tuple[float, float]) -> bool:
    """Whether a working set of `size` byte a thread surely lies in a level with these ends."""
    return EXCEEDS * ends[0] <= size <= FITS * ends[1]


def settings(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> list[Setting]:
    """The working sets inside a ceiling's level by rising bytes a thread, its own among them, with rates."""
    ends = room(evidence.device, best.point)
    if ends is None:
        return []
    whole = WHOLE in best.point.sizes
    found: dict[int, Pooled] = {}
    for p in evidence.alike(ceiling, ceiling.kernel, ceiling.regime):
        size = p.point.sizes.get("bytes", 0)
        faster = size not in found or p.estimate(MEDIAN).value > found[size].estimate(MEDIAN).value
        alike = (WHOLE in p.point.sizes) == whole
        if lies_inside(size, ends) and alike and faster:
            found[size] = p
    found[best.point.sizes["bytes"]] = best
    return [Setting(size, found[size].rounds(MEDIAN), found[size]) for size in sorted(found)]
