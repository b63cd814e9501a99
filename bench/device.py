"""What a device is: its name, caches, threads and identity, known before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cache:
    """One cache level as the system reports it: name (L1, L2, L3), bytes of one instance,
    `sharers` threads of this machine that share one instance, `instances` usable by us."""

    level: str
    bytes: int
    sharers: int
    instances: int


@dataclass(frozen=True)
class Device:
    """A device that can be measured.

    id:       what `--device` takes: cpu, cuda:N, sim:NAME
    kind:     cpu | cuda | simulated
    name:     human name;  slug: folder-safe name;  state: folder-safe state (vm, quiet, ...)
    threads:  threads we may use;  precisions: {"fp64": "", "fp16": "why not"} ("" = supported)
    identity: must match before samples are combined;  facts: everything else worth printing
    """

    id: str
    kind: str
    name: str
    slug: str
    state: str
    threads: int
    memory_bytes: int
    caches: tuple[Cache, ...]
    precisions: Mapping[str, str]
    identity: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_level_cache_bytes(self) -> int:
        """Bytes of all instances of the last cache level together, 0 without caches."""
        return self.caches[-1].bytes * self.caches[-1].instances if self.caches else 0

    @property
    def unit(self) -> str:
        """What `threads` counts: thread of a CPU, SM of a GPU, measured or simulated."""
        return str(self.facts.get("unit", "thread"))

    @property
    def is_gpu(self) -> bool:
        """Whether it is measured as a GPU: always as a whole, one process a family."""
        return self.unit == "SM"
