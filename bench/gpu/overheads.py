"""What it costs to start work on a GPU: queued launches, a replayed graph, the host's share, a round trip."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpu.batches import QUEUED, Task
from bench.gpu.bodies import EXACTLY, Bodies, Chosen, compare
from bench.gpu.faults import translated
from bench.gpu.launch import Launch
from bench.profile.records import Point, Repetitions
from kernels import KERNELS, launch
from kernels.spec import ITEM_BYTES, Work

FAMILY = "launch"
ITEM, ITEMS = ITEM_BYTES["fp32"], 4
"""Bytes of an item, items of a thread of the smallest kernel."""

MOST_QUEUED = QUEUED - 16
"""Launches of a repetition that all lie in the queue before the GPU begins with the first."""

REPLAYED, REPLAYS = 64, 32
"""Kernels of a graph, and most replays of a repetition."""

MOST_HOST = 1 << 20
CHECKED = 1000 * ITEMS
"""Items of the small copy that is checked; the last block is partly idle."""


@dataclass
class Started:
    """Something that is started `amount` times: how that is timed, and its check."""

    time: Callable[[int], tuple[float, float]]
    verify: Callable[[], None]
    memory: list[Any] = field(default_factory=list)
    task: Task | None = None

    def check(self) -> None:
        """Compare with the reference."""
        self.verify()

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` starts each."""
        rows = [self.time(amount) for _ in range(n)]
        return Repetitions(tuple(start for start, _ in rows), tuple(seconds for _, seconds in rows))

    def close(self) -> None:
        """Give the memory back."""
        self.memory.clear()


class Overheads:
    """Prepares points of the family launch; an amount is a number of starts.

    kernel empty: variants plain | graph | host | sync;  smallest: plain, sizes bytes (read and written
    together)
    """

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.batches, self.engine = bodies, bodies.batches, bodies.engine

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """Every way in which a kernel is started."""
        return launch.VARIANTS if kernel == "empty" else launch.VARIANTS[:1]

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured on this GPU, "" if it can."""
        known = self.variants(point.kernel, "", "")
        if point.variant and point.variant not in known:
            return f"a GPU does not start {point.kernel} as {point.variant!r}: it has {', '.join(known)}"
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Compile, allocate, and record the graph where there is one."""
        how, facts = point.variant or "plain", dict(self.engine.versions())
        if point.kernel == "smallest":
            return self._smallest(point)
        chosen = self._chosen("empty", 32)
        once = self.bodies.launcher(chosen, Launch(1, 32), (None,) * 4, 0)
        started, step, most = self._ways(once)[how]()
        clock = "host" if how in ("host", "sync") else ""
        return Prepared(point, lambda amount: Work(0.0), step, most, step, facts, started, clock)

    def _chosen(self, name: str, block: int) -> Chosen:
        form = next(form for form in launch.CUDA.forms if form.kernel == name)
        return self.bodies.compiled(FAMILY, form, block)

    def _ways(self, once: Callable[[int], Any]) -> dict[str, Callable[[], tuple[Started, int, int]]]:
        """By variant: how it is timed, its step and its largest amount; nothing is there to compare."""

        def nothing() -> None:
            with translated("an empty kernel"):
                once(1)
            self.engine.synchronize()

        return {
            "plain": lambda: (self._queued(Task("an empty kernel", once), nothing), 1, MOST_QUEUED),
            "graph": lambda: (self._graph(once, nothing), REPLAYED, REPLAYED * REPLAYS),
            "host": lambda: (Started(lambda n: self._by_host(once, n, wait=False), nothing), 1, MOST_HOST),
            "sync": lambda: (Started(lambda n: self._by_host(once, n, wait=True), nothing), 1, MOST_HOST),
        }

    def _queued(self, task: Task, verify: Callable[[], None], per_launch: int = 1) -> Started:
        """Each repetition lies in the queue, whole, before the GPU begins: what the host needs is off it."""

        def once(amount: int) -> tuple[float, float]:
            batch = self.batches.run(task, amount // per_launch, 1)
            return batch.starts[0], batch.seconds[0]

        return Started(once, verify, task=task)

    def _graph(self, once: Callable[[int], Any], verify: Callable[[], None]) -> Started:
        """A graph of one kernel after the other, launched as a whole."""
        stream = self.engine.stream
        with translated("recording a graph"):
            once(1)  # loaded before it is recorded
            stream.synchronize()
            stream.begin_capture()
            for _ in range(REPLAYED):
                once(1)
            graph = stream.end_capture()
            graph.upload(stream)
            stream.synchronize()
        made = self._queued(Task("a graph", lambda amount: graph.launch(stream)), verify, REPLAYED)
        made.memory.append(graph)
        return made

    def _by_host(self, once: Callable[[int], Any], amount: int, wait: bool) -> tuple[float, float]:
        """Launches by the host's clock: queueing them, or waiting for each."""
        engine = self.engine
        with translated("an empty kernel"):
            engine.stream.synchronize()
            began, start = engine.now(), time.perf_counter()
            for _ in range(amount):
                once(1)
                if wait:
                    engine.stream.synchronize()
            seconds = time.perf_counter() - start
            engine.stream.synchronize()
        return began, seconds

    # -- the smallest useful kernel ----------------------------------------------------------------------

    def _smallest(self, point: Point) -> Prepared:
        kernel, chosen = KERNELS[point.kernel], self._chosen("smallest", 256)
        items = point.sizes["bytes"] // (2 * ITEM) // ITEMS * ITEMS
        if items < ITEMS:
            raise DeviceError(f"{point.sizes['bytes']} byte hold no two vectors: ask for 32 or more")
        memory, once = self._copy(chosen, items, np.random.default_rng(items).random(items, np.float32))

        def work(amount: int) -> Work:
            return kernel.work(ITEM, {"n": items, "starts": amount}, point.level)

        made = self._queued(Task("the smallest kernel", once), lambda: self._check(chosen))
        made.memory += memory
        facts = self.bodies.facts(chosen, shape_of(items, chosen.block), items=items)
        return Prepared(point, work, 1, MOST_QUEUED, 1, facts, made)

    def _copy(self, chosen: Chosen, items: int, source: Any) -> tuple[list[Any], Any]:
        a, b = self.engine.upload(np.zeros(items, np.float32)), self.engine.upload(source)
        once = self.bodies.launcher(chosen, shape_of(items, chosen.block), (a, b, None, None), items)
        return [a, b], once

    def _check(self, chosen: Chosen) -> None:
        source = np.random.default_rng(3).random(CHECKED, np.float32)
        (a, _), once = self._copy(chosen, CHECKED, source)
        once(1)
        got = self.engine.download(a.ptr, source.nbytes)[0].view(np.float32)
        compare("the smallest kernel", got, source, EXACTLY)


def shape_of(items: int, block: int) -> Launch:
    """As many blocks as the items need."""
    return Launch(-(-items // (ITEMS * block)), block)
