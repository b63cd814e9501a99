"""What a self-check may look at: all points of a run, its ceilings, its device; and ratios with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.fitting.intervals import MEDIAN, P75, interval
from bench.fitting.pooled import Pooled
from bench.profile.records import Ceiling, Interval, Sample
from bench.profile.verdict import fails, ok, untested
from bench.report.units import number, percent
from kernels.mix import KERNELS

ACCESS_OF = {kernel.name: kernel.access for kernel in KERNELS}
"""The access with the traffic of each intensity sweep."""

SWEEP_OF = {access: kernel for kernel, access in ACCESS_OF.items()}

FAR = 4.0
"""Factor from the ridge at which a sweep shows one resource alone: even serial execution (p = 1) loses only a
fifth there, and doubling from there changes the time by less than 11 %."""

NO_SETTING = {"window", "blocks_per_sm"}
"""Sizes of points that are timed or launched otherwise than the sweep that they stand beside."""

HIDDEN = 0.35
"""Half-width of a ratio from which it cannot tell 1 from 2: their geometric mean is 1.41."""

COMMON = 2
"""Rounds in which both sides of a ratio must have been measured."""


@dataclass(frozen=True)
class Setting:
    """A point of a sweep as measured: its x, and FLOP/s (byte/s of a cache) by round."""

    x: float
    by_round: Mapping[int, float]
    point: Pooled

    @property
    def rate(self) -> Interval:
        """Median over the rounds, with its interval."""
        return interval(list(self.by_round.values()))


@dataclass(frozen=True)
class Evidence:
    """All usable points of a run, its ceilings, its device (as in a header), and the raw samples."""

    points: tuple[Pooled, ...]
    ceilings: tuple[Ceiling, ...]
    device: Mapping[str, Any]
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    def arithmetic(self, ceiling: Ceiling) -> Ceiling | None:
        """The vector pi of the same types on the same threads, typical regime first."""
        found = [c for c in self._beside(ceiling) if c.quantity == "pi" and c.precision.unit == "vector"]
        same = [c for c in found if c.precision.inputs == ceiling.precision.inputs and not c.precision.mode]
        return _best(same)

    def memory(self, ceiling: Ceiling, access: str) -> Ceiling | None:
        """The best beta of DRAM with that access on the same threads."""
        return _best(c for c in self._of_dram(ceiling) if c.access == access)

    def slowest_memory(self, ceiling: Ceiling) -> Ceiling | None:
        """The beta of DRAM, of any access, that puts the ridge highest."""
        return min(self._of_dram(ceiling), key=lambda c: c.estimate.value, default=None)

    def _of_dram(self, ceiling: Ceiling) -> list[Ceiling]:
        there = (c for c in self._beside(ceiling) if c.quantity == "beta" and c.level == "DRAM")
        return [c for c in there if c.kernel in (c.access, "scale", "add")]

    def _beside(self, ceiling: Ceiling) -> list[Ceiling]:
        return [c for c in self.ceilings if (c.scope, c.threads) == (ceiling.scope, ceiling.threads)]

    def sweep(self, ceiling: Ceiling, kernel: str, share: float) -> list[Setting]:
        """The intensity sweep `kernel` on the same threads by rising FLOP/byte, the best form at each.

        share: quantile that stands for a round
        """
        found = [
            p
            for p in self.points
            if p.point.kernel == kernel and _is_usual(p) and not NO_SETTING & set(p.point.sizes)
            if (p.point.scope, p.point.threads) == (ceiling.scope, ceiling.threads) and p.bytes
        ]
        same = [p for p in found if p.point.precision.label == ceiling.precision.label]
        return _by_x([Setting(p.flops / p.bytes, p.rounds(share), p) for p in same])

    def working_sets(self, ceiling: Ceiling, kernel: str) -> dict[int, float]:
        """Byte/s of `kernel` by bytes of the set that all threads walk together, on the same threads."""
        found: dict[int, float] = {}
        for p in self.points:
            swept = p.point.family == "cache" and "plateau" not in p.point.sizes and _is_usual(p)
            same = (p.point.scope, p.point.threads) == (ceiling.scope, ceiling.threads)
            if swept and same and p.point.kernel == kernel:
                size = p.point.sizes["bytes"] * p.point.threads
                found[size] = max(p.estimate(MEDIAN).value, found.get(size, 0.0))
        return found

    def alike(self, ceiling: Ceiling, kernel: str, regime: str = "typical") -> list[Pooled]:
        """The points of `kernel` that differ from a ceiling in nothing but variant and sizes."""
        c = ceiling
        wanted = (kernel, c.precision, c.level, c.access, c.store, c.scope, c.threads, c.operands, regime)
        return [p for p in self.points if _what(p) == wanted and p.point.family != "scaling"]


def _what(p: Pooled) -> tuple[object, ...]:
    q = p.point
    place = (q.kernel, q.precision, q.level, q.access, q.store, q.scope, q.threads, q.operands)
    return (*place, p.regime)


def _is_usual(p: Pooled) -> bool:
    return p.regime == "typical" and p.point.operands == "random"


def _best(found: Iterable[Ceiling]) -> Ceiling | None:
    usual = sorted(found, key=lambda c: (c.regime == "typical", c.operands == "random", c.estimate.value))
    return usual[-1] if usual else None


def _by_x(settings: Sequence[Setting]) -> list[Setting]:
    """One a place, the fastest, in rising order."""
    best: dict[float, Setting] = {}
    for setting in settings:
        key = float(f"{setting.x:.6g}")
        if key not in best or setting.rate.value > best[key].rate.value:
            best[key] = setting
    return [best[key] for key in sorted(best)]


def quantile_of(ceiling: Ceiling) -> float:
    """The quantile within a round that a ceiling's value is drawn by."""
    return P75 if ceiling.statistic == "p75" else MEDIAN


def ratio(
    above: Mapping[int, float], below: Mapping[int, float], made: Callable[[float], float]
) -> Interval | None:
    """made(above / below) of the rounds that both have, with its interval; None where they share too few."""
    common = [number for number in above if number in below]
    if len(common) < COMMON:
        return None
    return interval([made(above[n] / below[n]) for n in common])


def judged(found: Interval | None, wanted: float, tolerance: float, what: str) -> str:
    """The verdict on a ratio of times that should be `wanted` to within a share `tolerance`.

    what: "twice the flops at equal bytes"
    """
    if found is None or found.low is None or found.high is None or found.half_width is None:
        return untested(f"{what}: the two were timed together in fewer than {COMMON} rounds")
    said = f"{what} take {number(found.value)} times as long ± {percent(found.half_width)}"
    goal = f"{number(wanted)} within {percent(tolerance)} is expected"
    if found.low > wanted * (1 + tolerance) or found.high < wanted / (1 + tolerance):
        return fails(f"{said}, {goal}")
    if found.half_width > HIDDEN:
        return untested(f"{said}: that scatter hides the answer")
    return ok(f"{said}, {goal}")
