"""Latency kernels: pointer chases, whose every load waits for the one before it.

    kernel        what it walks
    chase         a random cycle over all lines of the set
    chase-local   the same lines, at random within windows of 128 KiB: page tables play next to no part

    place = table[place]      one load of a pointer, of a line that nothing but this load touches

A line holds one pointer, so a load moves a whole line and nothing can be fetched ahead: seconds per load of
one chain are the latency. k independent chains walked in turn keep k lines in flight; by Little's law their
rate is k x line / latency until the machine runs out of places to wait in, and the curve of that rate
against the bytes in flight is what a kernel with so much parallelism can get.

Bytes are lines touched x bytes of a line (64, or what `sizes["line"]` says), not the pointer's eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.spec import ChaseShape, Kernel, Work

LINE_BYTES = 64
"""Bytes of a cache line of x86-64 and of nearly every AArch64."""

WINDOW_BYTES = 128 << 10
"""32 pages of 4 KiB: half of what the smallest first-level TLB of today's cores holds, and 2048 lines in
random order, too many for a prefetcher to see a pattern in."""


def chase(table: Any, starts: Any, steps: int) -> Any:
    places = list(starts)
    for _ in range(steps):
        for chain in range(len(places)):
            places[chain] = table[places[chain]]
    return places


def reference(np: Any, table: Any, starts: Any, steps: int) -> Any:
    """Where the chains stand after `steps`: powers of the permutation, squared as often as steps has bits."""
    places, jump = np.asarray(starts), np.asarray(table)
    while steps:
        if steps & 1:
            places = jump[places]
        jump, steps = jump[jump], steps >> 1
    return places


def work(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["n"]` loads, of all chains together: a line each, of `sizes["line"]` byte (64)."""
    return Work.at(level, 0.0, reads=sizes["n"] * sizes.get("line", LINE_BYTES), writes=0.0)


KERNELS = tuple(
    Kernel(name, "latency", "read", work, chase, reference, shape)
    for name, shape in (("chase", ChaseShape()), ("chase-local", ChaseShape(WINDOW_BYTES)))
)
