"""Ceilings, curves and what is absent, derived from hand-built samples with exact expected values."""

from __future__ import annotations

import math

import pytest

from bench.fitting.ceilings import derive
from bench.profile.records import (
    SCHEMA_VERSION,
    Point,
    Precision,
    Repetitions,
    Sample,
)
from tests.ceiling_samples import FP32, FP64, HEADER, NAIVE, PEAK, READ, one, point, profile, rounds, sample


def test_pi_is_the_median_over_rounds_of_the_p75_of_clean_repetitions() -> None:
    # p75 of 1..5 is 4 and of ten times as much 40: five rounds at 4, 8, 12, 16, 20 GFLOP/s
    samples = [sample(PEAK, n, [n * 1e9 * r for r in (5, 3, 1, 2, 4)]) for n in range(1, 6)]
    found = one(samples)
    assert found.estimate.value == pytest.approx(12e9)
    logs = [math.log(4e9 * n) for n in range(1, 6)]
    mean = sum(logs) / 5
    reach = 2.776445 * math.sqrt(sum((v - mean) ** 2 for v in logs) / 4) / math.sqrt(5)
    assert found.estimate.low == pytest.approx(math.exp(mean - reach), rel=1e-6)
    assert found.estimate.high == pytest.approx(math.exp(mean + reach), rel=1e-6)
    assert (found.quantity, found.statistic, found.unit, found.rounds) == ("pi", "p75", "FLOP/s", 5)
    assert (found.cap, found.converged) == (0.02, False)
    assert found.best == pytest.approx(25e9)
    assert (found.kernel, found.variant, found.regime, found.threads) == ("fma", "12 chains", "typical", 2)


def test_the_visits_of_a_round_are_one_estimate() -> None:
    """Five rounds of two visits: p75 over both, and an interval from five values, not from ten."""
    samples = [
        sample(PEAK, n, [n * 1e9 * r for r in rates], visit=visit)
        for n in range(1, 6)
        for visit, rates in enumerate([(1, 1, 1, 1, 1), (4, 4, 4, 4, 4)])
    ]
    found = one(samples)
    assert (found.rounds, found.estimate.value) == (5, pytest.approx(12e9))
    assert found.estimate == one([sample(PEAK, n, [n * 4e9] * 5) for n in range(1, 6)]).estimate


def test_the_variant_of_a_ceiling_wins_by_the_statistic_of_that_ceiling() -> None:
    """The higher p75 makes pi, the higher median makes beta."""
    steady, uneven = [10e9] * 5, [1e9, 1e9, 1e9, 20e9, 20e9]
    for where, variant in ((PEAK, "uneven"), (READ, "steady")):
        forms = {"steady": steady, "uneven": uneven}
        samples = [
            sample(point(where, variant=v), n, rates) for n in range(1, 6) for v, rates in forms.items()
        ]
        assert one(samples).variant == variant


def test_beta_is_the_median_of_bytes_per_second() -> None:
    samples = [sample(READ, n, [1e9 * r for r in (10, 20, 30, 40, 90)]) for n in range(1, 6)]
    found = one(samples)
    assert found.estimate.value == pytest.approx(30e9)
    assert (found.quantity, found.statistic, found.unit) == ("beta", "median", "byte/s")
    assert (found.level, found.access, found.store) == ("DRAM", "read", "none")
    assert found.converged is True and found.estimate.half_width == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("where", "state", "cap"),
    [
        (PEAK, "vm", 0.02),
        (READ, "vm", 0.10),
        (READ, "shared", 0.10),
        (READ, "quiet", 0.03),
        (
            Point("cache", "cache-read", "s1u8", FP64, "L2", "read", sizes={"bytes": 9, "plateau": 1}),
            "vm",
            0.05,
        ),
        (
            Point("cache", "cache-read", "s1u8", FP64, "DRAM", "read", sizes={"bytes": 9, "plateau": 1}),
            "vm",
            0.1,
        ),
        (
            Point("gemm", "gemm", "square", Precision.of("fp64", "library"), "DRAM", sizes={"n": 8}),
            "vm",
            0.02,
        ),
    ],
)
def test_cap_follows_quantity_level_and_state(where: Point, state: str, cap: float) -> None:
    narrow = [v * 1e9 for v in (100, 100.1, 99.9, 100, 100)]
    found = one(rounds(where, narrow), state)
    assert (found.cap, found.converged) == (cap, True)
    wide = [1e11 * math.exp(s * cap) for s in (0, 1, -1, 1, -1)]  # sd = cap, reach 1.24 cap
    assert one(rounds(where, wide), state).converged is False


def test_with_fewer_than_five_rounds_there_is_no_verdict() -> None:
    assert one(rounds(READ, [1e9] * 4)).converged is None
    alone = one(rounds(READ, [1e9]))
    assert (alone.estimate.low, alone.converged, alone.rounds) == (None, None, 1)


def test_the_highest_estimate_of_enough_rounds_wins_and_is_named() -> None:
    fast, slow = point(READ, variant="s6u2"), READ
    hasty = point(READ, variant="s9u9")
    samples = rounds(fast, [21e9] * 5) + rounds(slow, [20e9] * 6) + rounds(hasty, [30e9])
    found = one(samples)
    assert (found.variant, found.estimate.value, found.rounds) == ("s6u2", pytest.approx(21e9), 5)
    few = one(rounds(fast, [21e9] * 2) + rounds(slow, [22e9] * 2))
    assert few.variant == "s3u4"


def test_kernels_stores_scopes_precisions_and_regimes_are_ceilings_of_their_own() -> None:
    others = [
        point(READ, kernel="triad", access="triad", store="nontemporal"),
        point(READ, kernel="triad", access="triad", store="ordinary"),
        point(READ, scope="core", threads=1),
        point(READ, precision=FP32),
    ]
    samples = [s for where in (READ, *others, PEAK) for s in rounds(where, [1e9] * 2)]
    samples += rounds(PEAK, [1.1e9] * 2, regime="burst")
    found = profile(samples).ceilings
    assert [(c.quantity, c.kernel, c.store, c.precision.label, c.threads, c.regime) for c in found] == [
        ("pi", "fma", "none", "fp64", 2, "typical"),
        ("pi", "fma", "none", "fp64", 2, "burst"),
        ("beta", "read", "none", "fp64", 2, "typical"),
        ("beta", "read", "none", "fp64", 1, "typical"),
        ("beta", "triad", "nontemporal", "fp64", 2, "typical"),
        ("beta", "triad", "ordinary", "fp64", 2, "typical"),
        ("beta", "read", "none", "fp32", 2, "typical"),
    ]


def test_pilots_and_failed_samples_enter_nothing() -> None:
    samples = [
        *rounds(PEAK, [1e9] * 2),
        sample(PEAK, 0, [9e9] * 5, regime="pilot"),
        sample(PEAK, 0, [9e9] * 5),
        sample(PEAK, 3, [9e9] * 5, status="failed", reason="killed"),
        sample(PEAK, 4, [9e9] * 5, regime="pilot"),
    ]
    found = one(samples)
    assert (found.estimate.value, found.best, found.rounds) == (pytest.approx(1e9), pytest.approx(1e9), 2)


def test_two_samples_of_a_round_are_one_estimate() -> None:
    samples = [sample(PEAK, 1, [1e9] * 5), sample(PEAK, 1, [3e9] * 15), sample(PEAK, 2, [2e9] * 5)]
    found = one(samples)
    assert (found.rounds, found.estimate.value) == (2, pytest.approx(2.5e9))


def test_disturbed_repetitions_are_counted_and_left_out() -> None:
    rates = [1e9] * 6 + [9e9] * 2
    clean = one([sample(PEAK, n, rates, switches=(0,) * 6 + (999,) * 2) for n in (1, 2)])
    assert (clean.estimate.value, clean.contended) == (pytest.approx(1e9), 0.25)
    assert clean.checks["repetitions"] == "ok: 75 % of them were clean"
    dirty = one([sample(PEAK, n, rates, switches=(0,) * 4 + (999,) * 4) for n in (1, 2)])
    assert dirty.contended == 0.5
    assert dirty.estimate.value == pytest.approx(3e9)  # p75 of all eight: a quarter of the way from 1 to 9
    assert dirty.checks["repetitions"] == "fails: too few were clean in 2 of 2 rounds, so all were used"


def test_hidden_traffic_clock_and_energy_come_from_the_samples() -> None:
    copy = point(READ, kernel="copy", access="copy", store="ordinary")
    assert one(rounds(copy, [1e9] * 2, facts={"hidden_traffic": 0.5})).hidden_traffic == 0.5
    assert one(rounds(copy, [1e9] * 2)).hidden_traffic == 0.0
    found = one(rounds(PEAK, [96e9] * 2, clock_hz=(3e9,) * 5, power_w=(48.0,) * 5, flops=30e9))
    assert (found.clock_hz, found.per_clock_per_unit) == (3e9, pytest.approx(16.0))
    assert found.energy_j == pytest.approx(0.5e-9)
    short = one(rounds(PEAK, [96e9] * 2, clock_hz=(3e9,) * 5, power_w=(48.0,) * 5, flops=19e9))
    assert short.energy_j is None, "under a second of load a board's power meter shows something else"
    bare = one(rounds(PEAK, [96e9] * 2))
    assert (bare.clock_hz, bare.per_clock_per_unit, bare.energy_j) == (None, None, None)


def test_the_clock_is_that_of_the_repetitions_which_a_ceiling_stands_for() -> None:
    """Two of five before a power limit bites: 16 FLOP a clock all the time, 32 by the clock of the others."""
    rates, clocks = [64e9, 64e9, 32e9, 32e9, 32e9], (2e9, 2e9, 1e9, 1e9, 1e9)
    found = one([sample(PEAK, n, rates, clock_hz=clocks) for n in range(1, 6)])
    assert found.estimate.value == pytest.approx(64e9)
    assert (found.clock_hz, found.per_clock_per_unit) == (2e9, pytest.approx(16.0))
    between = one([sample(PEAK, n, [64e9, 32e9], clock_hz=(2e9, 1e9)) for n in range(1, 6)])
    assert between.estimate.value == pytest.approx(56e9) and between.clock_hz == 2e9, "near none: nearest"


def test_the_best_matrix_size_is_the_library_ceiling() -> None:
    gemm = Point("gemm", "gemm", "square", Precision.of("fp64", "library"), "DRAM", threads=2)
    samples = [
        s
        for n, value in ((256, 50e9), (512, 80e9), (1024, 75e9))
        for s in rounds(point(gemm, sizes={"m": n, "n": n, "k": n}), [value] * 5, flops=2.0 * n**3)
    ]
    made = profile(samples + rounds(PEAK, [100e9] * 5))
    pi, library = made.ceilings
    assert (pi.precision.unit, library.precision.unit) == ("vector", "library")
    assert (library.variant, library.estimate.value) == ("square n=512", pytest.approx(80e9))
    (curve,) = made.curves
    assert (curve.kind, curve.mode, curve.unit, curve.fits) == ("gemm", "square", "FLOP/s", ())
    assert [p.x for p in curve.points] == [256, 512, 1024]
    assert curve.points[0].seconds == pytest.approx(2.0 * 256**3 / 50e9)
    assert curve.plateaus == {
        "library_pi": pytest.approx(80e9),
        "pi": pytest.approx(100e9),
        "half_rate_n": 256,
    }


def test_the_textbook_loop_is_a_fact_and_no_ceiling() -> None:
    core = point(PEAK, scope="core", threads=1)
    made = profile(rounds(NAIVE, [10e9] * 5) + rounds(core, [40e9] * 5) + rounds(PEAK, [80e9] * 5))
    assert {c.kernel for c in made.ceilings} == {"fma"}
    row = {"rate": pytest.approx(10e9), "ratio": pytest.approx(0.25), "variant": "numba"}
    assert made.facts["naive"] == {"fp64": row | {"threads": 1, "scope": "core"}}
    alone = profile(rounds(NAIVE, [10e9] * 5))
    assert alone.ceilings == () and alone.facts["naive"]["fp64"]["ratio"] is None


def test_skips_are_one_row_each_with_their_reason() -> None:
    half = point(PEAK, precision=Precision.of("fp16"), variant="")
    reason = "this CPU has no fp16 arithmetic"
    skips = [Sample(half, n, n, 0, status="skipped", reason=reason) for n in (1, 2)]
    made = profile([*skips, *rounds(PEAK, [1e9])])
    assert made.skipped == ({"what": "fma fp16 all/2", "reason": reason},)
    assert made.not_measured == ()


def test_a_form_that_the_pilot_could_not_try_is_no_gap_where_another_was_measured() -> None:
    product = Point("gemm", "gemm", "cublas", FP32, "DRAM", sizes={"m": 8, "n": 8, "k": 8})
    refused = point(product, variant="cublaslt")
    skip = Sample(refused, 0, 0, 0, status="skipped", reason="no algorithm", regime="pilot")
    assert profile([skip, *rounds(product, [1e9])]).skipped == ()
    alone = profile([skip, *rounds(PEAK, [1e9])])
    assert [row["reason"] for row in alone.skipped] == ["no algorithm"], "nothing else stands for it"
    later = Sample(product, 1, 1, 0, status="skipped", reason="not of this size")
    both = profile([skip, later, *rounds(product, [1e9])])
    assert [row["reason"] for row in both.skipped] == [later.reason]


def test_failures_are_facts_and_what_never_worked_was_not_measured() -> None:
    broken = Sample(READ, 1, 1, 0, status="failed", reason="the child died")
    once = Sample(PEAK, 2, 2, 0, status="failed", reason="hung")
    stuck = Sample(
        point(READ, kernel="update", store="ordinary"), 1, 1, 0, repetitions=Repetitions(seconds=(0.0,))
    )
    made = profile([broken, once, stuck, *rounds(PEAK, [1e9])])
    assert made.not_measured == (
        "read fp64 DRAM all/2: failed: the child died",
        "update fp64 DRAM all/2: failed: no repetition took a positive time",
    )
    assert [(row["what"], row["round"], row["reason"]) for row in made.facts["failed"]] == [
        ("read fp64 DRAM all/2", 1, "the child died"),
        ("fma fp64 all/2", 2, "hung"),
        ("update fp64 DRAM all/2", 1, "no repetition took a positive time"),
    ]


def test_planned_points_without_a_sample_are_named() -> None:
    header = HEADER | {"plan": {"points": [PEAK.key, READ.key]}, "not_measured": ["gemm: not asked for"]}
    pilot = sample(READ, 0, [1e9] * 5, regime="pilot")
    made = profile([pilot, *rounds(PEAK, [1e9])], header)
    assert made.not_measured == ("gemm: not asked for", f"{READ.key}: planned, not reached")


def test_the_profile_carries_header_conditions_and_verdicts() -> None:
    made = profile(rounds(PEAK, [1e9] * 5) + rounds(READ, [1e9] * 3))
    assert made.schema_version == SCHEMA_VERSION
    assert (made.identity, made.provenance) == ({"name": "CPU"}, {"commit": "abc"})
    assert made.conditions == ({"round": 1, "load": 0.5},)
    assert made.simulated is False
    assert made.facts["device"]["state"] == "quiet"
    assert made.facts["plan"] == {"points": 3, "rounds": 5}
    assert made.facts["rounds"] == 5
    assert made.facts["verdicts"] == {"converged": 1, "did_not_converge": 0, "within_this_process": 1}


def test_a_simulated_device_is_said_to_be_one() -> None:
    assert profile([], HEADER | {"device": {"kind": "simulated"}}).simulated is True
    assert profile([], HEADER | {"simulated": True}).simulated is True


def test_workloads_are_placed_and_those_without_a_roof_named() -> None:
    dot = Point("workload", "dot", "numba threads", FP64, "DRAM", threads=2, sizes={"n": 10})
    alone = point(dot, threads=7)
    work = [sample(where, 1, [1e9] * 5, flops=1e9) for where in (dot, alone)]
    made = profile([*work, *rounds(PEAK, [10e9] * 5), *rounds(READ, [16e9] * 5)])
    (placed,) = made.placements
    assert (placed.name, placed.attainable.value) == ("dot", pytest.approx(2e9))
    assert placed.efficiency.value == pytest.approx(0.5)
    assert len(made.not_measured) == 1 and made.not_measured[0].startswith("workload dot: no beta of DRAM")


def test_samples_of_nothing_make_an_empty_profile() -> None:
    made = derive({}, [], [])
    assert (made.ceilings, made.curves, made.placements, made.skipped, made.not_measured) == ((),) * 5
