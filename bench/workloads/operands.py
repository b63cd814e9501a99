"""Operands of a workload: aligned memory in one region, shared out to threads, filled by those threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.native.memory import Region
from bench.workloads.primitives import doubles, floats
from bench.workloads.workload import Run
from kernels.latency import LINE_BYTES as LINE_BYTES
from kernels.spec import ITEM_BYTES

PAGE_BYTES = 4096
STAGGER_LINES = 5  # arrays start at different lines of a page: equal ones would share cache sets
GOLDEN, ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
HALF, TOP = np.uint64(32), np.uint64(11)
UNIT = 2.0**-53


class Operands:
    """Named arrays in one region, `sets` copies of all of them `stride` bytes apart."""

    def __init__(self, layout: Mapping[str, int], sets: int = 1) -> None:
        self._starts: dict[str, int] = {}
        self._bytes = dict(layout)
        place = 0
        for k, (name, size) in enumerate(layout.items()):
            place = math.ceil(place / PAGE_BYTES) * PAGE_BYTES + k * STAGGER_LINES % 64 * LINE_BYTES
            self._starts[name] = place
            place += size
        self.stride = math.ceil(place / PAGE_BYTES) * PAGE_BYTES
        self.sets = sets
        self.region = Region(self.stride * sets)

    @property
    def windows(self) -> tuple[int, ...]:
        """Byte offset of every set from the first."""
        return tuple(s * self.stride for s in range(self.sets))

    def address(self, name: str, item: int = 0, item_bytes: int = 1) -> int:
        """Address of an item of an array of the first set."""
        return self.region.address + self._starts[name] + item * item_bytes

    def view(self, name: str, dtype: Any, shape: tuple[int, ...], of_set: int = 0) -> Any:
        """An array of one set as NumPy sees it."""
        items = math.prod(shape)
        return self.region.view(dtype, self._starts[name] + of_set * self.stride, items).reshape(shape)

    def fill(self, run: Run, threads: int, names: Mapping[str, tuple[float, float]], precision: str) -> None:
        """Random values in low ... high for each named array of every set, written by the threads."""
        item = ITEM_BYTES[precision]
        for s, shift in enumerate(self.windows):
            for k, (name, (low, high)) in enumerate(names.items()):
                seed = s * 1009 + k * 101
                fill(
                    run,
                    threads,
                    self.address(name) + shift,
                    self._bytes[name] // item,
                    precision,
                    (low, high),
                    seed,
                )


def sets_beyond(cache_bytes: float, set_bytes: float) -> int:
    """Operand sets (at least 2) that together exceed twice the last-level caches."""
    return max(2, math.ceil(2 * cache_bytes / set_bytes))


def shares(total: int, parts: int, grain: int = 1) -> list[tuple[int, int]]:
    """First and last+1 of `total` items for each part, cut at multiples of `grain`; some may be empty."""
    grains = math.ceil(total / grain)
    cuts = [min(total, grains * p // parts * grain) for p in range(parts + 1)]
    return list(itertools.pairwise(cuts))


def blocks(rows: Sequence[tuple[int, ...]]) -> list[Any]:
    """Argument blocks of int64: word 0 for the offset of the repetition, then each row."""
    return [np.array([0, *row], np.int64) for row in rows]


def mixed(index: Any, seed: Any) -> Any:
    """A well-mixed number in [0, 1) from an index: multiply and fold, twice."""
    x = (np.uint64(index) + np.uint64(seed)) * GOLDEN
    x = (x ^ (x >> HALF)) * ODD
    x = (x ^ (x >> HALF)) * ODD
    return np.float64((x ^ (x >> HALF)) >> TOP) * UNIT


def fill_doubles(args: Any) -> None:
    """Chunk: address, first index, count, seed, address of low and high."""
    x, bounds = doubles(args[1], args[3]), doubles(args[5], 2)
    low, span = bounds[0], bounds[1] - bounds[0]
    for i in range(len(x)):
        x[i] = low + span * mixed(args[2] + i, args[4])


def fill_floats(args: Any) -> None:
    """As fill_doubles, in fp32."""
    x, bounds = floats(args[1], args[3]), doubles(args[5], 2)
    low, span = bounds[0], bounds[1] - bounds[0]
    for i in range(len(x)):
        x[i] = low + span * mixed(args[2] + i, args[4])


def fill(
    run: Run, threads: int, address: int, count: int, precision: str, bounds: tuple[float, float], seed: int
) -> None:
    """Write `count` random items in low ... high, each part by the thread that will use it."""
    from bench.workloads import compiled

    body, item = {"fp64": fill_doubles, "fp32": fill_floats}[precision], ITEM_BYTES[precision]
    edge = np.array(bounds, np.float64)
    parts = shares(count, threads, LINE_BYTES // item)
    rows = [(address + item * a, a, b - a, seed, edge.ctypes.data) for a, b in parts]
    run(compiled.address(body, mixed), blocks(rows))
