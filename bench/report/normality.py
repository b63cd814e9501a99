"""What the report says about reference figures: a share in the table, and a line where one is not normal."""

from __future__ import annotations

from collections.abc import Iterable

from bench.profile.records import Ceiling
from bench.profile.verdict import OK, evidence, word
from bench.report import roofs
from bench.report.checks import label
from bench.report.units import percent

UNKNOWN = "unknown"
"""How the evidence begins where no reference figures were found."""


def share(ceiling: Ceiling) -> str:
    """The cell of the table: share of the datasheet, empty where it is not known."""
    known = ceiling.share_of_datasheet
    return "" if known is None else percent(known)


def lines(ceilings: Iterable[Ceiling]) -> list[str]:
    """How many ceilings are within what is published, then every one that is not; the same words once."""
    usual, about = 0, dict[str, list[str]]()
    for c in ceilings:
        said = c.checks.get(roofs.NORMAL, "")
        if word(said) == OK:
            usual += 1
        elif said:
            about.setdefault(evidence(said), []).append(label(c))
    told = [f"{', '.join(names)}: {said}" for said, names in about.items() if not _is_unknown(said)]
    unknown = [said for said in about if _is_unknown(said)]
    count = [f"normal: {usual} of them, by datasheet and published measurements"] if usual else []
    return count + told + [f"is it normal? {said}" for said in unknown]


def _is_unknown(said: str) -> bool:
    return said.startswith(UNKNOWN)
