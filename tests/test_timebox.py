"""What fits into the box: costs learnt, budgets shrunk, rounds cut, detail given up first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.planning.planned import Planned
from bench.planning.timebox import GUESSED_OVERHEAD, Ledger, TimeBox, allot
from bench.profile.records import Point, Precision, Repetitions, Sample


def planned(name: str, priority: int = 0, family: str = "fma") -> Planned:
    point = Point(family, name, "12 chains", Precision.of("fp64"))
    return Planned(point, priority, 0.02, 0.75, 0.01, target=0.01, budget=0.2, minimum=5)


def sample(of: Planned, wall: float, seconds: tuple[float, ...], scale: float = 1.0) -> Sample:
    done = Repetitions((0.0,) * len(seconds), seconds)
    facts = {"wall_seconds": wall, "scale": scale}
    return Sample(of.point, 1, 1, 0, repetitions=done, facts=facts)


def test_before_anything_is_seen_budgets_and_a_guess_are_the_cost() -> None:
    ledger, point = Ledger(), planned("a")
    assert ledger.predict(point, 1.0) == pytest.approx(GUESSED_OVERHEAD + 0.2)
    assert ledger.predict(point, 0.1) == pytest.approx(GUESSED_OVERHEAD + 5 * 0.01)


def test_costs_are_learnt_by_point_and_by_family() -> None:
    ledger, point = Ledger(), planned("a")
    ledger.add(point, sample(point, wall=0.5, seconds=(0.02,) * 10))
    assert ledger.predict(point, 1.0) == pytest.approx(0.3 + 0.2)
    assert ledger.predict(point, 0.75) == pytest.approx(0.3 + 0.15)
    assert ledger.predict(point, 0.1) == pytest.approx(0.3 + 5 * 0.02), "the minimum is always measured"
    assert ledger.predict(planned("b"), 1.0) == pytest.approx(0.3 + 0.2)
    assert ledger.predict(planned("c", family="mix"), 1.0) == pytest.approx(GUESSED_OVERHEAD + 0.2)
    assert ledger.spent == 0.5


def test_a_round_costs_its_start_too() -> None:
    ledger = Ledger(starts=[1.0, 3.0])
    assert ledger.round([planned("a"), planned("b")], 1.0) == pytest.approx(2.0 + 2 * 0.25)


def test_a_failed_point_costs_what_it_took() -> None:
    ledger, point = Ledger(), planned("a")
    ledger.add(point, replace(sample(point, 20.0, ()), status="failed"))
    assert ledger.predict(point, 1.0) == 20.0


@pytest.fixture
def ledger_and_points() -> tuple[Ledger, list[Planned]]:
    """Four points of 1 s, 0.2 s beside and 0.8 s in at most 8 repetitions, at least 5 of them."""
    ledger = Ledger()
    points = [planned("pi"), planned("beta"), planned("curve", 1), planned("detail", 2)]
    for point in points:
        ledger.add(point, sample(point, 1.0, (0.1,) * 8))
    return ledger, points


def names(of: tuple[Planned, ...]) -> list[str]:
    return [p.point.kernel for p in of]


@pytest.mark.parametrize(
    ("left", "rounds", "scale", "dropped"),
    [
        (41, 10, 1.0, []),
        (39, 10, 0.7, []),
        (27, 9, 0.35, []),
        (15, 5, 0.35, []),
        (11, 5, 0.35, ["detail"]),
        (7.1, 5, 0.35, ["detail", "curve"]),
        (3, 2, 0.35, ["detail", "curve"]),
        (0, 1, 0.35, ["detail", "curve"]),
    ],
)
def test_what_is_given_up(ledger_and_points, left, rounds, scale, dropped) -> None:  # type: ignore[no-untyped-def]
    found = allot(*ledger_and_points, left=left, wanted=10, least=5)
    assert (found.rounds, found.scale, names(found.dropped)) == (rounds, scale, dropped)
    assert sorted([*names(found.kept), *dropped]) == ["beta", "curve", "detail", "pi"]


def test_of_equal_priority_the_costly_go_first(ledger_and_points) -> None:  # type: ignore[no-untyped-def]
    ledger, points = ledger_and_points
    big = planned("gemm", 1)
    ledger.add(big, sample(big, 9.0, (1.0,) * 9))
    found = allot(ledger, [big, *points], left=16, wanted=5, least=5)
    assert names(found.dropped) == ["detail", "gemm"]
    assert names(found.kept) == ["pi", "beta", "curve"]


def test_nothing_to_measure_fits_always() -> None:
    assert allot(Ledger(), [], 0.0, 10, 5).kept == ()


@pytest.mark.parametrize(("seconds", "reserve"), [(12, 3.0), (60, 6.0), (180, 10.8), (900, 20.0)])
def test_the_box_keeps_a_reserve_for_fit_and_report(seconds: float, reserve: float) -> None:
    clock = iter([100.0, 130.0, 130.0])
    box = TimeBox(lambda: next(clock), seconds)
    assert box.reserve == pytest.approx(reserve)
    assert box.elapsed == 30.0
    assert box.left == pytest.approx(seconds - reserve - 30.0)
