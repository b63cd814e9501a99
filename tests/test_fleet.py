"""Many results together: who is off, what a spread is, and models side by side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare, fleet, store
from bench.errors import FileError, UsageError
from bench.fleet import Member
from bench.profile.records import Interval, Profile
from bench.report.fleet import render
from tests.synthetic import synthetic_profile


def scaled(quantity: str, factor: float, name: str = "board", **facts: Any) -> Profile:
    """The synthetic profile with every pi or beta times `factor`, as another device of that name."""
    profile = synthetic_profile()

    def times(value: Interval) -> Interval:
        return Interval(*(None if v is None else v * factor for v in (value.value, value.low, value.high)))  # type: ignore[arg-type]

    ceilings = tuple(
        dataclasses.replace(c, estimate=times(c.estimate)) if c.quantity == quantity else c
        for c in profile.ceilings
    )
    device = {**profile.facts.get("device", {}), "name": name, "state": "quiet"}
    return dataclasses.replace(profile, ceilings=ceilings, facts={**profile.facts, "device": device, **facts})


def members(*profiles: Profile) -> list[Member]:
    return [Member(f"run{i}", profile) for i, profile in enumerate(profiles)]


def line(found: fleet.Model, name: str) -> fleet.Line:
    return next(line for line in found.lines if line.name == name)


def test_the_board_that_is_off_is_named_with_its_ratio() -> None:
    found = {"findings": [{"cause": "power-cap"}, {"cause": "power-cap"}]}
    slow = scaled("pi", 0.9, **found)
    same = [scaled("pi", factor) for factor in (1.0, 1.004, 0.996, 1.001)]
    (model,) = fleet.fleet(members(same[0], slow, *same[1:])).models
    pi = line(model, "pi fp64 fma")
    assert (pi.count, pi.lowest_member) == (5, "run1")
    assert pi.median == pytest.approx(90e9)
    assert pi.spread == pytest.approx(1.004 - 0.9)
    (off,) = pi.outliers
    assert (off.member, off.verdict) == ("run1", compare.SLOWER)
    assert off.ratio.value == pytest.approx(0.9)
    assert off.ratio.low < 0.9 < off.ratio.high < 1  # type: ignore[operator]
    assert not any(other.outliers for other in model.lines if other.name.startswith("beta")), (
        "its memory is as fast"
    )
    text = render(fleet.fleet(members(same[0], slow, *same[1:])))
    assert "run1: off in" in text
    assert "triage of its run found power-cap" in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_lies_within_the_margin_or_is_not_known_well_is_not_off() -> None:
    near = [scaled("pi", factor) for factor in (1.0, 0.98, 1.02)]
    assert not any(line.outliers for line in fleet.fleet(members(*near)).models[0].lines)
    vague = scaled("beta", 0.9)
    wide = tuple(
        dataclasses.replace(
            c, estimate=Interval(c.estimate.value, c.estimate.value / 1.5, c.estimate.value * 1.5)
        )
        for c in vague.ceilings
    )
    vague = dataclasses.replace(vague, ceilings=wide)
    found = fleet.fleet(members(scaled("beta", 1.0), scaled("beta", 1.0), vague))
    assert not any(line.outliers for line in found.models[0].lines)


def test_two_boards_cannot_say_who_is_off() -> None:
    found = fleet.fleet(members(scaled("pi", 1.0), scaled("pi", 0.8)))
    (model,) = found.models
    assert line(model, "pi fp64 fma").spread == pytest.approx(0.2 / 0.9)
    assert not any(line.outliers for line in model.lines)
    assert "2 results cannot say which of them is off: that takes 3" in render(found)


def test_models_side_by_side() -> None:
    old, new = scaled("pi", 1.0, "old"), scaled("pi", 2.5, "new")
    found = fleet.fleet(members(old, new, scaled("pi", 2.7, "new")))
    assert [model.name.split(" ")[0] for model in found.models] == ["old", "new"]
    (pi,) = [side for side in found.sides if side.name == "pi fp64 fma"]
    assert pi.values == pytest.approx((90e9, 2.6 * 90e9))
    assert pi.ratios == pytest.approx((1.0, 2.6))
    text = render(found)
    assert "A: old" in text
    assert "(2.60x)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_measured_and_simulated_do_not_mix() -> None:
    mixed = members(scaled("pi", 1.0), dataclasses.replace(scaled("pi", 1.0), simulated=True))
    with pytest.raises(UsageError, match="some of these results are SIMULATED"):
        fleet.fleet(mixed)
    found = fleet.fleet(mixed, True).models
    assert [m.name.count("SIMULATED") for m in found] == [0, 1]
    named = dataclasses.replace(mixed[1].profile, facts={"device": {"name": "SIMULATED box"}})
    assert fleet.Member("x", named).model.startswith("SIMULATED box")


def written(folder: Path, profile: Profile) -> Path:
    folder.mkdir(parents=True)
    store.write_profile(folder, profile)
    return folder


def test_folders_are_gathered_and_named_apart(tmp_path: Path) -> None:
    one, two, three = (
        written(tmp_path / p, scaled("pi", 1.0)) for p in ("a/board/t1", "a/board/t2", "b/board/t1")
    )
    assert fleet.gathered([], tmp_path) == [one, two, three]
    assert fleet.gathered([tmp_path / "b", one], tmp_path) == [three, one]
    assert fleet.named([one, two]) == ["t1", "t2"]
    assert fleet.named([one, two, three]) == ["a/board/t1", "a/board/t2", "b/board/t1"]
    with pytest.raises(FileError, match=r"no profile\.json in or below"):
        fleet.gathered([one, tmp_path / "c"], tmp_path)


def test_a_result_that_cannot_be_read_is_left_out_with_the_reason(call: Any, tmp_path: Path) -> None:
    for i in range(3):
        written(tmp_path / f"board/t{i}", scaled("pi", 1.0))
    (tmp_path / "board/t1/profile.json").write_text("{")
    code, out, _ = call("fleet", tmp_path, "--json")
    (why,) = json.loads(out)["unread"]
    assert code == 0
    assert "t1" in why
    assert "left out: " in " ".join(call("fleet", tmp_path)[1].split())
    for i in (0, 2):
        (tmp_path / f"board/t{i}/profile.json").write_text("{")
    assert call("fleet", tmp_path)[0] == FileError.exit_code


def test_the_verb(call: Any, tmp_path: Path) -> None:
    for i, factor in enumerate((1.0, 0.8, 1.0)):
        written(tmp_path / f"board/t{i}", scaled("pi", factor))
    code, out, _ = call("fleet", "--results", tmp_path, "--json")
    assert code == 0
    found = json.loads(out)
    (pi,) = [line for line in found["models"][0]["lines"] if line["name"] == "pi fp64 fma"]
    assert [off["member"] for off in pi["outliers"]] == ["t1"]
    code, out, _ = call("fleet", tmp_path)
    assert code == 0
    assert "t1 0.800x" in out
