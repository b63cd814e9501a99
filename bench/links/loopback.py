"""Loopback TCP between two processes, the network link that every machine has.

    ping      a message and its answer of the same size, each counted as one: alpha and n half
    stream    messages one after the other, acknowledged once at the end: what the link sustains
    exchange  the same in both directions at once; its bytes are the sum of both

Both ends are Python processes on cores of their own where there are two; TCP_NODELAY is set at both, the
socket buffers are the system's. Every message lies in memory of its own size at either end.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import checkout
from bench.backends import Prepared
from bench.errors import DeviceError, VerificationError
from bench.links.peer import HEADER, HOST, exchange, receive, tune
from bench.profile.records import Point, Repetitions
from kernels.link import LOOPBACK, crossing

VARIANTS = ("ping", "stream")
MOST_BYTES, MOST_MESSAGES = 256 << 20, 1 << 24
CHECKED, PASSED_OVER = 64 << 20, 1 << 20
START_SECONDS, LOOK_SECONDS = 10.0, 0.1
"""In which the other process must have connected; between two looks at whether it still lives."""

SILENCE_SECONDS = 15
"""Without a byte after which the other end counts as dead; the watchdog above waits longer."""


class Link:
    """A connection to a process of our own; `with link.guarded()` turns its death into one sentence.

    owed: bytes that were asked for and that nobody has read yet; the next request passes over them
    """

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self.cpus = cpus
        self.owed = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.listener = socket.create_server((HOST, 0), backlog=1)
        except OSError as error:
            raise DeviceError(
                f"no port of {HOST} can be opened ({error.strerror}): the loopback interface must be up "
                "(`ip link set lo up`) and sockets allowed"
            ) from None
        with self.listener:
            self.socket = self._connected(self.listener.getsockname()[1])

    def _connected(self, port: int) -> socket.socket:
        words = [sys.executable, "-m", "bench.links.peer", str(os.getpid()), str(port)]
        self._process = subprocess.Popen(
            [*words, str(self.cpus[1])] if len(self.cpus) > 1 else words,
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
        link.settimeout(None)
        tune(link)
        limit = struct.pack("ll", SILENCE_SECONDS, 0)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
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
            how = self._ended()
            self.close()
            raise DeviceError(
                f"the second process of the loopback link was lost in the middle of a transfer ({how}; "
                f"{error.strerror or error}): run again, with more memory free if the system ended it"
            ) from None
        except BaseException:
            self.close()  # in the middle of a request: nobody knows what of it is still to come
            raise

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
    link: Link
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
            raise VerificationError(f"a message of {size} byte arrived changed; loopback is not timed")

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
    """The second process started and connected; DeviceError for a size or variant that is not there.

    cores: one CPU a core, so that the two ends do not share one
    """
    size = point.sizes["bytes"]
    if point.variant not in VARIANTS or (point.variant, point.access) == ("ping", "exchange"):
        raise DeviceError(
            f"no loopback point {point.variant} {point.access}; valid: ping send, stream send, "
            "stream exchange"
        )
    if not 0 < size <= MOST_BYTES:
        raise DeviceError(f"messages are 1 to {MOST_BYTES} byte, not {size}")
    cpus = ends(cores)
    link = kept(cpus)
    facts: dict[str, Any] = {
        "no_delay": bool(link.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)),
        "send_buffer_bytes": link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        "receive_buffer_bytes": link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        "cpus": list(cpus),
    }
    unit = LOOPBACK.work(1, crossing(point.access, size), point.level)
    step = 2 if point.variant == "ping" else 1  # there and back
    return Prepared(point, unit.times, step, MOST_MESSAGES, step, facts, Messages(point, link, size), "host")
