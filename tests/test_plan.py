"""What is planned: sizes that follow from the device, presets, filters, and the pilot's choices."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from bench.device import Cache, Device
from bench.errors import ResourceError, UsageError
from bench.planning import sizes
from bench.planning.plan import FAMILIES, PRESETS, plan, preset_for
from bench.planning.planned import Plan, Planned
from bench.profile.records import Point, Precision
from tests.fake_device import BIG, FAKE, FakeBackend

MIB, GIB = 1 << 20, 1 << 30
WORK = Point("workload", "dot", "numba", Precision.of("fp64"), "DRAM", threads=2, sizes={"n": 1000})


def planned(preset: str = "standard", **options: object) -> Plan:
    return plan(FAKE, FakeBackend().variants, preset, workloads=(WORK,), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "arrays", "want"),
    [(FAKE, 1, 128 * MIB), (FAKE, 3, 128 * MIB), (BIG, 1, 4 * GIB), (BIG, 2, 2 * GIB), (BIG, 3, 2 * GIB)],
)
def test_dram_arrays_exceed_the_caches(device, arrays, want) -> None:  # type: ignore[no-untyped-def]
    size = sizes.array_bytes(device, arrays, device.memory_bytes)
    assert size == want
    assert size >= 2 * device.last_level_cache_bytes
    assert size * arrays >= 4 * device.last_level_cache_bytes


def test_small_memory_shrinks_the_arrays_but_never_below_the_cache_rule() -> None:
    assert sizes.array_bytes(FAKE, 3, 480 * MIB) == 80 * MIB
    with pytest.raises(ResourceError, match=r"16 MiB last-level cache: 3 x 32 MiB.*80 MiB.*--families"):
        sizes.array_bytes(FAKE, 3, 160 * MIB)


def test_a_device_without_caches_still_needs_some_memory() -> None:
    bare = replace(FAKE, caches=())
    assert sizes.array_bytes(bare, 1, GIB) == 128 * MIB
    with pytest.raises(ResourceError):
        sizes.array_bytes(bare, 1, MIB)


def test_capacity_a_thread_follows_from_who_shares_an_instance() -> None:
    l3 = Cache("L3", 32 * MIB, 8, 4)
    assert sizes.capacity(l3, 1) == 32 * MIB
    assert sizes.capacity(l3, 4) == 32 * MIB
    assert sizes.capacity(l3, 32) == 4 * MIB


def test_plateaus_lie_between_the_capacities() -> None:
    flat, missing = sizes.plateaus(FAKE, 2)
    assert missing == []
    assert flat["L1"] == 16 << 10
    # Geometric mean of twice the lower and half the own capacity; L3 is shared by two.
    assert flat["L2"] == round(math.sqrt(64 * 256)) << 10
    assert flat["L3"] == 2 * MIB
    assert sizes.plateaus(FAKE, 1)[0]["L3"] == round(math.sqrt(512 * 16384)) << 10


def test_a_level_that_holds_no_more_than_the_one_below_has_no_plateau() -> None:
    flat, missing = sizes.plateaus(BIG, 256)
    assert list(flat) == ["L1", "L2"]
    assert missing == [
        "L3 with 256 threads: 4 MiB a thread is less than 4x the level below, no working set lies in it alone"
    ]
    assert sizes.plateaus(BIG, 1)[0]["L3"] > 4 * (2 << 20)


def test_working_sets_reach_from_4_kib_to_4x_the_last_level() -> None:
    grid = sizes.working_sets(FAKE, 1, FAKE.memory_bytes, 1.0, fine=True)
    assert grid[0] == 4096 and grid[-1] == 64 * MIB
    assert grid == sorted(set(grid)) and all(s % 1024 == 0 for s in grid)
    near = [s for s in grid if 0.6 * 512 <= s / 1024 <= 1.6 * 512]
    far = [s for s in grid if 1.7 * 512 <= s / 1024 <= 0.6 * 16384]
    assert len(near) == 5 and len(far) == 4


def test_working_sets_of_all_threads_stay_inside_the_memory() -> None:
    small = replace(BIG, memory_bytes=2 * GIB)
    assert max(sizes.working_sets(small, 256, 2 * GIB, 1.0, fine=False)) * 256 <= GIB


def test_where_a_level_may_be_hidden_sets_reach_as_far_as_arrays() -> None:
    """Two levels reported, as on an Arm server whose system cache is not: 4x L2 could lie inside that."""
    bare = replace(FAKE, caches=FAKE.caches[:2])
    assert sizes.working_sets(bare, 1, FAKE.memory_bytes, 1.0, fine=False)[-1] == 128 * MIB
    assert sizes.chase_sets(bare, FAKE.memory_bytes)[0]["DRAM"] == 128 * MIB
    assert sizes.beyond_caches(bare, 2, FAKE.memory_bytes) == 64 * MIB
    assert sizes.beyond_caches(FAKE, 1, FAKE.memory_bytes) == 64 * MIB
    guest = replace(FAKE, facts={"virtual_machine": "kvm"})  # whose L3 may be a part of what there is
    assert sizes.working_sets(guest, 1, FAKE.memory_bytes, 1.0, fine=False)[-1] == 128 * MIB
    gpu = replace(bare, facts={"unit": "SM"}, kind="cuda")
    grid = sizes.working_sets(gpu, 1, FAKE.memory_bytes, 1.0, fine=True)
    assert gpu.is_gpu and grid[-1] == 2 * MIB
    behind_half = [s for s in grid if 256 * 1024 < s < 512 * 1024]
    assert len(behind_half) >= 6, "an L2 in two parts has a plateau there"


def test_the_latency_of_dram_is_not_given_up() -> None:
    """A cycle through it is the dearest of all to write: by cost alone it would go first."""
    kept = [p.point for p in of_family("latency", "standard") if p.priority == 0]
    assert [(p.kernel, p.level, p.variant, p.threads) for p in kept] == [("chase", "DRAM", "1 chain", 1)]


def test_levels_are_named_by_what_holds_the_set() -> None:
    names = [sizes.level_of(FAKE, kib << 10, 2) for kib in (32, 33, 512, 513, 8192, 8193)]
    assert names == ["L1", "L2", "L2", "L3", "L3", "DRAM"]


@pytest.mark.parametrize("item", [4, 8])
@pytest.mark.parametrize("write_back", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_intensities_reach_from_one_fma_to_512_flop_a_byte(item: int, write_back: bool, dense: bool) -> None:
    counts = sizes.fma_counts(item, write_back, dense)
    per_block = item * (12 if write_back else 6)
    assert counts[0] == 1
    assert 512 <= counts[-1] / per_block < (1024 if dense else 2048)
    assert all(c < 12 or c % 12 == 0 for c in counts) and counts == sorted(set(counts))
    if item == 8 and write_back:
        assert counts[0] / per_block == 1 / 96


def test_matrices_grow_with_the_threads_and_fit_the_memory() -> None:
    assert sizes.matrix_sizes(2, 8e9, dense=True) == [256, 512, 1024]
    assert max(sizes.matrix_sizes(256, 1e12, dense=True)) == 8192
    assert max(sizes.matrix_sizes(256, 1e9, dense=True)) == 1024


def _short(preset: str) -> list[Planned]:
    """Intensities in windows of their own; those of other families are doublings."""
    found = (p for p in planned(preset).points if p.point.family == "mix")
    return [p for p in found if p.target < 1e-3]


def test_short_repetitions_of_two_intensities_let_t0_be_fitted() -> None:
    short = _short("standard")
    assert {(p.point.kernel, p.point.sizes["fma"], p.target) for p in short} == {
        (kernel, fma, window * 1e-6)
        for kernel in ("mix-read-only", "mix-in-place")
        for fma in (3, 96)
        for window in (20, 50, 200)
    }
    (size,) = {p.point.sizes["bytes"] for p in planned("standard").points if p.point.family == "mix"}
    assert size > FAKE.last_level_cache_bytes, "over the same arrays: what is short is the repetition"
    assert not _short("quick")
    visits = {p.visits for p in planned("standard").points if p.point.family == "mix" and p not in short}
    assert visits == {2} and {p.visits for p in planned("quick").points if p.point.family == "mix"} == {1}


def test_every_family_is_planned_and_every_key_is_once() -> None:
    drafted = planned()
    assert {p.point.family for p in drafted.points} == set(FAMILIES) - {"tensor", "collective"}
    assert not any("tensor" in note for note in drafted.notes), "a CPU has no tensor units: nothing to miss"
    assert max(Counter(p.key for p in drafted.points).values()) == 1
    assert {p.point.scope for p in drafted.points if p.point.family == "fma"} == {"all", "core"}


def test_presets_measure_more_with_more_time() -> None:
    counts = [len(planned(name).points) for name in ("quick", "standard", "full")]
    assert counts[0] < 0.5 * counts[1] < 0.5 * counts[2]
    assert PRESETS["quick"].minutes == 1 and PRESETS["standard"].least_rounds >= 5
    assert [preset_for(m) for m in (1, 3, 15)] == ["quick", "standard", "full"]


def test_stores_and_accesses_of_the_streams() -> None:
    found = {
        (p.point.kernel, p.point.access, p.point.store)
        for p in planned("full").points
        if p.point.family == "stream" and p.point.scope == "all"
    }
    assert ("read", "read", "none") in found and ("update", "update", "ordinary") in found
    assert ("scale", "copy", "nontemporal") in found and ("add", "triad", "ordinary") in found
    assert len(found) == 12


def test_a_missing_precision_is_planned_once_to_be_skipped() -> None:
    found = [p for p in planned().points if p.point.precision.inputs == "bf16"]
    assert [(p.point.family, p.tune) for p in found] == [("fma", "")]


def test_burst_points_are_the_peak_chains_on_all_threads() -> None:
    found = [p.point for p in planned("full").points if p.regime == "burst"]
    assert [(p.kernel, p.scope, p.precision.inputs) for p in found] == [
        ("fma", "all", "fp64"),
        ("fma", "all", "fp32"),
    ]
    assert not [p for p in planned("standard").points if p.regime == "burst"]


def test_caps_depend_on_the_quantity_and_the_machine() -> None:
    def caps(device):  # type: ignore[no-untyped-def]
        drafted = plan(device, FakeBackend().variants, "standard")
        return {p.point.family: p.cap for p in drafted.points if p.priority < 2}

    found = caps(FAKE)
    own = {"fma": 0.02, "stream": 0.10, "mix": 0.10, "gemm": 0.02, "cache": 0.05}
    assert {family: found[family] for family in own} == own
    assert caps(BIG)["stream"] == 0.03

    def latencies(device):  # type: ignore[no-untyped-def]
        drafted = plan(device, FakeBackend().variants, "quick", families=["latency"])
        return {p.point.level: p.cap for p in drafted.points if p.priority < 2}

    assert latencies(FAKE) == {"L1": 0.05, "L2": 0.05, "L3": 0.05, "DRAM": 0.10}
    assert latencies(BIG)["DRAM"] == 0.03


def test_the_pilot_tries_every_variant_of_every_choice_headlines_first() -> None:
    drafted = planned()
    tried = Counter(p.tune for p in drafted.pilot)
    assert set(tried) == set(drafted.guesses) and set(tried.values()) == {2}
    kernels = [p.point.kernel for p in drafted.pilot]
    assert kernels[:4] == ["fma"] * 4 and set(kernels[4:10]) == {"read", "triad"}
    assert all(p.regime == "pilot" for p in drafted.pilot)
    at = {p.tune: p.point.sizes["fma"] for p in drafted.pilot if p.point.kernel == "mix-in-place"}
    assert sorted(at.values()) == [3, 3, 96, 96]


def test_winners_replace_the_first_guess_where_they_were_chosen() -> None:
    drafted = planned()
    settled = drafted.settled({"fma/fp64/all": "second"})
    chosen = {
        (p.point.precision.inputs, p.point.scope): p.point.variant for p in settled if p.tune[:4] == "fma/"
    }
    assert chosen[("fp64", "all")] == "second" and chosen[("fp64", "core")] == "first"
    naive = [p for p in settled if p.point.kernel == "fma-naive"]
    assert {p.point.variant for p in naive} == {"numba"}


def test_quick_lets_one_core_use_what_won_on_all_threads() -> None:
    drafted = planned("quick")
    assert all(p.point.scope == "all" for p in drafted.pilot)
    assert {p.tune for p in drafted.points if p.point.family == "fma" and p.tune} == {"fma/fp64", "fma/fp32"}


def test_one_variant_needs_no_pilot() -> None:
    drafted = plan(FAKE, lambda *_: ("only",), "quick")
    assert drafted.pilot == () and {p.point.variant for p in drafted.settled({}) if p.tune} == {"only"}


def test_filters() -> None:
    drafted = planned(families=["fma"], precisions=["fp32"], threads=1)
    assert {(p.point.family, p.point.precision.inputs) for p in drafted.points} == {("fma", "fp32")}
    assert {p.point.threads for p in drafted.points} == {1}
    assert "mix: not asked for" in drafted.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ["fmaa"]}, "unknown family 'fmaa'; valid: fma, stream"),
        ({"precisions": ["fp63"]}, "unknown precision 'fp63'; this device knows: fp64, fp32, bf16"),
        ({"threads": 3}, "--threads 3: this device has 1 to 2"),
        ({"threads": 0}, "--threads 0"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(**options)
    with pytest.raises(UsageError, match="unknown preset 'fast'; valid: quick, standard, full"):
        planned("fast")


def test_a_device_of_256_threads_is_planned_within_its_memory() -> None:
    drafted = plan(BIG, FakeBackend().variants, "full")
    largest = max(
        p.point.sizes["bytes"] * p.point.threads for p in drafted.points if p.point.family == "cache"
    )
    assert largest <= BIG.memory_bytes / 2
    fewer = {p.point.threads for p in drafted.points if p.point.family not in ("scaling", "overlap")}
    assert fewer == {1, 256}
    assert any("cache plateau of L3 with 256 threads" in note for note in drafted.notes)


# the memory hierarchy


def of_family(family: str, preset: str, device: Device = FAKE) -> list[Planned]:
    drafted = plan(device, FakeBackend().variants, preset, families=[family])
    return [p for p in drafted.points if p.point.family == family and "window" not in p.point.sizes]


def flat(points: list[Planned]) -> set[tuple[str, str, str]]:
    return {
        (p.point.access, p.point.scope, p.point.level) for p in points if p.point.sizes.get("plateau", 0) == 1
    }


def test_every_access_has_a_plateau_in_every_level() -> None:
    accesses, levels = ("read", "write", "update", "copy"), ("L1", "L2", "L3")
    everywhere = {(a, s, level) for a in accesses for s in ("all", "core") for level in levels}
    assert flat(of_family("cache", "standard")) == flat(of_family("cache", "full")) == everywhere
    assert flat(of_family("cache", "quick")) == {k for k in everywhere if k[0] == "read" or k[1] == "all"}


@pytest.mark.parametrize(
    ("preset", "steps", "swept"),
    [
        ("quick", 2.0, {("read", "all")}),
        ("standard", 2**0.5, {("read", "core"), *product(("read", "write", "update", "copy"), ("all",))}),
        ("full", 2**0.25, set(product(("read", "write", "update", "copy"), ("all", "core")))),
    ],
)
def test_working_sets_are_swept_as_densely_as_time_allows(
    preset: str, steps: float, swept: set[tuple[str, str]]
) -> None:
    points = [p.point for p in of_family("cache", preset) if "plateau" not in p.point.sizes]
    assert {(p.access, p.scope) for p in points} == swept
    read = sorted(p.sizes["bytes"] for p in points if (p.access, p.scope) == ("read", "all"))
    # 4x the half of L3 that each of two threads has
    assert read[0] == 4096 and read[-1] == 4 * 8 * MIB
    # sets are whole KiB: from 16 on that changes less than 6 %
    assert max(b / a for a, b in itertools.pairwise(read) if a >= 16 << 10) <= steps * 1.06
    stores = {p.access: p.store for p in points}
    assert set(stores.values()) - {"ordinary"} == {"none"} and stores["read"] == "none"


def test_around_each_capacity_neighbouring_sets_tell_it_within_a_quarter() -> None:
    read = [p.point for p in of_family("cache", "standard") if p.point.access == "read"]
    sets = sorted({p.sizes["bytes"] for p in read if p.scope == "core" and "plateau" not in p.sizes})
    for cache in FAKE.caches:
        below = max(s for s in sets if s <= cache.bytes)
        above = min(s for s in sets if s > cache.bytes)
        assert above / below < 1.25**2, "the middle of the two is within a quarter of either"


def test_chases_of_one_chain_have_a_set_in_every_level() -> None:
    points = [p for p in of_family("latency", "quick") if "plateau" in p.point.sizes]
    single = {p.point.level: p.point.sizes["bytes"] for p in points if p.point.variant == "1 chain"}
    # L1: half of it; above: three times the level below, or the middle; DRAM: four times the last level
    assert single == {"L1": 16 << 10, "L2": 96 << 10, "L3": 1536 << 10, "DRAM": 64 * MIB}
    assert {(p.point.scope, p.point.threads) for p in points} == {("core", 1)}


def test_no_chase_in_dram_where_memory_cannot_exceed_the_caches() -> None:
    found, missing = sizes.chase_sets(FAKE, 32 * MIB)
    assert "DRAM" not in found and missing == [
        "DRAM: 16 MiB may be used, 32 MiB are needed beyond the caches"
    ]
    drafted = plan(FAKE, FakeBackend().variants, "quick", families=["latency"], memory=32 * MIB)
    assert any(note.startswith("latency of DRAM") for note in drafted.notes)


def test_more_chains_walk_the_set_that_one_chain_walks() -> None:
    points = [p.point for p in of_family("latency", "standard")]
    crowds: dict[tuple[str, int], dict[int, int]] = {}
    for p in points:
        if p.kernel == "chase" and "plateau" in p.sizes:
            chains = int(p.variant.split()[0])
            crowds.setdefault((p.level, p.threads), {})[chains] = p.sizes["bytes"]
    many = (1, 2, 4, 6, 8, 12, 16, 24, 32)
    assert {key for key, found in crowds.items() if tuple(found) == many} == {
        ("L3", 1),
        ("DRAM", 1),
        ("DRAM", 2),
    }
    assert all(len(set(found.values())) == 1 for found in crowds.values())
    assert crowds["DRAM", 2][1] == 32 * MIB, "each of two threads has half of the last level"
    local = [p for p in points if p.kernel == "chase-local"]
    assert [(p.level, p.variant) for p in local] == [("DRAM", "1 chain")]


def test_beta_and_pi_are_planned_on_a_growing_number_of_threads() -> None:
    points = [p.point for p in of_family("scaling", "standard", BIG)]
    threads = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    grown: dict[tuple[str, str], list[int]] = {}
    for p in points:
        grown.setdefault((p.kernel, p.level), []).append(p.threads)
    wanted = {("fma", ""), ("read", "DRAM"), ("cache-read", "L1"), ("cache-read", "L2")}
    assert set(grown) == wanted and all(found == threads for found in grown.values())
    assert {p.scope for p in points if p.threads == 256} == {"all"}
    assert {p.scope for p in points if p.threads < 256} == {"core"}
    sets = {(p.level, p.sizes["bytes"]) for p in points if p.kernel == "cache-read"}
    assert len(sets) == 2, "the same work for each thread, however many there are"
    few = {p.point.threads for p in of_family("scaling", "quick", replace(BIG, threads=100))}
    assert few == {1, 4, 16, 64, 100}


def test_scaling_shares_the_forms_that_the_families_chose() -> None:
    drafted = planned("standard")
    scaled = {p.tune for p in drafted.points if p.point.family == "scaling"}
    others = {p.tune for p in drafted.points if p.point.family in ("fma", "stream", "cache")}
    assert scaled and scaled <= others
    assert not {p.point.family for p in drafted.pilot} & {"scaling", "latency"}


def test_one_thread_does_not_scale() -> None:
    drafted = plan(replace(FAKE, threads=1), FakeBackend().variants, "quick", families=["scaling", "fma"])
    assert "scaling: there is one thread only" in drafted.notes
    assert not [p for p in drafted.points if p.point.family == "scaling"]
