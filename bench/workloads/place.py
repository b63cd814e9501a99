"""Placement: real workloads on the measured roof, with what binds them and what lies idle.

A workload is placed on the roof of its own precision, threads, memory level and read fraction (roof.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bench.errors import DeviceError
from bench.profile.records import Ceiling, Curve, Interval, Placement, Sample
from bench.workloads.roof import Roof, attainable, binding, roof, scaled, started
from bench.workloads.zoo import ZOO

ABOVE_ROOF = 1.03
"""Achieved over attainable from which a placement is not believed: beyond any measured width."""


def place(
    samples: Sequence[Sample], ceilings: Sequence[Ceiling], curves: Sequence[Curve]
) -> tuple[Placement, ...]:
    """Every measured workload on its roof: one placement for all rounds of a point, by rising intensity.

    DeviceError names a sample whose times are not positive. Workloads without any roof: see `unplaced`.
    """
    found = []
    for group in groups(samples):
        point, roof = group[0].point, roof_of(group[0], ceilings, curves)
        if _usable(group[0], roof):
            found.append(_placement(group, roof, started(point.variant, point.threads, ceilings)))
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
    """The roof that a workload stands under."""
    point = sample.point
    fraction = sample.bytes_read / sample.bytes if sample.bytes else 1.0
    return roof(point.precision, point.threads, _level(sample), fraction, _in_place(sample), ceilings, curves)


def _in_place(sample: Sample) -> bool:
    known = ZOO.get(sample.point.kernel)
    return bool(sample.facts.get("in_place", known.in_place if known else False))


def _usable(sample: Sample, roof: Roof) -> bool:
    return (roof.beta is not None and sample.bytes > 0) or (roof.pi is not None and sample.flops > 0)


def idle_share(sample: Sample, roof: Roof, seconds: float) -> float:
    """Share of the measured time in which the resource that does not bind has nothing to do."""
    busy = min(roof.compute(sample.flops), roof.memory(sample.bytes))
    return min(1.0, max(0.0, 1.0 - busy / seconds))


def _placement(group: Sequence[Sample], roof: Roof, start: Interval | None) -> Placement:
    from bench.fitting.intervals import interval, inverse, ratio

    first = group[0]
    rate = interval(round_rates(group))
    work = first.flops or first.bytes
    achieved = scaled(rate, lambda executions: executions * work)
    limit = attainable(first.flops, first.bytes, roof)
    efficiency = ratio(achieved, limit)
    seconds = inverse(rate)
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
        binds=binding(first.flops, first.bytes, roof, start.value if start else None, seconds.value),
        idle=idle_share(first, roof, seconds.value),
        least_seconds=roof.seconds(first.flops, first.bytes),
        source=known.source if known else str(first.facts.get("source", "")),
        note=_note(first, roof, efficiency),
    )


def _note(sample: Sample, roof: Roof, efficiency: Interval) -> str:
    notes, beyond = [], f"{100 * (efficiency.value - 1):.0f} %"
    if efficiency.value > ABOVE_ROOF and efficiency.low is not None and efficiency.low <= 1.0:
        notes.append(
            f"{beyond} above its roof, which lies within its interval: machine and roof "
            "moved between the rounds, more of them will tell"
        )
    elif efficiency.value > ABOVE_ROOF:
        notes.append(
            f"above roof: {beyond} more than is possible; check the FLOP and byte counts, "
            "the timing, and whether the operands were cold"
        )
    if roof.pi is None and sample.flops:
        notes.append(f"no pi measured for {sample.point.precision.inputs}: placed under the bandwidth alone")
    if roof.beta is None:
        notes.append(f"no beta of {_level(sample)} measured: placed under pi alone")
    return "; ".join(notes)
