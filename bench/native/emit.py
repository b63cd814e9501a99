"""From the loop shape that a kernel declares to LLVM IR with explicit vectors of the full width.

No IR optimisation pass runs on what is emitted: the loop is written as it shall execute, so the
instructions of the machine code can be counted against the declared work (bench/native/audit.py).
Formulations measured to reach the limit: many independent chains, several sub-streams walked
together (memory-level parallelism), software prefetch only where arithmetic fills the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from llvmlite import ir

from bench.native import abi
from bench.native.emitter import PTR, Emitter, Value
from bench.native.emitter import Form as Form
from bench.native.isa import Isa
from kernels.dots import INTO
from kernels.latency import LINE_BYTES
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ChainShape, ChaseShape, MixShape, Shape, StreamShape

CHAIN_UNROLL = 4  # steps per iteration: 3 loop instructions beside 4 x chains FMA
CLOCK_STEPS = 64  # dependent one-cycle instructions per iteration of the clock chain


@cache
def loop_ir(shape: Shape, form: Form, isa: Isa, precision: str) -> str:
    """LLVM IR text of `void loop(int64 *args)` for a declared shape; KeyError on a precision
    without loops, TypeError on a shape that lives in a library."""
    if isinstance(shape, ChainShape):
        if precision in INTO:
            return _dots(form, Emitter(isa, "fp32"), precision)
        return _chain(form, Emitter(isa, precision))
    if isinstance(shape, StreamShape):
        return _stream(shape, form, Emitter(isa, precision))
    if isinstance(shape, MixShape):
        return _mix(shape, form, Emitter(isa, precision))
    if isinstance(shape, ChaseShape):
        return _chase(form, Emitter(isa, precision))
    raise TypeError(f"{type(shape).__name__} has no loop of its own")


def _chain(form: Form, e: Emitter) -> str:
    base, m = e.word(abi.RESULT, PTR), e.splat(abi.FACTOR)
    chains = [e.load(e.at(base, j * e.isa.vector_bytes)) for j in range(form.chains)]

    def body(_: Value, x: list[Value]) -> list[Value]:
        for _step in range(CHAIN_UNROLL):
            x = [e.fma(v, m, v) for v in x]
        return x

    return e.finish(e.loop(e.word(abi.SPAN), 1, chains, body))


def _dots(form: Form, e: Emitter, inputs: str) -> str:
    """Chains of dot products of narrow items into lanes of 32 bit (kernels/dots.py)."""
    b, base = e.builder, e.word(abi.RESULT, PTR)
    kind = e.bits if INTO[inputs] == "int32" else e.vector
    one, other = (b.load(e.word(word, PTR), typ=e.bits, align=e.isa.vector_bytes) for word in (abi.A, abi.B))
    chains = [b.bitcast(e.load(e.at(base, j * e.isa.vector_bytes)), kind) for j in range(form.chains)]

    def body(_: Value, x: list[Value]) -> list[Value]:
        for _step in range(CHAIN_UNROLL):
            x = [e.dot(inputs, v, one, other) for v in x]
        return x

    totals = e.loop(e.word(abi.SPAN), 1, chains, body)
    return e.finish([b.bitcast(x, e.vector) for x in totals])


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
                _ahead(e, [rows[n] for n in shape.loads], form.vectors, form.prefetch)
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


def _ahead(e: Emitter, rows: Sequence[Value], vectors: int, bytes: int) -> None:
    for row in rows:
        for line in range(0, vectors * e.isa.vector_bytes, LINE_BYTES):
            e.prefetch(e.at(row, bytes + line))


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
            _ahead(e, rows, vectors, form.prefetch)
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


def chase_steps(form: Form, isa: Isa) -> int:
    """Loads of every chain in one trip: 8 from registers; 1 where places do not fit them, and lie in memory.

    16 general registers hold 12 places beside the stack, the counter and its end; 31 hold 24.
    """
    return 8 if form.chains <= (12 if isa.x86 else 24) else 1


def _chase(form: Form, e: Emitter) -> str:
    """SPAN trips of `chains` dependent loads in turn; places come from RESULT and go back there."""
    b, base = e.builder, e.word(abi.RESULT, PTR)
    slots = [e.at(base, 8 * j) for j in range(form.chains)]
    steps = chase_steps(form, e.isa)

    def from_registers(_: Value, places: list[Value]) -> list[Value]:
        for _step in range(steps):
            places = [b.load(place, typ=PTR) for place in places]
        return places

    def from_memory(_: Value, none: list[Value]) -> list[Value]:
        for slot in slots:  # the slot is in L1: some cycles more a step, hidden by so many chains
            b.store(b.load(b.load(slot, typ=PTR), typ=PTR), slot)
        return none

    if steps > 1:
        places = e.loop(e.word(abi.SPAN), 1, [b.load(slot, typ=PTR) for slot in slots], from_registers)
        for place, slot in zip(places, slots, strict=True):
            b.store(place, slot)
    else:
        e.loop(e.word(abi.SPAN), 1, [], from_memory)
    return e.finish([])


@cache
def clock_ir(isa: Isa) -> str:
    """IR of SPAN trips of CLOCK_STEPS dependent additions and exclusive ors of integers.

    Each takes one cycle on every x86-64 and AArch64 core, so that trips x CLOCK_STEPS / s is the clock.
    """
    e = Emitter(isa, "fp64")
    start, by = e.word(abi.A), e.word(abi.B)

    def body(_: Value, x: list[Value]) -> list[Value]:
        for _step in range(CLOCK_STEPS // 2):
            x = [e.builder.xor(e.builder.add(x[0], by), by)]
        return x

    final = e.loop(e.word(abi.SPAN), 1, [start], body)
    e.builder.store(final[0], e.word(abi.RESULT, PTR))
    return e.finish([])


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
