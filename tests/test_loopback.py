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
from bench.links import loopback
from bench.planning import link_points
from bench.profile.records import Point, Precision, Sample
from bench.running.measure import Session

FP64 = Precision.of("fp64")
KIB, MIB = 1 << 10, 1 << 20
TOP = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def sampled(backend: CpuBackend, point: Point) -> Sample:
    """The point as a round measures it, quickly."""
    planned = link_points.Planned(point, 1, 0.1, 0.5, -1.0, 1e-4, 1e-3, 3)
    return Session(backend, 1, 1).sample(planned, 0)


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
    handle = loopback.prepare(message("stream")).handle
    handle.check()
    monkeypatch.setattr(loopback.zlib, "crc32", lambda data: 1)
    with pytest.raises(VerificationError, match="1024 byte arrived changed"):
        handle.check()


def test_a_peer_that_dies_in_the_middle_fails_the_point_and_the_next_one_works(backend: CpuBackend) -> None:
    prepared = loopback.prepare(message("stream", size=MIB))
    assert prepared.handle.link._process is not None
    os.kill(prepared.handle.link._process.pid, signal.SIGKILL)
    with pytest.raises(DeviceError, match=r"lost in the middle of a transfer \(it ended with signal 9"):
        prepared.handle.measure(1000, 3)
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
    with pytest.raises(DeviceError, match=r"did not connect to port \d+ .*\(it ended with exit code 1\)"):
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
            loopback.prepare(point)
