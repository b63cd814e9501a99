"""What control groups allow a process of the host: quota, memory and CPUs, in version 1 and 2."""

from __future__ import annotations

from pathlib import Path

from bench.host import cgroup, topology
from tests.host_tree import Machine

V1 = "31 23 0:28 / /sys/fs/cgroup/{0} rw - cgroup cgroup rw,{0}\n"
V2 = "31 23 0:28 {} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


def v1_machine(tmp_path: Path, cpus: int = 4) -> Machine:
    m = Machine(tmp_path, cpus)
    m.write("proc/self/cgroup", "4:memory:/docker/ab/inner\n3:cpuset:/docker/ab\n1:cpu:/docker/ab\n")
    mounts = "".join(V1.format(c).replace(" / ", " /docker/ab ") for c in ("memory", "cpuset", "cpu"))
    m.write("proc/self/mountinfo", mounts + "broken line\n")
    return m


def test_quota_of_version_1_limits_threads_with_the_reason(tmp_path: Path) -> None:
    m = v1_machine(tmp_path)
    m.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", 150000)
    m.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    m.write("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 10\nnr_throttled 3\nthrottled_time 2500000000\n")
    m.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 1 << 34)
    m.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", 9223372036854771712)
    m.write("sys/fs/cgroup/cpuset/cpuset.cpus", "1-3")
    device = m.device()
    assert device.threads == 1
    assert device.facts["cpus"] == [1]
    assert device.facts["cpu_quota"] == 1.5
    assert device.facts["threads_limited_by"] == (
        "the container's CPU quota of 1.5 CPUs limits threads to 1 of 3 cores"
    )
    assert device.memory_bytes == 1 << 34
    assert device.facts["memory_limited_by"] == "the container's memory limit is 17.2 GB"
    assert device.state == "container-quota-shared"
    limit = cgroup.limits(m.root)
    assert (limit.throttled_periods, limit.throttled_seconds) == (3, 2.5)


def test_version_2_takes_the_tightest_limit_up_to_the_root(tmp_path: Path) -> None:
    m = Machine(tmp_path, 8)
    m.write("proc/self/cgroup", "0::/kubepods/pod1/box\n")
    m.write("proc/self/mountinfo", V2.format("/"))
    pod = "sys/fs/cgroup/kubepods/pod1"
    m.write(f"{pod}/box/cpu.max", "max 100000\n")
    m.write(f"{pod}/cpu.max", "250000 100000\n")
    m.write("sys/fs/cgroup/kubepods/cpu.max", "600000 100000\n")
    m.write(f"{pod}/box/memory.max", "max")
    m.write(f"{pod}/memory.max", 8 << 30)
    m.write(f"{pod}/box/cpuset.cpus.effective", "2-5")
    m.write(f"{pod}/box/cpu.stat", "nr_throttled 7\nthrottled_usec 1500000\n")
    assert cgroup.limits(m.root) == cgroup.Limits(2.5, 8 << 30, frozenset({2, 3, 4, 5}), 7, 1.5)
    device = m.device()
    assert device.threads == 2
    assert device.facts["container"] == "kubernetes"


def test_a_mount_that_does_not_show_our_path_is_read_at_its_top(tmp_path: Path) -> None:
    m = Machine(tmp_path, 4)
    m.write("proc/self/cgroup", "0::/../../elsewhere\n")
    m.write("proc/self/mountinfo", V2.format("/"))
    m.write("sys/fs/cgroup/cpu.max", "50000 100000")
    device = m.device()
    assert device.threads == 1
    assert device.facts["threads_limited_by"].startswith(
        "the container's CPU quota is 0.5 CPUs: even one thread"
    )


def test_no_control_groups_means_no_limits(tmp_path: Path) -> None:
    assert cgroup.limits(Machine(tmp_path, 1).root) == cgroup.Limits()


def test_cpuset_that_misses_the_affinity_is_not_believed() -> None:
    assert topology.usable(frozenset({0, 1}), frozenset({1, 2})) == {1}
    assert topology.usable(frozenset({0, 1}), frozenset({4})) == {0, 1}
