"""Collectives: what n devices do together with arrays of N items each, S = N x item bytes.

    all-reduce      every device gets the sum over devices            out_r[i] = sum_p in_p[i]
    reduce-scatter  device r gets the r-th part of that sum           out_r[i] = sum_p in_p[r N/n + i]
    all-gather      every device gets the first parts of all          out_r[p N/n + i] = in_p[i]
    all-to-all      part r of device p becomes part p of device r     out_r[p N/n + i] = in_p[r N/n + i]
    broadcast       every device gets the array of device 0           out_r[i] = in_0[i]

Algorithm bandwidth is S over the time, S being the whole array: of all-gather what a device has afterwards,
of reduce-scatter what it had before, of all-to-all what it sends, its own part included. Bus bandwidth is
that times what each device's links must carry of it: 2 (n-1)/n, (n-1)/n three times, 1 for broadcast
(bench/fitting/swept.py; the convention of the tests that come with NCCL).

Items are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.spec import Kernel, LibraryShape, Work

NAMES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all")

PERIOD, LARGEST = 252_997, 97
"""The pattern repeats after a prime number of items, so that no two parts of an array are alike."""


def pattern(np: Any, device: int, start: int, count: int) -> Any:
    """Items start, start + 1, ... of what a device holds before, as fp32."""
    i = (np.arange(start, start + count, dtype=np.int64) % PERIOD) + 1
    return ((i * (2 * device + 3) + i * i % 89) % LARGEST).astype(np.float32)


def collective(name: str, arrays: Sequence[Any]) -> list[Any]:
    """The textbook form: what every device holds afterwards; the parts of an array are equal."""
    n, items = len(arrays), len(arrays[0])
    part = items // n
    if name == "broadcast":
        return [list(arrays[0]) for _ in arrays]
    if name == "all-gather":
        return [[x for other in arrays for x in other[:part]] for _ in arrays]
    if name == "all-to-all":
        return [[x for other in arrays for x in other[r * part : (r + 1) * part]] for r in range(n)]
    sums = [sum(column) for column in zip(*arrays, strict=True)]
    if name == "reduce-scatter":
        return [sums[r * part : (r + 1) * part] for r in range(n)]
    return [list(sums) for _ in arrays]


def held(name: str, items: int, devices: int) -> int:
    """Items of a device's result."""
    return items // devices if name == "reduce-scatter" else items


def expected(np: Any, name: str, devices: int, items: int, rank: int, start: int, count: int) -> Any:
    """Items start ... of what device `rank` must hold when all began with their patterns."""
    part = items // devices
    if name == "broadcast":
        return pattern(np, 0, start, count)
    if name in ("all-reduce", "reduce-scatter"):
        first = start + (rank * part if name == "reduce-scatter" else 0)
        return sum(pattern(np, device, first, count) for device in range(devices))
    out = np.empty(count, np.float32)
    place = start
    while place < start + count:
        device, inside = divmod(place, part)
        length = min(part - inside, start + count - place)
        first = inside + (rank * part if name == "all-to-all" else 0)
        out[place - start : place - start + length] = pattern(np, device, first, length)
        place += length
    return out


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """S byte: what algorithm bandwidth counts; the additions of a reduction are not counted."""
    return Work.at(level, 0.0, reads=float(item_bytes * sizes["n"]), writes=0.0)


def _kernel(name: str) -> Kernel:
    def plain(arrays: Sequence[Any]) -> list[Any]:
        return collective(name, arrays)

    def reference(np: Any, arrays: Sequence[Any]) -> list[Any]:
        devices, items = len(arrays), len(arrays[0])
        return [
            expected(np, name, devices, items, rank, 0, held(name, items, devices)) for rank in range(devices)
        ]

    return Kernel(name, "collective", "exchange", cost, plain, reference, LibraryShape())


KERNELS = tuple(_kernel(name) for name in NAMES)
