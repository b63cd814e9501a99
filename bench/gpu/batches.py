"""Repetitions on a GPU: launches between two events, queued behind a kernel that waits for the host.

    hold | mark launch launch ... mark | [flush] mark launch launch ... mark | ...

Everything is queued before the GPU starts, so that what the host needs to queue a launch is off the
clock, and repetitions follow each other without a gap in which the clocks could drop. The host lets go
after QUEUED entries at the latest: a full launch queue blocks the host, which would then never let go.
The holding kernel ends by itself after PATIENCE; such a batch is taken anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.errors import DeviceError
from bench.gpu.engine import Engine
from bench.gpu.faults import translated

QUEUED = 256
"""Entries of the launch queue (about 1024) that may wait: a library call may be several launches."""

MARKS = 3
"""Entries of a repetition beside its launches: two events, and a flush."""

PATIENCE = 2.0
"""Seconds that the GPU waits for the host: lazy loading, a debugger or a serialised queue would hang else."""

ATTEMPTS = 2
"""Batches whose hold timed out before holding is given up for this process."""

DRAINED = 64
"""Launches that were still to run when the last one was queued, below which the GPU had caught up with the
host: launches and not kernels may be what was timed. A queue that the kernels kept full holds 1000 then."""

NO_BLOCKER, SERIAL = "ROOFLINE_NO_BLOCKER", "CUDA_LAUNCH_BLOCKING"
"""Set to 1 by --no-blocker, and by people who debug: each launch then waits for its kernel."""


@dataclass
class Task:
    """Something that can be launched again and again.

    launch(amount): queue one launch; `whole`: that one launch does all `amount`, else `amount` are needed
    each: library calls that a whole launch queues for each of `amount`, where it is not one launch for all
    name: for messages;  flushed: empty the L2 cache before every repetition, outside its time
    """

    name: str
    launch: Callable[[int], None]
    whole: bool = False
    flushed: bool = False
    started: bool = False
    each: int = 0

    def launches(self, amount: int) -> int:
        """How many launches `amount` takes."""
        return 1 if self.whole else amount


@dataclass
class Batch:
    """What n repetitions took: starts (s, monotonic) and seconds of each, and evidence for the record."""

    starts: tuple[float, ...]
    seconds: tuple[float, ...]
    evidence: dict[str, Any] = field(default_factory=dict)


class Batches:
    """Times tasks on one engine; remembers whether holding works on this machine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._given_up = ""
        if os.environ.get(NO_BLOCKER, "0") not in ("", "0"):
            self._given_up = "off: --no-blocker"
        elif os.environ.get(SERIAL, "0") not in ("", "0"):
            self._given_up = f"off: {SERIAL} is set"

    def start(self, task: Task) -> None:
        """Launch once and wait: loading code while the GPU is held would never end.

        CuPy's libraries use its current stream, whoever set it last: it must be the one that is timed.
        """
        self.engine.stream.use()
        if task.started:
            return
        with translated(task.name):
            task.launch(1)
            self.engine.mark()
            if task.flushed:
                self.engine.flush()
        self.engine.synchronize()
        task.started = True

    def run(self, task: Task, amount: int, n: int) -> Batch:
        """n repetitions of `amount`; DeviceError when the events cannot be believed.

        Where the host was too slow for all of them, and the queue holds one, as many as it holds at a time.
        """
        self.start(task)
        batch = self._held(task, amount, n)
        fitting = QUEUED // (entries_of(task, amount) + MARKS)
        if self._given_up or not batch.evidence["host_bound"] or not 0 < fitting < n:
            return batch
        return joined([self._held(task, amount, min(fitting, n - done)) for done in range(0, n, fitting)])

    def _held(self, task: Task, amount: int, n: int) -> Batch:
        """One batch, taken anew where the GPU did not wait long enough."""
        for _ in range(ATTEMPTS):
            batch, late = self._attempt(task, amount, n)
            if not late:
                return batch
        self._given_up = f"off: the GPU waited {PATIENCE:.0f} s for the host, {ATTEMPTS} times"
        return self._attempt(task, amount, n)[0]

    def _attempt(self, task: Task, amount: int, n: int) -> tuple[Batch, bool]:
        engine, held = self.engine, not self._given_up
        with translated(task.name):
            began = engine.now()
            if held:
                engine.hold(engine.ticket + 1, PATIENCE)
            released, marks = self._queue(task, amount, n, held)
            queued = engine.now()
        with translated(task.name):
            engine.stream.synchronize()
            ended = engine.now()
            late = held and int(engine.flags[1]) == engine.ticket
            seconds = tuple(engine.elapsed(first, last) for first, last in marks)
            before = tuple(engine.elapsed(first, marks[-1][1]) for first, _ in marks)
        if min(seconds) <= 0:
            raise DeviceError(
                f"{task.name}: the events of this GPU say {min(seconds)} s: they cannot be used"
            )
        host = {"running": ended - (released if held else began), "waiting": ended - queued}
        evidence = self._evidence(task.launches(amount), seconds, before[0], host)
        return Batch(tuple(ended - back for back in before), seconds, evidence), late

    def _queue(self, task: Task, amount: int, n: int, held: bool) -> tuple[float, list[tuple[Any, Any]]]:
        """Queue n repetitions and let go as soon as there is enough; when that was, and the events."""
        engine, marks, entries, released = self.engine, [], 0, 0.0
        launches, each = task.launches(amount), 1 + task.each * amount
        for _ in range(n):
            if task.flushed:
                engine.flush()
            first = engine.mark()
            for _ in range(launches):
                task.launch(amount)
                entries += each
                if entries >= QUEUED and not released:
                    released = self._let_go(held)
            marks.append((first, engine.mark()))
            entries += MARKS
        return released or self._let_go(held), marks

    def _let_go(self, held: bool) -> float:
        if held:
            self.engine.flags[0] = self.engine.ticket
        return self.engine.now()

    def _evidence(
        self, launches: int, seconds: tuple[float, ...], span: float, host: dict[str, float]
    ) -> dict[str, Any]:
        """For the record: how the batch was queued, and whether the host's clock agrees with the events.

        event_share: of the host's time from letting go to the end, what lay between first and last event
        gaps: share of that span outside repetitions;  host_bound: queueing may be what was timed
        """
        queued = launches * len(seconds)
        return {
            "launches": launches,
            "blocker": self._given_up or "on",
            "event_share": span / host["running"] if host["running"] > 0 else None,
            "gaps": max(0.0, 1.0 - sum(seconds) / span),
            "host_bound": queued > QUEUED and host["waiting"] * queued < DRAINED * span,
        }


def entries_of(task: Task, amount: int) -> int:
    """Entries of the launch queue that the launches of one repetition take."""
    return task.launches(amount) * (1 + task.each * amount)


def joined(batches: list[Batch]) -> Batch:
    """Repetitions of batches that followed each other; evidence of the last, the host's share of any."""
    starts = tuple(start for batch in batches for start in batch.starts)
    seconds = tuple(s for batch in batches for s in batch.seconds)
    bound = any(batch.evidence["host_bound"] for batch in batches)
    return Batch(starts, seconds, {**batches[-1].evidence, "host_bound": bound})
