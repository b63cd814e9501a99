"""The vocabulary of every kernel: what work it does (Work) and how its loop looks (Kernel)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ITEM_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "int32": 4, "int8": 1, "fp8": 1}
"""Bytes of one item of each input type."""

LOOPED = ("fp64", "fp32")
"""Precisions that the plain bodies and the loops emitted for CPUs are written for."""


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
    """Independent chains of dependent multiply-adds, x <- x m + x, held in registers."""


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
    """Blocks of vectors streamed past accumulators, each of which takes one or more FMA a block.

    write_back: the accumulators are stored over the vectors just loaded (in place).
    """

    write_back: bool


@dataclass(frozen=True)
class ChaseShape:
    """Pointer chases through random cycles: every load's address is what the load before it returned.

    Several chains walk interleaved, each from its own place: so many loads are in flight at a time.
    window_bytes: lines follow each other at random within windows of this size, windows at random (0: the
    whole set is one): with pages of an ordinary size, a window is what a small TLB still reaches.
    """

    window_bytes: int = 0


@dataclass(frozen=True)
class LibraryShape:
    """The loop lives in a library (BLAS): there is no machine code of ours to count."""


@dataclass(frozen=True)
class TensorShape:
    """Matrix instructions on operands that stay in registers or shared memory: GPUs only."""


Shape = ChainShape | StreamShape | MixShape | ChaseShape | LibraryShape | TensorShape


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


@dataclass(frozen=True)
class Expect:
    """What the machine code of one CUDA form must hold; `python -m bench audit` compiles and checks it.

    opcodes:    {regular expression of a whole SASS opcode with its suffixes: count} per trip of the hot
                loop as written in the source (a compiler's further unrolling is divided out), or in the
                whole function where `loop` is False
    share:      least share of all instructions of the hot loop that `opcodes` make up, 0 where none is asked
    load_bits:  width that every global load and store of the bulk data must have, 0 where there is none
    registers:  most registers a thread may use;  forbidden: opcodes that must not occur (spills never may)
    in_flight:  loads of the bulk data that must be under way before any of them is waited for
    """

    opcodes: Mapping[str, int]
    loop: bool = True
    share: float = 0.0
    load_bits: int = 0
    registers: int = 255
    forbidden: tuple[str, ...] = ()
    in_flight: int = 0


@dataclass(frozen=True)
class CudaForm:
    """One __global__ function of a family: what it measures, how it is launched, what it must compile to.

    entry:     its name;  code: the C++ that stamps it out of the family's preamble
    kernel:    name in kernels.KERNELS;  precision: label of the precision ("fp32", "fp16>fp32 matrix")
    variant:   its name within the kernel, as in Point.variant less the block size ("v16 l4", "8 chains")
    items:     items a thread handles at a time, 0 where it handles none (chains, matrix instructions) or as
               many as there are (read); n must be a multiple of items x block
    flops:     FLOP (multiply-add 2) of one thread in one trip of its counted loop, 0 where nothing is counted
    grid:      cover (as many blocks as the items need) | persistent (what fits on the device at once)
    blocks:    block sizes worth trying, best guess first;  shared_bytes: dynamic shared memory
    carveout:  percent of the on-chip memory wanted as shared memory, -1 what the driver chooses
    least_cc:  compute capability x 10 from which it exists;  only: targets it is made for ("90a"), else all
    shim:      whether it also compiles for the CPU (no inline PTX, no barrier)
    """

    entry: str
    code: str
    kernel: str
    precision: str
    variant: str
    expect: Expect
    items: int = 0
    flops: int = 0
    grid: str = "cover"
    blocks: tuple[int, ...] = (256,)
    shared_bytes: int = 0
    carveout: int = -1
    least_cc: int = 70
    only: tuple[str, ...] = ()
    shim: bool = True


@dataclass(frozen=True)
class CudaFamily:
    """The CUDA C++ of a family: the preamble all its functions share, and the functions.

    Every function has one signature, so that one launcher serves all:
        extern "C" __global__ void entry(T* a, const T* b, const T* c, const S* s, long long n, int count)
    stream, mix: a is stored to, b and c are loaded, s[0] is the factor, n items an array
    fma, tensor: a gets one result a thread (for n threads), b are operands, s[0] is m, count trips
    cache, latency: see kernels/working_sets.py and kernels/chases.py
    """

    preamble: str
    forms: tuple[CudaForm, ...]

    def source(self, *entries: str) -> str:
        """C++ of the named functions, of all without names; KeyError for one that does not exist."""
        known = {form.entry: form.code for form in self.forms}
        return "\n".join([self.preamble, *(known[name] for name in entries or known)]) + "\n"
