"""From the loop shape that a kernel declares to LLVM IR with explicit vectors of the full width.

No IR optimisation pass runs on what is emitted: the loop is written as it shall execute, so the
instructions of the machine code can be counted against the declared work (bench/native/audit.py).
Formulations measured to reach the limit: many independent chains, several sub-streams walked
together (memory-level parallelism), software prefetch only where arithmetic fills the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from bench.native import abi
from bench.native.isa import Isa
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ITEM_BYTES, ChainShape, MixShape, Shape, StreamShape

I64, I32, PTR = ir.IntType(64), ir.IntType(32), ir.PointerType()
SCALAR = {"fp64": ir.DoubleType(), "fp32": ir.FloatType()}
CHAIN_UNROLL = 4  # steps per iteration: 3 loop instructions beside 4 x chains FMA
PREFETCH_BYTES = 1024  # how far ahead: about the lines that a full reorder window cannot reach
LINE_BYTES = 64

Value = Any
Loop = Callable[[Value, list[Value]], list[Value]]


@dataclass(frozen=True)
class Form:
    """How a loop is laid out: `streams` sub-streams x `vectors` a block, `chains` for the peak
    chain, nontemporal stores, prefetch ahead, `fma` vector FMAs per block of a mix loop."""

    streams: int = 1
    vectors: int = 4
    chains: int = 0
    nontemporal: bool = False
    prefetch: bool = False
    fma: int = 0


class Emitter:
    """One loop function under construction: arguments, counted loops, vector arithmetic."""

    def __init__(self, isa: Isa, precision: str) -> None:
        self.isa, self.item = isa, ITEM_BYTES[precision]
        self.lanes = isa.vector_bytes // self.item
        self.scalar = SCALAR[precision]
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.bits = ir.VectorType(ir.IntType(8 * self.item), self.lanes)
        self.module = ir.Module(name="loop")
        self.module.triple = isa.triple
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR]), "loop")
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        intrinsic = f"llvm.fma.v{self.lanes}f{8 * self.item}"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        self._fma = ir.Function(self.module, kind, intrinsic) if isa.fma else None
        self._prefetch: Any = None

    def word(self, index: int, kind: Any = I64) -> Value:
        """Argument word `index` as an integer, pointer or double."""
        args = self.function.args[0]
        address = self.builder.gep(args, [ir.Constant(I64, index)], source_etype=I64)
        return self.builder.load(address, typ=kind)

    def splat(self, word: int) -> Value:
        """A double argument in every lane."""
        value = self.word(word, ir.DoubleType())
        if self.item == 4:
            value = self.builder.fptrunc(value, self.scalar)
        vector = ir.Constant(self.vector, ir.Undefined)
        for lane in range(self.lanes):
            vector = self.builder.insert_element(vector, value, ir.Constant(I32, lane))
        return vector

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c: one instruction where the machine has it, else a multiply and an add."""
        if self._fma is None:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.builder.call(self._fma, [a, b, c])

    def mul(self, a: Value, b: Value) -> Value:
        """a * b lane by lane."""
        return self.builder.fmul(a, b)

    def add(self, a: Value, b: Value) -> Value:
        """a + b lane by lane."""
        return self.builder.fadd(a, b)

    def zero(self) -> Value:
        """A vector of zeros."""
        return ir.Constant(self.vector, [0.0] * self.lanes)

    def at(self, base: Value, offset: Value | int) -> Value:
        """Address `offset` bytes past `base`."""
        shift = ir.Constant(I64, offset) if isinstance(offset, int) else offset
        return self.builder.gep(base, [shift], source_etype=ir.IntType(8))

    def load(self, address: Value) -> Value:
        """An aligned vector."""
        return self.builder.load(address, typ=self.vector, align=self.isa.vector_bytes)

    def store(self, value: Value, address: Value, nontemporal: bool = False) -> None:
        """Store an aligned vector, past the caches when non-temporal."""
        instruction = self.builder.store(value, address, align=self.isa.vector_bytes)
        if nontemporal:
            one = self.module.add_metadata([ir.Constant(I32, 1)])
            instruction.set_metadata("nontemporal", one)

    def prefetch(self, address: Value) -> None:
        """Ask for the line at `address` (read, keep in all levels)."""
        if self._prefetch is None:
            kind = ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32])
            self._prefetch = ir.Function(self.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(I32, flag) for flag in (0, 3, 1)]
        self.builder.call(self._prefetch, [address, *flags])

    def loop(self, stop: Value, step: int, carried: Sequence[Value], body: Loop) -> list[Value]:
        """for i in 0, step, ... < stop (any number of trips): body(i, carried) -> carried."""
        b, before = self.builder, self.builder.block
        inside, after = b.append_basic_block("body"), b.append_basic_block("after")
        zero = ir.Constant(I64, 0)
        b.cbranch(b.icmp_signed("<", zero, stop), inside, after)
        b.position_at_end(inside)
        index = b.phi(I64)
        index.add_incoming(zero, before)
        phis = [b.phi(v.type) for v in carried]
        results = body(index, list(phis))
        last = b.block
        following = b.add(index, ir.Constant(I64, step))
        index.add_incoming(following, last)
        for phi, first, result in zip(phis, carried, results, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(result, last)
        b.cbranch(b.icmp_signed("<", following, stop), inside, after)
        b.position_at_end(after)
        merged = [b.phi(v.type) for v in carried]
        for phi, first, result in zip(merged, carried, results, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(result, last)
        return merged

    def finish(self, results: Sequence[Value]) -> str:
        """Store the carried vectors at RESULT and return the module's text."""
        base = self.word(abi.RESULT, PTR)
        for j, vector in enumerate(results):
            self.store(vector, self.at(base, j * self.isa.vector_bytes))
        self.builder.ret_void()
        return str(self.module)

    def bases(self, names: Sequence[str], streams: int) -> dict[str, list[Value]]:
        """First address of every sub-stream of every named array, this repetition's offset added."""
        words = {"a": abi.A, "b": abi.B, "c": abi.C}
        part = self.builder.sdiv(self.word(abi.SPAN), ir.Constant(I64, streams))
        found: dict[str, list[Value]] = {}
        for name in dict.fromkeys(names):
            base = self.at(self.word(words[name], PTR), self.word(abi.OFFSET))
            shifts = [self.builder.mul(part, ir.Constant(I64, j)) for j in range(streams)]
            found[name] = [self.at(base, shift) for shift in shifts]
        return found

    def part(self, streams: int) -> Value:
        """Bytes of one sub-stream."""
        return self.builder.sdiv(self.word(abi.SPAN), ir.Constant(I64, streams))


@cache
def loop_ir(shape: Shape, form: Form, isa: Isa, precision: str) -> str:
    """LLVM IR text of `void loop(int64 *args)` for a declared shape; KeyError on a precision
    without loops, TypeError on a shape that lives in a library."""
    if isinstance(shape, ChainShape):
        return _chain(form, Emitter(isa, precision))
    if isinstance(shape, StreamShape):
        return _stream(shape, form, Emitter(isa, precision))
    if isinstance(shape, MixShape):
        return _mix(shape, form, Emitter(isa, precision))
    raise TypeError(f"{type(shape).__name__} has no loop of its own")


def _chain(form: Form, e: Emitter) -> str:
    base, m = e.word(abi.RESULT, PTR), e.splat(abi.FACTOR)
    chains = [e.load(e.at(base, j * e.isa.vector_bytes)) for j in range(form.chains)]

    def body(_: Value, x: list[Value]) -> list[Value]:
        for _step in range(CHAIN_UNROLL):
            x = [e.fma(v, m, v) for v in x]
        return x

    return e.finish(e.loop(e.word(abi.SPAN), 1, chains, body))


def _stream(shape: StreamShape, form: Form, e: Emitter) -> str:
    width, s = e.isa.vector_bytes, e.splat(abi.FACTOR)
    bases = e.bases((*shape.loads, *shape.stores), form.streams)
    part = e.part(form.streams)
    sums = [] if shape.stores else [e.zero()] * (form.streams * form.vectors)

    def block(i: Value, sums: list[Value]) -> list[Value]:
        totals: list[Value] = []
        for k in range(form.streams):
            rows = {name: e.at(base[k], i) for name, base in bases.items()}
            if form.prefetch:
                _ahead(e, [rows[n] for n in shape.loads], form.vectors)
            for v in range(form.vectors):
                loaded = [e.load(e.at(rows[name], v * width)) for name in shape.loads]
                if shape.element is None:
                    totals.append(e.add(sums[len(totals)], loaded[0]))
                    continue
                value = shape.element(e, s, *loaded)
                for name in shape.stores:
                    e.store(value, e.at(rows[name], v * width), form.nontemporal)
        return totals

    def one_pass(_: Value, sums: list[Value]) -> list[Value]:
        return e.loop(part, form.vectors * width, sums, block)

    totals = e.loop(e.word(abi.PASSES), 1, sums, one_pass)
    if form.nontemporal:
        e.builder.fence("seq_cst")
    return e.finish(totals)


def _ahead(e: Emitter, rows: Sequence[Value], vectors: int) -> None:
    for row in rows:
        for line in range(0, vectors * e.isa.vector_bytes, LINE_BYTES):
            e.prefetch(e.at(row, PREFETCH_BYTES + line))


def _mix(shape: MixShape, form: Form, e: Emitter) -> str:
    width, m = e.isa.vector_bytes, e.splat(abi.FACTOR)
    vectors = BLOCK_VECTORS // form.streams
    base, part, rounds = e.bases("a", form.streams)["a"], e.part(form.streams), e.word(abi.ROUNDS)
    busy = min(form.fma, BLOCK_VECTORS)
    start = [e.zero()] * BLOCK_VECTORS + [ir.Constant(e.bits, [0] * e.lanes)]

    def one_round(_: Value, x: list[Value]) -> list[Value]:
        return [e.fma(v, m, v) for v in x]

    def block(i: Value, carried: list[Value]) -> list[Value]:
        rows = [e.at(b, i) for b in base]
        if form.prefetch:
            _ahead(e, rows, vectors)
        places = [e.at(row, v * width) for row in rows for v in range(vectors)]
        acc, checksum = carried[:BLOCK_VECTORS], carried[BLOCK_VECTORS]
        for v in range(busy):
            acc[v] = e.fma(acc[v], m, e.load(places[v]))
        for place in places[busy:]:
            x = e.load(place)
            if shape.write_back:
                e.store(e.builder.fneg(x), place)
            else:
                checksum = e.builder.xor(checksum, e.builder.bitcast(x, e.bits))
        if form.fma >= BLOCK_VECTORS:
            acc = e.loop(rounds, 1, acc, one_round)
        if shape.write_back:
            for v in range(busy):
                e.store(acc[v], places[v])
        return [*acc, checksum]

    def one_pass(_: Value, carried: list[Value]) -> list[Value]:
        return e.loop(part, vectors * width, carried, block)

    *acc, checksum = e.loop(e.word(abi.PASSES), 1, start, one_pass)
    return e.finish([*acc, e.builder.bitcast(checksum, e.vector)])


def fill_ir(isa: Isa) -> str:
    """IR of a loop that fills SPAN bytes at A with random operands, from the seeds at RESULT.

    Every 32-bit word is 0x3F8 followed by random bits: as fp32 a number in [1, 2), and two of
    them as fp64 a number in [2^-7, 2). One buffer serves both; no NaN, no denormals.
    """
    e = Emitter(isa, "fp32")
    b, width = e.builder, isa.vector_bytes
    base, seeds = e.at(e.word(abi.A, PTR), e.word(abi.OFFSET)), e.word(abi.RESULT, PTR)

    def every(value: int) -> Value:
        return ir.Constant(e.bits, [value] * e.lanes)

    def block(i: Value, state: list[Value]) -> list[Value]:
        x = b.xor(state[0], b.shl(state[0], every(13)))
        x = b.xor(x, b.lshr(x, every(17)))
        x = b.xor(x, b.shl(x, every(5)))
        word = b.or_(b.lshr(x, every(9)), every(0x3F800000))
        e.store(b.bitcast(word, e.vector), e.at(base, i))
        return [x]

    start = b.load(seeds, typ=e.bits, align=width)
    final = e.loop(e.word(abi.SPAN), width, [start], block)
    return e.finish([b.bitcast(final[0], e.vector)])
