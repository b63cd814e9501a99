"""Messages over TCP, to a process on this machine (loopback) or on another node.

    ping      a message and its answer of the same size, each counted as one: alpha and n half
    stream    messages one after the other, acknowledged once at the end: what the link sustains
    exchange  the same in both directions at once; its bytes are the sum of both

TCP_NODELAY is set at both ends, the socket buffers are the system's. Every message lies in memory of its own
size at either end.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.links import loopback, node
from bench.links.connection import Connection
from bench.links.peer import MOST_BYTES, exchange, receive
from bench.profile.records import Point, Repetitions
from kernels.link import LOOPBACK, TCP, crossing

VARIANTS = ("ping", "stream")
CHECKED, MOST_MESSAGES = 64 << 20, 1 << 24


@contextmanager
def pinned(cpus: tuple[int, ...]) -> Iterator[None]:
    """This thread on the first of the CPUs, where there are two."""
    before = os.sched_getaffinity(0)
    try:
        if len(cpus) > 1:
            os.sched_setaffinity(0, {cpus[0]})
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Messages:
    """The handle: messages of `size` byte over a kept connection."""

    point: Point
    link: Connection
    size: int
    out: bytearray = field(init=False)
    into: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.out = bytearray(random.Random(self.size + 1).randbytes(self.size))
        self.into = bytearray(self.size)

    def check(self) -> None:
        """A message each way arrives whole, by CRC-32 reckoned at both ends."""
        size = min(self.size, CHECKED)
        out, into, answer = memoryview(self.out)[:size], memoryview(self.into)[:size], bytearray(4)
        with self.link.guarded():
            self.link.ask(b"V", size)
            self.link.socket.sendall(out)
            receive(self.link.socket, memoryview(answer))
            arrived = struct.unpack("!I", answer)[0]
            receive(self.link.socket, into)
            receive(self.link.socket, memoryview(answer))
        sent_back = struct.unpack("!I", answer)[0]
        if (arrived, sent_back) != (zlib.crc32(out), zlib.crc32(into)):
            raise VerificationError(f"a message of {size} byte arrived changed; the link is not timed")

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` messages, by the host clock; of a ping every second one is an answer."""
        start, seconds, run = [], [], self._run()
        with pinned(self.link.cpus), self.link.guarded():
            for _ in range(n):
                began = time.perf_counter()
                run(amount)
                seconds.append(time.perf_counter() - began)
                start.append(began)
        return Repetitions(tuple(start), tuple(seconds))

    def _run(self) -> Callable[[int], None]:
        if self.point.access == "exchange":
            return self._exchange
        return self._ping if self.point.variant == "ping" else self._stream

    def _ping(self, amount: int) -> None:
        link, out, into = self.link.socket, memoryview(self.out), memoryview(self.into)
        self.link.ask(b"P", self.size, amount // 2)
        for _ in range(amount // 2):
            link.sendall(out)
            receive(link, into)

    def _stream(self, amount: int) -> None:
        self.link.ask(b"S", self.size, amount)
        for _ in range(amount):
            self.link.socket.sendall(self.out)
        receive(self.link.socket, memoryview(self.into)[:1])

    def _exchange(self, amount: int) -> None:
        self.link.ask(b"X", self.size, amount)
        exchange(self.link.socket, memoryview(self.out), memoryview(self.into), amount)

    def close(self) -> None:
        """The connection stays for the next point."""
        self.out, self.into = bytearray(), bytearray()


def prepare(point: Point, cores: Sequence[int] = ()) -> Prepared:
    """The other process connected; DeviceError for a size or variant that is not there.

    cores: one CPU a core, so that the two ends do not share one
    """
    size = point.sizes["bytes"]
    if point.variant not in VARIANTS or (point.variant, point.access) == ("ping", "exchange"):
        raise DeviceError(
            f"no messages {point.variant} {point.access}; valid: ping send, stream send, stream exchange"
        )
    if not 0 < size <= MOST_BYTES:
        raise DeviceError(f"messages are 1 to {MOST_BYTES} byte, not {size}")
    cpus = loopback.ends(cores)
    kernel = TCP if point.kernel == TCP.name else LOOPBACK
    link = node.kept(cpus[:1]) if kernel is TCP else loopback.kept(cpus)
    facts: dict[str, Any] = {
        "no_delay": bool(link.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)),
        "send_buffer_bytes": link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        "receive_buffer_bytes": link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        "cpus": list(link.cpus),
    }
    unit = kernel.work(1, crossing(point.access, size), point.level)
    step = 2 if point.variant == "ping" else 1  # there and back
    return Prepared(point, unit.times, step, MOST_MESSAGES, step, facts, Messages(point, link, size), "host")
