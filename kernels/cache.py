"""Working-set sweep: the stream loops passed many times over a set that fits a cache level.

    cache-read     sum += b   over a set of n items
    cache-write    a = s      over a set of n items
    cache-update   a = s a    over a set of n items, in place
    cache-copy     a = b      over two arrays of n / 2 items each

Same loops, same byte convention as the stream family; in a cache a store that hits costs no
write-allocate, so nothing is hidden below the last level.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels import stream
from kernels.spec import Kernel, Work


def _kernel(name: str) -> Kernel:
    def work(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
        return stream.cost(name, item_bytes, sizes, level)

    shape, plain = stream.SHAPES[name], getattr(stream, name)
    return Kernel(f"cache-{name}", "cache", name, work, plain, stream.REFERENCES[name], shape)


KERNELS = tuple(_kernel(name) for name in ("read", "write", "update", "copy"))
