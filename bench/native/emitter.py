"""The layout of a loop, and what its code is emitted with: arguments, counted loops, vector arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from bench.native import abi
from bench.native.isa import Isa
from kernels.spec import ITEM_BYTES

I64, I32, PTR = ir.IntType(64), ir.IntType(32), ir.PointerType()
SCALAR = {"fp64": ir.DoubleType(), "fp32": ir.FloatType(), "fp16": ir.HalfType()}


class Bfloat(ir.Type):  # type: ignore[misc]
    """The 16-bit float with the exponent of fp32, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"


DOTS = {
    ("bf16", True): ("x86.avx512bf16.dpbf16ps.{bits}", I32, 1),
    ("int8", True): ("x86.avx512.vpdpbusd.{bits}", I32, 1),
    ("bf16", False): ("aarch64.neon.bfdot.v4f32.v8bf16", Bfloat(), 2),
    ("int8", False): ("aarch64.neon.sdot.v4i32.v16i8", ir.IntType(8), 4),
}
"""Intrinsic of a dot product by its inputs and whether for x86-64; its operands' items, and those of a lane.

On x86-64 the operands are named by lanes of 32 bit: newer compilers take them for what they are.
"""

Value = Any
Loop = Callable[[Value, list[Value]], list[Value]]


@dataclass(frozen=True)
class Form:
    """How a loop is laid out: `streams` sub-streams x `vectors` a block, `chains` for the peak
    chain, nontemporal stores, `prefetch` bytes ahead (0: none), `fma` vector FMAs per block of a mix loop."""

    streams: int = 1
    vectors: int = 4
    chains: int = 0
    nontemporal: bool = False
    prefetch: int = 0
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
        self._dot: Any = None

    def word(self, index: int, kind: Any = I64) -> Value:
        """Argument word `index` as an integer, pointer or double."""
        args = self.function.args[0]
        address = self.builder.gep(args, [ir.Constant(I64, index)], source_etype=I64)
        return self.builder.load(address, typ=kind)

    def splat(self, word: int) -> Value:
        """A double argument in every lane."""
        value = self.word(word, ir.DoubleType())
        if self.item < 8:
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

    def dot(self, inputs: str, x: Value, a: Value, b: Value) -> Value:
        """x plus, in each lane of 32 bit, the products of the lane's items of a and b, in one instruction.

        inputs: bf16 (x: fp32) or int8 (x: int32), of which a and b hold the bits
        """
        name, item, count = DOTS[inputs, self.isa.x86]
        operand = ir.VectorType(item, self.lanes * count)
        if self._dot is None:
            name = f"llvm.{name.format(bits=8 * self.isa.vector_bytes)}"
            kind = ir.FunctionType(x.type, [x.type, operand, operand])
            self._dot = ir.Function(self.module, kind, name)
        a, b = (self.builder.bitcast(value, operand) for value in (a, b))
        return self.builder.call(self._dot, [x, a, b])

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
        part = self.part(streams)
        found: dict[str, list[Value]] = {}
        for name in dict.fromkeys(names):
            base = self.at(self.word(words[name], PTR), self.word(abi.OFFSET))
            shifts = [self.builder.mul(part, ir.Constant(I64, j)) for j in range(streams)]
            found[name] = [self.held(self.at(base, shift)) for shift in shifts]
        return found

    def held(self, address: Value) -> Value:
        """The same address, of whose origin the compiler knows nothing.

        It keeps such addresses in registers. Known to be base + j x part, they are computed anew in every
        trip, one from the other: 5 instructions more beside 12 loads, and fewer lines in the reorder window
        (4 to 5 % of a read from DRAM on Zen 3).
        """
        same = ir.InlineAsm(ir.FunctionType(PTR, [PTR]), "", "=r,0")
        return self.builder.call(same, [address])

    def part(self, streams: int) -> Value:
        """Bytes of one sub-stream."""
        return self.builder.sdiv(self.word(abi.SPAN), ir.Constant(I64, streams))
