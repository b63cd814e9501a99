"""Workloads above their roof, which is not possible, or below half of it: who needs a reason.

Those below that share a cause are told once. Why one is slow: roofed.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.profile.records import Ceiling, Placement
from bench.profile.roofline import attainable, fitted_rate
from bench.report.units import capacity, si
from bench.triage.case import Case
from bench.triage.finding import Finding, Number, about, several, unexplained
from bench.triage.roofed import Reason, reason
from bench.workloads.roof import READ_FRACTION

ABOVE, BELOW = 1.03, 0.45
"""Achieved over attainable beyond which a reason is told: half, less what a roof at a read share between two
measured ones may be off."""

ENOUGH = 2.0
"""Operands over last-level cache below which they stay there from one execution to the next."""


UNKNOWN = "was not measured"
"""Words of a hypothesis that could not be tested; it is told whole."""

UNSTEADY = ("throttling", "noisy-neighbour", "cpu-quota")
"""Causes by which a machine is slower at one time than at another."""

MOVED = 3.0
"""Times a roof up to which it may have been measured while the machine was slower."""

NAMED = 3
"""Workloads of one cause that its sentence names; the finding's subjects hold all."""

OF_MEMORY = ("cache-resident", "byte-count", "memory-clock", "launch-bound")
OF_UNITS = ("folded-chain", "dual-issue", "narrow-probe", "partition", "tf32", "launch-bound")
"""Causes that make the roof itself wrong, for workloads that memory or that the units bind."""


def placed(case: Case, others: Sequence[Finding]) -> list[Finding]:
    """Findings of the placements that need one; `others` are those of the device itself.

    None of a workload whose roof is wrong: what is wrong with that is told already. Where π is wrong nobody
    knows whether the arithmetic or the memory binds one.
    """
    slow: list[tuple[Placement, Number]] = []
    causes = {f.cause for f in others}
    memory, units = causes & set(OF_MEMORY), causes & {*OF_UNITS, "cache-resident", "byte-count"}
    told = []
    for p in case.profile.placements:
        if memory if p.binds == "memory" else units if p.binds == "compute" else memory | units:
            continue
        high = p.efficiency.high
        number = Number(_name(p), p.achieved.value, p.attainable.value, p.unit, "its roof")
        if p.efficiency.value > ABOVE and _is_surely_above(p) and not _between(case, p):
            told.append(_above(case, p, number, others))
        elif max(p.efficiency.value, high or 0.0) < BELOW * _rounded(case, p) and not (p.flops and units):
            slow.append((p, number))
    return [*told, *_below(case, slow, others)]


def _is_surely_above(p: Placement) -> bool:
    """Whether the roof lies below by its interval; of a single round, which has none, by the roof's own."""
    if p.efficiency.low is not None:
        return p.efficiency.low > 1.0
    return p.achieved.value > (p.attainable.high or p.attainable.value)


def _between(case: Case, p: Placement) -> bool:
    """Whether its level was seen to move as much by another access: its roof is too low, not it too fast.

    As much together, or, of one that reads and writes at once, as much each way.
    """
    same = [c for c in case.ceilings if c.quantity == "beta" and (c.level, c.threads) == (p.level, p.threads)]
    best = max((c.estimate.value * (1 + c.hidden_traffic) for c in same), default=0.0)
    ways = [(READ_FRACTION[c.access], c.estimate.value) for c in same if c.access in READ_FRACTION]
    most_read = max((share * beta for share, beta in ways), default=0.0)
    most_written = max(((1 - share) * beta for share, beta in ways), default=0.0)
    read, written = p.bytes_read / p.seconds.value, p.bytes_written / p.seconds.value
    each = 0 < read <= most_read and 0 < written <= most_written
    return p.binds != "compute" and (read + written <= best or each)


def _rounded(case: Case, p: Placement) -> float:
    """What the fitted curve delivers at an intensity, over what the sharp corner promises."""
    fit = case.fit("read-only") or case.fit("in-place")
    if fit is None or not p.flops or not p.bytes:
        return 1.0
    return min(1.0, fitted_rate(p.intensity, fit) / attainable(p.intensity, fit.pi.value, fit.beta.value))


def _name(p: Placement) -> str:
    return f"{p.name} {p.precision.label}" + (f" {p.level}" if p.level not in ("", "DRAM") else "")


def _above(case: Case, p: Placement, number: Number, others: Sequence[Finding]) -> Finding:
    """Above roof: not possible, so the count, the timing or the level is another."""
    resident = _resident(case, p, number)
    if isinstance(resident, Finding):
        return resident
    level = _level(case, p, number)
    if isinstance(level, Finding):
        return level
    library = _matrix(case, p, number)
    if isinstance(library, Finding):
        return library
    causes = {f.cause for f in others}
    unsteady = "the roof moved (no clock fell and nobody else was seen)"
    for cause in UNSTEADY:
        if cause in causes and number.ratio <= MOVED:
            because = "above roof: the roof itself was measured while the device was slower, as told above"
            return about(number, cause, because)
    return unexplained(
        number,
        ["above roof: not possible, check the count or the timing", resident, level, library, unsteady],
    )


def _resident(case: Case, p: Placement, number: Number) -> Finding | str:
    cache = case.cache_bytes
    if p.binds == "compute" or not cache:
        return "cache-resident (memory does not bind it)" if cache else "cache-resident (no cache size known)"
    if p.bytes >= ENOUGH * cache:
        return f"cache-resident (operands of {capacity(p.bytes)}, {case.last_level} {capacity(cache)})"
    because = (
        f"above roof: its operands of {capacity(p.bytes)} stay in the {case.last_level} of {capacity(cache)}"
        f", so {p.level} is not its roof"
    )
    return about(number, "cache-resident", because, operand_bytes=p.bytes, cache_bytes=cache)


def _level(case: Case, p: Placement, number: Number) -> Finding | str:
    """The roof of a nearer level holds it: then part of the declared bytes never reached this one."""
    if p.binds == "compute" or not p.bytes:
        return "level (memory does not bind it)"
    near = [c for c in case.ceilings if _near(c, p)]
    rate = p.bytes / p.seconds.value
    above = [c for c in near if c.estimate.value >= rate]
    if not above:
        return f"level (no cache was measured to move {si(rate, 'byte/s')})"
    best = min(above, key=lambda c: c.estimate.value)
    because = (
        f"above roof: its bytes move at {si(rate, 'byte/s')}, which only the {best.level} can "
        f"({si(best.estimate.value, 'byte/s')}): fewer bytes than declared reach {p.level}"
    )
    return about(number, "byte-count", because, rate=rate, level=best.level)


def _near(c: Ceiling, p: Placement) -> bool:
    return c.quantity == "beta" and c.level not in ("", p.level) and c.threads == p.threads


def _matrix(case: Case, p: Placement, number: Number) -> Finding | str:
    """A product above the vector roof that the matrix units of another mode allow."""
    if p.binds != "compute" or p.precision.inputs not in ("fp32", "fp64"):
        return "other units (not a product of vector units)"
    faster = [
        c for c in case.peaks if c.precision.inputs == p.precision.inputs and c.precision.unit == "matrix"
    ]
    if not faster:
        return "other units (none measured)"
    best = max(faster, key=lambda c: c.estimate.value)
    if p.achieved.value > best.estimate.value:
        return f"other units ({best.precision.label} gives {si(best.estimate.value, best.unit)})"
    because = (
        f"above roof: {best.precision.label} gives {si(best.estimate.value, best.unit)}, so it ran there"
    )
    cause = "tf32" if best.precision.mode == "tf32" else "wrong-precision"
    return about(number, cause, because)


def _below(case: Case, slow: Sequence[tuple[Placement, Number]], others: Sequence[Finding]) -> list[Finding]:
    """One finding a cause of those below half of their roof, one for all whose every hypothesis failed."""
    known: dict[str, list[tuple[Number, Reason]]] = {}
    open_: list[tuple[Number, list[str]]] = []
    for p, number in slow:
        why = reason(case, p)
        if isinstance(why, Reason):
            known.setdefault(why.cause, []).append((number, why))
        else:
            open_.append((number, why))
    told = [_explained(cause, group) for cause, group in known.items()]
    return [*told, *([_open(open_, others)] if open_ else [])]


def _explained(cause: str, group: Sequence[tuple[Number, Reason]]) -> Finding:
    """Workloads of one cause: each with its share of the roof and its own figures."""
    group = sorted(group, key=lambda pair: pair[0].ratio)
    number, why = group[0]
    if len(group) == 1:
        return about(number, cause, f"{why.shared} ({why.proof})", **why.evidence)
    listed = [f"{n.subject} {n.ratio:.2f}x ({w.proof})" for n, w in group]
    sentence = f"{len(group)} workloads below half of their roof, {why.shared}: {_named(listed)}"
    evidence: dict[str, float | str] = {}
    for n, w in group:
        evidence.update({f"{key} of {n.subject}": v for key, v in {"ratio": n.ratio, **w.evidence}.items()})
    return several([n.subject for n, _ in group], cause, sentence, evidence)


def _open(group: Sequence[tuple[Number, list[str]]], others: Sequence[Finding]) -> Finding:
    """Those for which no hypothesis held, and which ones were tested."""
    group = sorted(group, key=lambda pair: pair[0].ratio)
    cut = [f.cause for f in others if f.cause in UNSTEADY]
    besides = f"other tenants and clocks ({', '.join(cut) + ', as above' if cut else 'none seen'})"
    listed = f"{len(group)} workloads below half of their roof" if len(group) > 1 else group[0][0].said
    if len(group) > 1:
        listed += f": {_named([f'{n.subject} {n.ratio:.2f}x' for n, _ in group])}"
    tests = dict.fromkeys(t if UNKNOWN in t else t.split(" (")[0] for _, tested in group for t in tested)
    names = ", ".join((*tests, besides))
    sentence = f"{listed}: not explained; tested: {names}"
    evidence: dict[str, float | str] = {}
    for n, tested in group:
        evidence |= {f"ratio of {n.subject}": n.ratio, f"tested of {n.subject}": "; ".join(tested)}
    evidence["tested"] = names
    return several([n.subject for n, _ in group], "unexplained", sentence, evidence)


def _named(parts: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    rest = len(parts) - NAMED
    return ", ".join(parts[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
