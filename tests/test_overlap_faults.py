"""The pipelining experiment when parts fail: lost chunks, readers, workers, and what they leave behind."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from bench.backends.cpu import CpuBackend
from bench.errors import ResourceError, VerificationError
from bench.links import crew, messages
from bench.profile.records import Point, Precision
from tests.test_overlap import KIB, MIB, point
from tests.test_overlap import backend as backend
from tests.test_overlap import folder as folder


def test_a_sweep_that_loses_a_chunk_is_caught(backend: CpuBackend) -> None:
    handle = backend.prepare(point(8, "swept")).handle
    handle.check()
    read = handle.source.read

    def forgetful(memory: memoryview, offset: int) -> None:
        if offset % MIB != MIB // 2:
            read(memory, offset)

    handle.source.read = forgetful
    with pytest.raises(VerificationError, match="a chunk was lost"):
        handle.check()
    handle.close()


def test_a_chunk_that_is_lost_or_stale_is_caught(backend: CpuBackend) -> None:
    handle = backend.prepare(point()).handle
    read = handle.source.read

    def forgetful(memory: memoryview, offset: int) -> None:
        if offset % MIB != MIB // 2:
            read(memory, offset)

    handle.check()
    handle.source.read = forgetful
    with pytest.raises(VerificationError, match="a chunk was lost or computed on too early"):
        handle.measure(1, 1)
    handle.close()


def test_a_reader_that_fails_ends_the_pass_in_one_sentence(backend: CpuBackend) -> None:
    handle = backend.prepare(point(8)).handle
    read, before = handle.source.read, threading.active_count()

    def failing(memory: memoryview, offset: int) -> None:
        if offset % MIB >= MIB // 2:
            raise ResourceError("the disk went away: plug it in")
        read(memory, offset)

    handle.source.read = failing
    with pytest.raises(ResourceError, match="plug it in"):
        handle.measure(1, 1)
    handle.source.read = read
    handle.measure(1, 1)  # the threads are still there
    assert threading.active_count() == before
    handle.close()


def test_a_worker_that_fails_does_not_leave_the_reader_waiting(backend: CpuBackend) -> None:
    handle = backend.prepare(point(8)).handle

    def failing(number: int) -> None:
        raise ZeroDivisionError

    handle.crew._compute = failing
    caught: list[BaseException] = []

    def run() -> None:
        try:
            handle._pipelined(2)
        except ZeroDivisionError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert len(caught) == 1, "the pass did not end"
    handle.close()


def test_a_worker_that_fails_leaves_no_stale_bytes_in_the_connection(backend: CpuBackend) -> None:
    """What was still being sent would be taken for the next pass, and by the next point for its answer."""
    handle = backend.prepare(point(8, level="network")).handle
    link, compute = handle.source.link, handle.crew._compute

    def failing(number: int) -> None:
        raise ZeroDivisionError

    handle.crew._compute = failing
    with pytest.raises(ZeroDivisionError):
        handle._pipelined(2)
    assert 0 < link.owed < MIB
    message = Point("link", "loopback", "ping", Precision.of("fp64"), "network", "send", sizes={"bytes": KIB})
    messages.Messages(message, link, KIB).check()
    handle.crew._compute = failing
    with pytest.raises(ZeroDivisionError):
        handle._pipelined(1)
    handle.crew._compute = compute
    handle.measure(1, 1)
    assert link.owed == 0
    handle.close()


def test_after_a_fault_every_worker_has_answered() -> None:
    made = object.__new__(crew.Crew)
    made._hands = [crew.Hand(cpu) for cpu in [min(os.sched_getaffinity(0))] * 3]
    made._blocks = [[np.zeros(1, np.int64) for _ in range(3)]]
    ran: list[int] = []

    def function(address: int) -> None:
        ran.append(address)
        if address != made._blocks[0][0].ctypes.data:
            raise ZeroDivisionError

    made._function = function  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        made._compute(0)
    assert len(ran) == 3 and all(hand._done.empty() for hand in made._hands)
    for hand in made._hands:
        hand.close()
