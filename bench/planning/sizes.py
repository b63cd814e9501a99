"""Sizes that follow from the device: DRAM arrays, cache working sets, intensities, matrices."""

from __future__ import annotations

import math

from bench.device import Cache, Device
from bench.errors import ResourceError
from bench.report.units import capacity as printed
from bench.report.units import percent

KIB, MIB = 1 << 10, 1 << 20
LEAST_ARRAY = 128 * MIB
EACH, TOGETHER = 2, 4
"""DRAM arrays: each at least 2x, together at least 4x the last-level cache."""

MEMORY_SHARE = 0.5
"""Share of the available memory that a run may take."""

USUAL_LEVELS = 3
"""Cache levels that a host has as a rule. Where fewer are reported a further one may be hidden (the system
cache of Arm servers, an L3 that a virtual machine does not show), and a virtual machine may be told of a
smaller one than its host has: there what is to lie in DRAM takes the least size of a DRAM array."""

SMALLEST_SET = 4 * KIB

AROUND = (0.7, 0.85, 1.2, 1.5)
"""Shares of a reported capacity at which a sweep looks more closely."""

PARTED = (0.4, 0.6, 0.65, 0.8, 0.9, 0.95)
"""The same of a GPU's last cache: one in two parts has its second plateau between a half and all of it."""

PLATEAU_RATIO = 4.0
"""Capacities of neighbouring levels closer than this leave no size that is surely in the upper one."""


def array_bytes(device: Device, arrays: int, memory: float) -> int:
    """Bytes of each of `arrays` DRAM arrays; ResourceError when `memory` byte cannot hold them."""
    cache = device.last_level_cache_bytes
    needed = max(EACH * cache, TOGETHER * cache / arrays)
    share = MEMORY_SHARE * memory / arrays
    if needed > share or share < MIB:
        raise ResourceError(
            f"DRAM arrays must exceed the {printed(cache)} last-level cache: {arrays} x "
            f"{printed(needed or MIB)}, but only {printed(share * arrays)} ({percent(MEMORY_SHARE)} of the "
            "available memory) may be used; free memory, or measure the rest with --families fma,cache,gemm"
        )
    wanted = max(needed, min(LEAST_ARRAY, share))
    rounded = math.ceil(wanted / (2 * MIB)) * 2 * MIB
    return rounded if rounded <= share else math.floor(wanted / MIB) * MIB


def capacity(cache: Cache, threads: int) -> float:
    """Bytes of this level that each of `threads` spread-out threads has to itself."""
    return min(cache.bytes, cache.bytes * cache.instances / threads)


def level_of(device: Device, size: float, threads: int) -> str:
    """Name of the first level that holds a working set of `size` byte a thread."""
    held = (c.level for c in device.caches if capacity(c, threads) >= size)
    return next(held, "DRAM")


def near_level(device: Device, threads: int) -> tuple[str, float] | None:
    """The cache in which workloads show the rate of their own instructions, and operand bytes that fit.

    The second level where there is one: rows and tiles still pass through the first, as in real work.
    None on devices whose workloads are not run (simulated ones) or timed by events (GPUs).
    """
    if device.kind != "cpu" or not device.caches:
        return None
    cache = device.caches[min(1, len(device.caches) - 1)]
    return cache.level, capacity(cache, threads) * threads / 2


def plateaus(device: Device, threads: int) -> tuple[dict[str, int], list[str]]:
    """Working set per thread (byte) that surely lies in each level, and in words what has none.

    L1: half of it. Above: the geometric mean of 2x the lower and 0.5x the own capacity.
    """
    found: dict[str, int] = {}
    missing = []
    lower = 0.0
    for cache in device.caches:
        own = capacity(cache, threads)
        if not lower:
            found[cache.level] = rounded_set(own / 2)
        elif own >= PLATEAU_RATIO * lower:
            found[cache.level] = rounded_set(math.sqrt(2 * lower * own / 2))
        else:
            missing.append(
                f"{cache.level} with {threads} threads: {printed(own)} a thread is less than "
                f"{PLATEAU_RATIO:g}x the level below, no working set lies in it alone"
            )
        lower = max(lower, own)
    return found, missing


CHASED = 3.0
"""A chase's set over what the levels below hold: small, so that a slow walk soon comes round again and other
tenants of a shared cache push little of it out meanwhile; large enough that little is left below."""


def chase_sets(device: Device, memory: float) -> tuple[dict[str, int], list[str]]:
    """Working set (byte) of one core's pointer chase in each level, DRAM included, and what has none."""
    found, missing = plateaus(device, 1)
    lower = 0.0
    for cache in device.caches:
        if lower and cache.level in found:
            found[cache.level] = min(found[cache.level], rounded_set(CHASED * lower))
        lower = max(lower, capacity(cache, 1))
    size = beyond_caches(device, 1, memory)
    if size >= EACH * lower:
        found["DRAM"] = size
    else:
        missing.append(
            f"DRAM: {printed(size)} may be used, {printed(EACH * lower)} are needed beyond the caches"
        )
    return found, missing


def beyond_caches(device: Device, threads: int, memory: float) -> int:
    """Working set (byte a thread) of a chase in DRAM: 4x what a thread has of the last level."""
    return rounded_set(min(_beyond(device, threads), MEMORY_SHARE * memory / threads))


def _beyond(device: Device, threads: int) -> float:
    """Bytes a thread that surely exceed its caches, were there memory for them."""
    last = max((capacity(cache, threads) for cache in device.caches), default=0.0)
    told_little = len(device.caches) < USUAL_LEVELS or bool(device.facts.get("virtual_machine"))
    may_hide = not device.is_gpu and told_little
    return max(TOGETHER * last or LEAST_ARRAY, LEAST_ARRAY / threads if may_hide else 0.0)


def rounded_set(size: float) -> int:
    """A working set in whole KiB (the unrolled bodies need whole blocks), at least the smallest."""
    return max(SMALLEST_SET, round(size / KIB) * KIB)


def working_sets(
    device: Device, threads: int, memory: float, steps_per_octave: float, fine: bool
) -> list[int]:
    """Ascending working sets per thread, 4 KiB to 4x the last-level cache, finer around each capacity.

    Up to a DRAM array at least where a last level may be hidden: what lies in it would be taken for DRAM.
    """
    capacities = [capacity(c, threads) for c in device.caches]
    top = min(_beyond(device, threads), MEMORY_SHARE * memory / threads)
    count = max(1, math.floor(math.log2(top / SMALLEST_SET) * steps_per_octave))
    sizes = {rounded_set(SMALLEST_SET * 2 ** (i / steps_per_octave)) for i in range(count + 1)}
    if fine:
        sizes |= {rounded_set(c * f) for c in capacities for f in AROUND}
        sizes |= {rounded_set(c * f) for c in capacities[-1:] for f in PARTED if device.is_gpu}
        sizes |= {rounded_set(top), rounded_set(top / 1.5)}  # two at least beyond the last capacity
    return sorted(s for s in sizes if s <= top)


TOP_INTENSITY = 512.0
"""FLOP/byte that an intensity sweep reaches at least."""


def fma_counts(item_bytes: int, write_back: bool, dense: bool) -> list[int]:
    """Vector FMAs per block of 12 vectors, from 1 to at least the top intensity.

    intensity = F / (6 item bytes) read-only, F / (12 item bytes) in place; F < 12 or a multiple of 12
    """
    rounds = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] if dense else [1, 3, 8, 24, 64]
    last = math.ceil(TOP_INTENSITY * item_bytes * (12 if write_back else 6) / 12)
    while rounds[-1] < last:
        rounds.append(rounds[-1] * (2 if dense else 4))
    low = [1, 2, 3, 6] if dense else [1, 3, 6]
    return low + [12 * k for k in rounds]


def matrix_sizes(threads: int, memory: float, dense: bool) -> list[int]:
    """Square GEMM sizes n; the largest grows with the threads so that each has work to do."""
    largest = 256 * max(4, min(32, round(4 * math.sqrt(threads / 2))))
    sizes = [256, 512, 1024, largest] if dense else [min(1024, largest), largest]
    return sorted({n for n in sizes if 3 * 8 * n * n <= MEMORY_SHARE * memory})


RAGGED = (
    (13, 17, 11),
    (23, 29, 19),
    (31, 97, 29),
    (47, 53, 61),
    (29, 137, 61),
    (127, 19, 67),
    (101, 89, 97),
    (113, 127, 131),
    (107, 103, 23),
    (509, 491, 13),
    (487, 11, 521),
    (17, 503, 479),
    (1511, 23, 29),
    (19, 2003, 31),
    (4099, 37, 53),
    (43, 3989, 61),
    (59, 41, 4001),
    (103, 31, 2503),
)
"""m, n, k of products that show what edges cost: small, thin in each way, long in each way.

Primes, since most sizes of real work fill no register tile; even ones alone would flatter by a fifth.
Small ones on both sides of the work at which a library starts its threads, since that step, the speed of
one thread and the cost of a call would otherwise follow the noise of a single size.
"""


def oblong_matrices(memory: float) -> list[tuple[int, int, int]]:
    """Those of RAGGED that the memory (byte) holds."""
    held = MEMORY_SHARE * memory
    return [(m, n, k) for m, n, k in RAGGED if 8 * (m * k + k * n + m * n) <= held]
