"""What `fleet` prints: the boards of each model, who is off, then the models side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from bench.fleet import LEAST, Fleet, Line, Model, Outlier
from bench.report.grid import NUMBERS, WORDS, Side, printed, section, table
from bench.report.units import UNKNOWN, bare, counted, number, percent, si

WIDTH = 100

MOST_MODELS = 4
"""Models that fit beside each other; further ones are in --json."""

COLUMNS: tuple[tuple[str, Side], ...] = (
    ("ceiling", WORDS),
    ("n", NUMBERS),
    ("median", NUMBERS),
    ("lowest", NUMBERS),
    ("highest", NUMBERS),
    ("spread", NUMBERS),
    ("off", WORDS),
)


def render(fleet: Fleet) -> str:
    """The whole text, lines of at most 100 columns."""
    return printed(_parts(fleet), WIDTH)


def _parts(fleet: Fleet) -> Iterator[Text | Table]:
    for model in fleet.models:
        yield section(model.name, f"{counted(len(model.members), 'result')}")
        yield table(COLUMNS, [_line(line) for line in model.lines])
        yield from (Text(text) for text in _remarks(model))
    if fleet.sides:
        yield from _side_by_side(fleet)
    yield Text("")
    yield from (Text(f"left out: {why}") for why in fleet.unread)
    yield Text(
        f"off: over {percent(fleet.margin)} from the middle result, which its 95 % interval does not reach"
    )


def _line(line: Line) -> Sequence[str]:
    off = [f"{outlier.member} {_ratio(outlier)}" for outlier in line.outliers]
    return (
        line.name.replace("pi ", "π ").replace("beta ", "β "),
        str(line.count),
        si(line.median, line.unit),
        bare(line.lowest, line.unit, line.median) if line.count > 1 else "",
        bare(line.highest, line.unit, line.median) if line.count > 1 else "",
        percent(line.spread) if line.count > 1 else "",
        ", ".join(off),
    )


def _ratio(outlier: Outlier) -> str:
    ratio = outlier.ratio
    return f"{number(ratio.value)}x ({number(ratio.low)} to {number(ratio.high)})"


def _remarks(model: Model) -> Iterator[str]:
    count = len(model.members)
    if 1 < count < LEAST:
        yield f"{count} results cannot say which of them is off: that takes {LEAST}"
    off = Counter(outlier.member for line in model.lines for outlier in line.outliers)
    for member, times in off.items():
        told = ", ".join(model.causes[member]) or "nothing"
        yield f"{member}: off in {times} of {len(model.lines)} ceilings; triage of its run found {told}"


def _side_by_side(fleet: Fleet) -> Iterator[Text | Table]:
    shown = fleet.models[:MOST_MODELS]
    letters = [chr(ord("A") + i) for i in range(len(shown))]
    yield section("Models side by side", "medians; in brackets times A")
    for letter, model in zip(letters, shown, strict=True):
        yield Text(f"{letter}: {model.name}")
    lines = []
    for side in fleet.sides:
        cells = [_cell(v, r, side.unit) for v, r in zip(side.values, side.ratios, strict=True)][:MOST_MODELS]
        lines.append((side.name.replace("pi ", "π ").replace("beta ", "β "), *cells))
    yield table((("ceiling", WORDS), *((letter, NUMBERS) for letter in letters)), lines)
    if len(fleet.models) > MOST_MODELS:
        yield Text(f"and {len(fleet.models) - MOST_MODELS} more models, in --json")


def _cell(value: float | None, ratio: float | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    return si(value, unit) + (f" ({number(ratio)}x)" if ratio is not None and ratio != 1 else "")
