"""The table of a profile: everything that was measured on at most `width` columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from bench.profile.records import Placement, Profile
from bench.report import ceiling_parts, findings, grid, heading, hierarchy, roofs, second
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.units import duration, number, percent, plus_minus, si

WORKLOADS: tuple[tuple[str, Side], ...] = (
    ("workload", WORDS),
    ("", WORDS),
    ("I", NUMBERS),
    ("attainable", NUMBERS),
    ("achieved", NUMBERS),
    ("of roof", NUMBERS),
    ("binds", WORDS),
    ("idle", NUMBERS),
    ("time", NUMBERS),
    ("least", NUMBERS),
)

MOST_ABSENT = 12
"""How many absent things are listed before the rest is only counted."""

READING = (
    "A workload of I FLOP/byte reaches at most min(π, β·I), β at its own share of reads and writes.",
    "±: relative 95 % interval over rounds. GB = 1e9 byte, FMA = 2 FLOP, ω: overlap (0 serial, 1 hidden).",
)


def render(profile: Profile, width: int = 100, colour: bool = False) -> str:
    """The whole table as text that is never wider than `width` columns and ends with a newline."""
    return grid.printed(_parts(profile, width), width, colour)


def _parts(profile: Profile, width: int) -> Iterable[Text | Table]:
    yield from _head(profile, width)
    yield from _short(profile)
    yield from findings.triage(profile)
    yield from ceiling_parts.compute(profile)
    yield from ceiling_parts.memory(profile)
    yield from hierarchy.part(profile)
    yield from second.cross_check(profile)
    yield from ceiling_parts.fits(profile)
    yield from _workloads(profile)
    yield from _absent(profile)
    yield grid.section("How to read")
    yield from (Text(line, style="dim") for line in READING)
    if profile.simulated:
        yield Text(heading.SIMULATED, style="bold magenta")


def _head(profile: Profile, width: int) -> Iterable[Text | Table]:
    left, right = heading.title(profile)
    if profile.simulated:
        yield Text(heading.SIMULATED, style="bold magenta")
    gap = width - len(left) - len(right)
    yield Text(left + " " * gap + right if gap > 1 else f"{left}\n{right}", style="bold")
    yield Text(f"conditions: {heading.conditions(profile)}", style="dim")


def _short(profile: Profile) -> Iterable[Text | Table]:
    """The roof in one line a precision: what most readers came for."""
    ends = roofs.slopes(profile)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    for peak in roofs.peaks(profile):
        cells = [peak.precision.label, f"π {si(peak.estimate.value, peak.unit)}"]
        if ends:
            ridges = " to ".join(number(peak.estimate.value / c.estimate.value) for c in reversed(ends))
            cells += [f"ridge {ridges} FLOP/byte"]
        table.add_row(*(Text(cell, style="bold") for cell in cells))
    if table.row_count:
        yield Text()
        yield table
    if ends:
        betas = " to ".join(f"{si(c.estimate.value, c.unit)} ({c.access})" for c in ends)
        yield Text(f"{ends[0].level}   β {betas}", style="bold")
    for lack in roofs.missing(profile):
        yield Text(f"missing: {lack}", style="yellow")


def _workloads(profile: Profile) -> Iterable[Text | Table]:
    if not profile.placements:
        return
    names = [_workload_name(p, profile) for p in profile.placements]
    yield grid.section("Workloads", "each on the roof of its own precision and read share; I in FLOP/byte")
    yield Text(
        "idle: unused share of the resource that does not bind; least: time on the roof itself", style="dim"
    )
    yield grid.table(WORKLOADS, map(_workload_line, names, profile.placements))
    if any(_workload_name(p, profile) != p.name for p in profile.placements):
        yield Text("1T: on one thread, and so on; L2: on the roof of that cache level", style="dim")
    yield from _implementations(profile.placements)


def _workload_name(p: Placement, profile: Profile) -> str:
    """The name, with threads and level where they are not those of the headline: gemm 1T, dot L2."""
    count = f" {p.threads}T" if p.threads != heading.threads(profile) else ""
    return p.name + count + (f" {p.level}" if p.level != "DRAM" else "")


def _give_or_take(p: Placement) -> str:
    width = p.efficiency.half_width
    return "" if width is None else plus_minus(width).replace("± ", "±") if width < 1 else "±>99 %"


def _workload_line(name: str, p: Placement) -> Sequence[str]:
    return (
        name,
        p.precision.label.replace(" matrix", "").replace(" library", ""),
        number(p.intensity),
        si(p.attainable.value, p.unit),
        si(p.achieved.value, p.unit),
        f"{percent(p.efficiency.value)} {_give_or_take(p)}".rstrip(),
        p.binds,
        percent(p.idle),
        duration(p.seconds.value),
        duration(p.least_seconds),
    )


def _implementations(placements: Sequence[Placement]) -> Iterable[Text]:
    groups: dict[str, dict[str, None]] = {}
    for p in placements:
        groups.setdefault(p.implementation or "unnamed", {})[p.name] = None
    said = "; ".join(f"{name}: {', '.join(who)}" for name, who in groups.items())
    yield Text(f"run by {said}", style="dim")
    if notes := "; ".join(f"{p.name}: {p.note}" for p in placements if p.note):
        yield Text(f"notes: {notes}", style="yellow" if "above roof" in notes else "dim")


def _absent(profile: Profile) -> Iterable[Text]:
    told = []
    for skip in profile.skipped:
        what = " ".join(value for key, value in skip.items() if key != "reason" and value)
        told.append(("skipped", what, " ".join(skip.get("reason", "").split())))
    for text in profile.not_measured:
        what, _, reason = text.partition(": ")
        told.append(("left out", what, reason))
    lines = _by_reason(told)
    if not lines:
        return
    yield grid.section("Not measured")
    yield from (Text(line) for line in lines[:MOST_ABSENT])
    if len(lines) > MOST_ABSENT:
        yield Text(f"and {len(lines) - MOST_ABSENT} more, all listed in the profile")


def _by_reason(told: Iterable[tuple[str, str, str]]) -> list[str]:
    """One line a reason, in the order of the first: ten families that nobody asked for hide what failed.

    A reason that counts is of one thing alone.
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    for how, what, reason in told:
        alone = "" if reason and not reason[0].isdigit() else what
        groups.setdefault((how, reason, alone), []).append(what)
    return [
        f"{how} {', '.join(whats)}" + (f": {reason}" if reason else "")
        for (how, reason, _), whats in groups.items()
    ]
