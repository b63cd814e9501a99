"""What the schedule of a hot loop allows at best: the issue-rate bound, as a share of the peak of its SM."""

from __future__ import annotations

from dataclasses import dataclass

from bench.audit.sass import Loop
from bench.gpu.rates import flops_per_clock_per_sm

SCHEDULERS, LANES = 4, 32
"""Of an SM from compute capability 7.0 on; each issues one instruction of one warp a clock."""

REGISTERS, REGISTER_UNIT = 16384, 256
"""32-bit registers of one scheduler's part of the SM, and what they are handed to a warp in."""

THREADS = {70: 2048, 75: 1024, 80: 2048, 90: 2048, 100: 2048, 103: 2048}
"""Threads that an SM holds; 1536 where nothing is said (CUDA programming guide, compute capabilities)."""


@dataclass(frozen=True)
class Bound:
    """Predicted share of the peak: one warp a scheduler, by its stall cycles; many, by issue slots."""

    one_warp: float
    many_warps: float


def capability(architecture: str) -> int:
    """Compute capability x 10 of an architecture: 90 of "90a"."""
    return int(architecture.rstrip("af"))


def bound(loop: Loop, flops: float, precision: str, architecture: str) -> Bound | None:
    """The bound of a loop in which a thread does `flops` each pass; None where no peak is known.

    A unit slower than its issue slots hides the rest of the loop, so no share is above 1. The stall
    cycles of units with a queue (fp64 of small chips, matrix units) are less than what they take.
    """
    peak, _ = flops_per_clock_per_sm(capability(architecture), precision)
    stalls = sum(i.stall for i in loop.instructions)
    if not peak or not flops or not stalls:
        return None
    work = SCHEDULERS * LANES * flops / peak
    return Bound(min(1.0, work / stalls), min(1.0, work / len(loop.instructions)))


def resident_warps(registers: int, block: int, architecture: str) -> int:
    """How many warps fit on an SM at once in whole blocks, by their registers."""
    taken = -(-registers * LANES // REGISTER_UNIT) * REGISTER_UNIT
    warps = min(SCHEDULERS * (REGISTERS // taken), THREADS.get(capability(architecture), 1536) // LANES)
    size = -(-block // LANES)
    return warps // size * size
