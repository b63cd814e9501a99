"""The part of the printed report that says what is wrong with a number, why, and what to try."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.profile.records import Profile
from bench.report import grid
from bench.report.units import counted
from bench.triage.finding import Finding

NOTHING = "nothing found: no number is above what is possible, far below, or at odds with the others"

MOST, LINES, COLUMNS = 6, 3, 100
"""Findings that are printed, and lines of how many columns each may take; profile.json holds all of all."""


def triage(profile: Profile) -> Iterator[Text | Table]:
    """The section of a profile's findings; one line where there are none, nothing in an older profile."""
    if "findings" not in profile.facts:
        return
    found: Sequence[Mapping[str, Any]] = profile.facts["findings"]
    yield grid.section("Triage", counted(len(found), "finding") if found else "")
    if not found:
        yield Text(NOTHING, style="dim")
    shown = found if len(found) <= MOST else found[: MOST - 1]
    yield from _lines((str(f["cause"]), str(f["sentence"]), str(f["remedy"])) for f in shown)
    if left := found[len(shown) :]:
        causes = ", ".join(dict.fromkeys(str(f["cause"]) for f in left))
        yield Text(f"and {len(left)} more ({causes}), in facts.findings of profile.json", style="dim")


def of_file(found: Sequence[Finding]) -> Iterator[Text]:
    """The same for the fits of somebody else's file; nothing where there is nothing to say."""
    if found:
        yield grid.section("Triage", "against the datasheet of the device named, or the file's own theory")
        yield from _lines((f.cause, f.sentence, f.remedy) for f in found)


def _lines(rows: Iterable[tuple[str, str, str]]) -> Iterator[Text]:
    for cause, sentence, remedy in rows:
        yield Text.assemble((cause, "bold yellow"), f": {_cut(cause, sentence, remedy)} Try: {remedy}.")


def _cut(cause: str, sentence: str, remedy: str) -> str:
    """As many words of the sentence as fit beside its cause and its remedy, to the end of a clause."""
    words, said = sentence.split(" "), f"{sentence}."
    while len(words) > 1 and not _fits(f"{cause}: {said} Try: {remedy}."):
        words.pop()
        said = f"{_clause(' '.join(words)).rstrip(',;:')} …"
    return said


def _clause(text: str) -> str:
    """The text up to its last comma outside brackets, where that keeps most of it."""
    ends = [
        i for i, letter in enumerate(text) if letter == "," and text.count("(", 0, i) == text.count(")", 0, i)
    ]
    return text[: ends[-1]] if ends and ends[-1] > len(text) / 2 else text


def _fits(text: str) -> bool:
    return len(textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)) <= LINES
