"""Stream kernels: which bandwidth beta depends on what is loaded and what is stored.

    kernel   formula        loads  stores  FLOP per item
    write    a = s            0      1        0
    read     sum += b         1      0        1
    update   a = s a          1      1        1
    copy     a = b            1      1        0
    scale    a = s b          1      1        1
    add      a = b + c        2      1        1
    triad    a = b + s c      2      1        2

Bytes are streams x item size (McCalpin, STREAM). An ordinary store to a line that is not
cached makes most CPUs load that line first: that write-allocate traffic is one hidden stream
more for write, copy, scale, add and triad, none for update and for non-temporal stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.spec import Kernel, StreamShape, Work


def write(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s


def read(a: Any, b: Any, c: Any, s: Any) -> Any:
    total = s
    for i in range(len(b)):
        total = total + b[i]
    return total


def update(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s * a[i]


def copy(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i]


def scale(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s * b[i]


def add(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i] + c[i]


def triad(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i] + s * c[i]


# What NumPy says the destination (read: the sum) must be, from the arrays before the run.
REFERENCES = {
    "write": lambda np, a, b, c, s: np.full_like(a, s),
    "read": lambda np, a, b, c, s: b.sum(dtype=np.float64) + s,
    "update": lambda np, a, b, c, s: s * a,
    "copy": lambda np, a, b, c, s: b.copy(),
    "scale": lambda np, a, b, c, s: s * b,
    "add": lambda np, a, b, c, s: b + c,
    "triad": lambda np, a, b, c, s: b + s * c,
}

# The same formulas over whatever `ops` computes with: here, vectors of machine code.
SHAPES = {
    "write": StreamShape((), ("a",), lambda ops, s: s),
    "read": StreamShape(("b",), ()),
    "update": StreamShape(("a",), ("a",), lambda ops, s, a: ops.mul(s, a)),
    "copy": StreamShape(("b",), ("a",), lambda ops, s, b: b),
    "scale": StreamShape(("b",), ("a",), lambda ops, s, b: ops.mul(s, b)),
    "add": StreamShape(("b", "c"), ("a",), lambda ops, s, b, c: ops.add(b, c)),
    "triad": StreamShape(("b", "c"), ("a",), lambda ops, s, b, c: ops.fma(s, c, b)),
}

FLOPS_PER_ITEM = {"write": 0, "read": 1, "update": 1, "copy": 0, "scale": 1, "add": 1, "triad": 2}

ACCESS = {"write": "write", "read": "read", "update": "update", "copy": "copy", "scale": "copy"}


def hidden_streams(shape: StreamShape, store: str) -> int:
    """Streams that write-allocate adds: one per array stored ordinarily without being loaded."""
    return 0 if store != "ordinary" else len(set(shape.stores) - set(shape.loads))


def cost(name: str, item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["passes"]` (default 1) passes over `sizes["n"]` items a stream."""
    items = sizes["n"] * sizes.get("passes", 1)
    shape = SHAPES[name]
    return Work.at(
        level,
        FLOPS_PER_ITEM[name] * items,
        reads=len(shape.loads) * item_bytes * items,
        writes=len(shape.stores) * item_bytes * items,
    )


def _kernel(plain: Any) -> Kernel:
    name = plain.__name__
    return Kernel(
        name=name,
        family="stream",
        access=ACCESS.get(name, "triad"),
        work=lambda item_bytes, sizes, level: cost(name, item_bytes, sizes, level),
        plain=plain,
        reference=REFERENCES[name],
        shape=SHAPES[name],
    )


KERNELS = tuple(_kernel(body) for body in (write, read, update, copy, scale, add, triad))
