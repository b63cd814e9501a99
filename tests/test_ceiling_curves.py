"""Curves derived from hand-built samples, beside their ceilings, with exact expected values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from bench.profile.records import (
    Curve,
    Point,
    Sample,
)
from tests.ceiling_samples import FP64, PEAK, READ, point, profile, rounds, sample


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
