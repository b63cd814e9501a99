"""Why a bandwidth is higher than its memory can give, or far below: cache, memory clock, wrong count."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from bench.profile.records import Ceiling
from bench.report.units import capacity, counted, percent, si
from bench.triage.case import Case, agree, clean_low
from bench.triage.counting import bytes_counted
from bench.triage.finding import Finding, Number, about, found, name, unexplained
from bench.triage.siblings import RESIDENT, swept_end

ABOVE_BUS = 1.02
"""Share of the memory bus beyond which DRAM cannot be what answered: the highest published is 1.00."""

LOW_BUS = 0.80
"""Best share of the bus below which something is wrong: whole boards are published at 0.83 to 1.00 with their
best access, but for boards whose memory clock can be read, where it decides."""

ABOVE_FIT = 1.30
"""Stream over the beta of the fitted sweep of the same traffic: real machines have them within 1.2."""

LIKE_CACHE = 0.85
"""DRAM over last-level cache of the same access: caches are 1.5 and more times faster, where measured."""

ENOUGH_CACHES = 2.0
"""Arrays over last-level cache below which part of them stays there from one pass to the next."""

TWICE = 1.8
"""One access over the median of the others: reads, writes and copies of one memory differ by up to 1.5."""

SIMPLE = (4 / 3, 1.5, 2.0, 3.0)
NEAR = 0.12
"""Ratios of stream counts, and how near one must be: the accesses themselves differ by about as much."""

LOWERED = 0.97
"""Memory clock over its highest below which it is lowered."""

NARROW = 0.6
"""Best share of the bus that no working probe stays below."""


def bandwidths(case: Case, explained: Collection[str] = ()) -> list[Finding]:
    """Every DRAM beta that cannot be, or is far below, with its cause.

    explained: kernels whose bytes are known to be miscounted
    """
    left = [c for c in case.memory if c.kernel not in explained]
    high = [(c, n) for c in left if (n := _too_high(case, c))]
    told = [_explained(case, c, n, [c.kernel for c, _ in high]) for c, n in high]
    return told or _low(case, left)


def _too_high(case: Case, c: Ceiling) -> Number | None:
    """The bound that a beta breaks, if it breaks one: the bus, the cache, the sweep, its own siblings."""
    if c.share_at_clock is not None:  # where theory is known it decides
        return _over_bus(c)
    return _over_fit(case, c) or _over_others(case, c) or _like_cache(case, c)


def _over_bus(c: Ceiling) -> Number | None:
    share = c.share_at_clock
    if not share or share * clean_low(c) / c.estimate.value < ABOVE_BUS:
        return None
    return Number(name(c), c.estimate.value, c.estimate.value / share, c.unit, "the memory bus")


def _like_cache(case: Case, c: Ceiling) -> Number | None:
    """Reads only: what stores cost in a cache and in DRAM differs too much from machine to machine.

    Working sets far beyond the cache that read as fast say that it is the cache's figure which is DRAM's: on
    a virtual machine little of a shared cache may be ours.
    """
    cache = _cache(case, c) if c.access == "read" else None
    if cache is None or c.estimate.value < LIKE_CACHE * cache.estimate.value:
        return None
    if (end := swept_end(case, "read")) and agree(c.estimate.value, end, RESIDENT - 1):
        return None
    return Number(name(c), c.estimate.value, cache.estimate.value, c.unit, f"the {cache.level}")


def _cache(case: Case, c: Ceiling) -> Ceiling | None:
    """The last-level cache's beta of the same access, or None."""
    same = [k for k in case.ceilings if k.quantity == "beta" and k.level == case.last_level]
    fits = [k for k in same if k.access == c.access and k.threads == c.threads]
    return max(fits, key=lambda k: k.estimate.value) if fits else None


def _over_fit(case: Case, c: Ceiling) -> Number | None:
    mode = {"read": "read-only", "update": "in-place"}.get(c.kernel)
    fit = case.fit(mode) if mode else None
    if fit is None or fit.beta.high is None or clean_low(c) < ABOVE_FIT * fit.beta.value:
        return None
    return Number(name(c), c.estimate.value, fit.beta.value, c.unit, "the β of the fitted sweep")


def _others(case: Case, c: Ceiling) -> float | None:
    """Median of the other kernels' bytes a second, write-allocate traffic included."""
    values = [k.estimate.value * (1 + k.hidden_traffic) for k in case.memory if k.kernel != c.kernel]
    return median(values) if len(values) >= 2 else None


def _over_others(case: Case, c: Ceiling) -> Number | None:
    usual, moved = _others(case, c), clean_low(c) * (1 + c.hidden_traffic)
    if usual is None or moved < TWICE * usual:
        return None
    return Number(
        name(c), c.estimate.value * (1 + c.hidden_traffic), usual, c.unit, "the other accesses' median"
    )


def _explained(case: Case, c: Ceiling, number: Number, high: Sequence[str]) -> Finding:
    """The hypotheses in turn."""
    small = _fits_cache(case, c, number)
    if isinstance(small, Finding):
        return small
    counted = _one_alone(case, c, number, high)
    if isinstance(counted, Finding):
        return counted
    served = _served(case, c, number, high)
    if isinstance(served, Finding):
        return served
    return unexplained(
        number, [small, counted, served, "the clock (no repetition is zero, coarse or overlapping)"]
    )


def _fits_cache(case: Case, c: Ceiling, number: Number) -> Finding | str:
    arrays, cache = case.arrays(c), case.cache_bytes
    if not (arrays and cache):
        return "cache-resident by size (array or cache size not known)"
    if arrays >= ENOUGH_CACHES * cache:
        return f"cache-resident by size (arrays of {capacity(arrays)}, {case.last_level} {capacity(cache)})"
    because = f"its arrays of {capacity(arrays)} stay in the {case.last_level} of {capacity(cache)}"
    return about(number, "cache-resident", because, array_bytes=arrays, cache_bytes=cache)


def _one_alone(case: Case, c: Ceiling, number: Number, high: Sequence[str]) -> Finding | str:
    """One kernel alone is off, by a ratio of stream counts against the others that move the same memory."""
    usual = _others(case, c)
    if len(set(high)) > 1 or usual is None:
        return "byte count (other kernels are off as well)"
    ratio = c.estimate.value * (1 + c.hidden_traffic) / usual
    near = min(SIMPLE, key=lambda s: abs(ratio / s - 1))
    if not agree(ratio, near, NEAR):
        return f"byte count ({ratio:.2f} times the other kernels is no ratio of stream counts)"
    because = (
        f"it alone is off, {ratio:.2f} times what the other kernels move ({si(usual, 'byte/s')}), near "
        f"{near:.2f}: it counts bytes that it does not move"
    )
    return about(number, "byte-count", because, others=usual, ratio_to_others=ratio)


def _served(case: Case, c: Ceiling, number: Number, high: Sequence[str]) -> Finding | str:
    """Something on the chip answered: as fast as a cache, or faster than any bus for more than one kernel."""
    cache = _cache(case, c)
    if cache is not None and agree(c.estimate.value, cache.estimate.value, 1 / LIKE_CACHE - 1):
        because = (
            f"that is what its {cache.level} gives ({si(cache.estimate.value, 'byte/s')}), so the buffer "
            "that was really used stays in it"
        )
        return about(number, "cache-resident", because, cache_beta=cache.estimate.value)
    if len(set(high)) > 1 or (c.share_at_clock or 0) > ABOVE_BUS or cache is not None:
        limit = f", below the {si(cache.estimate.value, 'byte/s')} of its {cache.level}" if cache else ""
        kernels = len(set(high))
        because = (
            f"memory cannot move that, a cache can{limit}: {counted(kernels, 'kernel')} of "
            f"{len({k.kernel for k in case.memory})} found part of the data on the chip, so the buffer that "
            f"was really used hardly exceeds the {case.last_level or 'cache'} of {capacity(case.cache_bytes)}"
        )
        return about(number, "cache-resident", because, kernels=float(kernels), cache_bytes=case.cache_bytes)
    return "cache-resident by rate (no cache is known to be as fast)"


def _low(case: Case, left: Sequence[Ceiling]) -> list[Finding]:
    """The memory as a whole far below its bus: the memory clock, else a probe that asks too little."""
    lowered = _clock(case)
    shares = [(c.share_at_clock, c) for c in left if c.share_at_clock]
    if not shares:
        return [lowered] if lowered else []
    share, best = max(shares, key=lambda pair: pair[0])
    if lowered is not None:
        return [lowered]
    if share >= LOW_BUS or (case.conditions("memory_clock_hz") and share >= NARROW):
        return []
    number = Number(name(best), best.estimate.value, best.estimate.value / share, best.unit, "the memory bus")
    tested = bytes_counted(case, best)
    if case.conditions("memory_clock_hz"):
        because = "every access stays as low, at the full memory clock: the probe may not reach the peak"
        return [about(number, "narrow-probe", because)]
    if not _arithmetic_is_right(case):
        return [unexplained(number, ["memory clock (the arithmetic is low as well)", tested])]
    because = (
        f"all {len(shares)} DRAM rates are low alike (best {percent(share)} of the bus at its highest clock) "
        "while the arithmetic is what it should be: the memory clock is lowered"
    )
    return [about(number, "memory-clock", because, share=share)]


def _arithmetic_is_right(case: Case) -> bool:
    shares = [c.share_at_clock for c in case.peaks if c.share_at_clock and c.precision.unit != "library"]
    return not shares or median(shares) >= LOW_BUS


def _borne_out(best: Ceiling | None, lowered: float) -> bool:
    """Whether the best DRAM rate fits into, and fills, the bus at that share of the highest memory clock."""
    share = best.share_at_clock if best else None
    return share is not None and NARROW <= share / lowered <= ABOVE_BUS


def _clock(case: Case) -> Finding | None:
    """The memory clock as the device reads it under load, against its highest.

    A reading before the rounds is that of an idle board, which many lower: it counts only where the bandwidth
    is what a bus at that clock gives, and no more.
    """
    seen = case.conditions("memory_clock_hz")
    under_load = [
        float(s.facts["memory_clock_hz"]) for s in case.timed if s.facts.get("memory_clock_hz") and s.bytes
    ]
    highest = case.facts.get("max_memory_clock_hz") or case.facts.get("memory_clock_hz")
    if not highest or not (seen or under_load):
        return None
    clock = median(under_load) if under_load else max(seen)
    if clock >= LOWERED * float(highest):
        return None
    best = max((c for c in case.memory), key=lambda c: c.estimate.value, default=None)
    if not under_load and not _borne_out(best, clock / float(highest)):
        return None
    rate = (
        f", where the best DRAM rate is {si(best.estimate.value, 'byte/s')} ({name(best, True)})"
        if best
        else ""
    )
    value = best.estimate.value if best else 0.0
    sentence = (
        f"the memory clock is {si(clock, 'Hz')}, {percent(clock / float(highest))} of the "
        f"{si(float(highest), 'Hz')} that the device can do{rate}"
    )
    return found(
        "memory-clock", "memory clock", sentence, memory_clock_hz=clock, highest_hz=float(highest), beta=value
    )
