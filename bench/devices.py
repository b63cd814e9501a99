"""The list of devices behind `python -m bench devices`: what can be measured here, why the rest cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import host
from bench.errors import DeviceError
from bench.host import tree
from bench.report.units import counted

READY = "ready"


def list_devices(root: Path = tree.ROOT) -> list[dict[str, Any]]:
    """One row a device: id (what --device takes), kind, name, state, status and a note in words."""
    return [_cpu(root), *_simulated(), *_gpus(root)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as text, one line each, under 100 columns where names allow."""
    width = max(len(row["id"]) for row in rows)
    lines = [f"{row['id']:<{width}}  {row['note']}" for row in rows if row["id"]]
    return "\n".join([*lines, *(row["note"] for row in rows if not row["id"])])


def _row(id: str, kind: str, name: str, state: str, status: str, note: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "kind": kind, "name": name, "state": state, "status": status, "note": note, **more}


def _cpu(root: Path) -> dict[str, Any]:
    try:
        device = host.cpu_device() if root == tree.ROOT else host.cpu_device(root, inherited=frozenset({0}))
    except DeviceError as error:
        return _row("cpu", "cpu", "host CPU", "", "unusable", str(error))
    parts = (
        f"{device.name}, {counted(device.threads, 'thread')}",
        f"{device.facts['vector']}, {device.memory_bytes / 1e9:.1f} GB",
        f"state {device.state}",
    )
    more = {"threads": device.threads, "memory_bytes": device.memory_bytes, "facts": dict(device.facts)}
    return _row("cpu", "cpu", device.name, device.state, READY, "; ".join(parts), **more)


def _simulated() -> list[dict[str, Any]]:
    try:
        from bench.backends.simulation.truth import catalogue
    except ImportError:  # a bare GPU machine without a YAML reader: real devices are listed all the same
        return []
    return [
        _row(
            f"sim:{name}",
            "simulated",
            name,
            "simulated",
            READY,
            f"SIMULATED; {counted(truth.threads, 'SM' if truth.gpu else 'thread')}",
            threads=truth.threads,
        )
        for name, truth in catalogue().items()
    ]


def _gpus(root: Path) -> list[dict[str, Any]]:
    """NVIDIA GPUs, each opened once by a child process, and the states of those that cannot be measured."""
    from bench.gpu.described import gpu_devices

    return gpu_devices(root)
