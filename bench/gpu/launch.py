"""How many blocks of how many threads a kernel is launched with, the same for every CUDA backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.errors import DeviceError


@dataclass(frozen=True)
class Launch:
    """The shape of one launch: `grid` blocks of `block` threads."""

    grid: int
    block: int

    @property
    def threads(self) -> int:
        """Threads of the whole grid."""
        return self.grid * self.block

    @property
    def text(self) -> str:
        """As it is kept in the record and printed: 1056 x 256."""
        return f"{self.grid} x {self.block}"


WAVES, TILES = 8, 8
"""Most blocks that follow each other in a place of a persistent grid, and tiles that each passes at least."""


def in_waves(held: Launch, tiles: int) -> tuple[Launch, int]:
    """A grid that fits at once as one of up to WAVES times as many blocks; the tiles that they share evenly.

    SMs do not get equal shares of a busy memory: with one block for all of its work, one that is done early
    would wait for the last one; so it takes a further block. Too few tiles stay as they are, in one wave.
    """
    grid = held.grid * max(1, min(WAVES, tiles // (TILES * held.grid)))
    return Launch(grid, held.block), tiles // grid * grid if tiles >= TILES * grid else tiles


def split_variant(variant: str) -> tuple[str, int]:
    """Form and block size that a point's variant names: "v16 l4 b256" -> ("v16 l4", 256)."""
    if not (found := re.fullmatch(r"(.+) b(\d+)", variant)):
        raise DeviceError(f"{variant!r} names no block size: want e.g. '8 chains b256' or 'v16 l4 b256'")
    return found[1], int(found[2])


def stream_form(form: str) -> tuple[int, int]:
    """Bytes of one access and accesses in flight that a stream's form names: "v16 l4" -> (16, 4)."""
    if not (found := re.fullmatch(r"v(\d+) l(\d+)", form)):
        raise DeviceError(
            f"{form!r} is no form of a stream: want e.g. 'v16 l4' (16 bytes a load, 4 in flight)"
        )
    return int(found[1]), int(found[2])


def launch_shape(
    grid: str,
    block: int,
    facts: Mapping[str, Any],
    items: int = 0,
    items_a_thread: int = 0,
    blocks_per_sm: int | None = None,
) -> Launch:
    """The launch of a form (CudaForm.grid and .items) with `block` threads a block on a device.

    cover:      as many blocks as `items` need, `items_a_thread` each; a last one may be partly idle
    persistent: what the device holds at once: SMs x (threads an SM holds // block)
    facts: Device.facts of a GPU: sm_count, max_threads_per_sm
    blocks_per_sm: of the compiled function where registers or shared memory allow fewer than its threads
    """
    if grid == "cover":
        if items < 1 or items_a_thread < 1:
            raise DeviceError(f"{items} items, {items_a_thread} a thread: a grid that covers them needs both")
        return Launch(-(-items // (block * items_a_thread)), block)
    if grid != "persistent":
        raise DeviceError(f"unknown grid {grid!r}; valid: cover, persistent")
    held = int(facts["max_threads_per_sm"]) // block
    held = held if blocks_per_sm is None else min(held, blocks_per_sm)
    if held < 1:
        raise DeviceError(f"a block of {block} threads does not fit on an SM: choose a smaller one")
    return Launch(int(facts["sm_count"]) * held, block)
