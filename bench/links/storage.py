"""Storage and page cache: one file read and written in requests of one size, past the cache or through it.

    direct    O_DIRECT; a write counts as done when the device has it (fdatasync)      level "storage"
    synced    a buffered write and fdatasync: what a program sees that does not go past the cache
    buffered  a file that is cached: the system call and one copy in memory            level "page cache"

Evidence that the two are told apart: the bytes that the kernel says this process read from storage, over
the bytes that were asked for ("from_storage"). A virtual disk may still be cached by its host.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.host import tree
from bench.links import scratch
from bench.profile.records import Point, Repetitions
from kernels.link import STORAGE, crossing

VARIANTS = ("direct", "synced", "buffered")
FILE_BYTES, MOST_BYTES = 32 << 20, 256 << 20
"""Smallest file, so that short requests do not meet the same bytes at once; largest one ever written."""

MOST_REQUESTS = 1 << 20
CHECKED = 1 << 20


def unsupported(point: Point) -> str:
    """Why this point cannot be measured in the scratch folder, "" if it can; a bad folder is no skip."""
    place = scratch.folder()
    if point.variant == "buffered" or not place.is_dir():
        return ""
    if point.variant == "synced":
        kind = scratch.filesystem(place)
        return scratch.no_direct(place) if kind in scratch.IN_MEMORY else ""
    reason = scratch.no_direct(place)
    return reason if "direct access" in reason or "in memory" in reason else ""


def from_storage() -> int | None:
    """Bytes that the kernel fetched from storage for this process so far; None where it does not say."""
    lines = dict(line.split(": ") for line in tree.text(tree.ROOT, "proc/self/io").splitlines())
    return int(lines["read_bytes"]) if "read_bytes" in lines else None


@dataclass
class Requests:
    """The handle: requests of `size` byte one after the other through the file, from its start again."""

    point: Point
    facts: dict[str, Any]
    file: scratch.Scratch
    size: int
    position: int = 0
    asked: int = 0
    fetched: int = 0
    memory: Any = field(init=False)

    def __post_init__(self) -> None:
        self.memory = memoryview(scratch.aligned(self.size))[: self.size]
        words = scratch.pattern(0).tobytes()
        for offset in range(0, self.size, scratch.BLOCK):
            self.memory[offset : offset + scratch.BLOCK] = words[: self.size - offset]
        if self.point.variant == "buffered":
            self._touch_all()

    def _touch_all(self) -> None:
        """Bring the file into the page cache."""
        block = memoryview(scratch.aligned(scratch.BLOCK))
        for offset in range(0, self.file.size, scratch.BLOCK):
            self.file.read(block[: min(scratch.BLOCK, self.file.size - offset)], offset)

    def check(self) -> None:
        """What was written is what is read, on a pattern of its own; then the file is as before."""
        size = min(self.size, CHECKED)
        memory = memoryview(scratch.aligned(size))[:size]
        told, before = scratch.pattern(77).tobytes()[:size], scratch.pattern(0).tobytes()[:size]
        for words in (told, before):
            memory[:] = words
            self.file.write(memory, 0, sync=True)
            memory[:] = bytes(size)
            self.file.read(memory, 0)
            if memory.tobytes() != words:
                raise VerificationError(
                    f"{size} byte written to storage came back changed; this link is not timed: check the "
                    "disk and the messages of the kernel"
                )

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` requests each, timed by the host clock."""
        start, seconds, before = [], [], from_storage()
        step = self._write if self.point.access == "write" else self.file.read
        for _ in range(n):
            offsets = [self._next() for _ in range(amount)]
            began = time.perf_counter()
            for offset in offsets:
                step(self.memory, offset)
            seconds.append(time.perf_counter() - began)
            start.append(began)
        self._account(before, amount * n * self.size)
        return Repetitions(tuple(start), tuple(seconds))

    def _write(self, memory: memoryview, offset: int) -> None:
        self.file.write(memory, offset, sync=self.point.variant != "buffered")

    def _next(self) -> int:
        offset = self.position
        self.position = offset + self.size if offset + 2 * self.size <= self.file.size else 0
        return offset

    def _account(self, before: int | None, asked: int) -> None:
        """Keep the share of the bytes read that came from storage."""
        now = from_storage()
        if self.point.access == "read" and before is not None and now is not None:
            self.asked, self.fetched = self.asked + asked, self.fetched + now - before
            self.facts["from_storage"] = round(self.fetched / self.asked, 4)

    def close(self) -> None:
        """The file stays for the next point; the memory goes."""
        self.memory = None


def prepare(point: Point) -> Prepared:
    """The file made and the memory ready; DeviceError for a size or variant that no file has."""
    size = point.sizes["bytes"]
    if point.variant not in VARIANTS:
        raise DeviceError(f"{point.variant!r} is no way to a file; valid: {', '.join(VARIANTS)}")
    if size % scratch.ALIGNED or not 0 < size <= MOST_BYTES:
        raise DeviceError(f"requests are multiples of {scratch.ALIGNED} byte up to {MOST_BYTES}, not {size}")
    file = scratch.kept(max(FILE_BYTES, size), point.variant == "direct", point.access == "write")
    facts: dict[str, Any] = {
        "filesystem": scratch.filesystem(file.place),
        "file_bytes": file.size,
        "requests_in_flight": 1,
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    handle = Requests(point, facts, file, size)
    unit = STORAGE.work(1, crossing(point.access, size), point.level)
    return Prepared(point, unit.times, 1, MOST_REQUESTS, 1, facts, handle, "host")
