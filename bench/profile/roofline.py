"""The roofline and the laws behind it as pure functions: no clock, device, file or plot.

One model: T(F, Q) = T0 + ((F/pi)^p + (Q/beta)^p)^(1/p). p -> infinity is the roofline
(Williams, Waterman, Patterson, CACM 52(4), 2009); p = 1 is serial execution, Amdahl's law.
A device short of power has a third term beside the two: max(F/pi, Q/beta, F/pi_c + Q/beta_c)
(Choi, Bedard, Fowler, Vuduc, IPDPS 2013). A device whose clock falls has pi * clock / reference clock.
Units: F in FLOP, Q in byte, pi in FLOP/s, beta in byte/s, intensity in FLOP/byte, time in s.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .records import Fit, Interval

INFINITY = float("inf")


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def ridge_point(pi: float, beta: float) -> float:
    """Intensity (FLOP/byte) from which pi and no longer beta bounds the rate."""
    _positive(pi=pi, beta=beta)
    return pi / beta


def attainable(intensity: float, pi: float, beta: float) -> float:
    """The roofline min(pi, beta * intensity) in FLOP/s."""
    _positive(pi=pi, beta=beta)
    return min(pi, beta * intensity)


def seconds(
    flops: float, moved: float, pi: float, beta: float, p: float = INFINITY, t0: float = 0.0
) -> float:
    """Time of `flops` FLOP and `moved` byte under the p-norm model, in s."""
    _positive(pi=pi, beta=beta, p=p)
    compute, memory = flops / pi, moved / beta
    longest = max(compute, memory)
    if longest == 0 or math.isinf(p):
        return t0 + longest
    return t0 + longest * float(((compute / longest) ** p + (memory / longest) ** p) ** (1 / p))


def rate(intensity: float, pi: float, beta: float, p: float = INFINITY) -> float:
    """Rate in FLOP/s at `intensity` under the p-norm model without launch overhead."""
    return intensity / seconds(intensity, 1.0, pi, beta, p)


def overlap(p: float) -> float:
    """Overlap at the ridge, omega = 2 - 2^(1/p): 0 serial (p = 1), 1 fully hidden."""
    _positive(p=p)
    return 1.0 if math.isinf(p) else 2.0 - 2.0 ** (1.0 / p)


def norm_of_overlap(omega: float) -> float:
    """The p of a given overlap at the ridge; inverse of `overlap` on [0, 1]."""
    if not 0.0 <= omega <= 1.0:
        raise ValueError(f"overlap must lie in [0, 1], got {omega}")
    return INFINITY if omega == 1.0 else 1.0 / math.log2(2.0 - omega)


def capped_seconds(
    flops: float, moved: float, pi: float, beta: float, pi_c: float, beta_c: float, t0: float = 0.0
) -> float:
    """Time under the power-capped form, in s; pi_c FLOP/s and beta_c byte/s are those of the cap alone."""
    _positive(pi=pi, beta=beta, pi_c=pi_c, beta_c=beta_c)
    return t0 + max(flops / pi, moved / beta, flops / pi_c + moved / beta_c)


def capped_overlap(pi: float, beta: float, pi_c: float, beta_c: float) -> float:
    """Overlap at the ridge of the power-capped form, omega = 2 - T(ridge) / T_max."""
    _positive(pi=pi, beta=beta, pi_c=pi_c, beta_c=beta_c)
    return 2.0 - max(1.0, pi / pi_c + beta / beta_c)


def held_clock(fit: Fit, intensity: float) -> float:
    """Share of its reference clock that the device held at `intensity`; 1 for forms without clocks.

    Linear in log(intensity) between the points of the sweep, constant beyond its ends.
    """
    at, clocks = fit.held_intensity, fit.held_clock_hz
    if not at or not fit.clock_hz:
        return 1.0
    if intensity <= at[0] or len(at) == 1:
        return clocks[0] / fit.clock_hz
    for i in range(1, len(at)):
        if intensity <= at[i] and at[i - 1] < at[i]:
            share = math.log(intensity / at[i - 1]) / math.log(at[i] / at[i - 1])
            return (clocks[i - 1] + share * (clocks[i] - clocks[i - 1])) / fit.clock_hz
    return clocks[-1] / fit.clock_hz


def rescaled(fit: Fit, pi: float, beta: float) -> Fit:
    """The same form between another pi (FLOP/s) and beta (byte/s): corner and overhead keep their shape."""
    _positive(pi=pi, beta=beta)
    up, along = pi / fit.pi.value, beta / fit.beta.value
    return replace(
        fit,
        pi=Interval(pi),
        beta=Interval(beta),
        ridge=Interval(pi / beta),
        pi_c=None if fit.pi_c is None else fit.pi_c * up,
        beta_c=None if fit.beta_c is None else fit.beta_c * along,
        held_intensity=tuple(x * up / along for x in fit.held_intensity),
    )


def fitted_seconds(flops: float, moved: float, fit: Fit) -> float:
    """Time of `flops` FLOP and `moved` byte, both above zero, under the form of `fit`, in s, with its T0."""
    return fit.t0 + _fitted_body(flops, moved, fit)


def fitted_rate(intensity: float, fit: Fit) -> float:
    """Rate in FLOP/s at `intensity` under the form of `fit` without launch overhead."""
    return intensity / _fitted_body(intensity, 1.0, fit)


def _fitted_body(flops: float, moved: float, fit: Fit) -> float:
    _positive(flops=flops, moved=moved)
    pi, beta = fit.pi.value, fit.beta.value
    if fit.pi_c is not None and fit.beta_c is not None:
        return capped_seconds(flops, moved, pi, beta, fit.pi_c, fit.beta_c)
    p = INFINITY if fit.p is None else fit.p
    return seconds(flops, moved, pi * held_clock(fit, flops / moved), beta, p)
