"""The statistics contract against hand-computed numbers and against an independent Student's t."""

from __future__ import annotations

import math

import pytest
from scipy.special import stdtr, stdtrit

from bench.fitting.intervals import (
    CAP_QUIET,
    CAP_SHARED,
    bounded_interval,
    clean_rates,
    interval,
    memory_cap,
    quantile,
    ratio,
    student,
    sweep_quantile,
)
from bench.profile.records import Interval, Repetitions


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 29, 30, 120, 200])
def test_student_agrees_with_scipy(degrees: int) -> None:
    assert student(degrees) == pytest.approx(stdtrit(degrees, 0.975), rel=1e-12)
    assert 2 * stdtr(degrees, student(degrees, 0.5)) - 1 == pytest.approx(0.5, abs=1e-12)


def test_student_of_many_degrees_is_taken_at_200_and_of_none_refused() -> None:
    assert student(10_000) == student(200) < 1.972
    with pytest.raises(ValueError, match="at least 1"):
        student(0)


def test_interval_is_the_hand_computed_one() -> None:
    # logs of 8, 10, 12.5 are ln 10 + (-0.22314, 0, 0.22314): sd 0.22314; reach 4.30265 * 0.22314 / sqrt 3
    found = interval([12.5, 8.0, 10.0])
    assert found.value == 10.0
    assert found.low == pytest.approx(10 * math.exp(-0.554320), rel=1e-5)
    assert found.high == pytest.approx(10 * math.exp(0.554320), rel=1e-5)
    assert found.half_width == pytest.approx(0.740756, rel=1e-5)


def test_value_is_the_median_and_is_never_outside_its_interval() -> None:
    skewed = [1.0] * 9 + [10.0] * 8
    found = interval(skewed)
    assert found.value == 1.0 == found.low
    assert found.high is not None and found.high > 3
    assert interval([2.0, 2.0, 2.0], value=3.0) == Interval(3.0, pytest.approx(2.0), pytest.approx(3.0))


@pytest.mark.parametrize("value", [1e11 / 3, 1.4e10, 7.3e9, 3e-7])
def test_equal_rounds_have_their_value_inside(value: float) -> None:
    """The logarithm of a value and back is another by its last digit."""
    found = interval([value] * 5)
    assert found.low is not None and found.high is not None
    assert found.low <= value <= found.high and found.half_width == pytest.approx(0.0, abs=1e-12)


def test_one_round_has_a_value_and_no_interval() -> None:
    assert interval([5.0]) == Interval(5.0, None, None)
    assert bounded_interval([0.5], 0, 1) == Interval(0.5, None, None)
    assert interval([5.0]).half_width is None


def test_bounded_interval_is_linear_and_cut_to_its_range() -> None:
    # mean 0.8, sd 0.1, n 4: reach 3.18245 * 0.1 / 2
    values = [0.8 + 0.1 * math.sqrt(1.5) * step for step in (-1, 0, 0, 1)]
    inside = bounded_interval(values, 0.0, 1.0)
    assert inside.value == pytest.approx(0.8)
    assert inside.low == pytest.approx(0.8 - 0.159122, abs=1e-6)
    assert inside.high == pytest.approx(0.8 + 0.159122, abs=1e-6)
    assert bounded_interval(values, 0.7, 0.9) == Interval(inside.value, 0.7, 0.9)


def test_quantile_is_linear_between_order_statistics() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.75) == 3.25
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([7.0], 0.75) == 7.0
    assert quantile([1.0, 2.0], 1.0) == 2.0
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


def test_a_sweep_is_read_at_the_quantile_of_the_resource_that_binds() -> None:
    assert [sweep_quantile(share) for share in (0.0, 0.5, 1.0)] == [0.5, 0.625, 0.75]


def test_disturbed_repetitions_are_left_out() -> None:
    repetitions = Repetitions(
        seconds=(1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 0.5),
        switches=(0, 0, 0, 0, 0, 999, 0),
        cpu_share=(1.0, 1.0, 0.99, 0.98, 1.0, 1.0, 0.5),
    )
    found = clean_rates(40.0, repetitions)
    assert found.rates == (40.0, 20.0, 10.0, 8.0, 5.0, 4.0), "a switch that took no CPU time disturbs nothing"
    assert (found.disturbed, found.total, found.fallback) == (1, 7, False)


def test_clean_begins_at_98_percent_of_the_cpu() -> None:
    assert Repetitions(seconds=(1.0, 1.0), cpu_share=(0.98, 0.979)).clean == (True, False)


def test_with_too_few_clean_repetitions_all_are_used_and_said_so() -> None:
    repetitions = Repetitions(seconds=(1.0, 2.0, 4.0, 5.0, 8.0), switches=(0, 0, 0, 0, 999))
    found = clean_rates(40.0, repetitions)
    assert found.rates == (40.0, 20.0, 10.0, 8.0, 5.0)
    assert (found.disturbed, found.total, found.fallback) == (1, 5, True)
    few = clean_rates(40.0, Repetitions(seconds=(1.0, 2.0)))
    assert (few.rates, few.fallback) == ((40.0, 20.0), False)


def test_a_time_that_is_not_positive_gives_no_rate() -> None:
    assert clean_rates(6.0, Repetitions(seconds=(0.0, 2.0, -1.0))).rates == (3.0,)


def test_ratio_adds_half_widths_in_quadrature_on_logs() -> None:
    a = Interval(10.0, 10 * math.exp(-0.03), 10 * math.exp(0.03))
    b = Interval(5.0, 5 * math.exp(-0.04), 5 * math.exp(0.04))
    found = ratio(a, b)
    assert found.value == 2.0
    assert found.low == pytest.approx(2 * math.exp(-0.05))
    assert found.high == pytest.approx(2 * math.exp(0.05))
    assert ratio(a, Interval(5.0)) == Interval(2.0, None, None)


@pytest.mark.parametrize("state", ["vm", "vm-container", "shared", "quota", "busy", "gpu-shared-mig"])
def test_memory_of_a_machine_that_others_use_may_be_wider(state: str) -> None:
    assert memory_cap(state) == CAP_SHARED == 0.10
    assert memory_cap("quiet") == CAP_QUIET == 0.03
