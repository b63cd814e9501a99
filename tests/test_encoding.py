"""Records survive the trip through JSON unchanged; what has not the published form is refused in words."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from bench.profile.encoding import FormatError, decode, dumps, loads, plain
from bench.profile.records import Ceiling, Interval, Point, Precision, Repetitions, Sample

POINT = Point(
    "stream",
    "triad",
    "s1u4",
    Precision.of("fp64"),
    "DRAM",
    "triad",
    "nontemporal",
    "all",
    2,
    sizes={"bytes": 64},
)
SAMPLE = Sample(
    POINT,
    round=3,
    process=4,
    order=5,
    flops=2.0,
    bytes_read=16.0,
    bytes_written=8.0,
    repetitions=Repetitions(start=(0.0, 1.5), seconds=(0.25, 0.125), switches=(0, 2), throttle=("", "power")),
    facts={"hidden_traffic": 1 / 3, "name": "größer", "list": [1, None, True]},
)
CEILING = Ceiling(
    "beta", Precision.of("fp32"), "L2", "read", "none", "core", 1, "random", "cache-read", "s1u8",
    Interval(1e10, 9e9, None), 1.1e10, "byte/s", "typical", "median", 5, 0.05, None, 0.0,
)  # fmt: skip


@pytest.mark.parametrize("record", [POINT, SAMPLE, CEILING], ids=["point", "sample", "ceiling"])
def test_round_trip_gives_the_equal_record(record: Any) -> None:
    again = decode(type(record), loads(dumps(record)))
    assert again == record
    assert dumps(again) == dumps(record)


def test_defaults_may_be_absent_and_whole_numbers_become_floats() -> None:
    least = {"point": plain(POINT), "round": 1, "process": 1, "order": 0, "flops": 3}
    sample = decode(Sample, least)
    assert (sample.status, sample.regime, sample.flops) == ("ok", "typical", 3.0)
    assert isinstance(sample.flops, float)


def test_text_is_one_line_of_strict_json_with_its_own_letters() -> None:
    text = dumps(SAMPLE)
    assert "\n" not in text and "größer" in text
    assert json.loads(text)["facts"]["hidden_traffic"] == 1 / 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_finite_numbers_are_never_written(value: float) -> None:
    broken = dataclasses.replace(SAMPLE, repetitions=Repetitions(seconds=(1.0, value)))
    with pytest.raises(FormatError, match=r"record\.repetitions\.seconds\[1\] is"):
        dumps(broken)


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]"])
def test_not_finite_numbers_are_never_read(text: str) -> None:
    with pytest.raises(FormatError, match="is not JSON"):
        loads(text)


def test_what_json_cannot_carry_is_named() -> None:
    with pytest.raises(FormatError, match=r"record\.facts\.when is a set"):
        dumps(dataclasses.replace(SAMPLE, facts={"when": {1}}))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_torn_text_is_refused_with_its_place(share: float) -> None:
    text = dumps(SAMPLE)
    with pytest.raises(FormatError, match=r"not JSON: .* at line 1, column \d+"):
        loads(text[: int(len(text) * share)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": 1}, "record has unknown fields: colour"),
        ({"round": "3"}, "record.round must be int, got '3'"),
        ({"round": True}, "record.round must be int, got True"),
        ({"flops": None}, "record.flops must be float, got None"),
        ({"facts": []}, "record.facts must be an object"),
        ({"repetitions": {"seconds": 1.0}}, "record.repetitions.seconds must be an array"),
        ({"repetitions": {"seconds": [1.0, "2"]}}, r"record.repetitions.seconds\[1\] must be float"),
        ({"point": {"family": "fma"}}, "record.point lacks: kernel, variant, precision"),
        ({"point": 7}, "record.point must be an object, got int"),
    ],
)
def test_wrong_records_are_refused_by_place_and_cause(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError, match=said):
        decode(Sample, plain(SAMPLE) | change)


def test_an_absent_interval_end_stays_absent() -> None:
    assert decode(Interval, {"value": 1, "low": None}) == Interval(1.0, None, None)
    with pytest.raises(FormatError, match=r"record\.low must be float, got 'x'"):
        decode(Interval, {"value": 1, "low": "x"})


def test_point_key_is_equal_exactly_when_points_are() -> None:
    assert dataclasses.replace(POINT, sizes={"bytes": 64}).key == POINT.key
    for name, value in (("variant", "s2"), ("store", "ordinary"), ("threads", 3), ("sizes", {"bytes": 65})):
        assert dataclasses.replace(POINT, **{name: value}).key != POINT.key


def test_keys_differ_exactly_when_points_do() -> None:
    changes = [
        {"variant": "s1u8"},
        {"threads": 3},
        {"sizes": {"bytes": 65}},
        *({"precision": Precision("fp16", "fp32", output)} for output in ("fp16", "fp32")),
    ]
    points = [POINT, *(dataclasses.replace(POINT, **change) for change in changes)]  # type: ignore[arg-type]
    assert len({point.key for point in points}) == len(points)
    assert dataclasses.replace(POINT).key == POINT.key
