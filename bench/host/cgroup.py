"""Limits that a container or batch system puts on us through control groups, version 1 and 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.host import tree

_UNLIMITED = 1 << 60
"""Version 1 writes "no memory limit" as a number close to 2^63."""


@dataclass(frozen=True)
class Limits:
    """What the control groups allow; None or empty where they set nothing.

    cpu_quota: CPUs' worth of time, may be a fraction;  memory_bytes: hard limit
    cpus: CPU numbers;  throttled_periods, throttled_seconds: counters since the group began
    """

    cpu_quota: float | None = None
    memory_bytes: int | None = None
    cpus: frozenset[int] = frozenset()
    throttled_periods: int | None = None
    throttled_seconds: float | None = None


def limits(root: Path) -> Limits:
    """The tightest limits on the way from our control group up to the root of the hierarchy."""
    cpu, memory = list(_folders(root, "cpu")), list(_folders(root, "memory"))
    quotas = [q for folder in cpu if (q := _quota(root, folder)) is not None]
    bounds = [b for folder in memory if (b := _memory(root, folder)) is not None]
    stat = next((s for folder in cpu if (s := tree.text(root, f"{folder}/cpu.stat"))), "")
    return Limits(min(quotas, default=None), min(bounds, default=None), _cpus(root), *_throttled(stat))


def paths(root: Path) -> dict[str, str]:
    """Our group's path by controller name; the version-2 path stands under ""."""
    lines = [line.split(":", 2) for line in tree.text(root, "proc/self/cgroup").splitlines()]
    return {name: parts[2] for parts in lines if len(parts) == 3 for name in parts[1].split(",")}


def _folders(root: Path, controller: str) -> Iterator[str]:
    """Folders that may hold the controller's files: our group first, then its parents."""
    ours = paths(root)
    for name, inside, mount in _mounts(root):
        if name not in ("", controller) or name not in ours:
            continue
        # A container sees its own part of the hierarchy: the mount's root is cut off the path.
        path = ours[name]
        if inside != "/" and (path + "/").startswith(inside + "/"):
            path = path[len(inside) :]
        parts = [p for p in path.split("/") if p and p != ".."]
        for n in range(len(parts), -1, -1):
            folder = "/".join((mount.strip("/"), *parts[:n]))
            if (root / folder).is_dir():
                yield folder


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """(controller or "", root inside the hierarchy, mount point) of every mounted hierarchy."""
    for line in tree.text(root, "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            yield "", fields[3], fields[4]
        elif kind[0] == "cgroup":
            for option in kind[-1].split(","):
                yield option, fields[3], fields[4]


def _quota(root: Path, folder: str) -> float | None:
    """CPUs' worth of time of one group: cpu.max of version 2 or the cfs files of version 1."""
    if found := re.fullmatch(r"(\d+) (\d+)", tree.text(root, f"{folder}/cpu.max")):
        return int(found.group(1)) / int(found.group(2))
    quota = tree.integer(root, f"{folder}/cpu.cfs_quota_us")
    period = tree.integer(root, f"{folder}/cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _memory(root: Path, folder: str) -> int | None:
    bounds = [
        tree.integer(root, f"{folder}/{n}") for n in ("memory.max", "memory.high", "memory.limit_in_bytes")
    ]
    return min((b for b in bounds if b is not None and 0 < b < _UNLIMITED), default=None)


def _cpus(root: Path) -> frozenset[int]:
    """CPUs of the nearest group that names any."""
    for folder in _folders(root, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if found := tree.cpus(root, f"{folder}/{name}"):
                return found
    return frozenset()


def _throttled(stat: str) -> tuple[int | None, float | None]:
    """Throttled periods and seconds out of cpu.stat (microseconds in v2, nanoseconds in v1)."""
    values = {k: int(v) for k, v in re.findall(r"(?m)^(\w+) (\d+)$", stat)}
    if "throttled_usec" in values:
        return values.get("nr_throttled"), values["throttled_usec"] / 1e6
    if "throttled_time" in values:
        return values.get("nr_throttled"), values["throttled_time"] / 1e9
    return None, None
