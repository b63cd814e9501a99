"""Files of other tools beside each other: each roof with its share of the datasheet, and what else differs.

No verdict: one run tells nothing of the next, and a difference of the tools is none of the devices.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.importers import load
from bench.importers.refit import Refit
from bench.importers.sweep import Imported
from bench.profile.records import Interval
from bench.report import refits
from bench.report.labels import shorten
from bench.report.units import UNKNOWN, percent, si
from bench.triage import Finding, plain
from bench.triage.datasheet import Context
from bench.triage.refitted import nominal, refitted, whose

WIDTH, NAME = 100, 34
"""Columns of the text, and of the names of sweeps."""

QUANTITIES = (("pi", "FLOP/s"), ("beta", "byte/s"))


@dataclass(frozen=True)
class Roof:
    """One asymptote of one sweep: `of_datasheet` its share of the device's, None where nothing is known."""

    sweep: str
    precision: str
    quantity: str
    unit: str
    value: Interval
    of_datasheet: float | None


@dataclass(frozen=True)
class Side:
    """One file: tool and device as it tells them, its roofs, and what triage says of them."""

    file: str
    tools: str
    devices: str
    modes: str
    roofs: tuple[Roof, ...]
    findings: tuple[Finding, ...]


def compared(a: Path, b: Path) -> tuple[dict[str, Any], str]:
    """JSON and text of `compare` for two files or folders of other tools.

    FileError as the importers raise it; UsageError where neither holds a sweep that can be fitted.
    """
    sides = side(a), side(b)
    for one in sides:
        if not one.roofs:
            raise UsageError(f"{one.file} holds no sweep that can be fitted: there is nothing to compare")
    return record(*sides), render(*sides)


def side(path: Path) -> Side:
    """What one file says."""
    found = refits.fitted(load(path))
    roofs = [roof for imported, fits in found for roof in _roofs(path, imported, fits)]
    findings = [f for imported, fits in found for f in refitted(path, imported, fits)]
    return Side(
        path.as_posix(),
        _words(imported.source for imported, _ in found),
        _words(whose(path, imported.device)[0] or "not named" for imported, _ in found),
        _words(one.mode or "not named" for _, fits in found for one in fits),
        tuple(roofs),
        tuple(findings),
    )


def _words(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _roofs(path: Path, imported: Imported, fits: Sequence[Refit]) -> Iterator[Roof]:
    for one in fits:
        if one.chosen is None:
            continue
        device = whose(path, one.device or imported.device)[0]
        for quantity, unit in QUANTITIES:
            value: Interval = getattr(one.chosen, quantity)
            known = nominal(value.value, Context(quantity, device, one.precision))
            share = value.value / known if known and one.unit == "FLOP/s" else None
            unit = one.unit if quantity == "pi" else unit
            yield Roof(refits.label(one), one.precision, quantity, unit, value, share)


def pairs(a: Side, b: Side) -> list[tuple[Roof, Roof]]:
    """The highest roof of each precision and quantity that both files hold."""
    best_a, best_b = _best(a), _best(b)
    return [(best_a[key], best_b[key]) for key in best_a if key in best_b]


def _best(one: Side) -> Mapping[tuple[str, str], Roof]:
    found: dict[tuple[str, str], Roof] = {}
    for roof in sorted(one.roofs, key=lambda r: -r.value.value):
        found.setdefault((roof.precision, roof.quantity), roof)
    return found


def differences(a: Side, b: Side) -> dict[str, tuple[str, str]]:
    """Tool, device and mode where they are not the same in both."""
    both = {"tool": (a.tools, b.tools), "device": (a.devices, b.devices), "mode": (a.modes, b.modes)}
    return {what: said for what, said in both.items() if said[0] != said[1]}


def record(a: Side, b: Side) -> dict[str, Any]:
    """The JSON: SI units, null where a thing is not known."""
    rows = [{"a": x, "b": y, "ratio": y.value.value / x.value.value} for x, y in pairs(a, b)]
    told = [{"what": what, "a": said[0], "b": said[1]} for what, said in differences(a, b).items()]
    files = [
        {
            "file": s.file,
            "tools": s.tools,
            "devices": s.devices,
            "roofs": s.roofs,
            "findings": plain(s.findings),
        }
        for s in (a, b)
    ]
    return {"ours": False, "files": files, "rows": rows, "differences": told}


def render(a: Side, b: Side) -> str:
    """The same as text of at most 100 columns."""
    lines = [refits.NOT_OURS]
    for name, one in zip("AB", (a, b), strict=True):
        lines += [f"{name}: {one.file}", f"   {one.tools}; device {one.devices}"]
    lines += [
        "",
        f"{'highest of each precision':<{NAME}} {'A':>12} {'of sheet':>8} {'B':>12} {'of sheet':>8}   B/A",
    ]
    lines += [_row(*pair) for pair in pairs(a, b)] or ["no precision is in both"]
    lines += ["of sheet: share of the datasheet, dense; B/A without a verdict: one run each", ""]
    lines += [f"differs: {what}: A {said[0]}; B {said[1]}" for what, said in differences(a, b).items()]
    for name, one in zip("AB", (a, b), strict=True):
        lines += [f"{name}: {f.cause}: {f.sentence}. Try: {f.remedy}." for f in one.findings]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="   ") for line in lines) + "\n"


def _row(a: Roof, b: Roof) -> str:
    (name,) = shorten([f"{'π' if a.quantity == 'pi' else 'β'} {a.precision or 'precision not named'}"], NAME)
    cells = f"{name:<{NAME}} {_value(a):>12} {_share(a):>8} {_value(b):>12} {_share(b):>8}"
    return f"{cells} {b.value.value / a.value.value:>5.2f}"


def _value(roof: Roof) -> str:
    return si(roof.value.value, roof.unit)


def _share(roof: Roof) -> str:
    return UNKNOWN if roof.of_datasheet is None else percent(roof.of_datasheet)
