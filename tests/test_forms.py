"""The forms of the roofline, the choice among them, steps inside a sweep, and points that are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.fitting import curves, forms, marks, steps
from bench.fitting.fit import fit_sweep
from bench.fitting.forms import CAPPED, CLOCKED, HARD, NORM, Form, Sweep, log_rates, slopes
from bench.fitting.pooled import Pooled
from bench.profile.records import CurvePoint, Fit, Interval, Point, Precision, Repetitions, Sample
from bench.profile.roofline import (
    capped_overlap,
    capped_seconds,
    fitted_rate,
    fitted_seconds,
    held_clock,
    overlap,
    rate,
    seconds,
)
from tests.fit_evaluation import caps, coverage, figures, norms, sharp
from tests.sweeps import Capped, Truth, intensities, sweep

FULL = intensities(1e-2, 1e2)
THETAS = {
    HARD: (25.3, 23.7),
    NORM: (25.3, 23.7, 0.4),
    CAPPED: (25.3, 23.7, 0.7, 0.6),
}


def chosen(points: Sequence[CurvePoint]) -> Fit:
    """The fit that predicts."""
    (fit,) = (f for f in fit_sweep(points)[1] if f.chosen)
    return fit


def _arrays(points: Sequence[CurvePoint]) -> Sweep:
    flops, moved = np.array([p.flops for p in points]), np.array([p.bytes for p in points])
    return Sweep.plain(flops, moved, np.log([p.estimate.value for p in points]))


def _stepped(
    points: Sequence[CurvePoint], truth: Truth, at: float, pi: float, beta: float
) -> list[CurvePoint]:
    """The points, those from intensity `at` on under another pi and beta (factors)."""
    other = replace(truth, pi=truth.pi * pi, beta=truth.beta * beta)
    behind = {p.x: p for p in sweep(other, np.array([p.x for p in points]))}
    return [behind[p.x] if p.x >= at else p for p in points]


# the model in bench/profile


def test_capped_time_is_the_longest_of_three() -> None:
    assert capped_seconds(10.0, 1.0, 10.0, 2.0, 20.0, 4.0) == 1.0  # 10/20 + 1/4 < 10/10
    assert capped_seconds(10.0, 2.0, 10.0, 2.0, 20.0, 2.5, 0.5) == pytest.approx(0.5 + 1.3)
    assert capped_overlap(10.0, 2.0, 20.0, 2.5) == pytest.approx(2 - 1.3)
    assert capped_overlap(10.0, 2.0, 100.0, 100.0) == 1.0
    assert capped_overlap(10.0, 2.0, 10.0, 2.0) == 0.0
    with pytest.raises(ValueError, match="pi_c must be positive"):
        capped_seconds(1.0, 1.0, 1.0, 1.0, 0.0, 1.0)


def _fit(form: str, **fields: object) -> Fit:
    one = Interval(1.0)
    plain = Fit(form, Interval(100.0), Interval(10.0), Interval(10.0), one, None, 0.0, 0.01, 0.0)
    return replace(plain, **fields)


def test_one_function_gives_the_rate_of_every_form() -> None:
    assert fitted_rate(4.0, _fit(HARD)) == 40.0
    assert fitted_rate(10.0, _fit(NORM, p=2.0)) == pytest.approx(rate(10.0, 100.0, 10.0, 2.0))
    capped = _fit(CAPPED, pi_c=125.0, beta_c=20.0)
    assert fitted_rate(10.0, capped) == pytest.approx(100.0 / 1.3)
    assert (fitted_rate(1.0, capped), fitted_rate(100.0, capped)) == (10.0, 100.0)
    slow = _fit(CLOCKED, p=1e6, clock_hz=2e9, held_intensity=(1.0, 100.0), held_clock_hz=(2e9, 1e9))
    assert fitted_rate(1000.0, slow) == pytest.approx(50.0)
    assert held_clock(slow, 10.0) == pytest.approx(0.75)
    assert (held_clock(slow, 0.1), held_clock(_fit(NORM), 1.0)) == (1.0, 1.0)


def test_fitted_time_carries_the_overhead_and_the_rate_does_not() -> None:
    fit = _fit(NORM, p=3.0, t0=0.25)
    assert fitted_seconds(50.0, 20.0, fit) == seconds(50.0, 20.0, 100.0, 10.0, 3.0, 0.25)
    assert fitted_rate(2.5, fit) == pytest.approx(2.5 / seconds(2.5, 1.0, 100.0, 10.0, 3.0))
    with pytest.raises(ValueError, match="moved must be positive"):
        fitted_seconds(1.0, 0.0, fit)


# forms of the fit


@pytest.mark.parametrize("step", ["", "pi", "beta"])
@pytest.mark.parametrize("overhead", [False, True])
@pytest.mark.parametrize("corner", [HARD, NORM, CAPPED])
def test_slopes_are_the_derivatives(corner: str, overhead: bool, step: str) -> None:
    form = Form(corner, overhead, step)
    theta = np.array([*THETAS[corner], *([0.3] * overhead), *([0.2] * bool(step))])
    plain = _arrays(sweep(Truth(), intensities(0.0123, 97.0, 31)))
    beyond = (np.arange(31) >= 17).astype(float)
    clock = np.linspace(0, -0.3, 31)
    one = replace(plain, beyond=beyond, pi_shift=clock, beta_shift=-0.1 * beyond)
    exact = slopes(form, theta, one, 1e-3)
    assert exact.shape == (31, len(theta))
    for i in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[i], down[i] = up[i] + 1e-6, down[i] - 1e-6
        found = (log_rates(form, up, one, 1e-3) - log_rates(form, down, one, 1e-3)) / 2e-6
        assert exact[:, i] == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("corner", [HARD, NORM, CAPPED])
def test_guesses_lie_within_the_bounds(corner: str) -> None:
    one = _arrays(sweep(Truth(p=2.0), FULL))
    low, high = forms.bounds(Form(corner, True), one)
    found = list(forms.guesses(Form(corner, True), one))
    assert len(found) == len(forms.STARTS[corner])
    assert all(np.all((low <= theta) & (theta <= high)) for theta in found)


@pytest.mark.parametrize(("a", "b"), [(0.9, 0.3), (0.65, 0.65), (0.3, 0.95), (0.95, 0.7)])
def test_a_power_cap_is_recovered_exactly_and_chosen(a: float, b: float) -> None:
    truth = Capped(pi_c=1e11 / a, beta_c=2e10 / b)
    fit = chosen(sweep(truth, FULL))
    assert fit.form == CAPPED
    assert fit.pi.value == pytest.approx(1e11, rel=1e-4)
    assert fit.beta.value == pytest.approx(2e10, rel=1e-4)
    assert (fit.pi_c, fit.beta_c) == (pytest.approx(1e11 / a, rel=1e-3), pytest.approx(2e10 / b, rel=1e-3))
    assert fit.omega.value == pytest.approx(2 - a - b, abs=1e-3)
    assert (fit.p, fit.limits) == (None, "")
    assert fitted_rate(5.0, fit) == pytest.approx(1e11 / (a + b), rel=1e-3)


def test_a_device_without_a_cap_has_none_chosen() -> None:
    rng = np.random.default_rng(4)
    assert chosen(sweep(Truth(p=2.0), FULL, rounds=5, within=0.02, between=0.03, rng=rng)).form == NORM
    fits = {f.form: f for f in fit_sweep(sweep(Truth(), FULL))[1]}
    assert list(fits) == [HARD, NORM, CAPPED]
    assert fits[CAPPED].omega.value > 0.96  # a knee that fits between two points
    assert fits[HARD].chosen and fits[HARD].pi_c is None


def test_rounds_with_other_ridges_do_not_round_off_the_corner() -> None:
    rng = np.random.default_rng(5)
    misses = []
    for _ in range(5):
        fits = fit_sweep(sweep(Truth(p=20.0), FULL, rounds=5, within=0.002, between=0.05, rng=rng))[1]
        misses.append(abs(next(f for f in fits if f.form == NORM).omega.value - overlap(20.0)))
    assert max(misses) < 0.006


# clocks


def _clocked(points: Sequence[CurvePoint], clocks: Sequence[float]) -> list[CurvePoint]:
    """Rates and clocks of a device whose pi follows its clock."""
    slow = []
    for point, clock in zip(points, clocks, strict=True):
        (one,) = sweep(Truth(pi=1e11 * clock / 2e9, p=4.0), np.array([point.x]))
        slow.append(replace(one, clock_hz=clock))
    return slow


def test_a_falling_clock_is_normalised_and_predicted() -> None:
    clocks = np.interp(np.log(FULL), np.log([0.5, 30.0]), [2e9, 1.3e9])
    fit = chosen(_clocked(sweep(Truth(p=4.0), FULL), clocks.tolist()))
    assert fit.form == CLOCKED
    assert (fit.pi.value, fit.p) == (pytest.approx(1e11, rel=1e-4), pytest.approx(4.0, rel=1e-3))
    assert fit.clock_hz == 2e9
    assert fit.omega.value == pytest.approx(overlap(4.0), abs=1e-3)
    assert fitted_rate(400.0, fit) == pytest.approx(1e11 * 0.65, rel=1e-3)
    assert fit.limits.endswith("the clock varies between 1.3 and 2 GHz along the sweep")


def test_clocks_that_stand_still_or_are_missing_make_no_form() -> None:
    points = sweep(Truth(p=4.0), FULL)
    still = [replace(p, clock_hz=2e9 + 1e6 * i / 40) for i, p in enumerate(points)]
    torn = [replace(p, clock_hz=1e9 + 1e8 * i if i else None) for i, p in enumerate(points)]
    for found in (fit_sweep(still)[1], fit_sweep(torn)[1]):
        assert [f.form for f in found] == [HARD, NORM, CAPPED]


def test_a_sudden_change_of_clock_is_named_with_the_clock() -> None:
    clocks = np.where(FULL < 25.0, 2e9, 1.5e9)
    fits = fit_sweep(_clocked(sweep(Truth(p=4.0), FULL), clocks.tolist()))[1]
    for fit in fits:
        assert "with the clock, from 2.00 GHz to 1.50 GHz" in fit.limits
        assert fit.pi.value == pytest.approx(1e11, rel=0.05 if fit.form == HARD else 0.01)


# steps


def test_a_bandwidth_step_is_named_and_not_averaged() -> None:
    truth = Truth(p=6.0)
    points = _stepped(sweep(truth, FULL), truth, 0.5, pi=1.0, beta=1.25)
    first = next(p for p in points if p.x >= 0.5)
    fit = chosen(points)
    assert fit.limits.startswith(
        f"step at {first.x:.3g} FLOP/byte: the bandwidth goes from 20.0 GB/s to 25.0"
    )
    assert fit.beta.value == pytest.approx(2e10, rel=1e-3)
    assert fit.pi.value == pytest.approx(1e11, rel=1e-3)
    assert fit.rms < 1e-3


def test_of_a_fallen_bandwidth_the_lower_side_counts() -> None:
    truth = Truth(p=6.0)
    fit = chosen(_stepped(sweep(truth, FULL), truth, 0.5, pi=1.0, beta=0.8))
    assert "the bandwidth goes from 20.0 GB/s to 16.0 GB/s" in fit.limits
    assert fit.beta.value == pytest.approx(1.6e10, rel=1e-3)


def test_of_a_step_on_the_plateau_the_higher_side_counts() -> None:
    truth = Truth(p=6.0)
    fit = chosen(_stepped(sweep(truth, FULL), truth, 60.0, pi=1.3, beta=1.0))
    assert "the rate goes from 100 GFLOP/s to 130 GFLOP/s" in fit.limits
    assert fit.pi.value == pytest.approx(1.3e11, rel=1e-3)
    assert fit.beta.value == pytest.approx(2e10, rel=1e-3)


def test_steps_are_found_under_noise_and_not_invented() -> None:
    rng = np.random.default_rng(6)
    for _ in range(4):
        truth = Truth(p=float(rng.uniform(1.5, 10)))
        points = sweep(truth, FULL, rounds=5, within=0.02, between=0.03, rng=rng)
        assert chosen(points).limits == ""
        torn = [
            replace(p, estimate=Interval(1.2 * p.estimate.value), rates=tuple(1.2 * r for r in p.rates))
            if 0.3 <= p.x < 1e9
            else p
            for p in points
        ]
        assert "step at" in chosen(torn).limits


def test_a_lone_outlier_is_no_step() -> None:
    points = list(sweep(Truth(p=3.0), FULL))
    points[8] = replace(points[8], estimate=Interval(1.3 * points[8].estimate.value))
    assert chosen(points).limits.startswith("a lone point hardly counts: at ")
    x, y = np.log(FULL), np.log([p.estimate.value for p in points])
    assert not {8, 9} & {k for _, k in steps.breaks(x, y)}


def test_bytes_that_move_ever_faster_are_told() -> None:
    points = [
        replace(p, estimate=Interval(p.estimate.value * (1.03 ** min(i, 18))))
        for i, p in enumerate(sweep(Truth(p=6.0), FULL))
    ]
    assert "times faster as intensity rises: a cache, or miscounted bytes" in chosen(points).limits


# marks


def test_cache_resident_points_are_left_out_with_a_mark() -> None:
    truth = Truth(p=4.0)
    small = sweep(replace(truth, beta=6e10), FULL[5:20:3], 1e6)
    points, fits = fit_sweep([*sweep(truth, FULL), *small])
    assert [p.note for p in points] == [""] * 40 + [marks.RESIDENT] * 5
    fit = next(f for f in fits if f.chosen)
    assert fit.beta.value == pytest.approx(2e10, rel=1e-4)
    assert fit.p == pytest.approx(4.0, rel=1e-3)


def test_launch_limited_points_are_marked_and_tell_the_overhead() -> None:
    sizes = np.tile([2e5, 2e6, 2e8], 10)
    truth = Truth(p=3.0, t0=1e-5)
    points, fits = fit_sweep(sweep(truth, np.repeat(intensities(1e-2, 1e2, 10), 3), sizes))
    assert next(f for f in fits if f.chosen).t0 == pytest.approx(1e-5, rel=1e-4)
    shares = [1e-5 / (p.flops / p.estimate.value) for p in points]
    assert [p.note for p in points] == [marks.LAUNCH if s > 0.2 else "" for s in shares]
    assert sum(p.note == marks.LAUNCH for p in points) == 6


def test_marks_keep_the_order_and_the_points_without_work() -> None:
    points = sweep(Truth(p=2.5), FULL)
    idle = replace(points[0], flops=0.0)
    found, _ = fit_sweep((*points[::-1], idle))
    assert found == (*points[::-1], idle)


def test_a_short_window_is_a_point_of_its_own() -> None:
    long = Point(
        "mix", "mix-read-only", "s1", Precision.of("fp64"), "DRAM", "read", sizes={"bytes": 8, "fma": 3}
    )
    short = replace(long, sizes={**long.sizes, "window": 20})
    other = replace(long, variant="s2")
    settings = []
    for point in (long, short, other):
        sample = Sample(point, 1, 0, 0, flops=6.0, bytes_read=8.0, repetitions=Repetitions((0.0,), (1e-3,)))
        settings.append(curves._setting(Pooled(point, "typical", (sample,))))
    assert settings[0] == settings[2] != settings[1]


def test_a_point_carries_the_clock_that_it_held() -> None:
    point = Point("mix", "mix-read-only", "s1", Precision.of("fp64"), sizes={"bytes": 8})
    timed = Repetitions((0.0, 0.0, 0.0), (1e-3,) * 3, clock_hz=(2e9, 1.9e9, 1.8e9))
    blind = replace(timed, clock_hz=())
    for repetitions, clock in ((timed, 1.9e9), (blind, None)):
        sample = Sample(point, 1, 0, 0, flops=6.0, bytes_read=8.0, repetitions=repetitions)
        (found,) = curves._points("mix", [Pooled(point, "typical", (sample,))])
        assert found.clock_hz == clock


# statistics


@pytest.mark.slow
def test_random_devices_meet_the_contract() -> None:
    cases = norms(60, seed=12)
    found, covered = figures(cases), coverage(cases)
    assert min(found["pi right"], found["beta right"]) >= 0.90
    assert found["omega miss p90"] <= 0.02
    assert found["p within 15 %"] >= 0.99
    assert all(share >= 0.88 for share in covered.values()), covered


@pytest.mark.slow
def test_norms_are_seldom_taken_for_a_cap() -> None:
    assert np.mean([c.fit.form == CAPPED for c in norms(80, seed=14)]) <= 0.1


def test_noise_free_corners_of_random_devices_are_sharp() -> None:
    cases = sharp(6, seed=15)
    assert [c.fit.form for c in cases] == [HARD] * 6
    assert all((next(f for f in c.fits if f.form == NORM).p or 0.0) >= 20 for c in cases)


@pytest.mark.slow
def test_deep_power_caps_are_told_from_norms() -> None:
    cases = caps(24, 13, (0.1, 0.35))
    assert np.mean([c.fit.form == CAPPED for c in cases]) >= 0.95
    assert np.quantile([abs(c.fit.omega.value - c.omega) for c in cases], 0.9) <= 0.02
