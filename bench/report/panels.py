"""Panels of a plot at fixed places: nothing has to be drawn in order to find out where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT, TOP, FOOT = 0.68, 0.18, 0.28, 0.5
"""Inches around the axes of a panel: for numbers and name of y, half a number of x, the title, and x."""

NAME_OF_X, NAME_OF_Y = 0.27, 0.52
"""Inches between the axes and the names of x and y."""


def panel(picture: Figure, rows: int, columns: int, place: int, head: float, title: str) -> Axes:
    """Titled axes of panel `place`, counted by rows from 1; the first row is `head` inches below the top."""
    width, height = picture.get_size_inches()
    row, column = divmod(place - 1, columns)
    across, along = width / columns, (height - head) / rows
    wide, high = across - LEFT - RIGHT, along - TOP - FOOT
    left, foot = column * across + LEFT, (rows - 1 - row) * along + FOOT
    box = (left / width, foot / height, wide / width, high / height)
    axes = picture.add_axes(box, label=f"panel {place}")
    axes.set_title(title, fontsize=8.5, loc="left", y=1.0)
    fix_names(axes, NAME_OF_X / high, NAME_OF_Y / wide)
    return axes


def fix_names(axes: Axes, below: float, before: float) -> None:
    """Puts the names of x and y at shares of the axes' height and width, whatever the numbers take.

    Names that keep clear of the numbers by themselves cost a layout of every number each time they are drawn.
    """
    axes.xaxis.set_label_coords(0.5, -below)
    axes.yaxis.set_label_coords(-before, 0.5)


def head_line(picture: Figure, text: str) -> None:
    """The title of the whole figure at its upper left."""
    height = picture.get_size_inches()[1]
    picture.suptitle(text, x=0.01, y=1 - 0.1 / height, ha="left", va="top", fontsize=10)
