"""How a rate grows with what works at once: bytes in flight (Little's law), cores or SMs in use.

Little: beta = bytes in flight / latency while nothing else binds. The product latency x beta is what must be
in flight to reach beta; half of it gives half of beta where the corner is sharp, more where it is round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NEARLY = 0.9
"""Share of the best rate at which a resource counts as taken up."""


def reaching(amounts: Sequence[float], rates: Sequence[float], share: float) -> float | None:
    """The least amount at which `share` of the best rate is reached, between measured ones on logarithms.

    amounts: rising;  None where the first amount is beyond it already
    """
    target = share * max(rates)
    first = next(i for i, rate in enumerate(rates) if rate >= target)
    if first == 0:
        return None
    low, high = np.log(rates[first - 1]), np.log(rates[first])
    way = (np.log(target) - low) / (high - low)
    return float(amounts[first - 1] * (amounts[first] / amounts[first - 1]) ** way)


def concurrency(in_flight: Sequence[float], rates: Sequence[float], latency: float | None) -> dict[str, Any]:
    """What a curve of byte/s over bytes in flight says beside the latency (s) of one access.

    half_bytes: where half of the best rate is reached;  little_bytes: latency x best rate, what Little's law
    asks for;  first_ratio: the rate of the least in flight over in flight / latency (1 where the law holds)
    """
    best = max(rates)
    found: dict[str, Any] = {"beta": best, "half_bytes": reaching(in_flight, rates, 0.5)}
    found["nearly_bytes"] = reaching(in_flight, rates, NEARLY)
    if latency:
        found["latency_s"] = latency
        found["little_bytes"] = latency * best
        found["first_ratio"] = rates[0] * latency / in_flight[0]
    found["rising"] = bool(rates[-1] >= 0.98 * best and len(rates) > 1 and rates[-1] > 1.05 * rates[-2])
    return found


def cores(units: Sequence[float], rates: Sequence[float]) -> dict[str, Any]:
    """What a curve over threads or SMs says.

    first, all: rate of the least and of the most units;  slope_first, slope_all: rate a unit there, and what
    the last units add each;  nearly_units: how many reach nine tenths of the best
    """
    found: dict[str, Any] = {
        "first": rates[0],
        "all": rates[-1],
        "best": max(rates),
        "slope_first": rates[0] / units[0],
        "slope_all": rates[-1] / units[-1],
        "efficiency": rates[-1] / units[-1] / (rates[0] / units[0]),
        "nearly_units": _whole(units, rates),
    }
    if len(units) > 1:
        found["slope_last"] = (rates[-1] - rates[-2]) / (units[-1] - units[-2])
    return found


def _whole(units: Sequence[float], rates: Sequence[float]) -> int:
    """Units, as a whole number, at which NEARLY of the best is reached."""
    found = reaching(units, rates, NEARLY)
    return int(units[0]) if found is None else int(np.ceil(found - 1e-6))
