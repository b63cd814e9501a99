"""In which state a host is and who else is on it: tenancy, clocks, neighbours, a cluster's login node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import host
from bench.host import state, tenancy
from tests.host_tree import MILAN, Machine


def test_virtual_machine_and_container_are_recognised(tmp_path: Path) -> None:
    m = Machine(tmp_path, 1, MILAN + " hypervisor")
    assert m.device().state == "vm"
    m.write(".dockerenv", "")
    assert m.device().state == "vm-container"
    arm = Machine(tmp_path / "arm", 1, "")
    assert tenancy.virtual_machine(arm.root, frozenset()) == ""
    arm.write("sys/class/dmi/id/sys_vendor", "Amazon EC2")
    arm.write("sys/class/dmi/id/product_name", "c7g.metal")
    assert tenancy.virtual_machine(arm.root, frozenset()) == ""
    arm.write("sys/class/dmi/id/product_name", "c7g.large")
    assert tenancy.virtual_machine(arm.root, frozenset()) == "Amazon EC2 c7g.large"
    arm.write("sys/class/dmi/id/sys_vendor", "QEMU")
    assert tenancy.virtual_machine(arm.root, frozenset()) == "qemu"
    assert tenancy.container(arm.root, {"SINGULARITY_CONTAINER": "image.sif"}) == "apptainer"
    assert tenancy.container(arm.root, {}) == ""


def test_a_busy_metal_machine_says_so(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    assert m.device().state == "quiet"
    m.write("proc/loadavg", "1.0 1.0 1.0 3/200 4242\n")
    assert m.device().state == "busy"
    assert state.running(m.root) == 2


def test_readings_of_clock_governor_temperature_and_battery(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    assert (state.clock_hz(m.root, (0, 1)), state.temperature_c(m.root), state.turbo(m.root)) == (None,) * 3
    assert state.on_battery(m.root) is False
    for cpu, kilohertz in ((0, 2000000), (1, 3000000)):
        m.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", kilohertz)
        m.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")
        m.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", 3500000)
    m.write("sys/class/thermal/thermal_zone0/temp", 41500)
    m.write("sys/class/thermal/thermal_zone1/temp", 63000)
    m.write("sys/devices/system/cpu/intel_pstate/no_turbo", 1)
    m.write("sys/class/power_supply/BAT0/status", "Discharging")
    m.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    assert state.clock_hz(m.root, (0, 1)) == 2.5e9
    assert state.temperature_c(m.root) == 63.0
    assert state.turbo(m.root) is False
    assert state.on_battery(m.root) is True
    facts = m.device().facts
    assert (facts["governor"], facts["max_clock_hz"], facts["huge_pages"]) == ("powersave", 3.5e9, "madvise")
    m.write("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", 2800000)  # a small core
    facts = m.device().facts
    assert (facts["max_clock_hz"], facts["least_max_clock_hz"]) == (3.5e9, 2.8e9)


def test_conditions_of_a_fake_tree_and_their_remarks(tmp_path: Path) -> None:
    m = Machine(tmp_path, 1)
    m.write("proc/meminfo", "MemTotal: 4 kB\nMemAvailable: 3 kB\nSwapTotal: 10 kB\nSwapFree: 6 kB\n")
    now = host.conditions(m.root, window=0.01)
    assert now["load_average"] == [0.1, 0.2, 0.3]
    assert (now["memory_available_bytes"], now["swap_used_bytes"]) == (3 << 10, 4 << 10)
    assert now["busy_processes"] >= 0
    assert 0.0 <= now["steal_share"] <= 1.0
    quiet = dict.fromkeys(now)
    assert host.remarks({}, quiet) == ()
    said = host.remarks(
        {"threads_limited_by": "quota", "virtual_machine": "kvm", "skipped_nodes": ["node 1"]},
        {**quiet, "busy_processes": 2, "steal_share": 0.1, "governor": "powersave", "on_battery": True},
    )
    assert len(said) == 7
    assert said[0] == "quota"
    assert said[3] == "2 other processes above 20 % of a CPU: close what can be closed"


def test_a_neighbour_counts_as_busy_and_our_own_children_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid, self.seconds = pid, 0.0

        def cpu_times(self) -> object:
            self.seconds += 10.0 * (self.pid == 1 << 30)
            return _Times(self.seconds)

    neighbours = [Process(1 << 30), Process((1 << 30) + 1), Process(os.getpid())]
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(neighbours))
    assert state.conditions(window=0.01)["busy_processes"] == 1


class _Times:
    """CPU times as psutil gives them."""

    def __init__(self, user: float) -> None:
        self.user, self.system = user, 0.0


NOWHERE: dict[str, str] = {}


@pytest.mark.parametrize(
    ("environ", "commands", "scheduler"),
    [
        (NOWHERE, (), ""),
        (NOWHERE, ("sbatch",), "Slurm"),
        ({"SLURM_CONF": "slurm.conf"}, (), "Slurm"),
        (NOWHERE, ("qsub",), "PBS"),
        ({"SGE_ROOT": "opt"}, ("qsub",), "Grid Engine"),
        (NOWHERE, ("bsub",), "LSF"),
        ({"SLURM_JOB_ID": "1"}, ("sbatch",), ""),
        ({"PBS_JOBID": "1"}, ("qsub",), ""),
        ({"LSB_JOBID": "1"}, ("bsub",), ""),
        ({"SGE_ROOT": "opt", "SGE_TASK_ID": "undefined"}, ("qsub",), ""),
        ({"SLURM_JOB_ID": "1", "SLURM_SUBMIT_HOST": "login1.site"}, ("sbatch",), "Slurm"),
        ({"SLURM_JOB_ID": "1", "SLURM_SUBMIT_HOST": "login1", "SLURMD_NODENAME": "login1"}, ("sbatch",), ""),
        ({"SLURM_JOB_ID": "1", "SLURM_SUBMIT_HOST": "login2"}, ("sbatch",), ""),
    ],
)
def test_login_node(environ: dict[str, str], commands: tuple[str, ...], scheduler: str) -> None:
    which = {name: name for name in commands}.get
    assert host.login_node(environ, which, lambda: "login1.cluster") == scheduler
