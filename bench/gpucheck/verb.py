"""The verb: stage after stage, each in its own process, a table that grows, files that are always whole."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import checkout
from bench.device import Device
from bench.errors import ResourceError, UsageError
from bench.gpucheck.check import FAILED, OK, SKIPPED, Check, guarded, passed, skipped
from bench.gpucheck.process import last_words, lines
from bench.whole_files import write

LIMITS = {"tests": 90.0, "audit": 30.0, "cross-check": 25.0, "run": 100.0, "checks": 15.0}
"""Seconds that each stage may take, in the order in which they run: 260 in all."""

END, AFTER_RUN = 264.0, 12.0
"""Seconds from the first to the last line, whatever hangs: later stages get what earlier ones left of it. And
of them those after the run, in which its self-checks are made."""

DERIVING = 20.0
"""Seconds at most for each, the fit and the report of a run that was ended."""

MINUTES = 1.3
"""Time box of the measured run; the rest of its stage is for starting, fitting and drawing."""

FOLDER, RECORD, TABLE = "gpu-check", "gpu-check.json", "gpu-check.txt"
KEPT = ("samples.jsonl", "profile.json", "roofline.png", "table.txt")
"""What stays of the measured run beside the record and the table of the checks: six files in one folder."""

LARGEST = 15_000_000
"""Bytes of a file above which it is packed, or left out with a note."""


@dataclass
class Record:
    """All that was found so far; written anew after every stage, so that a later failure costs nothing."""

    device: Device
    folder: Path
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    stages: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """On the screen, and kept for the file."""
        self.say(line)
        self.lines.append(line)

    @property
    def until(self) -> float:
        """On time.monotonic(), when all of it must have ended."""
        return self.began + END

    def stage(self, name: str, checks: Iterator[Check]) -> None:
        """Run a stage, a line a check, and write what is known by then, also of one that is interrupted."""
        began, found = time.monotonic(), list[Check]()
        self.tell(f"-- {name}, at most {LIMITS[name]:.0f} s")
        try:
            for check in guarded(name, checks):
                found.append(check)
                self.tell(check.line)
        finally:
            seconds = time.monotonic() - began
            told = [asdict(check) for check in found]
            self.stages.append({"stage": name, "seconds": seconds, "checks": told})
            self.write()

    @property
    def all(self) -> list[dict[str, Any]]:
        """Every check so far."""
        return [check for stage in self.stages for check in stage["checks"]]

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [check["name"] for check in self.all if check["status"] == FAILED]

    def value(self) -> dict[str, Any]:
        """The JSON of the verb."""
        count = {status: sum(c["status"] == status for c in self.all) for status in (OK, FAILED, SKIPPED)}
        return {
            "schema_version": 1,
            "device": self.device.id,
            "simulated": self.device.kind == "simulated",
            "identity": dict(self.device.identity),
            "state": self.device.state,
            "seconds": time.monotonic() - self.began,
            "count": count,
            "passed": not self.failed,
            "stages": self.stages,
            "notes": self.notes,
        }

    def write(self) -> None:
        """Record and table, each replaced as a whole."""
        for name, text in ((RECORD, json.dumps(self.value(), indent=1)), (TABLE, "\n".join(self.lines))):
            write(self.folder / name, text + "\n")


def check_gpu(device: str, out: Path, stage: str, say: Callable[[str], None]) -> Record:
    """Run all stages, or the one named; DeviceError in words when the device cannot be used at all."""
    if stage and stage not in LIMITS:
        raise UsageError(f"unknown stage {stage!r}; valid: {', '.join(LIMITS)}")
    began = time.monotonic()
    found, environment = opened(device)
    folder = out / FOLDER
    record = Record(found, folder, say, began)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record.write()  # now, not after the first stage
    except OSError as error:
        cause = f"{folder} cannot be made or written to ({error.strerror})"
        raise ResourceError(f"{cause}: name another with --out") from None
    marked = "SIMULATED, no hardware is checked: " if found.kind == "simulated" else ""
    record.tell(f"{marked}{found.name}, {found.threads} {found.unit}s, state {found.state}; into {folder}")
    for name in (stage,) if stage else tuple(LIMITS):
        record.stage(name, staged(name, device, folder, environment, record))
    _end(record)
    return record


def opened(device: str) -> tuple[Device, dict[str, str]]:
    """What the device is, and what a child's environment must hold to find it; no context is opened here."""
    if device.startswith("sim:"):
        from bench.backends import open_backend

        found = open_backend(device).device
        if not found.is_gpu:
            raise UsageError(f"gpu-check is for GPUs: {device} is a simulated CPU; try sim:gpu-large")
        return found, {}
    if not device.startswith("cuda"):
        raise UsageError(
            f"gpu-check is for GPUs: --device cuda:0 (or sim:NAME to try the verb), not {device!r}"
        )
    from bench.gpu.described import cuda_device
    from bench.gpu.survey import environment

    return cuda_device(device), environment(device)


def staged(
    name: str, device: str, folder: Path, environment: dict[str, str], record: Record
) -> Iterator[Check]:
    """The checks of one stage."""
    if name == "run":
        yield from measured(device, folder, LIMITS[name], record.notes, record.until - AFTER_RUN)
        return
    if name == "checks" and not (folder / "profile.json").is_file():
        yield skipped(name, "there is no measured run to check")
        return
    seconds = max(1.0, min(LIMITS[name], record.until - time.monotonic()))
    words = [sys.executable, "-m", "bench.gpucheck.stages", name, device, str(seconds), str(folder)]
    pinned = {} if name == "cross-check" else environment  # it starts children of its own, pinned by it
    for line in lines(name, words, pinned, seconds):
        if isinstance(line, Check):
            yield line
        elif line.startswith("{"):
            yield Check(**json.loads(line))


def measured(
    device: str, folder: Path, seconds: float, notes: list[str], until: float = math.inf
) -> Iterator[Check]:
    """A run of the suite as a user starts it; of its files the ones that stay are moved into `folder`.

    until: on time.monotonic(), by when one that had to be ended is fitted and drawn
    """
    for name in (*KEPT, "samples.jsonl.gz"):
        (folder / name).unlink(missing_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".run-", ignore_cleanup_errors=True) as place:
        words = [sys.executable, "-m", "bench", "run", "--device", device, "--minutes", str(MINUTES)]
        code, said = _run([*words, "--results", place, "--quiet"], min(seconds - 5, until - began))
        homes = [path.parent for path in Path(place).glob("*/*/samples.jsonl")]
        if homes and not (homes[0] / "profile.json").is_file():
            for verb in ("fit", "report"):
                left = max(1.0, until - time.monotonic())
                _run([sys.executable, "-m", "bench", verb, str(homes[0])], min(DERIVING, left))
        for home in homes:
            _keep(home, folder, notes)
    how = "finished" if code == 0 else "no end in time" if code is None else f"exit code {code}: {said}"
    yield Check("measured run", OK if code == 0 else FAILED, how, "finished", time.monotonic() - began)
    there = [name for name in ("profile.json", "roofline.png", "table.txt") if (folder / name).is_file()]
    yield passed("its files", len(there) == 3, ", ".join(there) or "none", "profile, plot, table")


def _run(words: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Exit code (None: out of time, ended like Ctrl-C so that samples stay) and the last words on stderr."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env=checkout.environment(),
        )
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(4)
            except subprocess.TimeoutExpired:
                process.kill()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(5)
        return code, last_words(complaints)


def _keep(home: Path, folder: Path, notes: list[str]) -> None:
    """Move what stays; a file too large to travel is packed, or left out if it still is."""
    for name in KEPT:
        path = home / name
        if not path.is_file():
            continue
        if path.stat().st_size <= LARGEST:
            shutil.move(path, folder / name)
            continue
        packed = folder / f"{name}.gz"
        with path.open("rb") as plain, gzip.open(packed, "wb") as file:
            shutil.copyfileobj(plain, file)
        notes.append(f"{name} is packed: it was {path.stat().st_size} byte")
        if packed.stat().st_size > LARGEST:
            packed.unlink()
            notes.append(f"{name} is left out: packed it was still above {LARGEST} byte")


def _end(record: Record) -> None:
    """The last line: how many passed; and that this process never opened the GPU itself."""
    count = record.value()["count"]
    if "cupy" in sys.modules or "numba.cuda" in sys.modules:
        record.notes.append("the parent process loaded a GPU library: exclusive-process mode would fail")
    said = f"{count[OK]} ok, {count[FAILED]} failed, {count[SKIPPED]} skipped"
    record.tell(f"== {said} in {time.monotonic() - record.began:.0f} s; files in {record.folder}")
    record.write()
