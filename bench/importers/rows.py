"""From the cells of a printed row to a point of a sweep, or to the reason why the row is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bench.errors import FileError
from bench.importers.sweep import Refused
from bench.profile.records import CurvePoint, Interval
from bench.report.units import UNITS

T = TypeVar("T")

SHOWN = 100
"""Characters of a refused row that are kept."""

MOST_POINTS = 2000
"""Points of one sweep: the fit looks at pairs of them."""

DISAGREEMENT = 0.02
"""Share, beside rounding, by which FLOP/byte times byte/s may miss the FLOP/s of the same row."""

COARSE = 0.02
"""Relative rounding from which on printed times tell no amounts."""

_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Refusal(Exception):
    """Why a row enters no sweep, in words."""


@dataclass(frozen=True)
class Number:
    """A printed number in SI units, and half a unit of its last digit as a share of it."""

    value: float
    rounding: float


def number(text: str, what: str, unit: str = "") -> Number:
    """The number in a cell, of `unit` with its prefix; Refusal unless it is finite and above zero."""
    cell = text.strip()
    if not cell:
        raise Refusal(f"no {what}")
    if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise Refusal(f"{what} is {cell.lower()}")
    if not _DECIMAL.fullmatch(cell):
        comma = " (write 0.5 for 0,5)" if _DECIMAL.fullmatch(cell.replace(",", ".", 1)) else ""
        raise Refusal(f"{what} is no number{comma}")
    value = float(cell)
    if not 0 < abs(value) < math.inf:
        raise Refusal(f"{what} is {'zero' if value == 0 else 'beyond all numbers'}")
    if value < 0:
        raise Refusal(f"{what} is negative")
    mantissa, _, power = cell.lower().partition("e")
    digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    scaled = value * UNITS[unit][0]
    if not 0 < scaled < math.inf:
        raise Refusal(f"{what} is beyond all numbers")
    return Number(scaled, digit / 2 / value)


def finest(*found: Number) -> Number:
    """The one that rounding blurs least."""
    return min(found, key=lambda n: n.rounding)


def product(a: Number, b: Number) -> Number:
    """a * b with the rounding of both."""
    return Number(a.value * b.value, a.rounding + b.rounding)


def quotient(a: Number, b: Number) -> Number:
    """a / b with the rounding of both."""
    return Number(a.value / b.value, a.rounding + b.rounding)


def point(
    intensity: Number, rate: Number, bandwidth: Number, seconds: float = 0.0, clock_hz: float | None = None
) -> CurvePoint:
    """FLOP/byte, FLOP/s and byte/s of one row, each from the finer of what is printed and what follows.

    Refusal when the three do not belong together. seconds: of one repetition, 0 where not told.
    """
    slack = DISAGREEMENT + intensity.rounding + rate.rounding + bandwidth.rounding
    if abs(math.log(intensity.value * bandwidth.value / rate.value)) > slack:
        raise Refusal("FLOP/byte times byte/s is not FLOP/s")
    x = finest(intensity, quotient(rate, bandwidth)).value
    value = finest(rate, product(intensity, bandwidth)).value
    took = seconds or x / value
    return CurvePoint(x, Interval(value), value * took, value * took / x, took, clock_hz=clock_hz)


def per_byte(found: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points with the work of one byte moved, where the amounts of a repetition are not told."""
    return tuple(replace(p, flops=p.x, bytes=1.0, seconds=p.x / p.estimate.value) for p in found)


@dataclass
class Rows:
    """The rows of one sweep while a file is read: good ones become points, each of the others is kept."""

    points: list[CurvePoint] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    def take(self, row: int, text: str, build: Callable[[], CurvePoint]) -> None:
        """Add what `build` makes of a row, or the row with its reason."""
        made = attempt(row, text, build, self.refused)
        if made is not None:
            self.points.append(made)
        if len(self.points) > MOST_POINTS:
            raise FileError(f"a sweep of more than {MOST_POINTS} points: cut it down, or give its medians")


def attempt(row: int, text: str, build: Callable[[], T], refused: list[Refused]) -> T | None:
    """What `build` returns; None, with the row among the refused, when it raises a Refusal."""
    try:
        return build()
    except Refusal as why:
        refused.append(Refused(row, " ".join(text.split())[:SHOWN], str(why)))
        return None
