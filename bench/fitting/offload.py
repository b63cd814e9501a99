"""What a working set costs that does not fit the memory: the slope of the link behind which the rest lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.profile.records import Ceiling

WAYS = {"zero-copy": "h2d", "managed": "h2d", "storage": "read"}
"""How what does not fit is reached, by kernel and access: a GPU reads the host's memory, a host the
storage that it maps or swaps to."""


def beyond(ceilings: Iterable[Ceiling]) -> dict[str, Any]:
    """{"kernel", "variant", "level", "beta" byte/s, "slowdown"}: the fastest way; DRAM's read beta over it.

    {} where one of the two was not measured
    """
    betas = [c for c in ceilings if c.quantity == "beta" and c.regime == "typical"]
    ways = [c for c in betas if WAYS.get(c.kernel) == c.access and c.level != "page cache"]
    near = [c.estimate.value for c in betas if c.level == "DRAM" and c.access == "read"]
    if not (ways and near):
        return {}
    best = max(ways, key=lambda c: c.estimate.value)
    beta = best.estimate.value
    slowdown = max(near) / beta
    return {
        "kernel": best.kernel,
        "variant": best.variant,
        "level": best.level,
        "beta": beta,
        "slowdown": slowdown,
    }
