"""The committed JSON Schema is the generated one, accepts a real profile and refuses broken ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from bench.profile import encoding, records, schema
from tests.synthetic import synthetic_profile

COMMITTED = json.loads(schema.FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(COMMITTED)
PROFILE = json.loads(encoding.dumps(synthetic_profile()))


def test_committed_file_is_what_the_records_generate() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), (
        "remake it: python -m bench.profile.schema > bench/profile/profile.schema.json"
    )


def test_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(COMMITTED)


def test_every_object_is_closed() -> None:
    for name, definition in COMMITTED["$defs"].items():
        assert definition["additionalProperties"] is False, name


def test_words_name_existing_fields() -> None:
    for place in schema.WORDS:
        record, field = place.split(".")
        assert field in COMMITTED["$defs"][record]["properties"], place


def test_synthetic_profile_is_valid() -> None:
    assert list(VALIDATOR.iter_errors(PROFILE)) == []


def _drop_version(profile: dict[str, Any]) -> None:
    del profile["schema_version"]


def _other_version(profile: dict[str, Any]) -> None:
    profile["schema_version"] = records.SCHEMA_VERSION + 1


def _unknown_field(profile: dict[str, Any]) -> None:
    profile["ceilings"][0]["colour"] = "red"


def _text_for_number(profile: dict[str, Any]) -> None:
    profile["ceilings"][0]["estimate"]["value"] = "fast"


def _unknown_word(profile: dict[str, Any]) -> None:
    profile["ceilings"][0]["quantity"] = "gamma"


def _null_for_array(profile: dict[str, Any]) -> None:
    profile["placements"] = None


@pytest.mark.parametrize(
    "damage",
    [_drop_version, _other_version, _unknown_field, _text_for_number, _unknown_word, _null_for_array],
)
def test_broken_profile_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    broken = copy.deepcopy(PROFILE)
    damage(broken)
    assert not VALIDATOR.is_valid(broken)


def test_sample_definition_accepts_a_sample() -> None:
    sample = records.Sample(
        records.Point("fma", "fma", "12 chains", records.Precision.of("fp64"), sizes={"n": 3}),
        round=1,
        process=1,
        order=0,
        repetitions=records.Repetitions(seconds=(0.1, 0.2)),
    )
    validator = jsonschema.Draft202012Validator({**COMMITTED, "$ref": "#/$defs/Sample"})
    value = json.loads(encoding.dumps(sample))
    assert validator.is_valid(value)
    assert not validator.is_valid({**value, "status": "perhaps"})


def test_unknown_hint_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="no JSON Schema for the type"):
        schema._shape(complex, {})
