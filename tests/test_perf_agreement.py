"""The comparison of repeated runs counts what agrees and what is narrow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.profile.records import Interval
from bench.store import write_profile
from tests.perf.agreement import agreement, agreements, key, main
from tests.synthetic import synthetic_profile

PI = synthetic_profile().ceilings[0]


def test_a_value_outside_an_interval_does_not_agree() -> None:
    found = [
        replace(PI, estimate=Interval(100.0, 98.0, 102.0), converged=True),
        replace(PI, estimate=Interval(101.0, 99.0, 103.0), converged=True),
        replace(PI, estimate=Interval(110.0, 108.0, 112.0), converged=False),
        replace(PI, estimate=Interval(101.0), converged=None),
    ]
    a = agreement("pi", found)
    assert (a.value, a.agreeing, a.converged, a.runs) == (101.0, 2, 2, 4)
    assert a.spread == pytest.approx(0.1)
    assert a.widest == pytest.approx((102 / 98) ** 0.5 - 1)


def test_runs_are_read_and_only_common_ceilings_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = synthetic_profile()
    part = replace(whole, ceilings=whole.ceilings[1:])
    for name, profile in (("a", whole), ("b", part)):
        (tmp_path / name).mkdir()
        write_profile(tmp_path / name, profile)
    found = agreements([tmp_path / "a", tmp_path / "b"])
    assert {a.name for a in found} == {key(c) for c in part.ceilings}
    assert all(a.agreeing == a.runs == 2 for a in found)
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "100% agree" in capsys.readouterr().out


def test_one_run_is_no_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one"]) == 2
    assert "usage" in capsys.readouterr().err
