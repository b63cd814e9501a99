"""The vocabulary of every kernel: what work it does (Work) and how its loop looks (Kernel)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ITEM_BYTES = {"fp64": 8, "fp32": 4}
"""Bytes of one item of each precision that the loops below are written for."""


@dataclass(frozen=True)
class Work:
    """FLOP and compulsory bytes of one execution, computed from sizes.

    flops:  floating-point operations; a fused multiply-add counts 2 (FLOP)
    reads:  bytes loaded, by memory level name
    writes: bytes stored, by memory level name
    Bytes are streams x item size; write-allocate traffic is never in them.
    """

    flops: float
    reads: Mapping[str, float] = field(default_factory=dict)
    writes: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, level: str, flops: float, reads: float, writes: float) -> Work:
        """Work whose traffic is known at one memory level."""
        return cls(flops, {level: reads}, {level: writes})

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the memory levels whose traffic is known."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))

    def bytes(self, level: str) -> float:
        """Bytes read and written at `level`; KeyError names the known levels."""
        if level not in self.levels:
            raise KeyError(f"no traffic known at {level!r}; known: {', '.join(self.levels)}")
        return self.reads.get(level, 0.0) + self.writes.get(level, 0.0)

    def intensity(self, level: str) -> float:
        """Arithmetic intensity in FLOP/byte; infinite when nothing moves."""
        moved = self.bytes(level)
        return self.flops / moved if moved else float("inf")

    def read_fraction(self, level: str) -> float:
        """Share of the traffic that is loads: 1 read-only, 0.5 copy or update, 0 write."""
        moved = self.bytes(level)
        return self.reads.get(level, 0.0) / moved if moved else float("nan")

    def times(self, factor: float) -> Work:
        """The same work done `factor` times."""
        return Work(
            self.flops * factor,
            {k: v * factor for k, v in self.reads.items()},
            {k: v * factor for k, v in self.writes.items()},
        )


@dataclass(frozen=True)
class ChainShape:
    """`chains` independent dependent-FMA chains, x = x*m + a, held in registers."""


@dataclass(frozen=True)
class StreamShape:
    """One pass over equal streams: load every name in `loads`, store every name in `stores`.

    element(ops, s, *loaded) returns what is stored; with no store the loaded vector is
    added to an accumulator, one per vector of the block, so that no load can be dropped.
    """

    loads: tuple[str, ...]
    stores: tuple[str, ...]
    element: Callable[..., Any] | None = None


@dataclass(frozen=True)
class MixShape:
    """Blocks of vectors streamed past accumulators that get `rounds` FMA per vector.

    write_back: the accumulators are stored over the vectors just loaded (in place).
    """

    write_back: bool


@dataclass(frozen=True)
class LibraryShape:
    """The loop lives in a library (BLAS): there is no machine code of ours to count."""


Shape = ChainShape | StreamShape | MixShape | LibraryShape


@dataclass(frozen=True)
class Kernel:
    """One measurable loop: its cost, its readable body, its reference and its shape.

    work(item_bytes, sizes, level) -> Work of one execution; sizes in items or counts
    plain:      textbook body over Python sequences; costs are counted on it, Numba compiles it
    reference:  the same result by NumPy, handed the numpy module as first argument
    access:     read | write | update | copy | triad | none, which beta it measures
    """

    name: str
    family: str
    access: str
    work: Callable[[int, Mapping[str, int], str], Work]
    plain: Callable[..., Any]
    reference: Callable[..., Any]
    shape: Shape
    summary: str = ""
