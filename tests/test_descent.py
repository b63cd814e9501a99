"""Robust least squares in a box: exact where the answer is known, no worse than SciPy where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from bench.fitting.descent import Array, Descent, descend, soft_cost

SCALE, TOLERANCE, EVALUATIONS = 0.05, 1e-10, 200
WIDE = np.full(2, 1e3)


def line(x: Array, y: Array, start: Array, low: Array = -WIDE, high: Array = WIDE) -> Descent:
    """A straight line through points, robustly."""
    rows = np.stack([x, np.ones_like(x)], axis=1)
    return descend(lambda t: rows @ t - y, lambda _: rows, start, low, high, SCALE, TOLERANCE, EVALUATIONS)


def test_an_exact_line_is_found() -> None:
    x = np.linspace(-2.0, 5.0, 30)
    found = line(x, 3.0 * x - 7.0, np.zeros(2))
    assert found.x == pytest.approx([3.0, -7.0], abs=1e-9)
    assert found.cost == pytest.approx(0.0, abs=1e-18)


def test_small_residuals_are_squares_and_large_ones_absolute_values() -> None:
    assert soft_cost(np.array([1e-4, -2e-4]), SCALE) == pytest.approx(0.5 * (1e-8 + 4e-8), rel=1e-4)
    assert soft_cost(np.array([50.0]), SCALE) == pytest.approx(SCALE * 50.0, rel=2e-3)


def test_an_outlier_hardly_moves_it() -> None:
    x = np.linspace(0.0, 1.0, 41)
    y = 2.0 * x + 1.0
    y[7] += 10.0
    found = line(x, y, np.zeros(2))
    assert found.x == pytest.approx([2.0, 1.0], abs=0.01)
    assert np.polyfit(x, y, 1)[1] > 1.3, "plain squares follow it"


@pytest.mark.parametrize(("low", "high", "want"), [(-5.0, 2.0, 2.0), (4.0, 9.0, 4.0), (-5.0, 9.0, 3.0)])
def test_a_bound_holds_and_the_others_make_the_best_of_it(low: float, high: float, want: float) -> None:
    x = np.linspace(-1.0, 1.0, 21)
    y = 3.0 * x + 0.01
    found = line(x, y, np.array([0.0, 0.0]), np.array([low, -1.0]), np.array([high, 1.0]))
    assert found.x[0] == pytest.approx(want, abs=1e-8)
    assert found.x[1] == pytest.approx(0.01, abs=1e-6), "the residuals are odd in x"


def test_a_start_at_a_bound_leaves_it_where_the_cost_falls() -> None:
    x = np.linspace(0.0, 1.0, 11)
    found = line(x, 0.5 * x, np.array([0.0, 0.0]), np.zeros(2), np.ones(2))
    assert found.x == pytest.approx([0.5, 0.0], abs=1e-8)


def test_a_parameter_that_nothing_depends_on_stays() -> None:
    x = np.linspace(0.0, 1.0, 11)
    rows = np.stack([x, np.zeros_like(x)], axis=1)
    start = np.array([0.0, 0.25])
    found = descend(lambda t: rows @ t - x, lambda _: rows, start, -WIDE, WIDE, SCALE, TOLERANCE, EVALUATIONS)
    assert found.x == pytest.approx([1.0, 0.25], abs=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_curved_residuals_end_where_scipy_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.linspace(0.1, 4.0, 40)
    rate, height = rng.uniform(0.3, 2.0), rng.uniform(0.5, 3.0)
    y = height * np.exp(-rate * x) + rng.normal(0.0, 0.02, len(x))
    y[rng.integers(len(x))] += 0.5
    low, high = np.array([0.01, 0.01]), np.array([5.0, 10.0])

    def residuals(t: Array) -> Array:
        return np.asarray(t[1] * np.exp(-t[0] * x) - y)

    def jacobian(t: Array) -> Array:
        falling = np.exp(-t[0] * x)
        return np.stack([-t[1] * x * falling, falling], axis=1)

    start = np.array([1.0, 1.0])
    found = descend(residuals, jacobian, start, low, high, SCALE, TOLERANCE, EVALUATIONS)
    theirs = least_squares(
        residuals,
        start,
        jac=jacobian,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=SCALE,
        xtol=1e-12,
        ftol=1e-12,
    )
    assert found.cost == pytest.approx(theirs.cost, rel=1e-7)
    assert found.x == pytest.approx(theirs.x, rel=1e-4)
