"""The probe of the host against made-up /proc and /sys trees: big, odd, limited and silent machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import host
from bench.device import Cache, Device
from bench.host import cgroup, processor, state, tenancy, topology, tree

MILAN = "fpu sse2 ssse3 fma avx avx2 f16c"
V1 = "31 23 0:28 / /sys/fs/cgroup/{0} rw - cgroup cgroup rw,{0}\n"
V2 = "31 23 0:28 {} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


class Machine:
    """A /proc and /sys tree in a folder, written file by file."""

    def __init__(
        self, root: Path, count: int, flags: str = MILAN, name: str = "AMD EPYC 7763 64-Core Processor"
    ):
        self.root = root
        self.made: set[Path] = set()
        block = (
            "processor\t: {}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
            f"model name\t: {name}\nstepping\t: 1\nmicrocode\t: 0xa\nflags\t\t: {flags}\n"
        )
        self.write("proc/cpuinfo", "\n".join(block.format(n) for n in range(count)))
        self.write("proc/meminfo", f"MemTotal:  {512 << 20} kB\nMemAvailable: 1000 kB\n")
        self.write("proc/loadavg", "0.10 0.20 0.30 1/200 4242\n")
        self.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        self.write("sys/devices/system/cpu/online", f"0-{count - 1}\n")
        self.all = frozenset(range(count))

    def write(self, path: str, words: object) -> None:
        target = self.root / path
        if target.parent not in self.made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.made.add(target.parent)
        target.write_text(str(words))

    def cache(self, cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> None:
        for name, word in (("level", level), ("size", size), ("shared_cpu_list", shared), ("type", kind)):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}", f"{word}\n")

    def node(self, number: int, cpus: str, gib: int) -> None:
        self.write(f"sys/devices/system/node/node{number}/cpulist", cpus + "\n")
        self.write(
            f"sys/devices/system/node/node{number}/meminfo", f"Node {number} MemTotal: {gib << 20} kB\n"
        )

    def device(self, cpus: frozenset[int] | None = None, machine: str = "x86_64") -> Device:
        return host.cpu_device(self.root, self.all if cpus is None else cpus, {}, machine)


@pytest.fixture(scope="module")
def two_sockets(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """256 hardware threads: 2 sockets x 64 cores x 2, L3 of 32 MiB for 8 cores, one node a socket."""
    m = Machine(tmp_path_factory.mktemp("sockets"), 256)
    for cpu in range(256):
        core = cpu % 128
        pair, group = f"{core},{core + 128}", core // 8 * 8
        m.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", pair)
        m.cache(cpu, 0, 1, "32K", pair, "Data")
        m.cache(cpu, 1, 1, "32K", pair, "Instruction")
        m.cache(cpu, 2, 2, "512K", pair)
        m.cache(cpu, 3, 3, "32768K", f"{group}-{group + 7},{group + 128}-{group + 135}")
    m.node(0, "0-63,128-191", 256)
    m.node(1, "64-127,192-255", 256)
    return m


def test_two_sockets_give_one_thread_a_core_and_every_cache_instance(two_sockets: Machine) -> None:
    device = two_sockets.device()
    assert device.threads == 128
    assert device.facts["cpus"] == list(range(128))
    assert device.facts["smt_siblings_left_out"] == list(range(128, 256))
    assert device.caches == (
        Cache("L1", 32 << 10, 1, 128),
        Cache("L2", 512 << 10, 1, 128),
        Cache("L3", 32 << 20, 8, 16),
    )
    assert device.last_level_cache_bytes == 512 << 20
    assert device.memory_bytes == 512 << 30
    assert {k: len(v) for k, v in device.facts["nodes"].items()} == {"0": 64, "1": 64}
    assert device.slug == "amd-epyc-7763-128c"
    assert device.state == "quiet"


def test_affinity_restricts_threads_caches_and_memory(two_sockets: Machine) -> None:
    device = two_sockets.device(frozenset({64, 65, 66, 200, 192}))
    assert device.facts["cpus"] == [64, 65, 66, 200], (
        "192 is the sibling of 64; 200 has its core (72) to itself"
    )
    assert device.caches[-1] == Cache("L3", 32 << 20, 3, 2)
    assert device.memory_bytes == 256 << 30
    assert device.facts["nodes"] == {"1": [64, 65, 66, 200]}
    assert device.state == "shared"
    assert device.facts["threads_limited_by"] == "affinity or cpuset allows CPUs 64-66,192,200 of 0-255"


def test_node_order_comes_before_cpu_number(tmp_path: Path) -> None:
    m = Machine(tmp_path, 4)
    m.node(0, "0,2", 256)
    m.node(1, "1,3", 256)
    assert m.device().facts["cpus"] == [0, 2, 1, 3]


def test_nodes_without_cpus_are_skipped_and_named(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    m.node(0, "0-1", 480)
    m.node(1, "", 96)
    m.node(2, "", 0)
    m.write("proc/meminfo", f"MemTotal: {576 << 20} kB\n")
    device = m.device()
    assert device.memory_bytes == 480 << 30, "GPU memory is not the CPU's"
    assert device.facts["nodes"] == {"0": [0, 1]}
    assert device.facts["skipped_nodes"][0] == (
        "memory node 1 (103 GB) has no CPU (GPU or CXL memory): not used"
    )
    assert len(device.facts["skipped_nodes"]) == 2


def test_nodes_that_miss_plugged_memory_are_not_believed(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    m.node(0, "0-1", 5)
    assert m.device().memory_bytes == 512 << 30


def test_no_cache_and_no_topology_information(tmp_path: Path) -> None:
    device = Machine(tmp_path, 3).device()
    assert device.caches == ()
    assert device.last_level_cache_bytes == 0
    assert device.threads == 3
    assert device.facts["nodes"] == {}


def test_odd_shared_lists(tmp_path: Path) -> None:
    m = Machine(tmp_path, 4)
    m.cache(0, 0, 3, "16M", "0-3,9-")  # an unfinished range is left out
    m.cache(1, 0, 3, "16M", "")  # no list at all: itself
    m.cache(2, 0, 3, "16M", "2,3")  # overlaps the first list: one instance
    m.cache(3, 0, 3, "", "3")  # no size: not counted
    assert m.device().caches == (Cache("L3", 16 << 20, 4, 1),)


def test_unequal_instances_keep_the_smallest_private_and_the_largest_shared_cache(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    for cpu, private, shared in ((0, "1024K", "96M"), (1, "512K", "32M")):
        m.cache(cpu, 0, 2, private, str(cpu))
        m.cache(cpu, 1, 3, shared, str(cpu))
    assert m.device().caches == (Cache("L2", 512 << 10, 1, 2), Cache("L3", 96 << 20, 1, 2))


@pytest.mark.parametrize(
    ("words", "numbers"),
    [("0-3,8,10-11", {0, 1, 2, 3, 8, 10, 11}), ("", set()), ("5\n", {5}), ("1, 2,", {1, 2}), ("4-2", set())],
)
def test_cpu_lists(words: str, numbers: set[int]) -> None:
    assert tree.cpu_list(words) == numbers


def test_cpu_list_is_written_as_the_kernel_does() -> None:
    assert tree.as_list(frozenset({0, 1, 2, 3, 8, 10, 11})) == "0-3,8,10-11"


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


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("sse2 avx avx2 fma avx512f", "AVX-512"),
        ("sse2 avx avx2 fma", "AVX2 + FMA"),
        ("sse2 avx avx2", "SSE2"),
        ("asimd sve", "SVE"),
        ("asimd", "NEON"),
        ("", "unknown"),
    ],
)
def test_vector_level(flags: str, level: str) -> None:
    assert processor.vector_level(frozenset(flags.split())) == level


def test_precisions_carry_the_reason_from_the_flags() -> None:
    none = processor.precisions(frozenset({"sse2", "avx2", "fma"}), "x86_64")
    assert (none["fp64"], none["fp32"]) == ("", "")
    assert none["fp16"] == "this CPU has no native fp16 FMA (needs avx512_fp16, amx_fp16 or asimdhp)"
    spr = processor.precisions(frozenset({"avx512_fp16", "amx_bf16", "amx_int8", "avx512_vnni"}), "x86_64")
    assert spr["fp16"] == "native fp16 FMA unit present (avx512_fp16), no kernel for it yet"
    assert spr["bf16"] == "native bf16 dot product unit present (amx_bf16), no kernel for it yet"
    assert spr["int8"] == "native int8 dot product unit present (avx512_vnni, amx_int8), no kernel for it yet"
    arm = processor.precisions(frozenset({"asimd", "asimdhp"}), "aarch64")
    assert arm["fp16"].startswith("native fp16 FMA unit present (asimdhp)")
    assert processor.precisions(frozenset(), "riscv64")["fp64"].startswith("no vector kernel for riscv64 yet")


def test_flags_are_those_that_every_usable_cpu_has(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    m.write("proc/cpuinfo", "processor: 0\nflags: sse2 avx2\n\nprocessor: 1\nflags: sse2\n")
    assert processor.flags(m.root, (0, 1)) == {"sse2"}
    assert processor.flags(m.root, (0,)) == {"sse2", "avx2"}


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763-4c"),
        ("Intel(R) Xeon(R) Platinum 8480+", "intel-xeon-platinum-8480plus-4c"),
        ("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", "intel-core-i7-8550u-4c"),
        ("AMD Ryzen 7 PRO 7840U w/ Radeon 780M Graphics", "amd-ryzen-7-pro-7840u-w-radeon-780m-graphics-4c"),
        ("../../etc", "etc-4c"),
        ("", "cpu-4c"),
    ],
)
def test_slug_is_folder_safe(name: str, slug: str) -> None:
    assert processor.slug(name, 4) == slug


def test_identity_moves_with_what_changes_a_measurement_and_with_nothing_else(tmp_path: Path) -> None:
    m = Machine(tmp_path, 2)
    before = m.device().identity
    assert before["device"] == "AMD EPYC 7763 64-Core Processor"
    assert (before["family"], before["threads"], before["memory_gib"]) == ("25", 2, 512)
    m.write("proc/loadavg", "9 9 9 5/200 1\n")
    m.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    assert m.device().identity == before
    assert m.device(frozenset({0})).identity != before
    m.write("proc/sys/kernel/osrelease", "6.2.0")
    assert m.device().identity != before
    assert Machine(tmp_path, 2, MILAN + " avx512f").device().identity["flags_hash"] != before["flags_hash"]


def test_aarch64_without_a_name_is_known_by_its_part(tmp_path: Path) -> None:
    m = Machine(tmp_path, 1)
    m.write("proc/cpuinfo", "processor : 0\nFeatures : asimd sve\nCPU implementer : 0x41\nCPU part : 0xd4f\n")
    device = m.device(machine="aarch64")
    assert device.name == "AArch64 0x41 part 0xd4f"
    assert device.slug == "aarch64-0x41-part-0xd4f-1c"
    assert (device.identity["vendor"], device.identity["model"]) == ("0x41", "0xd4f")
    assert device.facts["vector"] == "SVE"


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
    assert said[3] == "2 other processes above 20% of a CPU: close what can be closed"


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


def test_the_real_machine_is_a_usable_device() -> None:
    device = host.cpu_device()
    allowed = os.sched_getaffinity(0)
    assert 1 <= device.threads <= len(allowed)
    assert set(device.facts["cpus"]) <= allowed
    assert device.memory_bytes > 1 << 28
    assert device.slug.endswith(f"-{device.threads}c")
    assert set(device.precisions) == {"fp64", "fp32", "fp16", "bf16", "int8"}
