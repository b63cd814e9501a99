"""How numbers lie in memory, also those that NumPy lacks: bf16, the upper half of an fp32, and fp8 (e4m3)."""

from __future__ import annotations

from typing import Any

STORED = {
    "fp64": "f8",
    "fp32": "f4",
    "fp16": "f2",
    "bf16": "u2",
    "fp8": "u1",
    "int32": "i4",
    "int8": "i1",
}
"""NumPy type that holds one item; bf16 and fp8 as their bits."""


def item_type(np: Any, item: str) -> Any:
    """NumPy type of one item; KeyError for an unknown one."""
    return np.dtype(STORED[item])


def _fp8_values(np: Any) -> Any:
    """The 127 e4m3 numbers that are not negative, by their bits: bias 7, no infinity, 0x7F is no number."""
    bits = np.arange(127)
    exponent, fraction = bits >> 3, bits & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, fraction / 8 * 2.0**-6, normal)


def encoded(np: Any, item: str, values: Any) -> Any:
    """Values rounded to the nearest `item`, as they lie in memory; fp8 saturates."""
    values = np.asarray(values)
    if item == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    if item == "fp8":
        known = _fp8_values(np)
        nearest = np.searchsorted((known[1:] + known[:-1]) / 2, abs(values))
        return (nearest | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
    return values.astype(item_type(np, item))


def decoded(np: Any, item: str, stored: Any) -> Any:
    """What memory means: fp64 of floats, int32 of integers."""
    if item == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if item == "fp8":
        return _fp8_values(np)[stored & 0x7F] * np.where(stored & 0x80, -1.0, 1.0)
    return stored.astype(np.int32 if item.startswith("int") else np.float64)


def rounded(np: Any, item: str, values: Any) -> Any:
    """Values as an `item` holds them: floats rounded once and still fp64, integers as they are."""
    return values if item.startswith("int") else decoded(np, item, encoded(np, item, values))
