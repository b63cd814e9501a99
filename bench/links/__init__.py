"""The links of a host and what happens on them: storage, TCP, memory nodes, pipelining, team start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.backends import Prepared
    from bench.backends.machine import Machine
    from bench.profile.records import Point

FAMILIES = ("launch", "link", "overlap")
"""Families whose points on a host are prepared here; the other process of a link imports this file."""


def unsupported(point: Point, facts: Mapping[str, Any]) -> str:
    """The reason why a point of these families cannot be measured on the host with these device facts."""
    from bench.backends import workload_start
    from bench.links import numa, pipeline, storage

    if point.family == "launch" and (reason := workload_start.unsupported(point)):
        return reason
    if point.kernel == "remote-read":
        return numa.unsupported(point, facts)
    if point.kernel == "storage":
        return storage.unsupported(point)
    if point.kernel == "pipeline":
        return pipeline.unsupported(point)
    known = ("loopback", "tcp", "empty", "smallest")
    return "" if point.kernel in known else f"{point.kernel} is measured on GPUs only"


def prepare(point: Point, machine: Machine) -> Prepared:
    """The handle of one point on the host; DeviceError or ResourceError says what is wrong."""
    from bench.links import messages, numa, pipeline, storage, team_start

    if point.family == "launch":
        return team_start.prepare(point, machine.team, machine.isa)
    if point.family == "overlap":
        return pipeline.prepare(point, machine.team.cpus, machine.isa)
    if point.kernel == "remote-read":
        return numa.prepare(point, machine.device.facts, machine.isa)
    return storage.prepare(point) if point.kernel == "storage" else messages.prepare(point, machine.team.cpus)
