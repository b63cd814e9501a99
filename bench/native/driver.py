"""The native loop around a loop: warm up, barrier, clock, run, clock, evidence; n times in one call.

A Python barrier makes 1 ms repetitions read 26 % low (start skew and clock ramp), so all of it
is native. Every thread of the team calls `drive(job)` on its own job block of int64:

    FUNCTION, ARGS     the loop to time and its argument block
    WARM, WARM_ARGS    the chain that runs before the first repetition, and after every nap
    BARRIER, THREADS   address of the shared counter (starts at 0), number of threads
    REPETITIONS, ROWS  how many, and where the rows of evidence go (abi.ROW words each)
    OFFSETS            byte offset of each repetition (abi.OFFSET of the argument block)
    NAP                ns to sleep before each repetition (0: never): a thread that slept gets a
                       full time slice, so that on a busy machine a repetition is rarely cut
    CLOCK, USAGE, SLEEP  addresses of clock_gettime, getrusage and nanosleep
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

from bench.native import abi, fork_join
from bench.native.emitter import I32, I64, PTR
from bench.native.fork_join import VOID
from bench.native.isa import Isa

FUNCTION, ARGS, WARM, WARM_ARGS, BARRIER, THREADS = range(6)
REPETITIONS, ROWS, OFFSETS, NAP, CLOCK, USAGE, SLEEP = range(6, 13)
JOB = 16  # words in a job block

CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME, RUSAGE_THREAD = 1, 3, 1
SWITCHES_WORD = 17  # ru_nivcsw: 2 timevals and 13 longs precede it in struct rusage of 64-bit Linux
USAGE_WORDS = 18


def libc_addresses() -> dict[int, int]:
    """Job words that hold the C library's functions."""
    libc = ctypes.CDLL(None)
    names = {CLOCK: "clock_gettime", USAGE: "getrusage", SLEEP: "nanosleep"}
    return {word: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for word, name in names.items()}


class _Driver:
    """The driver function under construction."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.module = ir.Module(name="driver")
        self.module.triple = isa.triple
        self.function = ir.Function(self.module, ir.FunctionType(VOID, [PTR]), "drive")
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.time = self.b.alloca(I64, 2)
        self.usage = self.b.alloca(I64, USAGE_WORDS)

    def job(self, index: int, kind: Any = I64) -> Any:
        return self.b.load(self.slot(self.function.args[0], index), typ=kind)

    def slot(self, base: Any, index: Any) -> Any:
        where = ir.Constant(I64, index) if isinstance(index, int) else index
        return self.b.gep(base, [where], source_etype=I64)

    def call(self, word: int, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(self.b.inttoptr(self.job(word), ir.PointerType(kind)), list(args))

    def clock(self, which: int) -> Any:
        """The clock in ns."""
        self.call(CLOCK, I32, ir.Constant(I32, which), self.time)
        seconds = self.b.load(self.slot(self.time, 0), typ=I64)
        nanoseconds = self.b.load(self.slot(self.time, 1), typ=I64)
        return self.b.add(self.b.mul(seconds, ir.Constant(I64, 10**9)), nanoseconds)

    def switches(self) -> Any:
        """Involuntary context switches of this thread so far."""
        self.call(USAGE, I32, ir.Constant(I32, RUSAGE_THREAD), self.usage)
        return self.b.load(self.slot(self.usage, SWITCHES_WORD), typ=I64)

    def nap(self) -> None:
        """Sleep for NAP ns, if any."""
        b, nap = self.b, self.job(NAP)
        with b.if_then(b.icmp_signed(">", nap, ir.Constant(I64, 0))):
            b.store(ir.Constant(I64, 0), self.slot(self.time, 0))
            b.store(nap, self.slot(self.time, 1))
            self.call(SLEEP, I32, self.time, ir.Constant(PTR, None))

    def barrier(self) -> None:
        """Spin until all threads have arrived as often as this one."""
        fork_join.barrier(self.b, self.job(BARRIER, PTR), self.job(THREADS), self.isa)

    def repetition(self, r: Any) -> None:
        """One row: warm, meet, read the evidence, time the loop, read the evidence."""
        b = self.b
        offset = b.load(self.slot(self.job(OFFSETS, PTR), r), typ=I64)
        b.store(offset, self.slot(self.job(ARGS, PTR), abi.OFFSET))
        self.nap()
        zero = ir.Constant(I64, 0)
        rested = b.or_(b.icmp_signed("==", r, zero), b.icmp_signed(">", self.job(NAP), zero))
        with b.if_then(rested):  # back to back, the clock is up already
            self.call(WARM, VOID, self.job(WARM_ARGS, PTR))
        self.barrier()
        row: dict[int, Any] = {abi.SWITCHES_START: self.switches()}
        row[abi.CPU_START] = self.clock(CLOCK_THREAD_CPUTIME)
        row[abi.START] = self.clock(CLOCK_MONOTONIC)
        self.call(FUNCTION, VOID, self.job(ARGS, PTR))
        row[abi.END] = self.clock(CLOCK_MONOTONIC)
        row[abi.CPU_END] = self.clock(CLOCK_THREAD_CPUTIME)
        row[abi.SWITCHES_END] = self.switches()
        base = b.mul(r, ir.Constant(I64, abi.ROW))
        for word, value in row.items():
            b.store(value, self.slot(self.job(ROWS, PTR), b.add(base, ir.Constant(I64, word))))


def driver_ir(isa: Isa) -> str:
    """LLVM IR text of `void drive(int64 *job)`."""
    d = _Driver(isa)
    b, zero = d.b, ir.Constant(I64, 0)
    before, body, done = b.block, b.append_basic_block("repetition"), b.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", d.job(REPETITIONS), zero), body, done)
    b.position_at_end(body)
    r = b.phi(I64)
    r.add_incoming(zero, before)
    d.repetition(r)
    following = b.add(r, ir.Constant(I64, 1))
    r.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, d.job(REPETITIONS)), body, done)
    b.position_at_end(done)
    b.ret_void()
    return str(d.module)
