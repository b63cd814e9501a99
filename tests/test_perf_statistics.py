"""The statistics of `make perf`: exact ranks, covering intervals, random order, no luck in the winner."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.perf import pairs
from tests.perf.pairs import Window


class Fake:
    """A side with a known mean rate and noise, which notes when it ran."""

    def __init__(
        self, name: str, rate: float, seed: int = 0, noise: float = 0.0, log: list[str] | None = None
    ):
        self.name, self._rate, self._noise = name, rate, noise
        self._random = random.Random(seed)
        self._log = log if log is not None else []

    def window(self) -> Window:
        self._log.append(self.name)
        return Window(1e9, 1e9 / (self._rate * math.exp(self._random.gauss(0, self._noise))))


def windows(rates: Sequence[float]) -> list[Window]:
    return [Window(rate, 1.0) for rate in rates]


# Tables of the sign test: the k-th smallest of n values bounds the median with two-sided 95 %.
@pytest.mark.parametrize(
    ("count", "rank"), [(5, None), (6, 1), (8, 1), (9, 2), (20, 6), (50, 18), (100, 40), (200, 86)]
)
def test_rank_of_the_bound_is_that_of_the_sign_test(count: int, rank: int | None) -> None:
    assert pairs.median_rank(count) == rank


def test_ratio_is_the_median_of_pairwise_ratios_and_not_of_pooled_rates() -> None:
    reference = [100.0, 50.0, 10.0, 80.0, 20.0, 40.0, 60.0, 30.0, 90.0]
    factors = [0.97, 0.99, 0.98, 1.10, 0.90, 0.985, 0.975, 0.995, 0.96]
    mine = [r * f for r, f in zip(reference, factors, strict=True)]
    found = pairs.ratio(windows(mine), windows(reference))
    assert found.value == pytest.approx(0.98)
    assert (found.low, found.high) == (pytest.approx(0.96), pytest.approx(0.995))
    assert found.pairs == 9


def test_drift_that_both_sides_share_cancels() -> None:
    drift = np.linspace(1.0, 3.0, 21)
    found = pairs.ratio(windows(0.98 * drift), windows(drift))
    assert found.low == pytest.approx(0.98)
    assert found.high == pytest.approx(0.98)


def test_too_few_pairs_have_no_bound() -> None:
    found = pairs.ratio(windows([2.0] * 5), windows([1.0] * 5))
    assert (found.value, found.low, found.high) == (pytest.approx(2.0), None, None)


@pytest.mark.parametrize("mine", [[], [1.0]])
def test_unequal_or_empty_sides_are_refused(mine: list[float]) -> None:
    with pytest.raises(ValueError, match="equally many windows"):
        pairs.ratio(windows(mine), windows([1.0] * 2 if mine else []))


@pytest.mark.parametrize("count", [9, 200])
def test_interval_covers_the_truth_as_often_as_it_claims(count: int) -> None:
    noise = np.random.default_rng(count).standard_t(3, size=(1500, count)) * 0.05
    logs = np.sort(noise, axis=1)
    rank = pairs.median_rank(count)
    assert rank is not None
    covered = np.mean((logs[:, rank - 1] <= 0) & (logs[:, -rank] >= 0))
    one = pairs.ratio(windows(np.exp(noise[0])), windows([1.0] * count))
    assert one.low == pytest.approx(math.exp(logs[0, rank - 1]))
    assert 0.945 <= covered <= 0.99


def test_every_turn_runs_every_side_once_in_changing_order() -> None:
    log: list[str] = []
    sides = {name: Fake(name, 1.0, log=log) for name in "abc"}
    found = pairs.interleave(sides, 60, random.Random(7))
    turns = [tuple(log[i : i + 3]) for i in range(0, 180, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) == 6
    assert {name: len(side) for name, side in found.items()} == {"a": 60, "b": 60, "c": 60}


def test_a_noisy_side_against_itself_gives_one() -> None:
    sides = {"one": Fake("x", 5e9, 1, 0.08), "other": Fake("x", 5e9, 2, 0.08)}
    found = pairs.interleave(sides, 200, random.Random(3))
    ratio = pairs.ratio(found["one"], found["other"])
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low < 1.0 < ratio.high
    assert 0.97 < ratio.value < 1.03


def test_the_fastest_of_several_is_found_and_names_must_differ() -> None:
    sides = [Fake(str(k), 1e9 * (1 + 0.1 * k), k, 0.02) for k in (2, 0, 3, 1)]
    assert pairs.fastest(sides, random.Random(1)).name == "3"
    with pytest.raises(ValueError, match="must differ"):
        pairs.fastest([sides[0], sides[0]], random.Random(1))


def test_rate_and_shortest_window() -> None:
    found = [Window(10.0, 2.0), Window(10.0, 1.0), Window(10.0, 5.0)]
    assert pairs.rate(found) == 5.0
    assert pairs.shortest({"a": found, "b": [Window(1.0, 1.5)]}) == 1.0
