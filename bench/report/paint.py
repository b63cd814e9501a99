"""The marks of the roofline plot: lines, curves, points and legend, drawn on axes it is handed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report.scene import Diagonal, Dot, Scene, Sweep, letter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, told apart by people with any colour vision."""

INK, PALE = "#333333", "#777777"

DASHES = ("-", (0, (5, 1.5)), (0, (2, 1)), "-.")
"""Precisions among several profiles, where the colour tells the profile."""

LINK_DASH: Any = (0, (6, 2, 1, 2))
"""Bytes over a link are no bytes of a memory level: its diagonal is another kind of line."""

SWEEP_MARKS = {"read-only": "o", "in-place": "^"}
DOT_MARKS = ("s", "D", "P", "X", "v", "p", "h")

NAMED = 16
"""Up to this many workloads carry their names; more carry numbers with a list below the plot."""


def is_numbered(shown: Scene) -> bool:
    """Whether workloads carry numbers, since they are too many to be named beside their points."""
    return is_several(shown) or len(shown.dots) > NAMED


def is_several(shown: Scene) -> bool:
    """Whether more than one profile is drawn."""
    return shown.profiles > 1


def colour(shown: Scene, profile: int, precision: str) -> str:
    """One colour a precision; among several profiles one colour a profile."""
    if is_several(shown):
        return COLOURS[profile % len(COLOURS)]
    return COLOURS[shown.precisions.index(precision) % len(COLOURS)]


def diagonal_colour(shown: Scene, line: Diagonal) -> str:
    """Dark for main memory, pale for caches; among several profiles the profile's own."""
    if is_several(shown):
        return colour(shown, line.profile, "")
    return INK if line.main else PALE


def paint(axes: Any, shown: Scene, names: Sequence[str]) -> None:
    """Draw everything but the words, and the legend with what each mark means."""
    _diagonals(axes, shown)
    _horizontals(axes, shown)
    for sweep in shown.sweeps:
        _sweep(axes, shown, sweep)
    for dot in shown.dots:
        _dot(axes, shown, dot)
    _legend(axes, shown, names)


def _dash(shown: Scene, precision: str) -> Any:
    return DASHES[shown.precisions.index(precision) % len(DASHES)] if is_several(shown) else "-"


def _diagonals(axes: Any, shown: Scene) -> None:
    """From the left edge up to the highest horizontal, or off the plot where there is none."""
    for line in shown.diagonals:
        tops = [h.value for h in shown.horizontals if h.profile == line.profile and not h.library]
        right = max(tops, default=shown.y[1] * 10) / line.value
        ink = diagonal_colour(shown, line) if line.text else PALE
        ends = (shown.x[0], right)
        if right > shown.x[0]:
            width = 1.3 if line.main and line.text else 0.7 if line.text else 0.4
            style = {"linewidth": 0.6, "linestyle": LINK_DASH} if line.link else {"linewidth": width}
            axes.plot(ends, [line.value * x for x in ends], color=ink, zorder=2, **style)


def _horizontals(axes: Any, shown: Scene) -> None:
    """Thick from the first ridge of main memory on, thin where only caches reach."""
    for line in shown.horizontals:
        ink = colour(shown, line.profile, line.precision)
        slopes = [d.value for d in shown.diagonals if d.profile == line.profile]
        left = line.value / max(slopes) if slopes else shown.x[0]
        if line.library:
            first = min((h.ridges[0] for h in shown.horizontals if h.ridges), default=left)
            axes.plot(
                (first, shown.x[1]), [line.value] * 2, color=ink, linewidth=0.8, dashes=(4, 2), zorder=2
            )
            continue
        corner = line.ridges[0] if line.ridges else left
        dash = _dash(shown, line.precision)
        axes.plot((left, corner), [line.value] * 2, color=ink, linewidth=0.8, linestyle=dash, zorder=2)
        axes.plot((corner, shown.x[1]), [line.value] * 2, color=ink, linewidth=1.8, linestyle=dash, zorder=2)
        for ridge in line.ridges:
            axes.plot(
                (ridge, ridge), (shown.y[0], line.value), color=ink, linewidth=0.6, linestyle=":", zorder=1
            )
            axes.plot(ridge, line.value, "o", color="white", markeredgecolor=ink, markersize=6, zorder=5)


def _sweep(axes: Any, shown: Scene, sweep: Sweep) -> None:
    ink = colour(shown, sweep.profile, sweep.precision)
    xs = [x for x, _ in sweep.points]
    values = [e.value for _, e in sweep.points]
    lows = [e.value - (e.value if e.low is None else e.low) for _, e in sweep.points]
    highs = [(e.value if e.high is None else e.high) - e.value for _, e in sweep.points]
    axes.errorbar(
        xs,
        values,
        yerr=(lows, highs),
        fmt=SWEEP_MARKS.get(sweep.mode, "o"),
        markersize=3.4,
        markerfacecolor="white",
        color=ink,
        markeredgewidth=0.8,
        elinewidth=0.8,
        linestyle="none",
        zorder=4,
    )
    if sweep.curve:
        axes.plot(*zip(*sweep.curve, strict=True), color=ink, linewidth=1.1, dashes=(2.2, 1), zorder=3)


def _dot(axes: Any, shown: Scene, dot: Dot) -> None:
    """The workload, its interval and a stem up to what its own roof allows."""
    ink = colour(shown, dot.profile, dot.precision)
    index = dot.profile if is_several(shown) else shown.precisions.index(dot.precision)
    axes.plot((dot.x, dot.x), (dot.achieved.value, dot.attainable), color=ink, linewidth=0.7, zorder=3)
    axes.plot(dot.x, dot.attainable, "_", color=ink, markersize=5, markeredgewidth=0.9, zorder=3)
    if dot.achieved.low is not None and dot.achieved.high is not None:
        axes.plot((dot.x, dot.x), (dot.achieved.low, dot.achieved.high), color=ink, linewidth=1.4, zorder=5)
    mark = DOT_MARKS[index % len(DOT_MARKS)]
    axes.plot(dot.x, dot.achieved.value, mark, color=ink, markersize=5, markeredgecolor="white", zorder=6)


def _legend(axes: Any, shown: Scene, names: Sequence[str]) -> None:
    """What each mark means, in the corner above the fastest memory, which is always empty."""

    def entry(text: str, **style: Any) -> None:
        axes.plot([], [], label=text, **{"color": INK, "linestyle": "none", **style})

    if is_several(shown):
        for index, name in enumerate(names):
            entry(
                f"{letter(index)}  {name}", color=COLOURS[index % len(COLOURS)], linestyle="-", linewidth=1.8
            )
        for precision in shown.precisions:
            entry(precision, linestyle=_dash(shown, precision), linewidth=1.2)
    elif shown.horizontals or shown.diagonals:
        entry("ceiling of a dedicated kernel", linestyle="-", linewidth=1.6)
    if any(d.link for d in shown.diagonals):
        entry("link: FLOP per byte that crosses it", linewidth=0.6, linestyle=LINK_DASH)
    if any(h.library for h in shown.horizontals):
        entry("matrix product of the library", linewidth=0.8, linestyle=(0, (4, 2)))
    for mode in dict.fromkeys(s.mode for s in shown.sweeps):
        mark = SWEEP_MARKS.get(mode, "o")
        entry(f"intensity sweep, {mode}", marker=mark, markersize=3.4, markerfacecolor="white")
    if forms := sorted({s.form for s in shown.sweeps if s.curve}):
        entry(f"fitted curve ({', '.join(forms)})", linestyle=(0, (2.2, 1)), linewidth=1.1)
    if any(h.ridges for h in shown.horizontals):
        entry("ridge point", marker="o", markersize=6, markerfacecolor="white", markeredgecolor=INK)
    if shown.dots:
        entry("workload, stem up to its own roof", marker="s", markersize=5, markeredgecolor="white")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", fontsize=7.5, framealpha=0.9, edgecolor="#cccccc", borderaxespad=0.6)
