"""The pipelining experiment: costs, totals, buffers that go round, and what is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, ResourceError
from bench.links import chunk_source, crew, pipeline, scratch, storage
from bench.native import chunk
from bench.planning import link_points
from bench.planning.plan import plan
from bench.planning.planned import Planned
from bench.profile.records import Point, Precision
from bench.running.measure import Session
from kernels import KERNELS, overlap
from tests.counting import Array, Number
from tests.fake_device import FAKE, FakeBackend

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    monkeypatch.setattr(storage, "FILE_BYTES", 2 * MIB)
    monkeypatch.setattr(pipeline, "_calibrated", {})
    yield tmp_path
    scratch.forget()


def point(chunks: int = 4, variant: str = "pipelined", level: str = "page cache", **sizes: int) -> Point:
    sized = {"bytes": MIB, "percent": 100, "chunks": chunks, **sizes}
    return Point("overlap", "pipeline", variant, Precision.of("fp64"), level, "read", sizes=sized)


# the kernel


@pytest.mark.parametrize("fma", [0, 1, 7])
def test_costs_are_counted_and_the_closed_form_is_the_total(fma: int) -> None:
    tally: Counter[str] = Counter()
    x = np.linspace(1, 2, 12)
    chunks = [Array(part, tally) for part in np.split(x, 3)]
    total = overlap.pipeline(chunks, Number(0.125, tally), fma)
    work = KERNELS["pipeline"].work(8, {"n": 12, "fma": fma}, "storage")
    assert work.flops == tally["flops"]
    assert work.reads == {"storage": 8.0 * tally["loads"]} and work.writes == {"storage": 0.0}
    assert total.value == pytest.approx(overlap.reference(np, np.split(x, 3), 0.125, fma), rel=1e-12)


def test_the_total_is_the_same_for_any_number_of_chunks() -> None:
    x = np.linspace(1, 2, 64)
    want = overlap.reference(np, [x], overlap.FACTOR, 5)
    for k in (2, 8, 64):
        assert overlap.pipeline(np.split(x, k), overlap.FACTOR, 5) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("fma", [0, 1, 33])
def test_the_native_loop_is_the_kernel(backend: CpuBackend, fma: int) -> None:
    size = 4 * chunk.unit_bytes(backend.isa)
    data = np.linspace(1.0, 2.0, size // 8)
    team = crew.Crew(0, (0,), size, 1, backend.isa)

    def read(memory: memoryview, offset: int) -> None:
        memory[:] = data.tobytes()

    team.moving(read, 0, 1)
    team.computing(3, fma)  # three times the same chunk
    want = 3 * overlap.pipeline([data], overlap.FACTOR, fma)
    assert team.total() == pytest.approx(want, rel=1e-12)
    team.close()


# the experiment


@pytest.mark.parametrize("level", ["storage", "page cache", "network"])  # to another node: test_node_link
def test_a_pipeline_over_every_link(backend: CpuBackend, folder: Path, level: str) -> None:
    planned = link_points._passes(point(level=level))
    found = Session(backend, 1, 1).sample(replace(planned, budget=1e-3), 0)
    if level == "storage" and (reason := scratch.no_direct(folder)):
        assert (found.status, found.reason) == ("skipped", reason)
        return
    assert found.status == "ok", found.reason
    facts = found.facts
    assert facts["fma"] >= 1 and facts["buffers"] == 3
    assert found.flops == MIB / 8 * (2 * facts["fma"] + 1) and found.bytes_read == MIB
    for name in ("t_move", "t_compute", "t_serial", "move_slowdown", "compute_slowdown"):
        assert facts[name] > 0
    assert facts["ratio"] == pytest.approx(facts["t_compute"] / facts["t_move"])


def test_each_part_is_timed_alone_with_the_same_work(backend: CpuBackend) -> None:
    fma = set()
    for variant in ("copy alone", "compute alone", "pipelined"):
        prepared = backend.prepare(point(2, variant))
        backend.verify(prepared)
        assert len(backend.measure(prepared, 1, 2)) == 2
        assert list(prepared.handle.passes) == {
            "copy alone": ["move inside", "move"],
            "compute alone": ["compute inside", "compute"],
        }.get(variant, list(prepared.handle.passes))
        fma.add(prepared.facts["fma"])
        backend.release(prepared)
    assert len(fma) == 1


def test_a_sweep_times_parts_and_all_chunks_in_every_repetition(backend: CpuBackend) -> None:
    """Nothing that is compared comes from another moment: as many times of each as there were repetitions."""
    planned = Planned(point(8, "swept"), 1, 0.1, 0.5, 0.03, 1e-3, 5.0, 2)
    found = Session(backend, 1, 1).sample(planned, 0)
    assert found.status == "ok", found.reason
    passes = found.facts["passes"]
    assert passes["chunks"] == [1, 2, 4, 8]
    count = len(passes["move"])
    assert count >= len(found.repetitions) >= 2 and len(passes["compute"]) == count
    assert [len(row) for row in passes["seconds"]] == [count] * 4
    last = sum(row[-1] for row in (passes["move"], passes["compute"], *passes["seconds"]))
    assert found.repetitions.seconds[-1] == pytest.approx(last)
    assert found.bytes_read == 5 * MIB  # four times in chunks, and the parts, which are one more
    assert found.facts["t_serial"] == pytest.approx(np.median(passes["seconds"][0]))


def test_the_order_of_a_sweeps_passes_is_random_and_each_is_cut_as_told(backend: CpuBackend) -> None:
    handle = backend.prepare(point(8, "swept")).handle
    order: list[Any] = []
    handle._one = lambda name: order.append(name) or 1.0
    handle._tell = lambda: None
    handle.measure(1, 3)
    turns = [tuple(order[i : i + 6]) for i in (0, 6, 12)]
    assert len(set(turns)) > 1 and all(set(t) == {"move", "compute", 1, 2, 4, 8} for t in turns)
    del handle._one
    cut: list[int] = []
    handle._pipelined = lambda buffers: cut.append(handle.crew.size * handle.chunks) or (3.0, 2.0, 1.0)
    assert handle._one(4) == 3.0 and cut == [MIB] and handle.chunks == 4
    assert handle.inside[4] == [(2.0, 1.0)] and handle.chunked[4] == [3.0]
    handle.close()


def test_all_four_passes_run_in_turning_order(backend: CpuBackend) -> None:
    handle = backend.prepare(point()).handle
    order: list[str] = []
    handle._pass = lambda name: order.append(name) or 1.0
    handle._tell = lambda: None
    handle.measure(1, 4)
    assert Counter(order) == dict.fromkeys(("move", "compute", "serial", "pipelined"), 4)
    assert order[:4] != order[4:8] and sorted(order[4:8]) == sorted(order[:4])
    handle.close()


def test_with_one_buffer_nothing_overlaps(backend: CpuBackend) -> None:
    handle = backend.prepare(point(8)).handle
    reading, seen = threading.Event(), []
    read, compute = handle.source.read, handle.crew._compute

    def watched_read(memory: memoryview, offset: int) -> None:
        reading.set()
        read(memory, offset)
        reading.clear()

    def watched_compute(number: int) -> None:
        seen.append((number, reading.is_set()))
        compute(number)

    handle.source.read, handle.crew._compute = watched_read, watched_compute
    handle._pipelined(1)
    assert seen == [(0, False)] * 8
    seen.clear()
    handle._pass("serial")
    assert {number for number, _ in seen} == {0}
    seen.clear()
    handle._pass("pipelined")
    assert {number for number, _ in seen} == {0, 1, 2}
    handle.close()


class FakeCrew:
    """Known seconds: a pass moves in `move` s and computes in `least` + `step` s a multiply-add."""

    size, move, least, step = MIB // 4, 8e-3, 1e-3, 1e-4

    def moving(self, read: Any, start: int, chunks: int) -> tuple[float, float]:
        return self.move, self.move

    def computing(self, chunks: int, fma: int) -> tuple[float, float]:
        return self.least + self.step * fma, 0.0


@pytest.mark.parametrize(("percent", "fma"), [(25, 10), (100, 70), (400, 310), (5, 1)])
def test_the_work_is_calibrated_to_the_wanted_ratio(percent: int, fma: int) -> None:
    source = chunk_source.opened("page cache", MIB)
    assert pipeline.steps(point(percent=percent), source, FakeCrew()) == fma  # type: ignore[arg-type]


def test_calibration_is_done_once_a_process() -> None:
    source, team = chunk_source.opened("page cache", MIB), FakeCrew()
    first = pipeline.steps(point(), source, team)  # type: ignore[arg-type]
    team.move = 1.0
    assert pipeline.steps(point(16), source, team) == first  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cpus", "want"),
    [
        ((3,), (3, (3,))),
        ((0, 1), (1, (0,))),
        ((0, 1, 2, 3), (3, (0, 1))),
        (tuple(range(64)), (63, (0, 1, 2, 3))),
    ],
)
def test_reader_and_workers_have_cpus_of_their_own(cpus: tuple[int, ...], want: Any) -> None:
    assert crew.parted(cpus) == want


@pytest.mark.parametrize(
    ("cpus", "ends", "workers"),
    [
        ((0, 1), (0, 1), (0,)),  # the link's own pair: its process sits on the reader's CPU
        ((0, 1, 2), (2, 1), (0,)),
        ((0, 2, 4, 6), (6, 4), (0, 2)),
        (tuple(range(64)), (63, 62), (0, 1, 2, 3)),
    ],
)
def test_who_sends_takes_no_workers_cpu(
    cpus: tuple[int, ...], ends: tuple[int, ...], workers: tuple[int, ...]
) -> None:
    """On a CPU of a worker it would slow the parts down only while they overlap."""
    assert chunk_source.ends(cpus) == ends
    reader, free = crew.parted(cpus, 1)
    assert (reader, free) == (cpus[-1], workers) and ends[1] not in workers


def test_a_missing_folder_is_no_skip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(folder / "gone"))
    assert pipeline.unsupported(point(level="storage")) == ""
    with pytest.raises(ResourceError, match="there is no scratch folder gone"):
        chunk_source.opened("storage", MIB)


def test_a_file_gives_its_next_part_every_pass_with_its_sum() -> None:
    source = chunk_source.opened("page cache", MIB)
    starts = [source.begin(4) for _ in range(4)]
    assert starts == [MIB, 0, MIB, 0]
    assert source.total(MIB) == pytest.approx(float(scratch.pattern(1).sum()), rel=1e-14)
    half = chunk_source.block_sums(MIB // 2, MIB)
    parts = scratch.pattern(0)[MIB // 16 :].sum() + scratch.pattern(1)[: MIB // 16].sum()
    assert half == pytest.approx(float(parts), rel=1e-14)


@pytest.mark.parametrize(
    "wrong",
    [point(3), point(0), point(variant="both"), point(level="tape"), point(bytes=MIB + 8), point(512)],
)
def test_pipelines_that_cannot_be(backend: CpuBackend, wrong: Point) -> None:
    with pytest.raises(DeviceError, match=r"cannot be cut|valid: (swept|storage)"):
        backend.prepare(wrong)


# the plan


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({}, "network"),
        ({"scratch": {"filesystem": "ext4", "direct": ""}}, "storage"),
        ({"scratch": {"filesystem": "tmpfs", "direct": "in memory"}}, "page cache"),
        ({"scratch": {"filesystem": "", "direct": "no folder"}}, "network"),
    ],
)
def test_chunks_come_from_the_slowest_link_at_hand(facts: dict[str, Any], level: str) -> None:
    drafted = plan(replace(FAKE, facts=facts), FakeBackend().variants, "standard", families=["overlap"])
    points = [p.point for p in drafted.points]
    assert {p.variant for p in points} == {"swept"} and {p.sizes["chunks"] for p in points} == {64}
    assert [p.sizes["percent"] for p in points if p.level == level] == [100, 25, 400]
    beside = [(p.level, p.sizes["percent"]) for p in points if p.level != level]
    assert beside == ([] if level == "network" else [("network", 100)])  # no other tenant shares that link


def test_a_simulated_pipeline_is_priced_by_its_parts() -> None:
    device = replace(FAKE, kind="simulated", facts={"links": ["storage"], "pipelined": "storage"})
    drafted = plan(device, FakeBackend().variants, "quick", families=["overlap"])
    assert [(p.point.variant, p.point.sizes.get("chunks", 0)) for p in drafted.points] == [
        ("copy alone", 0),
        ("compute alone", 0),
        *(("pipelined", 1 << i) for i in range(5)),
    ]
