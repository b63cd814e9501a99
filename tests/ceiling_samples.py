"""Hand-built samples, and the ceilings that are derived from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.fitting.ceilings import derive
from bench.profile.records import (
    Ceiling,
    Point,
    Precision,
    Profile,
    Repetitions,
    Sample,
)

FP64, FP32 = Precision.of("fp64"), Precision.of("fp32")


PEAK = Point("fma", "fma", "12 chains", FP64, threads=2)


NAIVE = Point("fma", "fma-naive", "numba", FP64, scope="core", threads=1)


READ = Point("stream", "read", "s3u4", FP64, "DRAM", "read", "none", threads=2, sizes={"bytes": 1 << 28})


HEADER: dict[str, Any] = {
    "identity": {"name": "CPU"},
    "provenance": {"commit": "abc"},
    "device": {"kind": "cpu", "name": "CPU", "state": "quiet"},
    "plan": {"points": 3, "rounds": 5},
}


def point(base: Point, **changes: Any) -> Point:
    """`base` with some fields changed."""
    return replace(base, **changes)


def sample(
    where: Point, number: int, rates: Sequence[float], flops: float = 1e9, moved: float = 8e9, **more: Any
) -> Sample:
    """A sample of round `number` whose repetitions reach `rates` (byte/s for streams, else FLOP/s)."""
    work = moved if where.family in ("stream", "cache") else flops
    evidence = {k: more.pop(k) for k in ("switches", "clock_hz", "power_w") if k in more}
    repetitions = Repetitions(seconds=tuple(work / r for r in rates), **evidence)
    return Sample(
        where,
        number,
        number,
        0,
        flops=flops,
        bytes_read=moved,
        repetitions=repetitions,
        **{"facts": {}, **more},
    )


def rounds(where: Point, values: Sequence[float], **more: Any) -> list[Sample]:
    """One sample a round, all five repetitions at the round's value."""
    return [sample(where, n, [value] * 5, **more) for n, value in enumerate(values, 1)]


def profile(samples: Sequence[Sample], header: Mapping[str, Any] = HEADER) -> Profile:
    """What is derived from the samples."""
    return derive(header, [{"round": 1, "load": 0.5}], samples)


def one(samples: Sequence[Sample], state: str = "quiet") -> Ceiling:
    """The only ceiling of the samples."""
    (ceiling,) = profile(samples, HEADER | {"device": {"kind": "cpu", "state": state}}).ceilings
    return ceiling
