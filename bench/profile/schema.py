"""The JSON Schema of profile.json, generated from the records so that the two cannot drift apart.

`python -m bench.profile.schema` prints it; the committed copy is profile.schema.json beside this file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import records
from .encoding import dumps

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE = Path(__file__).with_name("profile.schema.json")

WORDS: dict[str, tuple[str, ...]] = {
    "Precision.unit": ("vector", "matrix", "library"),
    "Sample.status": ("ok", "skipped", "failed"),
    "Sample.regime": ("pilot", "burst", "typical", "sustained"),
    "Ceiling.quantity": ("pi", "beta", "latency", "t0", "capacity"),
    "Ceiling.unit": ("FLOP/s", "OP/s", "byte/s", "s", "byte"),
    "Ceiling.regime": ("burst", "typical", "sustained"),
    "Ceiling.statistic": ("p75", "median", "p90", "best"),
    "Fit.form": ("hard-min", "p-norm", "power-capped", "clock-normalised"),
    "Curve.kind": (
        "mix",
        "cache",
        "gemm",
        "latency",
        "concurrency",
        "cores",
        "link",
        "collective",
        "launch",
        "overlap",
    ),
    "Curve.unit": ("FLOP/s", "OP/s", "byte/s", "s"),
    "Placement.unit": ("FLOP/s", "byte/s"),
    "Placement.binds": ("memory", "compute", "launch", "cannot tell"),
}
"""Text fields that hold one of a few words, as the records' docstrings list them."""

SCALARS: dict[Any, str] = {float: "number", int: "integer", str: "string", bool: "boolean"}


def profile_schema() -> dict[str, Any]:
    """The schema of profile.json; `#/$defs/Sample` is the schema of one sample of samples.jsonl."""
    definitions: dict[str, Any] = {}
    _define(records.Sample, definitions)
    _define(records.Profile, definitions)
    version = definitions["Profile"]["properties"]
    version["schema_version"] = {"const": records.SCHEMA_VERSION}
    return {
        "$schema": DIALECT,
        "$id": f"profile.schema.json?version={records.SCHEMA_VERSION}",
        "title": "Measured roofline profile",
        "$ref": "#/$defs/Profile",
        "$defs": dict(sorted(definitions.items())),
    }


def text() -> str:
    """The schema as it lies in profile.schema.json."""
    return dumps(profile_schema(), indent=2) + "\n"


def _define(kind: type[Any], definitions: dict[str, Any]) -> None:
    if kind.__name__ in definitions:
        return
    definitions[kind.__name__] = {}  # holds the place while the fields are walked
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    definitions[kind.__name__] = {
        "description": (kind.__doc__ or "").strip().splitlines()[0],
        "type": "object",
        "properties": {f.name: _field(kind, f.name, hints[f.name], definitions) for f in fields},
        "required": [f.name for f in fields if _required(f)],
        "additionalProperties": False,
    }


def _field(kind: type[Any], name: str, hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    words = WORDS.get(f"{kind.__name__}.{name}")
    return {"enum": list(words)} if words else _shape(hint, definitions)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _shape(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type hint; TypeError for a hint that no record uses yet."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if dataclasses.is_dataclass(hint):
        _define(typing.cast(type[Any], hint), definitions)
        return {"$ref": f"#/$defs/{typing.cast(type[Any], hint).__name__}"}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_shape(a, definitions) if a is not type(None) else {"type": "null"} for a in args]}
    if origin is tuple and args[1:] == (Ellipsis,):
        return {"type": "array", "items": _shape(args[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _shape(args[1], definitions)}
    raise TypeError(f"no JSON Schema for the type {hint!r}: teach bench/profile/schema.py about it")


if __name__ == "__main__":
    print(text(), end="")
