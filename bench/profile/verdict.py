"""The words in which a self-check answers: each text starts with one of three, then the evidence follows."""

from __future__ import annotations

OK, FAILS, UNTESTED = "ok", "fails", "not tested"
"""How the text of a self-check begins, before a colon."""


def ok(evidence: str) -> str:
    """What was checked and found right."""
    return f"{OK}: {evidence}"


def fails(evidence: str) -> str:
    """What was checked and found wrong."""
    return f"{FAILS}: {evidence}"


def untested(why: str) -> str:
    """What could not be checked in this run."""
    return f"{UNTESTED}: {why}"


def word(said: str) -> str:
    """Which of the three a text says; one of an older profile, which spoke only of faults, fails."""
    first = said.partition(":")[0]
    return first if first in (OK, UNTESTED) else FAILS


def evidence(said: str) -> str:
    """The text without its first word."""
    first, colon, rest = said.partition(": ")
    return rest if colon and first in (OK, FAILS, UNTESTED) else said
