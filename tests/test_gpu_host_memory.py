"""Host memory that a GPU is linked to: its memory node, managed pages and their way home, its pattern."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.backends import cuda
from bench.backends.cuda import CudaBackend
from bench.errors import DeviceError, VerificationError
from bench.gpu import host_memory, managed
from bench.gpu.host_memory import TILE, Buffer, compare, nearest, patterned
from bench.gpu.telemetry import Window
from tests.fake_cupy import LATENCY, RATES
from tests.fake_gpu import CALL, CUDARuntimeError, FakeGpu
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_backend import no_threads_are_left
from tests.test_gpu_links import KIB, MIB, crossing
from tests.test_gpu_links import real as real

__all__ = ["no_threads_are_left"]


def test_pages_are_sent_back_before_every_repetition(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(crossing("managed", "h2d", variant="prefetch"))
    assert (prepared.least, prepared.most) == (1, 1)
    real.calls.clear()
    taken = backend.measure(prepared, 1, 3)
    assert real.calls.count("memPrefetchAsync") == 6
    assert taken.seconds == pytest.approx([LATENCY + MIB / RATES["h2d"]] * 3, abs=CALL * 1.01)
    fault = backend.prepare(crossing("managed", "d2h", variant="fault"))
    assert fault.clock_source == "host" and prepared.clock_source == ""


@pytest.mark.parametrize("variant", ["prefetch", "fault"])
@pytest.mark.parametrize("access", ["h2d", "d2h"])
def test_where_cupy_takes_the_host_for_a_gpu_the_driver_sends_the_pages(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, access: str, variant: str
) -> None:
    def by_driver() -> Callable[[int, int, int], None]:
        def prefetch(address: int, bytes: int, stream: int) -> None:
            real.call("cuMemPrefetchAsync")
            assert real.holds(address, bytes) and stream == backend.engine.stream.ptr
            real.queue(LATENCY + bytes / RATES["d2h"], "driver", stream=stream, engine="d2h")

        return prefetch

    monkeypatch.setattr(managed, "by_driver", by_driver)
    real.host_place = False
    prepared = backend.prepare(crossing("managed", access, variant=variant))
    backend.verify(prepared)
    real.calls.clear()
    taken = backend.measure(prepared, 1, 3)
    sent = 3 if access == "h2d" or variant == "prefetch" else 0
    assert real.calls.count("cuMemPrefetchAsync") == sent
    if variant == "prefetch":
        assert taken.seconds == pytest.approx([LATENCY + MIB / RATES[access]] * 3, abs=CALL * 1.01)


def test_pages_that_cannot_be_sent_for_another_reason_are_not_tried_again(
    real: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "by_driver", lambda: pytest.fail("the driver was asked"))
    real.fail["memPrefetchAsync"] = 3
    with pytest.raises(DeviceError, match="sending managed memory to the host: cudaError3"):
        backend.prepare(crossing("managed", "h2d"))


def test_the_driver_is_told_address_size_host_and_stream(tmp_path: Path) -> None:
    source, library = tmp_path / "driver.cpp", tmp_path / "driver.so"
    source.write_text(
        'extern "C" int cuMemPrefetchAsync(unsigned long long at, unsigned long bytes, int place, void* on) {'
        "return at == 0x7f0000001000 && bytes == 5ul << 32 && place == -1 && on == (void*)77 ? 0 : 201; }"
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    prefetch = managed.by_driver(str(library))
    prefetch(0x7F0000001000, 5 << 32, 77)
    with pytest.raises(DeviceError, match="does not send managed memory to the host: status 201"):
        prefetch(0x7F0000001000, 4096, 77)
    with pytest.raises(OSError):
        managed.by_driver(str(tmp_path / "none.so"))


def test_a_gpu_whose_place_on_the_bus_is_not_told_takes_memory_of_any_node(
    gpu: FakeGpu, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(device: int) -> str:
        raise CUDARuntimeError(1)

    monkeypatch.setattr(backend.engine.cupy.cuda.runtime, "deviceGetPCIBusId", refuse)
    assert host_memory.HostMemory.of(backend.engine).near.node is None


def machine(root: Path, nodes: dict[int, str], node: str) -> None:
    for number, cpus in nodes.items():
        place = root / f"sys/devices/system/node/node{number}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cpus + "\n")
        (place / "meminfo").write_text(f"Node {number} MemTotal: 1048576 kB\n")
    place = root / "sys/bus/pci/devices/0000:3b:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text(node + "\n")


@pytest.mark.parametrize(
    ("node", "number", "words"),
    [
        ("0", 0, "touched first by CPUs of node 0"),
        ("1", 1, "no CPU of ours is on the GPU's memory node 1"),
        ("-1", None, "does not tell"),
    ],
)
def test_buffers_lie_on_the_node_next_to_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, number: int | None, words: str
) -> None:
    machine(tmp_path, {0: "0-3", 1: ""}, node)
    asked: list[frozenset[int]] = []
    monkeypatch.setattr(host_memory.os, "sched_getaffinity", lambda pid: {0, 1, 7})
    monkeypatch.setattr(host_memory.os, "sched_setaffinity", lambda pid, cpus: asked.append(frozenset(cpus)))
    near = nearest("0000:3B:00.0", tmp_path)
    assert near.node == number and words in near.facts["buffers"]
    assert near.facts["nodes_without_cpus"] == [1], "memory of a GPU on GH200, told apart"
    with near.threads():
        pass
    assert asked == ([frozenset({0, 1})] if number == 0 else []) + [frozenset({0, 1, 7})]


def test_facts_say_where_buffers_lie_and_the_link_under_load(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(crossing("copy-pinned", "h2d"))
    assert {"gpu_node", "buffers", "nodes_without_cpus", "cupy"} <= {*prepared.facts}
    windows = [Window(pcie_generation=1, pcie_width=16), Window(pcie_generation=5, pcie_width=16), Window()]
    assert cuda.under_load(windows) == {"pcie_generation": 5, "pcie_width": 16}
    assert cuda.under_load([Window()]) == {}


def test_locked_memory_stays_for_the_next_point(real: FakeGpu, backend: CudaBackend) -> None:
    for size in (MIB, 4 * KIB, MIB):
        backend.release(backend.prepare(crossing("copy-pinned", "h2d", size)))
    assert sorted(real.pinned.values()) == [64, MIB, MIB]


def test_no_two_tiles_of_the_pattern_are_alike() -> None:
    view = np.zeros(3 * TILE + 100, np.uint8)
    patterned(view)
    tiles = view[: 3 * TILE].reshape(3, TILE)
    assert not np.array_equal(tiles[0], tiles[1]) and not np.array_equal(tiles[1], tiles[2])
    swapped = np.concatenate([tiles[1], tiles[0], tiles[2], view[3 * TILE :]])
    with pytest.raises(VerificationError):
        compare("a copy", Buffer(0, view), lambda start, stop: swapped[start:stop])
    compare("a copy", Buffer(0, view), lambda start, stop: view[start:stop])
