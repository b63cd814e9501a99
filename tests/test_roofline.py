"""The roofline model and its two laws as values: ridge, p-norm, Amdahl at p = 1, max at p = infinity."""

from __future__ import annotations

import math

import pytest

from bench.profile.roofline import (
    INFINITY,
    attainable,
    norm_of_overlap,
    overlap,
    rate,
    ridge_point,
    seconds,
)

PI, BETA = 90e9, 20e9


def test_ridge_is_where_both_roofs_meet() -> None:
    assert ridge_point(PI, BETA) == 4.5
    assert attainable(4.5, PI, BETA) == PI == BETA * 4.5
    assert attainable(1.0, PI, BETA) == 20e9
    assert attainable(100.0, PI, BETA) == PI


@pytest.mark.parametrize(("s", "speed_up"), [(3, 2.5), (9, 5.0), (18, 20 / 3), (1e12, 10.0)])
def test_one_second_of_movement_and_nine_of_compute_follow_amdahl(s: float, speed_up: float) -> None:
    flops, moved = 9 * PI, 1 * BETA
    before = seconds(flops, moved, PI, BETA, p=1)
    assert before == pytest.approx(10.0)
    assert before / seconds(flops, moved, s * PI, BETA, p=1) == pytest.approx(speed_up)


@pytest.mark.parametrize("intensity", [0.1, 4.5, 40.5])
@pytest.mark.parametrize("s", [1.5, 3.0, 9.0])
def test_serial_speed_up_is_amdahls_with_the_compute_share(intensity: float, s: float) -> None:
    q = intensity * BETA / (PI + intensity * BETA)
    speed_up = rate(intensity, s * PI, BETA, 1) / rate(intensity, PI, BETA, 1)
    assert speed_up == pytest.approx(1 / (1 - q + q / s))


@pytest.mark.parametrize(("s", "speed_up"), [(3, 3.0), (9, 9.0), (18, 9.0)])
def test_perfect_pipelining_gains_until_the_other_resource_binds(s: float, speed_up: float) -> None:
    flops, moved = 9 * PI, 1 * BETA
    assert seconds(flops, moved, PI, BETA) / seconds(flops, moved, s * PI, BETA) == pytest.approx(speed_up)


def test_seconds_of_the_norm_and_the_overhead() -> None:
    assert seconds(3 * PI, 4 * BETA, PI, BETA, p=2) == pytest.approx(5.0)
    assert seconds(3 * PI, 4 * BETA, PI, BETA, p=2, t0=0.5) == pytest.approx(5.5)
    assert seconds(3 * PI, 4 * BETA, PI, BETA) == 4.0
    assert seconds(0.0, 0.0, PI, BETA, p=2, t0=0.5) == 0.5
    assert seconds(1e-300 * PI, 1.0 * BETA, PI, BETA, p=50) == pytest.approx(1.0)


def test_rate_bends_from_slope_to_roof() -> None:
    assert rate(4.5, PI, BETA, 1) == pytest.approx(PI / 2)
    assert rate(4.5, PI, BETA) == pytest.approx(PI)
    assert rate(4.5e-6, PI, BETA, 2) == pytest.approx(BETA * 4.5e-6)
    assert rate(4.5e6, PI, BETA, 2) == pytest.approx(PI)


@pytest.mark.parametrize(("p", "omega"), [(1.0, 0.0), (2.0, 2 - math.sqrt(2)), (1 / math.log2(1.5), 0.5)])
def test_overlap_and_its_norm_are_inverse(p: float, omega: float) -> None:
    assert overlap(p) == pytest.approx(omega)
    assert norm_of_overlap(omega) == pytest.approx(p)
    slower = seconds(PI, BETA, PI, BETA, p) / seconds(PI, BETA, PI, BETA)
    assert 2 - slower == pytest.approx(omega)


def test_full_overlap_is_the_infinite_norm() -> None:
    assert overlap(INFINITY) == 1.0
    assert norm_of_overlap(1.0) == INFINITY


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_impossible_parameters_are_refused_by_name(wrong: float) -> None:
    with pytest.raises(ValueError, match="pi must be positive"):
        ridge_point(wrong, BETA)
    with pytest.raises(ValueError, match="beta must be positive"):
        attainable(1.0, PI, wrong)
    with pytest.raises(ValueError, match="p must be positive"):
        overlap(wrong)


@pytest.mark.parametrize("wrong", [-0.01, 1.01, float("nan")])
def test_overlap_outside_zero_to_one_has_no_norm(wrong: float) -> None:
    with pytest.raises(ValueError, match="overlap must lie"):
        norm_of_overlap(wrong)
