"""Every C reference loop against NumPy: a reference that computes something else proves nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ctypes import c_int64
from pathlib import Path

import numpy as np
import pytest

from bench.errors import DeviceError, ResourceError
from tests.perf import reference
from tests.perf.reference import (
    LINE_BYTES,
    Arrays,
    CacheSide,
    ChaseSide,
    PeakSide,
    Reference,
    StreamSide,
    Team,
)

CPUS = sorted(os.sched_getaffinity(0))
TEAMS = [CPUS[:1], CPUS[:2]]
BYTES = 1 << 20

RESULTS = {
    "write": lambda a, b, c, s: np.full_like(a, s),
    "update": lambda a, b, c, s: s * a,
    "copy": lambda a, b, c, s: b,
    "scale": lambda a, b, c, s: s * b,
    "add": lambda a, b, c, s: b + c,
    "triad": lambda a, b, c, s: b + s * c,
}
LOOPS = [("read", "none"), ("update", "ordinary")] + [
    (kernel, store)
    for kernel in ("write", "copy", "scale", "add", "triad")
    for store in ("ordinary", "nontemporal")
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(reference.build(tmp_path_factory.mktemp("reference")))


@pytest.fixture(params=TEAMS, ids=lambda cpus: f"{len(cpus)} threads")
def arrays(built: Reference, request: pytest.FixtureRequest) -> Iterator[Arrays]:
    made = Arrays(built, Team(request.param, warm=0.0), BYTES)
    yield made
    made.close()


def touched(arrays: Arrays, offset: int, count: int) -> np.ndarray:
    """Indices that one window must have worked on: the same part of every thread's slice."""
    slices = [
        np.arange(t * arrays.pitch + offset, t * arrays.pitch + offset + count)
        for t in range(arrays.team.threads)
    ]
    return np.concatenate(slices)


@pytest.mark.parametrize(("kernel", "store"), LOOPS)
def test_every_form_of_a_stream_computes_its_formula_on_its_window_only(
    arrays: Arrays, kernel: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "FACTOR", 1.75)
    forms = arrays.reference.streams(kernel, store)
    assert len(forms) >= 4
    for form in forms:
        side = StreamSide(arrays, form, BYTES // 5 * reference.STREAMS[kernel])
        a, b, c = (arrays.view(k).copy() for k in range(3))
        window = side.window()
        where = touched(arrays, arrays._offset - side._count, side._count)
        assert window.work == reference.STREAMS[kernel] * 8 * len(where), form
        assert window.seconds > 0
        if kernel == "read":
            assert side.sum == pytest.approx(a[where].sum(), rel=1e-12), form
        else:
            a[where] = RESULTS[kernel](a[where], b[where + form.skew], c[where + 2 * form.skew], 1.75)
        np.testing.assert_allclose(arrays.view(0), a, rtol=1e-15, err_msg=str(form))
        np.testing.assert_array_equal(arrays.view(1), b)
        np.testing.assert_array_equal(arrays.view(2), c)


@pytest.mark.parametrize("cpus", TEAMS, ids=lambda cpus: f"{len(cpus)} threads")
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_every_chain_loop_computes_the_recurrence(built: Reference, precision: str, cpus: list[int]) -> None:
    forms = built.peaks(precision)
    assert {8, 10, 12, 16} <= {form.chains for form in forms}
    lanes = built.vector_bytes // {"fp64": 8, "fp32": 4}[precision]
    for form in forms:
        side = PeakSide(built, Team(cpus, warm=0.0), form, flops=2 * form.chains * lanes * len(cpus) * 500)
        side.factor = 1e-3
        window = side.window()
        expected = len(cpus) * lanes * sum(1 + 0.01 * j for j in range(form.chains)) * (1 + 1e-3) ** 500
        assert side.iterations == 500
        assert window.work == 2 * 500 * form.chains * lanes * len(cpus)
        assert side.sum == pytest.approx(expected, rel={"fp64": 1e-11, "fp32": 2e-4}[precision]), form


def test_cache_windows_read_the_same_set_again_and_again(arrays: Arrays) -> None:
    a = arrays.view(0).copy()
    for form in arrays.reference.streams("read", "none"):
        side = CacheSide(arrays, form, set_bytes=16 << 10, repeats=7)
        window = side.window()
        where = touched(arrays, 0, side._count)
        assert 8 * side._count <= 16 << 10
        assert window.work == 7 * 8 * len(where)
        assert side.sum == pytest.approx(7 * a[where].sum(), rel=1e-12), form


def test_windows_walk_through_the_arrays_and_wrap(arrays: Arrays) -> None:
    third = arrays.pitch // 3 // arrays.reference.granule * arrays.reference.granule
    assert [arrays.next(third) for _ in range(5)] == [0, third, 2 * third, 0, third]


def test_memory_is_aligned_random_and_sized_as_asked(arrays: Arrays) -> None:
    assert all(address % (2 << 20) == 0 for address in arrays.addresses)
    assert BYTES - 8 * arrays.team.threads * arrays.reference.granule < 8 * arrays.items <= BYTES
    for k in range(3):
        values = arrays.view(k)
        assert values.min() >= 0.5 and values.max() < 1.5
        assert values.mean() == pytest.approx(1.0, abs=0.01)
        assert len(np.unique(values[:1000])) == 1000


def test_callers_affinity_is_left_alone(built: Reference) -> None:
    before = os.sched_getaffinity(0)
    PeakSide(built, Team(CPUS[-1:]), built.peaks("fp64")[0], flops=1e6).window()
    assert os.sched_getaffinity(0) == before


def test_a_missing_compiler_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match=r"no C compiler found \(looked for gcc, clang\); install gcc"):
        reference.compiler()
    monkeypatch.setenv("CC", "nonesuch")
    with pytest.raises(DeviceError, match="looked for nonesuch"):
        reference.compiler()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "bad.c"
    bad.write_text("#error no such machine\n")
    monkeypatch.setattr(reference, "SOURCE", bad)
    with pytest.raises(DeviceError, match=r"could not compile the C reference: .*no such machine"):
        reference.build(tmp_path)


def test_arrays_too_small_for_the_team_are_refused(built: Reference) -> None:
    with pytest.raises(ResourceError, match="too small for 1 threads"):
        Arrays(built, Team(CPUS[:1]), 100)


def test_the_chase_walks_one_random_cycle_over_all_lines(built: Reference) -> None:
    lines = 1000
    side = ChaseSide(built, Team(CPUS[:1], warm=0.0), lines * LINE_BYTES, loads=160, kept=True, seed=1)
    words = (c_int64 * (lines * LINE_BYTES // 8)).from_address(side.address)
    seen, place = [], side.address
    for _ in range(lines):
        seen.append((place - side.address) // LINE_BYTES)
        place = words[(place - side.address) // 8]
    assert place == side.address and sorted(seen) == list(range(lines))
    assert np.mean(np.abs(np.diff(seen)) == 1) < 0.02, "in random order"
    for window in range(1, 9):  # 160 loads each, on from where the last one ended
        assert side.window().work == 160 * LINE_BYTES
        assert (side.place.value - side.address) // LINE_BYTES == seen[160 * window % lines]
    side.close()
