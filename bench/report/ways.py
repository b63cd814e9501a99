"""What `laws` prints: where the job stands, then the speed-up of every way up under every law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bench import laws
from bench.laws import Job, Roof, Way
from bench.profile import roofline
from bench.profile.records import Interval
from bench.report.units import duration, number, percent, si


def record(
    job: Job, ways: Sequence[Way], omega: Interval | None, roof: Roof | None, intensity: float | None
) -> dict[str, Any]:
    """The JSON of the verb: SI units; null where a thing is not known (a factor: without limit)."""
    return {
        "roof": None if roof is None else _roof(roof),
        "intensity": intensity,
        "overlap": omega,
        "job": {
            "compute_seconds": job.compute,
            "movement_seconds": job.movement,
            "t0_seconds": job.t0,
            "compute_share": job.compute_share,
            "serial_seconds": job.seconds(1.0),
            "measured_seconds": None if omega is None else job.measured_seconds(omega),
            "overlapped_seconds": job.seconds(roofline.INFINITY),
        },
        "ways": [vars(way) for way in ways],
    }


def _roof(roof: Roof) -> dict[str, Any]:
    """The roof with its ridge, and of the fit only the name of its form (null without one)."""
    values = {name: value for name, value in vars(roof).items() if name != "fit"}
    return {**values, "ridge": roof.ridge, "form": roof.fit.form if roof.fit else None}


def render(
    job: Job, ways: Sequence[Way], omega: Interval | None, roof: Roof | None, intensity: float | None
) -> str:
    """The same in words, at most 100 columns."""
    placed = _placed(job, roof, intensity) if roof and intensity is not None else _timed(job)
    return "\n".join((*placed, *_overlap(omega), "", *_table(ways, omega is not None))) + "\n"


def _placed(job: Job, roof: Roof, intensity: float) -> Iterator[str]:
    yield f"roof: π {si(roof.pi, 'FLOP/s')}, β {si(roof.beta, 'byte/s')} ({roof.source})"
    yield f"ridge π/β {number(roof.ridge)} FLOP/byte; at {number(intensity)} FLOP/byte {_binds(job)}"
    yield f"compute is {percent(job.compute_share)} of a serial run (q)"
    if roof.t0:
        size = si(laws.work_at_half_rate(intensity, roof), "FLOP")
        yield f"T₀ {duration(roof.t0)}: half the time of a launch of {size}"
        if not job.t0:
            yield "   not counted below: give the work of one launch with --flops"


def _timed(job: Job) -> Iterator[str]:
    yield f"compute {duration(job.compute)}, movement {duration(job.movement)}, T₀ {duration(job.t0)}"
    yield f"{_binds(job)}; compute is {percent(job.compute_share)} of a serial run (q)"


def _binds(job: Job) -> str:
    if math.isclose(job.compute, job.movement, rel_tol=1e-6):
        return "both bind"
    return "compute binds" if job.compute > job.movement else "memory binds"


def _overlap(omega: Interval | None) -> Iterator[str]:
    if omega is None:
        yield "overlap not known: the truth lies between the two laws"
    else:
        p = number(laws.norm(omega.value))
        yield f"overlap ω {number(omega.value)} (p = {p}): 0 serial, 1 perfectly hidden"


def _table(ways: Sequence[Way], known: bool) -> Iterator[str]:
    middle = f"{'at overlap ω':>26}" if known else ""
    yield f"{'speed-up':<12}{'factor':>8}{'serial (Amdahl, p = 1)':>25}{middle}{'overlapped (p → ∞)':>22}"
    for way in ways:
        factor = "limit" if way.factor is None else f"{number(way.factor)}x"
        between = f"{_measured(way.measured):>26}" if known else ""
        name = way.way.replace("pi", "π").replace("beta", "β").replace("T0", "T₀")
        yield f"{name:<12}{factor:>8}{_times(way.serial):>25}{between}{_times(way.overlapped):>22}"


def _times(value: float) -> str:
    return f"{number(value)}x"


def _measured(interval: Interval | None) -> str:
    if interval is None:
        return ""
    ends = "" if interval.low is None else f" ({number(interval.low)} .. {number(interval.high)})"
    return f"{_times(interval.value)}{ends}"
