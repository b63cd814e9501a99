"""The native fork and join of a thread team: release all, run a body on each, wait for all; many times over.

`void loop(int64 *args)` runs on every thread of the team with argument words of its own meaning:

    A         address of a counter that all threads share (0 at the beginning)
    B, C      the body, a `void body(int64 *)`, and its argument block
    SPAN      how often to fork and join;  PASSES: number of threads

The threads wait by spinning, as those of an OpenMP team do by default between parallel regions: nobody
sleeps, so the time is that of the cache line that goes round, the least that any start of a team costs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from bench.native import abi
from bench.native.emitter import I64, PTR
from bench.native.isa import Isa

VOID, PAUSE = ir.VoidType(), "llvm.x86.sse2.pause"


def empty_ir(isa: Isa) -> str:
    """IR of a body that does nothing."""
    module = ir.Module(name="empty")
    module.triple = isa.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), "loop")
    ir.IRBuilder(function.append_basic_block("entry")).ret_void()
    return str(module)


def fork_join_ir(isa: Isa) -> str:
    """IR of the loop that forks and joins."""
    module = ir.Module(name="fork_join")
    module.triple = isa.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), "loop")
    b = ir.IRBuilder(function.append_basic_block("entry"))

    def word(index: int, kind: Any = I64) -> Any:
        place = b.gep(function.args[0], [ir.Constant(I64, index)], source_etype=I64)
        return b.load(place, typ=kind)

    counter, body, block = word(abi.A, PTR), word(abi.B), word(abi.C, PTR)
    times, threads = word(abi.SPAN), word(abi.PASSES)
    before, inside, after = b.block, b.append_basic_block("turn"), b.append_basic_block("after")
    b.branch(inside)
    b.position_at_end(inside)
    turn = b.phi(I64)
    turn.add_incoming(ir.Constant(I64, 0), before)
    barrier(b, counter, threads, isa)
    b.call(b.inttoptr(body, ir.PointerType(ir.FunctionType(VOID, [PTR]))), [block])
    barrier(b, counter, threads, isa)
    following = b.add(turn, ir.Constant(I64, 1))
    turn.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, times), inside, after)
    b.position_at_end(after)
    b.ret_void()
    return str(module)


def barrier(b: Any, counter: Any, threads: Any, isa: Isa) -> None:
    """Emit: spin until all threads have arrived as often as this one; counter: of an i64, 0 at first."""
    one = ir.Constant(I64, 1)
    ticket = b.atomic_rmw("add", counter, one, "seq_cst")
    goal = b.mul(b.add(b.sdiv(ticket, threads), one), threads)
    spin, released = b.append_basic_block("spin"), b.append_basic_block("released")
    b.branch(spin)
    b.position_at_end(spin)
    if isa.x86:
        pause = b.module.globals.get(PAUSE) or ir.Function(b.module, ir.FunctionType(VOID, []), PAUSE)
        b.call(pause, [])
    seen = b.load_atomic(counter, "acquire", 8, typ=I64)
    b.cbranch(b.icmp_signed("<", seen, goal), spin, released)
    b.position_at_end(released)
