"""The band a ceiling moves in: over regimes (burst to sustained) and operands (zeros against random)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.profile.records import Ceiling
from bench.report.units import si

REGIMES = ("burst", "typical", "sustained")
"""In the order in which a device goes through them under load."""


@dataclass(frozen=True)
class Band:
    """One ceiling in every regime and with every kind of operands it was measured in.

    ceilings: as measured, random operands first;  low, high: least and greatest value over the greatest
    of random operands;  text: "burst 1.00 at 1.98 GHz to sustained 0.93 at 1.76 GHz; zeros 1.12"
    """

    ceilings: tuple[Ceiling, ...]
    low: float
    high: float
    text: str


def bands(ceilings: Iterable[Ceiling]) -> tuple[Band, ...]:
    """The band of every ceiling that was measured in more than one regime or with several operands."""
    groups: dict[tuple[object, ...], list[Ceiling]] = {}
    for c in ceilings:
        groups.setdefault(same(c), []).append(c)
    return tuple(_band(sorted(group, key=_order)) for group in groups.values() if len(group) > 1)


def same(c: Ceiling) -> tuple[object, ...]:
    """What two ceilings share that differ in nothing but regime and operands."""
    return c.quantity, c.precision, c.level, c.access, c.store, c.kernel, c.scope, c.threads


def _order(c: Ceiling) -> tuple[bool, int, str]:
    regime = REGIMES.index(c.regime) if c.regime in REGIMES else len(REGIMES)
    return c.operands != "random", regime, c.operands


def _band(group: Sequence[Ceiling]) -> Band:
    random = [c for c in group if c.operands == "random"] or list(group)
    top = max(c.estimate.value for c in random)
    shares = [c.estimate.value / top for c in group]
    parts = [" to ".join(_end(c, top) for c in random)] if len(random) > 1 else []
    for c in group:
        if c not in random:
            parts.append(_operands(c, group))
    return Band(tuple(group), min(shares), max(shares), "; ".join(parts))


def _end(c: Ceiling, top: float) -> str:
    """Regime, share of the greatest value, and the clock held, where known."""
    clock = f" at {si(c.clock_hz, 'Hz')}" if c.clock_hz else ""
    return f"{c.regime} {c.estimate.value / top:.2f}{clock}"


def _operands(c: Ceiling, group: Sequence[Ceiling]) -> str:
    """Other operands beside random ones of the same regime, or else of any."""
    random = [r for r in group if r.operands == "random"]
    beside = next((r for r in random if r.regime == c.regime), random[0])
    regime = "" if c.regime == "typical" else f" {c.regime}"
    against = "random" if beside.regime == c.regime else f"random {beside.regime}"
    return f"{c.operands}{regime} {c.estimate.value / beside.estimate.value:.2f} of {against}"
