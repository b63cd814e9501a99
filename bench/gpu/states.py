"""The states in which a GPU cannot be measured: each has a code and one sentence with cause and remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import DeviceError
from bench.host import tree

SENTENCES = {
    "no-driver": "no NVIDIA driver found: install one to measure a GPU, or measure the CPU (--device cpu)",
    "wsl": "WSL shows no NVIDIA driver: install it in Windows (never inside Linux), then restart WSL",
    "jetson": "this Jetson shows no CUDA driver: install JetPack's CUDA, in a container use --runtime nvidia",
    "not-loaded": "the NVIDIA driver is installed but not loaded: `sudo modprobe nvidia` or a restart helps",
    "mismatch-driver": "the NVIDIA driver was updated while in use: restart the machine to load the new one",
    "no-permission": "no permission for the GPU's device files (/dev/nvidia*): ask for access; "
    "a container needs --gpus all, a SLURM job --gres=gpu:1",
    "container": "the host has an NVIDIA driver but nothing here may use it: start the container with "
    "--gpus all, a SLURM job with --gres=gpu:1",
    "no-package": "nvidia-ml-py is not installed: `make setup` installs it",
    "nvml-failed": "NVML, the driver's monitoring library, fails ({error}): restart or reinstall the driver",
    "hidden": "CUDA_VISIBLE_DEVICES={value!r} leaves no GPU: unset it or name one that is there ({known})",
    "no-device": "the NVIDIA driver finds no GPU: look at its messages (dmesg) and at the GPU's power",
    "no-cupy": "CuPy is not installed: `make setup` installs the one for this driver",
    "cupy-broken": "CuPy cannot be imported ({error}): `make setup` installs it anew",
    "driver-too-old": "the driver speaks CUDA {driver}, the installed CuPy needs CUDA {wheel}: {remedy}",
    "gpu-too-old": "compute capability {capability} is too old for CUDA {wheel}: {remedy}",
    "no-nvrtc": "CUDA's run-time compiler is missing ({error}): "
    'pip install "cupy-cuda{wheel}x[ctk]" brings it',
    "no-headers": 'the CUDA headers are missing ({error}): pip install "cupy-cuda{wheel}x[ctk]" brings them',
    "no-libcuda": "the GPU is here but the CUDA driver library (libcuda.so.1) is not: a container needs "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "busy": "another process holds the GPU alone (exclusive-process mode): wait for it or name another GPU",
    "prohibited": "the GPU's compute mode forbids its use: name another GPU or have the mode changed",
    "full": "other processes hold all of the GPU's memory: wait for them or name another GPU",
    "fabric": "the GPU waits for its NVLink switches: an administrator starts nvidia-fabricmanager",
    "mig-without-slices": "MIG is on but has no slices: an administrator makes some (nvidia-smi mig -cgi) "
    "or turns MIG off",
    "lost": "the GPU does not work any more ({error}): restart the machine",
    "hung": "the GPU did not answer in {seconds:g} s: look for Xid errors (dmesg), restart the machine if "
    "they stay",
    "mismatch": "CUDA opened {found} in place of {wanted}: leave CUDA_VISIBLE_DEVICES as the suite sets it",
    "failed": "the GPU cannot be used ({error})",
}

OLDEST_WHEEL = 12
"""Oldest CUDA major that CuPy wheels are still made for."""

OLDEST_CAPABILITY = {12: 70, 13: 75}
"""Oldest compute capability (x 10) that the compilers of a CUDA major know and we have kernels for."""


@dataclass(frozen=True)
class State:
    """Why a GPU cannot be measured: a code for programs, a sentence with the remedy for people."""

    code: str
    sentence: str

    def error(self, device: str) -> DeviceError:
        """The same sentence for a device that was asked for by name."""
        return DeviceError(f"{device}: {self.sentence}")


def state(code: str, **details: Any) -> State:
    """The state of that code, its sentence filled in; KeyError for a detail that is missing."""
    return State(code, SENTENCES[code].format(**details))


def told(said: Mapping[str, Any]) -> State:
    """The state that a child reported as {"state": code, "message": sentence}."""
    return State(str(said["state"]), str(said["message"]))


def driver_too_old(driver: int, wheel: int) -> State:
    """Of versions as CUDA counts them (12040 is 12.4): which wheel would do, or that none does."""
    major = driver // 1000
    remedy = (
        f"`make setup CUDA={major}` installs the older one"
        if OLDEST_WHEEL <= major < wheel // 1000
        else f"update the driver to one for CUDA {max(OLDEST_WHEEL, wheel // 1000)}"
    )
    return state("driver-too-old", driver=version(driver), wheel=wheel // 1000, remedy=remedy)


def gpu_too_old(capability: int, wheel: int) -> State | None:
    """Of a compute capability x 10 and a CUDA version: None where they go together."""
    if capability >= OLDEST_CAPABILITY.get(wheel // 1000, 75):
        return None
    older = capability >= OLDEST_CAPABILITY[12]
    remedy = "`make setup CUDA=12` installs the older one" if older else "its kernels need 7.0 or newer"
    return state("gpu-too-old", capability=f"{capability / 10:.1f}", wheel=wheel // 1000, remedy=remedy)


def version(number: int) -> str:
    """A CUDA version in words: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def is_wsl(root: Path = tree.ROOT) -> bool:
    """Whether this Linux runs inside Windows."""
    return "microsoft" in tree.text(root, "proc/sys/kernel/osrelease").lower()


def is_jetson(root: Path = tree.ROOT) -> bool:
    """Whether this is one of NVIDIA's own boards with CPU and GPU on one memory."""
    model = tree.text(root, "proc/device-tree/model")
    return "jetson" in model.lower() or bool(tree.text(root, "etc/nv_tegra_release"))


def signs(root: Path = tree.ROOT) -> dict[str, bool]:
    """What the file system says of a GPU: device files, the driver's own folder, WSL, Jetson."""
    nodes = ("dev/nvidiactl", "dev/nvidia0", "dev/dxg", "dev/nvhost-gpu", "dev/nvgpu", "dev/nvmap")
    return {
        "nodes": any((root / node).exists() for node in nodes),
        "readable": os.access(root / "dev/nvidiactl", os.R_OK | os.W_OK),
        "driver": (root / "proc/driver/nvidia/version").exists(),
        "wsl": is_wsl(root),
        "jetson": is_jetson(root),
    }


def without_driver(found: Mapping[str, bool]) -> State:
    """The state of a machine on which no CUDA driver answers, by its `signs`."""
    if found["driver"] and not found["nodes"]:
        return state("container")
    if found["driver"]:
        return state("no-libcuda" if found["readable"] else "no-permission")
    if found["jetson"] or found["wsl"]:
        return state("jetson" if found["jetson"] else "wsl")
    return state("no-driver")
