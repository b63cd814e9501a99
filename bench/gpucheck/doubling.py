"""Checks that work takes its time: twice the FLOP, the bytes, the intensity; and times that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from bench.gpucheck.bed import SHORT, Bed, sized
from bench.gpucheck.check import Check, skipped, within
from bench.profile.records import Point


def doubled_flops(bed: Bed) -> Iterator[Check]:
    """Twice the trips of a counted loop take twice the time, in every precision of every chain."""
    for point in bed.one_each(("fma", "tensor"), lambda p: (p.kernel, p.precision.label)):
        with bed.prepared(point) as prepared:
            amount = min(bed.amount(prepared, SHORT), prepared.most // 2)
            ratio = interleaved(lambda n: bed.fastest(prepared, n, 2), amount, 2 * amount)
        yield within(f"2x FLOP {point.kernel} {point.precision.label}", ratio, 1.92, 2.08)


def doubled_bytes(bed: Bed) -> Iterator[Check]:
    """Twice the bytes of an array take twice the time, for every access."""
    for point in bed.one_each(("stream",), lambda p: p.kernel):
        seconds = []
        for size in (point.sizes["bytes"] // 2, point.sizes["bytes"]):
            with bed.prepared(sized(point, bytes=size)) as prepared:
                amount = bed.amount(prepared, SHORT)
                declared = prepared.work(amount).bytes(point.level)
                seconds.append(bed.fastest(prepared, amount) / declared * size)
        yield within(f"2x byte {point.kernel}", seconds[1] / seconds[0], 1.84, 2.16)


def more_intensity(bed: Bed) -> Iterator[Check]:
    """Far above the ridge time grows as the multiply-adds on the same bytes do."""
    loops: dict[tuple[Any, ...], list[Point]] = {}
    for point in bed.supported(("mix",)):
        block = point.sizes.get("block")
        loops.setdefault((point.kernel, point.precision.label, point.variant, block), []).append(point)
    pairs = [sorted(found, key=lambda p: p.sizes["fma"])[-2:] for found in loops.values() if len(found) > 1]
    if not pairs:
        yield skipped("more FLOP/byte", "no intensity sweep runs here")
        return
    pair = {p.sizes["fma"]: p for p in max(pairs, key=lambda found: found[0].sizes["fma"])}

    def seconds(fma: int) -> float:
        with bed.prepared(pair[fma]) as prepared:
            amount = bed.amount(prepared, SHORT)
            return bed.fastest(prepared, amount) / amount

    less, more = pair
    ratio = interleaved(seconds, less, more) / (more / less)
    yield within(f"{more / less:g}x FLOP/byte {pair[more].kernel}", ratio, 0.92, 1.04)


def interleaved(seconds: Callable[[int], float], small: int, large: int) -> float:
    """Ratio of their times: the median of three pairs in changing order.

    Neither a drifting clock decides it, nor one that power cuts in the first pair: the fastest times of all
    would set a small one before the cut against a large one after it.
    """
    ratios = []
    for turn in range(3):
        order = (large, small) if turn % 2 else (small, large)
        taken = {amount: seconds(amount) for amount in order}
        ratios.append(taken[large] / taken[small])
    return median(ratios)
