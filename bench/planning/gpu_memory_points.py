"""The points of a GPU's memory hierarchy: working sets, latencies, starts, fewer SMs, few blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.fitting.intervals import CAP_CACHE, CAP_PI, MEDIAN, P75, memory_cap
from bench.planning import sizes
from bench.planning.gpu_budget import Budget
from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, Draft
from bench.planning.sizes import KIB
from bench.profile.records import Point, Precision
from kernels.mix import cuda_points
from kernels.spec import ITEM_BYTES

WORD = "fp32"
"""Type of what is moved: a byte is a byte."""

STORES = {"read": "none", "write": "ordinary", "update": "ordinary", "copy": "ordinary"}

TARGET, SPENT, LEAST = 5e-3, 0.03, 5
"""Seconds of a repetition, which is one launch, and of a visit; repetitions at least."""

SHORT = 3e-4
"""Seconds of a repetition whose launches all lie in the queue before the first begins."""

SWEEP, WHOLE_SWEEP, STORING = "ca l8 b1024", "cg l8 whole b1024", "cg l8 b1024"
"""Forms of sweeps: one for all sizes, so that a step is the device's and not ours."""

WHOLE_SETS_BY = (WHOLE_SWEEP, "na l8 whole b1024")
"""Forms that are candidates for the best of L2 on one set that all SMs read."""

L2_SETS = (0.5, 0.25)
"""Shares of L2 that its candidates for the best take; above a half parts of it begin to be held twice."""

WHOLE_SETS = (0.0625, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 1.0, 1.5, 3.0)
"""Shares of L2 of one set that all SMs read: held twice where L2 has two parts, it falls at a half."""

SHARED, SHARED_SET = "shared", 32 * KIB
CHASED_IN_SHARED = 16 * KIB

LINE = 128
"""Bytes of a line that a chain waits for."""

BEYOND = 4
"""L2 caches of a set in DRAM."""

SLICES = 4
"""Parts of memory that one SM reads apart, as large as what it reads of L2 otherwise."""

FEW_BLOCKS, FEW_THREADS = 1, "b128"
"""Blocks an SM and their size at which least overlaps within an SM: one warp a scheduler."""

FAMILIES = ("cache", "latency", "launch", "scaling")


def fill(draft: Draft, budget: Budget, asked: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Plan those of FAMILIES that are asked for; left out, with a note, where fp32 is no part of `names`."""
    wanted = [family for family in FAMILIES if family in asked]
    if WORD not in names:
        draft.notes += [f"{family}: measured in {WORD}, which --precisions leaves out" for family in wanted]
        return
    write = {"cache": _cache, "latency": _latency, "launch": _launch, "scaling": _scaling}
    for family in wanted:
        write[family](draft, budget)


def _point(draft: Draft, family: str, kernel: str, threads: int, level: str, **sized: int) -> Point:
    scope = "device" if threads == draft.threads else "core"
    return Point(family, kernel, "", Precision.of(WORD), level, scope=scope, threads=threads, sizes=sized)


def _l2(draft: Draft) -> float:
    """Bytes of L2 that SMs reach together."""
    return float(draft.device.last_level_cache_bytes)


def _has_l1(draft: Draft) -> int:
    """Bytes of an SM's L1, 0 where the device does not tell."""
    return next((c.bytes for c in draft.device.caches if c.level == "L1"), 0)


def _held(draft: Draft, size: float, threads: int = 1) -> int:
    """Each SM's share in whole KiB, within half of the memory that may be used."""
    return sizes.rounded_set(min(size, sizes.MEMORY_SHARE * draft.memory) / threads)


# -- working sets ------------------------------------------------------------------------------------


def _cache(draft: Draft, budget: Budget) -> None:
    """A plateau of each level and access, and sweeps over working sets, own and whole."""
    if not _l2(draft):
        draft.notes.append("cache: this GPU does not tell the size of its L2")
        return
    if l1 := _has_l1(draft):
        _flat(draft, "read", "L1", _held(draft, l1 / 2))
        draft.notes.append("cache: L1 writes through, so that stores are measured in L2 and DRAM only")
    else:
        draft.notes.append("cache in L1: this GPU does not tell its size")
    if draft.device.facts.get("shared_per_sm"):
        for access in budget.shared:
            _flat(draft, access, SHARED, SHARED_SET)
    for access in budget.caches:
        for share in L2_SETS if access == "read" else L2_SETS[:1]:
            _flat(draft, access, "L2", _held(draft, share * _l2(draft), draft.threads))
    for access in budget.swept_sets:
        variant = SWEEP if access == "read" else STORING
        for size in _working_sets(draft, draft.threads, budget.sets if access == "read" else 1.0):
            _swept(draft, access, size, variant, budget)
    for share in WHOLE_SETS if budget.swept_sets else ():
        _whole(draft, share, budget)


def _flat(draft: Draft, access: str, level: str, size: int) -> None:
    point = _point(draft, "cache", f"cache-{access}", draft.threads, level, bytes=size, plateau=1)
    point = replace(point, access=access, store=STORES[access])
    priority = 0 if access == "read" and level != SHARED else 1
    planned = Planned(point, priority, CAP_CACHE, MEDIAN, 0.005, TARGET, 2 * SPENT, LEAST)
    draft.add(replace(planned, tune=f"{point.kernel}/{level}"), tuned_here=True)


def _working_sets(draft: Draft, threads: int, steps: float) -> list[int]:
    return sizes.working_sets(draft.device, threads, draft.memory, steps, fine=True)


def _level(draft: Draft, size: float, threads: int) -> str:
    """First level that holds a set of `size` byte of each SM."""
    return sizes.level_of(draft.device, size, threads)


def _swept(draft: Draft, access: str, size: int, variant: str, budget: Budget) -> None:
    level = _level(draft, size, draft.threads)
    level = "L2" if level == "L1" and access != "read" else level
    point = _point(draft, "cache", f"cache-{access}", draft.threads, level, bytes=size)
    point = replace(point, variant=variant, access=access, store=STORES[access])
    draft.add(_detail(point, CAP_CACHE, budget))


def _whole(draft: Draft, share: float, budget: Budget) -> None:
    """One set that every SM reads; the smaller ones are candidates for the best of L2, too."""
    size = _held(draft, share * _l2(draft))
    level = "L2" if share <= 1 else "DRAM"
    point = _point(draft, "cache", "cache-read", draft.threads, level, bytes=size, whole=1)
    point = replace(point, variant=WHOLE_SWEEP, access="read")
    draft.add(_detail(point, CAP_CACHE, budget))
    if share in L2_SETS:
        for variant in WHOLE_SETS_BY:
            flat = replace(point, variant=variant, sizes={**point.sizes, "plateau": 1})
            draft.add(Planned(flat, 1, CAP_CACHE, MEDIAN, 0.005, TARGET, 2 * SPENT, LEAST))


def _detail(point: Point, cap: float, budget: Budget) -> Planned:
    """A point of a curve: measured in the first rounds only where time is short."""
    return Planned(point, 2, cap, MEDIAN, 0.01, TARGET, SPENT, LEAST, times=budget.detail_rounds)


# -- latencies ---------------------------------------------------------------------------------------


def _latency(draft: Draft, budget: Budget) -> None:
    """One chain in each level and over working sets; more chains in L2 and DRAM, on one SM and on all."""
    l1, l2 = _has_l1(draft), _l2(draft)
    flat = {"L1": l1 / 2, SHARED: CHASED_IN_SHARED, "L2": l2 / 4, "DRAM": BEYOND * l2}
    there = {"L1": l1, SHARED: draft.device.facts.get("shared_per_sm"), "L2": l2, "DRAM": l2}
    for level, size in flat.items():
        if there[level]:
            sized = _held(draft, size)
            draft.add(_chase(draft, 1, level, sized, 1, budget))
    for size in _working_sets(draft, 1, budget.chased_sets) if budget.chased_sets and l2 else ():
        point = replace(_chased(draft, 1, _level(draft, size, 1), size, 1))
        draft.add(_detail(point, CAP_CACHE, budget))
    for level, threads in (("L2", 1), ("L2", draft.threads), ("DRAM", 1), ("DRAM", draft.threads)):
        for chains in budget.crowds if l2 else ():
            if (chains, threads) != (1, 1):
                size = _held(draft, flat[level], threads)
                draft.add(_chase(draft, chains, level, size, threads, budget))


def _chased(draft: Draft, chains: int, level: str, size: int, threads: int) -> Point:
    point = _point(draft, "latency", "chase", threads, level, bytes=size, line=LINE)
    variant = "1 chain" if chains == 1 else f"{chains} chains"
    scope = "device" if threads == draft.threads else "core"
    return replace(point, variant=variant, access="read", scope=scope)


def _chase(draft: Draft, chains: int, level: str, size: int, threads: int, budget: Budget) -> Planned:
    point = _chased(draft, chains, level, size, threads)
    if level == SHARED:
        point = replace(point, sizes={"bytes": size, "line": ITEM_BYTES[WORD]})
    point = replace(point, sizes={**point.sizes, "plateau": 1})
    if chains * threads > 1:
        return _detail(point, CAP_CURVE, budget)
    cap = memory_cap(draft.device.state) if level == "DRAM" else CAP_CACHE
    return Planned(point, 1, cap, MEDIAN, 0.005, TARGET, SPENT, LEAST)


# -- starts ------------------------------------------------------------------------------------------


def _launch(draft: Draft, budget: Budget) -> None:
    """An empty kernel, started in every way of the budget, and the smallest useful one."""
    for variant in budget.starts:
        point = replace(_point(draft, "launch", "empty", draft.threads, ""), variant=variant)
        priority = 0 if variant == "plain" else 1
        draft.add(Planned(point, priority, CAP_CURVE, MEDIAN, 0.01, SHORT, SPENT, LEAST))
    for size in budget.smallest:
        point = _point(draft, "launch", "smallest", draft.threads, "DRAM", bytes=size)
        point = replace(point, variant="plain", access="copy", store="ordinary")
        draft.add(Planned(point, 2, CAP_CURVE, MEDIAN, 0.01, SHORT, SPENT, LEAST, times=budget.detail_rounds))


# -- fewer SMs, few blocks ---------------------------------------------------------------------------


def counts(draft: Draft, step: int) -> list[int]:
    """Numbers of SMs: 1, step, step^2, ... and all."""
    found, n = [], 1
    while n < draft.threads:
        found.append(n)
        n *= step
    return [*found, draft.threads]


def _scaling(draft: Draft, budget: Budget) -> None:
    """pi and the beta of each level on fewer SMs, one block on each, with the same work for each SM.

    The set of an SM is the one that lies in its level when all SMs read: only their number changes. In DRAM
    few SMs read as much together as all do.
    """
    for threads in counts(draft, budget.sm_step) if budget.sm_step else ():
        for name in budget.scaled:
            if not draft.device.precisions.get(name, "unknown"):
                point = replace(_point(draft, "scaling", "fma", threads, ""), precision=Precision.of(name))
                point = replace(point, variant="8 chains b1024")
                draft.add(replace(_detail(point, CAP_PI, budget), q=P75))
        for level, size in _sets_of_an_sm(draft, threads):
            _scaled(draft, level, threads, size, budget)
    for slice in range(1, SLICES) if budget.sm_step and _l2(draft) else ():
        _scaled(draft, "L2", 1, _held(draft, L2_SETS[0] * _l2(draft), draft.threads), budget, slice=slice)


def _sets_of_an_sm(draft: Draft, threads: int) -> Iterator[tuple[str, int]]:
    if l1 := _has_l1(draft):
        yield "L1", _held(draft, l1 / 2)
    if l2 := _l2(draft):
        yield "L2", _held(draft, L2_SETS[0] * l2, draft.threads)
        yield "DRAM", _held(draft, BEYOND * l2, threads)


def _scaled(draft: Draft, level: str, threads: int, size: int, budget: Budget, **more: int) -> None:
    point = _point(draft, "scaling", "cache-read", threads, level, bytes=size, **more)
    variant = SWEEP if level == "L1" else STORING
    draft.add(_detail(replace(point, variant=variant, access="read"), CAP_CACHE, budget))


def few_blocks(draft: Draft, budget: Budget, size: int, least: float) -> None:
    """The read-only intensity sweep with one block of few threads on each SM: overlap at low occupancy."""
    for name in budget.sparse:
        if draft.device.precisions.get(name, "unknown"):
            continue
        for variant, fma, items, _ in cuda_points(ITEM_BYTES[name], False, False):
            few = variant.replace("b256", FEW_THREADS)
            point = Point("mix", "mix-read-only", few, Precision.of(name), "DRAM")
            point = replace(point, access="read", scope="device", threads=draft.threads)
            sized = {"bytes": size, "fma": fma, "block": items, "blocks_per_sm": FEW_BLOCKS}
            planned = _detail(replace(point, sizes=sized), CAP_CURVE, budget)
            draft.add(replace(planned, target=0.02, budget=0.08, minimum=3, least_bytes=least))
