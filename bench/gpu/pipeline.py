"""Pipelining on a GPU: chunks cross the host link while the chunk before is being computed on.

    copy in     stream of its own: chunk 1, chunk 2, ...
    compute     the timed stream: chunk i waits until it has arrived
    copy out    a third stream (access both): chunk i waits until it has been computed on

The arrays are as large as the data, so that no copy waits for a buffer to become free. All of a pass is
queued before the GPU begins with it. In every repetition four passes are timed, in turning order: move
alone, compute alone, serial (all on one stream), pipelined. The seconds of a repetition are the pipelined
pass; facts are medians:

    t_move, t_compute, t_serial   s;  of access both a move is all in, then all out
    ratio                         t_compute over t_move as it came out
    move_slowdown, compute_slowdown   a pass with events around every chunk: their sum over the time alone
    fma   multiply-adds an item, calibrated once a process so that t_compute = r t_move
          (sizes["percent"] is 100 r)

Variants: "pipelined"; "copy alone" and "compute alone" time one part by itself in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import starmap
from statistics import median
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.gpu.batches import Task
from bench.gpu.bodies import Bodies
from bench.gpu.faults import translated
from bench.gpu.host_memory import Buffer, HostMemory
from bench.gpu.lanes import Lanes
from bench.gpu.stages import ITEM, PAIR, Stages
from bench.profile.records import Point, Repetitions
from kernels import CUDA, KERNELS, overlap

ALONE = {"copy alone": "move", "compute alone": "compute"}
VARIANTS = ("pipelined", *ALONE)

TRIALS, TRIAL_STEPS = 3, 64
TOLERANCE, SUMMED = 1e-9, 256
"""Relative, of sums over so many items: a step too few on one of them differs by 4e-9."""

MOST_CHUNKS = 128
"""So that a pass, seven entries a chunk on its longest stream, lies in the launch queue as a whole."""

IN, OUT = 0, 1
"""Lanes beside the timed stream."""


class Pipeline:
    """The handle: passes over the data in `stages.chunks` chunks; of one part only if it is named.

    sent: sums over blocks of what is sent
    """

    def __init__(
        self, stages: Stages, facts: dict[str, Any], part: str, run: Callable[[Task], Any], sent: Any
    ) -> None:
        self.stages, self.facts, self.part, self._run, self.sent = stages, facts, part, run, sent
        self.lanes = Lanes(stages.engine, [0, 0])
        self.taken: dict[str, list[float]] = {}
        self.turn = 0

    @cached_property
    def passes(self) -> dict[str, Task]:
        """The passes by name."""
        found = {
            "move": self._move,
            "compute": self._compute,
            "serial": self._serial,
            "pipelined": self._piped,
        }
        return {
            name: Task(f"pipeline, {name}", lambda amount, queue=queue: queue(), whole=True)  # type: ignore[misc]
            for name, queue in found.items()
        }

    # -- passes ------------------------------------------------------------------------------------------

    def _move(self) -> None:
        stages, stream = self.stages, self.stages.engine.stream
        for chunk in range(stages.chunks):
            stages.arrive(chunk, stream)
        for chunk in range(stages.chunks if stages.back else 0):
            stages.leave(chunk, stream)

    def _compute(self) -> None:
        for chunk in range(self.stages.chunks):
            self.stages.compute(chunk)

    def _serial(self) -> None:
        stages, stream = self.stages, self.stages.engine.stream
        for chunk in range(stages.chunks):
            stages.arrive(chunk, stream)
            stages.compute(chunk)
            if stages.back:
                stages.leave(chunk, stream)

    def _piped(self, watched: dict[str, list[tuple[Any, Any]]] | None = None) -> None:
        """All stages; with `watched` an event before and after each, kept there by its name."""
        stages, lanes, engine = self.stages, self.lanes, self.stages.engine
        marks: dict[str, Callable[[], Any]] = {
            "move": lambda: lanes.mark(IN),
            "compute": engine.mark,
            "out": lambda: lanes.mark(OUT),
        }

        def watch(name: str, queue: Callable[[], None]) -> None:
            if watched is None:
                queue()
                return
            first = marks[name]()
            queue()
            watched.setdefault(name, []).append((first, marks[name]()))

        with lanes.beside():
            for chunk in range(stages.chunks):
                watch("move", lambda: stages.arrive(chunk, lanes.streams[IN]))  # noqa: B023
                engine.stream.wait_event(lanes.mark(IN))
                watch("compute", lambda: stages.compute(chunk))  # noqa: B023
                if stages.back:
                    lanes.wait(OUT, engine.mark())
                    watch("out", lambda: stages.leave(chunk, lanes.streams[OUT]))  # noqa: B023

    # -- the verbs of a handle ---------------------------------------------------------------------------

    def check(self) -> None:
        """What a pipelined pass and a serial one leave, against the closed form."""
        for name in ("pipelined", "serial"):
            self._clear()
            with translated(f"pipeline, {name}"):
                self.passes[name].launch(1)
            self.stages.engine.synchronize()
            self._compare(name)

    def _clear(self) -> None:
        stages, engine = self.stages, self.stages.engine
        with translated("clearing a pipeline"):
            runtime = engine.cupy.cuda.runtime
            for memory in (stages.data, *([stages.result] if stages.back else [])):
                runtime.memsetAsync(memory.ptr, 0, stages.size, engine.stream.ptr)
        engine.synchronize()
        stages.host[1].view[:] = 0

    def _compare(self, name: str) -> None:
        stages = self.stages
        if stages.back:
            got, want = block_sums(stages.host[1]), (1.0 + overlap.FACTOR) ** stages.fma * self.sent
        else:
            got, want = stages.sums.sum(), overlap.reference(np, [self.sent], overlap.FACTOR, stages.fma)
        if not np.allclose(got, want, rtol=TOLERANCE, atol=0.0):
            raise VerificationError(
                f"the {name} result differs from its reference: a chunk was lost or computed on too early; "
                "it is not timed"
            )

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of one pass each; of a pipelined one with the other passes beside it."""
        names = (self.part,) if self.part else ("move", "compute", "serial", "pipelined")
        rows = []
        for _ in range(n):
            first = self.turn % len(names)
            self.turn += 1
            found = {name: self._run(self.passes[name]) for name in names[first:] + names[:first]}
            for name, batch in found.items():
                self.taken.setdefault(name, []).append(batch.seconds[0])
            rows.append((found[names[-1]].starts[0], found[names[-1]].seconds[0]))
        if not self.part:
            self._tell()
        return Repetitions(tuple(start for start, _ in rows), tuple(seconds for _, seconds in rows))

    def _tell(self) -> None:
        """Medians of the passes so far, and a watched one, as facts."""
        found = {name: median(values) for name, values in self.taken.items()}
        watched: dict[str, list[tuple[Any, Any]]] = {}

        def watch(amount: int) -> None:
            watched.clear()  # a pass that was held too long is queued again
            self._piped(watched)

        self._run(Task("pipeline, watched", watch, whole=True, started=True))
        elapsed = self.stages.engine.elapsed
        inside = {name: sum(starmap(elapsed, pairs)) for name, pairs in watched.items()}
        moved = inside["move"] + inside.get("out", 0.0)
        for name, value in (
            ("move", moved / found["move"]),
            ("compute", inside["compute"] / found["compute"]),
        ):
            self.taken.setdefault(f"{name} slowdown", []).append(value)
        self.facts |= {
            "t_move": found["move"],
            "t_compute": found["compute"],
            "t_serial": found["serial"],
            "ratio": found["compute"] / found["move"],
            "move_slowdown": median(self.taken["move slowdown"]),
            "compute_slowdown": median(self.taken["compute slowdown"]),
        }

    def close(self) -> None:
        """Give the memory back."""
        self.stages.memory.clear()
        vars(self).clear()


class Pipelines:
    """Prepares points of the family overlap: sizes bytes (that cross the link one way), percent, chunks."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.engine = bodies, bodies.engine
        self._steps: dict[tuple[str, int, int], int] = {}
        self._sums: dict[int, Any] = {}

    @cached_property
    def host(self) -> HostMemory:
        """The host's buffers: doubles from 1 to 2."""
        return HostMemory.of(self.engine, numbers)

    def variants(self, kernel: str, precision: str, level: str) -> tuple[str, ...]:
        """All passes."""
        return VARIANTS

    def unsupported(self, point: Point) -> str:
        """Why a point cannot be measured on this GPU, "" if it can."""
        if point.access not in overlap.CUDA_FORMS or point.level != "host link":
            way = f"{point.access} over {point.level or 'no link'}"
            return f"no pipeline {way}: it is h2d or both, over the host link"
        known = not point.variant or point.variant in VARIANTS
        return "" if known else f"{point.variant!r} is no pass of the pipeline; valid: {', '.join(VARIANTS)}"

    def prepare(self, point: Point) -> Prepared:
        """Buffers filled, work calibrated; DeviceError for what cannot be cut so."""
        size, chunks = point.sizes["bytes"], point.sizes.get("chunks", 1)
        if not 1 <= chunks <= MOST_CHUNKS or size % (chunks * PAIR * ITEM):
            raise DeviceError(f"{size} byte cannot be cut into {chunks} chunks (at most {MOST_CHUNKS})")
        variant = overlap.CUDA_FORMS[point.access]
        form = next(form for form in CUDA["overlap"].forms if form.variant == variant)
        chosen = self.bodies.compiled("overlap", form, form.blocks[0])
        host = self.host.pair(size, pinned=True)
        stages = Stages(self.bodies, chosen, host, size, chunks, point.access == "both")
        facts: dict[str, Any] = {}
        made = Pipeline(stages, facts, ALONE.get(point.variant, ""), self._run, self._sent(size, host[0]))
        self._run(made.passes["move"])  # numbers are there before anything is computed on them
        stages.fma = self._calibrated(point, made)
        facts |= {"fma": stages.fma, **self.host.near.facts}
        facts |= self.bodies.facts(chosen, stages.shape)
        items = size // ITEM
        sized = {"n": items, "fma": stages.fma, "leaving": items * stages.back}
        work = KERNELS["pipeline"].work(ITEM, sized, point.level)
        return Prepared(point, work.times, 1, 1, 1, facts, made)

    def _sent(self, size: int, source: Buffer) -> Any:
        """Sums over blocks of what is sent."""
        if size not in self._sums:
            self._sums[size] = block_sums(source)
        return self._sums[size]

    def _run(self, task: Task) -> Any:
        return self.bodies.batches.run(task, 1, 1)

    def _calibrated(self, point: Point, made: Pipeline) -> int:
        """Steps for which computing alone takes r times as long as moving alone; the fastest trials count."""
        known = (point.access, point.sizes["percent"], point.sizes["bytes"])
        if known not in self._steps:
            self._run(made.passes["move"])  # numbers are there before anything is computed on them
            moving = min(self._run(made.passes["move"]).seconds[0] for _ in range(TRIALS))
            trials = []
            for steps in (0, TRIAL_STEPS):
                made.stages.fma = steps
                trials.append(min(self._run(made.passes["compute"]).seconds[0] for _ in range(TRIALS)))
            least, taken = trials
            step = (taken - least if taken > 1.1 * least else taken) / TRIAL_STEPS
            self._steps[known] = max(1, round((point.sizes["percent"] / 100 * moving - least) / step))
        return self._steps[known]


def numbers(view: Any) -> None:
    """Doubles from 1 to 2, no two blocks alike."""
    items = view[: view.nbytes // ITEM * ITEM].view(np.float64)
    items[:] = 1.0 + (np.arange(len(items), dtype=np.int64) * 40_503 % 65_521) / 65_521


def block_sums(buffer: Buffer) -> Any:
    """Sums over blocks of SUMMED doubles; the last block may be shorter."""
    items = buffer.view.view(np.float64)
    return np.add.reduceat(items, np.arange(0, len(items), SUMMED))
