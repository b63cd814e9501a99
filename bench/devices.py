"""The list of devices behind `python -m bench devices`: what can be measured here, and what cannot yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import host
from bench.errors import DeviceError
from bench.host import tree

READY = "ready"
NOT_YET = "found but not yet measured by this version"
NO_DRIVER = "no NVIDIA driver found"
SCOPE = "this version measures CPUs and simulated devices; CUDA comes next"


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
        f"{device.name}, {device.threads} thread{'s' if device.threads > 1 else ''}",
        f"{device.facts['vector']}, {device.memory_bytes / 1e9:.1f} GB",
        f"state {device.state}",
    )
    more = {"threads": device.threads, "memory_bytes": device.memory_bytes, "facts": dict(device.facts)}
    return _row("cpu", "cpu", device.name, device.state, READY, "; ".join(parts), **more)


def _simulated() -> list[dict[str, Any]]:
    from bench.backends.simulation.truth import catalogue

    return [
        _row(
            f"sim:{name}",
            "simulated",
            name,
            "simulated",
            READY,
            f"SIMULATED; {truth.threads} thread{'s' if truth.threads > 1 else ''}",
            threads=truth.threads,
        )
        for name, truth in catalogue().items()
    ]


def _gpus(root: Path) -> list[dict[str, Any]]:
    """NVIDIA GPUs by NVML where its Python package is there, else by the driver's own files."""
    names = (_by_nvml() if root == tree.ROOT else []) or _by_driver_files(root)
    if not names:
        return [_row("", "cuda", "", "", "absent", f"GPU: {NO_DRIVER} ({SCOPE})")]
    return [
        _row(f"cuda:{n}", "cuda", name, "", "not yet measured", f"{name}: {NOT_YET} ({SCOPE})")
        for n, name in enumerate(names)
    ]


def _by_nvml() -> list[str]:
    try:
        pynvml: Any = import_module("pynvml")
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(n)) for n in range(count)]
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return []
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def _by_driver_files(root: Path) -> list[str]:
    folder = "proc/driver/nvidia/gpus"
    try:
        cards = sorted(entry.name for entry in (root / folder).iterdir())
    except OSError:
        return []
    texts = [tree.text(root, f"{folder}/{card}/information") for card in cards]
    models = [re.search(r"(?m)^Model:\s*(.+?)\s*$", text) for text in texts]
    return [found.group(1) if found else "NVIDIA GPU" for found in models]
