"""Random cycles of pointers through memory, one a thread: what a pointer chase walks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from bench.native.memory import HUGE_PAGE, Region, huge_share
from bench.native.team import Team
from kernels.latency import LINE_BYTES

SEED = 20261205
KEPT = 2.0
"""Cycles stay for the next point as long as all of them take no more than this many times the largest."""


def order_of(lines: int, window: int, seed: int) -> Any:
    """Line numbers in the order of a random cycle: a uniformly random permutation, read as a ring.

    window: lines of a window (0: all are one); windows follow each other at random, lines within each too.
    """
    draw = np.random.default_rng(seed)
    kind = np.int32 if lines < 1 << 31 else np.int64
    if not window or window >= lines:
        order = np.arange(lines, dtype=kind)
        draw.shuffle(order)
        return order
    inside = np.tile(np.arange(window, dtype=kind), (-(-lines // window), 1))
    inside = draw.permuted(inside, axis=1) + window * draw.permutation(len(inside)).astype(kind)[:, None]
    return inside[inside < lines]  # the last window may be a broken one


class Cycle:
    """A set of `bytes` byte whose every line holds the address of the next, in one cycle over all lines.

    Whoever makes it touches its memory first. MemoryError when the system refuses it.
    """

    def __init__(self, bytes: int, window_bytes: int, seed: int) -> None:
        self.lines = bytes // LINE_BYTES
        self.region = Region(max(bytes, HUGE_PAGE))  # smaller ones would not get a huge page
        self.order = order_of(self.lines, window_bytes // LINE_BYTES, seed)
        first = self.region.view(np.int64, 0, self.lines * LINE_BYTES // 8)[:: LINE_BYTES // 8]
        first[self.order] = self.address(np.roll(self.order, -1))

    @cached_property
    def huge_pages(self) -> float | None:
        """Share of its memory that lies in huge pages; None where Linux does not say, and of a set that one
        page of them would hold: to ask takes longer than to walk it."""
        return huge_share(self.region) if self.lines * LINE_BYTES > HUGE_PAGE else None

    def address(self, line: Any) -> Any:
        """Where a line begins, or lines begin."""
        return np.asarray(line, np.int64) * LINE_BYTES + self.region.address

    def places(self, chains: int, steps: int = 0) -> Any:
        """Addresses at which chains stand `steps` loads after they started, spread evenly over the cycle."""
        starts = np.arange(chains, dtype=np.int64) * self.lines // chains
        return self.address(self.order[(starts + steps) % self.lines])


class Cycles:
    """The cycles of a team of threads, kept for the points that share a set, and what clears the caches.

    cache_bytes: of all last-level caches together
    """

    def __init__(self, team: Team, cache_bytes: int) -> None:
        self._team = team
        self._kept: dict[tuple[int, int, int], list[Cycle]] = {}
        self._part = 2 * cache_bytes // len(team.cpus)
        self._sweep: list[Any] = []

    def of(self, bytes: int, window_bytes: int, threads: int) -> list[Cycle]:
        """A cycle of `bytes` byte for each of `threads` threads, in memory that it touched first."""
        wanted = (bytes, window_bytes, threads)
        found = self._kept.pop(wanted, None)
        self._kept[wanted] = found or self._made(wanted)
        sizes = {key: key[0] * key[2] for key in self._kept}
        for key in list(self._kept)[:-1]:  # the oldest go first
            if sum(sizes.values()) > KEPT * max(sizes.values()):
                del self._kept[key], sizes[key]
        return self._kept[wanted]

    def _made(self, wanted: tuple[int, int, int]) -> list[Cycle]:
        bytes, window_bytes, threads = wanted
        made: dict[int, Cycle] = {}

        def make(thread: int) -> None:
            if thread < threads:
                made[thread] = Cycle(bytes, window_bytes, SEED + thread)

        self._team.each(make)
        return [made[thread] for thread in range(threads)]

    def flush(self) -> None:
        """Read twice what all caches hold, so that nothing of a set is left in them."""
        if not self._part:
            return
        if not self._sweep:
            self._sweep = [Region(self._part) for _ in self._team.cpus]
            self._team.each(lambda thread: self._sweep[thread].array.fill(1))
        self._team.each(lambda thread: self._sweep[thread].view(np.int64, 0, self._part // 8).sum())
