"""Plots of the hierarchy: staircases over working sets, links over sizes, concurrency, cores, overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.profile.records import Curve, Profile
from bench.report import heading, paint
from bench.report.labels import shorten
from bench.report.plot import DPI, STYLE, save, ticked
from bench.report.units import PREFIXES, SYMBOLS, capacity, prefix, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT, HEAD = 5.2, 3.7, 0.7
"""Inches of a panel, and of the title."""

LINES = 7
"""Most curves of a panel; the rest are counted in its legend."""

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
    "cores": "rate by cores or SMs in use",
    "link": "links by size of a transfer",
    "collective": "collectives by size (algorithm bandwidth)",
    "overlap": "time by number of chunks",
    "launch": "smallest useful kernel",
}

AXES = {
    "cache": "working set of a thread or SM in byte",
    "latency": "working set in byte",
    "concurrency": "bytes in flight",
    "cores": "threads or SMs",
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
                found.setdefault(f"{kind} {curve.unit}", []).append(curve)
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
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcdefaults()
    settings: Any = matplotlib.rcParams
    settings.update(STYLE)
    panels = shown(profile)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    size = (PANEL_WIDTH * columns, PANEL_HEIGHT * rows + HEAD)
    picture = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(picture)
    title = " · ".join(filter(None, heading.title(profile)))
    warning = "SIMULATED, not measured · " if profile.simulated else ""
    picture.suptitle(shorten([warning + title], 52 * columns)[0], x=0.01, ha="left", fontsize=10)
    for place, curves in enumerate(panels.values(), 1):
        _panel(picture.add_subplot(rows, columns, place), curves[0].kind, curves)
    return picture


def _panel(axes: Axes, kind: str, curves: Sequence[Curve]) -> None:
    curves = _chosen(kind, curves)
    unit, same = curves[0].unit, curves[:LINES]
    x = [p.x for c in same for p in c.points]
    y = [p.estimate.value for c in same for p in c.points]
    axes.set(xscale="log", yscale="log", xlim=(min(x) / 1.3, max(x) * 1.3), ylim=(min(y) / 1.8, max(y) * 2.2))
    exponent = prefix(max(y), unit)[0]
    ticked(axes, 10.0**exponent)
    axes.set_title(TITLES[kind], fontsize=8.5, loc="left")
    axes.set_xlabel(AXES[kind])
    axes.set_ylabel(f"{PREFIXES[exponent]}{SYMBOLS.get(unit, unit)}")
    if kind in ("cache", "latency", "link", "collective", "launch", "concurrency"):
        _byte_ticks(axes, min(x), max(x))
    else:
        _whole_ticks(axes, x)
    if max(y) / min(y) < FEW_DECADES:
        _finer_ticks(axes, 10.0**exponent)
    for index, curve in enumerate(same):
        _curve(axes, curve, paint.COLOURS[index % len(paint.COLOURS)])
    if kind in ("cache", "latency"):
        _levels(axes, same[0])
    left = len(curves) - len(same)
    where: Any = {"latency": "upper left", "cache": "upper right", "overlap": "upper right"}
    axes.legend(
        fontsize=SMALL,
        loc=where.get(kind, "lower right"),
        frameon=False,
        title=f"and {left} more" if left else "",
        title_fontsize=SMALL,
    )


def _chosen(kind: str, curves: Sequence[Curve]) -> list[Curve]:
    """One pair of peers stands for all; reads come first."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for curve in sorted(
        curves, key=lambda c: (c.mode != "read", -c.threads) if kind == "cache" else (False, 0)
    ):
        name = str(curve.plateaus.get("level", ""))
        key = (name.split(" ")[0], str(curve.plateaus.get("access")), str(curve.plateaus.get("kernel")))
        if kind == "link" and ">" in name and key in seen:
            continue
        seen.add(key)
        found.append(curve)
    return found


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


def _curve(axes: Axes, curve: Curve, ink: str) -> None:
    """Measured points with their intervals, and the law fitted to them."""
    xs, ys = [p.x for p in curve.points], [p.estimate.value for p in curve.points]
    lows = [y - (p.estimate.low or y) for p, y in zip(curve.points, ys, strict=True)]
    highs = [(p.estimate.high or y) - y for p, y in zip(curve.points, ys, strict=True)]
    law = _law(curve)
    line = "none" if law else "-"
    style: dict[str, Any] = {
        "fmt": "o",
        "ms": 2.6,
        "color": ink,
        "elinewidth": 0.6,
        "linestyle": line,
        "lw": 0.8,
    }
    axes.errorbar(xs, ys, yerr=(lows, highs), label=shorten([_name(curve)], 58)[0], **style)
    if law:
        at = [xs[0] * (xs[-1] / xs[0]) ** (k / STEPS) for k in range(STEPS + 1)]
        axes.plot(at, [law(x) for x in at], color=ink, lw=0.9)
    if curve.kind == "overlap" and "omega" in curve.plateaus:
        for name, dash in (("serial_seconds", ":"), ("max_seconds", (0, (4, 2)))):
            axes.axhline(curve.plateaus[name], color=ink, lw=0.7, linestyle=dash)


def _law(curve: Curve) -> Callable[[float], float] | None:
    """The fitted law of a curve in its own unit, None where there is none."""
    found = curve.plateaus
    if curve.kind == "overlap" and "chunk_s" in found:
        total, longest, alpha = found["serial_seconds"], found["max_seconds"], found["chunk_s"]
        return lambda k: float(longest + (total - longest) / k + k * alpha)
    if "lines" not in found:
        return None
    pick = max if found["form"].startswith("maximum") else min

    def seconds(volume: float) -> float:
        return float(pick(alpha + volume / beta for alpha, beta in found["lines"]))

    twice = 2.0 if found["access"] in ("both", "exchange") and curve.kind == "link" else 1.0
    return seconds if curve.kind == "launch" else lambda x: twice * x / seconds(twice * x)


def _name(curve: Curve) -> str:
    found = curve.plateaus
    if curve.kind == "cache":
        return f"{curve.mode}, {curve.threads} at once"
    if curve.kind in ("link", "collective") and "beta" in found:
        return f"{curve.mode}: {si(found['beta'], 'byte/s')}"
    if curve.kind == "overlap" and "omega" in found:
        balance = found["compute_seconds"] / found["movement_seconds"]
        told = f"ω {found['omega']:.2f}, best k {found['best_chunks']}"
        return f"{found['level']} {found['access']}, compute {balance:.2g}x move: {told}"
    if curve.kind == "concurrency" and curve.threads > 1:
        return f"{curve.mode}, {curve.threads} at once"
    return curve.mode


def _levels(axes: Axes, curve: Curve) -> None:
    """Levels of the first curve by name and value; what the system reports as dotted lines."""
    top, bottom = axes.get_ylim()[1], axes.get_ylim()[0]
    times = curve.unit == "s"
    for level in curve.plateaus.get("levels", ()):
        middle = (level["from_bytes"] * level["to_bytes"]) ** 0.5
        text = f"{level['name'] or '?'}\n{si(level['value'], curve.unit)}"
        y = level["value"] * (0.8 if times else 0.72)
        style: dict[str, Any] = {"fontsize": SMALL, "color": paint.INK, "ha": "center", "va": "top"}
        axes.text(middle, max(y, bottom * 1.1), text, **style)
        if level["reported_bytes"]:
            axes.axvline(level["reported_bytes"], color=paint.PALE, lw=0.6, linestyle=":", zorder=1)
        if level["capacity_bytes"]:
            upright: dict[str, Any] = {
                "rotation": 90,
                "fontsize": SMALL - 0.5,
                "color": paint.PALE,
                "ha": "right",
            }
            y, side = (bottom * 1.15, "bottom") if not times else (top / 1.15, "top")
            axes.text(level["capacity_bytes"], y, f"{capacity(level['capacity_bytes'])} ", va=side, **upright)
