"""Streams beside the one that is timed: what runs on them lies between its two marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.gpu.engine import Engine


class Lanes:
    """A stream on each of the ordinals, forked from and joined to the timed stream of `engine`.

    ordinals: of the GPUs as this process counts them; the engine's own may be among them
    """

    def __init__(self, engine: Engine, ordinals: Sequence[int]) -> None:
        self.engine, self.ordinals = engine, tuple(ordinals)
        self.streams: list[Any] = []
        for ordinal in self.ordinals:
            with engine.cupy.cuda.Device(ordinal):
                self.streams.append(engine.cupy.cuda.Stream(non_blocking=True))

    def mark(self, lane: int) -> Any:
        """An event on a lane, after everything queued there so far."""
        cuda = self.engine.cupy.cuda
        with cuda.Device(self.ordinals[lane]):
            return self.streams[lane].record(cuda.Event())

    def wait(self, lane: int, event: Any) -> None:
        """What is queued on a lane from now on waits for an event of any stream."""
        with self.engine.cupy.cuda.Device(self.ordinals[lane]):
            self.streams[lane].wait_event(event)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Inside the block lanes begin when the timed stream comes to it; it goes on when all are done."""
        first = self.engine.mark()
        for lane in range(len(self.streams)):
            self.wait(lane, first)
        yield
        for lane in range(len(self.streams)):
            self.engine.stream.wait_event(self.mark(lane))
