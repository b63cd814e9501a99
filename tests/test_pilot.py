"""The pilot: which form of a loop it chooses, by how much one must beat the guess, and that it is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.planning.plan import plan
from bench.planning.planned import Planned
from bench.profile.records import Point, Precision, Repetitions, Sample
from bench.running.campaign import winners
from bench.running.runners import InProcess
from tests.fake_device import FAKE, FakeBackend
from tests.fake_suite import run, use


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The fake device with its virtual clock behind every --device, measured in this process."""
    return use(monkeypatch, FakeBackend())


def test_the_pilots_winner_is_used_and_noted(fake: FakeBackend, tmp_path: Path) -> None:
    log = run(tmp_path, preset="quick", families=["fma", "stream"])
    noted = next(n["winners"] for n in log.notes if "winners" in n)
    assert set(noted.values()) == {"second"}, "the fake's second variant is 10 % faster"
    rounds = {s.point.variant for s in log.samples if s.round and s.status == "ok"}
    assert rounds == {"second", "numba"}
    assert {s.regime for s in log.samples if s.round == 0} == {"pilot"}


@pytest.mark.parametrize(("ahead", "winner"), [(0.5, "first"), (1.015, "first"), (1.03, "second")])
def test_the_guess_stands_unless_another_form_is_clearly_faster(ahead: float, winner: str) -> None:
    drafted = plan(FAKE, FakeBackend().variants, "quick", families=["fma"], precisions=["fp64"])
    runner = InProcess(FakeBackend())
    samples = [runner.measure(trial, n, 1.0, 100) for n, trial in enumerate(drafted.pilot)]
    rates = {"first": 1.0, "second": ahead}
    even = [
        replace(s, flops=rates[s.point.variant] * 1e9, repetitions=Repetitions(seconds=(1.0,) * 5))
        for s in samples
    ]
    assert winners(drafted.pilot, even) == {"fma/fp64": winner}


def test_on_a_gpu_half_a_per_cent_is_clear() -> None:
    point = Point("fma", "fma", "first", Precision.of("fp64"), scope="device")
    trial = Planned(point, 0, 0.1, 0.5, 0.01, 0.1, 0.1, 3, tune="it")
    for ahead, winner in ((1.004, "first"), (1.006, "second")):
        trials = [trial, trial.with_variant("second")]
        timed = [
            Sample(t.point, 0, 1, n, flops=rate, repetitions=Repetitions(seconds=(1.0,) * 5))
            for n, (t, rate) in enumerate(zip(trials, (1e9, ahead * 1e9), strict=True))
        ]
        assert winners(trials, timed) == {"it": winner}


def test_winners_are_the_highest_medians_of_what_could_be_measured() -> None:
    drafted = plan(FAKE, FakeBackend().variants, "quick", families=["fma"])
    runner = InProcess(FakeBackend(slow={"fma": 1.0}))
    samples = [runner.measure(trial, n, 1.0, 100) for n, trial in enumerate(drafted.pilot)]
    assert winners(drafted.pilot, samples) == {"fma/fp64": "second", "fma/fp32": "second"}
    failed = [replace(s, status="failed") if s.point.variant == "second" else s for s in samples]
    assert winners(drafted.pilot, failed) == {"fma/fp64": "first", "fma/fp32": "first"}
    assert winners(drafted.pilot, []) == {}
