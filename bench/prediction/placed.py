"""The time of a workload of the zoo at any size, carried over from the sizes at which the profile placed it.

A workload has more to do than its FLOP count says: exp, gathers, packing. Where the profile placed it,
that is carried over: with its operands in a cache its time is that of its own instructions, so it gives
the rate that stands in the place of pi; from DRAM it gives kappa, measured time over the time on the roof
with that rate. kappa is taken at the footprint asked for, linear in the logarithm of the footprint.

How far kappa wanders with the footprint is asked of all workloads that were placed twice: a factor of e
in the footprint moves ln kappa by some slope, and the root mean square of these slopes, times the distance
from the nearest placement, widens the interval of every prediction. Where none was placed twice (GPUs),
a factor of e is taken to change kappa by as much as another workload does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from bench.fitting.intervals import student
from bench.prediction import limits
from bench.prediction.estimate import Prediction, log_width, spread
from bench.prediction.works import BETWEEN, Load, footprint, of_level, prediction, roof_of, shape_error
from bench.profile.records import Interval, Placement, Profile
from bench.workloads.roof import Roof, binding

PLACED = 3
"""Workloads that must have been placed before they say how kappa wanders."""

OCTAVE = math.log(2.0)
"""Distance that any size has at least: as many bytes in other rows and columns are not the same work."""


@dataclass(frozen=True)
class Seen:
    """One placement of a workload: its footprint (byte) and kappa, measured over modelled time."""

    footprint: float
    kappa: float
    width: float

    def apart(self, size: float) -> float:
        """Distance of a footprint on the log scale."""
        return max(OCTAVE, abs(math.log(size / self.footprint)))


def workload(profile: Profile, name: str, load: Load, what: str) -> Prediction:
    """The time of a workload of the zoo at any size, by its own placements where the profile has them."""
    found, level = roof_of(profile, load)
    on_roof = found.seconds(load.flops, load.bytes)
    placed = [p for p in profile.placements if p.name == name and p.threads == load.threads]
    if not placed:
        return _unseen(profile, load, found, level, what, on_roof)
    own = _own_rate(placed)
    model = _with_rate(found, own, load.flops)
    seen = _places(profile, placed, load.in_place)
    kappa, doubt = _kappa(seen, load.footprint)
    value = kappa * model.seconds(load.flops, load.bytes)
    beside = log_width(found.beta) if level == "DRAM" else 0.0
    width = max(s.width for s in seen)
    wander = _wander(profile, load.threads, min(s.apart(load.footprint) for s in seen))
    interval = spread(value, width, doubt, wander or 0.0, beside, shape_error(profile, load) / 2)
    basis = f"placed at {len(seen)} size{'s' * (len(seen) > 1)}, {value / on_roof:.2g}x its roof"
    notes = [of_level(load, level)] if level != "DRAM" else limits.beyond_memory(profile, load.footprint)
    if own is None and level != "DRAM":
        interval = Interval(value, min(value, _least(profile, load, found, on_roof)))
        notes.append("it was placed from DRAM only: its own rate in a cache is not known")
    if not seen[0].footprint / 2 <= load.footprint <= seen[-1].footprint * 2:
        notes.append("extrapolated: beyond the sizes that were placed")
        if wander is None:
            interval = replace(interval, high=None)
            notes.append("how it changes with its size was not measured")
    interval, said, binds = limits.above_start(
        profile, load.threads, interval, notes, placed[0].implementation
    )
    binds = binds or binding(load.flops, load.bytes, model)
    return prediction(profile, load, level, what, interval, model, on_roof, basis, said, binds)


def _least(profile: Profile, load: Load, found: Roof, on_roof: float) -> float:
    """The lower end of the time on the roof itself."""
    widths = (log_width(found.pi), log_width(found.beta), shape_error(profile, load))
    return on_roof / math.exp(math.hypot(*widths))


def _unseen(profile: Profile, load: Load, found: Roof, level: str, what: str, on_roof: float) -> Prediction:
    interval = Interval(on_roof, _least(profile, load, found, on_roof))
    notes = ["this profile did not place it: the time on its roof is the least, not the likely one"]
    notes += limits.beyond_memory(profile, load.footprint)
    interval, said, binds = limits.above_start(profile, load.threads, interval, notes)
    return prediction(profile, load, level, what, interval, found, on_roof, "its roof alone", said, binds)


def _own_rate(placed: Sequence[Placement]) -> float | None:
    """FLOP (byte without arithmetic) a second with operands in a cache, None if it was not placed there."""
    near = [p for p in placed if p.level != "DRAM"]
    return max(((p.flops or p.bytes) / p.seconds.value for p in near), default=None)


def _with_rate(found: Roof, own: float | None, flops: float) -> Roof:
    """The roof with the workload's own rate as pi, or as a limit of beta where there is no arithmetic."""
    if own is None:
        return found
    if flops:
        return replace(found, pi=Interval(own))
    beta = own if found.beta is None else min(own, found.beta.value)
    return replace(found, beta=Interval(beta))


def _seen(profile: Profile, p: Placement, in_place: bool, own: float | None) -> Seen:
    size = footprint(p.bytes_read, p.bytes_written, in_place)
    load = Load(p.precision, p.threads, p.flops, p.bytes_read, p.bytes_written, size, in_place)
    found, _ = roof_of(profile, load)
    modelled = _with_rate(found, own, p.flops).seconds(p.flops, p.bytes)
    return Seen(size, p.seconds.value / modelled, log_width(p.seconds))


def _places(profile: Profile, placed: Sequence[Placement], in_place: bool) -> list[Seen]:
    """The placements of one workload by footprint, smallest first."""
    own = _own_rate(placed)
    return sorted((_seen(profile, p, in_place, own) for p in placed), key=lambda s: s.footprint)


def _wander(profile: Profile, threads: int, apart: float) -> float | None:
    """Half-width (log) of kappa so far from a placement, by all workloads; None where too few were placed."""
    from bench.workloads.zoo import ZOO

    of: dict[str, list[Placement]] = {}
    for p in profile.placements:
        if p.threads == threads and p.name in ZOO:
            of.setdefault(p.name, []).append(p)
    places = [_places(profile, placed, ZOO[name].in_place) for name, placed in of.items()]
    slopes = [slope for seen in places for slope in _slopes(seen)]
    if len(slopes) >= PLACED:
        return student(len(slopes)) * math.sqrt(mean(slope**2 for slope in slopes)) * apart
    kappas = [math.log(seen[-1].kappa) for seen in places]
    return student(len(kappas) - 1) * stdev(kappas) * apart if len(kappas) >= PLACED else None


def _slopes(seen: Sequence[Seen]) -> list[float]:
    """Steps of ln kappa over steps of ln footprint."""
    return [
        math.log(far.kappa / near.kappa) / math.log(far.footprint / near.footprint)
        for near, far in itertools.pairwise(seen)
        if far.footprint > near.footprint
    ]


def _kappa(seen: Sequence[Seen], size: float) -> tuple[float, float]:
    """kappa at a footprint, and half the difference of its neighbours where it lies between them."""
    for near, far in itertools.pairwise(seen):
        if near.footprint <= size <= far.footprint:
            share = math.log(size / near.footprint) / math.log(far.footprint / near.footprint)
            step = math.log(far.kappa / near.kappa)
            doubt = BETWEEN * abs(step) * min(share, 1 - share) * 2
            return near.kappa * math.exp(share * step), doubt
    end = seen[0] if size < seen[0].footprint else seen[-1]
    return end.kappa, 0.0
