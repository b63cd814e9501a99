"""The host CPU: native loops of the full vector width on pinned threads, BLAS beside them.

Linux on x86-64 or AArch64. Every number of a repetition is taken inside native code
(bench/native); only BLAS and other library calls are timed by the host clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import host
from bench.backends import Prepared, calls
from bench.device import Device
from bench.errors import DeviceError
from bench.native import abi, emit, isa, jit, loops
from bench.native.arena import Arena, block
from bench.native.check import at, check_loop
from bench.native.emit import Form
from bench.native.loops import Window
from bench.native.team import Team
from bench.profile.records import Point, Precision, Repetitions
from kernels import KERNELS
from kernels.fma import FACTOR
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ITEM_BYTES, LOOPED, ChainShape, Kernel, LibraryShape, StreamShape, Work
from kernels.stream import hidden_streams

NAP_NS = 500_000
LAYOUTS = {
    "read": ("s6u2", "s3u4", "s4u2", "s1u12"),
    "update": ("s6u2", "s4u2", "s3u4", "s1u12"),
    "write": ("s3u4", "s1u4", "s1u8"),
    "copy": ("s2u4", "s3u2", "s2u1", "s1u1", "s1u8"),
    "scale": ("s2u4", "s3u2", "s2u1", "s1u1", "s1u8"),
    "add": ("s2u4", "s1u1", "s1u8", "s1u4"),
    "triad": ("s2u4", "s1u1", "s1u8", "s1u4"),
    "mix-read-only": ("s6u2 prefetch", "s6u2", "s3u4"),
    "mix-in-place": ("s6u2 prefetch", "s6u2", "s3u4"),
    "cache-read": ("s1u12", "s1u8", "s3u4", "s2u4"),
    "cache-copy": ("s1u4", "s1u8", "s2u4"),
    "gemm": ("square",),
    "fma-naive": ("numba",),
}
"""Sub-streams x vectors a block. Read-only traffic wants many sub-streams (memory-level parallelism: up to
31 % over one), copies two or three; a single vector a trip suits the prefetchers of some machines."""

DISTURBED = 0.2  # share of cut repetitions in a batch from which threads nap before each one


@dataclass
class Loop:
    """What a prepared native point keeps: the code, its memory and its window."""

    function: int
    kernel: Kernel
    form: Form
    addresses: list[Any]
    results: list[Any]
    window: Window
    rounds: int
    arena: Arena | None  # kept alive as long as a loop may run on it


class CpuBackend:
    """The Backend protocol (bench/backends/__init__.py) for the CPU this process runs on."""

    clock_source = "native"

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or host.cpu_device()
        try:
            self.isa = isa.host()
        except RuntimeError as error:
            raise DeviceError(f"the CPU backend cannot run here: {error}") from None
        self.team = Team(self.device.facts["cpus"], self.isa)
        self._nap = 0
        self._arenas: dict[tuple[int, int], Arena] = {}
        self._chain = jit.address(emit.loop_ir(ChainShape(), Form(chains=8), self.isa, "fp64"), self.isa)
        self._seeds = [loops.operands(self.isa.vector_bytes, "f8") for _ in self.team.cpus]
        self._warm = [block(span=1, factor=FACTOR, result=seed.address) for seed in self._seeds]
        self._size_warm_up()

    def _size_warm_up(self) -> None:
        """Iterations of the warm-up chain that take loops.WARM_SECONDS."""
        trial = 20_000
        for args in self._warm:
            args[abi.SPAN] = trial
        rows = self.team.run(self._chain, self._warm, (self._chain, self._warm), np.zeros(5, np.int64))
        seconds = min(loops.repetitions(rows).seconds)
        for args in self._warm:
            args[abi.SPAN] = max(1, int(trial * loops.WARM_SECONDS / max(seconds, 1e-7)))

    def begin_round(self, round: int) -> None:
        """Nothing to do: rounds of a real device differ by themselves."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Layouts worth trying, best guess first."""
        if kernel == "fma":
            return tuple(f"{n} chains" for n in chain_counts(self.isa))
        return LAYOUTS.get(kernel, ("",))

    def unsupported(self, point: Point) -> str:
        """The reason why a point cannot be measured on this CPU, "" if it can."""
        if reason := self.device.precisions.get(point.precision.inputs, ""):
            return reason
        if point.family == "tensor":
            return "instructions of matrix units are measured on GPUs only"
        if point.precision.inputs not in LOOPED and point.family != "workload":
            return f"no loop for {point.precision.inputs} in this version"
        if point.threads > len(self.team.cpus):
            return f"{point.threads} threads wanted, {len(self.team.cpus)} CPUs may be used"
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Compile and lay out one point; DeviceError for an unknown kernel, MemoryError when full."""
        if point.family == "workload":
            return calls.workload(point, self.device, self._timed)
        if point.kernel not in KERNELS:
            raise DeviceError(f"unknown kernel {point.kernel!r}; valid: {', '.join(KERNELS)}")
        kernel = KERNELS[point.kernel]
        if point.kernel == "fma-naive":
            return calls.naive(point, kernel)
        if isinstance(kernel.shape, LibraryShape):
            return calls.gemm(point, kernel)
        return self._prepare_loop(point, kernel)

    def verify(self, prepared: Prepared) -> None:
        """Compare the loop (on a small set) or the library call with its reference."""
        loop = prepared.handle
        if not isinstance(loop, Loop):
            loop.check()
        else:
            check_loop(at(loop.function), loop.kernel, loop.form, prepared.point.precision.inputs, self.isa)

    def warm_up(self, seconds: float) -> None:
        """Run the chain on every CPU for `seconds`."""
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            self.team.run(self._chain, self._warm, (self._chain, self._warm), np.zeros(4, np.int64))

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` iterations, blocks, passes or executions each."""
        if isinstance(prepared.handle, Loop):
            return self._measure_loop(prepared.handle, amount, n)
        taken: Repetitions = prepared.handle.measure(amount, n)
        return taken

    def release(self, prepared: Prepared) -> None:
        """Forget the point; the arrays stay for the next one."""
        if not isinstance(prepared.handle, Loop):
            prepared.handle.close()
        prepared.handle = None

    def conditions(self) -> Mapping[str, Any]:
        """Load, clocks and other tenants now."""
        return host.conditions()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    # -- native loops ------------------------------------------------------------------------

    def _prepare_loop(self, point: Point, kernel: Kernel) -> Prepared:
        form = form_of(point)
        code = replace(form, fma=min(form.fma, BLOCK_VECTORS))  # further rounds are counted at run time
        ir = emit.loop_ir(kernel.shape, code, self.isa, point.precision.inputs)
        results = [loops.operands(self.isa.vector_bytes, point_kind(point)) for _ in range(point.threads)]
        addresses, part, arena = self._memory(point, kernel)
        unit = loops.block_bytes(kernel.shape, form, self.isa)
        span = part // (2 if kernel.name == "cache-copy" else 1)
        window = Window(span, unit)
        if not isinstance(kernel.shape, ChainShape) and window.most < 1:
            raise DeviceError(f"{part} byte a thread is less than one block of {unit} byte: ask for more")
        rounds = form.fma // BLOCK_VECTORS - 1 if form.fma >= BLOCK_VECTORS else 0
        loop = Loop(jit.address(ir, self.isa), kernel, form, addresses, results, window, rounds, arena)
        facts: dict[str, Any] = {"isa": self.isa.name, "cpus": list(self.team.cpus[: point.threads])}
        if isinstance(kernel.shape, StreamShape):
            streams = len(kernel.shape.loads) + len(kernel.shape.stores)
            hidden = 0 if point.family == "cache" else hidden_streams(kernel.shape, point.store)
            facts["hidden_traffic"] = hidden / streams
        return Prepared(
            point,
            lambda amount: self._loop_work(point, loop, amount),
            1,
            calls.MOST,
            facts=facts,
            handle=loop,
        )

    def _memory(self, point: Point, kernel: Kernel) -> tuple[list[Any], int, Arena | None]:
        """Addresses of a, b and c per thread, the bytes of each thread's part, and whose they are."""
        if isinstance(kernel.shape, ChainShape):
            return [(0, 0, 0)] * point.threads, 0, None
        everyone = len(self.team.cpus)
        local = point.threads if len(self.device.facts.get("nodes", {})) > 1 else everyone
        if point.family == "cache":
            arena = self._arena(max(point.sizes["bytes"] * point.threads, 1 << 21), local)
        else:
            arena = self._arena(point.sizes["bytes"], local)
        if kernel.access not in ("read", "none"):
            arena.ready_for(point.precision.inputs)
        if point.family == "cache":
            sets = [cache_addresses(arena, t, point) for t in range(point.threads)]
            return sets, point.sizes["bytes"], arena
        part = arena.part if point.threads == local else arena.bytes // point.threads // 4096 * 4096
        bases = arena.addresses(0)
        return [[base + t * part for base in bases] for t in range(point.threads)], part, arena

    def _arena(self, bytes: int, threads: int) -> Arena:
        """The arrays, remade only when larger ones or another split is asked for."""
        for (size, split), arena in self._arenas.items():
            if size >= bytes and split == threads:
                return arena
        self._arenas.clear()
        arena = Arena(bytes, threads, self.team, self.isa)
        self._arenas[bytes, threads] = arena
        return arena

    def _loop_work(self, point: Point, loop: Loop, amount: int) -> Work:
        item = ITEM_BYTES[point.precision.inputs]
        shape = loop.kernel.shape
        if isinstance(shape, ChainShape):
            lanes = self.isa.vector_bytes // item
            n = loops.scalar_fmas(shape, loop.form, lanes, point.threads, amount)
            return loop.kernel.work(item, {"n": n}, point.level)
        blocks, passes = loop.window.cut(amount) if point.family != "cache" else (loop.window.most, amount)
        n = blocks * passes * loop.window.unit // item * point.threads
        return loop.kernel.work(item, {"n": n, "fma": loop.form.fma}, point.level)

    def _measure_loop(self, loop: Loop, amount: int, n: int) -> Repetitions:
        if isinstance(loop.kernel.shape, ChainShape):
            span, passes, offsets = amount, 1, np.zeros(n, np.int64)
        elif loop.kernel.family == "cache":
            span, passes, offsets = loop.window.most * loop.window.unit, amount, np.zeros(n, np.int64)
        else:
            blocks, passes = loop.window.cut(amount)
            span, offsets = blocks * loop.window.unit, loop.window.offsets(blocks, n)
        factor = 1.0 if isinstance(loop.kernel.shape, StreamShape) else FACTOR
        args = loops.blocks_for(loop.addresses, loop.results, span, passes, loop.rounds, factor)
        taken = loops.repetitions(self._timed(loop.function, args, offsets))
        disturbed = 1 - sum(taken.clean) / n
        self._nap = NAP_NS if disturbed > DISTURBED or (self._nap and disturbed > 0) else 0
        return taken

    def _timed(self, function: int, blocks: list[Any], offsets: Any) -> Any:
        """Rows of a native function on the team, warmed up by the chain before each repetition."""
        return self.team.run(function, blocks, (self._chain, self._warm), offsets, self._nap)


def chain_counts(target: isa.Isa) -> tuple[int, ...]:
    """Numbers of chains worth trying: what the registers hold beside m, best guess first.

    Without FMA every step needs a second register for the product, or the loop spills.
    """
    if not target.fma:
        return (8, 6)
    return (12, 10, 14, 8) if target.registers == 16 else (16, 12, 20, 24, 8)


def point_kind(point: Point) -> str:
    """NumPy kind of a point's items."""
    return str(np.dtype(calls.DTYPE[point.precision.inputs]).str)


def form_of(point: Point) -> Form:
    """The loop layout that a point's variant and store name; DeviceError on one that is no layout."""
    fma, nontemporal = point.sizes.get("fma", 0), point.store == "nontemporal"
    if found := re.fullmatch(r"(\d+) chains", point.variant):
        return Form(chains=int(found[1]))
    if found := re.fullmatch(r"s(\d+)u(\d+)( prefetch)?", point.variant):
        return Form(int(found[1]), int(found[2]), 0, nontemporal, bool(found[3]), fma)
    raise DeviceError(f"{point.variant!r} is no layout of {point.kernel}: want e.g. '12 chains' or 's3u4'")


def cache_addresses(arena: Arena, thread: int, point: Point) -> list[int]:
    """Where a thread's working set lies: one array, or the destination behind the source.

    In the thread's own part of the arrays where it fits (local memory), else side by side.
    """
    bytes = point.sizes["bytes"]
    name = 1 if point.access == "read" else 0
    base = arena.addresses(thread)[name] if bytes <= arena.part else arena.addresses(0)[name] + thread * bytes
    return [base + bytes // 2, base, base]
