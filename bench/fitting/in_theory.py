"""What share of a device's theoretical rate a measured one is, at the clock that it held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.profile.records import Point, Precision

COMPUTING = ("fma", "tensor", "gemm")
"""Families whose rate is one of arithmetic: what a cache gives a clock is told by no table here."""


def share(point: Point, per_clock: float | None, value: float, device: Mapping[str, Any]) -> float | None:
    """Share of the theoretical rate, None where the device's is not known (every CPU, new GPUs).

    per_clock: measured FLOP a cycle of each SM;  value: the rate itself, FLOP/s or byte/s
    device: as in a run's header; facts: compute_capability, memory_bus_bits, memory_clock_hz
    """
    facts = device.get("facts", {})
    capability = facts.get("compute_capability")
    if not capability:
        return None
    from bench.gpu.rates import bus_bytes_per_second, flops_per_clock_per_sm

    if point.level == "DRAM" and point.family == "stream":
        bus = bus_bytes_per_second(facts.get("memory_bus_bits"), facts.get("max_memory_clock_hz"))
        return value / bus if bus else None
    if per_clock is None or point.family not in COMPUTING:
        return None
    units = candidates(point.precision)
    name = board(str(device.get("kind", "")), str(device.get("name", "")))
    rates = (flops_per_clock_per_sm(int(capability), unit.label, name)[0] for unit in units)
    rate = next(filter(None, rates), None)
    return per_clock / rate if rate else None


def board(kind: str, name: str) -> str:
    """The name of a board as tables of boards know it: none of a simulated device, which has what it has."""
    return "" if kind == "simulated" else name


def candidates(precision: Precision) -> tuple[Precision, ...]:
    """The units that may do a precision, first choice first: a library does fp64 on matrix units that can."""
    own = in_units(precision)
    if precision.unit == "library" and precision.inputs == "fp64":
        return replace(own, unit="matrix"), own
    return (own,)


def in_units(precision: Precision) -> Precision:
    """The precision in the units that a library runs it on: vector for fp64 and strict fp32, else matrix."""
    if precision.unit != "library":
        return precision
    vector = precision.inputs in ("fp64", "fp32") and not precision.mode
    unit = "vector" if vector else "matrix"
    return Precision(precision.inputs, precision.accumulate, precision.output, unit, precision.mode)
