"""Why arithmetic is faster than units can be, or far below: folded chain, dual issue, TF32, weak probe."""

from __future__ import annotations

from collections.abc import Container

from bench.profile.records import Ceiling
from bench.report.units import percent, si
from bench.triage.case import Case, agree, clean_low
from bench.triage.finding import Finding, Number, about, name, unexplained
from bench.triage.tenancy import partition

ABOVE = 1.05
"""Share of theory at the held clock that no loop exceeds: clocks are read to 1 or 2 %, the rest is exact."""

OVER_WITNESS = 1.25
"""Dedicated pi over that of the fitted sweep of the same precision: real machines lie within 1.2."""

NARROW = 0.6
"""Share of theory or of the best other probe below which a probe may not reach the peak."""

MATRIX_OVER_VECTOR = 20.0
"""TF32 over fp32 on one chip, at most: boards have 2 to 16."""

BESIDE_LIBRARY = 1 / 3
"""Dedicated pi of a CPU over that of a library on the same units below which the dedicated one is wrong."""

SAME = 0.10
"""How near a second loop must come to a rate to be a witness for it."""


def peaks(case: Case) -> list[Finding]:
    """Every pi that cannot be, or is far below theory, with its cause."""
    high = {name(c): (c, number) for c in case.peaks if (number := _too_high(case, c))}
    told = [_high(case, c, number) for c, number in high.values()]
    for c in case.peaks:
        if name(c) not in high and (number := _too_low(case, c, high)):
            told.append(_low(case, c, number))
    return told


def _too_high(case: Case, c: Ceiling) -> Number | None:
    return _over_theory(c) or _over_library(case, c) or _over_sweep(case, c)


def _over_theory(c: Ceiling) -> Number | None:
    share = c.share_at_clock
    if not share or share * clean_low(c) / c.estimate.value < ABOVE:
        return None
    return Number(
        name(c), c.estimate.value, c.estimate.value / share, c.unit, "the theoretical rate at its clock"
    )


def _over_library(case: Case, c: Ceiling) -> Number | None:
    """A library product faster than the vector units it is said to use; no CPU has TF32."""
    if not _is_gpu(case) or c.precision.unit != "library" or c.precision.inputs != "fp32" or c.precision.mode:
        return None
    vector = _best(case, "fp32")
    if vector is None or clean_low(c) < OVER_WITNESS * vector:
        return None
    return Number(name(c), c.estimate.value, vector, c.unit, "the measured vector π")


def _is_gpu(case: Case) -> bool:
    return case.device.get("kind") == "cuda" or case.facts.get("unit") == "SM"


def _over_sweep(case: Case, c: Ceiling) -> Number | None:
    """A chain faster than what the sweep of its precision, or another through the library, tells.

    Where theory is known it has decided already.
    """
    if c.kernel != "fma" or c.share_at_clock is not None:
        return None
    witness = _witness(case, c)
    if witness is None or clean_low(c) < OVER_WITNESS * witness[0]:
        return None
    return Number(name(c), c.estimate.value, witness[0], c.unit, witness[1])


def _witness(case: Case, c: Ceiling) -> tuple[float, str] | None:
    """pi that a chain should have by a second loop, and which: the sweep, or a sweep through the library."""
    fit = case.fit("read-only", c.precision.label) or case.fit("in-place", c.precision.label)
    if fit is not None:
        closed = fit.pi.low is not None and fit.pi.high is not None
        return (fit.pi.value, "the π of the fitted sweep") if closed else None
    for other in ("fp64", "fp32"):
        known = case.fit("read-only", other) or case.fit("in-place", other)
        own, theirs = _library(case, c.precision.inputs), _library(case, other)
        if known is not None and known.pi.high is not None and own and theirs:
            return own * known.pi.value / theirs, f"what the library and the {other} sweep tell"
    return None


def _library(case: Case, inputs: str) -> float | None:
    plain = [
        c.estimate.value
        for c in case.peaks
        if c.precision.unit == "library" and c.precision.inputs == inputs and not c.precision.mode
    ]
    return max(plain) if plain else None


def _best(case: Case, label: str) -> float | None:
    values = [c.estimate.value for c in case.peaks if c.precision.label == label]
    return max(values) if values else None


def _high(case: Case, c: Ceiling, number: Number) -> Finding:
    """The hypotheses in turn."""
    tf32 = _tf32(case, c, number)
    if isinstance(tf32, Finding):
        return tf32
    dual = _dual(case, c, number)
    if isinstance(dual, Finding):
        return dual
    folded = _folded(case, c, number)
    if isinstance(folded, Finding):
        return folded
    return unexplained(
        number, [tf32, dual, folded, "boost clock (theory is taken at the clock that was held)"]
    )


def _tf32(case: Case, c: Ceiling, number: Number) -> Finding | str:
    if c.precision.unit != "library" or c.precision.inputs != "fp32" or c.precision.mode:
        return "tf32 (not an fp32 product)"
    if number.ratio > MATRIX_OVER_VECTOR:
        return f"tf32 (no chip does {number.ratio:.0f} times its fp32 in it)"
    fast = [k for k in case.peaks if k.precision.mode == "tf32"]
    beside = f", tf32 gives {si(max(k.estimate.value for k in fast), c.unit)} here" if fast else ""
    because = f"fp32 units cannot do that: the library used TF32 on the matrix units{beside}"
    return about(number, "tf32", because)


def _dual(case: Case, c: Ceiling, number: Number) -> Finding | str:
    """A second loop that is as fast: then the table is too low, not the count too high."""
    witness = _witness(case, c)
    if c.precision.unit != "vector" or witness is None or c.share_at_clock is None:
        return "dual issue (no second loop to compare with)"
    value, what = witness
    if not agree(value, c.estimate.value, SAME):
        return f"dual issue ({what} is {si(value, c.unit)}, not as fast)"
    because = f"{what} agrees ({si(value, c.unit)}), so the units issue more in a cycle than theory counts"
    return about(number, "dual-issue", because, witness=value)


def _folded(case: Case, c: Ceiling, number: Number) -> Finding | str:
    """The chain alone is too fast: part of its FMAs are not there."""
    if c.kernel != "fma" and c.precision.unit == "library":
        return "folded chain (the loop is the library's)"
    factor = max(2, round(number.ratio))
    near = f"near {factor} times what is possible, " if agree(number.ratio, factor, 0.12) else ""
    because = (
        f"{near}in this loop alone: {percent(1 - 1 / number.ratio)} of the FLOP that are counted are not "
        "done: chains are folded"
    )
    return about(number, "folded-chain", because, factor=number.ratio)


def _too_low(case: Case, c: Ceiling, high: Container[str]) -> Number | None:
    """A dedicated probe far below theory, or a library far below the dedicated probe of its precision.

    high: names of those that are too high to be compared with
    """
    share = c.share_at_clock
    if c.precision.unit == "library":
        own = [k for k in case.peaks if k.precision.unit != "library" and _same_types(k, c)]
        beside = [k for k in own if name(k) not in high]
        best = max((k.estimate.value for k in beside), default=0.0)
        if not best or c.estimate.value >= NARROW * best:
            return None
        return Number(name(c), c.estimate.value, best, c.unit, "the dedicated π")
    library = 0.0 if share or _is_gpu(case) or c.precision.mode else _library(case, c.precision.inputs)
    if library and c.estimate.value < BESIDE_LIBRARY * library:
        return Number(name(c), c.estimate.value, library, c.unit, "the library's π")
    if not share or share >= NARROW or _reached(case, c):
        return None
    return Number(
        name(c), c.estimate.value, c.estimate.value / share, c.unit, "the theoretical rate at its clock"
    )


def _same_types(a: Ceiling, b: Ceiling) -> bool:
    p, q = a.precision, b.precision
    return (p.inputs, p.accumulate, p.mode) == (q.inputs, q.accumulate, q.mode)


def _reached(case: Case, c: Ceiling) -> bool:
    """Whether another kernel of the same precision and unit comes near theory."""
    same = [k for k in case.peaks if k.precision == c.precision and k.kernel != c.kernel]
    return any((k.share_at_clock or 0) >= NARROW for k in same)


def _low(case: Case, c: Ceiling, number: Number) -> Finding:
    slice_ = partition(case)
    if slice_:
        because = f"this is a {slice_}, the figure may be that of the whole"
        return about(number, "partition", because)
    tested = ["power, heat and clock (the figure is at the clock held)", "partition (a whole device)"]
    because = f"the probe may not reach the peak; tested: {'; '.join(tested)}"
    return about(number, "narrow-probe", because, tested="; ".join(tested))
