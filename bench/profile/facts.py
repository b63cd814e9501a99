"""Free facts of a profile that are read again have this shape; whatever else stands beside them is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .encoding import FormatError

NUMBER = (int, float)
MAYBE = (int, float, type(None))

CACHE = {"level": str, "bytes": NUMBER, "instances": NUMBER}
DEVICE = {
    **{"name?": str, "kind?": str, "state?": str, "memory_bytes?": MAYBE},
    **{"caches?": [CACHE], "facts?": {"isa?": [str]}},
}
LOOP = {"rate": NUMBER, "threads": NUMBER, "variant": str, "ratio?": MAYBE}
FINDING = {"cause": str, "sentence": str, "remedy": str}
POINT = {"kernel": str, "variant": str, "precision": {"inputs": str}}
COMPARED = {"point": POINT, "verdict": str, "sentence": str}

FACTS = {
    "device?": DEVICE,
    "naive?": {"*": LOOP},
    "libraries?": [str],
    "findings?": [FINDING],
    "cross_check?": {"names": [str], "limit": NUMBER, "compared": [COMPARED]},
}
"""An object holds the names given ("?": or lacks them, "*": any), an array holds things of one shape."""

STATE: dict[str, Any] = {"values?": {}}
CONDITIONS = [STATE]
RECORDS = {
    "header": {"device?": DEVICE, "plan?": {"options?": {}}, "identity?": {}, "provenance?": {}},
    "conditions": STATE,
}
"""Lines of samples.jsonl by their `record`."""

SKIPPED = [{"*": str}]
NAMES = {str: "text", NUMBER: "a number", MAYBE: "a number or null"}


def check(where: str, value: Any, shape: Any) -> None:
    """FormatError with the place of the first thing in `value` that has not its shape."""
    if isinstance(shape, list):
        _demand(where, value, list | tuple, "an array")
        for place, one in enumerate(value):
            check(f"{where}[{place}]", one, shape[0])
    elif isinstance(shape, dict):
        _demand(where, value, Mapping, "an object")
        for name, part in shape.items():
            _check_named(where, value, name, part)
    else:
        _demand(where, value, shape, NAMES[shape])


def _check_named(where: str, value: Mapping[str, Any], name: str, shape: Any) -> None:
    bare = name.removesuffix("?")
    if name != "*" and bare not in value and bare == name:
        raise FormatError(f"{where} lacks {name}")
    for found in value if name == "*" else {bare} & set(value):
        check(f"{where}.{found}", value[found], shape)


def _demand(where: str, value: Any, kind: Any, said: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FormatError(f"{where} must be {said}, got {type(value).__name__}")
