"""The fitter against sweeps of known devices: exact without noise, covered intervals with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.fitting.fit import fit_sweep
from bench.fitting.reach import NEVER, SEEN, Reach, rewrite, wanting
from bench.profile.records import CurvePoint, Fit, Interval
from bench.profile.roofline import INFINITY, overlap
from tests.sweeps import Truth, intensities, sweep

FULL = intensities(1e-2, 1e2)


def chosen(points: Sequence[CurvePoint]) -> Fit:
    """The fit that predicts."""
    (fit,) = (f for f in fit_sweep(points)[1] if f.chosen)
    return fit


def form(points: Sequence[CurvePoint], name: str) -> Fit:
    """The fit of one form."""
    (fit,) = (f for f in fit_sweep(points)[1] if f.form == name)
    return fit


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 4.0, 10.0])
def test_noise_free_norms_are_recovered_exactly(p: float) -> None:
    fit = chosen(sweep(Truth(p=p), FULL))
    assert fit.form == "p-norm"
    assert fit.p == pytest.approx(p, rel=1e-5)
    assert (fit.pi.value, fit.beta.value) == (pytest.approx(1e11, rel=1e-6), pytest.approx(2e10, rel=1e-6))
    assert fit.ridge.value == pytest.approx(5.0, rel=1e-6)
    assert fit.omega.value == pytest.approx(overlap(p), abs=1e-5)
    assert (fit.t0, fit.limits) == (0.0, "")
    assert fit.rms < 1e-6


def test_noise_free_sharp_corner_is_chosen_and_its_norm_is_large() -> None:
    points = sweep(Truth(), FULL)
    hard, norm = form(points, "hard-min"), form(points, "p-norm")
    assert (hard.chosen, norm.chosen) == (True, False)
    assert (hard.pi.value, hard.beta.value) == (pytest.approx(1e11, rel=1e-9), pytest.approx(2e10, rel=1e-9))
    assert (hard.p, hard.omega.value) == (None, 1.0)
    assert norm.p is not None and norm.p >= 20
    assert norm.omega.value > 0.965
    assert norm.aicc > hard.aicc


def test_hard_corner_through_a_soft_knee_is_worse_and_says_so() -> None:
    points = sweep(Truth(p=2.0), FULL)
    hard, norm = form(points, "hard-min"), form(points, "p-norm")
    assert norm.chosen and norm.aicc < hard.aicc - 100
    assert 0.05 < hard.rms < 0.12


SIZES = np.tile([2e5, 2e6, 2e8], 10)
SIZED = np.repeat(intensities(1e-2, 1e2, 10), 3)


@pytest.mark.parametrize("p", [1.5, 3.0, INFINITY])
@pytest.mark.parametrize("t0", [2e-6, 1e-5, 1e-4])
def test_launch_overhead_is_found_from_the_smallest_points(p: float, t0: float) -> None:
    fit = chosen(sweep(Truth(p=p, t0=t0), SIZED, SIZES))
    assert fit.t0 == pytest.approx(t0, rel=1e-5)
    assert fit.pi.value == pytest.approx(1e11, rel=1e-6)
    assert fit.beta.value == pytest.approx(2e10, rel=1e-6)
    assert fit.form == ("hard-min" if p == INFINITY else "p-norm")


def test_launch_overhead_under_noise_is_right_and_never_negative() -> None:
    rng = np.random.default_rng(3)
    with_overhead = Truth(p=3.0, t0=2e-5)
    found = [chosen(sweep(with_overhead, SIZED, SIZES, 5, 0.02, 0.0, rng)).t0 for _ in range(5)]
    assert found == pytest.approx([2e-5] * 5, rel=0.05)
    none = [chosen(sweep(Truth(p=3.0), SIZED, SIZES, 5, 0.02, 0.0, rng)).t0 for _ in range(5)]
    assert none == [0.0] * 5


def test_one_size_a_setting_cannot_tell_overhead_from_the_knee() -> None:
    # at p = 1 and equal bytes T = Q/beta + F/pi is itself an overhead and a compute roof
    fits = fit_sweep(sweep(Truth(p=1.0), FULL))[1]
    assert [f.t0 for f in fits] == [0.0, 0.0, 0.0]


def test_an_outlier_and_a_noisy_point_do_not_move_the_plateau() -> None:
    points = list(sweep(Truth(p=3.0), FULL, rounds=5, within=0.005))
    wild = points[35]
    high = tuple(1.5 * r for r in wild.rates)
    points[35] = replace(wild, estimate=Interval(1.5 * wild.estimate.value), rates=high)
    fit = chosen(points)
    assert fit.pi.value == pytest.approx(1e11, rel=0.01)
    assert fit.rms > 0.05


def test_intervals_are_absent_without_rounds() -> None:
    fit = chosen(sweep(Truth(p=3.0), FULL))
    assert fit.pi.half_width is fit.beta.half_width is fit.ridge.half_width is None
    assert (fit.omega.low, fit.omega.high) == (None, None)


def test_interval_is_the_t_interval_of_the_rounds() -> None:
    # whole rounds whose pi and beta are known and whose shape is exact: refits return them
    factors = np.array([0.97, 1.0, 1.02, 0.99, 1.05])
    rounds = [sweep(Truth(1e11 * f, 2e10 / f, 3.0), FULL) for f in factors]
    points = [
        replace(group[2], rates=tuple(p.estimate.value for p in group)) for group in zip(*rounds, strict=True)
    ]
    fit = form(points, "p-norm")
    logs = np.log(factors)
    reach = 2.776445 * np.std(logs, ddof=1) / np.sqrt(5)
    assert fit.pi.low == pytest.approx(1e11 * np.exp(logs.mean() - reach), rel=1e-5)
    assert fit.pi.high == pytest.approx(1e11 * np.exp(logs.mean() + reach), rel=1e-5)
    assert fit.beta.low == pytest.approx(2e10 * np.exp(-logs.mean() - reach), rel=1e-5)
    assert fit.ridge.high == pytest.approx(5 * np.exp(2 * (logs.mean() + reach)), rel=1e-5)
    assert fit.omega.low == pytest.approx(overlap(3.0), abs=1e-4)


def test_points_without_every_round_still_count_and_cost_no_interval() -> None:
    points = list(sweep(Truth(p=3.0), FULL, rounds=5, within=0.01))
    points[7] = replace(points[7], rates=())
    fit = chosen(points)
    assert fit.pi.half_width is not None and 0 < fit.pi.half_width < 0.02
    torn = [replace(p, rates=()) if i % 2 else p for i, p in enumerate(points)]
    assert chosen(torn).pi.half_width is None


def test_hard_corner_keeps_the_overlap_that_the_data_leave_open() -> None:
    rng = np.random.default_rng(8)
    fits = fit_sweep(sweep(Truth(), FULL, rounds=5, within=0.02, between=0.03, rng=rng))[1]
    hard, norm, _ = fits
    assert hard.chosen
    assert hard.omega == Interval(1.0, norm.omega.low, 1.0)
    assert norm.omega.low is not None and 0.8 < norm.omega.low < 1.0


@pytest.mark.parametrize(("n", "forms"), [(3, []), (4, ["hard-min"]), (5, ["hard-min", "p-norm"])])
def test_too_few_points_are_not_fitted(n: int, forms: list[str]) -> None:
    fits = fit_sweep(sweep(Truth(), intensities(0.01, 100, n)))[1]
    assert [f.form for f in fits] == forms
    assert sum(f.chosen for f in fits) == (1 if forms else 0)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (
            0.01,
            0.1,
            ", all on the memory side; measure 3 or more above 0.5 FLOP/byte, where the rate is flat",
        ),
        (3.0, 90.0, ", all on the compute side; measure 3 or more below 15 FLOP/byte, where the rate rises"),
        (0.1, 10.0, "; measure 3 on each side of the ridge, below 0.5 FLOP/byte and above 50 FLOP/byte"),
        (0.7, 0.7, "; measure 3 on each side of the ridge"),
    ],
)
def test_too_few_points_are_told_on_which_side(low: float, high: float, said: str) -> None:
    points = sweep(Truth(), intensities(low, high, 3))
    assert wanting(points) == f"nothing fitted: 3 of the 4 points that a fit needs{said}"
    left_out = replace(points[0], note="cache-resident: left out")
    assert wanting((left_out, *points[1:])).startswith("nothing fitted: 2 of the 4 points")


@pytest.mark.parametrize(
    ("places", "said"), [(1, "12 points at 1 of the 4 intensities"), (3, "at 3 of the 4")]
)
def test_one_intensity_is_no_sweep_however_many_points_it_has(places: int, said: str) -> None:
    """Nothing tells there whether memory or arithmetic binds, so neither a rate nor a bound is given."""
    points = [p for p in sweep(Truth(), intensities(1.0, 64.0, 4))[:places] for _ in range(12 // places)]
    assert fit_sweep(points)[1] == () and said in wanting(points)
    assert fit_sweep(sweep(Truth(), intensities(1.0, 64.0, 4)))[1]


def test_enough_points_want_nothing() -> None:
    assert wanting(sweep(Truth(), intensities(0.01, 0.1, 4))) == ""


def test_order_of_points_and_points_without_work_do_not_matter() -> None:
    points = sweep(Truth(p=2.5), FULL, rounds=5, within=0.02)
    idle = replace(points[0], flops=0.0)
    assert fit_sweep((*points[::-1], idle))[1] == fit_sweep(points)[1]


@pytest.mark.parametrize("p", [1.5, 3.0, INFINITY])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_sweep_that_ends_before_the_ridge_bounds_pi_from_below(p: float, noise: float) -> None:
    points = sweep(
        Truth(p=p), intensities(0.01, 0.5, 24), rounds=5, within=0.02 * noise, between=0.03 * noise
    )
    fit = chosen(points)
    highest = max(points, key=lambda point: point.estimate.value).estimate
    assert fit.pi == Interval(highest.value, highest.low, None)
    assert fit.ridge.high is None and fit.ridge.low is not None and fit.ridge.low <= 5.0
    assert re.match(r"pi not reached: at least [\d.]+ GFLOP/s, the fastest point", fit.limits), "no raw float"
    assert fit.beta.value == pytest.approx(2e10, rel=0.04)
    assert fit.p is None and (fit.omega.low, fit.omega.high) == (0.0, 1.0)


@pytest.mark.parametrize("p", [1.5, 3.0, INFINITY])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_sweep_that_starts_beyond_the_ridge_bounds_beta_from_below(p: float, noise: float) -> None:
    points = sweep(Truth(p=p), intensities(2.0, 100, 24), rounds=5, within=0.02 * noise, between=0.03 * noise)
    fit = chosen(points)
    first = points[0]
    assert fit.beta.value == pytest.approx(first.estimate.value / first.x)
    assert fit.beta.high is None and fit.beta.low is not None and fit.beta.low <= 2e10
    assert fit.ridge.low is None and fit.ridge.high is not None and fit.ridge.high >= 5.0
    assert re.match(r"beta not reached: at least [\d.]+ GB/s, the point that moves bytes", fit.limits)
    assert fit.pi.value == pytest.approx(1e11, rel=0.04)


def test_a_ridge_between_two_bounds_has_no_end() -> None:
    """At least pi over at least beta: any ridge is possible; where pi is known there is a most."""
    points = sweep(Truth(), intensities(1.0, 8.0), rounds=5)
    fit = replace(chosen(points), pi=Interval(1e11, 0.9e11, 1.1e11))
    found = rewrite(fit, Reach(NEVER, NEVER), points)
    assert (found.ridge.low, found.ridge.high) == (None, None)
    assert (found.pi.high, found.beta.high) == (None, None) and "beta not reached" in found.limits
    known = rewrite(fit, Reach(SEEN, NEVER), points)
    assert known.beta.low is not None and known.ridge.low is None
    assert known.ridge.high == pytest.approx(1.1e11 / known.beta.low)
    alone = rewrite(replace(fit, pi=Interval(1e11)), Reach(SEEN, NEVER), points)
    assert alone.ridge.high == pytest.approx(1e11 / known.beta.low)


@pytest.mark.parametrize("p", [1.5, 3.0, INFINITY])
def test_a_sweep_that_ends_in_the_knee_widens_pi_to_what_such_fits_are_worth(p: float) -> None:
    fit = chosen(sweep(Truth(p=p), intensities(0.01, 1.8, 24), rounds=5, within=0.01))
    assert fit.limits == "only the knee below pi is seen: pi within about 15 %"
    assert fit.pi.low is not None and fit.pi.low <= fit.pi.value / 1.15
    assert fit.pi.high is not None and fit.pi.high >= fit.pi.value * 1.15
    assert fit.pi.low < 1e11 < fit.pi.high
    assert fit.beta.half_width is not None and fit.beta.half_width < 0.05


def test_a_sweep_that_starts_in_the_knee_widens_beta() -> None:
    fit = chosen(sweep(Truth(p=2.0), intensities(0.3, 100, 24), rounds=5, within=0.01))
    assert fit.limits == "only the knee above beta is seen: beta within about 10 %"
    assert fit.beta.half_width is not None and fit.beta.half_width >= 0.0999
    assert fit.pi.half_width is not None and fit.pi.half_width < 0.05


def test_short_points_at_the_end_are_slow_by_the_overhead_and_no_drop() -> None:
    """The last four points take a few times T0 each: their rates are a third of pi, as the form says."""
    truth = Truth(p=8.0, t0=1e-5)
    short = sweep(truth, np.array([300.0, 350.0, 400.0, 450.0]), 2e3)
    assert max(p.estimate.value for p in short) < 5e10
    for high in (40.0, 200.0):  # behind all others, and among them
        fit = chosen([*sweep(truth, intensities(0.03, high, 30), 1e9), *short])
        assert fit.t0 == pytest.approx(1e-5, rel=0.01) and fit.limits == ""


def test_points_that_are_all_as_short_as_a_launch_may_show_nothing_else() -> None:
    """10 us whatever the work reads as a bandwidth of 6.4 GB/s over 64 kB: nothing but the time tells."""
    x = intensities(0.01, 100.0, 24)
    work = [(i * 64e3, 64e3) for i in x]
    launches = [CurvePoint(i, Interval(f / 1e-5), f, q, 1e-5) for i, (f, q) in zip(x, work, strict=True)]
    said = "no point lasts longer than 10.0 µs: starting one may be all that they show"
    assert said in chosen(launches).limits
    long = [replace(p, flops=p.flops * 1e4, bytes=p.bytes * 1e4, seconds=0.1) for p in launches]
    assert said[:8] not in chosen(long).limits
    of_one_byte = [replace(p, flops=p.x, bytes=1.0, seconds=p.x / p.estimate.value) for p in launches]
    assert said[:8] not in chosen(of_one_byte).limits


def test_rates_that_fall_at_the_end_are_told_and_do_not_lower_pi_to_the_fall() -> None:
    points = list(sweep(Truth(p=3.0), FULL))
    for i in (38, 39):
        points[i] = replace(points[i], estimate=Interval(0.6e11))
    fit = chosen(points)
    assert fit.limits == f"the rate drops by 40 % beyond {FULL[37]:.3g} FLOP/byte"
    assert fit.pi.value == pytest.approx(1e11, rel=0.02)
    assert chosen(sweep(Truth(p=3.0), FULL, rounds=5, within=0.04)).limits == ""


def _random_truths(n: int, seed: int) -> list[tuple[Truth, Fit]]:
    """Random devices, each with the fit of its 40 points in 5 rounds: 2 % within, 3 % between rounds."""
    rng, found = np.random.default_rng(seed), []
    for i in range(n):
        pi, ridge = 10 ** rng.uniform(10, 14), 10 ** rng.uniform(-0.5, 1.5)
        truth = Truth(pi, pi / ridge, rng.uniform(1.2, 4) if i % 2 else rng.uniform(4, 20))
        truth = replace(truth, t0=1e-3 * rng.integers(2) * 64e6 / truth.beta)
        points = sweep(truth, np.geomspace(1 / 48, 512, 40), 64e6, 5, 0.02, 0.03, rng)
        found.append((truth, chosen(points)))
    return found


def _covers(interval: Interval, value: float) -> bool:
    assert interval.low is not None and interval.high is not None
    return interval.low <= value <= interval.high


def _right(interval: Interval, value: float) -> bool:
    """Error within the larger of 2 % and the interval."""
    return abs(interval.value / value - 1) <= 0.02 or _covers(interval, value)


def _check_against_truth(found: Sequence[tuple[Truth, Fit]], least: float) -> None:
    for name in ("pi", "beta", "ridge"):
        pairs = [(getattr(fit, name), getattr(truth, name)) for truth, fit in found]
        assert np.mean([_covers(*pair) for pair in pairs]) >= least, name
        assert np.mean([_right(*pair) for pair in pairs]) >= least, name
        errors = [abs(np.log(interval.value / value)) for interval, value in pairs]
        assert np.mean(errors) < 0.03 and max(errors) < 0.10, name
    assert np.mean([_covers(fit.omega, overlap(truth.p)) for truth, fit in found]) >= least
    misses = [abs(fit.omega.value - overlap(truth.p)) for truth, fit in found]
    assert np.mean(misses) < 0.02 and max(misses) < 0.08
    soft = [(truth.p, fit.p) for truth, fit in found if truth.p <= 4]
    assert all(p is not None and abs(p / true - 1) < 0.15 for true, p in soft)
    assert not any(fit.limits for _, fit in found)


def test_random_devices_are_recovered() -> None:
    _check_against_truth(_random_truths(24, seed=1), least=0.85)


@pytest.mark.slow
def test_intervals_of_random_devices_cover_the_truth() -> None:
    _check_against_truth(_random_truths(80, seed=2), least=0.88)
