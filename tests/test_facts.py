"""Free facts of a profile that are read again: those of another shape are refused with their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import store
from bench.errors import FileError
from bench.profile.encoding import FormatError, dumps
from bench.profile.sanity import check_profile
from tests.synthetic import synthetic_profile

CACHE = {"level": "L1", "bytes": 32768, "instances": 2, "sharers": 1}
LOOP = {"rate": 1e10, "threads": 1, "variant": "numba", "ratio": None}
CROSS = {"names": ["a", "b"], "limit": 0.02, "compared": []}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"device": "cpu"}, "profile.facts.device must be an object, got str"),
    ({"device": {"facts": "x"}}, "profile.facts.device.facts must be an object, got str"),
    ({"device": {"caches": 1e-320}}, "profile.facts.device.caches must be an array, got float"),
    ({"device": {"caches": ["x"]}}, "profile.facts.device.caches[0] must be an object, got str"),
    ({"device": {"caches": [{**CACHE, "bytes": True}]}}, "caches[0].bytes must be a number, got bool"),
    ({"device": {"caches": [CACHE, {"level": "L2"}]}}, "profile.facts.device.caches[1] lacks bytes"),
    ({"device": {"facts": {"isa": 5}}}, "profile.facts.device.facts.isa must be an array, got int"),
    ({"libraries": 5}, "profile.facts.libraries must be an array, got int"),
    ({"libraries": [5]}, "profile.facts.libraries[0] must be text, got int"),
    ({"naive": []}, "profile.facts.naive must be an object, got list"),
    ({"naive": {"fp64": {**LOOP, "rate": None}}}, "naive.fp64.rate must be a number, got NoneType"),
    ({"naive": {"fp64": {"rate": 1.0}}}, "profile.facts.naive.fp64 lacks threads"),
    ({"findings": [{"cause": "timer", "sentence": "x"}]}, "profile.facts.findings[0] lacks remedy"),
    ({"cross_check": {**CROSS, "names": [1]}}, "cross_check.names[0] must be text, got int"),
]


def test_facts_of_the_shape_and_others_are_taken() -> None:
    facts = {"device": {"caches": [CACHE], "more": 1}, "naive": {"fp64": LOOP}, "cross_check": CROSS}
    check_profile(replace(synthetic_profile(), facts={**facts, "new": []}))


@pytest.mark.parametrize(("facts", "said"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_fact_of_another_shape_is_refused_with_its_place(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as why:
        check_profile(replace(synthetic_profile(), facts=facts))
    assert said in str(why.value)


def test_a_file_with_such_a_fact_is_no_profile(tmp_path: Path) -> None:
    spoiled = replace(synthetic_profile(), conditions=({"round": 1, "values": [None]},))
    (tmp_path / "profile.json").write_text(dumps(spoiled))
    with pytest.raises(FileError, match=r"conditions\[0\]\.values must be an object, got list.*bench fit"):
        store.read_profile(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"record": "header", "plan": True}, "line 1 is corrupt (header.plan must be an object, got bool)"),
        ({"record": "header", "device": {"caches": [None]}}, "(header.device.caches[0] must be an object"),
        ({"record": "conditions", "round": 1, "values": 3}, "line 2 is corrupt (conditions.values must be"),
    ],
)
def test_so_is_a_line_of_samples(line: dict[str, Any], said: str, tmp_path: Path) -> None:
    lines = [{"record": "header", "schema_version": 1}] * (line["record"] != "header") + [line]
    (tmp_path / "samples.jsonl").write_text("".join(dumps(one) + "\n" for one in lines))
    with pytest.raises(FileError) as why:
        store.read_log(tmp_path)
    assert said in str(why.value)


def test_words_are_text_and_placements_of_positive_numbers() -> None:
    good = synthetic_profile()
    placed, ceiling = good.placements[0], good.ceilings[0]
    wrong = {
        r"skipped\[0\]\.reason must be text": {"skipped": ({"what": "x", "reason": {}},)},
        r"checks\.side must be text": {"ceilings": (replace(ceiling, checks={"side": 1.0}),)},
        r"\.flops is -1": {"placements": (replace(placed, flops=-1.0),)},
        r"\.efficiency has the value -2": {
            "placements": (replace(placed, efficiency=replace(placed.efficiency, value=-2.0)),)
        },
    }
    for said, change in wrong.items():
        with pytest.raises(FormatError, match=said):
            check_profile(replace(good, **change))  # type: ignore[arg-type]
