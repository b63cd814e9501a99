"""The tables of the printed report on pages of any width: no letter of a cell is ever lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from bench.report.grid import LONG_WORD, NUMBERS, WORDS, Side, printed, table
from bench.report.table import render
from tests.synthetic import synthetic_profile
from tests.test_table import many_words

COLUMNS: tuple[tuple[str, Side], ...] = (
    ("workload", WORDS),
    ("", WORDS),
    *((name, NUMBERS) for name in ("I", "attainable", "achieved", "of roof")),
    ("binds", WORDS),
    *((name, NUMBERS) for name in ("idle", "time", "least")),
    ("verdict", WORDS),
)
NUMBERED = ("143", "111.5 GFLOP/s", "222.5 GFLOP/s", "100 % ±68 %")
ENDING = ("93 %", "2.79 ms", "2.06 ms")
USUAL = ("resnet50 conv 3x3", "fp32", *NUMBERED, "memory", *ENDING, "ok")
WIDE = (
    "stencil 7-point on one thread L2",
    "fp64 library",
    *NUMBERED,
    "cannot tell",
    *ENDING,
    "did not converge, contended (1 thread few rounds)",
)
LONG = ("y" * 150, *WIDE[1:-1], "ok " + "x" * 75)


def lost(lines: Sequence[Sequence[str]], text: str) -> Counter[str]:
    """Letters of the cells that the text has not."""
    return Counter("".join("".join(line) for line in lines).replace(" ", "")) - Counter(text)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("lines", [[USUAL], [USUAL, WIDE], [LONG, USUAL, WIDE]])
def test_no_letter_of_a_table_is_lost(width: int, lines: Sequence[Sequence[str]]) -> None:
    text = printed([table(COLUMNS, lines)], width)
    assert "…" not in text and not lost(lines, text)
    assert max(map(len, text.splitlines())) <= width
    for line in lines:
        words = " ".join(line[i] for i, (_, side) in enumerate(COLUMNS) if side == WORDS)
        numbers = [line[i] for i, (_, side) in enumerate(COLUMNS) if side == NUMBERS]
        assert all(cell in text for cell in numbers), "a number is never broken"
        if width > 40:
            assert all(word in text for word in words.split() if len(word) <= LONG_WORD)


def made(lines: Sequence[Sequence[str]], width: int) -> list[str]:
    return printed([table(COLUMNS, lines)], width).splitlines()


def test_words_wrap_where_it_costs_the_fewest_lines() -> None:
    short = [(*USUAL[:-1], "") for _ in range(5)]
    one = (*USUAL[:6], "cannot tell", *ENDING, "")
    rows = made([*short, one], 96)
    assert len(rows) == 8, "the two words of one cell alone stand below each other"
    assert rows[-2].endswith("cannot   93 % 2.79 ms 2.06 ms") and rows[-1].split() == ["tell"]
    assert len(made([*short, one], 140)) == 7


def test_columns_that_find_no_room_go_on_below_with_the_names() -> None:
    rows = made([USUAL, WIDE], 60)
    heads = [row for row in rows if row.startswith("workload")]
    assert len(heads) == 2 and heads[0].split()[1] == "I" and heads[1].endswith("verdict")
    assert sum(row.startswith("resnet50") for row in rows) == 2


def test_a_whole_report_is_never_cut() -> None:
    for profile in (synthetic_profile(), many_words(synthetic_profile())):
        for width in (60, 100):
            assert "…" not in render(profile, width=width)
