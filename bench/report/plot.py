"""The roofline plot of one profile, or of several over each other, as SVG and PNG."""

from __future__ import annotations

import logging
import math
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.profile.records import Profile
from bench.report import heading, lettering, paint
from bench.report.labels import shorten
from bench.report.panels import NAME_OF_X, NAME_OF_Y, fix_names
from bench.report.scene import Scene, letter, scene
from bench.report.units import PREFIXES, percent, prefix
from bench.whole_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PLOT_HEIGHT = 8.6, 5.5
LEFT, RIGHT, TOP, AXIS = 0.72, 0.18, 0.62, 0.55
"""Inches: the figure's width, the plot's height and the margins around the plot."""

LINE, COLUMNS = 0.145, 3
"""Height in inches of a line of small print below the plot; columns of the list of workloads."""

DPI = 170

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.linewidth": 0.7,
    "svg.hashsalt": "roofline",
    "svg.fonttype": "path",
    "text.parse_math": False,
}
"""On top of the library's own defaults, so that no personal settings change the picture."""


SAVED: dict[str, dict[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "png": {"pil_kwargs": {"compress_level": 3}},
}
"""How each kind of file is written: no date; 3 packs flat areas as well as the usual 6, in half the time."""

# A home that cannot be written costs the library time and nothing else; docs/recipes.md says what helps.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw(profiles: Sequence[Profile], svg: Path, png: Path) -> None:
    """Write the plot of the profiles as SVG and PNG; the same profiles give the same SVG bytes.

    Each file is written beside its place and moved there, so that no half picture is ever seen.
    """
    import matplotlib

    with matplotlib.rc_context():
        save(figure(profiles), svg, png)


def save(picture: Figure, svg: Path, png: Path) -> None:
    """Write a figure as SVG and PNG, each beside its place and then moved there, without a date."""
    for path, form in ((svg, "svg"), (png, "png")):
        with replacing(path) as beside:
            picture.savefig(beside, format=form, dpi=DPI, **SAVED[form])


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches in our style, whatever a user's own settings say."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcdefaults()
    settings: Any = matplotlib.rcParams
    settings.update(STYLE)
    picture = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(picture)
    return picture


def figure(profiles: Sequence[Profile]) -> Figure:
    """The finished figure, for saving or for a look at what it says."""
    shown = scene(profiles)
    numbered = _numbered(shown) if paint.is_numbered(shown) else []
    remarks = [part for text in shown.remarks for part in textwrap.wrap(text, 132, subsequent_indent="   ")]
    rows = -(-len(numbered) // COLUMNS)
    gap = 0.5 if rows else 0.0
    height = TOP + PLOT_HEIGHT + AXIS + LINE * (rows + gap + len(remarks) + 0.5)
    picture = blank(WIDTH, height)
    foot = height - TOP - PLOT_HEIGHT
    axes = picture.add_axes(
        (LEFT / WIDTH, foot / height, 1 - (LEFT + RIGHT) / WIDTH, PLOT_HEIGHT / height), label="roofline"
    )
    _frame(axes, shown)
    _title(picture, profiles)
    for column in range(COLUMNS if rows else 0):
        part = numbered[column * rows : (column + 1) * rows]
        _small(picture, part, LEFT + column * (WIDTH - LEFT - RIGHT) / COLUMNS, foot - AXIS)
    _small(picture, remarks, LEFT, foot - AXIS - LINE * (rows + gap))
    if any(p.simulated for p in profiles):
        _watermark(axes)
    paint.paint(axes, shown, _names(profiles))
    lettering.write(axes, shown)
    return picture


def _frame(axes: Axes, shown: Scene) -> None:
    """The ranges and names of both axes."""
    axes.set(xscale="log", yscale="log", xlim=shown.x, ylim=shown.y)
    exponent, _ = prefix(shown.y[1] / 2, "FLOP/s")
    axes.set_xlabel("arithmetic intensity in FLOP/byte")
    axes.set_ylabel(f"performance in {PREFIXES[exponent]}FLOP/s")
    fix_names(axes, NAME_OF_X / PLOT_HEIGHT, NAME_OF_Y / (WIDTH - LEFT - RIGHT))
    ticked(axes, 10.0**exponent)


def ticked(axes: Axes, unit: float) -> None:
    """Ticks of log axes that read 0.01, 1, 100, and powers of ten beyond; `unit` is that of y."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, scale in ((axes.xaxis, 1.0), (axes.yaxis, unit)):
        axis.set_major_locator(LogLocator(base=10, numticks=20))
        axis.set_minor_locator(LogLocator(base=10, subs=(2, 5), numticks=20))
        axis.set_major_formatter(FuncFormatter(partial(_tick, scale)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#e6e6e6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", width=0.6)


def _tick(scale: float, value: float, _: object = None) -> str:
    exponent = round(math.log10(value / scale))
    return f"{10.0**exponent:g}" if -4 < exponent < 5 else f"10{str(exponent).translate(SUPERSCRIPT)}"


def _title(picture: Figure, profiles: Sequence[Profile]) -> None:
    first, second = heading.title(profiles[0])
    if len(profiles) > 1:
        first = " / ".join(dict.fromkeys(heading.device_name(p) for p in profiles))
        second = f"rooflines of {len(profiles)} profiles"
    if any(p.simulated for p in profiles):
        second = " · ".join(filter(None, ("SIMULATED, not measured", second)))
    width, height = picture.get_size_inches()
    x = LEFT / width
    picture.text(x, 1 - 0.1 / height, shorten([first], 84)[0], fontsize=11, weight="bold", va="top")
    picture.text(x, 1 - 0.34 / height, second, fontsize=8.5, color=paint.INK, va="top")


def _small(picture: Figure, lines: Sequence[str], left: float, top: float) -> None:
    """Lines of small print whose first has its top `top` inches above the figure's foot."""
    width, height = picture.get_size_inches()
    for index, line in enumerate(lines):
        y = (top - LINE * index) / height
        picture.text(left / width, y, line, fontsize=6.8, color=paint.INK, va="top")


def _names(profiles: Sequence[Profile]) -> list[str]:
    """What tells the profiles apart in the legend: the device, or device, date and commit."""
    names = [heading.device_name(p) for p in profiles]
    if len(set(names)) < len(names):
        names = [
            " · ".join(filter(None, (n, heading.title(p)[1]))) for n, p in zip(names, profiles, strict=True)
        ]
    return shorten(names, 60)


def _numbered(shown: Scene) -> list[str]:
    """Number, name and share of the roof of every workload, all profiles on one line."""
    names = dict(zip(shown.numbers, shorten([name for name, _ in shown.numbers], 34), strict=True))
    shares: dict[tuple[str, str], list[str]] = {key: [] for key in shown.numbers}
    for dot in shown.dots:
        who = f"{letter(dot.profile)} " if paint.is_several(shown) else ""
        shares[dot.name, dot.precision].append(f"{who}{percent(dot.efficiency)}")
    return [f"{shown.numbers[key]}  {names[key]}  {', '.join(shares[key])}" for key in shares]


def _watermark(axes: Axes) -> None:
    style = {"fontsize": 64, "weight": "bold", "color": "#b00020", "alpha": 0.11, "zorder": 0.6}
    place = {"transform": axes.transAxes, "rotation": 28, "ha": "center", "va": "center"}
    axes.text(0.5, 0.42, "SIMULATED", **style, **place)  # type: ignore[arg-type]
