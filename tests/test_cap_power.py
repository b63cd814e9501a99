"""The bound on what any test can tell of a power cap, where its answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cap_power import around, bounds, capped_at, nearest
from tests.sweeps import Capped, Truth, grid

STILL = np.ones((5, 2))


def test_a_norm_is_its_own_nearest_and_is_found_as_often_as_it_is_mistaken() -> None:
    found = nearest(Truth(p=8.0), grid(), 0.02, STILL)
    assert found.p == pytest.approx(8.0, rel=1e-3)
    assert found.distance < 1e-3 and found.departs < 1e-5
    assert found.found == pytest.approx(0.05, abs=1e-3)


def test_a_knee_between_two_points_is_seen_by_no_test_and_a_deep_one_by_any() -> None:
    x = grid()
    middle = float(np.sqrt(x[20] * x[21]))
    hidden = capped_at(Truth(beta=1e11 / middle), 1.015, 0.5)
    assert nearest(hidden, x, 0.02, STILL).found == pytest.approx(0.05, abs=0.01)
    deep = nearest(capped_at(Truth(beta=1e11 / middle), 1.4, 0.7), x, 0.02, STILL)
    assert deep.found > 0.999 and deep.departs > 0.04


def test_distance_counts_in_units_of_noise_and_grows_with_rounds_and_points() -> None:
    truth = capped_at(Truth(), 1.1, 0.5)
    one = nearest(truth, grid(), 0.02, STILL)
    assert nearest(truth, grid(), 0.04, STILL).distance == pytest.approx(one.distance / 2, rel=1e-6)
    assert nearest(truth, grid(), 0.02, np.ones((20, 2))).distance == pytest.approx(
        2 * one.distance, rel=0.02
    )
    assert nearest(truth, around(truth.ridge), 0.02, STILL).distance > 1.3 * one.distance


def test_rounds_of_other_pi_and_beta_share_one_norm() -> None:
    truth = capped_at(Truth(), 1.3, 0.65)
    (moved,) = bounds([truth], 1)
    assert moved.distance == pytest.approx(nearest(truth, grid(), 0.02, STILL).distance, rel=0.2)


def test_the_parts_of_a_cap_add_up_to_its_depth() -> None:
    truth: Capped = capped_at(Truth(), 1.25, 0.5)
    assert truth.pi / truth.pi_c + truth.beta / truth.beta_c == pytest.approx(1.25)
    (seconds,) = truth.seconds(np.array([truth.pi]), np.array([truth.beta]), truth.pi, truth.beta)
    assert seconds == pytest.approx(1.25)
