"""Records to strict JSON and back: unknown fields, wrong types and non-finite numbers are refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class FormatError(ValueError):
    """A record that does not have the published form; the message names the place and the cause."""


LEAVES = {str, int, bool, type(None)}
"""Types whose values are JSON values as they are."""

SCALARS = LEAVES | {float}
"""Types of single values, finite numbers as all JSON has them."""


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


def plain(value: Any, where: str = "record") -> Any:
    """Dataclasses, tuples and numbers as JSON values; FormatError on NaN or infinity."""
    if isinstance(value, list | tuple):
        if all(type(v) is int or (type(v) is float and math.isfinite(v)) for v in value):
            return list(value)  # repetitions: thousands of numbers, one look at each
        return [plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Mapping):  # most leaves need no call, nor a name for what might be wrong with them
        return {str(k): v if type(v) in LEAVES else plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"{where} is {value}: not a number that JSON can carry")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise FormatError(f"{where} is a {type(value).__name__}: not a JSON value")


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict JSON text of a record or of plain values; FormatError names what JSON cannot carry."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False, default=_members)
    except (TypeError, ValueError):  # `plain` says what is wrong, and where
        return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _members(value: Any) -> dict[str, Any]:
    """Of a record or a mapping that is no dict, for the encoder; TypeError for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in _names(typing.cast(Any, type(value)))}


def _refuse_constant(text: str) -> Any:
    raise FormatError(f"{text} is not JSON")


LONG = re.compile(r"[eE]\+?\d{3}|\d{300}")
"""What a number beyond all floats has to have: each number of such a text is looked at."""


def _bounded(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    raise FormatError(f"{text[:12]}{'...' * (len(text) > 12)} is beyond all numbers")


def _whole(text: str) -> int:
    _bounded(text)
    return int(text)


def loads(text: str) -> Any:
    """Parse strict JSON text; FormatError names the position of the fault, or the number that is none."""
    whole, parts = (_whole, _bounded) if LONG.search(text) else (None, None)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=whole, parse_float=parts)
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise FormatError("not JSON of ours: nested too deeply") from None


def decode(kind: type[T], value: Any, where: str = "record") -> T:
    """Build dataclass `kind` from JSON values; FormatError names what is missing or unknown."""
    if not isinstance(value, Mapping):
        raise FormatError(f"{where} must be an object, got {type(value).__name__}")
    hints = _hints(typing.cast(Any, kind))
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := set(value) - set(fields):
        raise FormatError(f"{where} has unknown fields: {', '.join(sorted(map(str, unknown)))}")
    missing = [n for n, f in fields.items() if n not in value and _required(f)]
    if missing:
        raise FormatError(f"{where} lacks: {', '.join(missing)}")
    return kind(**{n: _typed(hints[n], v, f"{where}.{n}") for n, v in value.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Types of the fields, worked out once a record: a samples file decodes thousands."""
    return typing.get_type_hints(kind)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _typed(next(a for a in args if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise FormatError(f"{where} must be an array")
        if args[0] in SCALARS and all(type(v) is args[0] for v in value):
            return tuple(value)  # repetitions: thousands of numbers, one look at each
        return tuple(_typed(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type[Any], hint), value, where)
    if hint is Any:
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise FormatError(f"{where} must be an object")
        return dict(value)
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise FormatError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
