"""Checks of the conditions of a peak: clock, power and throttling, sizes of arrays, length of repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, takewhile
from statistics import median
from typing import Any

from bench.fitting.evidence import Evidence
from bench.fitting.pooled import Pooled
from bench.fitting.working_sets import EXCEEDS, FITS, last_level_bytes, lies_inside, room
from bench.planning.sizes import EACH, TOGETHER
from bench.profile.records import Ceiling
from bench.profile.verdict import fails, ok, untested
from bench.report.units import capacity, duration, number, percent, si

POSSIBLE = 1.02
"""Share of what the units can do at the clock held up to which a rate is possible: clocks are read as means
over the window, and 1 to 2 % is what those readings are worth."""

OF_RUN = 0.85
"""Share of the highest clock of the run from which a clock is one of a peak; dense products may run below it
at the power limit, which the driver then says."""

OF_DEVICE = 0.7
"""The same of the clock that the device is rated for: boards name a highest clock that no load reaches."""

RATED = ("clock_hz", "max_sm_clock_hz", "max_clock_hz")
"""Facts of a device that are its rated clock, in Hz."""

MEMORY_CLOCK = 0.95
"""Share of the highest memory clock, which does not vary under load, below which it was lowered."""

THROTTLED = 0.1
"""Share of the repetitions held back for a reason that no healthy device at its peak has."""

UNHEALTHY = ("sw_thermal", "hw_thermal", "thermal", "hw_slowdown", "power_brake")
POWER_CAP = "sw_power_cap"
"""Reasons of a low clock in telemetry's words: heat and emergencies; the limit that dense work reaches."""

SHORTEST = {"native": 5e-4, "host": 1e-3, "event": 20e-3}
"""Seconds that a repetition must last by clock source. Inside native code a reading costs 50 ns and lining up
threads some us, of a call through Python about 10 us: 1 % or less. Events of a GPU are exact to 0.5 us, but
the gaps between launches vanish only in batches of 20 ms, over which its clock readings are means as well."""

ONE_LAUNCH = 1e-3
"""The same of working sets on a GPU: a repetition is one launch with nothing between, and 4 us begin it."""

COARSE = 0.002
"""Share of a repetition that the steps of its clock may have."""

FEW_VALUES = 0.5
"""Share of the repetitions that differ in time: of a clock that is fine enough nearly all do."""

ENOUGH = 8
"""Repetitions from which that can be said."""

FASTER, IN_A_ROW = 1.25, 3
"""Factor over all that DRAM may give from which a working set is read from a cache, and so many neighbours in
size that must be: one alone may have had a better moment than the streams."""

HOST_BOUND = 0.05
"""Share of the samples that may have waited for the host to queue launches."""


def power_and_clock(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether rate, clock, power and throttling are those of a peak."""
    share, clock, power = ceiling.share_at_clock, ceiling.clock_hz, _power(best)
    told = [f"{number(share)} of what its units can do"] if share is not None else []
    if share is not None and share > POSSIBLE:
        where = "" if ceiling.level == "DRAM" else " at the clock held"
        return fails(f"{told[0]}{where}: the clock, the timer or the count of the work is wrong")
    if why := _held_back(best):
        return fails(why)
    if why := _memory_clock(ceiling, best, evidence):
        return fails(why)
    if clock is not None:
        low, said = _clock(ceiling, clock, best, evidence)
        if low:
            return fails(said)
        told.append(said)
    told += [f"{si(power, 'W')}"] if power else []
    if not told:
        return untested("this device tells neither its clock nor its power while it runs")
    return ok(", ".join(told))


def _power(best: Pooled) -> float | None:
    seen = [w for s in best.samples for w in s.repetitions.power_w if w > 0]
    return median(seen) if seen else None


def _reasons(best: Pooled) -> tuple[Counter[str], int]:
    """How many repetitions name each reason of a low clock, out of how many that were watched."""
    rows = [row for s in best.samples for row in s.repetitions.throttle]
    return Counter(word for row in rows for word in set(row.split(",")) if word), len(rows)


def _held_back(best: Pooled) -> str:
    """Heat or an emergency that held the clock back, in words."""
    found, watched = _reasons(best)
    for word in UNHEALTHY:
        if found[word] > THROTTLED * watched:
            return f"{word.replace('_', ' ')} held the clock back in {percent(found[word] / watched)} of it"
    return ""


def _memory_clock(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """A memory clock below the device's highest, in words."""
    highest = evidence.device.get("facts", {}).get("max_memory_clock_hz")
    seen = [float(s.facts["memory_clock_hz"]) for s in best.samples if s.facts.get("memory_clock_hz")]
    if ceiling.level != "DRAM" or not highest or not seen or median(seen) >= MEMORY_CLOCK * highest:
        return ""
    return f"the memory clock is {si(median(seen), 'Hz')}, its highest is {si(float(highest), 'Hz')}"


def _clock(ceiling: Ceiling, clock: float, best: Pooled, evidence: Evidence) -> tuple[bool, str]:
    """Whether the clock is too low for a peak, and what it is."""
    highest = max(c.clock_hz for c in evidence.ceilings if c.clock_hz)
    facts = evidence.device.get("facts", {})
    rated = max((float(facts[name]) for name in RATED if facts.get(name)), default=0.0)
    found, watched = _reasons(best)
    capped = bool(watched) and found[POWER_CAP] > THROTTLED * watched
    said = f"{si(clock, 'Hz')}, {number(clock / highest)} of the highest of this run"
    said += f" and {number(clock / rated)} of {si(rated, 'Hz')}" if rated else ""
    said += " at the power limit" if capped else ""
    excused = capped or ceiling.regime == "sustained" or ceiling.level == "DRAM"
    low = clock < OF_RUN * highest or clock < OF_DEVICE * rated
    return low and not excused, said


def array_size(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether the arrays of a bandwidth lie where they should; "" of a pi."""
    if ceiling.quantity != "beta":
        return ""
    if best.point.family == "cache":
        return _set_size(ceiling, best, evidence)
    return _stream_size(ceiling, best, evidence)


def _set_size(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    ends, size = room(evidence.device, best.point), best.point.sizes["bytes"]
    if ends is None:
        return untested(f"this device does not tell how much {ceiling.level} holds")
    below = f", {capacity(ends[0])} are below it" if ends[0] else ""
    unit = evidence.device.get("facts", {}).get("unit", "thread")
    said = f"{capacity(size)} a {unit} in {ceiling.level} of {capacity(ends[1])}{below}"
    if lies_inside(size, ends):
        return ok(said)
    return fails(f"{said}: {EXCEEDS:g} times what is below to {FITS:g} of its own are surely in it alone")


def _stream_size(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    cache, each = last_level_bytes(evidence.device), _least_array(best)
    arrays = ARRAYS.get(best.point.kernel, 1)
    if not cache or not each:
        return untested("this device tells of no cache to compare with")
    said = f"{arrays} x {capacity(each)} against {capacity(cache)} of cache"
    if each < EACH * cache or arrays * each < TOGETHER * cache:
        return fails(f"{said}: {EACH} times each and {TOGETHER} times together are needed")
    if inner := _as_fast_as_cache(ceiling, evidence):
        return fails(f"{said}, but as fast as {inner.level} with {si(inner.estimate.value, inner.unit)}")
    held = _held_beyond(ceiling, evidence)
    if each < EACH * held or arrays * each < TOGETHER * held:
        why = "a larger cache than the system reports holds part of them"
        return fails(f"{said}, but sets up to {capacity(held)} are read over {FASTER:g} times as fast: {why}")
    return ok(said)


def _held_beyond(ceiling: Ceiling, evidence: Evidence) -> float:
    """Bytes of the largest set behind all reported caches that is surely read from one all the same, else 0.

    Virtual machines are often told of a smaller cache than there is.
    """
    dram = evidence.memory(ceiling, "read")
    if dram is None or _is_gpu(evidence):
        return 0.0
    limit = FASTER * (dram.estimate.high or dram.estimate.value)
    behind = EACH * last_level_bytes(evidence.device)
    swept = evidence.working_sets(ceiling, "cache-read")
    fast = list(takewhile(lambda size: swept[size] > limit, sorted(s for s in swept if s >= behind)))
    return float(fast[-1]) if len(fast) >= IN_A_ROW else 0.0


ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
"""Arrays that a stream walks, where it is more than one."""


def _least_array(best: Pooled) -> int:
    """Bytes of each array."""
    return min((int(s.point.sizes.get("bytes", 0)) for s in best.samples), default=0)


def _as_fast_as_cache(ceiling: Ceiling, evidence: Evidence) -> Ceiling | None:
    """The last cache level's beta of the same access and threads, where DRAM is not slower than it."""
    caches = evidence.device.get("caches", ())
    last = str(caches[-1]["level"]) if caches else ""
    for c in evidence.ceilings:
        same = (c.access, c.scope, c.threads) == (ceiling.access, ceiling.scope, ceiling.threads)
        fast = (ceiling.estimate.low or 0.0) > (c.estimate.high or c.estimate.value)
        if same and c.level == last and fast:
            return c
    return None


def window(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether repetitions are long against the steps of their clock and the overhead of starting one."""
    seconds = [s for sample in best.samples for s in sample.repetitions.seconds if s > 0]
    source = best.samples[0].clock_source
    gpu = source == "event" or _is_gpu(evidence)
    least = SHORTEST.get(source, SHORTEST["event" if gpu else "native"])
    least = ONE_LAUNCH if gpu and best.point.family == "cache" else least
    length = median(seconds)
    said = f"repetitions of {duration(length)} on the {source} clock"
    if length < least:
        return fails(f"{said}: {duration(least)} is the least")
    if step := _coarse(best):
        return fails(f"{said}, which moves in steps of {duration(step)}")
    bound = sum(bool(s.facts.get("host_bound")) for s in best.samples)
    if bound > HOST_BOUND * len(best.samples):
        return fails(f"{said}: the host was too slow to queue {bound} of {len(best.samples)} samples")
    return ok(f"{said}, {duration(least)} is the least")


def _is_gpu(evidence: Evidence) -> bool:
    facts: Any = evidence.device.get("facts", {})
    return bool(facts.get("unit") == "SM")


def _coarse(best: Pooled) -> float:
    """The step of a clock so coarse that repetitions repeat its few values, 0 of any other."""
    for sample in best.samples:
        seconds: Sequence[float] = sample.repetitions.seconds
        values = sorted(set(seconds))
        step = min((b - a for a, b in pairwise(values)), default=0.0)
        few = len(seconds) >= ENOUGH and len(values) <= FEW_VALUES * len(seconds)
        if few and step > COARSE * median(seconds):
            return step
    return 0.0
