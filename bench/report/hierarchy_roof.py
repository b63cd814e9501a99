"""The hierarchical roofline: one chart with the slope of every memory level and link, and the work below it.

A workload stands at its intensity at each level for which that is known; its points share a thin line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.profile.records import Ceiling, Placement, Profile
from bench.report import paint, roofs
from bench.report.labels import shorten
from bench.report.units import PREFIXES, prefix, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BELOW, ABOVE = 4.0, 3.0
"""Factors that the axes reach below the slowest slope's start and above the highest roof."""

LEFT_OF, RIGHT_OF = 4.0, 4.0
"""Factors that the axes reach beyond the least intensity and the last ridge."""

LEAST_X, MOST_X = 1e-3, 1e5
"""Intensities beyond which nothing is drawn."""

APART = 1.2
"""Factor by which a second access of a level must be faster to be a slope of its own."""

SMALL = 6.5
"""Points of the letters inside the chart."""

EDGE = 0.012
"""Share of the axes between their edge and the beginning of a slope's words."""

LINE, COLUMN = 0.045, 0.19
"""Shares of the axes that the words of a roof take."""

NAME_TURN = -35
"""Degrees of a workload's name: across the slopes, so that names of neighbours lie side by side."""

MARKS = ("o", "s", "D", "^", "v", "P", "X")
"""Marks of the levels at which workloads stand."""


def slopes(profile: Profile) -> list[Ceiling]:
    """Of each memory level the read slope, of DRAM its fastest beside it where clearly faster; the links."""
    found: list[Ceiling] = []
    levels: dict[str, list[Ceiling]] = {}
    for ceiling in roofs.diagonals(profile):
        levels.setdefault(ceiling.level, []).append(ceiling)
    for own in levels.values():
        fastest = max(own, key=lambda c: c.estimate.value)
        read = next((c for c in own if c.access == "read"), fastest)
        clearly = fastest.estimate.value > APART * read.estimate.value
        found += [fastest, read] if clearly and read.level == "DRAM" else [read]
    return [*sorted(found, key=lambda c: -c.estimate.value), *roofs.links(profile)]


def placed(profile: Profile) -> list[Placement]:
    """Workloads with a place on this chart: those that compute and move."""
    return [p for p in profile.placements if p.flops > 0 and math.isfinite(p.intensity) and p.intensity > 0]


def is_drawn(profile: Profile) -> bool:
    """Whether there are slopes and a roof to draw."""
    return bool(roofs.peaks(profile)) and len(slopes(profile)) > 1


def draw(axes: Axes, profile: Profile, aspect: float) -> None:
    """Fill the axes; aspect: their height over their width."""
    lines, peaks, work = slopes(profile), roofs.peaks(profile), placed(profile)
    top = max(c.estimate.value for c in peaks)
    rates = [c.estimate.value for c in lines]
    low = min([top / max(rates), *(p.intensity for p in work)]) / LEFT_OF
    x = max(LEAST_X, low), min(MOST_X, RIGHT_OF * max(top / min(rates), *(p.intensity for p in work), 1.0))
    floor = min([min(rates) * x[0] * BELOW**2, *(p.achieved.value for p in work)]) / BELOW
    y = floor, top * ABOVE
    axes.set(xscale="log", yscale="log", xlim=x, ylim=y)
    exponent = prefix(top, "FLOP/s")[0]
    axes.set_xlabel("arithmetic intensity in FLOP/byte of the level or link")
    axes.set_ylabel(f"{PREFIXES[exponent]}FLOP/s")
    turn = _turn(x, y, aspect)
    for line in lines:
        _slope(axes, line, top, x, y, turn)
    _peaks(axes, peaks, max(rates), x, y)
    if work:
        _workloads(axes, work, [str(c["level"]) for c in profile.facts.get("device", {}).get("caches", ())])


def _turn(x: tuple[float, float], y: tuple[float, float], aspect: float) -> float:
    """Degrees by which a line of slope 1 rises on these axes."""
    across, along = math.log(x[1] / x[0]), math.log(y[1] / y[0])
    return math.degrees(math.atan2(aspect / along, 1 / across))


def _slope(
    axes: Axes, line: Ceiling, top: float, x: tuple[float, float], y: tuple[float, float], turn: float
) -> None:
    """One slope up to the highest roof, its words where it enters the axes."""
    beta, link = line.estimate.value, roofs.is_link(line)
    style: dict[str, Any] = {"color": paint.INK if line.level == "DRAM" else paint.PALE}
    style |= {"linestyle": paint.LINK_DASH} if link else {}
    ridge = top / beta
    axes.plot([x[0], ridge], [beta * x[0], top], lw=1.3 if line.level == "DRAM" else 0.9, zorder=2, **style)
    start = max(x[0], y[0] / beta) * (x[1] / x[0]) ** EDGE
    words = f"{line.level} {line.access} {si(beta, 'byte/s')}"
    text: dict[str, Any] = {"rotation": turn, "rotation_mode": "anchor", "fontsize": SMALL, "zorder": 6}
    under = line.level == "DRAM" and line.access == "read"  # two slopes of one level are close
    text |= {"color": style["color"], "va": "top" if under else "bottom", "ha": "left"}
    axes.text(
        start,
        beta * start * (0.96 if under else 1.04),
        f"{words}, by {line.kernel}" if link else words,
        **text,
    )


def _peaks(
    axes: Axes, peaks: Sequence[Ceiling], fastest: float, x: tuple[float, float], y: tuple[float, float]
) -> None:
    """The roofs from where the fastest slope meets each; words that would touch step to the left."""
    high, step = math.log(y[1] / y[0]) * LINE, (x[1] / x[0]) ** COLUMN
    last, at = 0.0, x[1] / (x[1] / x[0]) ** EDGE
    for index, peak in enumerate(sorted(peaks, key=lambda c: c.estimate.value)):
        value, ink = peak.estimate.value, paint.COLOURS[index % len(paint.COLOURS)]
        axes.plot([value / fastest, x[1]], [value, value], color=ink, lw=1.3, zorder=3)
        at = at / step if last and math.log(value / last) < high else x[1] / (x[1] / x[0]) ** EDGE
        style: dict[str, Any] = {"fontsize": SMALL, "color": ink, "ha": "right", "va": "bottom", "zorder": 7}
        style["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        axes.text(
            at, value * 1.05, f"{peak.precision.label}  π {si(value, 'FLOP/s')}", weight="bold", **style
        )
        last = value


def _workloads(axes: Axes, work: Sequence[Placement], caches: Sequence[str]) -> None:
    """A mark for each level, points of one workload joined, its name at the lowest."""
    levels = [*caches, *dict.fromkeys(p.level for p in work if p.level not in caches)]
    for name, places in _by_name(work):
        places = sorted(places, key=lambda p: levels.index(p.level))
        xs, ys = [p.intensity for p in places], [p.achieved.value for p in places]
        axes.plot(xs, ys, color=paint.COLOURS[0], lw=0.5, alpha=0.6, zorder=4)
        lowest = min(places, key=lambda p: p.achieved.value)
        style: dict[str, Any] = {"fontsize": SMALL - 0.5, "color": paint.COLOURS[0], "zorder": 6}
        style |= {"rotation": NAME_TURN, "rotation_mode": "anchor", "va": "center", "ha": "left"}
        at = (lowest.intensity, lowest.achieved.value)
        axes.annotate(shorten([name], 18)[0], at, (3, -3), textcoords="offset points", **style)
    for level in dict.fromkeys(p.level for p in work):
        own = [p for p in work if p.level == level]
        mark = MARKS[levels.index(level) % len(MARKS)]
        where = [p.intensity for p in own], [p.achieved.value for p in own]
        face = paint.COLOURS[0] if level == "DRAM" else "white"
        style = {"marker": mark, "s": 15, "facecolor": face, "edgecolor": paint.COLOURS[0], "linewidth": 0.8}
        axes.scatter(*where, zorder=5, label=f"workload at its {level} intensity", **style)
    bare = unplaced(caches, [p.level for p in work])
    axes.legend(fontsize=SMALL, loc="lower right", frameon=False, title=bare, title_fontsize=SMALL)


def unplaced(caches: Sequence[str], placed: Sequence[str]) -> str:
    """In words, at which caches no workload stands, since nobody counts what crosses them; "" without one."""
    left = [name for name in caches if name not in placed]
    return f"traffic of workloads at {', '.join(left)} is not known" if left else ""


def _by_name(work: Sequence[Placement]) -> Iterator[tuple[str, list[Placement]]]:
    """Points of one workload, precision and number of threads."""
    found: dict[tuple[str, str, int], list[Placement]] = {}
    for p in work:
        found.setdefault((p.name, p.precision.label, p.threads), []).append(p)
    yield from ((name, places) for (name, _, _), places in found.items())
