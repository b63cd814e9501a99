"""The plot of sweeps that somebody else measured: a panel for each precision and mode, marked as not ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.importers.refit import Refit
from bench.importers.sweep import Imported, Stated
from bench.profile.roofline import attainable, fitted_rate
from bench.report import paint
from bench.report.labels import shorten
from bench.report.panels import head_line, panel
from bench.report.plot import blank, save, ticked
from bench.report.units import PREFIXES, prefix, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS, COLUMNS, NAMED = 12, 3, 8
"""Most panels of a plot, panels side by side, and sweeps that a panel's legend names."""

WIDTH, SINGLE, HEIGHT, HEAD = 4.6, 8.2, 4.0, 0.5
"""Inches: width of a panel, of one that stands alone, its height, and the room for the title."""

STEPS = 160
"""Points of a drawn curve."""


def draw(path: Path, found: Sequence[tuple[Imported, Sequence[Refit]]], svg: Path, png: Path) -> None:
    """Write the plot as SVG and PNG; the same sweeps give the same SVG bytes."""
    import matplotlib

    with matplotlib.rc_context():
        save(figure(path, found), svg, png)


def figure(path: Path, found: Sequence[tuple[Imported, Sequence[Refit]]]) -> Figure:
    """The finished figure; its panels are those of `panels`, the stated ceilings last."""
    shown = panels(found)
    stated = [c for imported, _ in found for c in imported.stated]
    places = len(shown) + bool(stated)
    columns = min(places, COLUMNS)
    rows = -(-places // columns)
    picture = blank(SINGLE if columns == 1 else WIDTH * columns, HEIGHT * rows + HEAD)
    head_line(picture, _title(path, found, 100 if columns > 1 else 84))
    for place, (title, sweeps) in enumerate(shown.items(), 1):
        _panel(panel(picture, rows, columns, place, HEAD, shorten([title], 52)[0]), sweeps)
    if stated:
        title = "stated by the file, not measured here"
        _stated(panel(picture, rows, columns, places, HEAD, title), stated)
    return picture


def panels(found: Sequence[tuple[Imported, Sequence[Refit]]]) -> dict[str, list[Refit]]:
    """Sweeps that have points by precision and mode, at most twelve groups."""
    groups: dict[str, list[Refit]] = {}
    for imported, refits in found:
        many = f"{imported.format}: " if len(found) > 1 else ""
        for one in refits:
            if one.points:
                name = " · ".join(filter(None, (one.precision or "precision not named", one.mode)))
                groups.setdefault(many + name, []).append(one)
    return dict(list(groups.items())[:PANELS])


def _title(path: Path, found: Sequence[tuple[Imported, Sequence[Refit]]], limit: int) -> str:
    """Whose it is, on two lines."""
    devices = (
        " / ".join(dict.fromkeys(i.device for i, _ in found if i.device)) or "device not named in the file"
    )
    sources = " / ".join(dict.fromkeys(i.source for i, _ in found))
    left_out = sum(len({(r.precision, r.mode) for r in refits if r.points}) for _, refits in found) - PANELS
    more = f" · {left_out} more panels not drawn" if left_out > 0 else ""
    return "\n".join(
        (shorten([f"NOT OURS: {path.name} · {sources}{more}"], limit)[0], shorten([devices], limit)[0])
    )


def _panel(axes: Axes, sweeps: Sequence[Refit]) -> None:
    """Points and fitted curves of one precision and mode."""
    x = [p.x for one in sweeps for p in one.points]
    y = [p.estimate.value for one in sweeps for p in one.points]
    unit = sweeps[0].unit
    _frame(axes, (min(x) / 1.5, max(x) * 1.5), (min(y) / 2, max(y) * 2.5), unit)
    for index, one in enumerate(sweeps):
        ink = paint.COLOURS[index % len(paint.COLOURS)]
        used = [p for p in one.points if not p.note]
        left = [p for p in one.points if p.note]
        name = _named(one) if index < NAMED else None
        axes.plot(
            [p.x for p in used], [p.estimate.value for p in used], "o", ms=3, color=ink, alpha=0.7, label=name
        )
        axes.plot([p.x for p in left], [p.estimate.value for p in left], "x", ms=4, color=ink)
        if one.chosen:
            at = _spaced(min(p.x for p in one.points), max(p.x for p in one.points))
            axes.plot(at, [fitted_rate(v, one.chosen) for v in at], color=ink, lw=1)
    more = len(sweeps) - NAMED
    axes.legend(
        fontsize=6.5, loc="lower right", frameon=False, title=f"and {more} more" if more > 0 else None
    )


def _named(one: Refit) -> str:
    """A sweep's name with its π and β."""
    fit = one.chosen
    values = f"π {si(fit.pi.value, one.unit)}, β {si(fit.beta.value, 'byte/s')}" if fit else "no fit"
    return f"{shorten([one.name], 30)[0]}  {values}".strip()


def _stated(axes: Axes, ceilings: Sequence[Stated]) -> None:
    """The roofs of the file's own words, as far as it has both sides."""
    peaks = [c for c in ceilings if c.quantity == "pi"]
    slopes = [c for c in ceilings if c.quantity == "beta"]
    top = max((c.value for c in peaks), default=1e12)
    ridges = [top / c.value for c in slopes] or [1.0]
    x = (min(ridges) / 30, max(ridges) * 30)
    low = min([c.value * x[0] for c in slopes] or [top / 100])
    _frame(axes, x, (low / 2, top * 4), "FLOP/s")
    at = _spaced(*x)
    for index, c in enumerate(slopes):
        ink = paint.COLOURS[index % len(paint.COLOURS)]
        axes.plot(
            at,
            [attainable(v, top, c.value) for v in at],
            color=ink,
            lw=1,
            label=f"{c.name} {si(c.value, 'byte/s')}",
        )
    for c in peaks:
        axes.axhline(c.value, color=paint.INK, lw=0.8, ls="--", label=f"{c.name} {si(c.value, 'FLOP/s')}")
    axes.legend(fontsize=6.5, loc="lower right", frameon=False)


def _frame(axes: Axes, x: tuple[float, float], y: tuple[float, float], unit: str) -> None:
    exponent, _ = prefix(y[1] / 2, unit)
    axes.set(xscale="log", yscale="log", xlim=x, ylim=y)
    axes.set_xlabel(f"arithmetic intensity in {unit.removesuffix('/s')}/byte")
    axes.set_ylabel(f"performance in {PREFIXES[exponent]}{unit}")
    ticked(axes, 10.0**exponent)


def _spaced(low: float, high: float) -> list[float]:
    """Values evenly spaced in the logarithm."""
    step = (math.log(high) - math.log(low)) / STEPS
    return [low * math.exp(step * i) for i in range(STEPS + 1)]
