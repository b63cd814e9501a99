"""The points of a host's links: storage, page cache, loopback, memory nodes, pipelining, and team start."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from bench.device import Device
from bench.fitting.intervals import MEDIAN, memory_cap
from bench.planning import sizes
from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, Draft
from bench.profile.records import Point, Precision
from kernels.launch import RUNNERS

KIB, MIB = sizes.KIB, sizes.MIB
BYTES = Precision.of("fp64")
"""Links move bytes; the doubles that they carry are those of the pipelining experiment."""

READ = ((16 * MIB,), (4 * KIB, 64 * KIB, MIB, 16 * MIB), tuple(4**k * 4 * KIB for k in range(9)))
WRITTEN = ((), (64 * KIB, MIB, 16 * MIB), tuple(4**k * 4 * KIB for k in range(9)))
"""Requests to a file by detail, up to 256 MiB; what is written ages a disk, so less of it."""

PINGS = ((KIB,), (KIB, 16 * KIB, 256 * KIB, 4 * MIB), tuple(8**k * KIB for k in range(7)))
STREAMED = ((128 * KIB,), (16 * KIB, 128 * KIB, MIB, 16 * MIB), tuple(8**k * KIB for k in range(7)))
EXCHANGED = ((), (4 * KIB, 128 * KIB, MIB, 16 * MIB), tuple(16**k * 4 * KIB for k in range(5)))
"""Messages by detail, up to 256 MiB."""

MOST_CHUNKS = (16, 64, 64)
"""Chunks by detail: all powers of two up to it."""

BALANCES = ((100, 4 * MIB), (25, 4 * MIB), (400, MIB))
"""Percent of the time of moving that computing takes, and bytes of a pass: all passes last about as long."""

FASTER = {"storage": 1, "page cache": 4, "network": 2, "node network": 1}
"""Factor of these bytes by link: a pass lasts several milliseconds, long against the cost of a chunk."""

STEADIER_BALANCES = (0, 1, 3)
"""Balances, by detail, over the second process's link beside the slowest one: a disk has other users, too."""

OVERLAP_VISITS = (1, 2, 2)
"""Visits of a round by detail; each times parts and all numbers of chunks, and has an omega of its own."""

LINK_VISITS = (1, 2, 1)
"""Visits of a round to a transfer, by detail: links drift, and a short run has few rounds."""

SMALLEST = ((8,), (1, 4, 16, 64, 256), (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
"""Multiples of the smallest V by detail; from 1 KiB up to 1 MiB and more, as vectors and threads allow."""

LARGEST_VECTOR = 64
"""Bytes: V is split into whole vectors of every instruction set."""


def _on_host(draft: Draft, family: str) -> bool:
    """Whether the device is a real CPU or simulates the links of one; that it does not is said."""
    there = draft.device.kind == "cpu" or bool(draft.device.facts.get("links"))
    if not there:
        draft.notes.append(f"{family}: {draft.device.name} is a simulated CPU without links")
    return there


def launch(draft: Draft) -> None:
    """T0 of the thread team, on all threads and on one, and of what runs workloads; the smallest kernel."""
    if not _on_host(draft, "launch"):
        return
    for scope, threads in draft.scopes:
        if scope == "all" or draft.detail:
            point = Point("launch", "empty", "team", BYTES, scope=scope, threads=threads)
            draft.add(_short(point))
    if draft.detail:
        draft.add(_short(Point("launch", "empty", "woken", BYTES, threads=draft.device.threads)))
    for runner in RUNNERS if draft.device.kind == "cpu" else ():
        draft.add(_short(Point("launch", "empty", runner, BYTES, threads=draft.threads)))
    step = 8 * LARGEST_VECTOR * draft.threads
    for count in SMALLEST[draft.detail]:
        sized = {"bytes": max(step, KIB) * count}
        draft.add(
            _short(Point("launch", "smallest", "team", BYTES, "", "copy", threads=draft.threads, sizes=sized))
        )


def _short(point: Point) -> Planned:
    return Planned(point, 1, CAP_CURVE, MEDIAN, 0.02, 2e-3, 0.02, 5)


def links(draft: Draft) -> None:
    """Storage, page cache, TCP over loopback and to a peer that was named, every pair of memory nodes."""
    if not _on_host(draft, "link"):
        return
    _files(draft)
    messages = (("ping", "send", PINGS), ("stream", "send", STREAMED), ("stream", "exchange", EXCHANGED))
    for variant, access, grid in messages:
        for size in grid[draft.detail]:
            _link(draft, "loopback", variant, "network", access, size, 5e-3)
            if draft.device.facts.get("peer"):
                _link(draft, "tcp", variant, "node network", access, size, 5e-3)
    _nodes(draft)


def _files(draft: Draft) -> None:
    """Direct requests and cached ones, read and written; a synced write beside the direct one when full."""
    ways = (("direct", "storage"), ("buffered", "page cache"))
    for (variant, level), (access, grid) in product(ways, (("read", READ), ("write", WRITTEN))):
        for size in grid[draft.detail]:
            _link(draft, "storage", variant, level, access, size, 10e-3)
    for size in WRITTEN[2][::2] if draft.detail == 2 else ():
        _link(draft, "storage", "synced", "storage", "write", size, 10e-3)


def _link(draft: Draft, kernel: str, variant: str, level: str, access: str, size: int, target: float) -> None:
    point = Point(
        "link", kernel, variant, BYTES, level, access, scope="all", threads=1, sizes={"bytes": size}
    )
    cap, minimum = memory_cap(draft.device.state), 3 if size > 16 * MIB else 5
    visits = LINK_VISITS[draft.detail]
    budget, least = 8 * target / visits, max(2, -(-minimum // visits))
    draft.add(Planned(point, 1, cap, MEDIAN, 0.03, target, budget, least, visits=visits))


def _nodes(draft: Draft) -> None:
    """Threads of every node over memory of every node, those without CPUs included; one node: a note."""
    facts = draft.device.facts
    memory, cpus = facts.get("memory_nodes", {}), facts.get("nodes", {})
    if len(memory) < 2:
        draft.notes.append("link between memory nodes (NUMA): this machine has one node")
        return
    size = sizes.array_bytes(draft.device, 1, draft.memory)
    for node, (threads, own) in product(sorted(memory, key=int), sorted(cpus.items())):
        count = min(len(own), draft.threads)
        bare = " (no CPUs)" if not cpus.get(node) else ""
        point = Point("link", "remote-read", "s6u2", BYTES, f"NUMA {node}>{threads}{bare}", "read")
        point = replace(point, scope="socket", threads=count, sizes={"bytes": size})
        if draft.detail or node != threads:
            cap = memory_cap(draft.device.state)
            draft.add(Planned(point, 1, cap, MEDIAN, 0.03, 8e-3, 0.05, 5, 16.0 * MIB))


def overlap(draft: Draft) -> None:
    """Chunks over the slowest link at hand, computing shorter, as long and longer than moving.

    Beside it the link to another process of ours, which no other tenant shares, and that to a peer on another
    node. A simulated pipeline is priced by its parts, each a point of its own.
    """
    if not _on_host(draft, "overlap"):
        return
    if simulated := draft.device.facts.get("pipelined"):
        _simulated(draft, str(simulated))
        return
    level = slowest(draft.device)
    chosen = [(level, b) for b in BALANCES[: 1 if draft.detail == 0 else None]]
    if level != "network":
        chosen += [("network", b) for b in BALANCES[: STEADIER_BALANCES[draft.detail]]]
    if draft.device.facts.get("peer"):
        chosen += [("node network", b) for b in BALANCES[: 1 if draft.detail == 0 else None]]
    for link, (percent, size) in chosen:
        sized = {"bytes": FASTER[link] * size, "percent": percent, "chunks": MOST_CHUNKS[draft.detail]}
        point = Point("overlap", "pipeline", "swept", BYTES, link, "read", threads=draft.threads, sizes=sized)
        visits = OVERLAP_VISITS[draft.detail]
        draft.add(Planned(point, 1, CAP_CURVE, MEDIAN, 0.03, 50e-3, 0.15, 3, visits=visits))


def _simulated(draft: Draft, level: str) -> None:
    """Parts alone and every number of chunks as points."""
    for percent, size in BALANCES[: 1 if draft.detail == 0 else None]:
        shared = {"bytes": FASTER.get(level, 1) * size, "percent": percent}
        point = Point("overlap", "pipeline", "", BYTES, level, "read", threads=draft.threads, sizes=shared)
        for variant in ("copy alone", "compute alone"):
            draft.add(_passes(replace(point, variant=variant)))
        for power in range(MOST_CHUNKS[draft.detail].bit_length()):
            sized = {**shared, "chunks": 1 << power}
            draft.add(_passes(replace(point, variant="pipelined", sizes=sized)))


def _passes(point: Point) -> Planned:
    return Planned(point, 1, CAP_CURVE, MEDIAN, 0.03, 10e-3, 0.06, 3)


def slowest(device: Device) -> str:
    """The slowest link at hand: storage; the page cache where storage cannot be told apart; else loopback."""
    scratch = device.facts.get("scratch")
    if scratch is None or not scratch.get("filesystem"):
        return "network"
    return "page cache" if scratch["direct"] else "storage"
