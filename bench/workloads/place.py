"""Placement: real workloads on the measured roof, with what binds them and what lies idle.

The rule. A workload is placed on the roof of its own precision, threads and memory level:

    pi        the best vector ceiling of its precision (also where a library does the work)
    beta      at its own read fraction r, linear in r between the measured kernels nearest to it:
                  r = 0  write      r = 1/2  copy, or update where the output overwrites an input
                  r = 2/3  triad    r = 1  read
              each the best over kernels and kinds of store, in stream bytes; beyond the outermost
              measured r the value there
    T0        the launch overhead of the sweep fitted at that precision and number of threads

    attainable = min(pi, beta I), in FLOP/s; beta, in byte/s, where there is no arithmetic
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.errors import DeviceError
from bench.profile.records import Ceiling, Curve, Interval, Placement, Precision, Sample
from bench.workloads.zoo import ZOO

ABOVE_ROOF = 1.03
"""Achieved over attainable from which a placement is not believed: beyond any measured width."""

READ_FRACTION = {"write": 0.0, "copy": 0.5, "update": 0.5, "triad": 2 / 3, "read": 1.0}
REGIMES = ("typical", "sustained", "burst")
"""In which a roof is taken, best first: workloads are timed on a warm device."""


@dataclass(frozen=True)
class Roof:
    """What one workload may reach: pi FLOP/s, beta byte/s (None where not measured), t0 s."""

    pi: Interval | None
    beta: Interval | None
    t0: float = 0.0

    @property
    def ridge(self) -> Interval | None:
        """Ridge point in FLOP/byte; the widths of pi and beta add in quadrature on the log scale."""
        from bench.fitting.intervals import ratio

        return ratio(self.pi, self.beta) if self.pi and self.beta else None


def place(
    samples: Sequence[Sample], ceilings: Sequence[Ceiling], curves: Sequence[Curve]
) -> tuple[Placement, ...]:
    """Every measured workload on its roof: one placement for all rounds of a point, by rising intensity.

    DeviceError names a sample whose times are not positive. Workloads without any roof: see `unplaced`.
    """
    placed = ((group, roof_of(group[0], ceilings, curves)) for group in groups(samples))
    found = [_placement(group, roof) for group, roof in placed if _usable(group[0], roof)]
    return tuple(sorted(found, key=lambda p: (p.intensity, p.name, p.threads)))


def unplaced(samples: Sequence[Sample], ceilings: Sequence[Ceiling]) -> tuple[str, ...]:
    """In words, which measured workloads have no roof to stand on."""
    firsts = (group[0] for group in groups(samples))
    return tuple(
        f"workload {s.point.kernel}: no beta of {_level(s)} measured with {s.point.threads} threads"
        for s in firsts
        if not _usable(s, roof_of(s, ceilings, ()))
    )


def groups(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The good, non-pilot workload samples of each point, one or more a round, all of one execution."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.point.family == "workload" and sample.status == "ok" and sample.regime != "pilot":
            found.setdefault(sample.point.key, []).append(one_execution(sample))
    return list(found.values())


def one_execution(sample: Sample) -> Sample:
    """A sample whose repetition is one execution: on a GPU it is a batch of `amount` of them."""
    count = int(sample.facts.get("amount", 1))
    if count == 1:
        return sample
    seconds = tuple(s / count for s in sample.repetitions.seconds)
    return replace(
        sample,
        flops=sample.flops / count,
        bytes_read=sample.bytes_read / count,
        bytes_written=sample.bytes_written / count,
        repetitions=replace(sample.repetitions, seconds=seconds),
        facts={**sample.facts, "amount": 1},
    )


def round_rates(group: Sequence[Sample]) -> list[float]:
    """Executions per second of each round: from the median time of its clean repetitions."""
    from bench.fitting.intervals import MEDIAN, clean_rates, quantile

    rounds: dict[int, list[float]] = {}
    for sample in group:
        _refuse_times(sample)
        rounds.setdefault(sample.round, []).extend(clean_rates(1.0, sample.repetitions).rates)
    return [1 / quantile([1 / rate for rate in rates], MEDIAN) for rates in rounds.values()]


def _refuse_times(sample: Sample) -> None:
    seconds = sample.repetitions.seconds
    bad = [s for s in seconds if not (s > 0 and math.isfinite(s))]
    if bad or not seconds:
        what = f"took {bad[0]:g} s" if bad else "has no timed repetition"
        raise DeviceError(
            f"sample {sample.point.key} of round {sample.round} {what}: the timer or the file is broken; "
            "remove the sample or measure it again"
        )


def _level(sample: Sample) -> str:
    return sample.point.level or "DRAM"


def roof_of(sample: Sample, ceilings: Sequence[Ceiling], curves: Sequence[Curve]) -> Roof:
    """The roof that a workload stands under, by the rule above."""
    point = sample.point
    same = [c for c in ceilings if c.threads == point.threads]
    level = [c for c in same if c.quantity == "beta" and c.level == _level(sample)]
    in_place = _in_place(sample)
    fraction = sample.bytes_read / sample.bytes if sample.bytes else 1.0
    beta = beta_at(fraction, in_place, point.precision, level)
    return Roof(_pi(point.precision, same), beta, _overhead(point.precision, point.threads, in_place, curves))


def _in_place(sample: Sample) -> bool:
    known = ZOO.get(sample.point.kernel)
    return bool(sample.facts.get("in_place", known.in_place if known else False))


def _pi(precision: Precision, ceilings: Sequence[Ceiling]) -> Interval | None:
    """Best pi of the precision in its units (a library takes whichever do it), warm before cold."""
    units = ("vector", "matrix") if precision.unit == "library" else (precision.unit,)
    wanted = {replace(precision, unit=unit).label for unit in units}
    fits = [c for c in ceilings if c.quantity == "pi" and c.precision.label in wanted]
    return _best(fits)


def _best(ceilings: Sequence[Ceiling]) -> Interval | None:
    """The highest estimate of the preferred regime that is there at all."""
    for regime in REGIMES:
        if found := [c.estimate for c in ceilings if c.regime == regime]:
            return max(found, key=lambda estimate: estimate.value)
    return None


def beta_at(
    fraction: float, in_place: bool, precision: Precision, ceilings: Sequence[Ceiling]
) -> Interval | None:
    """beta at a read fraction: linear between the nearest measured accesses, None without any.

    An access that was not measured in this precision is taken from the others: bytes are bytes.
    """
    accesses = ("write", "update" if in_place else "copy", "triad", "read")
    nodes: list[tuple[float, Interval]] = []
    for access in accesses:
        fits = [c for c in ceilings if c.access == access]
        own = [c for c in fits if c.precision.inputs == precision.inputs]
        if best := _best(own) or _best(fits):
            nodes.append((READ_FRACTION[access], best))
    if not nodes:
        return None
    left = max((n for n in nodes if n[0] <= fraction), default=nodes[0], key=lambda n: n[0])
    right = min((n for n in nodes if n[0] >= fraction), default=nodes[-1], key=lambda n: n[0])
    gap = right[0] - left[0]
    return _between(left[1], right[1], (fraction - left[0]) / gap if gap > 0 else 0.0)


def _between(a: Interval, b: Interval, share: float) -> Interval:
    """a and b mixed linearly, ends of the intervals as well."""

    def mix(x: float | None, y: float | None) -> float | None:
        return None if x is None or y is None else (1 - share) * x + share * y

    if share == 0:
        return a
    return Interval((1 - share) * a.value + share * b.value, mix(a.low, b.low), mix(a.high, b.high))


def _overhead(precision: Precision, threads: int, in_place: bool, curves: Sequence[Curve]) -> float:
    """T0 of the chosen fit of the sweep most like the workload, 0 without one."""
    wanted = "in-place" if in_place else "read-only"
    like = [
        c
        for c in curves
        if c.kind == "mix" and c.threads == threads and c.precision.inputs == precision.inputs
    ]
    fits = [fit for c in sorted(like, key=lambda c: c.mode != wanted) for fit in c.fits if fit.chosen]
    return fits[0].t0 if fits else 0.0


def _usable(sample: Sample, roof: Roof) -> bool:
    return (roof.beta is not None and sample.bytes > 0) or (roof.pi is not None and sample.flops > 0)


def attainable(flops: float, moved: float, roof: Roof) -> Interval:
    """min(pi, beta I) in FLOP/s, or beta in byte/s where flops is 0; ends of the interval as well."""
    if not flops:
        assert roof.beta is not None
        return roof.beta
    limits = [roof.pi] if roof.pi else []
    if roof.beta and moved:
        limits.append(_scaled(roof.beta, lambda beta: beta * flops / moved))
    lows, highs = [x.low for x in limits], [x.high for x in limits]
    known_low, known_high = [x for x in lows if x is not None], [x for x in highs if x is not None]
    whole = len(known_low) == len(limits) == len(known_high)
    value = min(x.value for x in limits)
    return Interval(value, min(known_low), min(known_high)) if whole else Interval(value)


def _scaled(x: Interval, by: Callable[[float], float]) -> Interval:
    """An increasing function of value, low and high."""
    return Interval(by(x.value), None if x.low is None else by(x.low), None if x.high is None else by(x.high))


def _inverse(x: Interval) -> Interval:
    return Interval(1 / x.value, None if x.high is None else 1 / x.high, None if x.low is None else 1 / x.low)


@dataclass(frozen=True)
class _Times:
    """Seconds that the arithmetic, the traffic and the launch each need at least."""

    compute: float
    memory: float
    launch: float

    @property
    def least(self) -> float:
        return self.launch + max(self.compute, self.memory)


def _times(sample: Sample, roof: Roof) -> _Times:
    compute = sample.flops / roof.pi.value if roof.pi else 0.0
    memory = sample.bytes / roof.beta.value if roof.beta else 0.0
    return _Times(compute, memory, roof.t0)


def _inside(x: float, interval: Interval | None) -> bool:
    if interval is None or interval.low is None or interval.high is None:
        return False
    return interval.low <= x <= interval.high


def binding(sample: Sample, roof: Roof) -> str:
    """launch | memory | compute, or "cannot tell" where the intensity lies inside the ridge's interval."""
    times = _times(sample, roof)
    if times.launch > max(times.compute, times.memory):
        return "launch"
    intensity = sample.flops / sample.bytes if sample.bytes else math.inf
    if _inside(intensity, roof.ridge):
        return "cannot tell"
    return "memory" if times.memory >= times.compute else "compute"


def idle_share(sample: Sample, roof: Roof, seconds: float) -> float:
    """Share of the measured time in which the resource that does not bind has nothing to do."""
    times = _times(sample, roof)
    return min(1.0, max(0.0, 1.0 - min(times.compute, times.memory) / seconds))


def _placement(group: Sequence[Sample], roof: Roof) -> Placement:
    from bench.fitting.intervals import interval, ratio

    first = group[0]
    rate = interval(round_rates(group))
    work = first.flops or first.bytes
    achieved = _scaled(rate, lambda executions: executions * work)
    limit = attainable(first.flops, first.bytes, roof)
    efficiency = ratio(achieved, limit)
    seconds = _inverse(rate)
    known = ZOO.get(first.point.kernel)
    return Placement(
        name=first.point.kernel,
        precision=first.point.precision,
        level=_level(first),
        threads=first.point.threads,
        implementation=first.point.variant,
        flops=first.flops,
        bytes_read=first.bytes_read,
        bytes_written=first.bytes_written,
        seconds=seconds,
        achieved=achieved,
        attainable=limit,
        efficiency=efficiency,
        unit="FLOP/s" if first.flops else "byte/s",
        binds=binding(first, roof),
        idle=idle_share(first, roof, seconds.value),
        least_seconds=_times(first, roof).least,
        source=known.source if known else str(first.facts.get("source", "")),
        note=_note(first, roof, efficiency),
    )


def _note(sample: Sample, roof: Roof, efficiency: Interval) -> str:
    notes = []
    if efficiency.value > ABOVE_ROOF and efficiency.low is not None and efficiency.low <= 1.0:
        notes.append(
            f"{efficiency.value - 1:.0%} above its roof, which lies within its interval: machine and roof "
            "moved between the rounds, more of them will tell"
        )
    elif efficiency.value > ABOVE_ROOF:
        notes.append(
            f"above roof: {efficiency.value - 1:.0%} more than is possible; check the FLOP and byte counts, "
            "the timing, and whether the operands were cold"
        )
    if roof.pi is None and sample.flops:
        notes.append(f"no pi measured for {sample.point.precision.inputs}: placed under the bandwidth alone")
    if roof.beta is None:
        notes.append(f"no beta of {_level(sample)} measured: placed under pi alone")
    return "; ".join(notes)
