"""What one call costs of that which runs the workloads of the zoo: T0 of each implementation on a CPU.

    Numba, native threads   a native function that does nothing, on all threads, run as compiled workloads are
    scipy.fft, workers      the smallest transform that SciPy splits over its workers
    BLAS of NumPy           the product of two numbers' worth of matrices, 8 x 8

The variant of such a point is the implementation itself. A unit of a repetition's amount is one call; the
repetition's time is the sum of its calls, each timed where the workloads' own executions are.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.backends.calls import HostTimed
from bench.errors import VerificationError
from bench.native import fork_join, jit, loops
from bench.native.arena import block
from bench.native.isa import Isa
from bench.native.team import Team
from bench.profile.records import Point, Repetitions
from kernels.launch import BY_BLAS, BY_FFT, BY_THREADS
from kernels.spec import Work

MOST_CALLS, MOST_EXECUTIONS = 1 << 20, 256
ROW, EDGE = 4, 8
ROWS_A_WORKER = 16
"""Rows of four numbers that SciPy needs to use one worker more: a quarter of them, four at once."""


@dataclass
class Executions:
    """The handle of native threads: executions of nothing, as the team runs a compiled workload."""

    function: int
    team: Team
    blocks: list[Any]

    def check(self) -> None:
        """Every thread must have come back with its clock read twice."""
        if min(self.measure(1, 2).seconds) <= 0:
            raise VerificationError("starting nothing took no time: the clock of the team is not usable")

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions, each the sum of `amount` executions that follow each other."""
        warm = (self.function, self.blocks)
        rows = self.team.run(self.function, self.blocks, warm, np.zeros(amount * n, np.int64))
        taken = loops.repetitions(rows)
        seconds = np.asarray(taken.seconds).reshape(n, amount).sum(axis=1)
        switches = np.asarray(taken.switches).reshape(n, amount).sum(axis=1)
        return Repetitions(taken.start[::amount], tuple(seconds.tolist()), tuple(switches.tolist()))

    def close(self) -> None:
        """Nothing to undo."""


def unsupported(point: Point) -> str:
    """The reason why the library of such a point cannot be called, "" if it can."""
    missing = point.variant == BY_FFT and importlib.util.find_spec("scipy") is None
    return "SciPy is not installed" if missing else ""


def prepare(point: Point, team: Team, isa: Isa) -> Prepared:
    """The smallest call of the implementation that the point's variant names."""
    facts: dict[str, Any] = {"cpus": list(team.cpus[: point.threads])}
    if point.variant == BY_THREADS:
        function = jit.address(fork_join.empty_ir(isa), isa)
        call = Executions(function, team, [block() for _ in range(point.threads)])
        return Prepared(point, lambda amount: Work(0.0), 1, MOST_EXECUTIONS, 1, facts, call)
    make = {BY_FFT: _transform, BY_BLAS: _product}[point.variant]
    return Prepared(point, lambda amount: Work(0.0), 1, MOST_CALLS, 1, facts, make(point.threads), "host")


def _transform(threads: int) -> HostTimed:
    from scipy import fft

    x = np.ones((ROWS_A_WORKER * threads, ROW), np.complex128)

    def run() -> Any:
        return fft.fft(x, axis=1, norm="ortho", workers=threads)

    return HostTimed(run, _checked(run, np.sum(x, axis=1) / ROW**0.5))


def _product(threads: int) -> HostTimed:
    from threadpoolctl import threadpool_limits

    a, out = np.ones((EDGE, EDGE)), np.empty((EDGE, EDGE))
    limits = threadpool_limits(threads, user_api="blas")

    def run() -> Any:
        return np.matmul(a, a, out=out)

    check = _checked(run, np.full(EDGE, float(EDGE)))
    return HostTimed(run, check, limits.restore_original_limits)


def _checked(run: Callable[[], Any], first: Any) -> Callable[[], None]:
    """Compares the first column of the result."""

    def check() -> None:
        if not np.allclose(run()[:, 0], first):
            raise VerificationError("the smallest call of a library differs from its reference; not timed")

    return check
