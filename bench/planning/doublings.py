"""Points that do twice the work of a ceiling in one repetition: a self-check looks whether time doubles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, Draft
from bench.profile.records import WHOLE

SHARE = 0.03
"""Of the time box that all doublings of a run may take together."""

MINIMUM, OVERHEAD = 3, 0.03
"""Repetitions of one, and seconds to prepare it: its arrays are those of the point that it doubles."""

ORDER = ("fma", "stream", "tensor")
"""Families that have doublings; one of each in turn, so that a short run has a pi and a beta among them."""


def add(draft: Draft) -> None:
    """Plan as many doublings of ceilings as the time box affords, those on the whole device first."""
    left = SHARE * draft.preset.minutes * 60 / draft.preset.rounds
    for planned in _in_turn([p for p in draft.points.values() if _has_doubling(p)]):
        doubled = _doubled(planned)
        left -= OVERHEAD + doubled.minimum * doubled.target
        if left < 0:
            return
        draft.add(doubled)


def _has_doubling(planned: Planned) -> bool:
    """Whether it is a ceiling of the typical regime whose form was chosen."""
    point = planned.point
    usual = planned.regime == "typical" and point.operands == "random"
    return usual and point.family in ORDER and bool(planned.tune)


def _in_turn(ceilings: Sequence[Planned]) -> Iterator[Planned]:
    """One of each family in turn, those on the whole device before those on one core."""
    for whole in (True, False):
        part = [p for p in ceilings if (p.point.scope in WHOLE) == whole]
        families = [[p for p in part if p.point.family == family] for family in ORDER]
        yield from filter(None, chain.from_iterable(zip_longest(*families)))


def _doubled(planned: Planned) -> Planned:
    target = 2 * planned.target
    sizes = {**planned.point.sizes, "window": round(target * 1e6)}
    longer = replace(planned, point=replace(planned.point, sizes=sizes), priority=2, cap=CAP_CURVE, visits=1)
    return replace(longer, target=target, moved=2 * planned.moved, budget=MINIMUM * target, minimum=MINIMUM)
