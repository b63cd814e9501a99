"""The words of the roofline plot: legend, labels along lines and beside points, clear of each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.report import paint
from bench.report.labels import Box, overlap, place, shorten
from bench.report.scene import Diagonal, Horizontal, Scene
from bench.report.units import number, percent

SIZE = 7.5
"""Points of the letters along lines and beside workloads."""

MAIN_STARTS, CACHE_STARTS = (0.03, 0.22, 0.41, 0.60), (0.10, 0.28, 0.46, 0.64)
"""Where along its line a label may start, as shares of the part that can be seen."""

CORNERS = ("upper left", "lower right", "lower center", "upper center")
"""Where the legend may stand; the first is empty on every complete roofline."""


def write(axes: Any, shown: Scene) -> None:
    """Write every label of the scene; the axes must have their final place and limits."""
    lines = [*_flat_lines(axes, shown), *_slanted_lines(axes, shown)]
    taken = [*_legend(axes, [*lines, *_marks(axes, shown)])]
    for flat in shown.horizontals:
        if flat.text:
            taken.append(_pixels(_over(axes, shown, flat, [*taken, *_flat_lines(axes, shown)])))
    taken += [_pixels(text) for text in _ridges(axes, shown)]
    caches = [line for line in shown.diagonals if not line.main]
    for line in shown.diagonals:
        if line.text:
            first = 0 if line.main else caches.index(line) % len(CACHE_STARTS)
            starts = MAIN_STARTS if line.main else CACHE_STARTS[first:] + CACHE_STARTS[:first]
            taken += _slices(_along(axes, shown, line, starts, taken))
    main = _slanted_lines(axes, shown, main_only=True)
    _dots(axes, shown, [*taken, *_marks(axes, shown), *_flat_lines(axes, shown), *main])
    if not (shown.horizontals or shown.diagonals or shown.sweeps or shown.dots):
        axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center", color=paint.PALE)


def _pixels(artist: Any, pad: float = 1.0) -> Box:
    box = artist.get_window_extent()
    return box.x0 - pad, box.y0 - pad, box.x1 + pad, box.y1 + pad


def _points(axes: Any) -> float:
    """Pixels of one typographic point."""
    return float(axes.figure.dpi) / 72


def _hidden(boxes: Iterable[Box], walls: Sequence[Box]) -> float:
    return sum(overlap(box, wall) for box in boxes for wall in walls)


def _legend(axes: Any, walls: Sequence[Box]) -> Iterator[Box]:
    """Moves the legend to the corner where it hides least."""
    legend = axes.get_legend()
    if legend is None:
        return
    cost = {}
    for corner in CORNERS:
        legend.set_loc(corner)
        cost[corner] = _hidden([_pixels(legend, 3)], walls)
    legend.set_loc(min(CORNERS, key=lambda corner: cost[corner]))
    yield _pixels(legend)


def _over(axes: Any, shown: Scene, line: Horizontal, walls: Sequence[Box]) -> Any:
    """The label of a horizontal: above its right end, or further left or below where that is taken."""
    text = axes.annotate(
        line.text,
        (shown.x[1], line.value),
        xytext=(-4, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=SIZE + 0.5,
        color=paint.colour(shown, line.profile, line.precision),
        weight="bold",
        zorder=7,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.75},
    )
    width = axes.get_window_extent().width / _points(axes)
    spots = [(-4 - shift * width, side) for side in (3, -3) for shift in (0.0, 0.26)]

    def cost(spot: tuple[float, float]) -> float:
        text.set(position=spot, va="bottom" if spot[1] > 0 else "top")
        return _hidden([_pixels(text)], walls)

    best = min(spots, key=cost)
    text.set(position=best, va="bottom" if best[1] > 0 else "top")
    return text


def _ridges(axes: Any, shown: Scene) -> Iterator[Any]:
    """The number at the foot of the line that drops from each ridge, where it has room."""
    taken: list[float] = []
    for line in shown.horizontals:
        for ridge in () if paint.is_several(shown) else line.ridges:
            x = axes.transData.transform((ridge, shown.y[0]))[0]
            if any(abs(x - other) < 9 * _points(axes) for other in taken):
                continue
            taken.append(x)
            yield axes.annotate(
                f"ridge {number(ridge)}",
                (ridge, shown.y[0]),
                xytext=(-1.5, 4),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="bottom",
                fontsize=SIZE - 1,
                color=paint.colour(shown, line.profile, line.precision),
                zorder=7,
            )


def _along(axes: Any, shown: Scene, line: Diagonal, starts: Sequence[float], walls: Sequence[Box]) -> Any:
    """A label that follows its line, where along it the fewest other words stand."""
    left, right = _visible(shown, line)
    (x0, y0), (x1, y1) = axes.transData.transform(
        [(left, line.value * left), (2 * left, line.value * 2 * left)]
    )
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    away = 4.0 * line.side
    text = axes.annotate(
        line.text,
        (left, line.value * left),
        xytext=(-away * math.sin(math.radians(angle)), away * math.cos(math.radians(angle))),
        textcoords="offset points",
        rotation=angle,
        rotation_mode="anchor",
        ha="left",
        va={1: "bottom", -1: "top", 0: "center_baseline"}[line.side],
        fontsize=SIZE,
        color=paint.diagonal_colour(shown, line),
        zorder=7,
        bbox=None if line.side else {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )

    def cost(share: float) -> float:
        x = left * (right / left) ** share
        text.xy = (x, line.value * x)
        beyond = max(0.0, float(_pixels(text)[2] - axes.get_window_extent().x1))
        return _hidden(_slices(text), walls) + 10 * beyond

    x = left * (right / left) ** min(starts, key=cost)
    text.xy = (x, line.value * x)
    return text


def _visible(shown: Scene, line: Diagonal) -> tuple[float, float]:
    """The intensities between which a diagonal is inside the plot and below its roof."""
    tops = [h.value for h in shown.horizontals if h.profile == line.profile]
    left = max(shown.x[0], shown.y[0] / line.value)
    right = min(shown.x[1], max(tops, default=shown.y[1]) / line.value)
    return left, max(left, right)


def _slices(text: Any, count: int = 14) -> list[Box]:
    """A rotated label as a chain of small boxes: its bounding box would block half the plot."""
    x0, y0, x1, y1 = _pixels(text)
    w, h = (x1 - x0) / count, (y1 - y0) / count
    return [(x0 + k * w, y0 + k * h, x0 + (k + 1) * w, y0 + (k + 1) * h) for k in range(count)]


def _marks(axes: Any, shown: Scene) -> list[Box]:
    """Sweep points, ridge marks and the stems of workloads, as boxes in pixels."""
    reach = 3.2 * _points(axes)
    spots = [(x, e.value) for sweep in shown.sweeps for x, e in sweep.points]
    spots += [(ridge, h.value) for h in shown.horizontals for ridge in h.ridges]
    boxes = []
    for x, y in spots:
        px, py = axes.transData.transform((x, y))
        boxes.append((px - reach, py - reach, px + reach, py + reach))
    for dot in shown.dots:
        ends = [(dot.x, dot.achieved.value), (dot.x, dot.attainable)]
        (px, one), (_, other) = axes.transData.transform(ends)
        boxes.append((px - 1, min(one, other), px + 1, max(one, other)))
    return boxes


def _flat_lines(axes: Any, shown: Scene) -> list[Box]:
    boxes = []
    for line in shown.horizontals:
        slopes = [d.value for d in shown.diagonals if d.profile == line.profile]
        left = line.value / max(slopes) if slopes else shown.x[0]
        (x0, y), (x1, _) = axes.transData.transform([(left, line.value), (shown.x[1], line.value)])
        boxes.append((x0, y - 1, x1, y + 1))
    return boxes


def _slanted_lines(axes: Any, shown: Scene, main_only: bool = False, count: int = 60) -> list[Box]:
    """Diagonals as chains of boxes so small that a label may cross one where it must."""
    boxes = []
    for line in shown.diagonals:
        left, right = _visible(shown, line)
        if not line.text or (main_only and not line.main):
            continue
        low, high = axes.transData.transform([(left, line.value * left), (right, line.value * right)])
        for k in range(count):
            x, y = low + (high - low) * (k + 0.5) / count
            boxes.append((x - 1, y - 1, x + 1, y + 1))
    return boxes


def names(shown: Scene) -> list[str]:
    """What stands beside each workload: its name and share of the roof, or its number."""
    if paint.is_numbered(shown):
        numbers = shown.numbers
        return [str(numbers[dot.name, dot.precision]) for dot in shown.dots]
    short = shorten([dot.name for dot in shown.dots], 22)
    return [f"{name} {percent(dot.efficiency)}" for name, dot in zip(short, shown.dots, strict=True)]


def _dots(axes: Any, shown: Scene, obstacles: Sequence[Box]) -> None:
    scale = _points(axes)
    inks = [paint.colour(shown, dot.profile, dot.precision) for dot in shown.dots]
    style = {"fontsize": SIZE, "ha": "center", "va": "center", "zorder": 8}
    texts = [
        axes.text(0, 0, name, transform=None, color=ink, **style)
        for name, ink in zip(names(shown), inks, strict=True)
    ]
    extents = [_pixels(text, 0.5 * scale) for text in texts]
    sizes = [(x1 - x0, y1 - y0) for x0, y0, x1, y1 in extents]
    points = [tuple(axes.transData.transform((d.x, d.achieved.value))) for d in shown.dots]
    boxes = place(points, sizes, obstacles, _pixels(axes.patch, -2 * scale), 5.0 * scale)
    for text, box, point, ink in zip(texts, boxes, points, inks, strict=True):
        centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        text.set_transform(axes.transData)
        text.set_position(axes.transData.inverted().transform(centre))
        _leader(axes, box, point, 9.0 * scale, ink)


def _leader(axes: Any, box: Box, point: tuple[float, float], least: float, ink: str) -> None:
    """A thin line from a point to its label where the two are not neighbours."""
    x, y = min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])
    if math.dist((x, y), point) > least:
        ends = axes.transData.inverted().transform([(x, y), point])
        axes.plot(ends[:, 0], ends[:, 1], color=ink, linewidth=0.4, alpha=0.7, zorder=5)
