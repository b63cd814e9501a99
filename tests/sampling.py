"""One sample of a point, as a round measures it."""

from __future__ import annotations

from bench.backends.cpu import CpuBackend
from bench.planning import link_points
from bench.profile.records import Point, Sample
from bench.running.measure import Session


def sampled(backend: CpuBackend, point: Point) -> Sample:
    """The point as a round measures it, quickly."""
    planned = link_points.Planned(point, 1, 0.1, 0.5, -1.0, 1e-4, 1e-3, 3)
    return Session(backend, 1, 1).sample(planned, 0)
