"""The host as all kinds of points share it: its pinned threads, their clock, and memory they have touched."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import host
from bench.device import Device
from bench.errors import DeviceError
from bench.native import abi, emit, isa, jit, loops
from bench.native.arena import Arena, block
from bench.native.cycle import Cycles
from bench.native.emit import CLOCK_STEPS, Form
from bench.native.memory import Region
from bench.native.team import Team
from bench.profile.records import Repetitions
from kernels.dots import narrow
from kernels.fma import FACTOR
from kernels.spec import ITEM_BYTES, ChainShape

NAP_NS = 500_000
DISTURBED = 0.2  # share of cut repetitions in a batch from which threads nap before each one

CLOCK_SECONDS, CLOCK_TRIALS = 40e-6, 5
"""Length of one run of the clock chain, and of how many the fastest counts: the others were interrupted."""


Warm = tuple[int, list[Any]]
"""A native function that warms up, and its argument block for every thread."""


class Machine:
    """What makers of points get: the device, its instruction set, the thread team and shared memory.

    DeviceError on a CPU that no loops are emitted for.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or host.cpu_device()
        try:
            self.isa = isa.host(self.device.facts.get("isa", ()))
        except RuntimeError as error:
            raise DeviceError(
                f"the CPU cannot be measured here: {error}; try --device cuda:0 or sim:NAME"
            ) from None
        self.team = Team(self.device.facts["cpus"], self.isa)
        self.arenas: dict[tuple[int, int], Arena] = {}
        self.cycles = Cycles(self.team, self.device.last_level_cache_bytes)
        self._nap = 0
        self._narrow: dict[str, Region] = {}
        self._chain = jit.address(emit.loop_ir(ChainShape(), Form(chains=8), self.isa, "fp64"), self.isa)
        self._seeds = [loops.operands("f8") for _ in self.team.cpus]
        self._warm = [block(span=1, factor=FACTOR, result=seed.address) for seed in self._seeds]
        self._ticks = [Region(64) for _ in self.team.cpus]
        self._clock = [block(a=1, b=3, span=1, result=region.address) for region in self._ticks]
        self._size(self._chain, self._warm, 20_000, loops.WARM_SECONDS)

    def _size(self, function: int, blocks: list[Any], trial: int, seconds: float) -> None:
        """Trips of a chain that take `seconds`."""
        for args in blocks:
            args[abi.SPAN] = trial
        rows = self.timed(function, blocks, np.zeros(5, np.int64))
        taken = min(loops.repetitions(rows).seconds)
        for args in blocks:
            args[abi.SPAN] = max(1, int(trial * seconds / max(taken, 1e-7)))

    @property
    def threads(self) -> int:
        """Threads of the team, one a core."""
        return len(self.team.cpus)

    def last_level_share(self, threads: int) -> float:
        """Bytes of the last cache level that each of the first `threads` threads may count on."""
        last = self.device.caches[-1] if self.device.caches else None
        return last.bytes / max(1, min(threads, last.sharers)) if last else 0.0

    def timed(
        self, function: int, blocks: list[Any], offsets: Any, warm: Warm | None = None, in_a_row: bool = False
    ) -> Any:
        """Rows of a native function on the team, warmed up after every pause: by the chain without `warm`.

        in_a_row: no naps between repetitions on a busy machine, since what lies in a cache would leave it
        """
        nap = 0 if in_a_row else self._nap
        return self.team.run(function, blocks, warm or (self._chain, self._warm), offsets, nap)

    def repeat(self, function: int, blocks: list[Any], offsets: Any, warm: Warm | None = None) -> Repetitions:
        """The same as repetitions; where many were cut short by others, the next batch naps between them."""
        taken = loops.repetitions(self.timed(function, blocks, offsets, warm))
        disturbed = 1 - sum(taken.clean) / len(taken)
        self._nap = NAP_NS if disturbed > DISTURBED or (self._nap and disturbed > 0) else 0
        return taken

    def chain(self, n: int) -> None:
        """Run the warm-up chain n times on every thread."""
        self.timed(self._chain, self._warm, np.zeros(n, np.int64))

    def clock_hz(self, threads: int) -> float:
        """The clock that the slowest of the first `threads` threads runs at now, from dependent additions."""
        function = jit.address(emit.clock_ir(self.isa), self.isa)
        if self._clock[0][abi.SPAN] == 1:
            self._size(function, self._clock, 2_000, CLOCK_SECONDS)
        rows = self.timed(function, self._clock[:threads], np.zeros(CLOCK_TRIALS, np.int64))
        seconds = (rows[:, :, abi.END] - rows[:, :, abi.START]).min(1).max() * 1e-9
        return float(self._clock[0][abi.SPAN] * CLOCK_STEPS / seconds)

    def narrow(self, inputs: str) -> int:
        """Address of one vector of random items of a dot product: bf16 or int8."""
        if inputs not in self._narrow:
            self._narrow[inputs] = Region(self.isa.vector_bytes)
            items = self.isa.vector_bytes // ITEM_BYTES[inputs]
            numbers = np.random.default_rng(items).integers(1, 128, items)
            self._narrow[inputs].array[:] = narrow(np, inputs, numbers)
        return self._narrow[inputs].address

    def arena(self, bytes: int, threads: int) -> Arena:
        """The arrays, remade only when larger ones or another split is asked for."""
        for (size, split), arena in self.arenas.items():
            if size >= bytes and split == threads:
                return arena
        self.arenas.clear()
        arena = Arena(bytes, threads, self.team, self.isa)
        self.arenas[bytes, threads] = arena
        return arena
