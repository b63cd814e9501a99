"""What a workload is: work by formula, sizes that fit the device, the best code made ready and checked."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.errors import UsageError, VerificationError
from kernels.spec import Work

MIB = 1 << 20
COLD_CACHES = 4
"""Operands together are at least this many last-level caches, so that each execution starts cold."""

LEAST_COLD_BYTES = 128 * MIB
MEMORY_SHARE = 0.25
FLOPS_PER_THREAD = {"fp64": 1.2e9, "fp32": 2.4e9}
"""Arithmetic of one compute-bound execution: some 20 to 80 ms on a thread of today. Only chooses a size."""


@dataclass(frozen=True)
class Room:
    """What sizes are chosen for: memory that may be used, last-level cache (byte, all instances), threads.

    operand_bytes: of all operands together, where a size in a cache is wanted (0: cold ones)
    """

    memory_bytes: float
    cache_bytes: float
    threads: int
    operand_bytes: float = 0.0

    @property
    def cold_bytes(self) -> float:
        """Bytes of all operands of a memory-bound workload; a small memory cuts it."""
        wanted = self.operand_bytes or max(COLD_CACHES * self.cache_bytes, LEAST_COLD_BYTES)
        return min(wanted, MEMORY_SHARE * self.memory_bytes)

    def flops(self, precision: str) -> float:
        """FLOP of one execution of a compute-bound workload."""
        return FLOPS_PER_THREAD[precision] * self.threads


@dataclass(frozen=True)
class Run:
    """Calls the native function at an address with one int64 argument block per thread, once.

    past: results are to be stored past the caches, as operands want it that exceed them
    """

    call: Callable[[int, Sequence[Any]], None]
    past: bool = True

    def __call__(self, address: int, blocks: Sequence[Any]) -> None:
        """Once, with all blocks."""
        self.call(address, blocks)


@dataclass
class Ready:
    """A workload with operands in memory and code compiled.

    kind:     native (one function, one argument block per thread) | host (timed here by perf_counter)
    native:   address of `void f(int64 *args)`; blocks: one per thread, word 0 is the byte offset of
              the repetition; windows: the offsets to cycle through, so that each finds cold operands
    host:     repeat(n) -> (start, end, involuntary switches of the process) of n executions, s
    cold:     in words, why each execution finds its operands outside the caches
    expected, result: reference from the operands BEFORE an execution, and what the execution made
    check:    compares both at a small size; raises VerificationError
    keep:     whatever must stay alive
    """

    kind: str
    cold: str
    expected: Callable[[], Any]
    result: Callable[[], Any]
    address: int = 0
    blocks: list[Any] = field(default_factory=list)
    windows: tuple[int, ...] = (0,)
    repeat: Callable[[int], list[tuple[float, float, int]]] | None = None
    check: Callable[[], None] = lambda: None
    keep: tuple[Any, ...] = ()

    def once(self) -> None:
        """Execute once on the first operand set, untimed."""
        if self.repeat is not None:
            self.repeat(1)
            return
        for block in self.blocks:
            block[0] = self.windows[0]
        one_after_another(self.address, self.blocks)


Build = Callable[[int, Mapping[str, int], Run], Ready]


@dataclass(frozen=True)
class Workload:
    """One real workload: what it computes, what that costs, and how it is run best here.

    work(sizes):  FLOP and compulsory DRAM bytes of one execution (each input read once, each output
                  written once);  formula, source: the same in words, and where the count comes from
    fit(room):    default sizes;  small: sizes of the check;  terms(sizes): length of its longest sum
    grain:        what a size must be a multiple of, where the code works in blocks
    in_place:     the output overwrites an input, so no store needs a line it has not loaded
    build(threads, sizes, run): operands and code ready; `run` touches memory first and says how to store
    """

    name: str
    precision: str
    formula: str
    source: str
    implementation: str
    in_place: bool
    work: Callable[[Mapping[str, int]], Work]
    fit: Callable[[Room], dict[str, int]]
    small: Mapping[str, int]
    terms: Callable[[Mapping[str, int]], int]
    build: Build
    grain: Mapping[str, int] = field(default_factory=dict)

    def sizes(self, memory_bytes: float, cache_bytes: float, threads: int) -> dict[str, int]:
        """Default sizes for a device: memory that may be used, all last-level caches (byte), threads."""
        return self.fit(Room(memory_bytes, cache_bytes, threads))

    def near_sizes(self, operand_bytes: float, threads: int) -> dict[str, int] | None:
        """Sizes whose operands take about so many bytes; None where arithmetic, not memory, chooses."""
        if "sets" in self.small:
            return None
        found = self.fit(Room(math.inf, 0.0, threads, operand_bytes))
        return {k: max(g := self.grain.get(k, 1), v // g * g) for k, v in found.items()}

    def prepare(self, threads: int, sizes: Mapping[str, int], run: Run | None = None) -> Ready:
        """Allocate, fill (first touch through `run`) and compile; UsageError on unknown or missing sizes."""
        valid = [f"{name} (a multiple of {self.grain.get(name, 1)})" for name in self.small]
        if set(sizes) != set(self.small) or any(v < 1 or v % self.grain.get(k, 1) for k, v in sizes.items()):
            raise UsageError(f"workload {self.name} takes the sizes {', '.join(valid)}; got {dict(sizes)}")
        run = run or Run(one_after_another)
        return replace(self.build(threads, sizes, run), check=lambda: self.verify(threads, run.past))

    def verify(self, threads: int, past: bool = True) -> None:
        """Execute at the small size and compare with the reference; VerificationError says by how much.

        past: with the stores that bypass the caches, or with ordinary ones, where it has both
        """
        trial = self.build(threads, self.small, Run(one_after_another, past))
        want = trial.expected()
        trial.once()
        agree(self.name, trial.result(), want, self.precision, self.terms(self.small))


def one_after_another(address: int, blocks: Sequence[Any]) -> None:
    """Call the native function with every block in turn, on this thread."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    for block in blocks:
        function(block.ctypes.data)


def tolerance(precision: str, terms: int) -> float:
    """Allowed error relative to the largest value: 16 roundings, growing with the root of a sum's length."""
    return 16.0 * 2.0 ** {"fp64": -52, "fp32": -23, "fp16": -10}[precision] * math.sqrt(max(terms, 1))


def agree(name: str, got: Any, want: Any, precision: str, terms: int) -> None:
    """Raise VerificationError unless `got` equals the reference within the tolerance of its precision."""
    import numpy as np

    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise VerificationError(f"workload {name} returned shape {got.shape} instead of {want.shape}")
    scale = float(np.max(np.abs(want))) or 1.0
    error = float(np.max(np.abs(got - want))) / scale
    allowed = tolerance(precision, terms)
    if not error <= allowed:
        raise VerificationError(
            f"workload {name} differs from its reference by {error:.2g} of the largest value, allowed is "
            f"{allowed:.2g}: it is not timed; another build of the library or of Numba may be at fault"
        )
