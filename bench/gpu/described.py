"""A GPU as a device: what it is and in which state, by NVML and by CuPy in a child or in this process."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.device import Cache, Device
from bench.errors import DeviceError
from bench.gpu import on_chip, probe, states
from bench.gpu.nvml import Board, Nvml, NvmlAbsent, connect
from bench.gpu.states import State, state
from bench.gpu.survey import Gpu, Survey, chosen, environment, survey
from bench.gpu.visible import PINNED, VARIABLE, Visible, child_environment, of_board, together
from bench.host import tree

NEEDS = {
    **dict.fromkeys(("fp64", "fp32", "fp16", "int32", "int8"), 0),
    **dict.fromkeys(("tf32", "bf16"), 80),
    "fp8": 89,
    "fp4": 100,
}
"""Compute capability x 10 from which a precision exists."""

CAPPED = 0.99
"""Share of the default power limit below which a GPU counts as capped."""

PASSED_ON = ("ecc", "persistence", "compute_mode", "power_limit_w", "power_limit_default_w", "unsupported")
"""Values of NVML's reading that a device's facts keep as they are."""

SIZES = (
    "compute_capability",
    "sm_count",
    "l2_bytes",
    "max_threads_per_sm",
    "max_threads_per_block",
    "max_blocks_per_sm",
    "shared_per_sm",
    "shared_per_block",
    "registers_per_sm",
    "warp_size",
    "free_bytes",
    "integrated",
)
"""Values of the probe's report that a device's facts keep as they are; sizes in bytes."""


def gpu_devices(root: Path = tree.ROOT, environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """Rows for `bench devices`: one a GPU, slice or state; each GPU is opened once, by a child."""
    found = survey(root, environ)
    answers = probe.ask([child_environment(gpu.visible) for gpu in found.gpus])
    rows = [_gpu_row(gpu, said, found) for gpu, said in zip(found.gpus, answers, strict=True)]
    return [*rows, *(_row("", "", "absent", f"GPU: {s.sentence}") for s in found.states)]


def usable(root: Path = tree.ROOT, environ: Mapping[str, str] = os.environ) -> Device | None:
    """The first GPU that can be measured, None where there is none: for --device auto."""
    found = survey(root, environ)
    for gpu in found.gpus:
        try:
            return _probed(gpu, found)
        except DeviceError:
            continue
    return None


def cuda_device(id: str, root: Path = tree.ROOT, environ: Mapping[str, str] = os.environ) -> Device:
    """The GPU of that id, described without a context in this process; DeviceError with its state."""
    found = survey(root, environ)
    return _probed(chosen(id, found), found)


def _probed(gpu: Gpu, found: Survey) -> Device:
    (said,) = probe.ask([child_environment(gpu.visible)])
    if trouble := trouble_of(gpu, said):
        raise trouble.error(gpu.visible.id)
    device = describe(gpu, said, found.driver, found.note)
    return replace(device, facts={**device.facts, "gpus": _beside(gpu.visible, found)})


def _beside(visible: Visible, found: Survey) -> list[int]:
    """Numbers of the GPUs that can do something together with this one, its own among them."""
    whole = [gpu.visible.number for gpu in found.gpus if not gpu.visible.profile]
    return [visible.number] if visible.profile else whole


def _gpu_row(gpu: Gpu, said: Mapping[str, Any], found: Survey) -> dict[str, Any]:
    visible = gpu.visible
    if trouble := trouble_of(gpu, said):
        return _row(visible.id, visible.name, "unusable", f"{visible.name}: {trouble.sentence}")
    device = describe(gpu, said, found.driver, found.note)
    capability = device.facts["compute_capability"] / 10
    parts = (
        f"{device.name}, {device.threads} SMs, {device.memory_bytes / 1e9:.1f} GB",
        f"capability {capability:.1f}",
        f"state {device.state}",
        *device.facts["notes"],
    )
    more = {"threads": device.threads, "memory_bytes": device.memory_bytes, "facts": dict(device.facts)}
    return _row(visible.id, device.name, "ready", "; ".join(parts), device.state, **more)


def _row(id: str, name: str, status: str, note: str, state: str = "", **more: Any) -> dict[str, Any]:
    return {"id": id, "kind": "cuda", "name": name, "state": state, "status": status, "note": note, **more}


def trouble_of(gpu: Gpu, said: Mapping[str, Any]) -> State | None:
    """The state a probe reports, or that it opened another GPU than the one meant; None if all is well."""
    if "state" not in said:
        if same(gpu.visible, said):
            return None
        wanted = f"{gpu.visible.name} ({gpu.visible.pci or gpu.visible.token})"
        return state("mismatch", found=f"{said['name']} ({said['pci']})", wanted=wanted)
    if said["state"] == "busy" and gpu.reading.get("compute_mode") == "prohibited":
        return state("prohibited")
    if gpu.visible.uuid and said["state"] in ("no-driver", "no-device"):  # NVML sees it all the same
        return state("no-libcuda" if said["state"] == "no-driver" else "no-permission")
    return states.told(said)


def same(visible: Visible, said: Mapping[str, Any]) -> bool:
    """Whether CUDA's ordinal 0 is the GPU meant: by as much of its UUID as CuPy hands on, else by PCI bus id.

    CuPy cuts the UUID at its first zero byte; of a slice CUDA may name the board's or the slice's.
    """
    start = str(said.get("uuid_start") or "")
    whole = [u for u in (visible.uuid, visible.parent_uuid) if u]
    if len(start) >= 8 and whole:
        return any(re.sub(r"^(GPU|MIG)-|-", "", uuid).lower().startswith(start) for uuid in whole)
    pci = str(said.get("pci") or "")
    return not (pci and visible.pci) or pci == visible.pci


# a device's fields


def describe(gpu: Gpu, said: Mapping[str, Any], driver: str = "", note: str = "") -> Device:
    """A GPU as a device, from NVML's reading and the report of a probe."""
    visible, sms, l2 = gpu.visible, int(said["sm_count"]), int(said["l2_bytes"] or 0)
    name = str(said["name"] or visible.name)
    if visible.profile and "MIG" not in name:
        name = f"{name} MIG {visible.profile}"
    return Device(
        id=visible.id,
        kind="cuda",
        name=name,
        slug=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "gpu",
        state=_state(visible, gpu.reading),
        threads=sms,
        memory_bytes=int(said["memory_bytes"]),
        caches=_caches(int(said["compute_capability"]), l2, sms),
        precisions=_precisions(int(said["compute_capability"])),
        identity=_identity(gpu, said, name, driver),
        facts=_facts(gpu, said, driver, note),
    )


def _caches(capability: int, l2: int, sms: int) -> tuple[Cache, ...]:
    """L1 of each SM, as large as without shared memory, and L2; what is not known is left out."""
    l1 = on_chip.l1_bytes(capability)
    known = (Cache("L1", l1, 1, sms), Cache("L2", l2, sms, 1))
    return tuple(cache for cache in known if cache.bytes) if l2 else ()


def _precisions(capability: int) -> dict[str, str]:
    needs = {name: f"needs compute capability {least / 10:.1f}" for name, least in NEEDS.items()}
    return {name: "" if capability >= NEEDS[name] else why for name, why in needs.items()}


def _state(visible: Visible, reading: Mapping[str, Any]) -> str:
    limit, usual = reading.get("power_limit_w"), reading.get("power_limit_default_w")
    words = {
        "mig": bool(visible.profile),
        "shared": bool(reading.get("processes")),
        "capped": bool(limit and usual and limit < CAPPED * usual),
    }
    return "-".join(word for word, holds in words.items() if holds) or "quiet"


def _identity(gpu: Gpu, said: Mapping[str, Any], name: str, driver: str) -> dict[str, Any]:
    """What must match before samples are combined; the UUID only as a hash."""
    uuid = gpu.visible.uuid
    return {
        "device": name,
        "vendor": "NVIDIA",
        "cc": f"{said['compute_capability'] / 10:.1f}",
        "sms": said["sm_count"],
        "memory_gib": round(said["memory_bytes"] / 2**30),
        "driver": driver or states.version(said["driver"]),
        "cuda": states.version(said["runtime"]),
        "cupy": said["cupy"],
        "ecc": gpu.reading.get("ecc"),
        "mig": gpu.visible.profile,
        "uuid": hashlib.sha256(uuid.encode()).hexdigest()[:12] if uuid else "",
    }


def _facts(gpu: Gpu, said: Mapping[str, Any], driver: str, note: str) -> dict[str, Any]:
    visible, reading = gpu.visible, gpu.reading
    notes = [text for text in (visible.note, note, _platform(said)) if text]
    return {
        "unit": "SM",
        **{name: said.get(name) for name in SIZES},
        **{name: reading.get(name) for name in PASSED_ON},
        "memory_bus_bits": _bus(visible, reading, said),
        "max_sm_clock_hz": reading.get("max_sm_clock_hz") or said.get("max_sm_clock_hz"),
        "max_memory_clock_hz": reading.get("max_memory_clock_hz") or _memory_clock(said),
        "pcie": {
            name.removeprefix("pcie_"): value
            for name, value in reading.items()
            if name.startswith("pcie_") and value is not None
        },
        "mig": _slice(visible),
        "other_processes": reading.get("processes"),
        "driver": driver,
        "driver_cuda": states.version(said["driver"]),
        "notes": notes,
    }


def _bus(visible: Visible, reading: Mapping[str, Any], said: Mapping[str, Any]) -> int | None:
    """Width of the memory bus; of a slice only where CUDA tells less than the whole board's."""
    whole, own = reading.get("memory_bus_bits"), said.get("memory_bus_bits")
    if not visible.profile:
        return own or whole
    return own if own and whole and own < whole else None


def _memory_clock(said: Mapping[str, Any]) -> float | None:
    """CUDA's word for the memory clock; of a GPU within a processor it repeats the clock of the SMs."""
    return None if said.get("integrated") else said.get("max_memory_clock_hz")


def _slice(visible: Visible) -> dict[str, Any]:
    if not visible.profile:
        return {}
    given = {"profile": visible.profile, "sms": visible.sms, "memory_bytes": visible.memory_bytes}
    return given | {"note": "clocks, power and temperature are the whole board's"}


def _platform(said: Mapping[str, Any]) -> str:
    if states.is_jetson() or said.get("integrated"):
        return "GPU and CPU share one memory; NVML tells only a part"
    return "WSL: NVML tells only a part" if states.is_wsl() else ""


# the measuring process


def in_child(id: str = "cuda:0") -> Device:
    """The GPU that this process measures: its ordinal 0, checked against NVML; DeviceError otherwise.

    Where the environment does not pin the GPU yet, this process pins itself, before CUDA's first use.
    """
    pin(id)
    board = own_board()
    visible = of_board(board, os.environ.get(VARIABLE, ""), int(id.partition(":")[2]))
    said = probe.report()
    gpu = Gpu(visible, board.reading(own_context=True))
    if trouble := trouble_of(gpu, said):
        raise trouble.error(id)
    note = "" if board.library else "no telemetry: NVML cannot be read"
    device = describe(gpu, said, _SESSION[0].driver if _SESSION else "", note)
    return replace(device, facts={**device.facts, "gpus": together(os.environ)})


def pin(id: str) -> None:
    """Make this GPU ordinal 0 of this process, unless the environment says that it is."""
    before = os.environ.get(PINNED)
    if before and before != id:
        raise DeviceError(f"{id}: this process measures {before}; each GPU needs a process of its own")
    if not before:
        os.environ.update(environment(id))


_SESSION: list[Nvml] = []
"""This process's NVML session, open as long as the process is: its board is read through it."""


def own_board() -> Board:
    """The board behind this pinned process, for telemetry; a silent one where NVML cannot be read."""
    token = os.environ.get(VARIABLE, "").partition(",")[0]  # its own comes first
    try:
        if not _SESSION:
            _SESSION.append(connect())
        if token.startswith(("GPU-", "MIG-")):
            return _SESSION[0].board(token)
        boards, _ = _SESSION[0].boards()  # a board without a UUID is pinned by its place in PCI order
        return boards[int(token)]
    except (NvmlAbsent, ValueError, IndexError):
        return Board.silent()
