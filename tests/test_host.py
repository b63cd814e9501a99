"""What a host is, by made-up /proc and /sys trees: CPUs, caches, nodes and processor, big and odd ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import host
from bench.device import Cache
from bench.host import processor, tree
from tests.host_tree import MILAN, Machine


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
    assert none["fp16"] == "this CPU has no vector fp16 FMA (needs avx512_fp16 or asimdhp)"
    spr = processor.precisions(
        frozenset({"avx512f", "avx512_fp16", "amx_bf16", "amx_int8", "avx512_vnni"}), "x86_64"
    )
    assert (spr["fp16"], spr["int8"]) == ("", "")
    assert spr["bf16"] == (
        "this CPU has no vector bf16 dot product (needs avx512_bf16 or bf16; "
        "amx_bf16 is of its matrix units, which are not measured)"
    )
    alder = processor.precisions(frozenset({"avx2", "fma", "avx_vnni"}), "x86_64")
    assert alder["int8"] == "" and "needs avx512_bf16 or bf16)" in alder["bf16"]
    arm = processor.precisions(frozenset({"asimd", "asimdhp", "asimddp"}), "aarch64")
    assert (arm["fp16"], arm["int8"]) == ("", "") and "needs avx512_bf16 or bf16)" in arm["bf16"]
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


def test_the_real_machine_is_a_usable_device() -> None:
    device = host.cpu_device()
    allowed = os.sched_getaffinity(0)
    assert 1 <= device.threads <= len(allowed)
    assert set(device.facts["cpus"]) <= allowed
    assert device.memory_bytes > 1 << 28
    assert device.slug.endswith(f"-{device.threads}c")
    assert set(device.precisions) == {"fp64", "fp32", "fp16", "bf16", "int8"}
