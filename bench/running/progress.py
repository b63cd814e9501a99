"""What the user sees while a run goes on: a bar on a terminal that can draw, a line a stage, or nothing."""

from __future__ import annotations

import sys
import time
from typing import Any

from bench import streams
from bench.profile.records import Point
from bench.report.units import capacity, counted

REFRESH = 0.25
"""Seconds between two drawings of the bar; it is drawn between points only, never during one."""


def duration(seconds: float) -> str:
    """For a reader: 1 min 20 s."""
    whole = max(0, round(seconds))
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def named(point: Point, unit: str = "thread") -> str:
    """A point for the progress line; `unit` is what its threads are."""
    size = ", ".join(_size(name, value) for name, value in point.sizes.items() if name != "plateau")
    threads = counted(point.threads, unit)
    return " ".join(filter(None, (point.kernel, point.precision.label, point.level, size, threads)))


def _size(name: str, value: int) -> str:
    """128 MiB, 200 µs, m 1024."""
    if name == "bytes":
        return capacity(value)
    return f"{value} µs" if name == "window" else f"{name} {value}"


class Screen:
    """Writes to stderr; the bar has no thread of its own, which would disturb the measurement."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._drawn = 0.0
        self._live = not quiet and not streams.is_dumb() and sys.stderr.isatty()

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            print(line, file=sys.stderr, flush=True)
        except BrokenPipeError:
            raise  # whoever read it wants no more
        except OSError:
            self.quiet = True  # a full disk under the log is no reason to lose the run

    def begin(self, stage: str, points: int) -> None:
        """A stage of so many points begins."""
        self.end()
        if not self._live:
            self.say(stage)
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[point]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(stage, total=points, point="")

    def point(self, name: str, done: int, left: float) -> None:
        """`done` points of the stage are measured, `name` is next, `left` seconds of the box remain."""
        if self._bar is None:
            return
        self._bar.update(self._task, completed=done, point=f"{name}  {duration(left)} left")
        if time.monotonic() - self._drawn > REFRESH:
            self._drawn = time.monotonic()
            self._bar.refresh()

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
