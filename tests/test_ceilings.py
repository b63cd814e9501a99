"""Ceilings, curves and what is absent, derived from hand-built samples with exact expected values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.fitting.ceilings import derive
from bench.profile.records import (
    SCHEMA_VERSION,
    Ceiling,
    Curve,
    Point,
    Precision,
    Profile,
    Repetitions,
    Sample,
)

FP64, FP32 = Precision.of("fp64"), Precision.of("fp32")
PEAK = Point("fma", "fma", "12 chains", FP64, threads=2)
NAIVE = Point("fma", "fma-naive", "numba", FP64, scope="core", threads=1)
READ = Point("stream", "read", "s3u4", FP64, "DRAM", "read", "none", threads=2, sizes={"bytes": 1 << 28})
HEADER: dict[str, Any] = {
    "identity": {"name": "CPU"},
    "provenance": {"commit": "abc"},
    "device": {"kind": "cpu", "name": "CPU", "state": "quiet"},
    "plan": {"points": 3, "rounds": 5},
}


def point(base: Point, **changes: Any) -> Point:
    """`base` with some fields changed."""
    return replace(base, **changes)


def sample(
    where: Point, number: int, rates: Sequence[float], flops: float = 1e9, moved: float = 8e9, **more: Any
) -> Sample:
    """A sample of round `number` whose repetitions reach `rates` (byte/s for streams, else FLOP/s)."""
    work = moved if where.family in ("stream", "cache") else flops
    evidence = {k: more.pop(k) for k in ("switches", "clock_hz", "power_w") if k in more}
    repetitions = Repetitions(seconds=tuple(work / r for r in rates), **evidence)
    return Sample(
        where,
        number,
        number,
        0,
        flops=flops,
        bytes_read=moved,
        repetitions=repetitions,
        **{"facts": {}, **more},
    )


def rounds(where: Point, values: Sequence[float], **more: Any) -> list[Sample]:
    """One sample a round, all five repetitions at the round's value."""
    return [sample(where, n, [value] * 5, **more) for n, value in enumerate(values, 1)]


def profile(samples: Sequence[Sample], header: Mapping[str, Any] = HEADER) -> Profile:
    """What is derived from the samples."""
    return derive(header, [{"round": 1, "load": 0.5}], samples)


def one(samples: Sequence[Sample], state: str = "quiet") -> Ceiling:
    """The only ceiling of the samples."""
    (ceiling,) = profile(samples, HEADER | {"device": {"kind": "cpu", "state": state}}).ceilings
    return ceiling


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


def _working_set(size: int, level: str, **more: int) -> Point:
    sizes = {"bytes": size, **more}
    return Point("cache", "cache-read", "s1u8", FP64, level, "read", scope="core", threads=1, sizes=sizes)


def test_cache_plateaus_are_ceilings_and_the_sweep_is_a_curve() -> None:
    sweep = {1 << 12: (100e9, "L1"), 1 << 16: (60e9, "L2"), 1 << 28: (10e9, "DRAM")}
    samples = [s for n, (v, level) in sweep.items() for s in rounds(_working_set(n, level), [v] * 5)]
    samples += rounds(_working_set(1 << 14, "L1", plateau=1), [110e9] * 5)
    samples += rounds(_working_set(1 << 17, "L2", plateau=1), [50e9] * 5)
    made = profile(samples)
    assert [(c.level, c.estimate.value) for c in made.ceilings] == [
        ("L1", pytest.approx(110e9)),
        ("L2", pytest.approx(50e9)),
    ]
    (curve,) = made.curves
    assert (curve.kind, curve.mode, curve.unit, curve.scope) == ("cache", "read", "byte/s", "core")
    assert [(p.x, p.estimate.value) for p in curve.points] == [
        (n, pytest.approx(v)) for n, (v, _) in sweep.items()
    ]
    assert curve.points[0].seconds == pytest.approx(8e9 / 100e9)
    assert curve.plateaus == {"L1": pytest.approx(110e9), "L2": pytest.approx(50e9)}


MIX = Point("mix", "mix-read-only", "s6u2", FP64, "DRAM", "read", threads=2)


def mix_samples(scale: Sequence[float] = (0.98, 1.0, 1.01, 1.0, 1.02)) -> list[Sample]:
    """A sharp roof of 80 GFLOP/s and 20 GB/s, F/48 FLOP/byte, scaled in each round."""
    found = []
    for count in (1, 2, 4, 8, 24, 96, 192, 384, 768, 1536, 3072, 6144):
        intensity = count / 48
        value = min(80e9, 20e9 * intensity)
        where = point(MIX, sizes={"bytes": 1 << 28, "fma": count})
        found += rounds(where, [value * s for s in scale], flops=8e9 * intensity)
    return found


def _mix_curve(samples: Sequence[Sample]) -> Curve:
    (curve,) = profile(samples).curves
    return curve


def test_intensity_sweep_becomes_a_fitted_curve_beside_its_ceilings() -> None:
    samples = mix_samples() + rounds(PEAK, [100e9] * 5) + rounds(READ, [16e9] * 5)
    curve = _mix_curve(samples)
    assert (curve.kind, curve.mode, curve.unit, curve.threads) == ("mix", "read-only", "FLOP/s", 2)
    assert [p.x for p in curve.points][:3] == pytest.approx([1 / 48, 2 / 48, 4 / 48])
    assert curve.points[0].rates == pytest.approx([20e9 / 48 * s for s in (0.98, 1.0, 1.01, 1.0, 1.02)])
    assert curve.points[0].seconds == pytest.approx(8e9 / 20e9)
    (fit,) = (f for f in curve.fits if f.chosen)
    assert (fit.form, fit.pi.value, fit.beta.value) == ("hard-min", pytest.approx(80e9), pytest.approx(20e9))
    logs = [math.log(s) for s in (0.98, 1.0, 1.01, 1.0, 1.02)]
    mean = sum(logs) / 5
    reach = 2.776445 * math.sqrt(sum((v - mean) ** 2 for v in logs) / 20)
    assert fit.pi.high == pytest.approx(80e9 * math.exp(mean + reach), rel=1e-6)
    assert fit.ridge.half_width == pytest.approx(0.0, abs=1e-6)
    assert curve.plateaus == {
        "pi": pytest.approx(100e9),
        "beta": pytest.approx(16e9),
        "fitted_pi_share": pytest.approx(0.8),
        "fitted_beta_share": pytest.approx(1.25),
        "corner_overpromise": pytest.approx(0.0),
    }


def test_the_faster_form_at_each_intensity_makes_the_curve() -> None:
    where = point(MIX, variant="s6u2p512", sizes={"bytes": 1 << 28, "fma": 192})
    extra = rounds(where, [85e9] * 5, flops=8e9 * 4)
    curve = _mix_curve(mix_samples() + extra)
    assert len(curve.points) == 12
    assert {p.x: p.variant for p in curve.points}[4.0] == "s6u2p512"
    assert [p.variant for p in curve.points].count("s6u2") == 11


def test_the_quantile_slides_from_median_to_p75_with_the_rate() -> None:
    # each sample: rates 1, 2, 3, 4, 5 times a unit; the fastest point takes p75 = 4, the slowest near 3
    points = [point(MIX, sizes={"bytes": 8, "fma": count}) for count in (1, 1000)]
    spread = (1, 2, 3, 4, 5)
    slow, fast = ([unit * r for r in spread] for unit in (1e7, 1e10))
    samples = [
        s
        for n in (1, 2)
        for s in (sample(points[0], n, slow, flops=1e9), sample(points[1], n, fast, flops=1e12))
    ]
    low, high = _mix_curve(samples).points
    assert high.estimate.value == pytest.approx(4e10)
    assert low.estimate.value == pytest.approx(3.001e7)


def test_a_point_without_every_round_keeps_its_estimate_and_spoils_no_interval() -> None:
    samples = mix_samples()
    torn = [s for s in samples if not (s.point.sizes["fma"] == 24 and s.round > 3)]
    curve = _mix_curve(torn)
    short = next(p for p in curve.points if p.x == 0.5)
    assert short.rates == () and short.estimate.value == pytest.approx(10e9)
    assert all(len(p.rates) == 5 for p in curve.points if p.x != 0.5)
    assert curve.fits[0].pi.half_width is not None
    cut = [s for s in samples if s.round < 5 or s.point.sizes["fma"] < 4]
    assert {len(p.rates) for p in _mix_curve(cut).points} == {4}


def test_burst_points_are_no_plateau_of_the_sweep() -> None:
    samples = mix_samples() + rounds(PEAK, [100e9] * 5) + rounds(PEAK, [120e9] * 5, regime="burst")
    assert _mix_curve(samples).plateaus["pi"] == pytest.approx(100e9)


def test_skips_are_one_row_each_with_their_reason() -> None:
    half = point(PEAK, precision=Precision.of("fp16"), variant="")
    reason = "this CPU has no fp16 arithmetic"
    skips = [Sample(half, n, n, 0, status="skipped", reason=reason) for n in (1, 2)]
    made = profile([*skips, *rounds(PEAK, [1e9])])
    assert made.skipped == ({"what": "fma fp16 all/2", "reason": reason},)
    assert made.not_measured == ()


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
