"""Where the chunks of the pipelining experiment come from: a file, or another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bench.errors import DeviceError
from bench.links import loopback, node, scratch, storage
from bench.links.connection import Connection

LEVELS = ("storage", "page cache", "network", "node network")


class Source(Protocol):
    """Data of a fixed size that are read chunk by chunk, with their known sum."""

    facts: dict[str, Any]

    def begin(self, chunks: int) -> int:
        """A pass over the data in `chunks` chunks begins; where, for `read` and `total`."""

    def read(self, memory: memoryview, offset: int) -> None:
        """The bytes from `offset` on, which is where the pass is."""

    def total(self, start: int) -> float:
        """Sum of all items of the pass that began at `start`."""


class File:
    """A part of the scratch file, the next one for every pass."""

    def __init__(self, size: int, direct: bool) -> None:
        self.size = size
        self.file = scratch.kept(max(storage.FILE_BYTES, size), direct)
        self.facts = {"filesystem": scratch.filesystem(self.file.place), "file_bytes": self.file.size}
        self.read = self.file.read
        self._turn = 0
        self._totals: dict[int, float] = {}

    def begin(self, chunks: int) -> int:
        """See Source."""
        self._turn = (self._turn + 1) % (self.file.size // self.size)
        return self._turn * self.size

    def total(self, start: int) -> float:
        """See Source."""
        if start not in self._totals:
            self._totals[start] = block_sums(start, self.size)
        return self._totals[start]


class Stream:
    """The same bytes sent by the process at the other end of a link, in every pass."""

    def __init__(self, size: int, link: Connection, facts: dict[str, Any]) -> None:
        self.size, self.link, self.facts = size, link, facts
        data = b"".join(scratch.pattern(i).tobytes() for i in range(-(-size // scratch.BLOCK)))[:size]
        with self.link.guarded():
            self.link.ask(b"L", size)
            self.link.socket.sendall(data)

    def begin(self, chunks: int) -> int:
        """See Source: it begins to send."""
        with self.link.guarded():
            self.link.ask(b"G", self.size // chunks, chunks)
            self.link.owed = self.size // chunks * chunks
        return 0

    def read(self, memory: memoryview, offset: int) -> None:
        """See Source."""
        with self.link.guarded():
            self.link.take(memory)

    def total(self, start: int) -> float:
        """See Source."""
        return block_sums(0, self.size)


def block_sums(start: int, size: int) -> float:
    """Sum of the doubles of `size` byte of the pattern from byte `start` on; whole items."""
    total, end = 0.0, start + size
    while start < end:
        block, inside = divmod(start, scratch.BLOCK)
        stop = min(scratch.BLOCK, inside + end - start)
        total += float(scratch.pattern(block)[inside // 8 : stop // 8].sum())
        start += stop - inside
    return total


def ends(cpus: Sequence[int]) -> tuple[int, ...]:
    """CPUs of the reader and of the process that sends to it; of two CPUs those of the link's points."""
    return (cpus[-1], cpus[-2]) if len(cpus) > 2 else loopback.ends(cpus)


def opened(level: str, size: int, cpus: Sequence[int] = ()) -> Source:
    """The source behind a level's name; DeviceError for another name or too many bytes.

    cpus: of reader, workers and sender, one a core
    """
    if level not in LEVELS:
        raise DeviceError(f"no chunks come from {level!r}; valid: {', '.join(LEVELS)}")
    if not 0 < size <= storage.MOST_BYTES:
        raise DeviceError(f"a pass is up to {storage.MOST_BYTES} byte, not {size}")
    if level == "node network":
        return Stream(size, node.kept(tuple(cpus[:1])), {})
    if level == "network":
        both = ends(cpus)
        return Stream(size, loopback.kept(both), {"sender_cpu": both[-1]})
    return File(size, level == "storage")
