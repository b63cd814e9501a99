"""Plots of the hierarchy: the roofs of all levels and links, below them a panel for every kind of sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.fitting import pipelining
from bench.profile.records import Curve, CurvePoint, Profile
from bench.report import heading, hierarchy_curves, hierarchy_roof, level_strip, paint, panels
from bench.report.hierarchy_curves import BY_GPUS
from bench.report.labels import shorten
from bench.report.panels import fix_names, head_line, panel
from bench.report.plot import blank, save, ticked
from bench.report.units import PREFIXES, SYMBOLS, capacity, prefix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT, HEAD = 5.2, 3.7, 0.4
"""Inches of a panel, and of the title."""

ROOF_HEIGHT = 5.0
"""Inches of the chart of all roofs, above the panels."""

LINES = 12
"""Most curves of a panel; the rest are counted in its legend."""

MARKS = ("o", "s", "^")
"""Marks of curves, which change when the colours begin again."""

UNSURE = 2.0
"""Factor from the value to an end of its interval from which a point is hollow, without a bar: on logarithmic
axes such a bar would be all that is seen."""

WHOLE, ONE_FOR_ALL = " whole", ", one for all"
"""End of the mode of a sweep over a set that all SMs read, and of the title of its panel."""

STEPS = 80
"""Points of a drawn law."""

FEW_DECADES = 60.0
"""Factor between least and greatest value below which a panel needs more numbers than powers of ten."""

SMALL = 6.5
"""Points of the letters inside a panel."""

KINDS = ("cache", "latency", "concurrency", "cores", "link", "collective", "overlap", "launch")
"""Panels in their order."""

TITLES = {
    "cache": "bandwidth by working set",
    "latency": "latency by working set",
    "concurrency": "bandwidth by bytes in flight",
    "cores": "rate by {units} in use",
    "link": "links by size of a transfer",
    "collective": "collectives by size (algorithm bandwidth)",
    "overlap": "time by number of chunks",
    "launch": "smallest useful kernel",
}

PLACES = {"latency": "lower right", "cache": "lower left", "overlap": "upper right", "launch": "upper left"}
"""Corners that no curve of a kind comes to."""

MOST_ROOM = 0.45
"""Share of a panel's height that its legend may take at most."""

LEGEND_LINE = 0.045
"""Share of a panel's height that a line of its legend takes."""

AXES = {
    "cache": "working set of a {unit} in byte",
    "latency": "working set in byte",
    "concurrency": "bytes in flight",
    "cores": "{units}",
    "link": "bytes of a transfer",
    "collective": "bytes of the array",
    "overlap": "chunks",
    "launch": "bytes moved",
}


def shown(profile: Profile) -> dict[str, list[Curve]]:
    """The curves of each panel by kind and unit; nothing without a curve that only the hierarchy has."""
    found: dict[str, list[Curve]] = {}
    for kind in KINDS:
        for curve in profile.curves:
            if curve.kind == kind and curve.points:
                own = next((end for end in (BY_GPUS, WHOLE) if curve.mode.endswith(end)), "")
                found.setdefault(f"{kind} {curve.unit}{own}", []).append(curve)
    levels = any("levels" in c.plateaus for curves in found.values() for c in curves)
    return found if levels or any(not name.startswith("cache") for name in found) else {}


def draw(profile: Profile, svg: Path, png: Path) -> bool:
    """Write the plots as SVG and PNG; False, and no file, where there is nothing to draw."""
    if not shown(profile):
        return False
    import matplotlib

    with matplotlib.rc_context():
        save(figure(profile), svg, png)
    return True


def figure(profile: Profile) -> Figure:
    """The finished figure, two panels a row."""
    kinds = shown(profile)
    columns = min(2, len(kinds))
    rows = -(-len(kinds) // columns)
    above = ROOF_HEIGHT if hierarchy_roof.is_drawn(profile) else 0.0
    height = PANEL_HEIGHT * rows + above + HEAD
    picture = blank(PANEL_WIDTH * columns, height)
    title = " · ".join(filter(None, heading.title(profile)))
    warning = "SIMULATED, not measured · " if profile.simulated else ""
    head_line(picture, shorten([warning + title], 52 * columns)[0])
    if above:
        _roof(picture, profile, rows)
    unit = heading.unit(profile)
    for place, (name, curves) in enumerate(kinds.items(), 1):
        kind, own = curves[0].kind, "GPU" if name.endswith(BY_GPUS) else unit
        words = {"unit": own, "units": f"{own}s"}
        whole = name.endswith(WHOLE)
        title = TITLES[kind].format(**words) + ONE_FOR_ALL * whole
        axes = panel(picture, rows, columns, place, HEAD + above, title)
        axes.set_xlabel("working set in byte" if whole else AXES[kind].format(**words))
        _panel(axes, kind, curves)
    return picture


def _roof(picture: Figure, profile: Profile, rows: int) -> None:
    """The chart of all roofs across the figure, over so many rows of panels."""
    width, height = picture.get_size_inches()
    wide, high = width - panels.LEFT - panels.RIGHT, ROOF_HEIGHT - panels.TOP - panels.FOOT
    foot = PANEL_HEIGHT * rows + panels.FOOT
    box = (panels.LEFT / width, foot / height, wide / width, high / height)
    axes = picture.add_axes(box, label="roofs")
    axes.set_title("roofs of all levels and links", fontsize=8.5, loc="left", y=1.0)
    fix_names(axes, panels.NAME_OF_X / high, panels.NAME_OF_Y / wide)
    hierarchy_roof.draw(axes, profile, high / wide)
    ticked(axes, 10.0 ** prefix(axes.get_ylim()[1] / hierarchy_roof.ABOVE, "FLOP/s")[0])


def _panel(axes: Axes, kind: str, curves: Sequence[Curve]) -> None:
    curves = hierarchy_curves.chosen(kind, curves)
    unit, same = curves[0].unit, curves[:LINES]
    x = [p.x for c in same for p in c.points]
    y = [p.estimate.value for c in same for p in c.points]
    low, high = _limits(kind, min(y), max(y), len(same))
    axes.set(xscale="log", yscale="log", xlim=(min(x) / 1.3, max(x) * 1.3), ylim=(low, high))
    exponent = prefix(max(y), unit)[0]
    ticked(axes, 10.0**exponent)
    axes.set_ylabel(f"{PREFIXES[exponent]}{SYMBOLS.get(unit, unit)}")
    if kind in ("cache", "latency", "link", "collective", "launch", "concurrency"):
        _byte_ticks(axes, min(x), max(x))
    else:
        _whole_ticks(axes, x)
    if high / low < FEW_DECADES:
        _finer_ticks(axes, 10.0**exponent)
    for index, curve in enumerate(same):
        _curve(axes, curve, paint.COLOURS[index % len(paint.COLOURS)], MARKS[index // len(paint.COLOURS)])
    if kind in ("cache", "latency"):
        level_strip.write(axes, next((c for c in same if c.plateaus.get("levels")), same[0]))
    left = len(curves) - len(same)
    corner: Any = PLACES.get(kind, "lower right")
    axes.legend(
        fontsize=SMALL,
        loc=corner,
        frameon=False,
        labelspacing=0.25,
        borderaxespad=0.3,
        title=f"and {left} more in profile.json" if left else "",
        title_fontsize=SMALL,
    )


def _limits(kind: str, least: float, most: float, lines: int) -> tuple[float, float]:
    """Ends of the y axis with room for legend and levels where no curve is."""
    low, high = math.log(least / 1.25), math.log(most * 1.35)
    room = min(MOST_ROOM, LEGEND_LINE * (lines + 1))
    if kind in ("cache", "latency"):
        high += level_strip.SHARE / (1 - level_strip.SHARE) * (high - low)
    elif kind in ("link", "collective", "cores"):
        low -= room / (1 - room) * (high - low)
    elif kind == "overlap":
        high += room / (1 - room) * (high - low)
    return math.exp(low), math.exp(high)


def _byte_ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks at powers of 4, 16 or 64 in binary units: sizes come in those."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    factor = 4.0 if high / low < 5e3 else 16.0 if high / low < 2e7 else 64.0
    at, ticks = 1.0, []
    while at < high * 1.3:
        if at > low / 1.3:
            ticks.append(at)
        at *= factor
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: capacity(value)))


def _whole_ticks(axes: Axes, x: Sequence[float]) -> None:
    """Ticks at the counts that were measured, eight at most."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    counts = sorted(set(x))
    axes.xaxis.set_major_locator(FixedLocator(counts[:: -(-len(counts) // 8)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finer_ticks(axes: Axes, unit: float) -> None:
    """Numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:g}"))


def _curve(axes: Axes, curve: Curve, ink: str, mark: str) -> None:
    """Measured points with their intervals, hollow where these are wide, and the law fitted to them."""
    law = _law(curve)
    xs, ys = [p.x for p in curve.points], [p.estimate.value for p in curve.points]
    name = shorten([hierarchy_curves.name(curve)], 58)[0]
    axes.plot(xs, ys, color=ink, lw=0.8, linestyle="none" if law else "-", zorder=2)
    for sure in (True, False):
        own = [p for p in curve.points if _is_sure(p) == sure]
        bars = [_bar(p) for p in own] if sure else []
        style: dict[str, Any] = {"fmt": mark, "ms": 2.6, "color": ink, "elinewidth": 0.6, "lw": 0}
        style |= {"mfc": ink if sure else "white", "mew": 0.7, "zorder": 3}
        if own:
            ends = list(zip(*bars, strict=True)) if bars else None
            values = [p.estimate.value for p in own]
            axes.errorbar([p.x for p in own], values, yerr=ends, label=name, **style)
            name = ""
    if law:
        at = [xs[0] * (xs[-1] / xs[0]) ** (k / STEPS) for k in range(STEPS + 1)]
        axes.plot(at, [law(x) for x in at], color=ink, lw=0.9)
    if curve.kind == "overlap" and "omega" in curve.plateaus:
        for key, dash in (("serial_seconds", ":"), ("max_seconds", (0, (4, 2)))):
            axes.axhline(curve.plateaus[key], color=ink, lw=0.7, linestyle=dash)


def _is_sure(point: CurvePoint) -> bool:
    """Whether an interval, where there is one, lies within a factor of its value."""
    found = point.estimate
    if found.low is None or found.high is None:
        return True
    return found.low > found.value / UNSURE and found.high < found.value * UNSURE


def _bar(point: CurvePoint) -> tuple[float, float]:
    """Lengths of the bar below and above a point; 0 without an interval."""
    found = point.estimate
    below = found.value - (found.low if found.low is not None else found.value)
    return below, (found.high if found.high is not None else found.value) - found.value


def _law(curve: Curve) -> Callable[[float], float] | None:
    """The fitted law of a curve in its own unit, None where there is none."""
    found = curve.plateaus
    if curve.kind == "overlap" and "chunk_s" in found:
        total, longest, alpha = found["serial_seconds"], found["max_seconds"], found["chunk_s"]
        slowed = found.get("slowed", 1.0)
        return lambda k: pipelining.law(k, total, longest, alpha, slowed) if k > 1 else float(total)
    if "lines" not in found:
        return None
    pick = max if found["form"].startswith("maximum") else min

    def seconds(volume: float) -> float:
        return float(pick(alpha + volume / beta for alpha, beta in found["lines"]))

    twice = 2.0 if found["access"] in ("both", "exchange") and curve.kind == "link" else 1.0
    return seconds if curve.kind == "launch" else lambda x: twice * x / seconds(twice * x)
