"""Memory nodes: threads of one node read memory that lies on another, or on none that has CPUs at all.

The level is named as the data flow, memory node first: "NUMA 0>1" is memory of node 0 read by the threads
of node 1. Memory is bound to its node (mbind); where a container forbids that, a thread of the node touches
it first. Where it came to lie is read back and is a fact ("placed"); less than 95 % there is a failure.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.backends import UNBOUNDED, Prepared
from bench.errors import DeviceError
from bench.host import tree
from bench.native import emit, jit, loops
from bench.native.arena import RESULT_BYTES
from bench.native.check import at, check_loop
from bench.native.emit import Form
from bench.native.isa import Isa
from bench.native.loops import Window
from bench.native.memory import Region
from bench.native.team import Team
from bench.profile.records import Point, Repetitions
from kernels.link import REMOTE_READ
from kernels.spec import ITEM_BYTES

SYS_MBIND = {"x86_64": 237, "aarch64": 235}
MPOL_BIND, MASK_BITS = 2, 1024
PLACED = 0.95
LAYOUT = re.compile(r"s(\d+)u(\d+)")
WARM_BYTES = 1 << 20


def nodes_of(level: str) -> tuple[int, int]:
    """(memory node, node of the threads) of a level's name; DeviceError for another name."""
    found = re.match(r"NUMA (\d+)>(\d+)", level)
    if not found:
        raise DeviceError(f"{level!r} is no pair of memory nodes: want e.g. 'NUMA 0>1'")
    return int(found[1]), int(found[2])


def unsupported(point: Point, facts: Mapping[str, Any]) -> str:
    """Why this pair cannot be measured here, "" if it can."""
    memory, threads = nodes_of(point.level)
    known = {int(n) for n in facts.get("memory_nodes", {})}
    if memory not in known:
        return f"this machine has no memory node {memory}; it has {sorted(known)}"
    cpus = facts.get("nodes", {}).get(str(threads), [])
    if len(cpus) < point.threads:
        return f"node {threads} has {len(cpus)} CPUs for us, {point.threads} are wanted"
    return ""


def bind(address: int, size: int, node: int) -> str:
    """Bind memory to a node before it is touched; why the system refused, "" if it did not."""
    number = SYS_MBIND.get(platform.machine())
    if number is None:
        return f"the call is not known on {platform.machine()}"
    mask = (ctypes.c_ulong * (MASK_BITS // 64))()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    where, length = ctypes.c_void_p(address), ctypes.c_ulong(size)
    failed = libc.syscall(number, where, length, MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(MASK_BITS), 0)
    return os.strerror(ctypes.get_errno()) if failed else ""


def placed(address: int, node: int, root: Path = tree.ROOT) -> float | None:
    """Share of the mapping at `address` that lies on a node; None where the kernel does not say."""
    best: dict[int, int] = {}
    for line in tree.text(root, "proc/self/numa_maps").splitlines():
        start = line.split(" ", 1)[0]
        if re.fullmatch(r"[0-9a-f]+", start) and int(start, 16) <= address:
            best = {int(n): int(count) for n, count in re.findall(r" N(\d+)=(\d+)", line)}
    return best.get(node, 0) / sum(best.values()) if best else None


def memory_on(size: int, node: int, cpus: list[int]) -> tuple[Region, str]:
    """Filled memory on a node, and how it got there; DeviceError when it did not.

    cpus: of that node, one of which touches the memory first where it cannot be bound
    """
    region = Region(size)
    reason = bind(region.address & -4096, size, node)
    if reason and not cpus:
        raise DeviceError(
            f"memory cannot be bound to node {node} ({reason}), which has no CPU to touch it first: a "
            "container needs the capability SYS_NICE for that"
        )
    before = os.sched_getaffinity(0)
    try:
        if reason:
            os.sched_setaffinity(0, {cpus[0]})
        region.view(np.float64, 0, size // 8)[:] = 1.0
    finally:
        os.sched_setaffinity(0, before)
    share = placed(region.address, node)
    if share is not None and share < PLACED:
        raise DeviceError(
            f"only {100 * share:.0f} % of the memory came to lie on node {node}: it has too little free, or "
            "the system forbids its use (cpuset)"
        )
    how = f"first touch ({reason})" if reason else "bound"
    return region, how if share is None else f"{how}, {100 * share:.0f} % there"


@dataclass
class Reader:
    """The handle: the read loop on the threads of one node over memory of another."""

    function: int
    team: Team
    region: Region
    window: Window
    form: Form
    results: list[Region]
    isa: Isa

    def check(self) -> None:
        """Compare the loop with its reference."""
        check_loop(at(self.function), REMOTE_READ, self.form, "fp64", self.isa)

    def _blocks(self, span: int, passes: int) -> list[Any]:
        starts = [self.region.address + t * self.window.part for t in range(len(self.results))]
        addresses = [(start, start, start) for start in starts]
        return loops.blocks_for(addresses, self.results, span, passes, 0, 1.0)

    def measure(self, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` blocks a thread, each over the next bytes."""
        blocks, passes = self.window.cut(amount)
        warm = self._blocks(min(WARM_BYTES // self.window.unit, self.window.most) * self.window.unit, 1)
        offsets = self.window.offsets(blocks, n)
        args = self._blocks(blocks * self.window.unit, passes)
        return loops.repetitions(self.team.run(self.function, args, (self.function, warm), offsets))

    def close(self) -> None:
        """End the threads."""
        self.team.close()


def prepare(point: Point, facts: Mapping[str, Any], isa: Isa) -> Prepared:
    """Memory on its node, threads on theirs; DeviceError where one of the two cannot be had."""
    memory, threads = nodes_of(point.level)
    found = LAYOUT.fullmatch(point.variant)
    if not found:
        raise DeviceError(f"{point.variant!r} is no layout of {point.kernel}: want e.g. 's6u2'")
    form = Form(int(found[1]), int(found[2]))
    nodes = facts["nodes"]
    region, how = memory_on(point.sizes["bytes"], memory, list(nodes.get(str(memory), [])))
    cpus = nodes[str(threads)][: point.threads]
    shape = REMOTE_READ.shape
    unit = loops.block_bytes(shape, form, isa)
    window = Window(region.bytes // point.threads // 4096 * 4096, unit)
    function = jit.address(emit.loop_ir(shape, form, isa, "fp64"), isa)
    results = [Region(RESULT_BYTES) for _ in cpus]
    reader = Reader(function, Team(cpus, isa), region, window, form, results, isa)
    per_block = unit // ITEM_BYTES["fp64"] * point.threads

    def work(amount: int) -> Any:
        blocks, passes = window.cut(amount)
        return REMOTE_READ.work(ITEM_BYTES["fp64"], {"n": blocks * passes * per_block}, point.level)

    bare = not nodes.get(str(memory))
    said: dict[str, Any] = {"memory_node": memory, "thread_node": threads, "placed": how, "cpus": cpus}
    said["memory_node_has_cpus"] = not bare
    return Prepared(point, work, 1, UNBOUNDED, facts=said, handle=reader)
