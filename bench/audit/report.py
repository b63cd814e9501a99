"""The text of `audit`: family by architecture at a glance, then each miss in a sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from bench.audit.expectations import Finding
from bench.audit.survey import Survey
from bench.report.units import UNKNOWN

WIDTH, MOST_MISSES = 100, 24
"""Columns of the text, and how many misses are told before the rest is only counted."""

PASSED = "ok"

READING = (
    "share: of the hot loop that the expected instructions are, the least. registers: the most.",
    "predicted: least share of the SM's peak that the schedule allows, one warp a scheduler / many.",
)


def render(survey: Survey, functions: bool = False) -> str:
    """The report, at most 100 columns wide; with `functions` a line for each on each architecture."""
    return "\n".join(line.rstrip() for line in _lines(survey, functions)) + "\n"


def verdict(survey: Survey) -> str:
    """One line: how many functions departed from what they must compile to."""
    missed = sum(bool(finding.misses) for finding in survey.findings)
    total = len(survey.findings)
    return f"{missed} of {total} functions missed" if missed else f"all {total} functions passed"


def _lines(survey: Survey, functions: bool) -> Iterator[str]:
    tools = f"NVRTC {survey.nvrtc}, nvdisasm {survey.nvdisasm}"
    yield f"audit: {verdict(survey)} ({tools}; no GPU was used)"
    yield ""
    yield from _grid(survey)
    yield from READING
    for architecture, reason in survey.not_audited.items():
        yield from _wrapped(f"not audited: sm_{architecture}: {reason}")
    if functions:
        yield ""
        yield from _functions(survey.findings)
    yield from _misses(survey.misses)


def _grid(survey: Survey) -> Iterator[str]:
    heads = "".join(f"{name:>4}" for name in survey.architectures)
    yield f"{'family':<8}{'functions':>9}{heads}{'share %':>8}{'registers':>11}{'predicted %':>13}"
    for family in dict.fromkeys(finding.family for finding in survey.findings):
        found = [finding for finding in survey.findings if finding.family == family]
        cells = "".join(f"{_cell(found, name):>4}" for name in survey.architectures)
        entries = len({finding.entry for finding in found})
        yield f"{family:<8}{entries:>9}{cells}{_ends(found, [f for f in found if f.least_share])}"


def _cell(found: Sequence[Finding], architecture: str) -> str:
    """ok, or how many functions of the family miss on it."""
    here = [finding for finding in found if finding.architecture == architecture]
    missed = sum(bool(finding.misses) for finding in here)
    return UNKNOWN if not here else str(missed) if missed else PASSED


def _ends(found: Sequence[Finding], chains: Sequence[Finding]) -> str:
    """Most registers of some functions; least share and prediction of those whose loop is all their work."""
    share = min((f.share for f in chains if f.share is not None), default=None)
    registers = max((f.registers for f in found if f.registers is not None), default=None)
    one = min((f.bound.one_warp for f in chains if f.bound), default=None)
    many = min((f.bound.many_warps for f in chains if f.bound), default=None)
    predicted = f"{_percent(one)} / {_percent(many)}" if one is not None else UNKNOWN
    return f"{_percent(share):>8}{UNKNOWN if registers is None else registers:>11}{predicted:>13}"


def _percent(share: float | None) -> str:
    """One decimal: the limits lie at 97 and 98 %, where a whole percent says too little."""
    return UNKNOWN if share is None else f"{100 * share:.1f}"


def _functions(findings: Sequence[Finding]) -> Iterator[str]:
    widest = max((len(finding.entry) for finding in findings), default=8)
    heads = f"{'share %':>8}{'registers':>11}{'predicted %':>13}{'warps':>7}"
    yield f"{'function':<{widest}}{'arch':>6}{'':>8}{'trips':>6}{heads}"
    for f in findings:
        word = "missed" if f.misses else PASSED
        warps = UNKNOWN if f.warps is None else f.warps
        ends = _ends([f], [f])
        yield f"{f.entry:<{widest}}{f.architecture:>6}{word:>8}{f.trips or UNKNOWN:>6}{ends}{warps:>7}"


def _misses(misses: Sequence[str]) -> Iterator[str]:
    if misses:
        yield ""
        yield "missed:"
    for miss in misses[:MOST_MISSES]:
        yield from _wrapped(f"  {miss}")
    if len(misses) > MOST_MISSES:
        yield f"  and {len(misses) - MOST_MISSES} more, all in --json"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="      ", break_long_words=False)
