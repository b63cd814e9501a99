"""Loopback TCP to a second process of our own, the network link that every machine has.

Both ends are Python processes on cores of their own where there are two.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from bench import checkout
from bench.errors import DeviceError
from bench.links.connection import Connection
from bench.links.peer import HOST

START_SECONDS, LOOK_SECONDS = 10.0, 0.1
"""In which the other process must have connected; between two looks at whether it still lives."""


class Link(Connection):
    """A connection to a process that is started with it and ends with it."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.listener = socket.create_server((HOST, 0), backlog=1)
        except OSError as error:
            raise DeviceError(
                f"no port of {HOST} can be opened ({error.strerror}): the loopback interface must be up "
                "(`ip link set lo up`) and sockets allowed"
            ) from None
        with self.listener:
            super().__init__(self._connected(cpus, self.listener.getsockname()[1]), cpus)

    def _connected(self, cpus: tuple[int, ...], port: int) -> socket.socket:
        words = [sys.executable, "-m", "bench.links.peer", str(os.getpid()), str(port)]
        self._process = subprocess.Popen(
            [*words, str(cpus[1])] if len(cpus) > 1 else words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=checkout.environment(),
            start_new_session=True,
        )
        link = self._accepted(self._process)
        if link is None:
            how = self._ended()
            self._process.kill()
            self._process.wait()
            raise DeviceError(
                f"the second process of the loopback link did not connect to {HOST} ({how}): the interface "
                "must be up (`ip link set lo up`), and a firewall must let connections to it pass"
            )
        return link

    def _accepted(self, process: subprocess.Popen[bytes]) -> socket.socket | None:
        """The connection of the other process; None when it ended, or the time did, without one."""
        self.listener.settimeout(LOOK_SECONDS)
        end, gone = time.monotonic() + START_SECONDS, False
        while not gone and time.monotonic() < end:
            gone = process.poll() is not None  # before the look: what it had asked for by then is seen
            try:
                return self.listener.accept()[0]
            except TimeoutError:
                continue
            except OSError:
                break
        return None

    def lost(self, error: OSError) -> str:
        """See Connection."""
        return (
            f"the second process of the loopback link was lost in the middle of a transfer ({self._ended()}; "
            f"{error.strerror or error}): run again, with more memory free if the system ended it"
        )

    def _ended(self) -> str:
        """How the other process is."""
        if self._process is None:
            return "it was never started"
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it runs and is silent"
        return f"it ended with signal {-code}" if code < 0 else f"it ended with exit code {code}"

    def close(self) -> None:
        """End the connection and with it the other process."""
        _links.pop(self.cpus, None)
        self.socket.close()
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_links: dict[tuple[int, ...], Link] = {}
_refused: dict[tuple[int, ...], str] = {}
"""Why there is no connection, once it was tried: to wait again for every point would cost a run its time."""


def kept(cpus: tuple[int, ...]) -> Link:
    """The connection that the points of this process share; a new one after it was lost."""
    if cpus in _refused:
        raise DeviceError(_refused[cpus])
    if cpus not in _links:
        try:
            _links[cpus] = Link(cpus)
        except DeviceError as error:
            _refused[cpus] = str(error)
            raise
    return _links[cpus]


def ends(cores: Sequence[int] = ()) -> tuple[int, ...]:
    """CPUs of the two processes: the first two of `cores`, one CPU a core; siblings on a single core."""
    return tuple(cores if len(cores) > 1 else sorted(os.sched_getaffinity(0)))[:2]
