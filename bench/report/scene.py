"""What a roofline plot shows, as plain lines, points and words: no plotting library in here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.profile import roofline
from bench.profile.records import Ceiling, Curve, Interval, Placement, Profile
from bench.report import heading, roofs
from bench.report.units import bare, percent, plus_minus, si

Range = tuple[float, float]


@dataclass(frozen=True)
class Horizontal:
    """A measured pi in FLOP/s with its label; ridges in FLOP/byte, lowest first."""

    profile: int
    precision: str
    value: float
    ridges: tuple[float, ...]
    text: str
    library: bool = False


@dataclass(frozen=True)
class Diagonal:
    """A measured beta in byte/s; text is "" for lines that share the label of a neighbour.

    side: +1 label above the line, -1 below, 0 on it;  main: of the level behind all caches;  link: of a link
    """

    profile: int
    value: float
    text: str
    side: int
    main: bool
    link: bool = False


@dataclass(frozen=True)
class Sweep:
    """Measured points of one intensity sweep and its fitted curve as (x, y) pairs."""

    profile: int
    precision: str
    mode: str
    points: tuple[tuple[float, Interval], ...]
    curve: tuple[tuple[float, float], ...]
    form: str


@dataclass(frozen=True)
class Dot:
    """A workload: x in FLOP/byte, achieved and attainable in FLOP/s, name in full."""

    profile: int
    precision: str
    name: str
    x: float
    achieved: Interval
    attainable: float
    efficiency: float


@dataclass(frozen=True)
class Scene:
    """Everything drawn, the ranges of both axes and the remarks below the plot."""

    horizontals: tuple[Horizontal, ...]
    diagonals: tuple[Diagonal, ...]
    sweeps: tuple[Sweep, ...]
    dots: tuple[Dot, ...]
    x: Range
    y: Range
    remarks: tuple[str, ...]
    precisions: tuple[str, ...]
    profiles: int

    @property
    def numbers(self) -> dict[tuple[str, str], int]:
        """A number for each workload by name and precision: the same one in every profile."""
        known = dict.fromkeys((dot.name, dot.precision) for dot in self.dots)
        return {key: number for number, key in enumerate(known, 1)}


def letter(index: int) -> str:
    """The name of a profile among several: A, B, C, ..."""
    return chr(ord("A") + index % 26)


def scene(profiles: Sequence[Profile]) -> Scene:
    """Lay out one profile in full, or several over each other with main memory only."""
    several = len(profiles) > 1
    horizontals = [h for i, p in enumerate(profiles) for h in _horizontals(i, p, several)]
    diagonals = [d for i, p in enumerate(profiles) for d in _diagonals(i, p, several)]
    dots = [d for i, p in enumerate(profiles) for d in _dots(i, p)]
    names = dict.fromkeys(
        [*(h.precision for h in horizontals if not h.library), *(d.precision for d in dots)]
    )
    spots = [(d.x, y) for d in dots for y in (d.achieved.value, d.attainable)]
    spots += [(x, e.value) for p in profiles for c in _mixes(p) for x, e in _drawable(c)]
    x = _x_range([x for x, _ in spots], horizontals, diagonals)
    y = _y_range([y for _, y in spots], x, horizontals, diagonals)
    sweeps = [s for i, p in enumerate(profiles) for s in _sweeps(i, p, x)]
    precisions = dict.fromkeys([*names, *(s.precision for s in sweeps)])
    return Scene(
        tuple(horizontals),
        tuple(diagonals),
        tuple(sweeps),
        tuple(dots),
        x,
        y,
        tuple(_remarks(profiles)),
        tuple(precisions),
        len(profiles),
    )


def _horizontals(index: int, profile: Profile, several: bool) -> Iterator[Horizontal]:
    betas = [c.estimate.value for c in roofs.slopes(profile)]
    libraries = {roofs.types(c): c for c in roofs.peaks(profile, library=True)}
    matrix = {roofs.types(c) for c in roofs.peaks(profile) if c.precision.unit == "matrix"}
    name = f"{letter(index)}  " if several else ""
    for group in _together(roofs.peaks(profile)):
        c = group[0]
        value, ridges = c.estimate.value, tuple(sorted(c.estimate.value / beta for beta in betas))
        text = f"{name}{_joined(group)}  π {si(value, c.unit)}{_width(c.estimate)}"
        served = c.precision.unit == "matrix" or roofs.types(c) not in matrix
        library = libraries.get(roofs.types(c)) if served and not several else None
        if library:
            text += f"  ({library.kernel} {bare(library.estimate.value, c.unit, value)})"
            yield Horizontal(index, c.precision.label, library.estimate.value, (), "", library=True)
        yield Horizontal(index, c.precision.label, value, ridges, text)


TOGETHER = 1.03
"""Peaks of one kind of unit that differ by less share a line and its label."""


def _together(peaks: Sequence[Ceiling]) -> list[list[Ceiling]]:
    """Peaks grouped by unit and value, in their order."""
    groups: list[list[Ceiling]] = []
    for c in peaks:
        for group in groups:
            first, ratio = group[0], group[0].estimate.value / c.estimate.value
            if first.precision.unit == c.precision.unit and 1 / TOGETHER < ratio < TOGETHER:
                group.append(c)
                break
        else:
            groups.append([c])
    return groups


def _joined(group: Sequence[Ceiling]) -> str:
    """fp16, bf16>fp32 matrix: the unit is named once."""
    unit = f" {group[0].precision.unit}" if group[0].precision.unit != "vector" else ""
    return ", ".join(c.precision.label.replace(unit, "") if unit else c.precision.label for c in group) + unit


def _width(estimate: Interval) -> str:
    return "" if estimate.half_width is None else f" {plus_minus(estimate.half_width)}"


def _diagonals(index: int, profile: Profile, several: bool) -> Iterator[Diagonal]:
    main = roofs.main_memory(profile)
    if several:
        name = letter(index)
        for side, c in zip((-1, 1), roofs.slopes(profile), strict=False):
            yield Diagonal(index, c.estimate.value, f"{name} {_beta(c)}", side, True)
        return
    levels: dict[str, list[Ceiling]] = {}
    for c in roofs.diagonals(profile):
        levels.setdefault(c.level, []).append(c)
    for level, found in levels.items():
        if main and level == main[0].level:
            yield from _main_lines(index, found, roofs.slopes(profile))
        else:
            best = next((c for c in found if c.access == "read"), found[-1])
            yield Diagonal(index, best.estimate.value, _beta(best), 0, False)
    for c in roofs.links(profile):
        yield Diagonal(index, c.estimate.value, f"{_beta(c)}, by {c.kernel}", 0, False, link=True)


def _main_lines(index: int, found: Sequence[Ceiling], ends: Sequence[Ceiling]) -> Iterator[Diagonal]:
    """The slopes of the roof are labelled, the faster above together with the other accesses."""
    if len(ends) > 1:
        yield Diagonal(index, ends[0].estimate.value, _beta(ends[0]), -1, True)
    top = ends[-1]
    others = [c for c in reversed(found) if c not in ends]
    yield from (Diagonal(index, c.estimate.value, "", 1, True) for c in others)
    listed = ", ".join(f"{c.access} {bare(c.estimate.value, c.unit, top.estimate.value)}" for c in others)
    yield Diagonal(index, top.estimate.value, _beta(top) + (f" ({listed})" if listed else ""), 1, True)


def _beta(c: Ceiling) -> str:
    return f"{c.level} {c.access} {si(c.estimate.value, c.unit)}"


def _mixes(profile: Profile) -> list[Curve]:
    found = [c for c in profile.curves if c.kind == "mix" and c.points]
    most = max((c.threads for c in found), default=0)
    return [c for c in found if c.threads == most]


def _drawable(curve: Curve) -> Iterator[tuple[float, Interval]]:
    """Points of the roof; those that the launch or a cache made are no part of it."""
    for point in curve.points:
        if 0 < point.x < math.inf and point.estimate.value > 0 and not point.note:
            yield point.x, point.estimate


def _sweeps(index: int, profile: Profile, x: Range) -> Iterator[Sweep]:
    for curve in _mixes(profile):
        points = tuple(_drawable(curve))
        fit = roofs.chosen(curve)
        line: tuple[tuple[float, float], ...] = ()
        if fit and points:
            low, high = points[0][0] / 1.2, max(points[-1][0] * 1.2, 20 * fit.ridge.value)
            xs = [low * (high / low) ** (k / 160) for k in range(161)]
            line = tuple((v, roofline.fitted_rate(v, fit)) for v in xs if v <= x[1])
        form = fit.form if fit else ""
        yield Sweep(index, curve.precision.label, curve.mode, points, line, form)


def _is_drawn(p: Placement) -> bool:
    return p.flops > 0 and p.bytes > 0 and p.achieved.value > 0


def _dots(index: int, profile: Profile) -> Iterator[Dot]:
    for p in profile.placements:
        if _is_drawn(p):
            x, roof = p.intensity, p.attainable.value
            yield Dot(index, p.precision.label, p.name, x, p.achieved, roof, p.efficiency.value)


def _x_range(xs: Iterable[float], horizontals: Sequence[Horizontal], diagonals: Sequence[Diagonal]) -> Range:
    ridges = [r for h in horizontals for r in h.ridges]
    known = [*xs, *ridges]
    low = min([*known, *(r / 100 for r in ridges)], default=0.01)
    high = max([*known, *(r * 40 for r in ridges)], default=1000.0)
    return low / 2, high * 3


def _y_range(
    ys: Iterable[float], x: Range, horizontals: Sequence[Horizontal], diagonals: Sequence[Diagonal]
) -> Range:
    flat = [h.value for h in horizontals]
    slopes = [d.value for d in diagonals if d.main]
    tops = [*ys, *flat] or [slope * x[1] for slope in slopes] or [1e12]
    feet = [*tops, *(slope * x[0] * 1.2 for slope in slopes)]
    return min(feet) / 1.7, max(tops) * 2.6


def _remarks(profiles: Sequence[Profile]) -> Iterator[str]:
    for index, profile in enumerate(profiles):
        name = f"{letter(index)}: " if len(profiles) > 1 else ""
        for lack in roofs.missing(profile):
            yield f"{name}missing: {lack}"
        left_out = [
            f"{p.name} {si(p.achieved.value, p.unit)} ({percent(p.efficiency.value)} of its roof)"
            for p in profile.placements
            if not _is_drawn(p)
        ]
        if left_out:
            yield f"{name}no place on this axis (no FLOP or no bytes): {'; '.join(left_out)}"
    counts = dict.fromkeys(heading.counted(p, n) for p in profiles if (n := heading.threads(p)))
    threads = f"{' / '.join(counts)}; " if counts else ""
    yield (
        f"{threads}bytes are streams × item size, write-allocate not counted; GB = 1e9 byte, FMA = 2 FLOP; "
        "intervals are 95 %"
    )
