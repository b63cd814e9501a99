"""roofline.json of the Empirical Roofline Toolkit (Berkeley Lab): the ceilings that it found, and no sweep.

empirical.gflops.data and empirical.gbytes.data are pairs of a name and a value in 1e9 FLOP/s and 1e9
byte/s, the maxima over its runs; `spec` may hold the same from a datasheet, which is no measurement and
is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import FileError
from bench.importers import ert_words
from bench.importers.rows import attempt, number
from bench.importers.sweep import Imported, Refused, Stated

NAME, SOURCE = "ert-json", "Empirical Roofline Toolkit, roofline.json"

BLOCKS = {"gflops": ("pi", "GFLOP/s"), "gbytes": ("beta", "GB/s")}
"""Quantity and unit of each block of values."""

REMARK = "the file holds maxima over runs, without repetitions: nothing can be fitted and no interval given"


LEVELS = "its cache levels are the toolkit's guess from the shape of the curve, repeated as it names them"


def recognises(text: str) -> bool:
    """Whether it is JSON that begins with an object and names the block of measured values."""
    return text.lstrip().startswith("{") and '"empirical"' in text and '"gflops"' in text


def read(text: str, path: Path) -> Imported:
    """The stated ceilings; values that are no positive numbers are refused one by one."""
    try:
        top = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FileError(f"{path} is not whole JSON{where}: it is cut off or edited, make it again") from None
    measured = _block(top, "empirical")
    refused: list[Refused] = []
    stated: list[Stated] = []
    for name, (quantity, unit) in BLOCKS.items():
        rows = _block(measured, name).get("data", ())
        for row, pair in enumerate(rows if isinstance(rows, list) else (), 1):
            value = attempt(row, f"{name}: {pair}", partial(_value, pair, unit), refused)
            if value is not None:
                stated.append(Stated(str(pair[0]).strip(), quantity, value))
    known = _metadata(measured)
    device = ert_words.device(known)
    remarks = (REMARK, *guessed(stated), *ert_words.remarks(known))
    return Imported(NAME, SOURCE, device, (), tuple(stated), tuple(refused), remarks)


def guessed(stated: Sequence[Stated]) -> tuple[str, ...]:
    """A remark where levels of caches are among the stated ceilings."""
    return (LEVELS,) if any(re.fullmatch(r"L\d", s.name) for s in stated) else ()


def _value(pair: Any, unit: str) -> float:
    cells = pair if isinstance(pair, list) and len(pair) == 2 else (None, "")
    return number(str(cells[1]), "value", unit).value


def _block(value: Any, name: str) -> Mapping[str, Any]:
    inner = value.get(name) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _metadata(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of the host, wherever it stands: of the file, or of one of its blocks, or as lines."""
    found: dict[str, Any] = {}
    for block in (measured, *(_block(measured, name) for name in BLOCKS)):
        known = dict(_block(block, "metadata"))
        lines = known.pop("", ())
        found = {**ert_words.metadata(map(str, lines if isinstance(lines, list) else ())), **known, **found}
    return found
