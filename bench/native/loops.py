"""One compiled loop on one thread team: its argument blocks, its window on the arrays, its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.native import abi
from bench.native.arena import RESULT_BYTES, block
from bench.native.emit import CHAIN_UNROLL, Form
from bench.native.isa import Isa
from bench.native.memory import Region
from bench.profile.records import Repetitions
from kernels.mix import BLOCK_VECTORS
from kernels.spec import MixShape, Shape

WARM_SECONDS = 1.2e-3
"""Chain after a pause: longer than the clock's ramp leaves visible."""


@dataclass
class Window:
    """Which bytes of every stream a repetition walks.

    part: bytes of one thread's stream;  unit: bytes of one block, all sub-streams together
    A repetition of `amount` blocks walks amount x unit bytes and moves on, so that the next
    finds cold ones; beyond the part, whole passes over it.
    """

    part: int
    unit: int
    position: int = 0

    @property
    def most(self) -> int:
        """Blocks in the part."""
        return self.part // self.unit

    def cut(self, amount: int) -> tuple[int, int]:
        """Blocks to walk and passes over them."""
        return (amount, 1) if amount <= self.most else (self.most, -(-amount // self.most))

    def offsets(self, blocks: int, repetitions: int) -> Any:
        """Byte offset of each of the next repetitions, wrapping around before the end."""
        slots = max(1, self.most // blocks)
        first, self.position = self.position, (self.position + repetitions) % slots
        return (first + np.arange(repetitions, dtype=np.int64)) % slots * (blocks * self.unit)


def block_bytes(shape: Shape, form: Form, isa: Isa) -> int:
    """Bytes of one stream that one block of the loop walks."""
    vectors = BLOCK_VECTORS if isinstance(shape, MixShape) else form.streams * form.vectors
    return vectors * isa.vector_bytes


def operands(kind: str) -> Region:
    """A result region whose vectors of NumPy type `kind` all hold 1 (the chains' start)."""
    region = Region(RESULT_BYTES)
    region.view(kind, 0, RESULT_BYTES // np.dtype(kind).itemsize)[:] = 1.0
    return region


def repetitions(rows: Any) -> Repetitions:
    """Rows [thread, repetition, word] as evidence: the team's time is last end minus first start."""
    start, end = rows[:, :, abi.START].min(0), rows[:, :, abi.END].max(0)
    wall = rows[:, :, abi.END] - rows[:, :, abi.START]
    used = rows[:, :, abi.CPU_END] - rows[:, :, abi.CPU_START]
    switches = (rows[:, :, abi.SWITCHES_END] - rows[:, :, abi.SWITCHES_START]).sum(0)
    share = (used / np.maximum(wall, 1)).min(0)
    return Repetitions(
        start=tuple((start * 1e-9).tolist()),
        seconds=tuple(((end - start) * 1e-9).tolist()),
        switches=tuple(switches.tolist()),
        cpu_share=tuple(np.minimum(share, 1.0).round(4).tolist()),
    )


def scalar_fmas(form: Form, lanes: int, threads: int, amount: int) -> int:
    """Scalar FMAs of `amount` iterations on all threads: chains x lanes x unrolled steps."""
    return amount * CHAIN_UNROLL * form.chains * lanes * threads


def blocks_for(
    addresses: Sequence[Sequence[int]],
    results: Sequence[Region],
    span: int,
    passes: int,
    rounds: int,
    m: float,
) -> list[Any]:
    """Argument blocks of a team: the addresses of a, b and c of each thread, one span for all."""
    return [
        block(a=a, b=b, c=c, span=span, passes=passes, rounds=rounds, factor=m, result=result.address)
        for (a, b, c), result in zip(addresses, results, strict=True)
    ]
