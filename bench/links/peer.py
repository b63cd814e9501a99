"""The other end of a TCP link; as `python -m bench.links.peer PARENT PORT [CPU]` it connects over loopback.

Every request is a header (operation, bytes of a message, how many) on the one connection:

    V  take one message, answer with its CRC-32, then send one message and its CRC-32
    P  take a message and send it back, so many times
    S  take so many messages, then answer with one byte
    X  take so many messages while as many are sent
    L  take one message and keep it;  G  send what is kept in so many messages

It ends with its parent, or when the connection does. Standard library only: it starts in no time.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import struct
import sys
import threading
import zlib

HEADER = struct.Struct("!cQQ")
PR_SET_PDEATHSIG = 1
MOST_BYTES = 256 << 20
"""Of a message: a request for more is refused by ending the connection."""

HOST = "127.0.0.1"


def tune(link: socket.socket) -> None:
    """What both ends set: no waiting for more to send; everything else is the system's default."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def receive(link: socket.socket, memory: memoryview) -> None:
    """Fill `memory`; ConnectionError when the other end is gone."""
    done = 0
    while done < len(memory):
        count = link.recv_into(memory[done:], 0, socket.MSG_WAITALL)
        if count == 0:
            raise ConnectionError("the other end closed the connection")
        done += count


def send_all(link: socket.socket, memory: memoryview, count: int, failed: list[OSError]) -> None:
    """Send the same message `count` times; what goes wrong is put into `failed`."""
    try:
        for _ in range(count):
            link.sendall(memory)
    except OSError as error:
        failed.append(error)


def exchange(link: socket.socket, out: memoryview, into: memoryview, count: int) -> None:
    """Send and receive `count` messages, both at once."""
    failed: list[OSError] = []
    sender = threading.Thread(target=send_all, args=(link, out, count, failed), daemon=True)
    sender.start()
    for _ in range(count):
        receive(link, into)
    sender.join()
    if failed:
        raise failed[0]


class Peer:
    """Obeys one connection; its memory grows with the messages."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.into, self.out, self.kept = bytearray(0), bytearray(0), b""

    def serve(self) -> None:
        """Until the connection ends."""
        header = bytearray(HEADER.size)
        while True:
            receive(self.link, memoryview(header))
            operation, size, count = HEADER.unpack(header)
            if size > MOST_BYTES:
                raise ConnectionError(f"a message of {size} byte is more than the {MOST_BYTES} there may be")
            if len(self.into) < size:
                self.into, self.out = bytearray(size), bytearray(random.Random(size).randbytes(size))
            self.obey(operation, size, count)

    def obey(self, operation: bytes, size: int, count: int) -> None:
        """One request."""
        into, out = memoryview(self.into)[:size], memoryview(self.out)[:size]
        if operation == b"V":
            receive(self.link, into)
            self.link.sendall(struct.pack("!I", zlib.crc32(into)))
            self.link.sendall(out)
            self.link.sendall(struct.pack("!I", zlib.crc32(out)))
        elif operation == b"P":
            for _ in range(count):
                receive(self.link, into)
                self.link.sendall(into)
        elif operation == b"S":
            for _ in range(count):
                receive(self.link, into)
            self.link.sendall(b"!")
        elif operation == b"X":
            exchange(self.link, out, into, count)
        elif operation == b"L":
            receive(self.link, into)
            self.kept = bytes(into)
        elif operation == b"G":
            for i in range(count):
                self.link.sendall(memoryview(self.kept)[i * size : (i + 1) * size])


def end_with(parent: int) -> None:
    """Ask for SIGKILL when the parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Entry point: the parent's process id, the port, and the CPU to stay on."""
    end_with(int(sys.argv[1]))
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(sys.argv[3])})
    with socket.create_connection((HOST, int(sys.argv[2])), timeout=10) as link:
        link.settimeout(None)
        tune(link)
        try:
            Peer(link).serve()
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    main()
