"""The part of the printed report that says what is wrong with a number, why, and what to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.profile.records import Profile
from bench.report import grid
from bench.triage.finding import Finding

NOTHING = "nothing found: no number is above what is possible, far below, or at odds with the others"


def triage(profile: Profile) -> Iterator[Text | Table]:
    """The section of a profile's findings; one line where there are none, nothing in an older profile."""
    if "findings" not in profile.facts:
        return
    found: Sequence[Mapping[str, Any]] = profile.facts["findings"]
    yield grid.section("Triage", f"{len(found)} finding{'s' * (len(found) != 1)}" if found else "")
    if not found:
        yield Text(NOTHING, style="dim")
    yield from _lines((str(f["cause"]), str(f["sentence"]), str(f["remedy"])) for f in found)


def of_file(found: Sequence[Finding]) -> Iterator[Text]:
    """The same for the fits of somebody else's file; nothing where there is nothing to say."""
    if found:
        yield grid.section("Triage", "against the datasheet of the device named, or the file's own theory")
        yield from _lines((f.cause, f.sentence, f.remedy) for f in found)


def _lines(rows: Iterable[tuple[str, str, str]]) -> Iterator[Text]:
    for cause, sentence, remedy in rows:
        yield Text.assemble((cause, "bold yellow"), f": {sentence}. Try: {remedy}.")
