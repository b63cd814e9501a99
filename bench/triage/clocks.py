"""What the clock did: fell at one time in the run, lay low from the start, or was held down by a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench import reference
from bench.errors import FileError
from bench.profile.records import Sample
from bench.report.units import duration, percent, si
from bench.triage.case import COMPUTE, Case, sample_rate, start
from bench.triage.finding import Finding, found

FELL = 0.97
"""Clock over its highest at the same point below which it fell: dithering of boards stays within 3 %."""

ONE_TIME = 0.05
"""Share of repetitions on the wrong side of a moment up to which the clock fell at that moment."""

FOLLOWED = 0.4
"""Share of the clock's fall that arithmetic must follow for the clock to be the cause."""

WITNESSES, FEWEST = 0.6, 5
"""Share of the points measured on both sides that must see the fall, and the least low repetitions."""

STUCK = {"stated": 0.95, "datasheet": 0.90, "highest": 0.80}
"""Clock over the one the device states as its own, its datasheet counts, or it can reach at most, below which
it is stuck: boards under load hold 0.85 to 1 of the last, and at a light load some point shows it."""

STILL = 1.03
"""Highest over lowest clock of all points within which it did not move."""

HELD = 0.10
"""Share of repetitions with a reason from which on that limit ruled the run."""

AT_LIMIT = 0.97
"""Power over its limit from which on it is at it."""

POWER = ("power_cap", "power_brake", "power")
THERMAL = ("thermal",)
"""Parts of the words that drivers give as reasons."""


@dataclass(frozen=True)
class Fall:
    """Repetitions of points that saw the clock at two heights: from `since` s on, or until `until` s."""

    since: float
    until: float | None
    high: float
    low: float
    share: float


def clock(case: Case) -> list[Finding]:
    """At most one finding: a fall at one time, else a limit, else a clock that lay low all along."""
    for hypothesis in (throttling, capped, stuck):
        if one := hypothesis(case):
            return [one]
    return []


def _clocks(samples: Sequence[Sample]) -> dict[str, list[tuple[float, float, Sample]]]:
    """(start, clock, sample) of every repetition with a clock, by point."""
    groups: dict[str, list[tuple[float, float, Sample]]] = {}
    for s in samples:
        r = s.repetitions
        if len(r.clock_hz) == len(r) == len(r.start):
            groups.setdefault(s.point.key, []).extend(
                (b, hz, s) for b, hz in zip(r.start, r.clock_hz, strict=True) if hz > 0
            )
    return groups


def throttling(case: Case) -> Finding | None:
    """The clock fell at one time in the run, at every point, and the arithmetic with it."""
    fall = _fall(case)
    if fall is None:
        return None
    rates = _followed(case, fall)
    if rates is None or 1 - rates[1] / rates[0] < FOLLOWED * (1 - fall.low / fall.high):
        return None
    when = (
        f"from {duration(fall.since)} into the run on"
        if fall.until is None
        else (f"between {duration(fall.since)} and {duration(fall.until)} into the run")
    )
    reasons = sorted(
        {word for s in case.timed for t in s.repetitions.throttle for word in t.split(",") if word}
    )
    said = f"; the driver says {', '.join(reasons)}" if reasons else ""
    warm = max((t for s in case.timed for t in s.repetitions.temperature_c), default=0.0)
    heat = f"; {warm:.0f} °C at most" if warm else ""
    sentence = (
        f"{when} the clock fell from {si(fall.high, 'Hz')} to {si(fall.low, 'Hz')} "
        f"({percent(1 - fall.low / fall.high)}) and the arithmetic by "
        f"{percent(1 - rates[1] / rates[0])}{heat}{said}"
    )
    return found(
        "throttling",
        "clock",
        sentence,
        since_seconds=fall.since,
        clock_before_hz=fall.high,
        clock_after_hz=fall.low,
        rate_ratio=rates[1] / rates[0],
        reasons=", ".join(reasons),
    )


def _fall(case: Case) -> Fall | None:
    """The moment that parts high clocks from low ones, or the span of low ones in between."""
    samples = [s for s in case.samples if s.status == "ok" and s.regime in ("typical", "pilot")]
    groups = [sorted(g, key=lambda r: r[0]) for g in _clocks(samples).values()]
    rows: list[tuple[float, bool, float]] = []
    for group in groups:
        limit = FELL * max(hz for _, hz, _ in group)
        if any(hz < limit for _, hz, _ in group):
            rows += [(b, hz < limit, hz) for b, hz, _ in group]
    rows.sort(key=lambda r: r[0])
    low = [i for i, row in enumerate(rows) if row[1]]
    if len(low) < FEWEST or len(low) == len(rows):
        return None
    began = min(start(s) for s in samples)
    first, last = low[0], low[-1]
    inside = last - first + 1
    if inside - len(low) > ONE_TIME * len(rows) and not _mostly(rows, first, last):
        return None
    high = median(hz for _, is_low, hz in rows if not is_low)
    told = [g for g in groups if max(hz for _, hz, _ in g) >= FELL * high]  # others came after it
    if not _witnessed(told, rows[first][0], rows[last][0]):
        return None
    depth = median(hz for _, is_low, hz in rows if is_low)
    ended = last < len(rows) - 1 - ONE_TIME * len(rows)
    until = rows[last][0] - began if ended else None
    return Fall(rows[first][0] - began, until, high, depth, len(low) / len(rows))


def _mostly(rows: Sequence[tuple[float, bool, float]], first: int, last: int) -> bool:
    inside = rows[first : last + 1]
    return sum(not is_low for _, is_low, _ in inside) <= ONE_TIME * len(inside)


def _witnessed(groups: Sequence[Sequence[tuple[float, float, Sample]]], since: float, until: float) -> bool:
    """Whether most points measured inside the span and outside it saw the clock lower inside."""
    seen = told = 0
    for group in groups:
        inside = [hz for b, hz, _ in group if since <= b <= until]
        outside = [hz for b, hz, _ in group if not since <= b <= until]
        if inside and outside:
            seen += 1
            told += median(inside) < FELL * median(outside)
    return seen > 0 and told >= WITNESSES * seen


def _followed(case: Case, fall: Fall) -> tuple[float, float] | None:
    """Rates of the arithmetic outside and inside the fall, over its own outside; None without both."""
    ratios: list[float] = []
    groups: dict[str, list[Sample]] = {}
    for s in (*case.piloted, *case.timed):
        groups.setdefault(s.point.key, []).append(s)
    for samples in groups.values():
        if samples[0].point.family not in (*COMPUTE, "mix"):
            continue
        parts: tuple[list[float], list[float]] = ([], [])
        for s in samples:
            clocks = s.repetitions.clock_hz
            if clocks:
                parts[median(clocks) < (fall.low + fall.high) / 2].append(sample_rate(s))
        if parts[0] and parts[1]:
            ratios.append(median(parts[1]) / median(parts[0]))
    ratios.sort()
    return (1.0, median(ratios[: max(1, len(ratios) // 2)])) if ratios else None


def nominal(case: Case) -> tuple[str, float] | None:
    """Which clock the device should hold (kind of the figure, Hz): its own, its datasheet's, its highest."""
    if stated := case.facts.get("clock_hz"):
        return "stated", float(stated)
    try:
        match = reference.of_device(case.device)
        rows = reference.known().of(match.device) if match.device else ()
    except FileError:
        rows = ()
    clocks = [f.value for f in rows if f.quantity == "clock" and "boost" in f.precision_or_level]
    if clocks:
        return "datasheet", min(clocks)
    names = ("max_sm_clock_hz", "least_max_clock_hz", "max_clock_hz")
    highest = next((case.facts[name] for name in names if case.facts.get(name)), None)
    return ("highest", float(highest)) if highest else None


def held(case: Case) -> list[float]:
    """Median clock (Hz) of every timed sample that has one."""
    return [median(s.repetitions.clock_hz) for s in case.timed if any(s.repetitions.clock_hz)]


def stuck(case: Case) -> Finding | None:
    """One low clock at every load from the first sample to the last, and no limit that explains it."""
    clocks, should = held(case), nominal(case)
    if len(clocks) < FEWEST or should is None:
        return None
    kind, hz = should
    top = max(clocks)
    if top >= STUCK[kind] * hz or top > STILL * min(clocks):
        return None
    turbo = "; turbo is switched off" if _is_turbo_off(case) else ""
    sentence = (
        f"the clock stood at {si(median(clocks), 'Hz')} in all {len(clocks)} samples, "
        f"{percent(median(clocks) / hz)} of {_KINDS[kind]} of {si(hz, 'Hz')}, at light loads as at heavy "
        f"ones and with no limit reached{turbo}"
    )
    return found(
        "stuck-clock", "clock", sentence, clock_hz=median(clocks), nominal_hz=hz, share=median(clocks) / hz
    )


def _is_turbo_off(case: Case) -> bool:
    return any(c.get("values", {}).get("turbo") is False for c in case.profile.conditions)


_KINDS = {
    "stated": "the device's own",
    "datasheet": "the datasheet's clock",
    "highest": "the highest that the device names",
}


def capped(case: Case) -> Finding | None:
    """Power or heat held the clock down for a good part of the run: by the driver's word or the power."""
    words = [t for s in case.timed for t in s.repetitions.throttle]
    clocks, should = held(case), nominal(case)
    if not words or not clocks or should is None or median(clocks) >= FELL * should[1]:
        return None
    shares = {
        "power-cap": sum(any(w in t for w in POWER) for t in words) / len(words),
        "thermal-cap": sum(any(w in t for w in THERMAL) for t in words) / len(words),
    }
    limit, power = case.facts.get("power_limit_w"), _median(case, "power_w")
    if limit and power >= AT_LIMIT * float(limit):
        shares["power-cap"] = 1.0
    cause, share = max(shares.items(), key=lambda pair: pair[1])
    if share < HELD:
        return None
    warm, low = _median(case, "temperature_c"), min(clocks)
    sentence = (
        f"{'power' if cause == 'power-cap' else 'heat'} held the clock at {si(low, 'Hz')} to "
        f"{si(max(clocks), 'Hz')} of {si(should[1], 'Hz')}, in {percent(share)} of the repetitions"
        + (f", at {power:.0f} W" if power else "")
        + (f" of {float(limit):.0f} W" if limit and power else "")
        + (f" and {warm:.0f} °C" if warm else "")
    )
    return found(
        cause, "clock", sentence, share=share, power_w=power, temperature_c=warm, clock_hz=median(clocks)
    )


def _median(case: Case, field: str) -> float:
    values = [v for s in case.timed for v in getattr(s.repetitions, field)]
    return float(median(values)) if values else 0.0
