"""Points whose code is not an emitted loop: BLAS, the naive loop through Numba, real workloads."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from bench.backends import UNBOUNDED, Prepared
from bench.checkout import SPIN_VARIABLE
from bench.device import Device
from bench.errors import DeviceError, VerificationError
from bench.native import loops
from bench.native.jit import numba_folder
from bench.profile.records import Point, Repetitions
from kernels.fma import FACTOR
from kernels.gemm import reference as gemm_reference
from kernels.spec import Kernel, Work

DTYPE: dict[str, Any] = {"fp64": np.float64, "fp32": np.float32}
NAIVE_ITEMS = 1024  # x of the textbook loop: in L1, long enough for any vectoriser
NAIVE_STEPS = 64
SPINS = (
    26  # OpenBLAS's threads wait 2^26 cycles for more work before they sleep, unless the variable says else
)
CYCLES = 2e9  # a second, at least: how long the threads of a library spin is counted in cycles
STEERS = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE")
CHECKED_EDGE = 48  # rows and columns of a product that are compared with the reference

TimeNative = Callable[..., Any]
"""Times a native function on the team: (address, argument blocks, offsets, in_a_row=False) -> rows."""


class Call(Protocol):
    """What a prepared point of this file keeps as its handle."""

    def check(self) -> None:
        """Compare with the reference; VerificationError when it differs."""

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` executions each."""

    def close(self) -> None:
        """Undo what preparing changed."""


@dataclass
class HostTimed:
    """A callable timed by the host clock: right for calls that last milliseconds."""

    run: Callable[[], Any]
    verify: Callable[[], None]
    undo: Callable[[], None] = lambda: None

    def check(self) -> None:
        """See Call."""
        self.verify()

    def measure(self, amount: int, n: int) -> Repetitions:
        """See Call."""
        rows = []
        for _ in range(n):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
            start = time.perf_counter()
            for _ in range(amount):
                self.run()
            end = time.perf_counter()
            rows.append((start, end, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before))
        return from_host(rows)

    def close(self) -> None:
        """See Call."""
        self.undo()
        wait_for_spinning()


def from_host(rows: list[tuple[float, float, int]]) -> Repetitions:
    """Repetitions from (start, end, involuntary switches) rows of the host clock."""
    starts, ends, switches = zip(*rows, strict=True)
    return Repetitions(starts, tuple(e - s for s, e in zip(starts, ends, strict=True)), switches)


def naive(point: Point, kernel: Kernel) -> Prepared:
    """The textbook loop as Numba compiles it: what a user's first attempt would report as pi."""
    import numba

    numba_config: Any = numba.config
    numba_config.CACHE_DIR = numba_config.CACHE_DIR or numba_folder()
    try:
        body = numba.njit(nogil=True, cache=True)(kernel.plain)
    except (RuntimeError, OSError):  # no folder that can hold the cache: compile for this process only
        body = numba.njit(nogil=True)(kernel.plain)
    x = np.ones(NAIVE_ITEMS, DTYPE[point.precision.inputs])
    m = x.dtype.type(FACTOR)

    def check() -> None:
        small, factor = np.linspace(1, 2, 24, dtype=x.dtype), x.dtype.type(0.125)
        want = kernel.reference(np, small, factor, 5)
        body(small, factor, 5)
        if not np.allclose(small, want, rtol=1e-5):
            raise VerificationError("the naive loop differs from its reference; it is not timed")

    def work(amount: int) -> Work:
        return kernel.work(x.itemsize, {"n": NAIVE_ITEMS * NAIVE_STEPS * amount}, point.level)

    call = HostTimed(lambda: body(x, m, NAIVE_STEPS), check)
    return Prepared(point, work, 1, UNBOUNDED, handle=call, clock_source="host")


def gemm(point: Point, kernel: Kernel) -> Prepared:
    """C = A B by the BLAS of NumPy, its threads limited to the point's."""
    m, n, k = (point.sizes[name] for name in "mnk")
    dtype = DTYPE[point.precision.inputs]
    rng = np.random.default_rng(m + n + k)
    a, b, c = rng.random((m, k), dtype), rng.random((k, n), dtype), np.empty((m, n), dtype)
    item = c.itemsize
    limits = threadpool_limits(point.threads, user_api="blas")

    def check() -> None:
        got = np.matmul(a, b)[:CHECKED_EDGE, :CHECKED_EDGE]
        want = gemm_reference(np, a[:CHECKED_EDGE], b[:, :CHECKED_EDGE])
        if not np.allclose(got, want, rtol=float(np.finfo(dtype).eps) * 4 * k**0.5, atol=0):
            raise VerificationError(f"the BLAS product of {m}x{k} and {k}x{n} is wrong; it is not timed")

    def work(amount: int) -> Work:
        return kernel.work(item, point.sizes, point.level).times(amount)

    call = HostTimed(lambda: np.matmul(a, b, out=c), check, limits.restore_original_limits)
    facts = {"library": blas_name()} | ({"library_set_by": steered} if (steered := steered_by()) else {})
    return Prepared(point, work, 1, UNBOUNDED, 1, facts, call, "host")


@dataclass
class Execution:
    """A real workload of the zoo: native on the team, or a library call that times itself.

    near: its operands are wanted in a cache, which they leave while the threads sleep
    """

    ready: Any
    native: TimeNative
    turn: Any
    near: bool = False

    def check(self) -> None:
        """See Call."""
        self.ready.check()

    def measure(self, amount: int, n: int) -> Repetitions:
        """See Call; a repetition is one execution, each on the next of its operand sets.

        Near operands are brought back by one execution more, which does not count; then there are no pauses.
        """
        lost = int(self.near)
        if self.ready.repeat is not None:
            return from_host(self.ready.repeat(n + lost)[lost:])
        offsets = np.array(list(itertools.islice(self.turn, n + lost)), np.int64)
        rows = self.native(self.ready.address, self.ready.blocks, offsets, in_a_row=self.near)
        return loops.repetitions(rows[:, lost:])

    def close(self) -> None:
        """See Call."""
        if self.ready.repeat is not None:
            wait_for_spinning()


def workload(point: Point, device: Device, native: TimeNative) -> Prepared:
    """A workload by name at the point's sizes (the zoo's default sizes for `device` without any)."""
    from bench.workloads.workload import Run
    from bench.workloads.zoo import ZOO

    if point.kernel not in ZOO:
        raise DeviceError(f"unknown workload {point.kernel!r}; valid: {', '.join(ZOO)}")
    chosen = ZOO[point.kernel]
    sizes = point.sizes or chosen.sizes(device.memory_bytes, device.last_level_cache_bytes, point.threads)
    first = np.zeros(1, np.int64)
    near = point.level not in ("", "DRAM")
    run = Run(lambda address, blocks: native(address, list(blocks), first), past=not near)
    ready = chosen.prepare(point.threads, sizes, run)
    facts = {"cold": ready.cold, "source": chosen.source, "in_place": chosen.in_place}
    call = Execution(ready, native, itertools.cycle(ready.windows), near)
    clock = "" if ready.repeat is None else "host"
    cold = chosen.work(sizes)
    work = Work.at(point.level or "DRAM", cold.flops, cold.reads["DRAM"], cold.writes["DRAM"])
    return Prepared(point, lambda amount: work, 1, 1, 1, facts, call, clock)


def wait_for_spinning() -> None:
    """Wait until the threads of OpenBLAS sleep: they spin after a call, the next point shall not see them."""
    asked = os.environ.get(SPIN_VARIABLE, "")
    exponent = int(asked) if asked.isdigit() else 0
    time.sleep(2.0 ** (min(max(exponent, 4), 30) if exponent else SPINS) / CYCLES)


def steered_by() -> str:
    """The variable that chooses the library's code, with its value, "" where none is set."""
    return next((f"{name}={os.environ[name]}" for name in STEERS if os.environ.get(name)), "")


def blas_name() -> str:
    """The BLAS that NumPy uses, with version and kernel, as threadpoolctl sees it."""
    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    found.sort(key=lambda library: "numpy" not in library["filepath"])  # SciPy may bring its own
    if not found:
        return "unknown BLAS"
    names = (found[0]["internal_api"], found[0].get("version") or "", found[0].get("architecture") or "")
    return " ".join(word for word in names if word)
