"""Which of the measured ceilings make the roof that is printed and drawn, in report order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bench.profile.records import Ceiling, Curve, Fit, Profile
from bench.report import checks
from bench.workloads.roof import REGIMES

STREAMS = {"read": "1R", "write": "1W", "update": "1R+1W", "copy": "1R+1W", "triad": "2R+1W"}
"""Byte convention: the streams of item size that each access counts (R loaded, W stored)."""

PROCESS_ONLY = "within this process only"
FEW_ROUNDS = "few rounds"
NOT_CONVERGED = "did not converge"

CONTENDED = 0.2
"""Share of disturbed repetitions from which a ceiling is called contended in print."""


TOO_FEW_CLEAN = "repetitions"
"""The self-check that speaks when disturbed repetitions had to be used."""

NORMAL = "normal"
"""The self-check that compares with reference figures; it has its own lines in the report."""


@dataclass(frozen=True)
class Row:
    """A ceiling as printed: the value of most threads, beside it that of one thread if measured."""

    ceiling: Ceiling
    single: Ceiling | None = None


MEMORY = re.compile(r"L\d.*|DRAM|shared")
"""Names of memory levels; whatever else moves bytes is a link."""


WITHIN = ("device", "page cache")
"""Links whose two ends are one memory: no slope of their own beside its."""


def is_link(ceiling: Ceiling) -> bool:
    """Whether a beta is of a link or a collective, which bytes cross, and not of a memory level."""
    return ceiling.quantity == "beta" and not MEMORY.fullmatch(ceiling.level)


def links(profile: Profile) -> list[Ceiling]:
    """The best way over each kind of link, one direction before both, fastest link first.

    Pairs of peers or of memory nodes share a line; collectives, and copies inside one memory, have none.
    """
    best: dict[str, Ceiling] = {}
    for c in profile.ceilings:
        if not is_link(c) or c.level.endswith(" devices") or c.level in WITHIN:
            continue
        kind = c.level.split(" ")[0] if ">" in c.level else c.level
        old = best.setdefault(kind, c)
        if _one_way(c) > _one_way(old):
            best[kind] = c
    return sorted(best.values(), key=lambda c: -c.estimate.value)


def start_of(profile: Profile, link: Ceiling) -> Ceiling | None:
    """The alpha (t0) that was fitted together with a link's beta; None where the sizes do not tell it."""
    same = ("level", "kernel", "variant", "access")
    starts = (c for c in profile.ceilings if c.quantity == "t0")
    return next((c for c in starts if all(getattr(c, s) == getattr(link, s) for s in same)), None)


def _one_way(c: Ceiling) -> tuple[bool, float]:
    return c.access not in ("both", "exchange"), c.estimate.value


def rows(ceilings: Iterable[Ceiling]) -> list[Row]:
    """Ceilings that differ in nothing but their threads share a row; order is kept."""
    groups: dict[tuple[str, ...], list[Ceiling]] = {}
    for c in ceilings:
        key = (c.precision.label, c.level, c.access, c.store, c.kernel, c.regime, c.operands)
        groups.setdefault(key, []).append(c)
    found = []
    for group in groups.values():
        most = max(c.threads for c in group)
        single = next((c for c in group if c.threads == 1 < most), None)
        found += [Row(c, single if c.threads == most else None) for c in group if c is not single]
    return found


def peaks(profile: Profile, library: bool = False) -> list[Ceiling]:
    """The pi of each floating-point precision: most threads, dedicated kernel (or library), typical first.

    Only of random operands: zeros switch fewer transistors, which is a fact beside the roof.
    """
    best: dict[str, Ceiling] = {}
    for c in profile.ceilings:
        if c.quantity != "pi" or c.unit != "FLOP/s" or (c.precision.unit == "library") != library:
            continue
        if c.operands != "random":
            continue
        old = best.setdefault(c.precision.label, c)
        if _rank(c) > _rank(old):
            best[c.precision.label] = c
    return list(best.values())


def _rank(c: Ceiling) -> tuple[int, int, float]:
    preference = -REGIMES.index(c.regime) if c.regime in REGIMES else -len(REGIMES)
    return c.threads, preference, c.estimate.value


def types(c: Ceiling) -> tuple[str, str, str]:
    """What a dedicated kernel and a library must share to be two ceilings of the same arithmetic."""
    return c.precision.inputs, c.precision.accumulate, c.precision.mode


def diagonals(profile: Profile) -> list[Ceiling]:
    """The beta of each memory level and access: most threads, typical first, the fastest kernel and store.

    Slowest access first in each level.
    """
    best: dict[tuple[str, str], Ceiling] = {}
    for c in profile.ceilings:
        if c.quantity != "beta" or is_link(c) or c.operands != "random":
            continue
        old = best.setdefault((c.level, c.access), c)
        if _rank(c) > _rank(old):
            best[c.level, c.access] = c
    levels = list(dict.fromkeys(level for level, _ in best))
    return sorted(best.values(), key=lambda c: (levels.index(c.level), c.estimate.value))


def main_memory(profile: Profile) -> list[Ceiling]:
    """The diagonals of the level behind all caches: DRAM, or the slowest level measured."""
    found = diagonals(profile)
    levels = {c.level for c in found}
    slowest = "DRAM" if "DRAM" in levels else found[0].level if len(levels) == 1 else ""
    if not slowest and found:
        slowest = min(found, key=lambda c: c.estimate.value).level
    return [c for c in found if c.level == slowest]


def slopes(profile: Profile) -> list[Ceiling]:
    """The one or two betas that the roof stands on, the slower first.

    Read-only and in-place, the modes of the intensity sweep, where both were measured; else the
    slowest and the fastest access.
    """
    found = main_memory(profile)
    modes = [c for c in found if c.access in ("read", "update")]
    found = modes if len(modes) == 2 else found
    return found if len(found) < 2 else [found[0], found[-1]]


def chosen(curve: Curve) -> Fit | None:
    """The fit that predicts: the chosen one, None when the curve has no fit."""
    return next((fit for fit in curve.fits if fit.chosen), curve.fits[0] if curve.fits else None)


def verdict(ceiling: Ceiling) -> str:
    """Whether the value may be relied on, in words: ok, did not converge, contended, ..."""
    unknown = PROCESS_ONLY if ceiling.rounds < 2 else FEW_ROUNDS
    words = {None: unknown, False: NOT_CONVERGED, True: ""}[ceiling.converged]
    parts = [words] if words else []
    if ceiling.contended >= CONTENDED or TOO_FEW_CLEAN in checks.failing(ceiling):
        parts.append("contended")
    if checks.is_marked(ceiling):
        parts.append(checks.MARK)
    return ", ".join(parts) or "ok"


def missing(profile: Profile) -> list[str]:
    """What a roofline needs and this profile lacks, in words."""
    lacks = []
    if not peaks(profile):
        lacks.append("no π of a dedicated kernel was measured: there is no horizontal roof")
    if not diagonals(profile):
        lacks.append("no β was measured: there is no diagonal roof and no ridge")
    if not any(curve.kind == "mix" and curve.points for curve in profile.curves):
        chunked = any(curve.kind == "overlap" and "omega" in curve.plateaus for curve in profile.curves)
        overlap = "" if chunked else " and no overlap ω"
        lacks.append(f"no intensity sweep was measured: there is no fitted curve{overlap}")
    if not profile.placements:
        lacks.append("no workload was placed")
    return lacks
