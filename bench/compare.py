"""Two profiles side by side: ratio of each ceiling with its interval, a verdict, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.errors import FileError, UsageError
from bench.fitting.intervals import student
from bench.profile.records import WHOLE, Ceiling, Interval, Profile
from bench.report import heading, roofs

MARGIN = 0.03
"""Two ceilings are the same when the interval of their ratio lies within this share of 1."""

NOTABLE = 0.10
"""A number among the conditions is listed as different when its medians differ by more than this."""

MANY = 10
"""From this many ceilings on, chance alone is expected to spoil some verdict."""

SAME, FASTER, SLOWER, CANNOT_TELL = "same", "faster", "slower", "cannot tell"
LARGER, SMALLER = "larger", "smaller"

BESIDE_ONE = {"s": (FASTER, SLOWER), "byte": (SMALLER, LARGER)}
"""What B is below and above A, by unit: of times less is faster, capacities are no speeds; rates as usual."""

OCCASION = ("time", "command")
"""Provenance that differs between any two runs and explains nothing."""

KEY = ("quantity", "level", "kernel", "access", "store", "operands", "regime", "statistic")
"""What must be equal, beside the precision, scope and (unless of the whole device) threads, to compare."""


@dataclass(frozen=True)
class Row:
    """One ceiling that both profiles hold. ratio = B/A with its 95 % interval, a pure number."""

    name: str
    unit: str
    a: Interval
    b: Interval
    threads_a: int
    threads_b: int
    ratio: Interval
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """One thing that differs between the runs: part (identity, provenance, conditions, ceilings)."""

    part: str
    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """Everything that `compare` says; the JSON of the verb is this record."""

    margin: float
    names: tuple[str, str]
    simulated: tuple[bool, bool]
    rows: tuple[Row, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def compare(a: Profile, b: Profile, allow_simulated: bool = False) -> Comparison:
    """Compare every ceiling of `a` and `b` by its keys.

    FileError on different schema versions; UsageError when one is simulated and the other is not,
    unless allowed.
    """
    if a.schema_version != b.schema_version:
        raise FileError(
            f"A has schema version {a.schema_version} and B {b.schema_version}: "
            "remake the older profile with `python -m bench fit FOLDER`"
        )
    if a.simulated != b.simulated and not allow_simulated:
        raise UsageError(
            f"{'A' if a.simulated else 'B'} is SIMULATED and the other is measured: no verdict can stand; "
            "--allow-simulated compares them all the same"
        )
    doubles: list[str] = []
    of_a, of_b = _by_key(a, "A", doubles), _by_key(b, "B", doubles)
    return Comparison(
        margin=MARGIN,
        names=(heading.device_name(a), heading.device_name(b)),
        simulated=(a.simulated, b.simulated),
        rows=tuple(_row(of_a[key], of_b[key]) for key in of_a if key in of_b),
        only_a=tuple(ceiling_name(c) for key, c in of_a.items() if key not in of_b),
        only_b=tuple(ceiling_name(c) for key, c in of_b.items() if key not in of_a),
        differences=tuple(differences(a, b)),
        notes=(*doubles, *_notes(a, b, sum(key in of_b for key in of_a))),
    )


def ceiling_name(ceiling: Ceiling) -> str:
    """One line that names a ceiling: "pi fp64 fma", "beta DRAM copy nontemporal, fp64, core"."""
    if ceiling.quantity == "pi":
        parts = [f"pi {ceiling.precision.label} {ceiling.kernel}"]
    elif ceiling.quantity != "beta" or roofs.is_link(ceiling):
        access = "" if ceiling.access == "none" else ceiling.access
        words = (ceiling.quantity, ceiling.level, ceiling.kernel, ceiling.variant, access)
        parts = [" ".join(filter(None, words))]
    else:
        store = " nontemporal" if ceiling.store == "nontemporal" else ""
        kernel = ceiling.kernel.removeprefix("cache-")
        parts = [f"beta {ceiling.level} {kernel}{store}", ceiling.precision.label]
    parts += [] if ceiling.scope in WHOLE else [f"{ceiling.scope}/{ceiling.threads}"]
    parts += [] if ceiling.regime == "typical" else [ceiling.regime]
    parts += [] if ceiling.operands == "random" else [ceiling.operands]
    return ", ".join(parts)


def ratio_interval(a: Ceiling, b: Ceiling) -> Interval:
    """B/A with its 95 % interval by Welch's method on the logarithms.

    Each end of each interval gives a standard error (its distance on the log scale over Student's t
    of that ceiling's rounds); they add in quadrature, with Welch-Satterthwaite degrees of freedom,
    rounded down. No interval unless both have one.
    """
    value = b.estimate.value / a.estimate.value
    low_a, high_a = _errors(a)
    low_b, high_b = _errors(b)
    if math.isnan(low_a + low_b):
        return Interval(value)
    down = _reach(low_b, high_a, b.rounds - 1, a.rounds - 1)
    up = _reach(high_b, low_a, b.rounds - 1, a.rounds - 1)
    return Interval(value, value * math.exp(-down), value * math.exp(up))


def verdict(ratio: Interval, unit: str = "") -> str:
    """What an interval of B/A allows to say of values in `unit`.

    same: it lies within 1/(1+MARGIN) .. 1+MARGIN;  faster (of s slower, of byte larger): else, wholly above
    1;  slower (faster, smaller): else, wholly below 1;  cannot tell: it holds 1 and reaches beyond, or there
    is none
    """
    below, above = BESIDE_ONE.get(unit, (SLOWER, FASTER))
    if ratio.low is None or ratio.high is None:
        return CANNOT_TELL
    if ratio.low >= 1 / (1 + MARGIN) and ratio.high <= 1 + MARGIN:
        return SAME
    if ratio.low > 1:
        return above
    return below if ratio.high < 1 else CANNOT_TELL


def differences(a: Profile, b: Profile) -> Iterator[Difference]:
    """What differs in identity, provenance, conditions and threads; numbers in conditions by medians."""
    for part in ("identity", "provenance"):
        left, right = _flat(getattr(a, part)), _flat(getattr(b, part))
        for what in dict.fromkeys((*left, *right)):
            if left.get(what) != right.get(what) and what not in OCCASION:
                yield Difference(part, what, _said(left, what), _said(right, what))
    left, right = _typical(a.conditions), _typical(b.conditions)
    for what in dict.fromkeys((*left, *right)):
        if what != "round" and _notable(left.get(what), right.get(what)):
            yield Difference("conditions", what, _said(left, what), _said(right, what))
    threads = [sorted({c.threads for c in p.ceilings if c.scope in WHOLE}) for p in (a, b)]
    if threads[0] != threads[1]:
        said = [", ".join(map(str, counts)) or "none" for counts in threads]
        yield Difference("ceilings", "threads or SMs of the whole device", said[0], said[1])


Key = tuple[Any, ...]


def key_of(ceiling: Ceiling) -> Key:
    """What two ceilings must have in common to be compared."""
    return (
        *(getattr(ceiling, name) for name in KEY),
        ceiling.precision.label,
        None if ceiling.scope in WHOLE else (ceiling.scope, ceiling.threads),
        ceiling.variant if ceiling.quantity == "t0" or roofs.is_link(ceiling) else "",
    )


def _by_key(profile: Profile, side: str, doubles: list[str]) -> dict[Key, Ceiling]:
    found: dict[Key, Ceiling] = {}
    for ceiling in profile.ceilings:
        _refuse(ceiling, side)
        key = key_of(ceiling)
        if key in found:
            doubles.append(f"{side} holds {ceiling_name(ceiling)} more than once; the first is compared")
        found.setdefault(key, ceiling)
    return found


def _refuse(ceiling: Ceiling, side: str) -> None:
    """FileError for a ceiling that is zero, negative or not finite: no ratio to it means anything."""
    value = ceiling.estimate.value
    if not (value > 0 and math.isfinite(value)):
        raise FileError(
            f"{side} holds {ceiling_name(ceiling)} with the value {value:g}, which no measurement gives: "
            "remake the profile with `python -m bench fit FOLDER`"
        )


def _row(a: Ceiling, b: Ceiling) -> Row:
    ratio = ratio_interval(a, b)
    notes = [f"{name} {_doubt(c)}" for name, c in (("A", a), ("B", b)) if _doubt(c)]
    return Row(
        name=ceiling_name(a),
        unit=a.unit,
        a=a.estimate,
        b=b.estimate,
        threads_a=a.threads,
        threads_b=b.threads,
        ratio=ratio,
        verdict=verdict(ratio, a.unit),
        note="; ".join(notes),
    )


def _doubt(ceiling: Ceiling) -> str:
    if ceiling.estimate.low is None:
        return "has no interval (one round)"
    if ceiling.converged is None:
        return f"has {ceiling.rounds} rounds only"
    return "" if ceiling.converged else "did not converge"


def _errors(ceiling: Ceiling) -> tuple[float, float]:
    """Standard errors of the logarithm, below and above the value; NaN without an interval."""
    value, low, high = ceiling.estimate.value, ceiling.estimate.low, ceiling.estimate.high
    if low is None or high is None or low <= 0 or ceiling.rounds < 2:
        return math.nan, math.nan
    t = student(ceiling.rounds - 1)
    return math.log(value / low) / t, math.log(high / value) / t


def _reach(first: float, second: float, degrees_first: int, degrees_second: int) -> float:
    """Half-width on the log scale of the difference of two means with unequal errors."""
    variance = first**2 + second**2
    if variance == 0:
        return 0.0
    degrees = variance**2 / (first**4 / degrees_first + second**4 / degrees_second)
    return student(max(1, math.floor(degrees + 1e-9))) * math.sqrt(variance)


def _notes(a: Profile, b: Profile, count: int) -> Iterator[str]:
    for side, profile in (("A", a), ("B", b)):
        if profile.simulated:
            yield f"{side} is SIMULATED: its numbers were invented, not measured"
    if not (a.simulated or b.simulated):
        yield (
            "the two runs were not interleaved: slow drift of the machine between them lies outside "
            "these intervals, so a small difference needs both measured again in turns"
        )
    if count >= MANY:
        yield f"of {count} intervals of 95 % about {count / 20:.0f} may miss by chance alone"


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as one level: "packages.numpy", "load_average.0"."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        inner = dict(enumerate(item)) if isinstance(item, list | tuple) else item
        if isinstance(inner, Mapping):
            flat |= _flat({str(k): v for k, v in inner.items()}, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def _typical(conditions: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """One value a key over all rounds: the median of numbers, the distinct values of the rest."""
    columns: dict[str, list[Any]] = {}
    for condition in conditions:
        for key, value in _flat(condition).items():
            columns.setdefault(key.removeprefix("values."), []).append(value)
    return {key: _summary(values) for key, values in columns.items()}


def _summary(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    numbers = [v for v in known if isinstance(v, int | float) and not isinstance(v, bool)]
    if numbers and len(numbers) == len(known):
        return median(numbers)
    return ", ".join(dict.fromkeys(_word(value) for value in known)) or "not reported"


def _notable(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) > NOTABLE * max(abs(a), abs(b))
    return bool(a != b)


def _said(values: Mapping[str, Any], what: str) -> str:
    return _word(values[what]) if what in values else "not recorded"


def _word(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
