"""Which CPUs, caches and memory nodes this process may use: affinity, cpuset, siblings, NUMA."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.device import Cache
from bench.errors import DeviceError
from bench.host import tree

_CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Node:
    """A memory node: its number, the CPUs on it and its memory in bytes."""

    number: int
    cpus: frozenset[int]
    memory_bytes: int


def affinity() -> frozenset[int]:
    """CPUs that this process inherited; DeviceError where the system has no such call."""
    if not hasattr(os, "sched_getaffinity"):
        raise DeviceError(
            "the CPU is measured on Linux only: threads cannot be pinned here; try --device sim:NAME"
        )
    return frozenset(os.sched_getaffinity(0))


def usable(inherited: frozenset[int], cpuset: frozenset[int]) -> frozenset[int]:
    """The inherited CPUs inside the cpuset; the inherited ones where the two do not meet."""
    return inherited & cpuset or inherited


def siblings(root: Path, cpu: int) -> frozenset[int]:
    """Hardware threads of the physical core of `cpu`, itself alone where nothing is known."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if found := tree.cpus(root, f"{_CPU}/cpu{cpu}/topology/{name}"):
            return found | {cpu}
    return frozenset({cpu})


def one_per_core(root: Path, cpus: frozenset[int]) -> tuple[int, ...]:
    """The lowest usable hardware thread of every physical core, in node order.

    Two threads on one core share its vector units, so that more of them cannot raise pi and
    make every sample depend on how the two interleave; the siblings left out are a fact.
    """
    home = {cpu: node.number for node in nodes(root) for cpu in node.cpus}
    firsts = {min(siblings(root, cpu) & cpus) for cpu in cpus}
    return tuple(sorted(firsts, key=lambda cpu: (home.get(cpu, 0), cpu)))


def nodes(root: Path) -> tuple[Node, ...]:
    """All memory nodes in order, those without CPUs (GPU or CXL memory) included."""
    return tuple(
        Node(
            number,
            tree.cpus(root, f"{path}/cpulist"),
            tree.kilobytes(root, f"{path}/meminfo").get("MemTotal", 0),
        )
        for number, path in tree.numbered(root, "sys/devices/system/node", "node")
    )


def skipped_nodes(root: Path) -> tuple[str, ...]:
    """One sentence for each memory node that has no CPU and therefore is not used."""
    return tuple(
        f"memory node {n.number} ({n.memory_bytes / 1e9:.0f} GB) has no CPU (GPU or CXL memory): not used"
        for n in nodes(root)
        if not n.cpus
    )


def local_memory(root: Path, cpus: tuple[int, ...]) -> int:
    """Bytes on the nodes of `cpus`, where first touch puts data; all memory where none is known."""
    total = tree.kilobytes(root, "proc/meminfo").get("MemTotal", 0)
    known = nodes(root)
    # Memory plugged in later (virtual machines) is missing from the nodes: then they say nothing.
    if sum(n.memory_bytes for n in known) < 0.9 * total:
        return total
    return sum(n.memory_bytes for n in known if n.cpus & frozenset(cpus)) or total


def caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    """Data caches that the threads on `cpus` reach, by level; empty where none are reported.

    sharers counts our threads only. Where instances differ in size (hybrid or stacked-cache
    parts) a private level keeps the smallest, so that data meant to fit do, and the last
    level the largest, so that data meant for DRAM do not.
    """
    found: dict[int, list[tuple[frozenset[int], int]]] = {}
    for cpu in cpus:
        for level, shared, size in _of_cpu(root, cpu):
            found.setdefault(level, []).append((shared & frozenset(cpus) | {cpu}, size))
    last = max(found, default=0)
    return tuple(_level(level, found[level], level == last) for level in sorted(found))


def _of_cpu(root: Path, cpu: int) -> list[tuple[int, frozenset[int], int]]:
    entries = []
    for _, path in tree.numbered(root, f"{_CPU}/cpu{cpu}/cache", "index"):
        level, size = tree.integer(root, f"{path}/level"), tree.size(root, f"{path}/size")
        if level and size and tree.text(root, f"{path}/type") != "Instruction":
            entries.append((level, tree.cpus(root, f"{path}/shared_cpu_list"), size))
    return entries


def _level(level: int, entries: list[tuple[frozenset[int], int]], last: bool) -> Cache:
    instances = _merged([shared for shared, _ in entries])
    size = (max if last else min)(size for _, size in entries)
    return Cache(f"L{level}", size, max(map(len, instances)), len(instances))


def _merged(sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """Sets that overlap are one instance: some systems list its sharers unevenly."""
    out: list[frozenset[int]] = []
    for new in dict.fromkeys(sets):
        touching = [s for s in out if s & new]
        out = [s for s in out if not s & new] + [new.union(*touching)]
    return out
