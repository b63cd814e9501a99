"""TCP to another node: the peer that serves it, who is let in, what goes wrong, and a run over it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, ResourceError, UsageError
from bench.links import messages, node
from bench.links.node import Address
from bench.links.peer import HEADER, MOST_BYTES
from bench.planning.plan import plan
from bench.profile.records import Point, Precision
from tests.fake_device import FAKE, FakeBackend
from tests.sampling import sampled

TOP = Path(__file__).resolve().parent.parent
TOKEN = "00112233445566ff"
FP64 = Precision.of("fp64")


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """A peer in a process of its own on this machine, and what a run is given to reach it."""
    words = [sys.executable, "-m", "bench", "peer", "--listen", "127.0.0.1", "--port", "0"]
    peer = subprocess.Popen(words, cwd=TOP, stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    told = peer.stdout.readline().split("--peer ")[1].strip()
    address = node.parsed(told)
    yield f"{address.token}@127.0.0.1:{address.port}"
    peer.kill()
    peer.wait()
    peer.stdout.close()


@pytest.fixture
def named(served: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(node, "_nodes", {})
    monkeypatch.setenv(node.VARIABLE, served)
    yield served
    for link in node._nodes.values():
        link.close()


def message(variant: str, access: str = "send", size: int = 1 << 10) -> Point:
    sizes = {"bytes": size}
    return Point("link", "tcp", variant, FP64, "node network", access, sizes=sizes)


@pytest.mark.parametrize(
    ("variant", "access", "size"),
    [("ping", "send", 1), ("stream", "send", 300_000), ("stream", "exchange", 300_000)],
)
def test_messages_arrive_at_the_other_node(named: str, variant: str, access: str, size: int) -> None:
    found = sampled(CpuBackend(), message(variant, access, size))
    assert found.status == "ok", found.reason
    moved = found.facts["amount"] * size
    assert (found.bytes_written, found.bytes_read) == (moved, moved if access == "exchange" else 0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"{TOKEN}@node7:19000", Address(TOKEN, "node7", 19000)),
        (f"{TOKEN}@node7", Address(TOKEN, "node7", node.PORT)),
        (f"{TOKEN}@[fe80::1]:19000", Address(TOKEN, "fe80::1", 19000)),
        (f"{TOKEN}@10.0.0.7:1", Address(TOKEN, "10.0.0.7", 1)),
    ],
)
def test_where_a_peer_is(text: str, address: Address) -> None:
    assert node.parsed(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "node7:19000", "xyz@node7", f"{TOKEN}@", f"{TOKEN}@node7:0", f"{TOKEN}@node7:70000", f"{TOKEN}@a:b"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not TOKEN@HOST:PORT: run `python3 -m bench peer`"):
        node.parsed(text)


def test_without_the_token_nobody_is_let_in(served: str) -> None:
    address = node.parsed(served)
    with pytest.raises(DeviceError, match="does not let us in: give the --peer that it prints now"):
        node.Node(Address(TOKEN, address.host, address.port), ())
    node.Node(address, ()).close()


def test_a_peer_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(DeviceError, match=r"no peer answers at 127.0.0.1:\d+ \(Connection refused\): start"):
        node.Node(Address(TOKEN, "127.0.0.1", port), ())


def test_a_point_without_a_peer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_nodes", {})
    monkeypatch.delenv(node.VARIABLE, raising=False)
    with pytest.raises(DeviceError, match="no peer on another node was named: give --peer"):
        messages.prepare(message("ping"))


def test_a_peer_that_is_lost_fails_the_point(named: str) -> None:
    prepared = messages.prepare(message("stream"))
    link = prepared.handle.link
    link.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(DeviceError, match="was lost in the middle of a transfer"):
        prepared.handle.measure(10, 1)
    assert node.kept(link.cpus) is not link, "the next point connects anew"


def test_a_request_for_more_than_there_may_be_ends_the_connection(named: str) -> None:
    link = node.kept(())
    link.socket.sendall(HEADER.pack(b"P", MOST_BYTES + 1, 1))
    assert link.socket.recv(1) == b""


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ResourceError, match=f"port {port} of 127.0.0.1 cannot be opened .*name another"):
            node.serve("127.0.0.1", port, print)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_the_verb_tells_what_the_other_node_is_given(
    flags: tuple[str, ...], call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(listen: str, port: int, told: Any) -> None:
        told(f"{TOKEN}@{listen}:{port}")
        raise KeyboardInterrupt

    monkeypatch.setattr(node, "serve", serve)
    code, out, _ = call("peer", "--listen", "10.0.0.7", "--port", "19000", *flags)
    assert code == 130
    here = f"{TOKEN}@10.0.0.7:19000"
    assert json.loads(out) == {"peer": here} if flags else f"run --device cpu --peer {here}\n" in out


def test_serving_in_this_process() -> None:
    heard: list[str] = []
    ready = threading.Event()

    def told(here: str) -> None:
        heard.append(here)
        ready.set()

    threading.Thread(target=node.serve, args=("127.0.0.1", 0, told, TOKEN), daemon=True).start()
    assert ready.wait(10)
    port = int(heard[0].rsplit(":", 1)[1])
    assert heard[0] == f"{TOKEN}@{socket.gethostname()}:{port}"
    link = node.Node(Address(TOKEN, "127.0.0.1", port), ())
    answer = bytearray(3)
    with link.guarded():
        link.ask(b"P", 3)
        link.socket.sendall(b"abc")
        link.owed = 3
        link.take(memoryview(answer))
    link.close()
    assert bytes(answer) == b"abc"


def test_only_the_host_has_a_peer(call: Any, tmp_path: Path, served: str) -> None:
    words = ["run", "--device", "sim:small-cpu", "--results", tmp_path, "--peer", served]
    code, _, said = call(*words)
    assert code == 2
    assert "--peer is a link of the host, not of sim:small-cpu: give --device cpu" in said


def test_a_named_peer_is_planned_for_messages_and_for_pipelining() -> None:
    with_peer = replace(FAKE, facts={"peer": True})
    for device, known in ((FAKE, set()), (with_peer, {"tcp", "pipeline"})):
        drafted = plan(device, FakeBackend().variants, "quick", families=["link", "overlap"])
        assert {p.point.kernel for p in drafted.points if p.point.level == "node network"} == known


def test_chunks_come_from_the_other_node(named: str) -> None:
    sizes = {"bytes": 1 << 20, "percent": 100, "chunks": 4}
    point = Point("overlap", "pipeline", "pipelined", FP64, "node network", "read", threads=2, sizes=sizes)
    found = sampled(CpuBackend(), point)
    assert found.status == "ok", found.reason
    assert found.bytes_read == 1 << 20
    assert found.facts["ratio"] > 0


@pytest.mark.slow
def test_a_run_keeps_neither_token_nor_name_of_the_other_node(tmp_path: Path, served: str) -> None:
    words = [sys.executable, "-m", "bench", "run", "--device", "cpu", "--minutes", "0.3", "--quiet"]
    words += ["--families", "link", "--results", str(tmp_path), "--peer", served]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = next(tmp_path.glob("*/*/samples.jsonl")).read_text()
    samples = [record for record in map(json.loads, text.splitlines()) if "point" in record]
    found = [s for s in samples if s["point"]["kernel"] == "tcp"]
    assert found
    assert all(s["status"] == "ok" and s["point"]["level"] == "node network" for s in found)
    assert "node network" in done.stdout
    assert served.split("@")[0] not in text
    assert json.loads(text.splitlines()[0])["provenance"]["command"].endswith("--peer PEER")
