"""Points that double a ceiling's work, and simulated devices that pass every self-check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.fitting.checks import CHECKS
from bench.planning.plan import PRESETS, plan
from tests.check_evaluation import DEVICES, run
from tests.fake_device import FAKE, FakeBackend


@pytest.mark.parametrize("preset", PRESETS)
def test_doublings_cost_three_percent_of_the_time_box_at_most(preset: str) -> None:
    drafted = plan(FAKE, FakeBackend().variants, preset)
    longer = [p for p in drafted.points if "window" in p.point.sizes and p.point.family != "mix"]
    seconds = sum(p.minimum * p.target for p in longer) * drafted.preset.rounds
    assert 0 < seconds <= 0.03 * drafted.preset.minutes * 60
    assert {"fma", "read"} <= {p.point.kernel for p in longer}
    for p in longer:
        (single,) = (
            q
            for q in drafted.points
            if q.regime == p.regime
            and q.point == replace(p.point, sizes={k: v for k, v in p.point.sizes.items() if k != "window"})
        )
        assert (p.target, p.tune, p.priority) == (2 * single.target, single.tune, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_healthy_devices_hardly_raise_alarms(name: str) -> None:
    """`python -m tests.check_evaluation` does this with 100 seeds, of which 1 raises one; here 1 may."""
    found = run(name, range(1, 11))
    assert found.alarmed <= 1, found.examples
    assert {check for check, _ in found.answers} == set(CHECKS)
