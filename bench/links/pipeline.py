"""Pipelining on the host: a reader fetches chunk after chunk while workers compute on the one before.

Three buffers go round (one being filled, one waiting, one computed on); with one buffer the same code is the
serial run. A link drifts by more from one moment to the next than chunks change a time, so every repetition
times all that is compared:

    swept       the parts alone in one piece, and pipelined in 1, 2, 4, ... sizes["chunks"] chunks, in random
                order; the seconds of a repetition are all of these together
    pipelined   move alone, compute alone, serial and pipelined, all in sizes["chunks"] chunks, in turning
                order; the seconds of a repetition are the pipelined pass
    copy alone, compute alone   one part by itself in one piece

Facts of both:

    t_move, t_compute, t_serial   medians, s (swept: the serial pass is the one in one chunk)
    ratio       t_compute over t_move as it came out
    move_slowdown, compute_slowdown   time inside the calls of each part while overlapped, over alone
                (swept: median over all numbers of chunks above 1)
    fma         multiply-adds an item, calibrated once a process so that t_compute = r t_move
                (sizes["percent"] is 100 r)
    passes      swept: every time, s: {"chunks": [k], "move": [...], "compute": [...], "seconds": [[...] a k]}

The reader has a CPU of its own where there are two, a process that sends to it where there are three; the
workers (1, 2 or 4 of them) have others, and keep them in the passes alone: the experiment is about overlap,
not about how many cores compute.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.links import chunk_source, scratch, storage
from bench.links.crew import Crew, parted
from bench.native import chunk
from bench.native.isa import Isa
from bench.profile.records import Point, Repetitions
from kernels.overlap import FACTOR, KERNELS
from kernels.spec import ITEM_BYTES

BUFFERS = 3
ALONE = {"copy alone": "move", "compute alone": "compute"}
SWEPT = "swept"
VARIANTS = (SWEPT, "pipelined", *ALONE)

TRIALS, TRIAL_STEPS = 5, 64
TOLERANCE = 1e-9


def unsupported(point: Point) -> str:
    """Why this point cannot be measured here, "" if it can; a bad folder is no skip."""
    return storage.unsupported(replace(point, variant="direct")) if point.level == "storage" else ""


@dataclass
class Pipeline:
    """The handle: passes over `source` in `chunks` chunks, `fma` steps an item; of one part only if named."""

    source: chunk_source.Source
    crew: Crew
    chunks: int
    fma: int
    facts: dict[str, Any]
    passes: dict[str, list[float]] = field(default_factory=dict)
    turn: int = 0
    part: str = ""

    def check(self) -> None:
        """The total of a pipelined pass and of a serial one against the closed form."""
        for buffers in (BUFFERS, 1):
            self._pipelined(buffers)

    def _pipelined(self, buffers: int) -> tuple[float, float, float]:
        """One pass: (s, s inside the reader, s inside the workers); VerificationError on a wrong total."""
        start = self.source.begin(self.chunks)
        taken = self.crew.overlapped(self.source.read, start, self.chunks, self.fma, buffers)
        want = (1.0 + FACTOR) ** self.fma * self.source.total(start)
        if not np.isclose(got := self.crew.total(), want, rtol=TOLERANCE, atol=0.0):
            raise VerificationError(
                f"the pipelined total is {got!r} instead of {want!r}: a chunk was lost or computed on "
                "too early; it is not timed"
            )
        return taken

    def _alone(self, part: str) -> tuple[float, float]:
        if part == "compute":
            return self.crew.computing(self.chunks, self.fma)
        start = self.source.begin(self.chunks)
        return self.crew.moving(self.source.read, start, self.chunks)

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of one pass each; of a pipelined one with the other passes beside it."""
        start, seconds = [], []
        names = (self.part,) if self.part else ("move", "compute", "serial", "pipelined")
        for _ in range(n):
            first = self.turn % len(names)
            self.turn += 1
            for name in names[first:] + names[:first]:
                began = time.perf_counter()
                taken = self._pass(name)
                if name == names[-1]:
                    start.append(began)
                    seconds.append(taken)
        if not self.part:
            self._tell()
        return Repetitions(tuple(start), tuple(seconds))

    def _pass(self, name: str) -> float:
        if name in ("move", "compute"):
            taken, inside = self._alone(name)
            self.passes.setdefault(f"{name} inside", []).append(inside)
        else:
            taken, moving, computing = self._pipelined(1 if name == "serial" else BUFFERS)
            if name == "pipelined":
                self.passes.setdefault("move overlapped", []).append(moving)
                self.passes.setdefault("compute overlapped", []).append(computing)
        self.passes.setdefault(name, []).append(taken)
        return taken

    def _tell(self) -> None:
        """Medians of the passes so far, as facts."""
        found = {name: median(values) for name, values in self.passes.items()}
        self.facts |= {
            "t_move": found["move"],
            "t_compute": found["compute"],
            "t_serial": found["serial"],
            "ratio": found["compute"] / found["move"],
            "move_slowdown": found["move overlapped"] / found["move inside"],
            "compute_slowdown": found["compute overlapped"] / found["compute inside"],
        }

    def close(self) -> None:
        """End the threads; the link stays for the next point."""
        self.crew.close()


_calibrated: dict[tuple[str, int, int], int] = {}
"""Steps by level, percent and bytes: once a process, so that all its numbers of chunks do the same work."""


class Sweep(Pipeline):
    """The handle of a sweep: both parts and every number of chunks in each repetition, in random order."""

    def __init__(
        self, source: chunk_source.Source, crew: Crew, size: int, most: int, fma: int, facts: dict[str, Any]
    ) -> None:
        super().__init__(source, crew, 1, fma, facts)
        self.size, self.counts = size, powers(most)
        self.order = random.Random(size)
        self.chunked: dict[int, list[float]] = {k: [] for k in self.counts}
        self.inside: dict[int, list[tuple[float, float]]] = {k: [] for k in self.counts}

    def check(self) -> None:
        """The total of the pass in most chunks and of that in one against the closed form."""
        for count in (self.counts[-1], 1):
            self._cut(count)
            self._pipelined(BUFFERS)

    def _cut(self, chunks: int) -> None:
        self.chunks = chunks
        self.crew.cut(self.size // chunks)

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of all passes."""
        start, seconds = [], []
        for _ in range(n):
            todo: list[str | int] = ["move", "compute", *self.counts]
            self.order.shuffle(todo)
            began = time.perf_counter()
            seconds.append(sum(self._one(name) for name in todo))
            start.append(began)
        self._tell()
        return Repetitions(tuple(start), tuple(seconds))

    def _one(self, name: str | int) -> float:
        """Seconds of a part in one piece, or pipelined in so many chunks."""
        if isinstance(name, str):
            self._cut(1)
            return self._pass(name)
        self._cut(name)
        taken, moving, computing = self._pipelined(BUFFERS)
        self.chunked[name].append(taken)
        self.inside[name].append((moving, computing))
        return taken

    def _tell(self) -> None:
        """All times, and medians as of a single number of chunks."""
        alone = {name: median(self.passes[name]) for name in ("move", "compute")}
        within = [median(self.passes[f"{name} inside"]) for name in ("move", "compute")]
        overlapped = [
            [median(pair[part] for pair in self.inside[k]) for k in self.counts if k > 1] for part in (0, 1)
        ]
        slowed = [
            median(times) / own if times else 1.0 for times, own in zip(overlapped, within, strict=True)
        ]
        self.facts |= {
            "t_move": alone["move"],
            "t_compute": alone["compute"],
            "t_serial": median(self.chunked[1]),
            "ratio": alone["compute"] / alone["move"],
            "move_slowdown": slowed[0],
            "compute_slowdown": slowed[1],
            "passes": {
                "chunks": list(self.counts),
                "move": list(self.passes["move"]),
                "compute": list(self.passes["compute"]),
                "seconds": [list(self.chunked[k]) for k in self.counts],
            },
        }


def powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `most`."""
    return tuple(1 << i for i in range(most.bit_length()) if 1 << i <= most)


def steps(point: Point, source: chunk_source.Source, crew: Crew) -> int:
    """Multiply-adds an item for which computing alone takes r times as long as moving alone, 1 at least.

    Of several trials of computing the fastest counts: a disturbed one would set the work wrong by any factor.
    """
    known = (point.level, point.sizes["percent"], point.sizes["bytes"])
    if known not in _calibrated:
        chunks = point.sizes["bytes"] // crew.size
        moving = [crew.moving(source.read, source.begin(chunks), chunks)[0] for _ in range(TRIALS)]
        least, taken = (
            min(crew.computing(chunks, count)[0] for _ in range(TRIALS)) for count in (0, TRIAL_STEPS)
        )
        step = (taken - least if taken > 1.1 * least else taken) / TRIAL_STEPS
        wanted = (point.sizes["percent"] / 100 * median(moving) - least) / step
        _calibrated[known] = max(1, round(wanted))
    return _calibrated[known]


def prepare(point: Point, cpus: tuple[int, ...], isa: Isa) -> Prepared:
    """Link open, buffers and threads ready, work calibrated; DeviceError for what cannot be cut so."""
    size, chunks = point.sizes["bytes"], point.sizes.get("chunks", 1)
    reader, workers = parted(cpus, int(point.level == "network"))
    unit = max(scratch.ALIGNED, chunk.unit_bytes(isa) * len(workers))
    if point.variant not in VARIANTS:
        raise DeviceError(f"{point.variant!r} is no pass of the pipeline; valid: {', '.join(VARIANTS)}")
    if chunks < 1 or size % (chunks * unit):
        raise DeviceError(f"{size} byte cannot be cut into {chunks} chunks of whole {unit} byte")
    source = chunk_source.opened(point.level, size, cpus)
    swept = point.variant == SWEPT
    pieces = 1 if swept else chunks
    crew = Crew(reader, workers, size // pieces, BUFFERS, isa)
    try:
        crew.moving(source.read, source.begin(pieces), pieces)  # numbers in every buffer before any is used
        fma = steps(point, source, crew)
    except BaseException:
        crew.close()
        raise
    facts: dict[str, Any] = {"fma": fma, "buffers": BUFFERS, "reader_cpu": reader, "cpus": list(workers)}
    facts |= source.facts
    items = size // ITEM_BYTES["fp64"]
    work = KERNELS[0].work(ITEM_BYTES["fp64"], {"n": items, "fma": fma}, point.level)
    if not swept:
        handle = Pipeline(source, crew, chunks, fma, facts, part=ALONE.get(point.variant, ""))
        return Prepared(point, work.times, 1, 1, 1, facts, handle, "host")
    sweep = Sweep(source, crew, size, chunks, fma, facts)
    passes = len(sweep.counts) + 1  # those in chunks, and the parts which together are one more
    return Prepared(point, lambda amount: work.times(amount * passes), 1, 1, 1, facts, sweep, "host")
