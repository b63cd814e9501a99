"""A stage in a process of its own: its checks, printed one a line as JSON.

    python -m bench.gpucheck.stages NAME DEVICE SECONDS FOLDER

A stage that hangs or dies costs itself alone: what it printed before stays.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import DeviceError
from bench.gpucheck.check import FAILED, OK, SKIPPED, TIME_UP, Check, run, run_all, skipped
from bench.planning.planned import Planned
from bench.profile.records import Point, Sample

if TYPE_CHECKING:
    from bench.gpu import crosscheck
    from bench.running.runners import Children

RESULTS_SHARE, BEGUN, ENDED = 0.5, 0.9, 0.95
"""Shares of the tests' time: in which loops are compared with their references, in which a check may begin,
and after which none goes on."""

HOPPER = 90
"""Compute capability x 10 that has functions of its own, for the target 90a."""

STREAMED = ("read", "copy", "triad")
"""Streams that are cross-checked, in fp32; all of them are with `run --cross-check`."""

TURN = (0.02, 0.08, 3)
"""Of a turn of a side: seconds of a repetition, of all, and repetitions at least."""

PAIRS, RESERVE, SPARE = 5, 4.0, 2.0
"""Pairs of turns a kernel; seconds before the end from which no further kernel is begun, and at which a stage
ends by itself whatever it is at: one that has to be killed would count as a failed check."""


def tests(device: str, seconds: float, folder: Path) -> Iterator[Check]:
    """The device checks (bench/gpucheck/device.py) on an open backend; PyTorch is imported meanwhile."""
    from bench.backends import open_backend
    from bench.gpucheck import by_torch
    from bench.gpucheck.bed import Bed
    from bench.gpucheck.device import CHECKS

    began = time.monotonic()
    other = by_torch.ahead() if device.startswith("cuda") else None
    try:
        bed = Bed(open_backend(device), began + RESULTS_SHARE * seconds, began + seconds - SPARE, other)
        sources = [(name, lambda check=check: check(bed)) for name, check in CHECKS.items()]
        yield from run_all(sources, began + BEGUN * seconds, began + ENDED * seconds)
    finally:
        if other is not None:
            other.end(kill=True)


def audit(device: str, seconds: float, folder: Path) -> Iterator[Check]:
    """The machine code of every kernel for this GPU's architecture, by the audit verb."""
    if not device.startswith("cuda"):
        yield skipped("audit", "a simulated device has no machine code")
        return
    from bench.gpu.described import in_child

    until = time.monotonic() + seconds - SPARE
    capability = in_child(device).facts["compute_capability"]
    targets = f"{capability},90a" if capability == HOPPER else str(capability)
    words = [sys.executable, "-m", "bench", "audit", "--arch", targets]
    try:
        left = max(1.0, until - time.monotonic())
        done = subprocess.run(words, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        yield skipped("audit", f"not done in {seconds:.0f} s")
        return
    said = (
        done.stdout.strip().splitlines()[:1]
        if done.returncode == 0
        else done.stderr.strip().splitlines()[-1:]
    )
    absent = done.returncode in (2, 3)  # no such verb or flag, or a tool that is not installed
    status = OK if done.returncode == 0 else SKIPPED if absent else FAILED
    yield Check(
        "audit",
        status,
        "".join(said) or f"exit code {done.returncode}",
        "" if absent else "every count as declared",
    )


def cross_check(device: str, seconds: float, folder: Path) -> Iterator[Check]:
    """The chains and streams of both CUDA backends, interleaved at one launch shape."""
    if not device.startswith("cuda"):
        yield skipped("cross-check", "a simulated device has one backend")
        return
    from bench.gpu import crosscheck, survey
    from bench.gpu.described import cuda_device
    from bench.running.runners import Children

    deadline, environment = time.monotonic() + seconds - SPARE, survey.environment(device)
    ours = Children(device, environment=environment)
    second = Children(device.replace("cuda", "numba"), environment=environment)
    try:
        for runner in (second, ours):
            runner.ahead()  # Numba alone takes seconds to import, and the GPU is looked at meanwhile
        found = cuda_device(device)
        sides = (
            crosscheck.Side("cuda", turn(ours, deadline)),
            crosscheck.Side("numba", turn(second, deadline)),
        )
        for runner in (ours, second):
            runner.open(1)
        for point in crosscheck.points(found):
            if point.family == "fma" or (point.kernel in STREAMED and point.precision.label == "fp32"):
                yield compared(sides, point, deadline)
    except DeviceError as error:  # no Numba, or a GPU for one process only: there is no second opinion
        yield skipped("cross-check", str(error))
    finally:
        for runner in (ours, second):
            runner.close(kill=True)


class TimeUp(Exception):
    """The stage's time is up in the middle of a kernel."""


def turn(runner: Children, deadline: float = math.inf) -> Callable[[Point, int], Sample]:
    """Measures a point once, in the runner's process; TimeUp from `deadline` on."""

    def measure(point: Point, order: int) -> Sample:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeUp
        return runner.measure(Planned(point, 0, 0.0, 0.5, 0.01, *TURN), order, 1.0, min(20.0, left))

    return measure


def compared(sides: tuple[crosscheck.Side, crosscheck.Side], point: Point, deadline: float) -> Check:
    """One kernel on both sides, a line of the table."""
    from bench.gpu import crosscheck

    name = f"cross-check {point.kernel} {point.precision.label}"
    late = skipped(name, TIME_UP)
    if time.monotonic() > deadline - RESERVE:
        return late
    try:
        found = crosscheck.compare(*sides, point, pairs=PAIRS, most=2 * PAIRS)
    except TimeUp:
        return late
    if found.ratio is None:
        return skipped(name, found.sentence)
    status = FAILED if found.verdict == crosscheck.FAULT else OK
    return Check(name, status, f"{found.ratio.value:.4f}, {found.verdict}", "1, at most 2 % off")


def checks(device: str, seconds: float, folder: Path) -> Iterator[Check]:
    """The self-checks of the run in `folder`."""
    from bench.gpucheck.result import checks as of_result

    yield from of_result(folder)


STAGES: dict[str, Callable[[str, float, Path], Iterator[Check]]] = {
    "tests": tests,
    "audit": audit,
    "cross-check": cross_check,
    "checks": checks,
}


def main(words: list[str]) -> None:
    """Print the checks of a stage as JSON lines."""
    name, device, seconds, folder = words[0], words[1], float(words[2]), Path(words[3])
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else prints must not mix with the answers
    for check in run(name, lambda: STAGES[name](device, seconds, folder)):
        print(json.dumps(asdict(check)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
