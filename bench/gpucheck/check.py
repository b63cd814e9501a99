"""A check: what was found, what was expected, whether it passed; and who runs checks until time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from bench.errors import BenchError
from bench.outcome import outcome

OK, FAILED, SKIPPED = "ok", "FAIL", "skip"
TIME_UP = "the stage's time was up"


@dataclass(frozen=True)
class Check:
    """One line of the table.

    value: what was found, or the reason where it is skipped or failed;  expected: in words
    seconds: that it took
    """

    name: str
    status: str
    value: str = ""
    expected: str = ""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The check for a screen of 100 columns; longer reasons are kept whole in the file."""
        told = f"{self.value}  [{self.expected}]" if self.expected else self.value
        return f"{self.status:<5}{self.name:<38} {_cut(told, 48):<48} {self.seconds:5.1f} s"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def passed(name: str, holds: bool, value: str, expected: str = "") -> Check:
    """Ok or FAIL by a condition."""
    return Check(name, OK if holds else FAILED, value, expected)


def within(name: str, value: float, low: float, high: float, unit: str = "") -> Check:
    """Ok when low <= value <= high."""
    unit = f" {unit}" if unit else ""
    return passed(name, low <= value <= high, f"{value:.4g}{unit}", f"{low:.4g} to {high:.4g}{unit}")


def skipped(name: str, reason: str) -> Check:
    """Not checked, and why."""
    return Check(name, SKIPPED, reason)


Source = Callable[[], Iterable[Check]]


def run(name: str, source: Source, now: Callable[[], float] = time.monotonic) -> Iterator[Check]:
    """The checks of `source`, each with the seconds it took; a failure in words is a failed check."""
    began = now()
    try:
        for check in source():
            yield replace(check, seconds=now() - began)
            began = now()
    except (BenchError, ImportError, MemoryError, OSError, ArithmeticError, LookupError) as error:
        yield Check(name, FAILED, outcome(error)[1], "no error", now() - began)
    except Exception as error:  # whatever CuPy, NVML or a driver raises: the next check shall still run
        yield Check(name, FAILED, f"{type(error).__name__}: {error}", "no error", now() - began)


def guarded(name: str, checks: Iterable[Check]) -> Iterator[Check]:
    """The checks; what breaks between two of them is a failed one more, so that what follows still runs."""
    try:
        yield from checks
    except Exception as error:  # a fault of the suite's own, too
        yield Check(name, FAILED, outcome(error)[1], "no error")


def run_all(
    sources: Iterable[tuple[str, Source]],
    deadline: float,
    end: float = math.inf,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Check]:
    """Run one source after the other; from `deadline` on no further one, from `end` on no further check."""
    for name, source in sources:
        if now() > deadline:
            yield skipped(name, TIME_UP)
            continue
        for check in run(name, source, now):
            yield check
            if now() > end:
                yield skipped(f"{name}, the rest", TIME_UP)
                break
