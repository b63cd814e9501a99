"""Robust least squares in a box, by NumPy alone: GPU machines often carry no SciPy.

Minimises  sum over i of  s^2 (sqrt(1 + (r_i / s)^2) - 1),  the soft-L1 cost: squares of small residuals,
absolute values of those beyond the scale s. Levenberg-Marquardt steps with the weights of the current
residuals (Triggs et al., Bundle Adjustment, 2000, section 4.3), parameters at a bound held there as long as
the slope pushes them out (Kelley, Iterative Methods for Optimization, 1999, chapter 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DAMPING, EASED, TIGHTENED, MOST_DAMPING = 1e-2, 0.2, 5.0, 1e12
"""Damping at first, its factor after a step that lowers the cost, after one that does not, and the end."""

LEAST_CURVATURE = 0.1
"""Share of its weight that a residual keeps in the curvature at least, so that outliers leave it positive."""

FLAT, TINY = 1e-9, 1e-300
"""Curvature, as a share of the largest, below which a direction counts as flat and is hardly walked."""

SETTLED = 3
"""Steps in a row that gain next to nothing before a solution is final: one may be short by its damping."""


@dataclass(frozen=True)
class Descent:
    """Where the cost is least, and that cost."""

    x: Array
    cost: float


def soft_cost(residual: Array, scale: float) -> float:
    """Soft-L1 cost of residuals, half of their sum of squares where all are small."""
    return float(scale**2 * np.sum(np.sqrt(1 + (residual / scale) ** 2) - 1))


def descend(
    residuals: Callable[[Array], Array],
    jacobian: Callable[[Array], Array],
    start: Array,
    low: Array,
    high: Array,
    scale: float,
    tolerance: float,
    evaluations: int,
) -> Descent:
    """Least soft-L1 cost near `start`, every parameter between `low` and `high`.

    residuals, jacobian: of the parameters, one row a residual
    tolerance: relative change of the cost, or of all parameters, at which the descent ends
    """
    x = np.clip(start, low, high)
    residual = residuals(x)
    cost, damping, settled = soft_cost(residual, scale), DAMPING, 0
    slope, curvature = _model(residual, jacobian(x), scale)
    for _ in range(evaluations):
        step = _step(x, slope, curvature, damping, low, high)
        tried = np.clip(x + step, low, high)
        moved = tried - x
        if np.all(np.abs(moved) <= tolerance * (np.abs(x) + tolerance)):
            break
        residual = residuals(tried)
        found = soft_cost(residual, scale)
        if not found < cost:
            damping *= TIGHTENED
            if damping > MOST_DAMPING:
                break
            continue
        settled = settled + 1 if cost - found <= tolerance * cost else 0
        x, cost, damping = tried, found, damping * EASED
        if settled == SETTLED:
            break
        slope, curvature = _model(residual, jacobian(x), scale)
    return Descent(x, cost)


def _model(residual: Array, jacobian: Array, scale: float) -> tuple[Array, Array]:
    """Slope of the cost and its curvature, positive by LEAST_CURVATURE."""
    bent = 1 + (residual / scale) ** 2
    weight = 1 / np.sqrt(bent)
    curved = weight * np.maximum(1 / bent, LEAST_CURVATURE)
    return jacobian.T @ (weight * residual), (jacobian.T * curved) @ jacobian


def _step(x: Array, slope: Array, curvature: Array, damping: float, low: Array, high: Array) -> Array:
    """Damped step of the parameters that are free to move; the others rest at their bounds."""
    free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
    step = np.zeros_like(x)
    if free.any():
        square = curvature[np.ix_(free, free)]
        diagonal = np.diag(square)
        raised = square + np.diag(damping * diagonal + FLAT * max(diagonal.max(), TINY))
        step[free] = -np.linalg.lstsq(raised, slope[free], rcond=None)[0]
    return step
