"""A connection to a process that obeys requests (`peer`), on this machine or another."""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from bench.errors import DeviceError
from bench.links.peer import HEADER, receive, tune

PASSED_OVER = 1 << 20
"""Bytes that are read at a time where nobody wants them."""

SILENCE_SECONDS = 15
"""Without a byte after which the other end counts as dead; the watchdog above waits longer."""


class Connection(ABC):
    """A connection; `with connection.guarded()` turns its death into one sentence.

    cpus: of this end, then of the other where it is on this machine
    owed: bytes that were asked for and that nobody has read yet; the next request passes over them
    """

    def __init__(self, link: socket.socket, cpus: tuple[int, ...]) -> None:
        self.socket, self.cpus, self.owed = link, cpus, 0
        link.settimeout(None)
        tune(link)
        limit = struct.pack("ll", SILENCE_SECONDS, 0)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def ask(self, operation: bytes, size: int, count: int = 1) -> None:
        """Send a request's header, after what a pass that broke off has left in the connection."""
        while self.owed:
            self.take(memoryview(bytearray(min(self.owed, PASSED_OVER))))
        self.socket.sendall(HEADER.pack(operation, size, count))

    def take(self, memory: memoryview) -> None:
        """Fill `memory` with bytes that are owed."""
        receive(self.socket, memory)
        self.owed -= len(memory)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """DeviceError when the connection breaks or falls silent; after any fault it is given up."""
        try:
            yield
        except OSError as error:
            said = self.lost(error)
            self.close()
            raise DeviceError(said) from None
        except BaseException:
            self.close()  # in the middle of a request: nobody knows what of it is still to come
            raise

    @abstractmethod
    def lost(self, error: OSError) -> str:
        """What happened to the other end, and what to do about it."""

    def close(self) -> None:
        """End the connection."""
        self.socket.close()
