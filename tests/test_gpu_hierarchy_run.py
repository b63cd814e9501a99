"""A simulated GPU in the standard preset: its levels, latencies, starts and SMs are found, within the box."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.planning.planned import PROCESS_OF
from bench.profile.records import Profile
from bench.report import table
from bench.store import read_log, read_profile
from tests.test_simulated_gpu import run

TRUTH = read(CATALOGUE)["gpu-large"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("standard")
    families = "mix,cache,latency,launch,scaling,fma"
    return run(place, "gpu-large", "--minutes", 3, "--families", families, "--precisions", "fp32")


@pytest.fixture(scope="module")
def profile(folder: Path) -> Profile:
    return read_profile(folder)


def test_every_level_has_its_bandwidth_and_its_latency(profile: Profile) -> None:
    reads = [c for c in profile.ceilings if c.kernel == "cache-read"]
    beta, held = ({c.level: c.estimate.value for c in reads if c.quantity == q} for q in ("beta", "capacity"))
    for cache in TRUTH["caches"]:
        assert beta[cache["level"]] == pytest.approx(cache["read"], rel=0.03)
        assert held[cache["level"]] == pytest.approx(cache["bytes"], rel=0.10)
    waits = {c.level: c.estimate.value for c in profile.ceilings if c.quantity == "latency"}
    assert waits == pytest.approx(TRUTH["latency"], rel=0.03)
    assert all(c.converged for c in profile.ceilings if c.quantity in ("beta", "latency"))


def test_ways_of_starting_are_told_apart(profile: Profile) -> None:
    starts = {c.variant: c.estimate.value for c in profile.ceilings if c.kernel == "empty"}
    assert starts == pytest.approx(TRUTH["launch"], rel=0.03)


def test_own_and_whole_sets_and_few_blocks_are_curves_of_their_own(profile: Profile) -> None:
    modes = {(c.kind, c.mode) for c in profile.curves}
    assert {("cache", "read"), ("cache", "read whole")} <= modes
    assert {("mix", "read-only"), ("mix", "read-only, 1 block an SM")} <= modes
    few, many = (
        next(c for c in profile.curves if c.kind == "mix" and c.mode == mode)
        for mode in ("read-only, 1 block an SM", "read-only")
    )
    assert {p.variant.split()[-1] for p in few.points} == {"b128"} and len(many.points) > len(few.points)
    assert few.plateaus["pi"] == many.plateaus["pi"]
    low, full = (next(f for f in c.fits if f.form == "p-norm") for c in (few, many))
    assert low.p == pytest.approx(TRUTH["gpu"]["sparse_p"], rel=0.15), "few blocks hide less"
    assert full.p is not None and low.p is not None and full.p > 2 * low.p
    told = "overlap within a kernel, fp32 read-only: p 2."
    assert told in table.render(profile) and low.omega.value < full.omega.value - 0.1


def test_slopes_over_sms_and_over_chains_are_there(profile: Profile) -> None:
    cores = {c.mode: c for c in profile.curves if c.kind == "cores"}
    assert {"fma", "L2 cache-read", "DRAM cache-read"} <= {*cores}
    assert [p.x for p in cores["L2 cache-read"].points] == [1, 4, 16, 64]
    crowds = {(c.mode, c.threads) for c in profile.curves if c.kind == "concurrency"}
    assert crowds == {("L2", 1), ("L2", 64), ("DRAM", 1), ("DRAM", 64)}


def test_all_of_it_fits_the_box_and_shares_a_process(folder: Path) -> None:
    log = read_log(folder)
    assert not [text for text in log.header["not_measured"] if "time box ended" in text]
    for number in range(1, 6):
        memory = {
            s.process for s in log.samples if s.round == number and s.point.family in {*PROCESS_OF, "cache"}
        }
        assert len(memory) == 1
