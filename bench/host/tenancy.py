"""Who stands between us and the hardware, or beside us: hypervisor, container, batch scheduler."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.host import cgroup, tree

_MAKERS = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|bochs|parallels|bhyve|virtual machine|google compute|openstack",
    re.IGNORECASE,
)
_ENGINES = {
    "kubepods": "kubernetes",
    "docker": "docker",
    "libpod": "podman",
    "containerd": "containerd",
    "lxc": "lxc",
}


def virtual_machine(root: Path, flags: frozenset[str]) -> str:
    """What says that this is a virtual machine ("hypervisor flag", a maker's name), "" on metal."""
    product = " ".join(
        tree.text(root, f"sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name")
    ).strip()
    if "hypervisor" in flags:
        return "hypervisor flag"
    if "amazon" in product.lower() and "metal" not in product.lower():
        return product
    if found := _MAKERS.search(product):
        return found.group().lower()
    if "microsoft" in tree.text(root, "proc/sys/kernel/osrelease").lower():
        return "wsl"
    return tree.text(root, "sys/hypervisor/type")


def container(root: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The container engine that we run in, "" outside one."""
    marks = {".dockerenv": "docker", "run/.containerenv": "podman"}
    for path, engine in marks.items():
        if (root / path).exists():
            return engine
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    path = " ".join(cgroup.paths(root).values())
    named = next((engine for mark, engine in _ENGINES.items() if mark in path), "")
    return named or environ.get("container", "") or tree.text(root, "run/systemd/container")


@dataclass(frozen=True)
class Scheduler:
    """A batch system: what shows that it is here, and what shows that we hold an allocation."""

    name: str
    commands: tuple[str, ...]
    settings: tuple[str, ...]
    allocation: tuple[str, ...]


SCHEDULERS = (
    Scheduler("Slurm", ("sbatch",), ("SLURM_CONF",), ("SLURM_JOB_ID", "SLURM_JOBID")),
    Scheduler("LSF", ("bsub",), ("LSF_ENVDIR",), ("LSB_JOBID",)),
    Scheduler("Grid Engine", (), ("SGE_ROOT",), ("SGE_TASK_ID",)),
    Scheduler("OAR", ("oarsub",), (), ("OAR_JOB_ID", "OAR_JOBID")),
    Scheduler("HTCondor", ("condor_submit",), (), ("_CONDOR_JOB_AD", "_CONDOR_SLOT")),
    Scheduler("PBS", ("qsub",), ("PBS_CONF_FILE", "PBS_SERVER"), ("PBS_JOBID",)),
)


def login_node(
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
    host: Callable[[], str] = socket.gethostname,
) -> str:
    """Name of the batch scheduler when we stand on its login node, "" elsewhere.

    A scheduler is present and no allocation is held. A shell under Slurm's salloc holds one but
    may still run on the machine where it was typed: that machine is its login node all the same.
    """
    if _on_submit_host(environ, host):
        return "Slurm"
    if any(environ.get(name) for s in SCHEDULERS for name in s.allocation):
        return ""
    return next((s.name for s in SCHEDULERS if _present(s, environ, which)), "")


def _present(s: Scheduler, environ: Mapping[str, str], which: Callable[[str], str | None]) -> bool:
    return any(environ.get(name) for name in s.settings) or any(which(command) for command in s.commands)


def _on_submit_host(environ: Mapping[str, str], host: Callable[[], str]) -> bool:
    """slurmd sets SLURMD_NODENAME in all that it starts; without it we are where salloc was typed."""
    origin = environ.get("SLURM_SUBMIT_HOST", "")
    if not environ.get("SLURM_JOB_ID") or environ.get("SLURMD_NODENAME") or not origin:
        return False
    return origin.split(".")[0] == host().split(".")[0]
