"""The one table of prefixes: SI numbers to the text that people read, and back."""

from __future__ import annotations

import math
import re

from bench.profile.interval import Interval

PREFIXES = {
    -15: "f",
    -12: "p",
    -9: "n",
    -6: "µ",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
    21: "Z",
    24: "Y",
}
"""Decimal prefixes by exponent: GB = 1e9 byte, GFLOP = 1e9 FLOP."""

BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
"""Prefixes of capacities, by power of 1024: caches and memories are built in powers of two."""

SYMBOLS = {"byte": "B", "byte/s": "B/s"}
"""Units whose prefixed form is shorter than their name."""

RANGES = {"s": (-15, 0), "J": (-15, 24), "W": (-6, 24), "FLOP/byte": (0, 0), "": (0, 0)}
"""Exponents allowed by unit, 0 to 24 for all others: nobody reads kiloseconds or milli-FLOP/s."""

UNKNOWN = "–"
"""What stands where there is no number."""


def number(value: float | None, digits: int = 3) -> str:
    """A pure number with `digits` significant digits: 0.0208, 4.50, 127, 1.24e+07."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if not -5 < exponent < 6:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def prefix(value: float, unit: str = "", digits: int = 3) -> tuple[int, str]:
    """The exponent and text of the prefix under which `value` has one to three whole digits."""
    least, most = RANGES.get(unit, (0, 24))
    if value == 0 or not math.isfinite(value):
        return 0, ""
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = 3 * math.floor(math.log10(abs(rounded)) / 3)
    exponent = min(max(exponent, least), most)
    return exponent, PREFIXES[exponent]


def si(value: float | None, unit: str, digits: int = 3) -> str:
    """A value in base units as text: si(9.13e10, "FLOP/s") is "91.3 GFLOP/s"."""
    symbol = SYMBOLS.get(unit, unit)
    if value is None or math.isnan(value):
        return UNKNOWN
    exponent, letter = prefix(value, unit, digits)
    return f"{number(value / 10.0**exponent, digits)} {letter}{symbol}".rstrip()


def bare(value: float | None, unit: str, reference: float) -> str:
    """`value` as a number alone, under the prefix that `reference` is printed with."""
    return "" if value is None else number(value / 10.0 ** prefix(reference, unit)[0])


def duration(seconds: float | None, digits: int = 3) -> str:
    """Seconds as text: 1.24 ms, 37.0 µs, 4210 s."""
    return si(seconds, "s", digits)


def capacity(size: float | None) -> str:
    """Bytes of a cache or memory as text, in powers of 1024: 48 KiB, 1.5 GiB."""
    if size is None or math.isnan(size):
        return UNKNOWN
    power = 0
    while abs(size) >= 1024 and power < len(BINARY) - 1:
        size, power = size / 1024, power + 1
    text = f"{size:.0f}" if abs(size - round(size)) < 0.005 * abs(size) else number(size)
    return f"{text} {BINARY[power]}B"


def counted(n: int, noun: str) -> str:
    """How many there are: 1 point, 2 points."""
    return f"{n} {noun}{'s' * (n != 1)}"


def bound(value: Interval) -> str:
    """The sign before a value that is a bound, "" before any other."""
    if not value.is_bound:
        return ""
    return "≥ " if value.high is None else "≤ "


def percent(share: float | None) -> str:
    """A share as text: percent(0.0123) is "1.2 %"; whole percents from 10 on."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    value = 100 * share
    if value == 0 or abs(value) >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 0.095 else f"{number(value, 1)} %"


def plus_minus(half_width: float | None) -> str:
    """The half-width of an interval as text: "± 1.2 %", or a dash where there is none."""
    if half_width is None or not math.isfinite(half_width):
        return UNKNOWN
    return f"± {percent(half_width)}" if half_width < 10 else "± >999 %"


MICRO = re.compile("^u|μ")
"""How else people write the prefix of 1e-6."""

_QUANTITY = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*")


def _units() -> dict[str, tuple[float, str]]:
    table: dict[str, tuple[float, str]] = {"": (1.0, ""), "%": (0.01, ""), "FLOP/byte": (1.0, "FLOP/byte")}
    for unit in ("FLOP/s", "FLOP", "byte/s", "byte", "s", "Hz", "W", "J"):
        for name in {unit, SYMBOLS.get(unit, unit)}:
            table |= {letter + name: (10.0**exponent, unit) for exponent, letter in PREFIXES.items()}
    table |= {f"{letter}B": (1024.0**power, "byte") for power, letter in enumerate(BINARY) if letter}
    return table


UNITS = _units()
"""Every unit that `parse` reads, with its factor and the base unit it stands for."""


def parse(text: str) -> tuple[float, str]:
    """The value in base units and the base unit of text such as "91.3 GFLOP/s" or "48 KiB".

    ValueError names the text and what is accepted.
    """
    found = _QUANTITY.fullmatch(text)
    factor, unit = UNITS.get(MICRO.sub("µ", found[2]), (0.0, "")) if found else (0.0, "")
    if found is None or not factor:
        raise ValueError(
            f"{text!r} is no quantity: write a number and a unit such as GFLOP/s, GB/s, MB, KiB, ms or %"
        )
    return float(found[1]) * factor, unit
