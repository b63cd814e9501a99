"""Links between memory nodes: every pair, bare memory told apart, where memory lies, the read loop."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench import links
from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError
from bench.links import numa
from bench.planning.plan import plan
from bench.profile.records import Point, Precision
from tests.fake_device import FakeBackend
from tests.host_tree import Machine

MIB = 1 << 20


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


@pytest.fixture
def three_nodes(tmp_path: Path) -> Machine:
    """Two nodes of two CPUs each, and a GPU's memory as a third without any."""
    machine = Machine(tmp_path, 4)
    for cpu in range(4):
        machine.cache(cpu, 0, 1, "32K", str(cpu), "Data")
    machine.node(0, "0-1", 256)
    machine.node(1, "2-3", 256)
    machine.node(2, "", 96)
    return machine


def test_every_node_reads_every_node_and_bare_memory_is_told_apart(three_nodes: Machine) -> None:
    device = three_nodes.device()
    drafted = plan(device, FakeBackend().variants, "standard", families=["link"])
    remote = [p.point for p in drafted.points if p.point.kernel == "remote-read"]
    assert [p.level for p in remote] == [
        "NUMA 0>0",
        "NUMA 0>1",
        "NUMA 1>0",
        "NUMA 1>1",
        "NUMA 2>0 (no CPUs)",
        "NUMA 2>1 (no CPUs)",
    ]
    assert {p.threads for p in remote} == {2} and numa.nodes_of(remote[4].level) == (2, 0)
    assert all(links.unsupported(p, device.facts) == "" for p in remote)
    absent = replace(remote[0], level="NUMA 3>0")
    assert "no memory node 3; it has [0, 1, 2]" in links.unsupported(absent, device.facts)
    crowded = replace(remote[0], threads=3)
    assert "node 0 has 2 CPUs for us, 3 are wanted" in links.unsupported(crowded, device.facts)
    quick = plan(device, FakeBackend().variants, "quick", families=["link"])
    assert "NUMA 0>0" not in {p.point.level for p in quick.points}


def test_one_node_is_a_note_not_a_silence(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.node(0, "0-1", 64)
    drafted = plan(machine.device(), FakeBackend().variants, "standard", families=["link"])
    assert "link between memory nodes (NUMA): this machine has one node" in drafted.notes


def test_where_memory_lies_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/numa_maps").write_text(
        "1000 default file=/x mapped=3 N0=3 kernelpagesize_kB=4\n"
        "7f00 bind:1 anon=40 dirty=40 N0=10 N1=30 kernelpagesize_kB=4\n"
        "ff000 default anon=1 N0=1\n"
    )
    assert numa.placed(0x8000, 1, tmp_path) == 0.75
    assert numa.placed(0x8000, 2, tmp_path) == 0.0
    assert numa.placed(0x8000, 1, tmp_path / "none") is None


def test_the_read_loop_runs_on_the_threads_of_a_node(backend: CpuBackend) -> None:
    point = Point(
        "link", "remote-read", "s6u2", Precision.of("fp64"), "NUMA 0>0", "read", sizes={"bytes": 4 * MIB}
    )
    facts = {"nodes": {"0": list(backend.team.cpus)}, "memory_nodes": {"0": 1}}
    prepared = numa.prepare(point, facts, backend.isa)
    prepared.handle.check()
    taken = prepared.handle.measure(10, 3)
    unit = prepared.handle.window.unit
    assert len(taken) == 3 and min(taken.seconds) > 0
    assert prepared.work(10).reads == {"NUMA 0>0": 10.0 * unit}
    assert prepared.facts["memory_node_has_cpus"] and prepared.facts["placed"]
    prepared.handle.close()


def test_memory_that_cannot_be_bound_is_touched_where_it_shall_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "bind", lambda *_: "Operation not permitted")
    monkeypatch.setattr(numa, "placed", lambda *_: None)
    cpus = sorted(os.sched_getaffinity(0))
    region, how = numa.memory_on(MIB, 0, cpus)
    assert how == "first touch (Operation not permitted)" and region.view("f8", 0, 3).tolist() == [1.0] * 3
    assert sorted(os.sched_getaffinity(0)) == cpus
    with pytest.raises(DeviceError, match="no CPU to touch it first: a container needs"):
        numa.memory_on(MIB, 2, [])
    monkeypatch.setattr(numa, "placed", lambda *_: 0.5)
    with pytest.raises(DeviceError, match="only 50 % of the memory came to lie on node 0"):
        numa.memory_on(MIB, 0, cpus)
