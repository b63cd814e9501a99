"""The second opinion on a GPU: what `run --cross-check` measures by another implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.device import Device
from bench.errors import BenchError, UsageError
from bench.fitting.intervals import CAP_PI, MEDIAN
from bench.planning.planned import Planned
from bench.profile.encoding import plain
from bench.profile.records import Point, Sample
from bench.running.opening import NO_BLOCKER
from bench.running.runners import Children, InProcess, Runner

if TYPE_CHECKING:
    from bench.gpu.crosscheck import Side

WINDOW, BUDGET, LIMIT = 0.02, 0.06, 60.0
"""Seconds of one repetition, of one sample, and after which a side is given up."""


def check_asked(device: Device, cross_check: bool, blocker: bool) -> None:
    """UsageError for a flag of GPUs on another device: no second implementation, nothing to hold back."""
    if device.is_gpu:
        return
    if not blocker:
        raise UsageError(f"--no-blocker is about launches on a GPU; {device.name} has none: leave it out")
    if cross_check:
        raise UsageError(
            f"--cross-check compares two implementations on a GPU; {device.name} has one: leave it out"
        )


@contextmanager
def sides(device: Device, blocker: bool) -> Iterator[tuple[Runner, Runner]]:
    """Both implementations, each in a process of its own that has the device open at the same time."""
    pair: tuple[Runner, Runner]
    if device.kind == "simulated":
        from bench.backends.simulated import SimulatedBackend

        first = SimulatedBackend.again(device)
        pair = InProcess(first), InProcess(first.second())
    else:
        from bench.gpu import survey

        environment = {**survey.environment(device.id), **({} if blocker else {NO_BLOCKER: "1"})}
        other = f"numba:{device.id.partition(':')[2]}"
        pair = Children(device.id, environment=environment), Children(other, environment=environment)
    try:
        for runner in pair:
            runner.open(0)
        yield pair
    finally:
        for runner in pair:
            runner.close(kill=True)


def side(name: str, runner: Runner) -> Side:
    """One of them as the comparison wants it: a short sample of a point."""
    from bench.gpu.crosscheck import Side

    def measure(point: Point, order: int) -> Sample:
        planned = Planned(point, 0, CAP_PI, MEDIAN, 0.0, WINDOW, BUDGET, 2, visit=order)
        return runner.measure(planned, order, 1.0, LIMIT)

    return Side(name, measure)


def cross_check(device: Device, blocker: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The note to keep: every kernel compared, as plain values, or why it could not be done."""
    from bench.gpu import crosscheck

    try:
        with sides(device, blocker) as (first, second):
            names = ("simulated", "second") if device.kind == "simulated" else ("cuda", "numba")
            pair = side(names[0], first), side(names[1], second)
            found = crosscheck.cross_check(*pair, crosscheck.points(device), say=say)
    except BenchError as error:
        say(f"no cross-check: {error}")
        return {"text": f"no cross-check: {error}"}
    text = f"cross-check: {len(found.faults)} harness faults in {len(found.compared)} kernels"
    return {"text": text, "cross_check": plain(found)}
