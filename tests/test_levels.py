"""Staircases, links, pipelines and parallelism whose truth is known: found, named rightly or not at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import truth_of
from bench.fitting import alpha_beta, level_names, levels, parallelism, pipelining, swept
from bench.fitting.pooled import Pooled
from bench.planning import sizes
from bench.planning.gpu_budget import BUDGETS
from bench.planning.plan import plan
from bench.profile.records import Interval, Point, Precision, Repetitions, Sample
from tests.fake_device import FAKE, FakeBackend
from tests.level_evaluation import _round, is_gpu, judge, truth

KIB, MIB = 1 << 10, 1 << 20
GRID = [4 * KIB * 2 ** (i / 4) for i in range(64)]
"""4 KiB to 220 MiB, four an octave."""


def stairs(
    steps: Sequence[tuple[float, float]], last: float, noise: float = 0.0, rounds: int = 5
) -> list[list[float]]:
    """Rates over GRID in every round: `value` up to `capacity` for each step, then `last`."""
    rng = np.random.default_rng(3)
    flat = [next((v for c, v in steps if x <= c), last) for x in GRID]
    return [[v * math.exp(rng.normal(0, noise)) for _ in range(rounds)] for v in flat]


CPU = {"L1": 32.0 * KIB, "L2": 512.0 * KIB, "L3": 16.0 * MIB}
STEPS = [(32 * KIB, 200e9), (512 * KIB, 100e9), (16 * MIB, 50e9)]


def names(found: Sequence[level_names.Level]) -> list[str]:
    return [level.name for level in found]


def test_every_level_of_a_staircase_is_found_with_its_rate_and_capacity() -> None:
    found = level_names.named(levels.detect(GRID, stairs(STEPS, 10e9, 0.01)), CPU)
    assert names(found) == ["L1", "L2", "L3", "DRAM"]
    for level, (size, value) in zip(found, STEPS, strict=False):
        assert level.plateau.value.value == pytest.approx(value, rel=0.02)
        assert level.plateau.capacity is not None
        # the grid has four sizes an octave: the edge lies between two of them
        assert 1.0 <= level.plateau.capacity.value / size <= 2 ** (1 / 4)
        assert (level.plateau.seen, level.plateau.rounds) == (5, 5)
    assert found[-1].plateau.capacity is None
    assert level_names.invisible(found, CPU) == []


def test_noise_makes_no_levels() -> None:
    (only,) = levels.detect(GRID, stairs([], 10e9, 0.04))
    assert (only.low, only.high) == (GRID[0], GRID[-1]) and only.capacity is None
    assert levels.detect(GRID[:7], stairs([], 10e9)[:7]) == ()
    with pytest.raises(ValueError, match="do not fit together"):
        levels.detect(GRID[:9], stairs([], 10e9))


def test_a_lone_outlier_and_a_slow_start_make_no_levels() -> None:
    rates = stairs(STEPS, 10e9, 0.005)
    rates[0], rates[1] = [100e9] * 5, [150e9] * 5
    rates[30] = [v * 0.4 for v in rates[30]]
    assert names(level_names.named(levels.detect(GRID, rates), CPU)) == ["L1", "L2", "L3", "DRAM"]


def test_a_virtual_machine_that_lies_about_its_share_is_explained() -> None:
    said = {**CPU, "L3": 64.0 * MIB}
    found = level_names.named(levels.detect(GRID, stairs(STEPS, 10e9, 0.01)), said)
    assert names(found) == ["L1", "L2", "L3", "DRAM"]
    assert "of the 64 MiB L3 that the system reports: a virtual machine or a share" in found[2].why


def test_a_cache_that_holds_what_the_one_before_it_drops_is_as_reported() -> None:
    said = {"L1": 32.0 * KIB, "L2": 4.0 * MIB, "L3": 12.0 * MIB}
    steps = [(32 * KIB, 200e9), (4 * MIB, 100e9), (16 * MIB, 50e9)]
    found = level_names.named(levels.detect(GRID, stairs(steps, 10e9)), said)
    assert [(level.name, level.why) for level in found][2] == (
        "L3",
        "as reported together with the level before it",
    )


def test_what_no_reported_level_explains_has_no_name() -> None:
    steps = [(32 * KIB, 200e9), (128 * KIB, 150e9), (512 * KIB, 100e9), (16 * MIB, 50e9)]
    found = level_names.named(levels.detect(GRID, stairs(steps, 10e9)), CPU)
    assert names(found) == ["L1", "", "L2", "L3", "DRAM"]
    assert "no reported level ends at" in found[1].why
    assert names(level_names.named(levels.detect(GRID, stairs(STEPS, 10e9)), {})) == ["", "", "", ""]


def test_a_level_that_does_not_show_is_said_and_the_next_is_not_called_by_its_name() -> None:
    steps = [(32 * KIB, 200e9), (512 * KIB, 100e9)]
    found = level_names.named(levels.detect(GRID, stairs(steps, 50e9)), CPU)
    assert names(found) == ["L1", "L2", ""]  # L3 or DRAM: nothing changes at 16 MiB
    assert found[-1].why.startswith("L3 or DRAM: nothing changes at the 16 MiB")
    assert level_names.invisible(found, CPU) == ["L3"]
    short = levels.detect(GRID[:40], stairs(STEPS, 10e9)[:40])  # ends at 3.4 MiB
    assert level_names.named(short, CPU)[-1].why == "the sweep ends inside the reported caches"


def test_a_level_that_nobody_reports_is_not_called_dram() -> None:
    """An L3 of 32 MiB that the system hides; the sweep that is planned reaches behind it."""
    values = truth(2) | {"noise": {"within": 0.01, "between": 0.01}}
    one = {"sharers": 1, "instances": 1, "edge": 1.5}
    held = [("L1", 64 * KIB, 200e9), ("L2", MIB, 100e9), ("L3", 32 * MIB, 50e9)]
    values["caches"] = [{"level": n, "bytes": b, "read": v, "copy": v, **one} for n, b, v in held]
    values["caches"][2]["reported"] = 0
    values["memory"] |= {"read": 10e9}
    device = SimulatedBackend("hidden", truth_of(values, "test"))
    sets = sizes.working_sets(device.device, 1, 64e9, 4, True)
    rates = [list(row) for row in zip(*(_round(device, r, sets) for r in range(1, 6)), strict=True)]
    found = level_names.named(levels.detect(sets, rates), {"L1": 64.0 * KIB, "L2": float(MIB)})
    assert names(found) == ["L1", "L2", "", "DRAM"]
    assert "no reported level ends at" in found[2].why
    assert found[3].plateau.value.value == pytest.approx(10e9, rel=0.05)


def test_the_near_part_of_a_gpus_l2_is_shown_as_a_plateau_of_its_own() -> None:
    said = {"L1": 128.0 * KIB, "L2": 48.0 * MIB}
    steps = [(128 * KIB, 900e9), (24 * MIB, 300e9), (48 * MIB, 220e9)]
    found = level_names.named(levels.detect(GRID, stairs(steps, 80e9, 0.01)), said, is_gpu=True)
    assert names(found) == ["L1", "L2 near part", "L2", "DRAM"]


def test_a_slope_is_no_level() -> None:
    rates = [[200e9 * (x / GRID[0]) ** -0.25] * 5 for x in GRID]
    assert len(levels.detect(GRID, rates)) <= 1


def test_random_devices_are_found_and_never_named_wrongly() -> None:
    results = [judge(truth(seed)) for seed in range(16)]
    assert sum(r.wrong for r in results) == 0
    assert sum(r.found for r in results) >= 0.95 * sum(r.there for r in results)
    assert sum(r.named for r in results) >= 0.95 * sum(r.there for r in results)


def test_the_standard_sweep_of_a_gpu_finds_the_levels_of_random_ones() -> None:
    budget = BUDGETS["standard"]
    gpus = [values for values in map(truth, range(60)) if is_gpu(values)]
    results = [judge(values, budget.detail_rounds, budget.sets) for values in gpus]
    assert len(results) >= 20 and sum(r.wrong for r in results) == 0
    assert sum(r.found == r.there for r in results) >= 0.95 * len(results), "one set an octave: 0.80"


SIZES = [float(1 << k) for k in range(10, 31)]


def link(lines: Sequence[tuple[float, float]], choose: type | object = min) -> list[list[float]]:
    """Times over SIZES in five rounds with 2 % between and 1 % within."""
    rng = np.random.default_rng(5)
    rounds = np.exp(rng.normal(0, 0.02, 5))
    pick = max if choose is max else min
    return [
        [pick(a + v / b for a, b in lines) * r * math.exp(rng.normal(0, 0.01)) for r in rounds] for v in SIZES
    ]


@pytest.mark.parametrize(
    ("lines", "choose", "form", "half"),
    [
        ([(8e-6, 25e9)], min, alpha_beta.LINE, 200e3),
        # half of 25 GB/s is reached on the second line: 20 us x 25 GB/s
        ([(5e-6, 2e9), (20e-6, 25e9)], min, alpha_beta.LEAST, 500e3),
        # on the first: 8 us + V / 25e9 = 2 V / 12e9
        ([(8e-6, 25e9), (1e-6, 12e9)], max, alpha_beta.MOST, 8e-6 / (2 / 12e9 - 1 / 25e9)),
    ],
)
def test_links_are_fitted_in_the_form_that_made_them(
    lines: Sequence[tuple[float, float]], choose: object, form: str, half: float
) -> None:
    found = alpha_beta.fit(SIZES, link(lines, choose))
    assert found is not None and found.form == form
    assert found.alpha.value == pytest.approx(lines[0][0], rel=0.05)
    assert found.beta.value == pytest.approx(lines[-1][1], rel=0.05)
    assert found.half_bytes.value == pytest.approx(half, rel=0.05)
    assert found.rms < 0.02 and found.reached == pytest.approx(1.0, abs=0.05)
    assert found.beta.low is not None and found.beta.high is not None
    assert found.beta.low < found.beta.value < found.beta.high < 1.1 * found.beta.low


def test_too_few_sizes_have_no_line_and_too_few_for_two_lines_have_one() -> None:
    times = link([(5e-6, 2e9), (20e-6, 25e9)])
    assert alpha_beta.fit(SIZES[:2], times[:2]) is None
    few = alpha_beta.fit(SIZES[::3], times[::3])
    assert few is not None and few.form == alpha_beta.LINE and set(few.aicc) == {alpha_beta.LINE}


def test_a_sweep_that_stays_small_says_what_it_reached() -> None:
    found = alpha_beta.fit(SIZES[:6], link([(8e-6, 25e9)])[:6])  # up to 32 KiB: 1.3 us of 9.3
    assert found is not None and found.reached < 0.3


def test_an_alpha_that_the_sizes_do_not_tell_is_a_bound() -> None:
    """From 1 MiB on beta decides a transfer's time: rounds put alpha anywhere, or at its floor."""
    told = alpha_beta.fit(SIZES, link([(8e-6, 25e9)]))
    assert told is not None and told.has_alpha
    assert swept._line_record(told)["alpha_s"] == pytest.approx(8e-6, rel=0.05)
    large, times = SIZES[10::4], link([(8e-9, 2e9)])[10::4]
    found = alpha_beta.fit(large, times)
    assert found is not None and not found.has_alpha
    record = swept._line_record(found)
    assert (record["alpha_s"], record["alpha_low"], record["half_bytes"]) == (None, None, None)
    assert record["alpha_high"] == pytest.approx(float(np.median(times[0])))  # of the smallest transfer
    assert record["half_high"] == pytest.approx(record["alpha_high"] * record["beta"])
    assert record["beta"] == pytest.approx(2e9, rel=0.05)


@pytest.mark.parametrize("rounds", [1, 5])
def test_an_alpha_at_its_floor_is_a_bound_however_alike_the_rounds(rounds: int) -> None:
    """Times in proportion to the sizes: every round says 0, and a single one has no interval to say so."""
    found = alpha_beta.fit(SIZES, [[v / 2e9] * rounds for v in SIZES])
    assert found is not None and not found.has_alpha
    assert swept._line_record(found)["alpha_high"] == SIZES[0] / 2e9
    told = alpha_beta.fit(SIZES, [[1e-6 + v / 2e9] * rounds for v in SIZES])
    assert told is not None and told.has_alpha and told.alpha.value == pytest.approx(1e-6, rel=1e-3)


CHUNKS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]


def piped(
    drift: Sequence[float], alpha: float = 20e-6, slowed: float = 1.0, noise: float = 0.0
) -> tuple[list[list[float]], list[float], list[float]]:
    """T(k), T_c and T_m of visits in which the link is slower by `drift`: computing 4 ms, moving 2 ms."""
    rng = np.random.default_rng(7)
    movement, compute = [2e-3 * d for d in drift], [4e-3] * len(drift)

    def taken(k: float, moving: float) -> float:
        total, longest = moving + 4e-3, max(moving, 4e-3)
        clean = pipelining.law(k, total, longest, alpha if k > 1 else 0.0, slowed if k > 1 else 1.0)
        return clean * math.exp(rng.normal(0, noise))

    return [[taken(k, m) for m in movement] for k in CHUNKS], compute, movement


def test_a_pipeline_shows_what_it_hid_and_the_best_number_of_chunks() -> None:
    times, compute, movement = piped([1.0] * 5)
    found = pipelining.describe(CHUNKS, times, compute, movement)
    assert found["predicted_chunks"] == found["best_chunks"] == 8  # sqrt(2 ms / 20 us) = 10
    assert found["chunk_s"] == pytest.approx(20e-6) and found["slowed"] == pytest.approx(1.0)
    best = pipelining.law(8, 6e-3, 4e-3, 20e-6)
    assert found["omega"] == pytest.approx((6e-3 - best) / 2e-3) and found["best_seconds"] == pytest.approx(
        best
    )
    assert (found["serial_seconds"], found["max_seconds"], found["between_laws"]) == (6e-3, 4e-3, True)
    serial = pipelining.describe(CHUNKS, [[6e-3] * 5] * 7, compute, movement)
    assert serial["omega"] == 0.0


def test_a_link_that_drifts_between_visits_does_not_widen_the_overlap() -> None:
    """A link that is up to twice as slow at other moments: omega is of one moment, so it is narrow."""
    times, compute, movement = piped([0.7, 1.0, 1.4, 0.8, 1.9, 1.1], noise=0.01)
    found = pipelining.describe(CHUNKS, times, compute, movement)
    assert found["omega_high"] - found["omega_low"] < 0.16
    assert 0.75 < found["omega"] < 0.97 and found["between_laws"] and found["visits"] == 6
    apart = pipelining.describe(CHUNKS, times, compute, movement[3:] + movement[:3])
    assert apart["omega_high"] - apart["omega_low"] > 2 * (found["omega_high"] - found["omega_low"])
    beside = pipelining.describe(CHUNKS, times, [compute] * 7, [movement] * 7)  # parts beside every k
    assert beside == found


def test_the_neighbours_of_the_best_k_that_cannot_be_told_from_it_are_named() -> None:
    times, compute, movement = piped([1.0, 1.2, 0.9, 1.1, 1.0, 0.95], noise=0.02)
    found = pipelining.describe(CHUNKS, times, compute, movement)
    assert found["best_from"] <= 8 <= found["best_to"] and found["best_from"] > 1 and found["best_to"] < 64
    sharp = pipelining.describe(CHUNKS, *piped([1.0, 1.2, 0.9, 1.1, 1.0, 0.95], noise=1e-6))
    assert sharp["best_from"] == sharp["best_to"] == sharp["best_chunks"]


def test_parts_that_slow_each_other_down_do_not_pass_for_the_cost_of_chunks() -> None:
    """A fifth slower while they overlap: with that counted, alpha and the best k are what they are."""
    times, compute, movement = piped([1.0] * 4, alpha=20e-6, slowed=1.2)
    found = pipelining.describe(CHUNKS, times, compute, movement)
    assert found["slowed"] == pytest.approx(1.2, rel=0.01) and found["chunk_s"] == pytest.approx(
        20e-6, rel=0.02
    )
    assert found["predicted_chunks"] == found["best_chunks"] == 8  # sqrt(1.2 ms / 20 us) = 7.7


def test_littles_law_beside_a_measured_curve() -> None:
    in_flight = [64.0 * k for k in (1, 2, 4, 8, 16, 32, 64)]
    latency, beta = 100e-9, 12.8e9  # 1280 byte in flight
    rates = [min(x / latency, beta) for x in in_flight]
    found = parallelism.concurrency(in_flight, rates, latency)
    assert found["little_bytes"] == pytest.approx(1280)
    assert found["half_bytes"] == pytest.approx(640)
    assert found["first_ratio"] == pytest.approx(1.0) and found["rising"] is False
    assert parallelism.concurrency(in_flight[:4], rates[:4], latency)["rising"] is True


def test_slopes_per_unit_and_how_many_take_up_the_memory() -> None:
    units, rates = [1.0, 2.0, 4.0, 8.0], [10e9, 20e9, 36e9, 40e9]
    found = parallelism.cores(units, rates)
    assert (found["slope_first"], found["slope_all"], found["slope_last"]) == (10e9, 5e9, 1e9)
    assert found["efficiency"] == 0.5 and found["nearly_units"] == 4


def test_a_rate_that_falls_and_never_lies_flat_again_says_so() -> None:
    """The last plateau is not the end of the sweep: there is more behind it than the sweep tells."""
    flat = levels.Plateau(0, 6, 4096.0, 183296.0, Interval(12e12), None, 3, 3)
    known = {"L1": 262144.0, "L2": 786432.0}
    said = level_names.named([flat], known, True, 2097152.0)[0]
    assert said.name == "" and said.why.startswith("the rate falls behind 179 KiB")
    assert level_names.named([flat], known, True, 183296.0)[0].why.startswith("the sweep ends inside")


def test_what_a_level_holds_is_not_told_where_the_next_one_is_not_seen() -> None:
    known = {"L1": 32768.0, "L2": 524288.0, "L3": 33554432.0}
    first = levels.Plateau(0, 2, 4096.0, 16384.0, Interval(2.5e11), Interval(57000.0, 55000.0, 59000.0), 4, 4)
    third = levels.Plateau(8, 10, 1048576.0, 4194304.0, Interval(1e11), None, 4, 4)
    found = level_names.named([first, third], known, end=134217728.0)[0]
    assert (found.name, found.record["capacity_bytes"]) == ("L1", None)
    assert found.why == "as reported; where it ends cannot be told without L2 behind it"
    near = dataclasses.replace(first, capacity=Interval(36000.0))
    assert level_names.named([near, third], known, end=134217728.0)[0].record["capacity_bytes"] == 36000.0
    second = levels.Plateau(4, 6, 65536.0, 262144.0, Interval(1.5e11), Interval(600000.0), 4, 4)
    seen = level_names.named([first, second, third], known, end=134217728.0)
    assert [level.record["capacity_bytes"] for level in seen] == [57000.0, 600000.0, None]


def test_a_slow_fall_is_named_and_told() -> None:
    """16 KiB flat, half-way down at 491 KiB: L1 by what is reported, and no capacity is read from it."""
    first = levels.Plateau(0, 2, 4096.0, 16384.0, Interval(1e9), Interval(502848.0), 4, 4)
    last = levels.Plateau(11, 15, 8388608.0, 134217728.0, Interval(5e6), None, 4, 4)
    said = level_names.named([first, last], {"L1": 32768.0, "L2": 524288.0, "L3": 33554432.0})[0]
    assert (said.name, said.why.split(",")[0]) == ("L1", "as reported") and said.why.endswith("a slow fall")


def visited(size: int, visits: Sequence[tuple[int, int, float]]) -> Pooled:
    """A working set with (round, visit, byte/s), one repetition each."""
    point = Point("cache", "cache-read", "", Precision.of("fp64"), "L1", "read", sizes={"bytes": size})
    samples = [
        Sample(point, r, r, 0, v, bytes_read=1e6, repetitions=Repetitions((0.0,), (1e6 / rate,)))
        for r, v, rate in visits
    ]
    return Pooled(point, "typical", tuple(samples))


def test_a_disturbed_pass_does_not_hide_a_level() -> None:
    """One round, four passes, one of which another tenant halves in part: every pass is a column."""
    flat = [next((v for c, v in STEPS if x <= c), 10e9) for x in GRID]
    points = [
        visited(int(x), [(1, p, v * (0.5 if p == 2 and i % 3 == 0 else 1.0)) for p in range(4)])
        for i, (x, v) in enumerate(zip(GRID, flat, strict=True))
    ]
    rates = swept.passes(points)
    assert {len(row) for row in rates} == {4} and rates[0][2] == pytest.approx(flat[0] / 2)
    assert names(level_names.named(levels.detect(GRID, rates), CPU)) == ["L1", "L2", "L3", "DRAM"]
    lacking = [*points[:-1], visited(int(GRID[-1]), [(1, 0, 3e9)])]
    assert swept.passes(lacking)[-1] == [3e9] * 4  # its own rate stands for the passes that it lacks


def test_sweeps_over_working_sets_are_planned_in_passes() -> None:
    drafted = plan(FAKE, FakeBackend().variants, "standard", families=["cache", "latency"])
    chained = [p for p in drafted.points if p.point.family == "cache" or p.point.variant == "1 chain"]
    sweeps = [p for p in chained if "plateau" not in p.point.sizes]
    planned = {(p.point.family, p.visits, p.times) for p in sweeps}
    assert planned == {("cache", 3, 1), ("latency", 1, 1)}
    assert all(p.visits * p.minimum >= 5 for p in sweeps)
    full = plan(FAKE, FakeBackend().variants, "full", families=["cache"])
    assert {p.visits for p in full.points if "plateau" not in p.point.sizes} == {1}  # rounds enough
