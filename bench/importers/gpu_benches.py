"""gpu-benches (RRZE-HPC/gpu-benches): the console output of gpu-roofline, earlier cuda-roofline.

One line per GPU and number of iterations N: GPU, blocks, N its, Fl/B (FLOP/byte), GB/s (1e9 byte/s, one
read and one write an item), GF/s (1e9 FLOP/s), Mhz (median clock), W (peak power), °C. By its source Fl/B
is (N + 1) / item size, which tells the precision that no line names.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from bench.importers.rows import Number, Refusal, Rows, number, point
from bench.importers.sweep import Imported, Sweep
from bench.profile.records import CurvePoint
from bench.report.units import UNITS

NAME, SOURCE = "gpu-benches", "gpu-roofline of RRZE-HPC/gpu-benches"

ROW = re.compile(
    r"\s*(?P<gpu>\d+)\s+\d+\s+blocks\s+(?P<n>\d+)\s+its\s+(?P<x>\S+)\s+Fl/B\s+(?P<beta>\S+)\s+GB/s\s+"
    r"(?P<rate>\S+)\s+GF/s(?:\s+(?P<clock>\S+)\s+Mhz)?.*"
)
BEGINS = re.compile(r"\s*(?P<gpu>\d+)\s+\d+\s+blocks\b")

ITEMS = {2: "fp16", 4: "fp32", 8: "fp64"}
"""Precision by item size in byte."""


def recognises(text: str) -> bool:
    """Whether a line of the sweep is in it."""
    return any(ROW.fullmatch(line) for line in text.splitlines())


def read(text: str, path: Path) -> Imported:
    """A sweep for each GPU and precision; the device is never named. `path` is not opened."""
    groups: dict[tuple[str, str], Rows] = {}
    last: tuple[str, str] | None = None
    for row, line in enumerate(text.splitlines(), 1):
        begun = BEGINS.match(line)
        if not begun:
            continue
        found = ROW.fullmatch(line)
        key = (f"GPU {begun['gpu']}", _precision(found) if found else last[1] if last else "")
        groups.setdefault(key, Rows()).take(row, line, partial(_point, found))
        last = key
    sweeps = tuple(
        Sweep(gpu, "", precision, "1R+1W", "FLOP/s", tuple(rows.points), tuple(rows.refused))
        for (gpu, precision), rows in groups.items()
    )
    return Imported(NAME, SOURCE, "", sweeps)


def _precision(found: re.Match[str]) -> str:
    try:
        return ITEMS.get(round((int(found["n"]) + 1) / float(found["x"])), "")
    except (ValueError, ZeroDivisionError, OverflowError):
        return ""


def _point(found: re.Match[str] | None) -> CurvePoint:
    if found is None:
        raise Refusal("cut off, or not the columns of gpu-roofline")
    x = number(found["x"], "Fl/B")
    item = {name: size for size, name in ITEMS.items()}.get(_precision(found))
    exact = Number((int(found["n"]) + 1) / item, 0.0) if item else x
    if abs(exact.value / x.value - 1) > x.rounding * 1.01:
        exact = x
    clock = float(found["clock"]) * UNITS["MHz"][0] if (found["clock"] or "").isdigit() else None
    rate, beta = number(found["rate"], "GF/s", "GFLOP/s"), number(found["beta"], "GB/s", "GB/s")
    return point(exact, rate, beta, clock_hz=clock or None)
