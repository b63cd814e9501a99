"""Chases on a GPU that is not there: shapes of chains, places, clocks, what lies in L2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.backends.cuda import CudaBackend
from bench.errors import VerificationError
from bench.gpu.latencies import layout
from bench.profile.records import Point
from kernels import chases
from tests import hierarchy_bodies as does
from tests.fake_gpu import FakeGpu
from tests.test_cuda_backend import SMS, no_threads_are_left
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_cuda_hierarchy import CHASES, chased
from tests.test_cuda_hierarchy import nothing_hangs as nothing_hangs
from tests.test_cuda_hierarchy import real as real

__all__ = ["no_threads_are_left"]


@pytest.mark.parametrize("point", CHASES[:5], ids=lambda p: p.key)
def test_a_chain_that_stands_elsewhere_is_found(real: FakeGpu, backend: CudaBackend, point: Point) -> None:
    prepared = backend.prepare(point)
    for form in chases.CUDA.forms:
        if form.variant.split()[0] in ("ca", "cg"):
            real.bodies[form.entry] = does.following(real, int(form.variant.split()[1]), wrong=1)
    with pytest.raises(VerificationError, match="chase differs from its reference"):
        backend.verify(prepared)


def test_one_chain_is_one_thread_and_more_are_warps_then_chains_of_a_thread() -> None:
    assert layout(1, 1).launch.threads == 1
    shapes = {chains: layout(chains, SMS) for chains in (1, 2, 32, 64, 128, 256)}
    assert {c: (w.launch.block // 32, w.chains) for c, w in shapes.items()} == {
        1: (1, 1), 2: (2, 1), 32: (32, 1), 64: (16, 4), 128: (32, 4), 256: (32, 8),
    }  # fmt: skip
    assert all(w.walkers == c * SMS and w.launch.grid == SMS for c, w in shapes.items())


def test_numbers_of_chains_that_no_warp_has_are_refused(backend: CudaBackend) -> None:
    assert "33 chains an SM" in backend.unsupported(chased(33, "L2", 1 << 16))
    assert "want e.g. '1 chain'" in backend.unsupported(replace(CHASES[0], variant="several"))
    assert "lines of 64 byte" in backend.unsupported(replace(CHASES[0], sizes={"bytes": 1 << 16, "line": 64}))


def test_a_load_is_a_line_and_its_clock_is_told(real: FakeGpu, backend: CudaBackend) -> None:
    real.seconds = lambda entry, grid, block, count: 1e-7 * 32 * count if "chase" in entry else 1e-5
    prepared = backend.prepare(CHASES[0])
    assert prepared.work(3).reads == {"L2": 3 * 32 * 128}
    taken = backend.measure(prepared, 1000, 2)
    facts = prepared.facts
    assert facts["cycles_per_load"] == 200 and facts["line_bytes"] == facts["stride_bytes"] == 128
    assert facts["counted_clock_hz"] == pytest.approx(200 / 1e-7)
    assert taken.seconds[0] / (1000 * 32) == pytest.approx(1e-7, rel=1e-3), "a load, in seconds"


def test_many_chains_read_a_line_each_and_cycles_are_of_one_chains_load(
    real: FakeGpu, backend: CudaBackend
) -> None:
    prepared = backend.prepare(CHASES[4])
    assert prepared.work(1).reads == {"DRAM": 256 * SMS * 4 * 128}, "8 chains a thread: 4 loads each a trip"
    backend.measure(prepared, 2, 1)
    assert prepared.facts["cycles_per_load"] == 200 and prepared.facts["chains"] == 256 * SMS


def test_a_walk_goes_on_where_it_ended(real: FakeGpu, backend: CudaBackend) -> None:
    """Else a large set would shrink to what one launch passes, and stay in a cache."""
    prepared = backend.prepare(chased(1, "DRAM", 1 << 18))
    places = set()
    for _ in range(4):
        backend.measure(prepared, 2, 1)
        places.add(int(does.at(prepared.handle.memory[0].ptr, 1, np.uint64)[0]))
    assert len(places) == 4


@pytest.mark.parametrize(("lines", "flushes"), [(512, 0), (513, 1), (4096, 1)])
def test_of_a_set_past_l2_none_lies_in_it_when_the_walk_begins(
    real: FakeGpu, backend: CudaBackend, lines: int, flushes: int
) -> None:
    """It has just been written: of four times the cache a quarter would be found there, and not in DRAM."""
    assert backend.device.last_level_cache_bytes == 512 * 128
    real.calls.clear()
    backend.prepare(chased(1, "DRAM", 128 * lines))
    assert real.calls.count("memsetAsync") == flushes
    if flushes:
        order = [c for c in real.calls if c in ("memsetAsync", "launch")]
        assert order == ["launch", "memsetAsync", "launch"], "written, L2 emptied, the walk begun"


def test_the_cycle_passes_every_line_once() -> None:
    order, following = chases.cycle(np, 1000)
    seen, place = [], int(order[0])
    for _ in range(1000):
        seen.append(place)
        place = int(following[place])
    assert sorted(seen) == list(range(1000)) and place == order[0] and seen == order.tolist()
    assert np.count_nonzero(np.diff(np.array(seen)) == 1) < 10, "nothing to foresee"


def test_past_l1_the_plateau_of_l2_is_asked_with_the_operator_for_it(
    real: FakeGpu, backend: CudaBackend
) -> None:
    entries = []
    for point in (
        CHASES[0],
        CHASES[1],
        replace(CHASES[1], sizes={"bytes": 1 << 14, "plateau": 1, "line": 128}),
    ):
        backend.prepare(point)
        entries.append([name for name, *_ in real.launches if name.startswith("chase_c")][-1])
    assert entries == ["chase_cg_1", "chase_ca_1", "chase_ca_1"]


def test_near_and_far_lines_of_l2_show(real: FakeGpu, backend: CudaBackend) -> None:
    told = backend.prepare(CHASES[0]).facts["cycles_by_line"]
    assert (told["least"], told["median"], told["p90"]) == (200, 200, 300)
    assert "cycles_by_line" not in backend.prepare(chased(1, "L2", 1 << 18)).facts
