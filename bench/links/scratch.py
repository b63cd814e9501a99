"""The folder for scratch files: its filesystem, what that allows, and files that cannot outlive us."""

from __future__ import annotations

import errno
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import ResourceError
from bench.host import tree

VARIABLE = "ROOFLINE_SCRATCH"
"""Environment variable that names the folder; without it files lie where the results do."""

SPACE_SHARE = 0.25
"""Share of the free space that scratch files may take."""

BLOCK = 1 << 20
ALIGNED = 4096
"""Bytes to which direct requests and their memory are aligned: no device asks for more."""

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
REMEDY = f"name another folder with --scratch or in the environment variable {VARIABLE}"


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where scratch files go in this process."""
    return Path(environment.get(VARIABLE) or tempfile.gettempdir())


def existing(path: Path) -> Path:
    """The folder, or the nearest one above it: the results folder may not be there yet."""
    path = path.absolute()
    return next((p for p in (path, *path.parents) if p.is_dir()), path)


def described(place: Path) -> dict[str, Any]:
    """Facts of a folder but its name: filesystem, why no direct access ("" if there is), free byte."""
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        free = 0
    return {"filesystem": filesystem(place), "direct": no_direct(place), "free_bytes": free}


def filesystem(place: Path, root: Path = tree.ROOT) -> str:
    """Kind of the filesystem that a folder lies on, as the kernel calls it; "" where it does not say."""
    best, where = "", str(place.resolve()) + "/"
    longest = -1
    for line in tree.text(root, "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if len(fields := left.split()) < 5 or not right:
            continue
        mount = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), fields[4])
        if where.startswith(mount.rstrip("/") + "/") and len(mount) >= longest:
            best, longest = right.split()[0], len(mount)
    return best


def no_direct(place: Path) -> str:
    """Why files there cannot be read past the page cache, "" if they can."""
    kind = filesystem(place)
    if kind in IN_MEMORY:
        return f"the scratch folder lies in memory ({kind}), so no storage can be reached there: {REMEDY}"
    if not hasattr(os, "O_DIRECT"):
        return "this system has no direct access to files (O_DIRECT)"
    try:
        with Scratch(ALIGNED, True, place):
            return ""
    except ResourceError as error:
        return str(error)


def room(place: Path, wanted: int) -> None:
    """ResourceError unless `wanted` byte are a modest part of the free space."""
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise ResourceError(_refused(place, error)) from None
    if wanted > SPACE_SHARE * free:
        raise ResourceError(
            f"a scratch file of {wanted / 1e6:.0f} MB would take more than {100 * SPACE_SHARE:.0f} % of the "
            f"{free / 1e6:.0f} MB free on its filesystem: free some, or {REMEDY}"
        )


def demand(place: Path, size: int) -> None:
    """ResourceError unless a file of `size` byte may be made in a folder that was asked for by name.

    That it lies in memory or has no direct access is no fault: what that leaves out is told where it misses.
    """
    room(place, size)
    with Scratch(ALIGNED, False, place):
        pass


def _refused(place: Path, error: OSError) -> str:
    """A failure of the filesystem in words; the folder by its last name only, which goes into a record."""
    shown = place.name or str(place)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"there is no scratch folder {shown}: make it, or {REMEDY}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"scratch folder {shown} cannot be written ({error.strerror}): {REMEDY}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the filesystem of scratch folder {shown} is full ({error.strerror}): free some, or {REMEDY}"
    return f"scratch folder {shown} cannot be used ({error.strerror}): {REMEDY}"


def aligned(size: int) -> mmap.mmap:
    """Anonymous memory for direct requests: whole pages, at a page's beginning."""
    try:
        return mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    except (OSError, ValueError) as error:
        raise MemoryError(f"the system refused {size} bytes of memory ({error})") from None


def pattern(block: int) -> Any:
    """The 2^20 bytes of block number `block`, doubles in [1, 2): each block another, made without effort."""
    bits = _mantissas() ^ np.uint64(block * 0x9E3779B97F4A7 & (1 << 52) - 1)
    return (bits | np.uint64(1023 << 52)).view(np.float64)


def _mantissas() -> Any:
    if not _first:
        chance = np.random.default_rng(20261130)
        _first.append(chance.integers(0, 1 << 52, BLOCK // 8, np.uint64))
    return _first[0]


_first: list[Any] = []


@dataclass
class Scratch:
    """A file of `size` byte filled with `pattern`; it has no name, so that it goes when the process does.

    direct: past the page cache. ResourceError where the folder cannot hold it or cannot be used this way.
    """

    size: int
    direct: bool
    place: Path = field(default_factory=folder)
    fd: int = -1

    def __post_init__(self) -> None:
        room(self.place, self.size)
        try:
            named, path = tempfile.mkstemp(prefix="roofline-", dir=self.place)
        except OSError as error:
            raise ResourceError(_refused(self.place, error)) from None
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_DIRECT) if self.direct else os.dup(named)
        except OSError as error:
            raise ResourceError(
                f"the filesystem ({filesystem(self.place)}) refuses direct access ({error.strerror}), so its "
                f"storage cannot be told from the page cache: {REMEDY}"
            ) from None
        finally:
            os.unlink(path)
            os.close(named)
        try:
            self._fill()
        except BaseException:
            self.close()
            raise

    def _fill(self) -> None:
        memory = aligned(BLOCK)
        try:
            for block in range(-(-self.size // BLOCK)):
                memory[:] = pattern(block).tobytes()
                count = min(BLOCK, self.size - block * BLOCK)
                self.write(memoryview(memory)[:count], block * BLOCK)
            os.fdatasync(self.fd)
        except OSError as error:
            raise ResourceError(_refused(self.place, error)) from None

    def read(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` from byte `offset` on; ResourceError when the file gives less."""
        done = 0
        while done < len(memory):
            try:
                count = os.preadv(self.fd, [memory[done:]], offset + done)
            except OSError as error:
                raise ResourceError(_refused(self.place, error)) from None
            if count <= 0:
                raise ResourceError(f"the scratch file ends at byte {offset + done}: run again")
            done += count

    def write(self, memory: memoryview, offset: int, sync: bool = False) -> None:
        """Write `memory` at byte `offset`, and wait until the device has it where `sync` is set."""
        done = 0
        try:
            while done < len(memory):
                done += os.pwritev(self.fd, [memory[done:]], offset + done)
            if sync:
                os.fdatasync(self.fd)
        except OSError as error:
            raise ResourceError(_refused(self.place, error)) from None

    def close(self) -> None:
        """Give the space back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_open: dict[tuple[bool, bool, str], Scratch] = {}


def kept(size: int, direct: bool, written: bool = False) -> Scratch:
    """The file that the points of this process share, made anew only when a larger one is asked for.

    written: the one whose content changes; the other keeps its pattern
    """
    place = folder()
    key = (direct, written, str(place))
    if key in _open and _open[key].size < size:
        _open.pop(key).close()
    if key not in _open:
        _open[key] = Scratch(size, direct, place)
    return _open[key]


def forget() -> None:
    """Close every file that is kept."""
    while _open:
        _open.popitem()[1].close()
