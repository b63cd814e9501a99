"""The strip above a sweep over working sets: what each level is called, gives and holds, over its plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.fitting.level_names import A_SLOW_FALL
from bench.profile.records import Curve
from bench.report import paint
from bench.report.units import capacity, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARE = 0.22
"""Share of the panel's height that the strip takes."""

LETTERS = 6.5
"""Points of its letters."""

APART = 0.13
"""Share of the panel's width between the middles of two labels, at least."""


def write(axes: Axes, curve: Curve) -> None:
    """Levels with a name as brackets over their plateaus, and dotted lines where they end."""
    levels = [level for level in curve.plateaus.get("levels", ()) if level["name"]]
    low, high = (math.log(end) for end in axes.get_xlim())
    foot = 1 - SHARE
    across = axes.get_xaxis_transform()  # x in data, y in shares of the panel
    for level, middle in zip(levels, places(levels, low, high), strict=True):
        ends = [level["from_bytes"], level["to_bytes"]]
        axes.plot(ends, [foot, foot], color=paint.PALE, lw=2.0, transform=across, solid_capstyle="butt")
        text = f"{level['name']}\n{si(level['value'], curve.unit)}"
        if level["capacity_bytes"] and A_SLOW_FALL not in level["why"]:
            text += f"\nto {capacity(level['capacity_bytes'])}"
            at: Any = (level["capacity_bytes"], level["capacity_bytes"])
            axes.plot(at, [0, foot], color=paint.PALE, lw=0.6, linestyle=":", transform=across, zorder=1)
        style: dict[str, Any] = {"fontsize": LETTERS, "color": paint.INK, "ha": "center", "va": "bottom"}
        axes.text(math.exp(middle), foot + 0.015, text, transform=across, linespacing=1.05, **style)


def places(levels: Sequence[Mapping[str, Any]], low: float, high: float) -> list[float]:
    """log(byte) of the middle of each label: over its plateau, but clear of the one before and of edges."""
    least = APART * (high - low)
    found: list[float] = []
    for level in levels:
        middle = (math.log(level["from_bytes"]) + math.log(level["to_bytes"])) / 2
        before = found[-1] + least if found else low + least / 2
        found.append(max(middle, before))
    beyond = high - least / 2
    for k in range(len(found) - 1, -1, -1):
        found[k] = min(found[k], beyond)
        beyond = found[k] - least
    return found
