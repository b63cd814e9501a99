"""The host CPU as a device: what may be used, what it is, and which of it fixes a measurement."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.device import Device
from bench.host import cgroup, processor, state, tenancy, topology, tree


def cpu_device(
    root: Path = tree.ROOT,
    inherited: frozenset[int] | None = None,
    environ: Mapping[str, str] = os.environ,
    machine: str = "",
) -> Device:
    """The host CPU as this process may use it: never more than affinity, cpuset and quota allow."""
    limit = cgroup.limits(root)
    allowed = topology.usable(topology.affinity() if inherited is None else inherited, limit.cpus)
    cores = topology.one_per_core(root, allowed)
    cpus = cores[: _threads(len(cores), limit.cpu_quota)]
    flags, name = processor.flags(root, cpus), processor.model_name(root, cpus[0])
    facts = _facts(root, allowed, cpus, limit) | _surroundings(root, flags, environ)
    return Device(
        id="cpu",
        kind="cpu",
        name=name,
        slug=processor.slug(name, len(cpus)),
        state=_state(root, allowed, limit, facts),
        threads=len(cpus),
        memory_bytes=_memory(root, cpus, limit),
        caches=topology.caches(root, cpus),
        precisions=processor.precisions(flags, machine or platform.machine()),
        identity=_identity(root, name, cpus, flags),
        facts=facts,
    )


def _threads(cores: int, quota: float | None) -> int:
    """Whole CPUs of the quota: a thread beyond them would be stopped in every period."""
    return cores if quota is None else max(1, min(cores, int(quota)))


def _identity(root: Path, name: str, cpus: tuple[int, ...], flags: frozenset[str]) -> dict[str, Any]:
    """What must match before samples are combined.

    The kernel and the microcode are to a CPU what the driver is to a GPU: mitigations, page
    sizes and scheduling come with them. Memory is rounded to GiB, since the kernel's own
    share changes from boot to boot; governor, load and quota are conditions, not identity.
    """
    return {
        "device": name,
        **processor.identity(root, cpus[0]),
        "flags_hash": processor.flags_hash(flags),
        "threads": len(cpus),
        "memory_gib": round(topology.local_memory(root, cpus) / (1 << 30)),
        "kernel": tree.text(root, "proc/sys/kernel/osrelease"),
    }


def _facts(
    root: Path, allowed: frozenset[int], cpus: tuple[int, ...], limit: cgroup.Limits
) -> dict[str, Any]:
    flags = processor.flags(root, cpus)
    used = frozenset().union(*(topology.siblings(root, cpu) for cpu in cpus)) & allowed
    homes = [n for n in topology.nodes(root) if n.cpus & frozenset(cpus)]
    return {
        "cpus": list(cpus),
        "smt_siblings_left_out": sorted(used - frozenset(cpus)),
        "nodes": {str(n.number): [c for c in cpus if c in n.cpus] for n in homes},
        "skipped_nodes": list(topology.skipped_nodes(root)),
        "memory_nodes": {str(n.number): n.memory_bytes for n in topology.nodes(root) if n.memory_bytes},
        "vector": processor.vector_level(flags),
        "isa": sorted(flags & _ISA),
        "governor": state.governor(root, cpus),
        "max_clock_hz": state.max_clock_hz(root, cpus),
        "least_max_clock_hz": state.least_max_clock_hz(root, cpus),
        "nominal_clock_hz": processor.nominal_clock(root, cpus[0]),
        "huge_pages": _bracketed(tree.text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        "cpu_quota": limit.cpu_quota,
        "memory_limit_bytes": limit.memory_bytes,
        "threads_limited_by": _thread_limit(root, allowed, cpus, limit),
        "memory_limited_by": _memory_limit(root, cpus, limit),
    }


_ISA = frozenset(
    {"sse2", "avx", "avx2", "fma", "avx512f", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx_vnni"}
    | {"amx_tile", "amx_fp16", "amx_bf16", "amx_int8", "f16c"}
    | {"asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16"}
)


def _surroundings(root: Path, flags: frozenset[str], environ: Mapping[str, str]) -> dict[str, str]:
    return {
        "virtual_machine": tenancy.virtual_machine(root, flags),
        "container": tenancy.container(root, environ),
    }


def _bracketed(words: str) -> str:
    """The chosen word of a kernel list such as always [madvise] never."""
    found = re.search(r"\[(\w+)\]", words)
    return found.group(1) if found else words


def _thread_limit(root: Path, allowed: frozenset[int], cpus: tuple[int, ...], limit: cgroup.Limits) -> str:
    """Why fewer threads than the machine has cores are used, "" when all are."""
    cores, online = (
        len(topology.one_per_core(root, allowed)),
        tree.cpus(root, "sys/devices/system/cpu/online"),
    )
    quota = limit.cpu_quota
    if quota is not None and quota < 1:
        return f"the container's CPU quota is {quota:g} CPUs: even one thread is throttled, so rates read low"
    if quota is not None and len(cpus) < cores:
        return f"the container's CPU quota of {quota:g} CPUs limits threads to {len(cpus)} of {cores} cores"
    if online - allowed:
        return f"affinity or cpuset allows CPUs {tree.as_list(allowed)} of {tree.as_list(online)}"
    return ""


def _memory_limit(root: Path, cpus: tuple[int, ...], limit: cgroup.Limits) -> str:
    if limit.memory_bytes is None or limit.memory_bytes >= topology.local_memory(root, cpus):
        return ""
    return f"the container's memory limit is {limit.memory_bytes / 1e9:.1f} GB"


def _memory(root: Path, cpus: tuple[int, ...], limit: cgroup.Limits) -> int:
    near = topology.local_memory(root, cpus)
    return near if limit.memory_bytes is None else min(near or limit.memory_bytes, limit.memory_bytes)


def _state(root: Path, allowed: frozenset[int], limit: cgroup.Limits, facts: Mapping[str, Any]) -> str:
    """Folder-safe words: vm, container, quota, shared; with none of them quiet or busy."""
    words = {
        "vm": facts["virtual_machine"],
        "container": facts["container"],
        "quota": limit.cpu_quota is not None,
        "shared": tree.cpus(root, "sys/devices/system/cpu/online") - allowed,
    }
    standing = "-".join(word for word, holds in words.items() if holds)
    return standing or ("busy" if state.running(root) > 0.05 * len(allowed) else "quiet")
