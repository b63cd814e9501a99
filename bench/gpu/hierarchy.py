"""Working sets in L1, shared memory, L2 and DRAM on a GPU, and the same loops and chains on fewer SMs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.gpu import bodies
from bench.gpu.batches import Task
from bench.gpu.bodies import CHECK_BLOCKS, CHECK_FACTOR, MOST_TRIPS, Bodies, Chosen, Ready, compare
from bench.gpu.launch import Launch
from bench.profile.records import Point
from kernels import KERNELS, working_sets
from kernels.spec import ITEM_BYTES, StreamShape, Work
from kernels.working_sets import SHARED_BYTES, VECTOR_BYTES, WARP

SHARED = "shared"
"""Level of the memory that the threads of a block share."""

OPERATORS, BEYOND = {"L1": ("ca", "nc"), SHARED: ("shared",)}, ("cg", "na")
"""By level the operators that stay in it, and those that pass L1 by."""

ITEM, ITEMS = ITEM_BYTES["fp32"], VECTOR_BYTES // ITEM_BYTES["fp32"]
"""Bytes of an item, items of a vector."""

SCALED = ("fma", "cache")
"""Families whose kernels are measured on fewer SMs: one block on each."""


@dataclass(frozen=True)
class Part:
    """Memory from some byte on, and what holds it."""

    ptr: int
    whole: Any


@dataclass(frozen=True)
class Set:
    """What one block passes: vectors of each array, by how many trips; `parts` blocks have their own."""

    vectors: int
    trips: int
    parts: int

    @property
    def items(self) -> int:
        """Items of a block's part of one array."""
        return self.vectors * ITEMS

    @property
    def bytes(self) -> int:
        """Of all parts of one array."""
        return self.items * ITEM * self.parts


def fits(point: Point, way: working_sets.Way) -> bool:
    """Whether a way of passing a set measures the point's level; a sweep may take any of L1, L2 and DRAM."""
    if bool(point.sizes.get("whole")) != way.whole or (point.level == SHARED) != (way.operator == SHARED):
        return False
    return "plateau" not in point.sizes or way.operator in OPERATORS.get(point.level, BEYOND)


class Hierarchy:
    """Prepares points of the families cache and scaling.

    sizes: bytes of all arrays that ONE SM passes, `whole` where all SMs pass the same, `slice` for a part of
    memory further on; threads: SMs in use
    """

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.device, self.engine = bodies, bodies.device, bodies.engine

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """Forms that stay in a level, best guess first, less those that pass one set whole."""
        known = bodies.variants(self.engine.capability, kernel, precision)
        wanted = OPERATORS.get(level, BEYOND)
        return tuple(v for v in known if v.split()[0] in wanted and " whole " not in v)

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured on this GPU, "" if it can."""
        family = KERNELS[point.kernel].family
        if point.family == "scaling" and family not in SCALED:
            return f"{point.kernel} is not measured on fewer SMs: only {', '.join(SCALED)} are"
        if not 1 <= point.threads <= self.device.threads:
            return f"this GPU has {self.device.threads} SMs, not {point.threads}"
        try:
            _, form, _ = bodies.named(point, self.engine.capability)
        except DeviceError as error:
            return str(error)
        way = working_sets.BY_ENTRY.get(form.entry)
        if way and not fits(point, way):
            return f"{way.name} does not measure {point.level or 'a sweep'}"
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Compile, allocate and fill."""
        chosen = self.bodies.choose(point)
        whole = point.threads == self.device.threads and point.family != "scaling"
        launch = Launch(point.threads * (chosen.blocks_per_sm if whole else 1), chosen.block)
        if KERNELS[point.kernel].family == "fma":
            return self.bodies.chain(point, chosen, launch)
        return self._passed(point, chosen, launch)

    def _passed(self, point: Point, chosen: Chosen, launch: Launch) -> Prepared:
        kernel, way = KERNELS[point.kernel], working_sets.BY_ENTRY[chosen.form.entry]
        found = self._set(point, chosen, launch)
        memory = self._memory(point, chosen, launch, found)
        once = self.bodies.launcher(chosen, launch, memory, found.items)

        def work(amount: int) -> Work:
            items = launch.threads * way.accesses * ITEMS * amount
            return kernel.work(ITEM, {"n": items}, point.level)

        task = Task(f"{kernel.name} {way.name}", once, whole=True)
        facts = self.bodies.facts(chosen, launch, set_bytes=found.bytes * arrays(point.kernel))
        facts |= {"hidden_traffic": 0.0, "passes": "whole" if way.whole else "own"}
        if not shape(point.kernel).stores:
            once(found.trips)
            facts["sms"] = len(self._sms(memory[0], launch))
        most = MOST_TRIPS // found.trips * found.trips
        ready = Ready(task, lambda: self._check(chosen, task.name), memory)
        return Prepared(point, work, found.trips, most, found.trips, facts, ready)

    def _set(self, point: Point, chosen: Chosen, launch: Launch) -> Set:
        """The block's share of the point's bytes, in whole warps; trips that pass it once."""
        way = working_sets.BY_ENTRY[chosen.form.entry]
        own = point.sizes["bytes"] // arrays(point.kernel)
        own //= 1 if way.whole else launch.grid // point.threads
        if way.operator == SHARED:
            own = min(own, SHARED_BYTES // arrays(point.kernel))
        vectors = max(WARP, own // VECTOR_BYTES // WARP * WARP)
        trips = -(-vectors // (chosen.block * way.accesses))
        return Set(vectors, trips, 1 if way.whole else launch.grid)

    def _memory(self, point: Point, chosen: Chosen, launch: Launch, found: Set) -> list[Any]:
        """a, b, c and s: random where it is loaded, with room for what is stored, and the factor 1."""
        engine, of, skipped = self.engine, shape(point.kernel), found.bytes * point.sizes.get("slice", 0)
        results = 0 if of.stores else (launch.threads + launch.grid) * ITEM
        room = dict.fromkeys({*of.loads, *of.stores}, found.bytes + skipped)
        room.setdefault("a", results)
        made: list[Any] = [
            engine.random(room[name], "fp32", point.operands, seed) if name in room else None
            for seed, name in enumerate("ab", 1)
        ]
        parts = [
            Part(m.ptr + skipped, m) if m and name in of.loads else m
            for name, m in zip("ab", made, strict=True)
        ]
        return [*parts, None, engine.upload(np.ones(1, np.float32))]

    def _sms(self, a: Any, launch: Launch) -> set[int]:
        """Which SMs the blocks of the last launch ran on."""
        told = self.engine.download(a.ptr + launch.threads * ITEM, launch.grid * ITEM)[0].view(np.float32)
        return {int(sm) for sm in told if np.isfinite(sm)}

    # -- the check -----------------------------------------------------------------------------------

    def _check(self, chosen: Chosen, what: str) -> None:
        """A small launch over sets that a trip does not divide (update: divides), against the reference."""
        kernel, way = KERNELS[chosen.form.kernel], working_sets.BY_ENTRY[chosen.form.entry]
        launch, engine = Launch(CHECK_BLOCKS, chosen.block), self.engine
        vectors, trips = checked(chosen, kernel.access)
        items, own = vectors * ITEMS, 1 if way.whole else launch.grid
        rng = np.random.default_rng(items)
        a, b = (rng.uniform(0.5, 1.5, items * own).astype(np.float32) for _ in "ab")
        guard = np.full(chosen.block, bodies.GUARD, np.uint8)
        results = np.zeros(launch.threads + launch.grid, np.float32)
        room = (a if shape(kernel.name).stores else results).view(np.uint8)
        memory = [engine.upload(np.concatenate([room, guard])), engine.upload(b), None]
        memory.append(engine.upload(np.full(1, CHECK_FACTOR, np.float32)))
        self.bodies.launcher(chosen, launch, memory, items)(trips)
        stored = engine.download(memory[0].ptr, room.nbytes + guard.nbytes)[0]
        if not np.array_equal(stored[room.nbytes :], guard):
            raise VerificationError(f"{what} writes behind the end of its array; it is not timed")
        got = stored[: room.nbytes].view(np.float32)
        want, close = expected(kernel.access, way, a, b, launch, vectors, trips)
        if kernel.access == "read":
            got = got[: launch.threads].reshape(launch.grid, -1).sum(axis=1, dtype=np.float64)
        compare(what, got, want, close)


def shape(kernel: str) -> StreamShape:
    """What a kernel loads and stores."""
    found = KERNELS[kernel].shape
    assert isinstance(found, StreamShape), kernel
    return found


def arrays(kernel: str) -> int:
    """How many arrays a kernel passes."""
    return len({*shape(kernel).loads, *shape(kernel).stores})


def checked(chosen: Chosen, access: str) -> tuple[int, int]:
    """Vectors of a block's set and trips of the check: a set that every trip breaks off elsewhere.

    An item that two threads update at once would be anything: a trip of update passes whole sets.
    """
    way = working_sets.BY_ENTRY[chosen.form.entry]
    if access == "update":
        most = chosen.block * way.accesses
        return (min(most, SHARED_BYTES // VECTOR_BYTES) if way.operator == SHARED else most), 2
    return chosen.block // 2 + WARP, 3


def expected(
    access: str, way: working_sets.Way, a: Any, b: Any, launch: Launch, vectors: int, trips: int
) -> tuple[Any, float]:
    """What a launch leaves in a (read: the sum of each block), and the relative difference allowed."""
    passed = launch.block * way.accesses * trips
    if access == "read":
        times = np.bincount(np.arange(passed) % vectors, minlength=vectors)
        first = [vectors // launch.grid * block if way.whole else 0 for block in range(launch.grid)]
        sums = b.astype(np.float64).reshape(-1, vectors, ITEMS).sum(axis=2)
        total = [np.roll(times, f) @ sums[0 if way.whole else block] for block, f in enumerate(first)]
        total[0] += CHECK_FACTOR
        return np.array(total), 1e-5
    if access == "update":
        for _ in range(trips):  # a trip loads everything before it stores
            a = (a * np.float32(CHECK_FACTOR)).astype(np.float32)
        return a, 0.0
    return (b if access == "copy" else np.full_like(a, CHECK_FACTOR)), 0.0
