"""A team of threads, each pinned to its CPU, that run one native job block each, all at once."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.native import abi, driver, jit
from bench.native.isa import Isa

BARRIER_WORDS = 16  # two cache lines, so that the counter has one of its own


class Team:
    """Persistent pinned threads; `run` times one native function on all of them.

    cpus: one CPU number a thread, inside the inherited affinity
    """

    def __init__(self, cpus: Sequence[int], isa: Isa) -> None:
        self.cpus = tuple(cpus)
        self._drive = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            jit.address(driver.driver_ir(isa), isa, "drive")
        )
        self._libc = driver.libc_addresses()
        self._barrier = np.zeros(BARRIER_WORDS, np.int64)
        self._tasks: list[Callable[[], None] | None] = [None] * len(self.cpus)
        self._go = [threading.Semaphore(0) for _ in self.cpus]
        self._done = threading.Semaphore(0)
        self._faults: list[BaseException] = []
        for index in range(len(self.cpus)):
            threading.Thread(target=self._work, args=(index,), daemon=True).start()

    def _work(self, index: int) -> None:
        os.sched_setaffinity(0, {self.cpus[index]})
        while True:
            self._go[index].acquire()
            task = self._tasks[index]
            if task is None:
                return
            try:
                task()
            except BaseException as fault:
                self._faults.append(fault)
            self._done.release()

    def each(self, task: Callable[[int], None]) -> None:
        """Run task(thread index) on every pinned thread and wait; the first fault is raised."""
        for index in range(len(self.cpus)):
            self._tasks[index] = lambda index=index: task(index)  # type: ignore[misc]
        self._faults.clear()
        for go in self._go:
            go.release()
        for _ in self._go:
            self._done.acquire()
        if self._faults:
            raise self._faults[0]

    def run(
        self,
        function: int,
        blocks: Sequence[Any],
        warm: tuple[int, Sequence[Any]],
        offsets: Any,
        nap_ns: int = 0,
    ) -> Any:
        """Time `function` on every thread, once per entry of `offsets`.

        blocks: an int64 argument block per thread (the first len(blocks) threads take part)
        warm: the warm-up function and its block per thread;  offsets: int64, byte, [repetition]
        nap_ns: how long each thread sleeps before each repetition, 0: not at all
        Returns int64 rows [thread, repetition, abi.ROW], times in ns.
        """
        threads, repetitions = len(blocks), len(offsets)
        rows = np.zeros((threads, repetitions, abi.ROW), np.int64)
        jobs = np.zeros((threads, driver.JOB), np.int64)
        self._barrier[:] = 0
        for t in range(threads):
            self._fill(jobs[t], function, blocks[t], warm[0], warm[1][t], offsets, rows[t])
        jobs[:, driver.THREADS] = threads
        jobs[:, driver.NAP] = nap_ns

        def drive(index: int) -> None:
            if index < threads:
                self._drive(jobs[index].ctypes.data)

        self.each(drive)
        return rows

    def _fill(
        self, job: Any, function: int, block: Any, warm: int, warm_block: Any, offsets: Any, rows: Any
    ) -> None:
        for word, address in self._libc.items():
            job[word] = address
        job[driver.FUNCTION], job[driver.ARGS] = function, block.ctypes.data
        job[driver.WARM], job[driver.WARM_ARGS] = warm, warm_block.ctypes.data
        job[driver.BARRIER] = self._barrier.ctypes.data
        job[driver.REPETITIONS], job[driver.OFFSETS] = len(offsets), offsets.ctypes.data
        job[driver.ROWS] = rows.ctypes.data

    def close(self) -> None:
        """End the threads."""
        for index, go in enumerate(self._go):
            self._tasks[index] = None
            go.release()
