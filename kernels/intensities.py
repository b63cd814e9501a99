"""The sweep over arithmetic intensity on a GPU: which form of mix makes which intensity, with which count.

A thread holds E items, 64 bytes; F multiply-adds on them make I = 2 F / 64 bytes (in place 128). `low` forms
do less than one an item, `fine` whole rounds over all of them, `coarse` rounds in trips of 256 instructions.
"""

from __future__ import annotations

from math import ceil, log2

from kernels.spec import ITEM_BYTES

THREAD_BYTES, VECTOR_BYTES = 64, 16

TYPES = {"fp64": ("double", 1, "DFMA"), "fp32": ("float", 1, "FFMA"), "fp16": ("__half2", 2, "HFMA2")}
"""C++ type of a pack (what one operation works on), items in it, its multiply-add in machine code."""

LEAST, MOST = -4, 10
"""The sweep's ends as powers of two: 1/16 and 1024 FLOP/byte."""

BETWEEN = range(8)
"""A dense sweep also visits 1.5 times these powers of two: 1.5 to 192 FLOP/byte."""

SWITCH = {8: 32.0, 4: 64.0, 2: 128.0}
"""FLOP/byte at which coarse takes over, by item bytes: about 4x the ridge of a data-centre GPU."""


def bodies(precision: str, write_back: bool) -> dict[str, tuple[int, int]]:
    """Packs that get an FMA, and rounds of a trip, by variant; the low ones as far down as the sweep goes."""
    block, lanes = THREAD_BYTES // ITEM_BYTES[precision], TYPES[precision][1]
    least = THREAD_BYTES * (1 + write_back) * 2.0**LEAST / 2
    low = {f"low{2**k}": (2**k // lanes, 1) for k in range(block.bit_length()) if least <= 2**k < block}
    packs = block // lanes
    return low | {"fine": (packs, 128 // packs), "coarse": (packs, 256 // packs)}


def cuda_points(
    item_bytes: int, write_back: bool, dense: bool, switch: float = 0.0
) -> tuple[tuple[str, int, int, int], ...]:
    """Settings of a sweep by rising intensity: (variant with its block size, F, E, `count` of the launch).

    Fine up to `switch` FLOP/byte (0: SWITCH; else rounded up to a power of two), coarse beyond it, and both
    at the three powers of two that end there: they must agree.
    """
    precision = {ITEM_BYTES[name]: name for name in TYPES}[item_bytes]
    forms, block = bodies(precision, write_back), THREAD_BYTES // item_bytes
    step, rounds_of = forms["coarse"][1], item_bytes * (1 + write_back) / 2
    last = ceil(log2(max(switch or SWITCH[item_bytes], 4 * step / rounds_of)))
    found = [(v, int(v[3:]), 1) for v in forms if v.startswith("low")]
    powers = [(2.0**k, k > last - 3) for k in range(LEAST, MOST + 1)]
    for intensity, both in sorted(powers + [(1.5 * 2**k, k >= last) for k in BETWEEN if dense]):
        rounds = intensity * rounds_of
        if rounds >= 1 and rounds.is_integer():
            fma = int(rounds) * block
            found += [("fine", fma, int(rounds))] * (intensity <= 2**last)
            found += [("coarse", fma, int(rounds) // step)] * both
    return tuple((f"{variant} b256", fma, block, count) for variant, fma, count in found)
