"""Lines of a child process as they come, until it ends or its time is up and it is killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from bench import checkout
from bench.gpucheck.check import FAILED, Check


def lines(
    name: str, words: Sequence[str], environment: Mapping[str, str], seconds: float
) -> Iterator[str | Check]:
    """The lines of its stdout; a failed check under `name` when it hangs or does not end well."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=checkout.environment(environment),
            start_new_session=True,  # so that all that it starts can be killed with it
        )
        try:
            yield from _until(process, time.monotonic() + seconds)
            if process.poll() is None and not _ended(process):
                yield Check(name, FAILED, f"killed: no end within {seconds:.0f} s", "an end", seconds)
            elif process.returncode:
                how = (
                    f"signal {-process.returncode}"
                    if process.returncode < 0
                    else f"code {process.returncode}"
                )
                yield Check(name, FAILED, f"ended with {how}: {last_words(complaints)}", "an end with code 0")
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot die
                process.wait(3)
            if process.stdout is not None:
                process.stdout.close()


def _until(process: subprocess.Popen[bytes], deadline: float) -> Iterator[str]:
    assert process.stdout is not None
    pipe, unread = process.stdout.fileno(), b""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe], [], [], left)
        chunk = os.read(pipe, 1 << 16) if ready else b""
        if not chunk:
            return
        *whole, unread = (unread + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ends by itself within a moment of closing its stdout."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    return process.returncode is not None


def last_words(complaints: IO[bytes]) -> str:
    """The last line that a process wrote to stderr."""
    complaints.seek(0)
    said = complaints.read().decode(errors="replace").strip().splitlines()
    return said[-1] if said else "it said nothing"
