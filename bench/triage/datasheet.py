"""A number against a device's datasheet: one of ours, or a bare one that somebody else measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bench import reference
from bench.errors import FileError
from bench.profile.records import Ceiling, Interval
from bench.reference import DATASHEET, Figure, Reference
from bench.report.units import capacity, si
from bench.triage.case import Case, agree, clean_low
from bench.triage.finding import Finding, Number, about, found, name, unexplained

HIGH, LOW = 1.02, 0.70
"""Shares of the datasheet outside of which a bare number needs a reason: 1.02 is its rounding, published
dense kernels reach 0.72 to 1.00 of it."""

NARROW = 0.6
"""The same for a dedicated probe of ours."""

BOOST = 1.30
"""How far boards boost above the clock that a datasheet counts, at most: 1.19 is the highest published."""

BEYOND = 10.0
"""Times the datasheet that no unit, cache or convention explains."""

EITHER = ("fp16", "bf16", "int8", "fp8", "fp4")
"""Types that vector and matrix units both know: a bare word leaves open which of them did the work."""

FAR = 0.5
"""Share of the datasheet below which another device is thought of: right ones reach 0.6 and more."""

WIDEST = 0.10
"""Half-width of an interval that still tells one ratio of counts from the next."""

RATIOS = (1 / 3, 0.5, 2 / 3, 0.75, 4 / 3, 1.5, 2.0, 3.0)
NEAR = 0.04
"""Ratios of the ways to count bytes, and how near a number must be to one."""


@dataclass(frozen=True)
class Context:
    """What is known of a bare number, empty or None where nothing is.

    device: its name;  quantity: pi (FLOP/s) | beta (byte/s);  precision: as Precision.label;  level: DRAM, L2
    clock_hz: held;  working_set: bytes;  interval: of the value
    expected, expected_of: figure to compare with and whose it is, else the datasheet's
    said_by: who says which device it is, where it is not certain;  slice_of: a slice, in words
    beside: other quantities measured with it
    """

    quantity: str
    device: str = ""
    precision: str = ""
    level: str = "DRAM"
    clock_hz: float | None = None
    working_set: float = 0.0
    interval: Interval | None = None
    expected: float | None = None
    expected_of: str = "the figure given"
    said_by: str = ""
    slice_of: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)


def explain(value: float, context: Context, tables: Reference | None = None) -> Finding | None:
    """Why a bare number is above a device's datasheet or far below; None where it is normal or nobody knows.

    value: FLOP/s or byte/s.  Unknown devices are never compared with another's figures.
    """
    try:
        tables = tables or reference.known()
    except FileError:
        return None
    match = reference.match(context.device, reference=tables) if context.device else reference.Match("")
    figures = tables.of(match.device) if match.device else ()
    sheet = sheet_of(context, figures, value)
    if sparse := _sparse(context, sheet, match.device):
        return sparse
    expected = context.expected or (sheet.value if sheet else None)
    if not expected:
        return None
    number = _number(value, expected, context, match.device)
    if LOW <= number.ratio <= HIGH or _may_be_normal(expected, context.interval):
        return None
    return _explained(number, context, sheet, figures, tables)


def _may_be_normal(expected: float, interval: Interval | None) -> bool:
    """Whether the interval of a value reaches what is normal."""
    low, high = (interval.low, interval.high) if interval else (None, None)
    return low is not None and high is not None and low <= HIGH * expected and high >= LOW * expected


def sheet_of(context: Context, figures: Iterable[Figure], value: float) -> Figure | None:
    """The datasheet's row that a value (FLOP/s or byte/s) is judged by, None where none is known."""
    rows = [f for f in figures if f.kind == DATASHEET]
    if context.quantity == "beta":
        return next((f for f in rows if f.quantity == "bandwidth" and f.level == context.level), None)
    peaks = {f.precision: f for f in rows if f.quantity == "peak_flops"}
    plain, units = (context.precision.replace(" library", unit) for unit in ("", " matrix"))
    if context.precision in EITHER:
        return _either(context.precision, peaks, value)
    return next((peaks[p] for p in (context.precision, units, f"{plain} matrix", plain) if p in peaks), None)


def _either(word: str, peaks: Mapping[str, Figure], value: float) -> Figure | None:
    """Vector units where they can have done it, else matrix units; None where only low matrix units fit."""
    vector = peaks.get(word)
    names = (f"{word} matrix", f"{word}>fp32 matrix", f"{word}>int32 matrix")
    matrix = next((peaks[name] for name in names if name in peaks), None)
    if vector is not None and (matrix is None or value <= BOOST * vector.value):
        return vector
    return matrix if matrix is not None and (vector or value >= LOW * matrix.value) else None


def _number(value: float, expected: float, context: Context, device: str) -> Number:
    pi = context.quantity == "pi"
    subject = f"π {context.precision}".rstrip() if pi else f"β {context.level}"
    of = context.expected_of if context.expected else f"the datasheet's figure of a {device}"
    said = f" (which {context.said_by} says it is)" if context.said_by else ""
    return Number(subject, value, expected, "FLOP/s" if pi else "byte/s", of + said)


def _sparse(context: Context, sheet: Figure | None, device: str) -> Finding | None:
    """A figure given that is twice the dense one: the datasheet's with 2:4 sparsity."""
    if not (
        context.expected
        and sheet
        and "matrix" in sheet.precision
        and agree(context.expected, 2 * sheet.value, 0.02)
    ):
        return None
    sentence = (
        f"{si(context.expected, 'FLOP/s')} is the sparse figure of a {device}, twice its dense "
        f"{si(sheet.value, 'FLOP/s')} for {sheet.precision}: a dense product cannot reach it"
    )
    return found(
        "sparse-datasheet", f"π {context.precision}", sentence, expected=context.expected, dense=sheet.value
    )


def _explained(
    number: Number, context: Context, sheet: Figure | None, figures: Iterable[Figure], tables: Reference
) -> Finding:
    """The hypotheses in turn."""
    figures = tuple(figures)
    tests = [
        _beyond(number),
        _boost(number, context, sheet),
        _capped(number, context, sheet),
        _resident(number, context, figures),
        _tf32(number, context, figures),
        _slice(number, context),
        _other(number, context, tables),
        _convention(number, context),
        _issue(number, context, sheet),
        _narrow(number),
    ]
    first = next((t for t in tests if isinstance(t, Finding)), None)
    return first or unexplained(number, [t for t in tests if isinstance(t, str) and t])


def _beyond(number: Number) -> Finding | str:
    if number.ratio < BEYOND:
        return ""
    because = "no clock, cache or way of counting gives that: its times or its counts are wrong (timer)"
    return about(number, "timer", because)


def _boost(number: Number, context: Context, sheet: Figure | None) -> Finding | str:
    if context.quantity != "pi" or not number.ratio > 1:
        return ""
    counted = sheet.sm_clock_mhz * 1e6 if sheet and sheet.sm_clock_mhz and not context.expected else None
    if context.clock_hz and counted:
        if number.ratio <= HIGH * context.clock_hz / counted:
            because = f"it ran at {si(context.clock_hz, 'Hz')}, the datasheet counts {si(counted, 'Hz')}"
            return about(number, "boost-clock", because, clock_hz=context.clock_hz, counted_hz=counted)
        return f"boost clock ({si(context.clock_hz, 'Hz')} held, {si(counted, 'Hz')} counted)"
    if number.ratio > BOOST:
        return f"boost clock (would have to be {number.ratio:.2f} times the nominal one)"
    needs = f", which would be {si(counted * number.ratio, 'Hz')}" if counted else ""
    because = f"boards boost up to {BOOST:.2f} times the clock that is counted{needs}: likely the boost clock"
    return about(number, "boost-clock", because)


def _capped(number: Number, context: Context, sheet: Figure | None) -> Finding | str:
    """A low pi that the clock held explains."""
    if (
        number.ratio > 1
        or context.quantity != "pi"
        or not (context.clock_hz and sheet and sheet.sm_clock_mhz)
    ):
        return "power or heat (clock not known)" if number.ratio < 1 and context.quantity == "pi" else ""
    counted = sheet.sm_clock_mhz * 1e6
    if number.ratio < LOW * context.clock_hz / counted:
        explains = context.clock_hz / counted
        return f"power or heat (the clock held, {si(context.clock_hz, 'Hz')}, explains {explains:.2f})"
    because = (
        f"it held {si(context.clock_hz, 'Hz')} of the {si(counted, 'Hz')} that are counted: power or heat "
        "held it down"
    )
    return about(number, "power-cap", because, clock_hz=context.clock_hz, counted_hz=counted)


def _resident(number: Number, context: Context, figures: Iterable[Figure]) -> Finding | str:
    if context.quantity != "beta" or number.ratio < 1:
        return ""
    caches = [f.value for f in figures if f.quantity == "cache_size"]
    if not (caches and context.working_set):
        return "cache-resident (working set or cache size not known)"
    if context.working_set > 2 * max(caches):
        return f"cache-resident ({capacity(context.working_set)} do not fit {capacity(max(caches))})"
    because = (
        f"the working set of {capacity(context.working_set)} lies in a cache of {capacity(max(caches))}: "
        "this is the bandwidth of the cache"
    )
    return about(number, "cache-resident", because, working_set=context.working_set, cache_bytes=max(caches))


def _tf32(number: Number, context: Context, figures: Iterable[Figure]) -> Finding | str:
    if context.quantity != "pi" or number.ratio < 1 or not context.precision.startswith("fp32"):
        return ""
    peak = next((f.value for f in figures if f.precision == "fp32 matrix tf32"), None)
    if peak is None or number.ratio < BOOST or number.value > HIGH * peak:
        return (
            "tf32 (its rate is not known or exceeded)" if peak is None or number.value > HIGH * peak else ""
        )
    because = f"fp32 units cannot do that, TF32 does up to {si(peak, 'FLOP/s')}: the product used TF32"
    return about(number, "tf32", because, tf32=peak)


def _slice(number: Number, context: Context) -> Finding | str:
    if not context.slice_of:
        return ""
    return (
        about(number, "partition", f"this is a {context.slice_of}, the figure is the whole's")
        if number.ratio < 1
        else ""
    )


def _other(number: Number, context: Context, tables: Reference) -> Finding | str:
    """Another device of which both this number and those beside it are what one expects."""
    if not context.beside or not context.device or context.said_by or FAR <= number.ratio <= HIGH:
        return ""
    for device in tables.devices:
        figures = tables.of(device)
        own = sheet_of(context, figures, number.value)
        others = {
            q: f
            for q, v in context.beside.items()
            if (f := sheet_of(Context(q, precision=context.precision), figures, v))
        }
        fits = own and 0.75 <= number.value / own.value <= HIGH and len(others) == len(context.beside)
        if fits and all(0.75 <= context.beside[q] / f.value <= HIGH for q, f in others.items()):
            names = " and ".join("β" if q == "beta" else "π" for q in others)
            told = f"it and the {names} beside it are what a {device} gives"
            return about(number, "wrong-device", f"{told}: the name may be another device's", device=device)
    return "wrong device (no known device has both figures)"


def _convention(number: Number, context: Context) -> Finding | str:
    if context.quantity != "beta":
        return ""
    near = min(RATIOS, key=lambda r: abs(number.ratio / r - 1))
    width = (context.interval.half_width if context.interval else None) or 0.0
    if not agree(number.ratio, near, max(NEAR, min(width, WIDEST))):
        return f"byte convention ({number.ratio:.2f} is no ratio of ways to count)"
    ways = {0.5: "a copy counted once", 2.0: "a copy or both directions counted twice"}
    told = ways.get(near, "another number of streams")
    return about(number, "byte-convention", f"near {near:.2f}: {told} would explain it", counted=near)


def _issue(number: Number, context: Context, sheet: Figure | None) -> Finding | str:
    """Whole multiples of what vector units do."""
    if context.quantity != "pi" or number.ratio < BOOST:
        return ""
    factor = round(number.ratio)
    matrix = "matrix" in (sheet.precision if sheet else context.precision)
    if matrix and agree(number.ratio, 2.0, NEAR):
        because = "twice the dense rate: the product used 2:4 sparsity, or the FLOP are counted twice"
        return about(number, "sparse-datasheet", because)
    if factor >= 2 and agree(number.ratio, factor, NEAR):
        because = "chains folded by the compiler, multiply-adds counted twice, or dual issue"
        return about(number, "folded-chain", because)
    return f"folded chain or dual issue ({number.ratio:.2f} is no whole multiple)"


def _narrow(number: Number) -> Finding | str:
    if number.ratio > 1:
        return ""
    return about(number, "narrow-probe", "the probe may not reach the peak")


def ceilings(case: Case) -> list[Finding]:
    """Ceilings of a whole known GPU above its datasheet or far below, where theory has not spoken yet."""
    told = []
    slice_ = reference.of_device(case.device).why if case.device.get("kind") == "cuda" else ""
    for c in (*case.peaks, *case.memory):
        share = c.share_of_datasheet
        if not share or not _odd(c, share):
            continue
        expected = c.estimate.value / share
        number = Number(name(c), c.estimate.value, expected, c.unit, "the datasheet's figure")
        told.append(_of_ours(case, c, number, slice_))
    return told


def _odd(c: Ceiling, share: float) -> bool:
    low = share < NARROW and c.precision.unit != "library" and c.quantity == "pi"
    return share * clean_low(c) / c.estimate.value > HIGH or low


def _of_ours(case: Case, c: Ceiling, number: Number, slice_: str) -> Finding:
    tables = reference.known()
    figures = tables.of(reference.of_device(case.device, tables).device)
    context = Context(
        c.quantity,
        "",
        c.precision.label,
        c.level or "DRAM",
        c.clock_hz,
        case.arrays(c),
        c.estimate,
        slice_of=slice_,
    )
    return _explained(number, context, sheet_of(context, figures, number.value), figures, tables)
