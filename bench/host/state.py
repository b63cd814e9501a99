"""In which state the host is right now: load, other processes, clock, temperature, throttling, memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.host import cgroup, topology, tree

BUSY_SHARE = 0.20
"""Share of one CPU from which another process counts as busy."""

WINDOW = 0.2
"""Seconds over which other processes' CPU time is counted."""

_CPU = "sys/devices/system/cpu"


def conditions(root: Path = tree.ROOT, window: float = WINDOW) -> dict[str, Any]:
    """Everything about this moment that can disturb a measurement; None where not reported.

    Units: Hz, byte, s, degree Celsius. It is recorded with each round and never a reason to refuse.
    """
    cpus = tuple(sorted(topology.affinity()))
    memory = tree.kilobytes(root, "proc/meminfo")
    limit = cgroup.limits(root)
    return {
        "load_average": load_average(root),
        **_others(window),
        "governor": governor(root, cpus),
        "clock_hz": clock_hz(root, cpus),
        "temperature_c": temperature_c(root),
        "turbo": turbo(root),
        "on_battery": on_battery(root),
        "throttled_periods": limit.throttled_periods,
        "throttled_seconds": limit.throttled_seconds,
        "memory_available_bytes": memory.get("MemAvailable"),
        "swap_used_bytes": memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
    }


def load_average(root: Path) -> list[float]:
    """The 1, 5 and 15 minute load averages, empty where not reported."""
    try:
        return [float(word) for word in tree.text(root, "proc/loadavg").split()[:3]]
    except ValueError:
        return []


def running(root: Path, looks: int = 3, pause: float = 0.01) -> int:
    """Tasks that ran or wanted to at once, the fewest of a few looks, we ourselves left out."""
    counts = []
    for look in range(looks):
        time.sleep(pause if look else 0)
        found = re.search(r" (\d+)/\d+ ", tree.text(root, "proc/loadavg"))
        counts.append(int(found.group(1)) if found else 1)
    return max(min(counts) - 1, 0)


def governor(root: Path, cpus: tuple[int, ...]) -> str:
    """The clock governors of our CPUs, "" where none is reported (most virtual machines)."""
    names = {tree.text(root, f"{_CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus}
    return ", ".join(sorted(names - {""}))


def clock_hz(root: Path, cpus: tuple[int, ...]) -> float | None:
    """Mean clock that the system reports for our CPUs now, in Hz."""
    kilohertz = [tree.integer(root, f"{_CPU}/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus]
    known = [k * 1e3 for k in kilohertz if k]
    return sum(known) / len(known) if known else None


def max_clock_hz(root: Path, cpus: tuple[int, ...]) -> float | None:
    """Highest clock that the system allows any of our CPUs, in Hz."""
    return max(_allowed_hz(root, cpus), default=None)


def least_max_clock_hz(root: Path, cpus: tuple[int, ...]) -> float | None:
    """Highest clock of those of our CPUs whose highest is least, in Hz: the small cores of a hybrid part."""
    return min(_allowed_hz(root, cpus), default=None)


def _allowed_hz(root: Path, cpus: tuple[int, ...]) -> list[float]:
    kilohertz = [tree.integer(root, f"{_CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in cpus]
    return [k * 1e3 for k in kilohertz if k]


def turbo(root: Path) -> bool | None:
    """Whether the clock may rise above its nominal value, None where not reported."""
    no_turbo = tree.integer(root, f"{_CPU}/intel_pstate/no_turbo")
    boost = tree.integer(root, f"{_CPU}/cpufreq/boost")
    if no_turbo is not None:
        return no_turbo == 0
    return None if boost is None else boost == 1


def temperature_c(root: Path) -> float | None:
    """The hottest thermal zone in degrees Celsius, None where there is none."""
    zones = tree.numbered(root, "sys/class/thermal", "thermal_zone")
    values = [tree.integer(root, f"{path}/temp") for _, path in zones]
    return max((v / 1e3 for v in values if v is not None and v > 0), default=None)


def on_battery(root: Path) -> bool:
    """Whether a battery is being drained: laptops lower their clocks then."""
    try:
        supplies = [entry.name for entry in (root / "sys/class/power_supply").iterdir()]
    except OSError:
        return False
    return any(tree.text(root, f"sys/class/power_supply/{s}/status") == "Discharging" for s in supplies)


def _others(window: float) -> dict[str, Any]:
    """Other processes above BUSY_SHARE of a CPU (a count, no names) and stolen time; {} without psutil."""
    try:
        import psutil
    except ImportError:
        return {}
    ours = _family()
    others = [p for p in psutil.process_iter() if p.pid not in ours]
    before = {p.pid: _cpu_seconds(p) for p in others}
    times, start = psutil.cpu_times(), time.monotonic()
    time.sleep(window)
    elapsed, later = time.monotonic() - start, psutil.cpu_times()
    busy = sum(_cpu_seconds(p) - before[p.pid] > BUSY_SHARE * elapsed for p in others)
    total = sum(later) - sum(times)
    stolen = getattr(later, "steal", 0.0) - getattr(times, "steal", 0.0)
    return {"busy_processes": busy, "steal_share": max(stolen / total, 0.0) if total > 0 else 0.0}


def _family() -> set[int]:
    """This process, those that started it and those that it started: none of them is a neighbour."""
    import psutil

    me = psutil.Process(os.getpid())
    try:
        kin = [*me.parents(), *me.children(recursive=True)]
    except psutil.Error:
        kin = []
    return {me.pid, *(process.pid for process in kin)}


def _cpu_seconds(process: Any) -> float:
    import psutil

    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def remarks(facts: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence for each thing that may disturb a run, from a device's facts and conditions."""
    return (*_standing(facts), *_passing(now))


def _standing(facts: Mapping[str, Any]) -> list[str]:
    said = [str(facts[k]) for k in ("threads_limited_by", "memory_limited_by") if facts.get(k)]
    if vm := facts.get("virtual_machine"):
        said.append(f"virtual machine ({vm}): neighbours on its host can move bandwidths by 10 % and more")
    return [*said, *map(str, facts.get("skipped_nodes", ()))]


def _passing(now: Mapping[str, Any]) -> list[str]:
    said = []
    if busy := now.get("busy_processes"):
        plural = "es" if busy > 1 else ""
        above = f"above {100 * BUSY_SHARE:.0f} % of a CPU"
        said.append(f"{busy} other process{plural} {above}: close what can be closed")
    if (share := now.get("steal_share") or 0.0) > 0.02:
        said.append(f"the hypervisor gave {100 * share:.0f} % of the CPU time to others")
    if now.get("governor") in ("powersave", "conservative", "ondemand"):
        said.append(
            f"the clock governor is {now['governor']}: clocks rise late (locked ones would need performance)"
        )
    if now.get("on_battery"):
        said.append("running on battery: clocks are likely lowered")
    return said
