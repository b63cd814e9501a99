"""Points whose code is an emitted loop: chains, streams, mixes and working sets on the thread team."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.backends import UNBOUNDED, Prepared
from bench.backends.machine import Machine
from bench.errors import DeviceError
from bench.native import emit, isa, jit, loops
from bench.native.arena import Arena
from bench.native.check import at, check_loop
from bench.native.emit import Form
from bench.native.loops import Window
from bench.profile.records import Point, Repetitions
from kernels import KERNELS
from kernels.dots import INTO
from kernels.fma import FACTOR
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ITEM_BYTES, ChainShape, ChaseShape, Kernel, StreamShape, Work
from kernels.stream import hidden_streams

LAYOUTS = {
    "read": ("s6u2", "s3u4", "s4u2", "s1u12"),
    "update": ("s6u2p256", "s6u2", "s4u2", "s3u4", "s1u12"),
    "write": ("s3u4", "s1u4", "s1u8"),
    "copy": ("s2u4", "s2u4p256", "s3u2", "s2u1", "s1u1", "s1u8"),
    "scale": ("s2u4", "s2u4p256", "s3u2", "s2u1", "s1u1", "s1u8"),
    "add": ("s2u4", "s2u4p256", "s1u1", "s1u8", "s1u4"),
    "triad": ("s2u4", "s2u4p256", "s1u1", "s1u8", "s1u4"),
    "mix-read-only": ("s6u2", "s6u2p512", "s6u2p1024", "s3u4"),
    "mix-in-place": ("s6u2p512", "s6u2", "s6u2p1024", "s3u4"),
    "cache-read": ("s1u12", "s1u8", "s3u4", "s2u4", "s1u12p1024", "s3u4p1024", "s6u2"),
    "cache-write": ("s1u8", "s1u4", "s2u4"),
    "cache-update": ("s1u8", "s1u12", "s3u4"),
    "cache-copy": ("s1u4", "s1u8", "s2u4"),
    "gemm": ("square",),
    "fma-naive": ("numba",),
}
"""Sub-streams x vectors a block. Read-only traffic wants many sub-streams (memory-level parallelism: up to
31 % over one), copies two or three; a single vector a trip suits the prefetchers of some machines. p: the
bytes ahead that are asked for: 512 carry reads to the ridge, where arithmetic fills the reorder window (0.96
of beta, against 0.86 without and 0.81 with 1024, 96 FMAs a block, Zen 3); 256 help stores; 1024 a read of
L3 with AVX-512 (0.92 of a C loop that asks 1024 ahead without, Zen 5)."""


def variants(kernel: str, target: isa.Isa) -> tuple[str, ...]:
    """Layouts worth trying, best guess first."""
    if kernel == "fma":
        return tuple(f"{n} chains" for n in chain_counts(target))
    if kernel in KERNELS and isinstance(KERNELS[kernel].shape, ChaseShape):
        return ("1 chain",)
    return LAYOUTS.get(kernel, ("",))


@dataclass
class Loop:
    """What a prepared point keeps: the code, its memory and its window."""

    machine: Machine
    precision: str
    function: int
    kernel: Kernel
    form: Form
    addresses: list[Any]
    results: list[Any]
    window: Window
    rounds: int
    arena: Arena | None  # kept alive as long as a loop may run on it

    def work(self, amount: int, level: str) -> Work:
        """Work of `amount` iterations, blocks or passes on all threads."""
        item, threads = ITEM_BYTES[self.precision], len(self.addresses)
        shape = self.kernel.shape
        if isinstance(shape, ChainShape):
            lanes = self.machine.isa.vector_bytes // item
            n = loops.scalar_fmas(self.form, lanes, threads, amount)
            return self.kernel.work(item, {"n": n}, level)
        blocks, passes = self._cut(amount)
        n = blocks * passes * self.window.unit // item * threads
        return self.kernel.work(item, {"n": n, "fma": self.form.fma}, level)

    def _cut(self, amount: int) -> tuple[int, int]:
        """Blocks to walk and passes over them: a working set is always walked whole."""
        return (self.window.most, amount) if self.kernel.family == "cache" else self.window.cut(amount)

    def check(self) -> None:
        """Compare the loop, on a small set, with its reference; VerificationError when it differs."""
        check_loop(at(self.function), self.kernel, self.form, self.precision, self.machine.isa)

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` iterations, blocks or passes each."""
        offsets: Any = np.zeros(n, np.int64)
        if isinstance(self.kernel.shape, ChainShape):
            span, passes = amount, 1
        else:
            blocks, passes = self._cut(amount)
            span = blocks * self.window.unit
            if self.kernel.family != "cache":
                offsets = self.window.offsets(blocks, n)
        factor = 1.0 if isinstance(self.kernel.shape, StreamShape) else FACTOR
        args = loops.blocks_for(self.addresses, self.results, span, passes, self.rounds, factor)
        return self.machine.repeat(self.function, args, offsets)

    def close(self) -> None:
        """See Call; the arrays stay for the next point."""


def prepare(point: Point, machine: Machine) -> Prepared:
    """Compile and lay out one point; DeviceError for a variant that is no layout, MemoryError when full."""
    kernel, form = KERNELS[point.kernel], form_of(point)
    code = replace(form, fma=min(form.fma, BLOCK_VECTORS))  # further rounds are counted at run time
    ir = emit.loop_ir(kernel.shape, code, machine.isa, point.precision.inputs)
    results = [loops.operands(kind_of(point.precision.accumulate)) for _ in range(point.threads)]
    addresses, part, arena = _memory(point, kernel, machine)
    window = Window(part, loops.block_bytes(kernel.shape, form, machine.isa))
    if not isinstance(kernel.shape, ChainShape) and window.most < 1:
        raise DeviceError(f"{part} byte a thread is less than one block of {window.unit} byte: ask for more")
    rounds = form.fma // BLOCK_VECTORS - 1 if form.fma >= BLOCK_VECTORS else 0
    function, name = jit.address(ir, machine.isa), point.precision.inputs
    loop = Loop(machine, name, function, kernel, form, addresses, results, window, rounds, arena)
    return Prepared(
        point,
        lambda amount: loop.work(amount, point.level),
        1,
        UNBOUNDED,
        facts=_facts(point, kernel, machine),
        handle=loop,
    )


def _facts(point: Point, kernel: Kernel, machine: Machine) -> dict[str, Any]:
    facts: dict[str, Any] = {"isa": machine.isa.name, "cpus": list(machine.team.cpus[: point.threads])}
    if isinstance(kernel.shape, StreamShape):
        streams = len(kernel.shape.loads) + len(kernel.shape.stores)
        hidden = hidden_streams(kernel.shape, point.store) if point.level == "DRAM" else 0
        facts["hidden_traffic"] = hidden / streams
    return facts


def _memory(point: Point, kernel: Kernel, machine: Machine) -> tuple[list[Any], int, Arena | None]:
    """Addresses of a, b and c per thread, the bytes of each thread's part of a stream, and whose they are."""
    if isinstance(kernel.shape, ChainShape):
        one = machine.narrow(point.precision.inputs) if point.precision.inputs in INTO else 0
        return [(one, one, 0)] * point.threads, 0, None
    local = point.threads if len(machine.device.facts.get("nodes", {})) > 1 else machine.threads
    cached = kernel.family == "cache"
    arena = machine.arena(
        max(point.sizes["bytes"] * point.threads, 1 << 21) if cached else point.sizes["bytes"], local
    )
    if kernel.access not in ("read", "none"):
        arena.ready_for(point.precision.inputs)
    if cached:
        sets = [cache_addresses(arena, t, point) for t in range(point.threads)]
        return sets, point.sizes["bytes"] // (2 if point.access == "copy" else 1), arena
    part = arena.part if point.threads == local else arena.bytes // point.threads // 4096 * 4096
    bases = arena.addresses(0)
    return [[base + t * part for base in bases] for t in range(point.threads)], part, arena


def chain_counts(target: isa.Isa) -> tuple[int, ...]:
    """Numbers of chains worth trying: what the registers hold beside m, best guess first.

    Without FMA every step needs a second register for the product, or the loop spills.
    """
    if not target.fma:
        return (8, 6)
    return (12, 10, 14, 8) if target.registers == 16 else (16, 12, 20, 24, 8)


def kind_of(name: str) -> str:
    """NumPy's kind of the items of a precision that accumulates."""
    return f"{'i' if name.startswith('int') else 'f'}{ITEM_BYTES[name]}"


def form_of(point: Point) -> Form:
    """The loop layout that a point's variant and store name; DeviceError on one that is no layout."""
    fma, nontemporal = point.sizes.get("fma", 0), point.store == "nontemporal"
    if found := re.fullmatch(r"(\d+) chains?", point.variant):
        return Form(chains=int(found[1]))
    if found := re.fullmatch(r"s(\d+)u(\d+)(?:p(\d+))?", point.variant):
        return Form(int(found[1]), int(found[2]), 0, nontemporal, int(found[3] or 0), fma)
    raise DeviceError(f"{point.variant!r} is no layout of {point.kernel}: want e.g. '12 chains' or 's3u4'")


def cache_addresses(arena: Arena, thread: int, point: Point) -> list[int]:
    """Where a thread's working set lies: one array, or the destination behind the source.

    In the thread's own part of the arrays where it fits (local memory), else side by side.
    """
    bytes = point.sizes["bytes"]
    name = 1 if point.access == "read" else 0
    base = arena.addresses(thread)[name] if bytes <= arena.part else arena.addresses(0)[name] + thread * bytes
    return [base + (bytes // 2 if point.access == "copy" else 0), base, base]
