"""What a chunk loop may use beside arithmetic: memory at an address, streaming stores, bits of a float.

Here in plain Python, so that every loop also runs uncompiled; bench/workloads/compiled.py gives Numba
the machine code of the same functions.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

TURN = 4
"""Edge of the block of doubles that `turn` transposes in registers."""


def _at(address: int, count: int, kind: Any) -> Any:
    return np.ctypeslib.as_array((kind * int(count)).from_address(int(address)))


def doubles(address: int, count: int) -> Any:
    """`count` fp64 items at an address, as an array."""
    return _at(address, count, ctypes.c_double)


def floats(address: int, count: int) -> Any:
    """`count` fp32 items at an address, as an array."""
    return _at(address, count, ctypes.c_float)


def indices(address: int, count: int) -> Any:
    """`count` int32 indices at an address; never negative, so read as unsigned (no wrap to test for)."""
    return _at(address, count, ctypes.c_uint32)


def write_out(destination: int, source: int, size: int, past: int) -> None:
    """Copy `size` bytes with stores that bypass the caches, or (`past` is 0) ordinary ones.

    Addresses and size are multiples of 64.
    """
    ctypes.memmove(int(destination), int(source), int(size))


def drain() -> None:
    """Wait until streaming stores have left the core."""


def prefetch(address: int, size: int) -> None:
    """Ask for the lines of `size` bytes at an address."""


def power_of_two(exponent: Any) -> Any:
    """2^exponent in fp32, exponent an int32 in -126 ... 127."""
    return np.float32(2.0 ** int(exponent))


def turn(destination: int, destination_pitch: int, source: int, source_pitch: int) -> None:
    """Transpose a TURN x TURN block of doubles; pitches in bytes from row to row."""
    rows = [doubles(source + i * source_pitch, TURN) for i in range(TURN)]
    for j in range(TURN):
        doubles(destination + j * destination_pitch, TURN)[:] = [row[j] for row in rows]


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, neither of which is a NaN (the built-in max minds NaN and stays scalar)."""
    return b if b > a else a
