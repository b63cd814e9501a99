"""Memory that the loops run on: page-aligned, huge pages asked for, touched by the threads that use it."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np

HUGE_PAGE = 2 << 20


class Region:
    """Anonymous memory of at least `bytes` bytes, aligned to 2 MiB; MemoryError when refused."""

    def __init__(self, bytes: int) -> None:
        try:
            # private: the kernel gives huge pages to private anonymous memory only
            self._map = mmap.mmap(-1, bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(f"the system refused {bytes} bytes of memory ({error})") from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages: ordinary ones serve
                self._map.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(self._map, np.uint8)
        shift = -raw.ctypes.data % HUGE_PAGE
        self.bytes = bytes
        self.array: Any = raw[shift : shift + bytes]
        self.address = int(self.array.ctypes.data)

    def view(self, dtype: Any, offset: int, items: int) -> Any:
        """Items of `dtype` from byte `offset` on, as a NumPy array on this memory."""
        bytes = items * np.dtype(dtype).itemsize
        return self.array[offset : offset + bytes].view(dtype)


def huge_share(region: Region) -> float | None:
    """Share of the touched memory around a region that lies in huge pages, None where Linux does not say."""
    found: dict[str, int] = {}
    inside = False
    with contextlib.suppress(OSError), open("/proc/self/smaps", encoding="utf-8") as lines:
        for line in lines:
            name, *words = line.split()
            if "-" in name and not name.endswith(":"):
                first, last = (int(end, 16) for end in name.split("-"))
                inside = first <= region.address < last
            elif inside and name in ("Rss:", "AnonHugePages:"):
                found[name] = int(words[0])
    resident = found.get("Rss:", 0)
    return min(1.0, found.get("AnonHugePages:", 0) / resident) if resident else None
