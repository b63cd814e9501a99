"""TCP over loopback between two processes: messages arrive whole, peers that die, no connection."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, VerificationError
from bench.links import loopback, messages
from bench.profile.records import Point, Precision
from tests.sampling import sampled

FP64 = Precision.of("fp64")
KIB, MIB = 1 << 10, 1 << 20
TOP = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def message(variant: str, access: str = "send", size: int = KIB) -> Point:
    return Point("link", "loopback", variant, FP64, "network", access, sizes={"bytes": size})


@pytest.mark.parametrize(
    ("variant", "access", "size"),
    [
        ("ping", "send", 1),
        ("ping", "send", KIB),
        ("stream", "send", 300_000),
        ("stream", "exchange", 300_000),
    ],
)
def test_messages_arrive(backend: CpuBackend, variant: str, access: str, size: int) -> None:
    found = sampled(backend, message(variant, access, size))
    assert found.status == "ok", found.reason
    moved = found.facts["amount"] * size
    assert (found.bytes_written, found.bytes_read) == (moved, moved if access == "exchange" else 0)
    assert found.facts["no_delay"] is True and found.facts["send_buffer_bytes"] > 0
    assert variant != "ping" or found.facts["amount"] % 2 == 0  # there and back


def test_a_message_that_arrives_changed_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = messages.prepare(message("stream")).handle
    handle.check()
    monkeypatch.setattr(messages.zlib, "crc32", lambda data: 1)
    with pytest.raises(VerificationError, match="1024 byte arrived changed"):
        handle.check()


def test_a_peer_that_dies_in_the_middle_fails_the_point_and_the_next_one_works(backend: CpuBackend) -> None:
    prepared = messages.prepare(message("stream", size=MIB))
    assert prepared.handle.link._process is not None
    os.kill(prepared.handle.link._process.pid, signal.SIGKILL)
    with pytest.raises(DeviceError, match=r"lost in the middle of a transfer \(it ended with signal 9"):
        prepared.handle.measure(1000, 3)
    assert sampled(backend, message("stream")).status == "ok"


def test_after_any_fault_inside_a_transfer_the_connection_is_a_new_one(backend: CpuBackend) -> None:
    prepared = messages.prepare(message("stream", size=MIB))
    link = prepared.handle.link

    def full() -> None:
        link.ask(b"S", MIB, 4)
        raise MemoryError

    prepared.handle._stream = lambda amount: full()
    with pytest.raises(MemoryError):
        prepared.handle.measure(4, 1)
    assert link.socket.fileno() == -1 and loopback.kept(link.cpus) is not link
    assert sampled(backend, message("stream")).status == "ok"


def test_no_port_and_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    monkeypatch.setattr(loopback.socket, "create_server", refuse)
    with pytest.raises(DeviceError, match=r"no port of 127.0.0.1 can be opened .*`ip link set lo up`"):
        loopback.Link(())
    monkeypatch.undo()
    monkeypatch.setattr(loopback, "START_SECONDS", 0.3)
    monkeypatch.setattr(loopback.sys, "executable", "/bin/false")
    why = r"did not connect to 127.0.0.1 \(it ended with exit code 1\): the interface .*lo up"
    with pytest.raises(DeviceError, match=why):
        loopback.Link(())


def test_the_peer_ends_with_the_process_that_started_it() -> None:
    code = (
        "from bench.links.loopback import Link\nimport time\n"
        "link = Link(())\nprint(link._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=TOP, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    peer = int(parent.stdout.readline())
    assert b"bench.links.peer" in Path(f"/proc/{peer}/cmdline").read_bytes()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not Path(f"/proc/{peer}").exists() or b"Z" in Path(f"/proc/{peer}/stat").read_bytes().split()[2]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the peer outlives its parent")


def test_messages_that_are_not_there() -> None:
    for point in (message("ping", "exchange"), message("burst"), message("stream", size=0)):
        with pytest.raises(DeviceError, match=r"valid: ping send|messages are 1 to"):
            messages.prepare(point)


class Silent:
    """A listener to which nobody connects."""

    looks = 0

    def settimeout(self, seconds: float) -> None:
        pass

    def accept(self) -> Any:
        self.looks += 1
        raise TimeoutError


class Ending:
    """A process that is seen to have ended at the third look."""

    looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        return None if self.looks < 3 else 1


def test_a_process_that_ends_without_connecting_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "START_SECONDS", 1e9)
    link = object.__new__(loopback.Link)
    link.listener, process = Silent(), Ending()  # type: ignore[assignment]
    assert link._accepted(process) is None  # type: ignore[arg-type]
    assert (link.listener.looks, process.looks) == (3, 3)  # type: ignore[attr-defined]


def test_a_link_that_was_refused_is_not_tried_again_for_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[int, ...]] = []

    def refuse(cpus: tuple[int, ...]) -> Any:
        tried.append(cpus)
        raise DeviceError("no loopback here")

    monkeypatch.setattr(loopback, "Link", refuse)
    monkeypatch.setattr(loopback, "_refused", {})
    for _ in range(3):
        with pytest.raises(DeviceError, match="no loopback here"):
            loopback.kept((901, 902))
    assert tried == [(901, 902)]


def test_the_two_ends_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert loopback.ends((0, 2)) == (0, 2)  # 1 and 3 are their siblings
    assert loopback.ends((2,)) == loopback.ends() == (0, 1)
