"""Capacity of a GPU's memory: what is there, what is free, and what one allocation can really have."""

from __future__ import annotations

from typing import Any

from bench.gpu.engine import Engine
from bench.gpu.faults import translated

SHARE = 0.95
"""Of the free memory: one allocation that must be possible. What is left is the driver's, for its own."""


def usable(engine: Engine) -> dict[str, Any]:
    """memory_total_bytes, memory_free_bytes, memory_usable_bytes (0, with a note, where it was refused)."""
    with translated("asking for free memory"):
        free, total = (int(value) for value in engine.cupy.cuda.runtime.memGetInfo())
    wanted = int(SHARE * free) // 512 * 512
    found: dict[str, Any] = {"memory_total_bytes": total, "memory_free_bytes": free}
    try:
        held = engine.allocate(wanted)
    except MemoryError as error:
        return found | {"memory_usable_bytes": 0, "memory_note": str(error)}
    del held
    engine.reclaim()
    return found | {"memory_usable_bytes": wanted}
