"""Efficiency curves of matrix products: costs, the step to a team, intervals, what is not known."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest

from bench.planning import sizes
from bench.prediction.estimate import largest
from bench.prediction.products import EDGES, RATE, SIDES, TEAMS, Shape, fitted
from tests.perf import unseen

SQUARES = [(n, n, n) for n in (256, 512, 1024, 1536)]
RAGGED = [(23, 29, 19), (47, 53, 61), (101, 89, 97), (509, 491, 13), (487, 11, 521), (17, 503, 479)]
LONG = [(4099, 37, 53), (43, 3989, 61), (59, 41, 4001)]
T0, PER_FLOP, PER_MN, PER_MK, PER_KN = 2e-6, 1 / 60e9, 4e-10, 7e-10, 5e-10


def sides(m: int, n: int, k: int) -> float:
    """Seconds of a product whose costs are known."""
    return T0 + PER_FLOP * 2.0 * m * n * k + PER_MN * m * n + PER_MK * m * k + PER_KN * k * n


def timed(shapes: list[tuple[int, int, int]], seconds: Any) -> list[Shape]:
    return [Shape(*s, seconds(*s)) for s in shapes]


def test_costs_of_a_library_are_found_again() -> None:
    curve = fitted(timed(SQUARES + RAGGED + LONG, sides))
    assert curve.form == SIDES
    assert curve.costs[:5] == pytest.approx((T0, PER_FLOP, PER_MN, PER_MK, PER_KN), rel=1e-3)
    assert curve.seconds(333, 77, 1200) == pytest.approx(sides(333, 77, 1200), rel=1e-4)
    assert curve.error == pytest.approx(0.0, abs=1e-4)


def test_a_disturbed_size_moves_the_curve_little() -> None:
    shapes = timed(SQUARES + RAGGED + LONG, sides)
    spoilt = [dataclasses.replace(s, seconds=s.seconds * (5 if s.m == 512 else 1)) for s in shapes]
    assert fitted(spoilt).seconds(900, 800, 700) == pytest.approx(sides(900, 800, 700), rel=0.1)


def test_the_step_from_one_thread_to_a_team_is_found() -> None:
    def team(m: int, n: int, k: int) -> float:
        body = sides(m, n, k) - T0
        return T0 + (1.8 * body if 2.0 * m * n * k < 1e6 else body + 1e-5)

    curve = fitted(timed(SQUARES + RAGGED + LONG, team), threads=2)
    assert curve.form == TEAMS
    assert curve.speed_up == pytest.approx(1.8, abs=0.05)
    assert 3.1e5 < curve.step < 1.8e6, "between the sizes on either side of it"
    assert curve.seconds(60, 50, 40) == pytest.approx(team(60, 50, 40), rel=0.03)
    assert fitted(timed(SQUARES + RAGGED + LONG, team), threads=1).form != TEAMS


def test_unseen_shapes_lie_inside_the_interval_nineteen_times_in_twenty() -> None:
    hits = []
    for seed in range(8):
        order = random.Random(seed)
        shapes = SQUARES + RAGGED + LONG
        curve = fitted([Shape(*s, sides(*s) * math.exp(order.gauss(0, 0.05))) for s in shapes])
        for i in range(100):
            shape = unseen.shape(unseen.KINDS[i % 4], order)
            width = curve.width(*shape)
            assert width is not None and 0.05 < width < 0.4
            error = math.log(curve.seconds(*shape) / sides(*shape)) + order.gauss(0, 0.05)
            hits.append(abs(error) <= width)
    assert 0.92 < sum(hits) / len(hits) < 0.99


def test_precisions_of_one_library_are_fitted_together() -> None:
    """fp32 at twice the rate; its smallest sizes 1.6 times too slow each cannot move the call's cost."""

    def seconds(item: int, m: int, n: int, k: int) -> float:
        body = PER_FLOP * 2.0 * m * n * k * item / 8 + (PER_MN * m * n + PER_MK * m * k) * item / 8
        return T0 + (1.8 * body if 2.0 * m * n * k < 1e6 else body + 1e-5)

    shapes = SQUARES + list(sizes.RAGGED)
    fp64 = [Shape(*s, seconds(8, *s)) for s in shapes]
    fp32 = [Shape(*s, seconds(4, *s) * (1.6 if s[0] in (13, 23) else 1.0), item=4) for s in shapes]
    curve = fitted([*fp32, *fp64], threads=2, item=4)
    assert curve.form == TEAMS and len(curve.missed) == len(curve.shapes) == 2 * len(shapes)
    assert curve.costs[1:4] == pytest.approx((PER_FLOP / 2, PER_MN / 2, PER_MK / 2), rel=0.1)
    assert curve.costs[0] == pytest.approx(T0, rel=0.1)
    for shape in ((60, 50, 40), (15, 20, 18), (700, 800, 900)):
        assert curve.seconds(*shape) == pytest.approx(seconds(4, *shape), rel=0.05)
        assert fitted([*fp32, *fp64], 2, 8).seconds(*shape) == pytest.approx(seconds(8, *shape), rel=0.05)
    assert fitted(fp32, threads=2).seconds(15, 20, 18) > 1.1 * seconds(4, 15, 20, 18), "alone it follows them"


def test_an_interval_is_as_wide_as_sizes_like_it_scatter() -> None:
    order = random.Random(5)
    small = [s for s in sizes.RAGGED if math.prod(s) < 3e6]
    shapes = [
        Shape(*s, sides(*s) * math.exp(order.gauss(0, 0.2 if s in small else 0.02)))
        for s in (*SQUARES, *sizes.RAGGED, *((n, n, n) for n in range(600, 1500, 90)))
    ]
    curve = fitted(shapes)
    near, far = curve.width(30, 40, 50), curve.width(900, 900, 900)
    assert near is not None and far is not None and near > 0.3 > 0.15 > far
    moved = dataclasses.replace(curve, shapes=tuple(dataclasses.replace(s, width=0.5) for s in shapes))
    assert moved.width(900, 900, 900) == pytest.approx(math.hypot(far, 0.5))


def test_few_sizes_allow_little() -> None:
    assert fitted(timed(SQUARES[:1], sides)).form == RATE
    assert fitted(timed(SQUARES[:1], sides)).width(64, 64, 64) is None
    squares = [(n, n, n) for n in (64, 128, 256, 512, 1024, 1536)]
    curve = fitted(timed(squares, lambda m, n, k: T0 + PER_FLOP * 2.0 * m * n * k + 5e-10 * 3 * n * n))
    assert curve.form == EDGES
    assert curve.costs[2:5] == pytest.approx([5e-10] * 3, rel=1e-3)
    assert curve.bounds_only(512, 512, 16) and not curve.bounds_only(5000, 5000, 5000)
    with pytest.raises(ValueError, match="at least one"):
        fitted([])


def test_what_lies_outside_the_measured_sizes_is_named() -> None:
    curve = fitted(timed(SQUARES, sides))
    assert curve.beyond(300, 1536, 256) == ""
    assert curve.beyond(2000, 1024, 16) == "m above 1536, k below 256"


def test_causes_that_take_equally_long_cannot_be_told() -> None:
    assert largest({"compute": 1.0, "memory": 0.95, "launch": 0.0}) == "cannot tell"
    assert largest({"compute": 1.0, "memory": 0.5, "launch": 1.2}) == "launch"
