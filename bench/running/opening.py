"""Which device a run is about and who measures it: child processes, or a simulated device in this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import host
from bench.backends import open_backend
from bench.device import Device
from bench.errors import DeviceError, ResourceError, UsageError
from bench.running.runners import Children, InProcess, Runner

NO_BLOCKER = "ROOFLINE_NO_BLOCKER"
"""Set to 1 in the environment of children that must not queue their launches behind a waiting kernel."""

NO_GPU = ("no-driver",)
"""States in which there is nothing to say about a GPU: none is here."""

PRINTING = ("matplotlib", "rich")
"""Packages without which no run can end."""

MEASURING = {"cpu": ("numba",)}
"""By the kind of device, what its backend imports late, so that a run would begin without it."""

_described: dict[str, Device] = {}
"""A GPU that `automatic` has described already: its probe takes seconds."""


def automatic(say: Callable[[str], None]) -> str:
    """What `auto` means: the first usable GPU, else the host CPU, and `say` why a GPU here does not serve.

    DeviceError on a cluster's login node, whose devices are not burnt unasked.
    """
    if scheduler := host.login_node():
        raise DeviceError(
            f"this looks like a login node ({scheduler} is here, but no allocation): its CPU is not burnt "
            "unasked; run inside an allocation, or ask for it by name: --device cpu"
        )
    from bench.gpu import described, survey

    found = survey.survey()
    troubles = [state.sentence for state in found.states if state.code not in NO_GPU]
    for gpu in found.gpus:
        try:
            _described[gpu.visible.id] = described.cuda_device(gpu.visible.id)
            return gpu.visible.id
        except DeviceError as error:
            troubles.append(str(error))
    if troubles:
        say(f"no GPU is measured ({'; '.join(troubles)}): the CPU is, instead")
    return "cpu"


def open_device(device: str, blocker: bool = True) -> tuple[Device, Runner]:
    """The device's facts and who measures it; a real one is opened by child processes only.

    A named device that cannot be used is a DeviceError with its state, never another device.
    """
    if device == "cpu":
        return host.cpu_device(), Children("cpu")
    if device.startswith("cuda:"):
        return _gpu(device, blocker)
    if device.startswith("numba:"):
        raise DeviceError(f"{device} is the second opinion of `run --cross-check`: measure cuda:0 with it")
    backend = open_backend(device)
    return backend.device, InProcess(backend)


def check_packages(device: Device) -> None:
    """ModuleNotFoundError, before minutes are spent, for a package that the run would miss at its end."""
    for name in (*MEASURING.get(device.kind, ()), *PRINTING):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def with_scratch(device: Device, runner: Runner, folder: Path, asked: bool = False) -> Device:
    """The host with what is known of `folder`, where its processes are told to put scratch files.

    asked: the folder was named for that, so that ResourceError says where it is none; else the one above does
    """
    if device.id != "cpu" or not isinstance(runner, Children):
        return device
    from bench.links import scratch, storage

    if asked and not folder.is_dir():
        why = "is a file: name a folder" if folder.exists() else "does not exist: make it, or name another"
        raise ResourceError(f"scratch folder {folder} {why} with --scratch")
    if asked:
        scratch.demand(folder, storage.FILE_BYTES)
    place = scratch.existing(folder)
    runner.environment[scratch.VARIABLE] = str(place)
    return replace(device, facts={**device.facts, "scratch": scratch.described(place)})


def with_peer(device: Device, runner: Runner, asked: str) -> Device:
    """The host with a peer on another node, which answers; its processes are told where."""
    if not asked:
        return device
    if device.id != "cpu" or not isinstance(runner, Children):
        raise UsageError(f"--peer is a link of the host, not of {device.id}: give --device cpu")
    from bench.links import node

    node.Node(node.parsed(asked), ()).close()
    runner.environment[node.VARIABLE] = asked
    return replace(device, facts={**device.facts, "peer": True})


def _gpu(device: str, blocker: bool) -> tuple[Device, Runner]:
    from bench.gpu import described, survey

    found = _described.pop(device, None) or described.cuda_device(device)
    environment = survey.environment(device)
    if not blocker:
        environment[NO_BLOCKER] = "1"
    return found, Children(device, environment=environment, by_family=True, conditions=_watch(device))


def _watch(device: str) -> Callable[[], Mapping[str, Any]]:
    """The conditions of a GPU; where the first look sees nothing, looking again would only cost time."""
    blind: list[Mapping[str, Any]] = []

    def now() -> Mapping[str, Any]:
        seen = blind[0] if blind else gpu_conditions(device)
        if not blind and seen.get("memory_available_bytes") is None:
            blind.append(seen)
        return seen

    return now


def gpu_conditions(device: str) -> dict[str, Any]:
    """What NVML says of a GPU now, with `memory_available_bytes`; empty where it says nothing."""
    from bench.gpu import survey

    for gpu in survey.survey().gpus:
        if gpu.visible.id == device:
            return {**gpu.reading, "memory_available_bytes": gpu.reading.get("memory_free_bytes")}
    return {}


def remarks(device: Device, now: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence for each thing that may disturb the run."""
    if not device.is_gpu:
        return host.remarks(device.facts, now)
    said = [str(note) for note in device.facts.get("notes") or ()]
    if part := device.facts.get("mig"):
        said.append(f"MIG slice {part['profile']}: its rates are its own, {part['note']}")
    if others := now.get("processes"):
        plural = "es" * (others > 1)
        said.append(f"{others} other process{plural} on this GPU: close what can be closed")
    limit, usual = now.get("power_limit_w"), now.get("power_limit_default_w")
    if limit and usual and limit < usual:
        said.append(f"its power is limited to {limit:.0f} W of {usual:.0f} W: sustained rates are lower")
    return tuple(said)
