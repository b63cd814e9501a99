"""The parent's side of a measuring process: a pipe each way, a watchdog, and how it ended in words."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from bench import checkout, errors
from bench.profile.encoding import FormatError, dumps, loads

WORKER = (sys.executable, "-m", "bench.running.worker")


class Silent(Exception):
    """The child gave no answer in time; the message says in how many seconds."""


class Died(Exception):
    """The child ended; the message says how."""


class Child:
    """One measuring process: a pipe each way, killed when it is silent, ended when this one ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self._process = subprocess.Popen(
            [*command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=checkout.environment(environment),
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the child
            bufsize=0,
        )
        self._unread = b""
        self._owed = 0

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Send a request and wait `limit` s for the answer; Silent, Died, or the error it names."""
        self.send(request)
        try:
            while self._owed > 1:
                self._line(limit)
                self._owed -= 1
            reply = loads(self._line(limit).decode())
            self._owed = 0
        except (FormatError, UnicodeDecodeError) as error:
            raise Died(f"the measuring process answered nonsense ({error})") from None
        if "error" in reply:
            raise named_error(reply["error"], reply["message"])
        return dict(reply)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request whose answer nobody waits for: `ask` passes over it later."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise Died(self._epitaph()) from None
        self._owed += 1

    def _line(self, limit: float) -> bytes:
        assert self._process.stdout is not None
        pipe, deadline = self._process.stdout.fileno(), time.monotonic() + limit
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Silent(f"no answer within {limit:.0f} s")
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise Died(self._epitaph())
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _epitaph(self) -> str:
        """How it ended, with the last line it wrote to stderr."""
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "the measuring process closed its pipe"
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the measuring process ended with {how}" + (f": {said[-1]}" if said else "")

    def end(self, kill: bool) -> None:
        """Close its stdin, which ends it; kill it when asked to or when it does not listen."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if kill:
            self._process.kill()
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot die
                self._process.wait(5)
        self._process.stdout.close()
        self._stderr.close()


def named_error(code: int, message: str) -> errors.BenchError:
    """The error class that belongs to an exit code."""
    kinds = {kind.exit_code: kind for kind in errors.BenchError.__subclasses__()}
    return kinds.get(code, errors.BenchError)(message)
