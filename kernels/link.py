"""Links: bytes that leave one memory for another, read, written or sent, with nothing computed on the way.

    one way     out[i] = into[i]        n items: read (they arrive), write or send (they leave)
    exchange    both directions at once: n items each way, counted as 2 n

A GPU's host link is named as its makers do: h2d (they arrive), d2h (they leave), both.

A byte that crosses the link once counts once, however often either end copies it (a socket does so at
each end, a buffered file once): links count one way. The rate of an exchange is the sum of its directions.

    storage      a file, past the page cache or through it
    loopback     TCP between two processes here      tcp     the same, one of them on another node
    remote-read  threads of one memory node, data of another: the loop of the stream family's `read`
    copy-pinned, copy-pageable   a GPU's copy engine and host memory that is, or is not, locked in place
    zero-copy    the stream family's `copy` on a GPU, one of its arrays (of `both`: each) in host memory
    managed      pages that move when they are prefetched, or when they are touched (fault)
    copy-device  a GPU's copy engine inside one memory: n items are read and n written, and n are counted
    copy-peer    from one GPU's memory to another's
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels import stream
from kernels.spec import Kernel, LibraryShape, Work

ARRIVING, LEAVING = ("read", "exchange", "h2d", "both", "copy"), ("write", "send", "exchange", "d2h", "both")
"""Accesses in which items come in, and in which they go out."""


def move(out: Any, into: Any) -> None:
    """What every link does, one direction of it."""
    for i in range(len(into)):
        out[i] = into[i]


def reference(np: Any, out: Any, into: Any) -> Any:
    """The same by NumPy: what arrives is what left."""
    out[:] = np.asarray(into)
    return out


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """No FLOP; `arriving` items are read from the link, `leaving` items written to it."""
    arriving, leaving = sizes.get("arriving", 0), sizes.get("leaving", 0)
    return Work.at(level, 0.0, reads=float(item_bytes * arriving), writes=float(item_bytes * leaving))


def crossing(access: str, count: int) -> dict[str, int]:
    """The sizes of `cost` for `count` items one way; KeyError for an access that no link has."""
    if access not in (*ARRIVING, *LEAVING):
        known = ", ".join(dict.fromkeys(ARRIVING + LEAVING))
        raise KeyError(f"no link is used by {access!r}; known: {known}")
    return {"arriving": count * (access in ARRIVING), "leaving": count * (access in LEAVING)}


def _remote(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    return stream.cost("read", item_bytes, sizes, level)


STORAGE = Kernel("storage", "link", "read", cost, move, reference, LibraryShape())
LOOPBACK = Kernel("loopback", "link", "send", cost, move, reference, LibraryShape())
TCP = Kernel("tcp", "link", "send", cost, move, reference, LibraryShape())
REMOTE_READ = Kernel(
    "remote-read", "link", "read", _remote, stream.read, stream.REFERENCES["read"], stream.SHAPES["read"]
)
COPIES = tuple(
    Kernel(name, "link", access, cost, move, reference, LibraryShape())
    for name, access in (
        ("copy-pinned", "h2d"),
        ("copy-pageable", "h2d"),
        ("zero-copy", "h2d"),
        ("managed", "h2d"),
        ("copy-device", "copy"),
        ("copy-peer", "write"),
    )
)
KERNELS = (STORAGE, LOOPBACK, TCP, REMOTE_READ, *COPIES)
