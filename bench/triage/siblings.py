"""Loops that move the same bytes in the same way, against each other.

    stream of an access   the largest sizes of the sweep over working sets of that access, and the memory side
                          of the intensity sweep with its traffic
    copy and triad        each other: both load and store, in order, all the time

When the buffers are smaller than was asked for, reads of both streams and intensity sweeps come from a cache,
while the sweep over working sets, whose sizes are its subject, does not. When a loop counts other bytes than
it moves, that loop alone is off, by a ratio of stream counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import median

from bench.profile.records import WHOLE, Ceiling, Curve
from bench.profile.verdict import FAILS, evidence, word
from bench.report.units import capacity, si
from bench.triage.case import Case, agree
from bench.triage.finding import Finding, found
from bench.triage.sweeps import largest

RESIDENT = 1.12
"""Reads of streams and of the intensity sweep, over those of large working sets: they agree within 5 % where
measured, and a cache that is half as fast again and serves a third of the traffic gives 1.13."""

TOGETHER = 0.10
"""Scatter of both about each other: other loops, the same memory."""

OFF = 1.25
"""Ratio of two loops of one traffic from which on one counts wrong: measured ones lie within 1.18, and the
smallest ratio of stream counts is 4/3."""

MOST = 4.5
"""Ratio beyond which no count is so wrong: three streams for one, and write-allocate traffic with them."""

OFF_TRIAD = 1.18
"""The same for copy and triad: published pairs lie within 1.10 once write-allocate traffic is counted."""

OFF_BUS = 1.3
"""The same against the median of all other accesses, where the bus is known: boards have them within 1.15."""

BEYOND, NEARLY = 2.5, 1.5
"""Working set over the last-level cache from which on a sweep's point is DRAM's, and from which on points may
show that it ends flat."""

FLAT = 0.15
"""How near a sweep's last two sets must read: where they do not, more is cached than the system reports (as
virtual machines are often told), and the sweep ends before DRAM begins."""

MODES = {"read": "read-only", "update": "in-place"}
"""Intensity sweep with the traffic of a stream."""

PAIR = ("copy", "triad")


def resident(case: Case) -> Finding | None:
    """Streams and intensity sweep read faster than the sweep over working sets does where it ends."""
    reads = [c for c in case.memory if c.kernel == "read"]
    end, mix = swept_end(case, "read"), _mix(case, "read")
    if end is None:
        return _hidden(case, reads)
    if not reads or mix is None:
        return None
    stream = max(c.estimate.value for c in reads)
    if min(stream, mix) < RESIDENT * end or not agree(stream, mix, TOGETHER):
        return None
    sentence = (
        f"β DRAM read is {si(stream, 'byte/s')} and the intensity sweep reads {si(mix, 'byte/s')}, "
        f"{stream / end:.2f} times the {si(end, 'byte/s')} at which the sweep over working sets ends: part "
        "of the data of both came from a cache, so the buffer that was really used hardly exceeds it"
    )
    return found("cache-resident", "β DRAM", sentence, stream=stream, mix=mix, sweep_end=end)


def _hidden(case: Case, reads: Sequence[Ceiling]) -> Finding | None:
    """Arrays of which a larger cache than the system reports holds part, as their own check says."""
    said = next((c.checks.get("array size", "") for c in reads if c.checks.get("array size")), "")
    swept = sorted(s for c in _swept(case, "read") for s in _sets(case, c))
    if len(swept) < 2 or not said or word(said) != FAILS or swept[-2][1] < (1 + FLAT) * swept[-1][1]:
        return None
    (size, rate), stream = swept[-1], max(c.estimate.value for c in reads)
    if not agree(stream, rate, RESIDENT - 1):
        return None
    sentence = (
        f"β DRAM read is {si(stream, 'byte/s')} with {evidence(said)}; the sweep over working sets, which at "
        f"its end of {capacity(size)} reads {si(rate, 'byte/s')}, still falls there"
    )
    return found("cache-resident", "β DRAM", sentence, stream=stream, sweep_end=rate, sweep_bytes=size)


def counted(case: Case) -> list[Finding]:
    """Kernels whose rate no loop of the same traffic shares: they count other bytes than they move."""
    rates = _rates(case)
    off = {kernel: said for kernel in rates if (said := _off(case, kernel, rates))}
    told = [_told(kernel, rates[kernel], *said) for kernel, said in off.items()]
    return [*told, *_one_of_a_pair(case, rates, off), *_sweeps(case, rates)]


def _sweeps(case: Case, rates: Mapping[str, float]) -> list[Finding]:
    """Intensity sweeps whose memory side neither the stream nor the working sets of that access share."""
    off: list[tuple[str, float, float, str]] = []
    for access, mode in MODES.items():
        mix, end, stream = _mix(case, access), swept_end(case, access), rates.get(access)
        if not (mix and stream) or (end and not agree(stream, end, RESIDENT - 1)):
            continue
        if not agree(mix, stream, OFF - 1) and not (end and agree(mix, end, OFF - 1)):
            off.append((mode, mix, stream, f"the {access} stream"))
    factors = [mix / stream for _, mix, stream, _ in off]
    if len(off) == len(MODES) and agree(factors[0], factors[1], TOGETHER):
        return [_all_along(*off[0][1:3])]
    return [_told(f"mix-{mode}", mix, stream, what) for mode, mix, stream, what in off]


def _all_along(mix: float, stream: float) -> Finding:
    sentence = (
        f"the memory side of the intensity sweeps is {si(mix, 'byte/s')}, {mix / stream:.2f} times the "
        f"{si(stream, 'byte/s')} of the streams, in both modes alike: a step lies at their very beginning"
    )
    return found("sweep-step", "memory side of the sweeps", sentence, before=stream, behind=mix)


def _rates(case: Case) -> Mapping[str, float]:
    """byte/s of every stream kernel, write-allocate traffic included."""
    best: dict[str, float] = {}
    for c in case.memory:
        best[c.kernel] = max(best.get(c.kernel, 0.0), _moved(c))
    return best


def _moved(c: Ceiling) -> float:
    return c.estimate.value * (1 + c.hidden_traffic)


def _off(case: Case, kernel: str, rates: Mapping[str, float]) -> tuple[float, str] | None:
    """(rate that its siblings tell, whose that is) of a kernel that every sibling contradicts."""
    known = list(_witnesses(case, kernel))
    if not known or any(agree(own, value, OFF - 1) for own, value, _ in known):
        return _off_bus(case, kernel, rates) if not known else None
    own, value, what = known[0]
    if not agree(own, value, MOST - 1):
        return None
    return value * rates[kernel] / own, what


def _witnesses(case: Case, kernel: str) -> Iterator[tuple[float, float, str]]:
    """(own rate, sibling's rate, whose it is): byte/s of the same store."""
    ordinary = [c for c in case.memory if c.kernel == kernel and c.store != "nontemporal"]
    if not ordinary:
        return
    own, access = max(c.estimate.value for c in ordinary), ordinary[0].access
    if access == kernel and (end := swept_end(case, access)) and not _like_cache(case, access, end):
        yield own, end, f"the large working sets of the {access} sweep"
    if kernel in MODES and (mix := _mix(case, kernel)):
        yield own, mix, f"the memory side of the {MODES[kernel]} sweep"


def _like_cache(case: Case, access: str, end: float) -> bool:
    """Whether a sweep ends as fast as the last-level cache: it may end in a larger one than is reported."""
    caches = (c for c in case.ceilings if c.quantity == "beta" and c.level == case.last_level)
    return any(end > (1 - FLAT) * c.estimate.value for c in caches if c.access == access and c.scope in WHOLE)


def _off_bus(case: Case, kernel: str, rates: Mapping[str, float]) -> tuple[float, str] | None:
    """On a board, where every access comes near the bus: against all others."""
    others = [value for name, value in rates.items() if name != kernel]
    if len(others) < 3 or not all(c.share_at_clock for c in case.memory):
        return None
    usual = median(others)
    return None if agree(rates[kernel], usual, OFF_BUS - 1) else (usual, "the other accesses of this bus")


def _one_of_a_pair(
    case: Case, rates: Mapping[str, float], off: Mapping[str, tuple[float, str]]
) -> Iterator[Finding]:
    """Copy and triad: the one without a witness of its own follows the other, or is off where they differ."""
    if not all(kernel in rates for kernel in PAIR):
        return
    apart = not agree(rates["copy"], rates["triad"], OFF_TRIAD - 1)
    if rates["copy"] > rates["triad"] and _flat_from(case) is None:
        apart = False  # two arrays are less than three: more of them may lie in a cache that nobody reports
    wrong = [kernel for kernel in PAIR if kernel in off]
    if len(wrong) == 1 and not apart:
        other = PAIR[1 - PAIR.index(wrong[0])]
        yield _told(other, rates[other], off[wrong[0]][0], f"the siblings of {wrong[0]}, which is as far off")
    elif not wrong and apart:
        kernel = _stranger(case, rates)
        other = PAIR[1 - PAIR.index(kernel)]
        yield _told(kernel, rates[kernel], rates[other], f"{other}, which loads and stores in order as well")


def _stranger(case: Case, rates: Mapping[str, float]) -> str:
    """Triad where a working-set sweep confirms copy, else the one that lies farther from all others."""
    if list(_witnesses(case, "copy")):
        return "triad"
    others = [value for kernel, value in rates.items() if kernel not in PAIR]
    usual = median(others) if others else rates["copy"]
    return max(PAIR, key=lambda kernel: max(rates[kernel] / usual, usual / rates[kernel]))


def _told(kernel: str, rate: float, sibling: float, what: str) -> Finding:
    factor = rate / sibling
    sentence = (
        f"{kernel} moves {si(rate, 'byte/s')}, {factor:.2f} times the {si(sibling, 'byte/s')} of {what}: "
        f"it counts {'more' if factor > 1 else 'fewer'} bytes than it moves"
    )
    return found("byte-count", kernel, sentence, rate=rate, sibling=sibling, factor=factor)


def swept_end(case: Case, access: str) -> float | None:
    """byte/s of the sweep over working sets of an access where it is surely DRAM's.

    None where no set is far beyond the last-level cache, or where reads still fall at the sweep's end.
    """
    flat = _flat_from(case)
    if flat is None:
        return None
    ends = [rate for c in _swept(case, access) for size, rate in _sets(case, c, BEYOND) if size >= flat]
    return median(ends) if ends else None


def _flat_from(case: Case) -> float | None:
    """Bytes of the sets from which on reads are as fast as at their sweep's end; None where they still fall.

    0 where no reads were swept.
    """
    curves = _swept(case, "read")
    starts = [size for c in curves if (size := _flat_part(sorted(_sets(case, c), reverse=True)))]
    return min(starts, default=None) if curves else 0.0


def _flat_part(sets: Sequence[tuple[float, float]]) -> float:
    """Bytes of the smallest of at least two sets, from the largest on, that are as fast as it; else 0."""
    flat = list(takewhile(lambda s: agree(s[1], sets[0][1], FLAT), sets))
    return flat[-1][0] if len(flat) >= 2 else 0.0


def _swept(case: Case, access: str) -> list[Curve]:
    """Sweeps of the whole device over working sets of an access."""
    modes = (access, f"{access} whole")
    return [c for c in case.profile.curves if c.kind == "cache" and c.scope in WHOLE and c.mode in modes]


def _sets(case: Case, curve: Curve, beyond: float = NEARLY) -> list[tuple[float, float]]:
    """(bytes, byte/s) of a sweep's working sets beyond so many times the last-level cache."""
    least = beyond * case.cache_bytes
    sets = [(_footprint(curve, p.x), p.estimate.value) for p in curve.points]
    return [s for s in sets if s[0] >= least] if least else []


def _footprint(curve: Curve, x: float) -> float:
    """Bytes of all threads together."""
    return x if "whole" in curve.mode else x * curve.threads


def _mix(case: Case, access: str) -> float | None:
    """byte/s of the memory side of an intensity sweep without a step: its three lowest intensities."""
    whole = [c for c, steps in case.sweeps if c.mode == MODES[access] and not steps]
    rates = [p.estimate.value / p.x for c in whole[:1] for p in largest(c.points)[:3]]
    return median(rates) if rates else None
