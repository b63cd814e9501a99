"""Points of the memory hierarchy of a host: working sets, pointer chases, and what fewer cores reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from bench.fitting.intervals import CAP_CACHE, CAP_PI, MEDIAN, P75, memory_cap
from bench.planning import sizes
from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, LEAST, VISITS, Draft
from bench.profile.records import Point, Precision

CACHE = {"read": "none", "write": "ordinary", "update": "ordinary", "copy": "ordinary"}
"""Accesses to a working set, and how they store."""

STEPS = {"dense": (1.0, 4.0, 4.0), "coarse": (1.0, 0.5, 2.0)}
"""Working sets an octave, by detail: 4 find 98 % of simulated plateaus within a tenth, 2 find 94 %."""

PASSES = {"cache": (2, 3, 1), "latency": (1, 1, 1)}
"""Passes of a sweep through all its working sets in a round, by detail, each in an order of its own: a phase
of disturbance then takes some repetitions of a point, not all. The full preset has rounds enough."""

ONE_ROUND = 1
"""Detail at which sweeps have one round only: their passes tell what is a level, the others are for roofs."""

CHASED = (1.0, 3.0, 4.0)
"""Working sets of a chase an octave, by detail: writing a cycle through a large one takes far longer than
walking it."""

CHAINS = ((2, 4, 8, 16), (2, 4, 6, 8, 12, 16, 24, 32), (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64))
"""Numbers of chains beside one, by detail."""


def cache(draft: Draft) -> None:
    """A plateau of every level and access, and sweeps over working sets: reads densely, the rest coarsely."""
    for scope, threads in draft.scopes:
        flat, missing = sizes.plateaus(draft.device, threads)
        draft.notes += [f"cache plateau of {text}" for text in missing]
        for access, store in CACHE.items():
            if draft.detail == 0 and scope == "core" and access != "read":
                continue
            precision = Precision.of(draft.precisions[0])
            point = Point("cache", f"cache-{access}", "", precision, "", access, store, scope, threads)
            for level, size in flat.items():
                sized = {"bytes": size, "plateau": 1}
                draft.add(_working_set(draft, replace(point, level=level, sizes=sized)), tuned_here=True)
            for size in _swept(draft, access, scope, threads):
                level = sizes.level_of(draft.device, size, threads)
                draft.add(_working_set(draft, replace(point, level=level, sizes={"bytes": size})))


def _swept(draft: Draft, access: str, scope: str, threads: int) -> list[int]:
    """Working sets of a sweep: quick sweeps reads on all threads only, standard the rest on all threads."""
    if draft.detail < (0 if scope == "all" else 1) + (access != "read"):
        return []
    steps = STEPS["dense" if access == "read" else "coarse"][draft.detail]
    fine = access == "read" and draft.detail > 0
    return sizes.working_sets(draft.device, threads, draft.memory, steps, fine)


def _working_set(draft: Draft, point: Point) -> Planned:
    flat, read = "plateau" in point.sizes, point.access == "read"
    own = f"/{point.level}" if read or draft.detail == 2 else ""  # else one form of a kernel for all levels
    tune = draft.choice(f"{point.kernel}/{point.precision.label}{own}", point.scope)
    if not flat:
        return _swept_in_passes(draft, Planned(point, 2, CAP_CACHE, MEDIAN, 0.01, 2e-3, 0.016, 6, tune=tune))
    visits, least = VISITS["cache read" if read else "cache"][draft.detail], LEAST["cache"][draft.detail]
    priority = 0 if read else 1
    return Planned(point, priority, CAP_CACHE, MEDIAN, 0.01, 2e-3, 0.024, least, tune=tune, visits=visits)


def _swept_in_passes(draft: Draft, planned: Planned) -> Planned:
    """The point in as many visits as a sweep has passes, its repetitions and budget shared out to them."""
    passes = PASSES[planned.point.family][draft.detail]
    least, budget = -(-planned.minimum // passes), planned.budget / passes
    times = 1 if draft.detail == ONE_ROUND else planned.times
    return replace(planned, visits=passes, minimum=least, budget=budget, times=times)


def latency(draft: Draft) -> None:
    """One chain over working sets on one core, a plateau a level; more chains at some of the plateaus."""
    flat, missing = sizes.chase_sets(draft.device, draft.memory)
    draft.notes += [f"latency of {text}" for text in missing]
    for level, size in flat.items():
        draft.add(_chase(draft, "chase", 1, level, {"bytes": size, "plateau": 1}))
    if draft.detail and "DRAM" in flat:
        draft.add(_chase(draft, "chase-local", 1, "DRAM", {"bytes": flat["DRAM"], "plateau": 1}))
    for size in sizes.working_sets(draft.device, 1, draft.memory, CHASED[draft.detail], draft.detail == 2):
        level = sizes.level_of(draft.device, size, 1)
        draft.add(_swept_in_passes(draft, _chase(draft, "chase", 1, level, {"bytes": size})))
    for level, size, threads in _crowds(draft, flat):
        for chains in CHAINS[draft.detail] if threads == 1 else (1, *CHAINS[draft.detail]):
            crowd = _chase(draft, "chase", chains, level, {"bytes": size, "plateau": 1}, threads)
            draft.add(replace(crowd, times=1) if draft.detail == ONE_ROUND else crowd)


def _crowds(draft: Draft, flat: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """Level, bytes a thread and threads where the number of chains is swept."""
    names = [name for name in flat if name != "L1"]
    for level in names[-1:] if draft.detail == 0 else names[-2:] if draft.detail == 1 else names:
        yield level, flat[level], 1
    everyone = draft.scopes[0][1]
    if draft.detail and everyone > 1 and "DRAM" in flat:
        yield "DRAM", sizes.beyond_caches(draft.device, everyone, draft.memory), everyone


def _chase(
    draft: Draft, kernel: str, chains: int, level: str, sized: dict[str, int], threads: int = 1
) -> Planned:
    variant = "1 chain" if chains == 1 else f"{chains} chains"
    scope = "all" if threads == draft.threads else "core"
    point = Point("latency", kernel, variant, Precision.of(draft.precisions[0]), level, "read")
    point = replace(point, scope=scope, threads=threads, sizes=sized)
    headline = chains == threads == 1 and "plateau" in sized
    cap = memory_cap(draft.device.state) if level == "DRAM" else CAP_CACHE
    if headline:
        # A cycle through DRAM is dear to write, so that a full box would give up this latency first of all.
        priority = 0 if level == "DRAM" and kernel == "chase" else 1
        return Planned(point, priority, cap, MEDIAN, 0.01, 2e-3, 0.024, 6, visits=(1, 2, 4)[draft.detail])
    return Planned(point, 2, CAP_CURVE, MEDIAN, 0.02, 1.5e-3, 0.012, 5)


def counts(draft: Draft) -> list[int]:
    """Numbers of threads: powers of two (quick: of four) up to all, and all."""
    step = 4 if draft.detail == 0 else 2
    found, n = [], 1
    while n < draft.threads:
        found.append(n)
        n *= step
    return [*found, draft.threads] if draft.threads > 1 else []


def scaling(draft: Draft) -> None:
    """beta of each level and pi at 1, 2, 4, ... all threads, with the same work for each thread.

    A working set is the one that lies in its level when all threads run: then only their number changes.
    Threads take the device's CPUs in order: cores before their siblings, node by node.
    """
    if not counts(draft):
        draft.notes.append("scaling: there is one thread only")
        return
    flat, missing = sizes.plateaus(draft.device, draft.threads)
    draft.notes += [f"scaling in {text}" for text in missing]
    last = [c.level for c in draft.device.caches][-1:]
    levels = flat if draft.detail else {name: size for name, size in flat.items() if name in last}
    array = sizes.array_bytes(draft.device, 1, draft.memory)
    for name, threads in product(
        draft.precisions if draft.detail == 2 else draft.precisions[:1], counts(draft)
    ):
        precision, scope = Precision.of(name), "all" if threads == draft.threads else "core"
        fma = Point("scaling", "fma", "", precision, scope=scope, threads=threads)
        tune = draft.choice(f"fma/{name}", scope)
        draft.add(Planned(fma, 2, CAP_PI, P75, 0.006, 1.5e-3, 0.015, 5, tune=tune, visits=_often(draft)))
        read = Point("scaling", "read", "", precision, "DRAM", "read", scope=scope, threads=threads)
        tune = draft.choice(f"read/{name}/none", scope)
        planned = Planned(read, 2, CAP_CURVE, MEDIAN, 0.02, 8e-3, 0.04, 5, 16.0 * sizes.MIB, tune=tune)
        draft.add(_sized(planned, array))
        for level, size in levels.items():
            cached = Point(
                "scaling", "cache-read", "", precision, level, "read", scope=scope, threads=threads
            )
            tune = draft.choice(f"cache-read/{precision.label}/{level}", scope)
            draft.add(_sized(Planned(cached, 2, CAP_CACHE, MEDIAN, 0.015, 2e-3, 0.02, 5, tune=tune), size))


def _often(draft: Draft) -> int:
    return 1 + (draft.detail > 0)


def _sized(planned: Planned, size: int) -> Planned:
    return replace(planned, point=replace(planned.point, sizes={"bytes": size}))
