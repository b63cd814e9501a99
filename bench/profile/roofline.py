"""The roofline and the laws behind it as pure functions: no clock, device, file or plot.

One model: T(F, Q) = T0 + ((F/pi)^p + (Q/beta)^p)^(1/p). p -> infinity is the roofline
(Williams, Waterman, Patterson, CACM 52(4), 2009); p = 1 is serial execution, Amdahl's law.
Units: F in FLOP, Q in byte, pi in FLOP/s, beta in byte/s, intensity in FLOP/byte, time in s.
"""

from __future__ import annotations

import math

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
