"""The stages of a chunk of the pipelining experiment on a GPU: it arrives, is computed on, and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.gpu.bodies import Bodies, Chosen
from bench.gpu.engine import Engine
from bench.gpu.launch import Launch, launch_shape
from kernels import overlap
from kernels.spec import ITEM_BYTES

ITEM, PAIR = ITEM_BYTES["fp64"], 2
"""Bytes of an item; items of a thread at a time, and sums that it keeps."""


@dataclass
class Stages:
    """The three stages of one chunk, queued on whatever stream they are told; `fma` steps an item."""

    bodies: Bodies
    chosen: Chosen
    host: Sequence[Any]
    size: int
    chunks: int
    back: bool
    fma: int = 0
    memory: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        engine = self.engine
        self.part = self.size // self.chunks
        pairs = self.part // (PAIR * ITEM)
        launch = launch_shape(
            "persistent", self.chosen.block, self.bodies.device.facts, blocks_per_sm=self.chosen.blocks_per_sm
        )
        self.shape = Launch(max(1, min(launch.grid, -(-pairs // launch.block))), launch.block)
        self.data = engine.allocate(self.size)
        self.result = engine.allocate(self.size if self.back else self.shape.threads * PAIR * ITEM)
        self.factor = engine.upload(np.full(1, overlap.FACTOR))
        self.memory += [self.data, self.result, self.factor]

    @property
    def sums(self) -> Any:
        """What every thread has added up, all chunks together."""
        return self.engine.download(self.result.ptr, self.shape.threads * PAIR * ITEM)[0].view(np.float64)

    @property
    def engine(self) -> Engine:
        """The GPU."""
        return self.bodies.engine

    def arrive(self, chunk: int, stream: Any) -> None:
        """Copy in."""
        self._copy(self.data.ptr, self.host[0].ptr, chunk, "HostToDevice", stream)

    def leave(self, chunk: int, stream: Any) -> None:
        """Copy out."""
        self._copy(self.host[1].ptr, self.result.ptr, chunk, "DeviceToHost", stream)

    def _copy(self, to: int, source: int, chunk: int, kind: str, stream: Any) -> None:
        runtime, offset = self.engine.cupy.cuda.runtime, chunk * self.part
        kind = getattr(runtime, f"memcpy{kind}")
        runtime.memcpyAsync(to + offset, source + offset, self.part, kind, stream.ptr)

    def compute(self, chunk: int) -> None:
        """On the timed stream; sums are added to those of the chunks before."""
        offset = chunk * self.part
        a = self.result.ptr + offset * self.back
        before = 0 if self.back or not chunk else self.result.ptr
        pointers = tuple(map(np.uintp, (a, self.data.ptr + offset, before, self.factor.ptr)))
        sizes = (np.int64(self.part // ITEM), np.int32(self.fma))
        self.engine.launch(self.chosen.function, self.shape.grid, self.shape.block, (*pointers, *sizes))
