"""The three big arrays that all streaming loops share, first touched by the threads that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.native import abi, emit, jit
from bench.native.isa import Isa
from bench.native.memory import Region
from bench.native.team import Team

SEED = 20261130
RESULT_BYTES = 64 * 64  # room for 64 vectors of the widest kind


def block(**words: float) -> Any:
    """An argument block with the named words (abi names, lower case) set; `factor` as a double."""
    args = np.zeros(abi.ARGS, np.int64)
    for name, value in words.items():
        args[getattr(abi, name.upper())] = np.float64(value).view(np.int64) if name == "factor" else value
    return args


class Arena:
    """Arrays a, b and c of `bytes` bytes each, cut in equal parts for `threads` threads.

    Each thread touches and fills its own part, so that on a NUMA machine its memory is local.
    `written` remembers the precision last stored to a: bits stored as fp64 can be NaN or
    denormal as fp32, so a is filled again when the precision changes.
    """

    NAMES = ("a", "b", "c")

    def __init__(self, bytes: int, threads: int, team: Team, isa: Isa) -> None:
        self.bytes, self.threads, self._team = bytes, threads, team
        self._fill = jit.address(emit.fill_ir(isa), isa)
        self._vector = isa.vector_bytes
        self._regions = {name: Region(bytes) for name in self.NAMES}
        self.written = ""
        for name in self.NAMES:
            self.fill(name)

    @property
    def part(self) -> int:
        """Bytes of one thread's part of one array, a multiple of a page."""
        return self.bytes // self.threads // 4096 * 4096

    def addresses(self, thread: int) -> Sequence[int]:
        """Where this thread's parts of a, b and c begin."""
        return [self._regions[name].address + thread * self.part for name in self.NAMES]

    def fill(self, name: str) -> None:
        """Random operands into every part of one array, each part by its own thread."""
        seeds = np.random.default_rng(SEED + self.NAMES.index(name))
        state = [Region(RESULT_BYTES) for _ in range(self.threads)]
        for region in state:
            region.view(np.uint32, 0, 16)[:] = seeds.integers(1, 2**32, 16, dtype=np.uint32)
        base, span = self._regions[name].address, self.part // self._vector * self._vector
        blocks = [
            block(a=base + t * self.part, span=span, result=state[t].address) for t in range(self.threads)
        ]
        idle = [block(result=region.address) for region in state]
        self._team.run(self._fill, blocks, (self._fill, idle), np.zeros(1, np.int64))

    def ready_for(self, precision: str) -> None:
        """Make a hold sound numbers of `precision` before something is stored to it again."""
        if self.written not in ("", precision):
            self.fill("a")
        self.written = precision
