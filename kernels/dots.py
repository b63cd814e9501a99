"""The peak chain of narrow items on a CPU: dot products into lanes of 32 bit, held in registers.

    x <- x + a . b,  every lane of x takes the products of the 2 or 4 items that its lane of a and b holds

a and b are one vector each and stay in registers; the chains depend on themselves through x alone. What one
instruction on vectors of 64 byte does (16 lanes):

    bf16 into fp32   16 x 2 multiply-adds x 2 = 64 FLOP
    int8 into int32  16 x 4 multiply-adds x 2 = 128 OP (on x86-64 unsigned times signed bytes)

fp32 sums of products of bf16 stop growing at 2^24 of them and stay finite; int32 sums wrap. The kernel is
`fma` (kernels/fma.py), whose work counts scalar multiply-adds.
"""

from __future__ import annotations

from typing import Any

INTO = {"bf16": "fp32", "int8": "int32"}
"""Inputs of such chains, and what they are summed in."""


def reference(np: Any, x: Any, a: Any, b: Any, steps: int) -> Any:
    """Closed form x + steps (a . b); x: [..., lanes], a and b: [lanes, items of a lane], numbers."""
    return x + steps * np.sum(a * b, axis=-1)


def narrow(np: Any, inputs: str, numbers: Any) -> Any:
    """The bytes that hold whole numbers from -127 to 127 as bf16 or int8, one after another."""
    if inputs == "bf16":  # the upper half of an fp32
        items = (np.asarray(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        items = np.asarray(numbers, np.int8)
    return items.ravel().view(np.uint8)
