"""Who else was there: other work on the device, a slice of it, or another device than the one named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from bench import reference
from bench.errors import FileError
from bench.fitting.normal import datasheet
from bench.fitting.pooled import work
from bench.profile.records import Ceiling, Sample
from bench.reference import Reference
from bench.report.units import duration, percent, si
from bench.triage.case import COMPUTE, Case
from bench.triage.finding import Finding, found

LEAST, SIGMAS = 0.06, 5.0
"""A repetition is slow by this share below the point's upper quartile, and by so many times the spread of the
point's upper half, which a neighbour leaves as it is: 10 % at 2 % noise, where rounds differ by 3 %."""

OFTEN = 0.03
"""Share of slow or disturbed repetitions from which on somebody else was there."""

SAME_CLOCK = 0.97
"""A repetition at a lower clock than this share is slow by its clock, not by a neighbour."""

NINETIETH = 1.2816
"""Standard deviations between the median and the 90th percentile."""

OTHER_WORK = 2.0
"""Factor in the work of a repetition from which on two of one point are not compared."""

FEWEST = 10
"""Repetitions of a point below which it has no usual rate."""

IDLE, AT_WORK = 1.15, 0.5
"""Power under load over that before the rounds up to which the board that was read did no work; and the share
of its limit from which on it was at work before them, for somebody else."""

BUSY = 0.5
"""Share of the time before a round that the device was in use from which on somebody else used it."""

LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""byte/s of a PCIe lane one way by generation, less its encoding."""

LANES, FILLED = 16, 0.6
"""Lanes of the widest slot, and the share of a link from which on the link binds: what the host adds to
copies from pageable memory then hides behind it, as on few lanes."""

HIGH, LOW, FITS = 1.05, 0.75, (0.75, 1.02)
"""Shares of the datasheet: impossible, far below, and what another device's figures must all give."""


def neighbours(case: Case, clock_fell: bool) -> Finding | None:
    """Repetitions that lost their CPU, or are slow at the full clock, here and there over the whole run."""
    reps = len(case.repetitions)
    if not reps:
        return None
    disturbed = sum(not ok for s in case.timed for ok in s.repetitions.clean) / reps
    if disturbed >= OFTEN and (stopped := _stopped(case)):
        return _by_quota(case, disturbed, stopped)
    slow, depth = (0.0, 0.0) if clock_fell else _slow(case)
    processes = max((*case.conditions("processes"), *case.conditions("busy_processes")), default=0.0)
    steal, in_use = max(case.conditions("steal_share"), default=0.0), _in_use(case)
    if max(disturbed, slow) < OFTEN and in_use < BUSY and not (processes and max(disturbed, slow) > 0):
        return None
    same = ", at the same clock" if any(hz for _, _, hz, _ in case.repetitions) else ""
    parts = [
        f"{percent(disturbed)} of {reps} repetitions lost their CPU for more than 2 % of their time"
        * (disturbed > 0),
        f"{percent(slow)} ran {percent(depth)} slower than the same point does otherwise{same}" * (slow > 0),
        f"{processes:.0f} other process{'es were' if processes > 1 else ' was'} at work" * (processes > 0),
        f"{percent(steal)} of the CPU time was stolen" * (steal > 0),
        f"it was in use for {percent(in_use)} of the time before the first round" * (in_use >= BUSY),
    ]
    sentence = f"somebody else used the device: {', '.join(filter(None, parts))}"
    evidence = {"disturbed_share": disturbed, "slow_share": slow, "slowdown": depth, "processes": processes}
    return found("noisy-neighbour", "repetitions", sentence, **evidence, steal_share=steal)


def shared(case: Case) -> bool:
    """Whether somebody else is at work on the device, by its processes or by its use before the rounds."""
    return max(case.conditions("processes"), default=0.0) > 0 or _in_use(case) >= BUSY


def _in_use(case: Case) -> float:
    """Share of the time before the first round that the device was in use, 0 where it does not tell.

    Before later rounds the device still shows the one that has just ended.
    """
    return next(iter(case.conditions("utilisation")), 0.0)


def _stopped(case: Case) -> float:
    """Seconds that the quota of the container stopped its threads, 0 where that is too little to matter."""
    told = case.conditions("throttled_seconds")
    stopped = max(told) - min(told) if told else 0.0
    worked = sum(seconds * s.point.threads for _, seconds, _, s in case.repetitions)
    return stopped if stopped >= OFTEN * worked else 0.0


def _by_quota(case: Case, disturbed: float, stopped: float) -> Finding:
    quota = case.facts.get("cpu_quota")
    of = f" of {float(quota):g} CPUs" if quota else ""
    sentence = (
        f"the container's CPU quota{of} stopped this run for {duration(stopped)} of its threads' time: "
        f"{percent(disturbed)} of {len(case.repetitions)} repetitions lost their CPU for over 2 % of theirs"
    )
    evidence = {"disturbed_share": disturbed, "stopped_seconds": stopped}
    return found("cpu-quota", "repetitions", sentence, **evidence, quota=float(quota or 0.0))


def _slow(case: Case) -> tuple[float, float]:
    """Share of slow repetitions at an unchanged clock, and how much slower they are in the median."""
    slow, total, depths = 0, 0, []
    for samples in (alike for point in case.points.values() for alike in _alike(point)):
        rows = [row for s in samples for row in _rows(s)]
        if len(rows) < FEWEST:
            continue
        rates = sorted(rate for rate, _ in rows)
        usual, middle, fast = (rates[len(rows) * k // 20] for k in (15, 10, 18))
        limit = usual * (1 - max(LEAST, SIGMAS * (fast / middle - 1) / NINETIETH))
        clock = max(hz for _, hz in rows)
        total += len(rows)
        for rate, hz in rows:
            if rate < limit and not hz < SAME_CLOCK * clock:
                slow += 1
                depths.append(1 - rate / usual)
    return (slow / total, median(depths)) if slow else (0.0, 0.0)


def _alike(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples of one point parted where their work differs by a factor: T0 alone makes short ones slow."""
    ordered = sorted(samples, key=_work)
    parts = [ordered[:1]]
    for last, sample in pairwise(ordered):
        if _work(sample) > OTHER_WORK * _work(last):
            parts.append([])
        parts[-1].append(sample)
    return parts


def _work(sample: Sample) -> float:
    return work(sample) or sample.bytes or 1.0


def _rows(sample: Sample) -> list[tuple[float, float]]:
    """(rate, clock or 0) of every positive repetition."""
    r = sample.repetitions
    amount = _work(sample)
    clocks = r.clock_hz if len(r.clock_hz) == len(r) else (0.0,) * len(r)
    return [(amount / s, hz) for s, hz in zip(r.seconds, clocks, strict=True) if s > 0]


def wrong_device(case: Case) -> Finding | None:
    """Telemetry of a board that does nothing while ours works, or numbers that are another device's."""
    return _idle_board(case) or _another(case)


def _idle_board(case: Case) -> Finding | None:
    idle = case.conditions("power_w")
    load = [
        median(s.repetitions.power_w)
        for s in case.timed
        if s.point.family in COMPUTE and s.repetitions.power_w
    ]
    limit = float(case.facts.get("power_limit_w") or 0.0)
    if not idle or len(load) < 3 or max(load) > IDLE * min(idle):
        return None  # the least: right behind a round the board has not come to rest
    if shared(case) or (limit and min(idle) >= AT_WORK * limit):
        return None
    sentence = (
        f"the board whose clock and power are read drew {max(load):.0f} W under full load, as before the "
        f"rounds ({min(idle):.0f} W): another one did the work"
    )
    return found("wrong-device", "telemetry", sentence, load_w=max(load), idle_w=min(idle))


def _another(case: Case) -> Finding | None:
    """Shares of this device's datasheet that cannot be or are far below, all explained by another's."""
    try:
        tables = reference.known()
    except FileError:
        return None
    own = reference.of_device(case.device, tables).device
    ceilings = [c for c in (*case.peaks, *case.memory) if c.precision.unit != "library"]
    if not own:
        return None
    shares = _shares(ceilings, own, tables)
    off = [v for v in shares.values() if v > HIGH]
    if len(shares) < 3 or not (off or max(shares.values()) < LOW):
        return None
    for other in tables.devices:
        theirs = _shares(ceilings, other, tables)
        whole = set(theirs) >= set(shares) and "bandwidth" in theirs
        if other != own and whole and all(FITS[0] <= v <= FITS[1] for v in theirs.values()):
            told = ", ".join(
                f"{k} {percent(v)} in place of {percent(shares[k])}" for k, v in theirs.items() if k in shares
            )
            sentence = f"the rates are those of a {other}, not of a {own}: of its datasheet they are {told}"
            return found("wrong-device", own, sentence, device=other, named=own)
    return None


def _shares(ceilings: Sequence[Ceiling], device: str, tables: Reference) -> dict[str, float]:
    """Best share of a device's datasheet, by precision and for its bandwidth."""
    figures, best = tables.of(device), dict[str, float]()
    for c in ceilings:
        if sheet := datasheet(c, figures):
            key = c.precision.label if c.quantity == "pi" else "bandwidth"
            best[key] = max(best.get(key, 0.0), c.estimate.value / sheet.value)
    return best


def partition(case: Case) -> str:
    """In words, which slice of a device this is; "" for a whole one."""
    mig: Mapping[str, Any] = case.facts.get("mig") or {}
    if mig:
        sms = mig.get("sms", case.device.get("threads"))
        return f"slice {mig.get('profile', 'of unknown profile')} with {sms} SMs"
    try:
        why = reference.of_device(case.device).why
    except FileError:
        return ""
    return why if "SMs are usable" in why else ""


def pageable(case: Case) -> Finding | None:
    """A host link on which pinned buffers are no faster than pageable ones: they are not pinned."""
    links = [c for c in case.ceilings if c.quantity == "beta" and c.level == "host link"]
    for access in dict.fromkeys(c.access for c in links):
        by = {c.kernel: c for c in links if c.access == access}
        pinned, plain = by.get("copy-pinned"), by.get("copy-pageable")
        if not pinned or not plain or case.facts.get("integrated") or _fills(case, pinned):
            continue
        if pinned.estimate.value <= 1.1 * plain.estimate.value:
            sentence = (
                f"copies {access} from pinned memory reach {si(pinned.estimate.value, 'byte/s')}, from "
                f"pageable memory {si(plain.estimate.value, 'byte/s')}: alike, so the buffers are not pinned"
            )
            return found(
                "pageable-memory",
                f"host link {access}",
                sentence,
                pinned=pinned.estimate.value,
                pageable=plain.estimate.value,
            )
    return None


def _fills(case: Case, c: Ceiling) -> bool:
    """Whether copies fill their PCIe link, or cross no PCIe at all: pinned or not then makes no odds."""
    if c.estimate.value > LANES * max(LANE.values()):
        return True  # one address space, as of GH200
    told = [s.facts for s in case.timed if (s.point.kernel, s.point.level) == (c.kernel, c.level)]
    links = [LANE.get(f.get("pcie_generation", 0), 0.0) * f.get("pcie_width", 0) for f in told]
    return 0 < max(links, default=0.0) <= c.estimate.value / FILLED
