"""Whether the clock can be believed: times that are zero, coarse, constant, overlapping, off by a factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median, median_low

from bench.profile.records import Sample
from bench.report.units import duration, percent
from bench.triage.case import Case, agree
from bench.triage.failures import TIMER
from bench.triage.finding import Finding, found
from bench.triage.tenancy import shared

LONG = 1e-3
"""Seconds from which on a repetition of every clock we know (0.5 µs at worst) is told from its neighbours."""

TIED = 0.3
"""Share of repetitions with exactly the time of another: coarse or constant. 1 ns of 1 ms ties one in 1e4."""

COARSE = 0.005
"""Tick over time from which on a tick decides a rate, as much as a narrow interval is wide."""

OVERLAP, GAP = 1.03, 0.93
"""Time over the distance between two starts: above 1 repetitions would overlap; long native ones that follow
each other fill 0.99 of it on real machines."""

STEADY = 0.03
"""Scatter of that share over the samples within which it is a factor of the clock, and no pause."""

WALL, SHARE = 1.02, 0.03
"""Seconds of all repetitions of a sample over the host's for all of it, set-up included, from which on that
is impossible, and the share of samples that must show it: clocks of one machine drift apart by 1e-4."""

AWAY, JUMP = 0.04, 0.02
"""Distance of two batches' starts by the host over the first batch by the timer, less 1, from which on they
tell two times; and the gap between repetitions, over their time, at which a batch ends."""

LONGER, ALIKE = 2.0, 0.35
"""Factor between short and long batches at which a pause, which has one length, differs from a factor, which
has none; and how near both must then be."""

UNTIED = ("latency", "link", "overlap", "launch", "collective", "scaling")
"""Families whose time need not grow with the work that they declare: chains, ways and devices run at once."""

ABOVE, BELOW = 1.05, 0.6
"""Share of theory beyond which a rate cannot be, or is not a working device's; usual is 0.67 to 0.99."""

ONE_FACTOR = 0.12
"""Scatter of families' shares of theory within which one factor explains them: they reach 0.84 to 0.98."""

SAME_TIME, MORE_WORK = 1.25, 4.0
"""Times that agree although the work differs by this factor: what was timed was not the work."""


def timer(case: Case) -> Finding | None:
    """The first sign that the times are wrong; None when none holds."""
    signs: tuple[Callable[[Case], Finding | None], ...] = (
        _refused,
        _not_positive,
        _coarse,
        _stream,
        _longer_than_the_clock,
        _by_the_host,
        _overlapping,
        _factor,
    )
    return next(filter(None, (sign(case) for sign in signs)), None)


def _refused(case: Case) -> Finding | None:
    refused = [s for s in case.samples if s.status == "failed" and any(w in s.reason for w in TIMER)]
    if not refused:
        return None
    sentence = f"the clock was refused for {len(refused)} of {len(case.samples)} samples: {refused[0].reason}"
    return found("timer", "timer", sentence, samples=float(len(refused)), reason=refused[0].reason)


def _not_positive(case: Case) -> Finding | None:
    timed = [s for s in case.samples if s.status == "ok"]
    times = [t for s in timed for t in s.repetitions.seconds]
    bad = [t for t in times if not t > 0]
    if not bad:
        return None
    first = next(s for s in timed if any(not t > 0 for t in s.repetitions.seconds))
    sentence = (
        f"{len(bad)} of {len(times)} repetitions took {min(bad):g} s (the first: {first.point.kernel} "
        f"{first.point.precision.label} of round {first.round}), in a run whose other repetitions took "
        f"{duration(median([t for t in times if t > 0] or [0.0]))}: no work takes no time"
    )
    return found("timer", "timer", sentence, repetitions=float(len(bad)), least_seconds=float(min(bad)))


def _coarse(case: Case) -> Finding | None:
    """Times that are multiples of a tick, or one time for everything."""
    ties = total = 0
    ticks, times = [], []
    for sample in case.timed:
        seconds = sample.repetitions.seconds
        if len(seconds) < 3 or median(seconds) < LONG:
            continue
        distinct = sorted(set(seconds))
        ties, total = ties + len(seconds) - len(distinct), total + len(seconds) - 1
        times.append(median(seconds))
        ticks += [b - a for a, b in pairwise(distinct) if b - a > 1e-9 * b]
    if not total or ties < TIED * total:
        return None
    tick = min(ticks, default=0.0)
    if ticks and tick < COARSE * median(times):
        return None
    what = f"moves in steps of {duration(tick)}" if ticks else "tells one and the same time"
    sentence = (
        f"the clock {what}: {percent(ties / total)} of the repetitions took exactly as long as "
        f"another, at {duration(median(times))} each"
    )
    return found("timer", "timer", sentence, tied_share=ties / total, tick_seconds=tick)


def _fill(sample: Sample) -> float | None:
    """Time over distance of starts, the median within a sample; None where there is too little."""
    r = sample.repetitions
    if len(r.start) != len(r) or len(r) < 3 or median(r.seconds) < LONG or sample.point.family == "workload":
        return None
    pairs = [(s, b - a) for s, a, b in zip(r.seconds, r.start, r.start[1:], strict=False) if b > a]
    return median(s / apart for s, apart in pairs) if len(pairs) >= 2 else None


def _overlapping(case: Case) -> Finding | None:
    """The durations against the starts, and their sum against the time that passed for the caller."""
    fills = sorted(f for f in map(_fill, case.timed) if f)
    if len(fills) < 5:
        return None
    middle = median(fills)
    low, high = fills[len(fills) // 10], fills[-1 - len(fills) // 10]
    off = middle > OVERLAP or (middle < GAP and high / low < 1 + STEADY)
    if not off:
        return None
    how = "overlap" if middle > 1 else "leave out what lies between"
    sentence = (
        f"repetitions that follow each other {how}: by the timer one takes {middle:.2f} of the time until "
        f"the next begins, in {len(fills)} samples of all families alike ({low:.2f} to {high:.2f})"
    )
    return found("timer", "timer", sentence, time_over_distance=middle, samples=float(len(fills)))


def _longer_than_the_clock(case: Case) -> Finding | None:
    """Repetitions of a sample that together last longer than the host waited for the whole sample."""
    rows = [(sum(s.repetitions.seconds), float(s.facts.get("wall_seconds") or 0.0)) for s in case.timed]
    known = [(told, wall) for told, wall in rows if wall >= LONG]
    beyond = [told / wall for told, wall in known if told > WALL * wall]
    if len(beyond) < 5 or len(beyond) < SHARE * len(known):
        return None
    sentence = (
        f"in {len(beyond)} of {len(known)} samples the repetitions last longer than the host waited for the "
        f"whole sample, up to {max(beyond):.2f} times: the timer runs fast by at least that factor"
    )
    return found("timer", "timer", sentence, factor=max(beyond), samples=float(len(beyond)))


def _batches(sample: Sample) -> list[tuple[float, float]]:
    """(s by the timer, s by the host until the next begins) of the batches of a sample but for the last.

    The host says when a batch begins, the timer what follows in it: where both tell the same time a batch's
    end shows only as a pause, if at all.
    """
    r = sample.repetitions
    if len(r.start) != len(r) or len(r) < 3 or sample.point.family in ("workload", *UNTIED):
        return []
    ends = [a + s for a, s in zip(r.start, r.seconds, strict=True)]
    gaps = [abs(b - e) for b, e in zip(r.start[1:], ends, strict=False)]
    usual = median_low(gaps)  # of two, the one inside a batch
    cuts = [
        i + 1 for i, (gap, s) in enumerate(zip(gaps, r.seconds, strict=False)) if abs(gap - usual) > JUMP * s
    ]
    firsts = [0, *cuts]
    pairs = zip(firsts, cuts, strict=False)
    return [(ends[b - 1] - r.start[a], r.start[b] - r.start[a]) for a, b in pairs]


def _by_the_host(case: Case) -> Finding | None:
    """Batches that the host's clock finds longer or shorter by one factor, however long they last."""
    batches = sorted(pair for s in case.timed for pair in _batches(s) if pair[0] >= LONG)
    if len(batches) < 12:
        return None
    third = len(batches) // 3
    short, long = batches[:third], batches[-third:]
    off = [median(host / told - 1 for told, host in part) for part in (short, long)]
    lengths = [median(told for told, _ in part) for part in (short, long)]
    if min(map(abs, off)) < AWAY or off[0] * off[1] < 0 or lengths[1] < LONGER * lengths[0]:
        return None
    if abs(off[1] / off[0] - 1) > ALIKE:
        return None
    factor = 1 / (1 + median(off))
    sentence = (
        f"by the host's clock {len(batches)} batches of repetitions take {1 / factor:.2f} times what the "
        f"timer says, those of {duration(lengths[0])} as those of {duration(lengths[1])}, which no pause "
        f"does: the timer is off by {factor:.2f}"
    )
    return found("timer", "timer", sentence, factor=factor, batches=float(len(batches)))


def _factor(case: Case) -> Finding | None:
    """Arithmetic and memory off theory by one and the same factor: only time is common to them."""
    pi = [c.share_at_clock for c in case.peaks if c.precision.unit != "library" and c.share_at_clock]
    bus = [c.share_at_clock for c in case.memory if c.share_at_clock]
    if len(pi) < 2 or not bus:
        return None
    compute, memory = median(pi), max(bus)
    beyond = min(*pi, memory) > ABOVE or max(*pi, memory) < BELOW
    if not beyond or not agree(compute, memory, ONE_FACTOR) or shared(case):
        return None
    factor = (compute * memory) ** 0.5
    turns = ", or somebody whom no reading shows takes turns with us (time slicing)" if factor < 1 else ""
    sentence = (
        f"all rates are {factor:.2f} of theory alike (π {compute:.2f} at the clock held, β {memory:.2f} of "
        f"the memory bus): only the time is common to both, so the timer is off by about that factor{turns}"
    )
    return found("timer", "timer", sentence, factor=factor, pi_share=compute, beta_share=memory)


def _stream(case: Case) -> Finding | None:
    """Times that do not grow with the work: the events lie on another stream, or nobody waited."""
    pairs = [pair for samples in _loops(case).values() for pair in _unmoved(samples)]
    checked = sum(_spread(s) >= MORE_WORK for s in _loops(case).values())
    if not pairs or checked < 2 or len(pairs) < 0.8 * checked:
        return None
    few, many = max(pairs, key=lambda p: _amount(p[1]) / _amount(p[0]))
    times = [median(s.repetitions.seconds) for s in (few, many)]
    factor = _amount(many) / _amount(few)
    sentence = (
        f"{few.point.kernel} took {duration(times[1])} for {factor:.0f} times the work that took "
        f"{duration(times[0])}, and so in {len(pairs)} of {checked} loops: time does not depend on the work, "
        "so the end was recorded before it was done (another stream, or no synchronisation)"
    )
    return found("wrong-stream", "timing", sentence, work_factor=factor, time_factor=times[1] / times[0])


def _loops(case: Case) -> dict[object, list[Sample]]:
    """Samples by loop, whatever its size: those of the pilot as well."""
    groups: dict[object, list[Sample]] = {}
    for s in case.samples:
        if s.status == "ok" and s.repetitions.seconds and s.point.family not in ("workload", *UNTIED):
            p = s.point
            groups.setdefault((p.kernel, p.precision, p.level, p.store, p.threads), []).append(s)
    return groups


def _amount(sample: Sample) -> float:
    return sample.flops or sample.bytes


def _spread(samples: Sequence[Sample]) -> float:
    amounts = [a for a in map(_amount, samples) if a > 0]
    return max(amounts) / min(amounts) if amounts else 1.0


def _unmoved(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Least and most work of a loop, where neither rate nor bytes can be what made the times agree."""
    known = [s for s in samples if _amount(s) > 0]
    if not known or _spread(known) < MORE_WORK:
        return []
    few, many = min(known, key=_amount), max(known, key=_amount)
    moved = few.bytes and many.bytes and many.bytes / few.bytes < MORE_WORK
    times = median(many.repetitions.seconds) / max(median(few.repetitions.seconds), 1e-12)
    return [(few, many)] if times < SAME_TIME and not moved else []
