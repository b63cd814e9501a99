"""The memory of an SM, by compute capability: what no call of CUDA tells."""

from __future__ import annotations

KIB = 1 << 10

UNIFIED = {
    70: 128 * KIB,
    75: 96 * KIB,
    80: 192 * KIB,
    86: 128 * KIB,
    87: 192 * KIB,
    89: 128 * KIB,
    90: 256 * KIB,
    100: 256 * KIB,
    103: 256 * KIB,
    120: 128 * KIB,
    121: 128 * KIB,
}
"""Bytes of the memory that L1 and shared memory divide among them, by compute capability x 10.

CUDA C++ programming guide, compute capabilities: "unified data cache" (with 10.3 and 12.1 taken for 10.0 and
12.0, of whose family they are).
"""


def l1_bytes(compute_capability: int) -> int:
    """Bytes of L1 of an SM whose kernel uses no shared memory, 0 where it is not known."""
    return UNIFIED.get(compute_capability, 0)
