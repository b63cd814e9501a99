"""Host memory that a GPU's links are measured with: locked or not, on the memory node next to the GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import VerificationError
from bench.gpu.engine import Engine
from bench.gpu.faults import translated
from bench.host import topology, tree

TILE = 1 << 21
"""Bytes of the random tile that a pattern is made of; the first word of each tile is its number."""


CHECKED = 16 << 20
"""Bytes at each end of what arrived that are compared; all of it up to twice as much."""


@dataclass(frozen=True)
class Near:
    """The memory node next to a GPU: its number and our CPUs on it; `note` says why there are none.

    bare: memory nodes without CPUs, which are other devices' memory (a GPU's on GH200, CXL)
    """

    node: int | None
    cpus: frozenset[int]
    note: str
    bare: tuple[int, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """For the record: the GPU's node, who touched the buffers first, and nodes without CPUs."""
        how = self.note or f"touched first by CPUs of node {self.node}"
        return {"gpu_node": self.node, "buffers": how, "nodes_without_cpus": list(self.bare)}

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Inside the block this thread runs on the node, so that memory first touched lies there."""
        before = os.sched_getaffinity(0)
        try:
            if self.cpus:
                os.sched_setaffinity(0, self.cpus)
            yield
        finally:
            os.sched_setaffinity(0, before)


def nearest(pci: str, root: Path = tree.ROOT) -> Near:
    """The node that the system names for the PCI device `pci` ("0000:3b:00.0")."""
    nodes = {node.number: node for node in topology.nodes(root)}
    bare = tuple(n for n, node in sorted(nodes.items()) if node.memory_bytes and not node.cpus)
    said = tree.text(root, f"sys/bus/pci/devices/{pci.lower()}/numa_node") if pci else ""
    number = int(said) if said.lstrip("-").isdigit() else -1
    if number not in nodes:
        return Near(None, frozenset(), "the system does not tell the GPU's memory node", bare)
    ours = nodes[number].cpus & frozenset(os.sched_getaffinity(0))
    note = "" if ours else f"no CPU of ours is on the GPU's memory node {number}"
    return Near(number, ours, note, bare)


@dataclass
class Buffer:
    """Bytes on the host: `ptr` is their address, for the GPU too where they are locked; `view` NumPy's."""

    ptr: int
    view: Any
    memory: Any = None

    @property
    def bytes(self) -> int:
        """How many there are."""
        return int(self.view.nbytes)


class HostMemory:
    """The buffers of this process: a source that holds the pattern and a target, of each kind.

    They stay for the next point: locking memory takes longer than moving it. `fill` writes the source once.
    """

    def __init__(self, engine: Engine, near: Near, fill: Callable[[Any], None]) -> None:
        self.engine, self.near, self._fill = engine, near, fill
        self._kept: dict[bool, tuple[Buffer, Buffer]] = {}

    @classmethod
    def of(cls, engine: Engine, fill: Callable[[Any], None] | None = None) -> HostMemory:
        """Next to the GPU of `engine`; with the pattern unless another `fill` is given."""
        runtime = engine.cupy.cuda.runtime
        try:
            pci = str(runtime.deviceGetPCIBusId(0))
        except runtime.CUDARuntimeError:  # one with a long domain does not fit CuPy's buffer
            pci = ""
        return cls(engine, nearest(pci), fill or patterned)

    def pair(self, bytes: int, pinned: bool) -> tuple[Buffer, Buffer]:
        """Source and target of at least `bytes`; MemoryError where the host lacks them."""
        if pinned not in self._kept or self._kept[pinned][0].bytes < bytes:
            self._kept.pop(pinned, None)
            with self.near.threads():
                source, target = (self._locked(bytes) if pinned else _plain(bytes) for _ in range(2))
                self._fill(source.view)
                target.view[:] = 0
            self._kept[pinned] = source, target
        source, target = self._kept[pinned]
        return Buffer(source.ptr, source.view[:bytes], source), Buffer(
            target.ptr, target.view[:bytes], target
        )

    def _locked(self, bytes: int) -> Buffer:
        cuda = self.engine.cupy.cuda
        flags = cuda.runtime.hostAllocMapped | cuda.runtime.hostAllocPortable
        with translated(f"locking {bytes} byte of the host's memory"):
            memory = cuda.PinnedMemory(bytes, flags)
        return Buffer(int(memory.ptr), at(int(memory.ptr), bytes), memory)


def _plain(bytes: int) -> Buffer:
    view = np.empty(bytes, np.uint8)
    return Buffer(int(view.ctypes.data), view)


def at(address: int, bytes: int) -> Any:
    """Host memory as NumPy bytes."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * bytes).from_address(address))


def patterned(view: Any) -> None:
    """The pattern, from its beginning: no two tiles are alike, so that none can stand for another."""
    tile = np.random.default_rng(TILE).integers(0, 256, TILE, np.uint8)
    for number, start in enumerate(range(0, view.nbytes, TILE)):
        part = view[start : start + TILE]
        part[:] = tile[: part.nbytes]
        mark = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
        part[:8] = mark[: part.nbytes]


def compare(what: str, source: Buffer, arrived: Callable[[int, int], Any]) -> None:
    """VerificationError unless `arrived(start, stop)` is what was sent, in all or at both ends of it."""
    size = source.bytes
    whole = size <= 2 * CHECKED
    for start, stop in ((0, size),) if whole else ((0, CHECKED), (size - CHECKED, size)):
        if not np.array_equal(arrived(start, stop), source.view[start:stop]):
            raise VerificationError(f"{what}: what arrived differs from what was sent; it is not timed")


def download(engine: Engine, memory: Any) -> Callable[[int, int], Any]:
    """Parts of device memory, for `compare`."""
    return lambda start, stop: engine.download(memory.ptr + start, stop - start)[0]
