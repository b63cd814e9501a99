"""When repeating stops: minimum, width, limit, and what counts as clean."""

from __future__ import annotations

import math

import pytest

from bench.profile.records import Repetitions
from bench.running.stopping import LARGEST_BATCH, MOST, StopRule, relative_half_width


def batch(*seconds: float, switches: int = 0) -> Repetitions:
    n = len(seconds)
    return Repetitions(tuple(range(n)), seconds, (switches,) * n, (0.5 if switches else 1.0,) * n)


def test_width_is_between_the_order_statistics_around_the_ranks() -> None:
    # n = 100, q = 0.5: ranks 50 -+ 1.96 * 5 = 40.2 .. 59.8, so the 41st and the 61st value.
    rates = [float(i) for i in range(1, 101)]
    assert relative_half_width(rates, 0.5) == pytest.approx(math.sqrt(61 / 41) - 1)
    # q = 0.75: 75 -+ 1.96 * sqrt(18.75) = 66.5 .. 83.5, so the 67th and the 85th.
    assert relative_half_width(rates, 0.75) == pytest.approx(math.sqrt(85 / 67) - 1)


@pytest.mark.parametrize("n", [1, 5])
def test_width_is_unknown_for_few_repetitions(n: int) -> None:
    assert relative_half_width([1.0] * n, 0.75) == math.inf


def test_goes_on_until_the_minimum_then_stops_when_narrow() -> None:
    rule = StopRule(minimum=8, half_width=0.01, limit=1.0)
    rule.add(batch(*[0.01] * 7))
    assert rule.verdict(elapsed=0.5) == ""
    rule.add(batch(0.01))
    assert rule.verdict(elapsed=0.5) == "converged"


def test_stops_at_the_limit_when_wide() -> None:
    rule = StopRule(minimum=4, half_width=0.01, limit=1.0)
    rule.add(batch(*[0.01, 0.02] * 10))
    assert rule.verdict(elapsed=0.9) == ""
    assert rule.verdict(elapsed=1.0) == "time limit"


def test_gives_the_minimum_up_after_four_limits() -> None:
    rule = StopRule(minimum=8, half_width=0.01, limit=1.0)
    rule.add(batch(2.0, 2.0))
    assert rule.verdict(elapsed=3.9) == ""
    assert rule.verdict(elapsed=4.1) == "time limit after 2 of 8 repetitions"


def test_a_loop_that_takes_no_time_ends_though_all_its_seconds_are_wanted() -> None:
    rule = StopRule(minimum=5, half_width=-1.0, limit=10.0)
    rule.add(batch(*[1e-6] * (MOST - 1)))
    assert rule.verdict(elapsed=0.01) == ""
    rule.add(batch(1e-6))
    assert rule.verdict(elapsed=0.01) == f"{MOST} repetitions"


def test_disturbed_repetitions_do_not_converge() -> None:
    rule = StopRule(minimum=8, half_width=0.01, limit=1.0)
    rule.add(batch(*[0.01] * 20, switches=1))
    assert rule.verdict(elapsed=0.5) == ""
    assert rule.verdict(elapsed=1.0) == "time limit"


def test_batches_fill_the_minimum_then_grow_and_respect_the_limit() -> None:
    rule = StopRule(minimum=8, half_width=0.01, limit=1.0)
    assert rule.batch(elapsed=0.0, expected=0.01) == 8
    assert rule.batch(elapsed=0.0, expected=0.4) == 2
    assert rule.batch(elapsed=0.0, expected=9.0) == 1
    rule.add(batch(*[0.01] * 8))
    assert rule.batch(elapsed=0.1, expected=0.01) == 4
    rule.add(batch(*[0.01] * 60))
    assert rule.batch(elapsed=0.1, expected=0.01) == LARGEST_BATCH
    assert rule.batch(elapsed=0.98, expected=0.01) == 2


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="timer returned"):
        StopRule(1, 0.01, 1.0).add(batch(0.01, seconds))


def test_all_repetitions_are_kept_in_order() -> None:
    rule = StopRule(1, 0.01, 1.0)
    rule.add(batch(0.1, 0.2))
    rule.add(batch(0.3, switches=2))
    assert rule.repetitions.seconds == (0.1, 0.2, 0.3)
    assert rule.repetitions.switches == (0, 0, 2)
