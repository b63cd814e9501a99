"""Work of known FLOP and bytes on a measured roof: where its operands lie, which roof it stands under."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.errors import FileError, UsageError
from bench.fitting.choice import PARAMETERS
from bench.fitting.intervals import student
from bench.prediction import limits
from bench.prediction.estimate import Prediction, log_width, spread
from bench.prediction.nominal import nominal
from bench.profile.records import Curve, Interval, Precision, Profile
from bench.workloads.roof import READ_FRACTION, Roof, binding, fit_of, roof, scaled

BETWEEN = 0.5
"""Share of the difference of two neighbours that what lies half way between them may err by."""


@dataclass(frozen=True)
class Load:
    """What is done: FLOP, bytes read and written of one execution, and where it lies.

    footprint: bytes of all operands, which decide the level;  level: named by the user, else ""
    """

    precision: Precision
    threads: int
    flops: float
    reads: float
    writes: float
    footprint: float
    in_place: bool = False
    level: str = ""

    @property
    def bytes(self) -> float:
        """Read and written."""
        return self.reads + self.writes

    @property
    def read_fraction(self) -> float:
        """Share of the traffic that is loads; 1 where nothing moves."""
        return self.reads / self.bytes if self.bytes else 1.0


def footprint(reads: float, writes: float, in_place: bool) -> float:
    """Bytes of the operands: what is written lies over what is read where the workload works in place."""
    return max(reads, writes) if in_place else reads + writes


# where the operands lie


def levels(profile: Profile, threads: int) -> list[tuple[str, float]]:
    """Measured cache levels with the bytes that so many threads have of each, nearest first."""
    known = profile.facts.get("device", {}).get("caches", ())
    measured = {c.level for c in profile.ceilings if c.quantity == "beta" and c.threads == threads}
    found = [(str(c["level"]), float(c["bytes"]) * min(int(c["instances"]), threads)) for c in known]
    return [(name, size) for name, size in found if name in measured]


def level_of(profile: Profile, footprint: float, threads: int) -> str:
    """The first level that holds the operands, else DRAM."""
    return next((name for name, size in levels(profile, threads) if footprint <= size), "DRAM")


def _read_curve(profile: Profile, threads: int) -> Curve | None:
    found = [c for c in profile.curves if (c.kind, c.mode, c.threads) == ("cache", "read", threads)]
    return found[0] if found else None


def _at(curve: Curve, size: float) -> float:
    """Read bandwidth at a working set of `size` byte a thread, linear in both logarithms."""
    x, y = [math.log(p.x) for p in curve.points], [math.log(p.estimate.value) for p in curve.points]
    place = math.log(size)
    if place <= x[0] or len(x) == 1:
        return math.exp(y[0])
    for i in range(1, len(x)):
        if place <= x[i] and x[i - 1] < x[i]:
            return math.exp(y[i - 1] + (place - x[i - 1]) / (x[i] - x[i - 1]) * (y[i] - y[i - 1]))
    return math.exp(y[-1])


def share_of_plateau(profile: Profile, level: str, footprint: float, threads: int) -> float:
    """How fast reads go at a working set compared with the plateau of its level: near a capacity, slower.

    1 without a measured sweep; never beyond the plateaus of the levels on either side.
    """
    names = [name for name, _ in levels(profile, threads)] + ["DRAM"]
    curve = _read_curve(profile, threads)
    reads = {
        c.level: c.estimate.value
        for c in profile.ceilings
        if (c.quantity, c.access, c.threads) == ("beta", "read", threads)
    }
    if curve is None or level not in reads or level not in names or footprint <= 0:
        return 1.0
    found = _at(curve, footprint / threads) / reads[level]
    place = names.index(level)
    if level == "DRAM":
        above = reads.get(names[place - 1], reads[level]) / reads[level] if place else 1.0
        return min(max(found, 1.0), max(above, 1.0))
    below = reads.get(names[place + 1], reads[level]) / reads[level]
    return max(min(found, 1.0), min(below, 1.0))


# the roof of a load


def roof_of(profile: Profile, load: Load) -> tuple[Roof, str]:
    """The roof that a load stands under, and its level; FileError or UsageError says what is missing."""
    level = load.level or level_of(profile, load.footprint, load.threads)
    found = roof(
        load.precision,
        load.threads,
        level,
        load.read_fraction,
        load.in_place,
        profile.ceilings,
        profile.curves,
    )
    _check(profile, load, found, level)
    if not load.level and found.beta:
        share = share_of_plateau(profile, level, load.footprint, load.threads)
        found = replace(found, beta=scaled(found.beta, lambda beta: beta * share))
    return found, level


def _check(profile: Profile, load: Load, found: Roof, level: str) -> None:
    threads = load.threads
    if load.flops and found.pi is None:
        peaks = dict.fromkeys(
            c.precision.label
            for c in profile.ceilings
            if c.quantity == "pi" and c.threads == threads and c.precision.unit != "library"
        )
        valid = ", ".join(peaks) or "none: run the fma family"
        raise UsageError(f"no pi of {load.precision.label} in this profile; measured: {valid}")
    if load.bytes and found.beta is None:
        levels = dict.fromkeys(
            c.level for c in profile.ceilings if c.quantity == "beta" and c.threads == threads
        )
        if not levels:
            raise FileError("this profile holds no beta: run the stream family, then predict again")
        raise UsageError(f"no beta of {level} in this profile; measured: {', '.join(levels)}")


def shape_error(profile: Profile, load: Load) -> float:
    """Half-width (log) of the form itself: t times its residuals, each as if left out of the fit."""
    fit = fit_of(load.precision, load.threads, load.in_place, profile.curves)
    points = [len(c.points) for c in profile.curves if fit in c.fits] if fit else []
    if not fit or not points:
        return 0.0
    spare = max(points[0] - PARAMETERS[fit.form], 1)
    return student(spare) * fit.rms * points[0] / spare


def plain(profile: Profile, load: Load, what: str) -> Prediction:
    """The time of a load on its roof, by the chosen form of the sweep where there is one."""
    found, level = roof_of(profile, load)
    value = found.seconds(load.flops, load.bytes)
    notes = [of_level(load, level)] if level != "DRAM" else []
    interval = _roof_interval(profile, load, found, level, value)
    if found.fit is None and load.flops and load.bytes:
        notes.append("no fitted sweep: overlap is not known, the interval reaches to a serial run")
        serial = found.compute(load.flops) + found.memory(load.bytes)
        interval = replace(interval, high=max(interval.high or value, serial))
    form = f"{found.fit.form} form of the sweep" if found.fit else "hard corner"
    interval, said, binds = limits.above_start(profile, load.threads, interval, notes)
    return prediction(profile, load, level, what, interval, found, value, f"roof, {form}", said, binds)


def of_level(load: Load, level: str) -> str:
    """In words, why the operands lie in a level."""
    return f"the level {level} was named" if load.level else f"the operands fit into {level}"


def _roof_interval(profile: Profile, load: Load, found: Roof, level: str, value: float) -> Interval:
    compute, memory = found.compute(load.flops), found.memory(load.bytes)
    share = compute / (compute + memory) if compute + memory else 0.0
    parts = (share * log_width(found.pi), (1 - share) * log_width(found.beta))
    mixed = (1 - share) * _mix_error(profile, load, level)
    return spread(value, *parts, mixed, shape_error(profile, load))


def _mix_error(profile: Profile, load: Load, level: str) -> float:
    """Half-width (log) of beta between two measured read fractions: half their difference half way."""
    nodes = sorted(set(READ_FRACTION.values()))
    r = load.read_fraction
    low, high = max(n for n in nodes if n <= r), min(n for n in nodes if n >= r)
    if low == high:
        return 0.0
    rest = (level, profile.ceilings, profile.curves)
    ends = [
        roof(load.precision, load.threads, rest[0], n, load.in_place, *rest[1:]).beta for n in (low, high)
    ]
    if ends[0] is None or ends[1] is None:
        return 0.0
    share = (r - low) / (high - low)
    return BETWEEN * abs(math.log(ends[1].value / ends[0].value)) * 2 * min(share, 1 - share)


def prediction(
    profile: Profile,
    load: Load,
    level: str,
    what: str,
    seconds: Interval,
    found: Roof,
    on_roof: float,
    basis: str,
    notes: Sequence[str],
    binds: str = "",
) -> Prediction:
    """The record of a load, with what the nominal roof says beside it."""
    return Prediction(
        what=what,
        precision=load.precision,
        threads=load.threads,
        level=level,
        flops=load.flops,
        bytes_read=load.reads,
        bytes_written=load.writes,
        seconds=seconds,
        binds=binds or binding(load.flops, load.bytes, found),
        roof_seconds=on_roof,
        basis=basis,
        nominal_seconds=nominal(profile, load.precision, load.threads).seconds(load.flops, load.bytes),
        notes=tuple(notes),
    )
