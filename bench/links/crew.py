"""The threads of the pipelining experiment: one reads, some compute, and buffers go round between them."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from bench.links import scratch
from bench.native import abi, chunk, jit
from bench.native.arena import RESULT_BYTES, block
from bench.native.isa import Isa
from bench.native.memory import Region
from kernels.overlap import FACTOR

MOST_WORKERS = 4

Read = Callable[[memoryview, int], None]
"""Fills a buffer from the byte offset of its chunk."""


def parted(cpus: tuple[int, ...], senders: int = 0) -> tuple[int, tuple[int, ...]]:
    """The reader's CPU, and those of 1, 2 or 4 workers; a machine with one CPU lends it to both.

    senders: further processes whose CPUs, before the reader's, no worker takes where there are enough
    """
    free = cpus[: -1 - senders] or cpus[:-1] or cpus
    count = 1 << min(len(free), MOST_WORKERS).bit_length() - 1
    return cpus[-1], free[:count]


class Hand:
    """A pinned thread that does one thing at a time."""

    def __init__(self, cpu: int) -> None:
        self._cpu = cpu
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        os.sched_setaffinity(0, {self._cpu})
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException as fault:
                self._done.put(fault)
            else:
                self._done.put(None)

    def begin(self, task: Callable[[], None]) -> None:
        """Start a task."""
        self._tasks.put(task)

    def wait(self) -> BaseException | None:
        """Wait until it is done; what it raised, if anything."""
        return self._done.get()

    def close(self) -> None:
        """End the thread."""
        self._tasks.put(None)


class Crew:
    """A reader, workers and `buffers` buffers of one chunk of `size` byte each, or of shorter ones."""

    def __init__(self, reader: int, workers: tuple[int, ...], size: int, buffers: int, isa: Isa) -> None:
        self.threads = len(workers)
        self._memory = [scratch.aligned(size) for _ in range(buffers)]
        for memory in self._memory:
            np.frombuffer(memory, np.uint8)[:: scratch.ALIGNED] = 0  # no page is first met inside a pass
        self._results = [Region(RESULT_BYTES) for _ in workers]
        self.cut(size)
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(jit.address(chunk.chunk_ir(isa), isa))
        self._reader = Hand(reader)
        self._hands = [Hand(cpu) for cpu in workers]

    def cut(self, size: int) -> None:
        """Chunks of `size` byte from now on, at most those that the buffers were made for."""
        self.size = size
        self._views = [memoryview(memory)[:size] for memory in self._memory]
        self._blocks = [
            self._arguments(np.frombuffer(memory, np.uint8).ctypes.data) for memory in self._memory
        ]

    def _arguments(self, address: int) -> list[Any]:
        """An argument block a worker: its equal part of one buffer."""
        part = self.size // self.threads
        return [
            block(a=address + w * part, span=part, factor=FACTOR, result=result.address)
            for w, result in enumerate(self._results)
        ]

    def total(self) -> float:
        """Sum over all that was computed in the last pass."""
        return float(sum(r.view(np.float64, 0, RESULT_BYTES // 8).sum() for r in self._results))

    def moving(self, read: Read, start: int, chunks: int) -> tuple[float, float]:
        """Seconds of reading all chunks with nobody computing; of them inside the reader."""
        inside = [0.0]

        def task() -> None:
            for i in range(chunks):
                began = time.perf_counter()
                read(self._views[i % len(self._views)], start + i * self.size)
                inside[0] += time.perf_counter() - began

        return self._timed((self._reader, task)), inside[0]

    def computing(self, chunks: int, fma: int) -> tuple[float, float]:
        """Seconds of computing on as many chunks with nobody reading; of them inside the workers."""
        inside = [0.0]

        def task() -> None:
            for i in range(chunks):
                began = time.perf_counter()
                self._compute(i % len(self._views))
                inside[0] += time.perf_counter() - began

        self._begin(fma)
        return self._timed((self._hands[0], task)), inside[0]

    def overlapped(
        self, read: Read, start: int, chunks: int, fma: int, buffers: int
    ) -> tuple[float, float, float]:
        """Seconds of a pass with so many buffers; of them inside the reader and inside the workers."""
        free: SimpleQueue[int | None] = SimpleQueue()
        full: SimpleQueue[int | None] = SimpleQueue()
        inside = [0.0, 0.0]
        for number in range(buffers):
            free.put(number)

        def fill() -> None:
            try:
                for i in range(chunks):
                    if (number := free.get()) is None:
                        return
                    began = time.perf_counter()
                    read(self._views[number], start + i * self.size)
                    inside[0] += time.perf_counter() - began
                    full.put(number)
            except BaseException:
                full.put(None)
                raise

        def drain() -> None:
            try:
                for _ in range(chunks):
                    if (number := full.get()) is None:
                        return
                    began = time.perf_counter()
                    self._compute(number)
                    inside[1] += time.perf_counter() - began
                    free.put(number)
            except BaseException:
                free.put(None)
                raise

        self._begin(fma)
        taken = self._timed((self._reader, fill), (self._hands[0], drain))
        return taken, inside[0], inside[1]

    def _begin(self, fma: int) -> None:
        """Totals at 0, so many steps an item from now on."""
        for result in self._results:
            result.array[:] = 0
        for blocks in self._blocks:
            for args in blocks:
                args[abi.ROUNDS] = fma

    def _compute(self, number: int) -> None:
        """All workers on their parts of one buffer; runs on the first of them."""
        mine, *others = self._blocks[number]
        for hand, args in zip(self._hands[1:], others, strict=True):
            hand.begin(lambda args=args: self._function(args.ctypes.data))  # type: ignore[misc]
        try:
            self._function(mine.ctypes.data)
        finally:  # all of them: an answer left behind would end the wait of a later pass
            faults = [fault for hand in self._hands[1:] if (fault := hand.wait())]
        if faults:
            raise faults[0]

    @staticmethod
    def _timed(*jobs: tuple[Hand, Callable[[], None]]) -> float:
        """Seconds until all tasks that were begun together are done; the first fault is raised."""
        began = time.perf_counter()
        for hand, task in jobs:
            hand.begin(task)
        faults = [fault for hand, _ in jobs if (fault := hand.wait())]
        taken = time.perf_counter() - began
        if faults:
            raise faults[0]
        return taken

    def close(self) -> None:
        """End the threads."""
        for hand in (self._reader, *self._hands):
            hand.close()
