"""How self-checks are printed: a mark where one fails, a line that says which, and a matrix of all."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.profile.records import Ceiling
from bench.profile.verdict import FAILS, OK, UNTESTED, evidence, word

MARK = "check fails"
"""What a verdict says of a ceiling of which a self-check fails."""

ELSEWHERE = ("repetitions", "normal")
"""Checks that speak in words of their own: contended in the verdict, and the lines on normality."""

SYMBOLS = {OK: "✓", FAILS: "✗", UNTESTED: "·"}
"""Cells of the matrix."""


@dataclass(frozen=True)
class Matrix:
    """Ceilings against checks: `rows` of (name, texts), a text for every one of `columns`, "" where none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def failing(ceiling: Ceiling) -> dict[str, str]:
    """The checks of a ceiling that fail, with their evidence."""
    return {name: evidence(said) for name, said in ceiling.checks.items() if word(said) == FAILS}


def is_marked(ceiling: Ceiling) -> bool:
    """Whether a check fails that the verdict would not name otherwise."""
    return any(name != "repetitions" for name in failing(ceiling))


def lines(ceilings: Iterable[Ceiling]) -> list[str]:
    """One line for every failing check with the ceilings that it is about, then the count of all answers."""
    about: dict[tuple[str, str], list[str]] = {}
    counts: Counter[str] = Counter()
    for c in ceilings:
        counts.update(word(said) for said in c.checks.values())
        for name, said in failing(c).items():
            if name not in ELSEWHERE:
                about.setdefault((name, said), []).append(label(c))
    told = [f"{', '.join(names)}: {MARK}, {name}: {said}" for (name, said), names in about.items()]
    if not counts:
        return told
    return [*told, f"self-checks: {counts[OK]} ok, {counts[FAILS]} fail, {counts[UNTESTED]} not tested here"]


def label(c: Ceiling) -> str:
    """A ceiling in few words: fma fp64, DRAM copy nt, 1 thread."""
    what = f"{c.kernel} {c.precision.label}" if c.quantity == "pi" else f"{c.level} {c.kernel}"
    store = "nt" if c.store == "nontemporal" else ""
    regime = "" if c.regime == "typical" else c.regime
    operands = "" if c.operands == "random" else c.operands
    alone = "1 thread" if c.threads == 1 and c.scope == "core" else ""
    return " ".join(filter(None, (what, store, regime, operands, alone)))


def matrix(ceilings: Sequence[Ceiling]) -> Matrix:
    """All ceilings that were checked against all checks that any of them has."""
    columns = tuple(dict.fromkeys(name for c in ceilings for name in c.checks))
    rows = ((label(c), tuple(c.checks.get(name, "") for name in columns)) for c in ceilings if c.checks)
    return Matrix(columns, tuple(rows))


def as_html(ceilings: Sequence[Ceiling]) -> str:
    """The matrix as an HTML table, each cell with its evidence as a tooltip; "" where nothing was checked."""
    made = matrix(ceilings)
    if not made.rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in made.columns)
    body = "\n".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(map(_cell, texts))}</tr>" for name, texts in made.rows
    )
    return f'<table class="checks">\n<tr><th></th>{head}</tr>\n{body}\n</table>'


def _cell(said: str) -> str:
    if not said:
        return "<td></td>"
    found = word(said)
    return f'<td class="{found.replace(" ", "-")}" title="{html.escape(said)}">{SYMBOLS[found]}</td>'
