"""What the sweeps over working sets say beyond the table of levels, in a few lines.

The words of every sweep about every level stay in the profile (curves, plateaus: levels, not_visible).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.fitting.level_names import A_SLOW_FALL, NO_END, OF_REPORTED
from bench.profile.records import Curve, Profile
from bench.report.units import capacity, duration, number, plus_minus
from kernels.latency import WINDOW_BYTES

MOST = 4
"""Remarks of one kind that are written out."""


def remarks(profile: Profile) -> Iterator[str]:
    """Levels that hold less than reported, do not show, are reported by nobody, or whose end is open."""
    curves = [c for c in profile.curves if _is_staircase(c)]
    most = max((c.threads for c in curves), default=1)
    sweeps = [(_name(c, most), c) for c in curves]
    levels = [(name, level) for name, c in sweeps for level in c.plateaus["levels"]]
    yield from _less(levels)
    hidden = [
        (str(level), name) for name, c in sweeps for level in dict.fromkeys(c.plateaus.get("not_visible", ()))
    ]
    if hidden:
        yield f"not visible with this access pattern: {_listed(hidden)}"
    bare = [(_bounds(level), name) for name, level in levels if not level["name"]]
    if bare:
        yield f"flat, but no reported level: {_listed(bare)}"
    ends = [(str(v["name"]), name) for name, v in levels if NO_END in v["why"]]
    if ends:
        yield f"seen, but {NO_END}: {_listed(ends)}"
    slow = [(str(v["name"]), name) for name, v in levels if A_SLOW_FALL in v["why"]]
    if slow:
        yield f"the rate falls too slowly to tell what it holds: {_listed(slow)}"


def walked(profile: Profile) -> Iterator[str]:
    """Latencies of walks that small TLBs serve: what the table says beyond them is spent on page tables."""
    pages = profile.facts.get("device", {}).get("facts", {}).get("huge_pages")
    for c in profile.ceilings:
        if (c.quantity, c.kernel) == ("latency", "chase-local"):
            width = f" {plus_minus(c.estimate.half_width)}" if c.estimate.half_width else ""
            where = f"in windows of {capacity(WINDOW_BYTES)}, where page tables cost next to nothing"
            mode = f" (huge pages: {pages})" if pages else ""
            yield f"{c.level} latency {where}: {duration(c.estimate.value)}{width}{mode}"


def _is_staircase(curve: Curve) -> bool:
    return curve.kind in ("cache", "latency") and "levels" in curve.plateaus


def _name(curve: Curve, most: int) -> str:
    """A sweep as remarks call it: latency, or its access, with its threads where they are not all."""
    if curve.kind == "latency":
        return "latency"
    return curve.mode if curve.threads == most else f"{curve.mode} on {curve.threads}"


def _less(levels: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Shares of the reported capacities that were found, one line a reason."""
    found: dict[str, dict[str, list[float]]] = {}
    for _, level in levels:
        if OF_REPORTED in level["why"] and level["reported_bytes"]:
            why = level["why"].split(OF_REPORTED)[1].split(";")[0]
            share = level["capacity_bytes"] / level["reported_bytes"]
            found.setdefault(why, {}).setdefault(level["name"], []).append(share)
    for why, shares in found.items():
        each = [f"{name} {_range(values)}" for name, values in shares.items()]
        yield f"seen over reported capacity: {', '.join(each)} ({why})"


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values), 2), number(max(values), 2)
    return low if low == high else f"{low} to {high}"


def _bounds(level: Mapping[str, Any]) -> str:
    """Working sets of a plateau without a name."""
    low, high = capacity(level["from_bytes"]).split(), capacity(level["to_bytes"])
    return f"{low[0] if low[1] == high.split()[1] else ' '.join(low)} to {high}"


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    """What the same sweeps found, with these; what goes beyond a few is counted."""
    by_what: dict[str, list[str]] = {}
    for what, sweep in pairs:
        by_what.setdefault(what, []).append(sweep)
    found: dict[str, list[str]] = {}
    for what, sweeps in by_what.items():
        found.setdefault(", ".join(dict.fromkeys(sweeps)), []).append(what)
    each = [f"{', '.join(whats)} ({sweeps})" for sweeps, whats in found.items()]
    left = len(each) - MOST
    return ", ".join(each[:MOST]) + (f" and {left} more" if left > 0 else "")
