"""The ways up from where a job stands: what a factor s on pi, beta, I or T0 buys, by each law.

One model, T = T0 + (C^p + M^p)^(1/p), with C the seconds of compute alone and M those of movement
alone. p = 1 is Amdahl's law (serial), p -> infinity the max law (perfect overlap). Without T0 the
speed-up changes monotonically with p: d/dp of log (C^p + M^p)^(1/p) is minus an entropy over p^2 that
falls with |log C/M|, so its difference before and after keeps its sign. The two laws therefore always
bracket the speed-up at the measured overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.arguments import amount
from bench.errors import FileError, UsageError
from bench.profile import roofline
from bench.profile.records import Ceiling, Fit, Interval, Profile
from bench.report import heading, roofs
from kernels.mix import MODES

WAYS = ("raise pi", "raise beta", "raise I", "lower T0")
"""In time, s times the intensity (1/s of the bytes for the same FLOP) equals s times beta."""

MOST = 1e50
"""Numbers beyond it, or below its reciprocal, belong to no machine and would overflow what follows."""


@dataclass(frozen=True)
class Roof:
    """What a job runs under. pi FLOP/s, beta byte/s, t0 s; omega None where overlap is not known.

    fit: the chosen form of the sweep that omega is of, None where there is none
    """

    source: str
    pi: float
    beta: float
    omega: Interval | None = None
    t0: float = 0.0
    fit: Fit | None = None

    @property
    def ridge(self) -> float:
        """Intensity in FLOP/byte from which compute binds."""
        return roofline.ridge_point(self.pi, self.beta)


@dataclass(frozen=True)
class Job:
    """Where time goes: seconds of compute alone, of movement alone, and of launch overhead.

    fit: the chosen form between pi = 1 and beta = 1, so that it takes these seconds as its work
    """

    compute: float
    movement: float
    t0: float = 0.0
    fit: Fit | None = None

    def seconds(self, p: float) -> float:
        """Time under overlap exponent p."""
        return roofline.seconds(self.compute, self.movement, 1.0, 1.0, p, self.t0)

    def measured_seconds(self, omega: Interval) -> float:
        """Time under the chosen form where a fit is at hand, else under the p-norm of this overlap."""
        if self.fit and self.compute and self.movement:
            return self.t0 + self.compute / roofline.fitted_rate(self.compute / self.movement, self.fit)
        return self.seconds(norm(omega.value))

    @property
    def compute_share(self) -> float:
        """q, the share of compute in a serial run: I beta / (pi + I beta)."""
        return self.compute / (self.compute + self.movement)

    def after(self, way: str, factor: float) -> Job:
        """The job once `way` is improved by `factor`, which may be infinite."""
        if way not in WAYS:
            raise ValueError(f"unknown way {way!r}; valid: {', '.join(WAYS)}")
        if not factor > 0:
            raise ValueError(f"factor must be positive, got {factor}")
        return Job(
            self.compute / (factor if way == "raise pi" else 1.0),
            self.movement / (factor if way in ("raise beta", "raise I") else 1.0),
            self.t0 / (factor if way == "lower T0" else 1.0),
            self.fit,
        )


@dataclass(frozen=True)
class Way:
    """Speed-up of one way by one factor (None: without limit) under each law.

    measured: at the measured overlap with the ends of its interval, None where it is not known
    """

    way: str
    factor: float | None
    serial: float
    measured: Interval | None
    overlapped: float


def norm(omega: float) -> float:
    """The exponent p of an overlap; a fitted omega just outside [0, 1] counts as the nearer end."""
    return roofline.norm_of_overlap(min(max(omega, 0.0), 1.0))


def speed_up(job: Job, way: str, factor: float, p: float) -> float:
    """Time before over time after."""
    after = job.after(way, factor).seconds(p)
    return job.seconds(p) / after if after else roofline.INFINITY


def ways_up(job: Job, factors: Sequence[float], omega: Interval | None = None) -> tuple[Way, ...]:
    """Every way at every factor, and its limit (factor None), with `omega` the measured overlap."""
    return tuple(
        Way(
            way=way,
            factor=None if math.isinf(factor) else factor,
            serial=speed_up(job, way, factor, 1.0),
            measured=None if omega is None else _measured(job, way, factor, omega),
            overlapped=speed_up(job, way, factor, roofline.INFINITY),
        )
        for way in WAYS
        for factor in (*factors, roofline.INFINITY)
    )


def _measured(job: Job, way: str, factor: float, omega: Interval) -> Interval:
    after = job.after(way, factor).measured_seconds(omega)
    value = job.measured_seconds(omega) / after if after else roofline.INFINITY
    if omega.low is None or omega.high is None:
        return Interval(value)
    ends = [value, *(speed_up(job, way, factor, norm(end)) for end in (omega.low, omega.high))]
    return Interval(value, min(ends), max(ends))


def work_at_half_rate(intensity: float, roof: Roof) -> float:
    """FLOP of the launch whose time is half T0, half work: below it T0 rules."""
    if roof.fit:
        return roof.t0 * roofline.fitted_rate(intensity, roofline.rescaled(roof.fit, roof.pi, roof.beta))
    p = roofline.INFINITY if roof.omega is None else norm(roof.omega.value)
    return roof.t0 * roofline.rate(intensity, roof.pi, roof.beta, p)


def placed_job(roof: Roof, intensity: float, flops: float | None = None) -> Job:
    """The job at `intensity` FLOP/byte: of one byte without T0, or of `flops` FLOP with it."""
    _positive("--intensity", intensity)
    moved = 1.0 if flops is None else _positive("--flops", flops) / intensity
    fit = roofline.rescaled(roof.fit, 1.0, 1.0) if roof.fit else None
    return Job(intensity * moved / roof.pi, moved / roof.beta, 0.0 if flops is None else roof.t0, fit)


def timed_job(movement: float | None, compute: float | None, overhead: float | None = None) -> Job:
    """The job of known seconds; UsageError unless both movement and compute are given and positive."""
    if movement is None or compute is None:
        raise UsageError("--movement and --compute belong together: give the seconds of each alone")
    return Job(_positive("--compute", compute), _positive("--movement", movement), _overhead(overhead, 0.0))


def factors(values: Sequence[float]) -> tuple[float, ...]:
    """The factors asked for; UsageError unless all are positive."""
    return tuple(_positive("--factor", value) for value in values)


def given_overlap(omega: float | None) -> Interval | None:
    """The overlap asked for; UsageError outside [0, 1]."""
    if omega is None:
        return None
    if not 0 <= omega <= 1:
        raise UsageError(f"--overlap must lie in 0 (serial) to 1 (perfectly hidden), got {omega:g}")
    return Interval(omega)


def given_roof(pi: str, beta: str, overhead: float | None = None) -> Roof:
    """The roof of two quantities in words; UsageError when one lacks or has another unit."""
    if not (pi and beta):
        raise UsageError("--pi and --beta belong together: give both, or a FOLDER that holds them")
    t0 = _overhead(overhead, 0.0)
    return Roof("given", _quantity("--pi", pi, "FLOP/s"), _quantity("--beta", beta, "byte/s"), None, t0)


def _quantity(option: str, text: str, unit: str) -> float:
    return _positive(option, amount(option, text, unit))


def _positive(option: str, value: float) -> float:
    if not 0 < value < roofline.INFINITY:
        raise UsageError(f"{option} must be a positive number, got {value:g}")
    if not 1 / MOST <= value <= MOST:
        raise UsageError(f"{option} must lie within {1 / MOST:g} to {MOST:g}, got {value:g}")
    return value


def _overhead(given: float | None, known: float) -> float:
    if given is None:
        return known
    if not 0 <= given < roofline.INFINITY:
        raise UsageError(f"--overhead must be zero or a positive number of seconds, got {given:g}")
    return given


def measured_roof(
    profile: Profile, precision: str = "fp64", mode: str = "read-only", overhead: float | None = None
) -> Roof:
    """The roof of a profile: pi of `precision`, beta of the mode's access, overlap and T0 of its sweep.

    UsageError lists the valid precisions and modes; FileError says what was not measured.
    """
    beta = memory_of(profile, mode)
    peaks = {ceiling.precision.label: ceiling for ceiling in roofs.peaks(profile)}
    if not peaks:
        raise FileError("this profile holds no pi: run the fma family, or give --pi and --beta")
    if precision not in peaks:
        raise UsageError(f"no pi of precision {precision!r} in this profile; valid: {', '.join(peaks)}")
    pi = peaks[precision]
    source = f"{precision}, {beta.level} {beta.access}, {heading.counted(profile, pi.threads)}"
    if profile.simulated:
        source = f"SIMULATED, {source}"
    fit = _fit_of(profile, precision, mode, pi.threads)
    t0 = _overhead(overhead, fit.t0 if fit else 0.0)
    return Roof(source, pi.estimate.value, beta.estimate.value, fit.omega if fit else None, t0, fit)


def memory_of(profile: Profile, mode: str) -> Ceiling:
    """The beta of memory that a mode of the sweep moves its bytes with; UsageError and FileError as above."""
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}; valid: {', '.join(MODES)}")
    memory = {ceiling.access: ceiling for ceiling in roofs.main_memory(profile)}
    if MODES[mode] not in memory:
        raise FileError(f"this profile holds no beta of access {MODES[mode]}: run the stream family")
    return memory[MODES[mode]]


def _fit_of(profile: Profile, precision: str, mode: str, threads: int) -> Fit | None:
    for curve in profile.curves:
        if (curve.kind, curve.mode, curve.precision.label, curve.threads) == (
            "mix",
            mode,
            precision,
            threads,
        ):
            return roofs.chosen(curve)
    return None
