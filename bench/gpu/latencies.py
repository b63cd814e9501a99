"""Latency on a GPU: one thread or many chains, each waiting for pointers, by events and by the SM's clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu.batches import Batch, Task
from bench.gpu.bodies import EXACTLY, MOST_TRIPS, Bodies, Chosen, Ready, compare
from bench.gpu.faults import translated
from bench.gpu.hierarchy import SHARED
from bench.gpu.launch import Launch
from bench.profile.records import Point
from kernels import KERNELS, chases, latency
from kernels.chases import LINE_BYTES, LOADS, SHARED_WORDS, SPREAD, WORDS
from kernels.spec import Work

FAMILY = "latency"
WORD = 8
"""Bytes of a pointer."""

SHARED_LINE = 4
"""Bytes of a place in shared memory."""

WARPS, LANES = 32, 32
"""Most warps of a block, threads of a warp."""

FILLING = 256
"""Threads that write the cycle into shared memory before one of them walks it."""

LINK_SHAPE = Launch(1024, 256)

CHECKED_LINES, CHECKED_TRIPS = 1000, 3

NEAR_AND_FAR, WAITS = 240, 4
"""Lines whose latency is looked at one by one, and trips of loads of each."""


@dataclass(frozen=True)
class Walk:
    """How chains are laid out: threads, chains of a thread, lanes that share a chain's line."""

    launch: Launch
    chains: int
    lanes: int

    @property
    def walkers(self) -> int:
        """Chains of the whole launch."""
        return self.launch.threads // self.lanes * self.chains

    @property
    def steps(self) -> int:
        """Loads of one chain in a trip."""
        return LOADS // self.chains


@dataclass
class Lines:
    """A random cycle of lines in device memory: pointers, the order in which they come, the next of each."""

    memory: Any
    order: Any
    following: Any
    keep: list[Any] = field(default_factory=list)

    def address(self, line: Any, lane: Any = 0) -> Any:
        """Where a lane's word of a line lies."""
        return np.uint64(self.memory.ptr) + np.uint64(LINE_BYTES) * line + np.uint64(WORD) * np.uint64(lane)


def layout(chains: int, sms: int) -> Walk:
    """The launch of so many chains on each SM: warps first, then more chains a thread; DeviceError else.

    One chain alone is one thread.
    """
    if chains == sms == 1:
        return Walk(Launch(1, 1), 1, 1)
    each = next((k for k in chases.CHAINS if chains <= k * WARPS and chains % k == 0), 0)
    if not each:
        raise DeviceError(f"{chains} chains an SM: want 1 to {WARPS * chases.CHAINS[-1]}, a multiple of 8")
    return Walk(Launch(sms, chains // each * LANES), each, LANES)


def chains_of(point: Point) -> int:
    """Chains of an SM that a variant names: "1 chain", "8 chains"; DeviceError where it names none."""
    if not (found := re.fullmatch(r"([1-9]\d*) chains?", point.variant or "1 chain")):
        raise DeviceError(f"{point.variant!r} names no number of chains: want e.g. '1 chain' or '8 chains'")
    return int(found[1])


class Latencies:
    """Prepares pointer chases.

    sizes: bytes of an SM's share of the one cycle that all chains walk on (of the whole where one SM walks);
    threads: SMs in use;  variant: chains on each;  plateau: of L2 and DRAM, past L1
    """

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.device, self.engine = bodies, bodies.device, bodies.engine

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """The latency itself."""
        return ("1 chain",)

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured on this GPU, "" if it can."""
        if point.kernel != "chase":
            return f"{point.kernel} is for CPUs: pages of a GPU are as large as its windows"
        own = SHARED_LINE if point.level == SHARED else LINE_BYTES
        if (line := point.sizes.get("line", own)) != own:
            return f"lines of {line} byte: a GPU's are {LINE_BYTES}, places in shared memory {SHARED_LINE}"
        if not 1 <= point.threads <= self.device.threads:
            return f"this GPU has {self.device.threads} SMs, not {point.threads}"
        try:
            layout(chains_of(point), point.threads)
        except DeviceError as error:
            return str(error)
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Write the cycle into memory and put the chains on it, evenly; past L2 none of it is in a cache."""
        walk = layout(chains_of(point), point.threads)
        if point.level == SHARED:
            return self._shared(point)
        operator = "cg" if "plateau" in point.sizes and point.level != "L1" else "ca"
        chosen = self._chosen(f"{operator} {walk.chains}", walk.launch.block)
        count = max(point.sizes["bytes"] * point.threads // LINE_BYTES, 2 * walk.walkers)
        lines = self._linked(*chases.cycle(np, count))
        if 0 < self.device.last_level_cache_bytes < count * LINE_BYTES:
            with translated("emptying the cache"):
                self.engine.flush()  # of what was just written it holds a share, which loads would find there
        a, once = self._walking(chosen, walk, lines)
        ready = Ready(
            Task(f"chase of {walk.walkers} chains", once, whole=True),
            lambda: self._check(chosen, walk),
            [a, lines],
            told=lambda amount, batch: self._told(a, walk, amount, batch),
        )
        facts = self._facts(chosen, walk, lines=count, operator=operator)
        if point.level == "L2" and "plateau" in point.sizes and walk.walkers == 1:
            facts["cycles_by_line"] = self.by_line()
        return Prepared(point, self._work(point, walk), 1, MOST_TRIPS, 1, facts, ready)

    def _chosen(self, variant: str, block: int) -> Chosen:
        return self.bodies.compiled(FAMILY, chases.BY_VARIANT[variant], block)

    def _facts(self, chosen: Chosen, walk: Walk, **more: Any) -> dict[str, Any]:
        sizes = {"line_bytes": LINE_BYTES, "stride_bytes": LINE_BYTES, "chains": walk.walkers}
        return self.bodies.facts(chosen, walk.launch, **sizes, **more)

    def _work(self, point: Point, walk: Walk, line: int = LINE_BYTES) -> Any:
        def work(amount: int) -> Work:
            sizes = {"n": walk.walkers * walk.steps * amount, "line": line}
            return KERNELS[point.kernel].work(WORD, sizes, point.level)

        return work

    def _linked(self, order: Any, following: Any) -> Lines:
        """Lines in memory, each word of which points to the same word of the line that follows."""
        link, engine = self._chosen("link", LINK_SHAPE.block), self.engine
        memory, after = engine.allocate(len(following) * LINE_BYTES), engine.upload(following)
        self.bodies.launcher(link, LINK_SHAPE, (memory, after, None, None), len(following))(1)
        return Lines(memory, order, following, [after])

    def _walking(self, chosen: Chosen, walk: Walk, lines: Lines) -> tuple[Any, Any]:
        """Places and clocks in memory, and launch(trips); each launch goes on where the last one ended."""
        a = self.engine.upload(np.append(self._starts(walk, lines), np.zeros(walk.launch.threads, np.uint64)))
        n = walk.launch.threads
        return a, self.bodies.launcher(chosen, walk.launch, (a, None, None, None), n)

    def _starts(self, walk: Walk, lines: Lines, steps: int = 0) -> Any:
        """Addresses at which the chains of each thread stand after so many steps, evenly over the cycle."""
        first = np.arange(walk.walkers) * len(lines.order) // walk.walkers
        at = lines.order[(first + steps) % len(lines.order)].reshape(-1, 1, walk.chains)
        words = (np.arange(walk.lanes, dtype=np.uint64) % np.uint64(WORDS))[None, :, None]
        return lines.address(at, words).reshape(-1)

    def _told(self, a: Any, walk: Walk, amount: int, batch: Batch) -> Mapping[str, Any]:
        """Clock cycles of a load by the SM's own clock in the last repetition, and that clock's rate."""
        threads, places = walk.launch.threads, walk.launch.threads * walk.chains
        cycles = self.engine.download(a.ptr + WORD * places, WORD * threads)[0].view(np.uint64)
        middle = median(float(c) for c in cycles[:: walk.lanes])
        facts = {"cycles_per_load": middle / (walk.steps * amount), "counted_seconds": batch.seconds[-1]}
        return facts | {"counted_clock_hz": middle / batch.seconds[-1]}

    def _check(self, chosen: Chosen, walk: Walk) -> None:
        """Chains on a small cycle must stand where NumPy says, and the clock must have moved."""
        lines = self._linked(*chases.cycle(np, CHECKED_LINES + 2 * walk.walkers))
        a, once = self._walking(chosen, walk, lines)
        places = walk.launch.threads * walk.chains
        once(CHECKED_TRIPS)
        got = self.engine.download(a.ptr, WORD * (places + walk.launch.threads))[0].view(np.uint64)
        steps = CHECKED_TRIPS * walk.steps
        start = lines.order[np.arange(walk.walkers) * len(lines.order) // walk.walkers].astype(np.int64)
        at = latency.reference(np, lines.following.astype(np.int64), start, steps).astype(np.uint64)
        words = (np.arange(walk.lanes, dtype=np.uint64) % np.uint64(WORDS))[None, :, None]
        want = lines.address(at.reshape(-1, 1, walk.chains), words).reshape(-1)
        offset = np.uint64(lines.memory.ptr)
        compare(
            "chase", (got[:places] - offset).astype(np.float64), (want - offset).astype(np.float64), EXACTLY
        )
        compare("chase's clock", got[places:] > 0, True, EXACTLY)

    # -- shared memory, and the lines of L2 one by one --------------------------------------------------

    def _shared(self, point: Point) -> Prepared:
        """One thread on a cycle of 4-byte places in shared memory, filled anew in every launch."""
        walk = Walk(Launch(1, FILLING), 1, FILLING)
        chosen = self._chosen("shared 1", FILLING)
        a, b, once = self._in_shared(chosen)
        ready = Ready(
            Task("chase in shared memory", once, whole=True),
            lambda: self._check_shared(chosen),
            [a, b],
            told=lambda amount, batch: self._told_shared(a, amount, batch),
        )
        facts = self._facts(chosen, walk) | {"line_bytes": SHARED_LINE, "stride_bytes": SHARED_LINE}
        return Prepared(point, self._work(point, walk, SHARED_LINE), 1, MOST_TRIPS, 1, facts, ready)

    def _in_shared(self, chosen: Chosen) -> tuple[Any, Any, Any]:
        _, following = chases.cycle(np, SHARED_WORDS)
        a, b = self.engine.upload(np.zeros(2, np.uint64)), self.engine.upload(following)
        return a, b, self.bodies.launcher(chosen, Launch(1, FILLING), (a, b, None, None), 1)

    def _told_shared(self, a: Any, amount: int, batch: Batch) -> Mapping[str, Any]:
        cycles = float(self.engine.download(a.ptr, 2 * WORD)[0].view(np.uint64)[1])
        facts = {"cycles_per_load": cycles / (LOADS * amount), "counted_seconds": batch.seconds[-1]}
        return facts | {"counted_clock_hz": cycles / batch.seconds[-1]}

    def _check_shared(self, chosen: Chosen) -> None:
        a, _, once = self._in_shared(chosen)
        once(CHECKED_TRIPS)
        place, cycles = self.engine.download(a.ptr, 2 * WORD)[0].view(np.uint64)
        following = chases.cycle(np, SHARED_WORDS)[1].astype(np.int64)
        want = latency.reference(np, following, [0], CHECKED_TRIPS * LOADS)[0]
        compare("chase in shared memory", float(place), float(want), EXACTLY)
        compare("chase's clock", cycles > 0, True, EXACTLY)

    def by_line(self) -> dict[str, float]:
        """Clock cycles of one load of each of many lines in L2, seen from one SM: near and far parts show.

        Where L2 is in two parts the figures have two humps; least and most, tenths and median of the lines.
        """
        lines = np.arange(NEAR_AND_FAR * SPREAD, dtype=np.uint64)
        linked, chosen = self._linked(lines, lines), self._chosen("lines", 1)
        a = self.engine.upload(np.zeros(2 * NEAR_AND_FAR, np.uint64))
        s = self.engine.upload(np.full(1, linked.memory.ptr, np.uint64))
        self.bodies.launcher(chosen, Launch(1, 1), (a, None, None, s), NEAR_AND_FAR)(WAITS)
        got = self.engine.download(a.ptr + WORD * NEAR_AND_FAR, WORD * NEAR_AND_FAR)[0].view(np.uint64)
        cycles = got.astype(np.float64) / (WAITS * LOADS)
        names = ("least", "p10", "median", "p90", "most")
        return dict(zip(names, map(float, np.quantile(cycles, (0, 0.1, 0.5, 0.9, 1))), strict=True))
