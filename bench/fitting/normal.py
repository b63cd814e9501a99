"""Whether a measured number is normal: its share of the datasheet and where published measurements lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import reference
from bench.errors import FileError
from bench.fitting.in_theory import candidates
from bench.profile.records import WHOLE, Ceiling
from bench.profile.verdict import fails, ok, untested
from bench.reference import DATASHEET, MEASURED, Figure, Reference
from bench.report.units import si

CHECK = "normal"
"""The name of this verdict among a ceiling's checks."""

NORMAL, LOW, HIGH, UNJUDGED, UNKNOWN = "normal", "low", "high", "unjudged", "unknown"
"""The word that each verdict gives behind ok, fails or not tested."""

ANSWER = {NORMAL: ok, LOW: fails, HIGH: fails, UNJUDGED: untested, UNKNOWN: untested}
"""How a self-check says it."""

MARGIN = {"pi": 0.15, "beta": 0.10}
"""How far below the lowest published value one is still normal: boards, power limits and drivers differ."""

ROUNDED = 1.02
"""Shares of the datasheet up to here are its rounding, not a number that cannot be."""


@dataclass(frozen=True)
class Normality:
    """A verdict in words with what it rests on; share and published values None and empty where not known."""

    text: str
    share: float | None = None
    published: tuple[float, ...] = ()


def judged(ceiling: Ceiling, device: Mapping[str, Any]) -> Ceiling:
    """The ceiling with its share of the datasheet and its verdict; as it is where nothing can be said."""
    found = normality(ceiling, device)
    if found is None:
        return ceiling
    return replace(ceiling, share_of_datasheet=found.share, checks={**ceiling.checks, CHECK: found.text})


def normality(
    ceiling: Ceiling, device: Mapping[str, Any], tables: Reference | None = None
) -> Normality | None:
    """What the reference figures say of a whole GPU's ceiling; None for CPUs, simulations and parts.

    device: as in a run's header.
    """
    if ceiling.scope not in WHOLE or device.get("kind") != "cuda":
        return None
    try:
        tables = tables or reference.known()
    except FileError as error:
        return Normality(_said(UNKNOWN, str(error)))
    match = reference.of_device(device, tables)
    if not match.device:
        return Normality(_said(UNKNOWN, match.why))
    figures = tables.of(match.device)
    sheet, published = datasheet(ceiling, figures), measured(ceiling, figures)
    if sheet is None and not published:
        return None
    values = tuple(sorted(f.value for f in published))
    share = ceiling.estimate.value / sheet.value if sheet else None
    return Normality(_text(ceiling, sheet, published), share, values)


def datasheet(ceiling: Ceiling, figures: Sequence[Figure]) -> Figure | None:
    """The datasheet's row for a ceiling, in the units that do the work; None where it prints none."""
    rows = [f for f in figures if f.kind == DATASHEET]
    if ceiling.quantity == "beta":
        return next((f for f in rows if f.quantity == "bandwidth" and f.level == ceiling.level), None)
    labels = [unit.label for unit in candidates(ceiling.precision)]
    peaks = {f.precision: f for f in rows if f.quantity == "peak_flops"}
    return next((peaks[label] for label in labels if label in peaks), None)


def measured(ceiling: Ceiling, figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """Published measurements of the same: precision and unit, or level and access, else any access."""
    rows = [f for f in figures if f.kind == MEASURED]
    if ceiling.quantity == "pi":
        label = ceiling.precision.label
        return tuple(f for f in rows if f.quantity == "peak_flops" and f.precision == label)
    level = tuple(f for f in rows if f.quantity == "bandwidth" and f.level == ceiling.level)
    return tuple(f for f in level if f.access == ceiling.access) or level


def _text(ceiling: Ceiling, sheet: Figure | None, published: Sequence[Figure]) -> str:
    parts = []
    if sheet:
        parts.append(f"{ceiling.estimate.value / sheet.value:.2f} of the datasheet{_clocks(ceiling, sheet)}")
    parts.append(_published(ceiling, sheet, published) or "no measurement published to compare with")
    return _said(_verdict(ceiling, sheet, published), ", ".join(parts))


def _said(word: str, evidence: str) -> str:
    return ANSWER[word](f"{word}, {evidence}")


def _verdict(ceiling: Ceiling, sheet: Figure | None, published: Sequence[Figure]) -> str:
    value = ceiling.estimate.value
    if sheet and value > ROUNDED * sheet.value * _overclocked(ceiling, sheet):
        return HIGH
    if not published:
        return UNJUDGED
    low, high = min(f.value for f in published), max(f.value for f in published)
    margin = MARGIN[ceiling.quantity]
    if value < low * (1 - margin):
        return LOW
    return HIGH if sheet is None and value > high * (1 + margin) else NORMAL


def _overclocked(ceiling: Ceiling, sheet: Figure) -> float:
    """How much faster than the datasheet's clock the device ran, at least 1: boards boost above nominal."""
    if ceiling.quantity == "beta" or not (ceiling.clock_hz and sheet.sm_clock_mhz):
        return 1.0
    return max(1.0, ceiling.clock_hz / (sheet.sm_clock_mhz * 1e6))


def _clocks(ceiling: Ceiling, sheet: Figure) -> str:
    """The two clocks where they differ by more than what both are rounded to."""
    if ceiling.quantity == "beta" or not (ceiling.clock_hz and sheet.sm_clock_mhz):
        return ""
    counted = sheet.sm_clock_mhz * 1e6
    if abs(ceiling.clock_hz / counted - 1) < ROUNDED - 1:
        return ""
    return f" (at {si(ceiling.clock_hz, 'Hz')}, it counts {si(counted, 'Hz')})"


def _published(ceiling: Ceiling, sheet: Figure | None, published: Sequence[Figure]) -> str:
    if not published:
        return ""
    ends = sorted({min(f.value for f in published), max(f.value for f in published)})
    said = [f"{end / sheet.value:.2f}" if sheet else si(end, ceiling.unit) for end in ends]
    other = ceiling.quantity == "beta" and ceiling.access not in {f.access for f in published}
    return f"published {'-'.join(said) if sheet else ' to '.join(said)}" + " (other accesses)" * other
