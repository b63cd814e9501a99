"""The part of the printed report about the cross-check by a second implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.profile.records import Profile
from bench.report import grid
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.units import number, percent, si

AGREE = "agree"


def cross_check(profile: Profile) -> Iterable[Text | Table]:
    """One line a kernel with both rates and their ratio; what does not agree is told in full below."""
    found = profile.facts.get("cross_check")
    if not found:
        return
    names = [str(name) for name in found["names"]]
    columns: tuple[tuple[str, Side], ...] = (
        ("kernel", WORDS),
        *((name, NUMBERS) for name in names),
        ("ratio", NUMBERS),
        ("95 %", NUMBERS),
        ("verdict", WORDS),
    )
    compared: Sequence[Mapping[str, Any]] = found["compared"]
    yield grid.section(
        "Cross-check", f"{names[1]} over {names[0]}; a fault from {percent(found['limit'])} on"
    )
    yield grid.table(columns, map(_line, compared))
    for one in compared:
        if one["verdict"] != AGREE:
            yield Text(str(one["sentence"]), style="yellow")


def _line(one: Mapping[str, Any]) -> Sequence[str]:
    point, ratio = one["point"], one["ratio"]
    name = f"{point['kernel']} {point['precision']['inputs']}, {point['variant']}"
    if ratio is None:
        return (name, "", "", "", "", str(one["verdict"]))
    rates = [si(median(pair[side] for pair in one["rates"]), one["unit"]) for side in (0, 1)]
    ends = [ratio["low"], ratio["high"]]
    reach = "" if None in ends else " to ".join(number(end, 4) for end in ends)
    return (name, *rates, number(ratio["value"], 4), reach, str(one["verdict"]))
