"""The tidy long table behind csv, json and parquet: one row a ceiling, fit parameter or placement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bench.profile.records import (
    TOOL_VERSION,
    WHOLE,
    Ceiling,
    Curve,
    Fit,
    Interval,
    Placement,
    Precision,
    Profile,
)
from bench.report import heading, roofs

TEXT, NUMBER, COUNT, TRUTH = "text", "number", "count", "truth"

REFERENCE = {
    "device": TEXT,
    "vendor": TEXT,
    "arch": TEXT,
    "cc": TEXT,
    "quantity": TEXT,
    "precision_or_level": TEXT,
    "value": NUMBER,
    "unit": TEXT,
    "kind": TEXT,
    "source": TEXT,
}
"""The columns of a table of datasheet and published figures, so that the two concatenate."""

RUN = {
    "stat": TEXT,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "n": COUNT,
    "sm_clock_mhz": NUMBER,
    "mem_clock_mhz": NUMBER,
    "power_w": NUMBER,
    "temperature_c": NUMBER,
    "driver": TEXT,
    "cuda": TEXT,
    "library": TEXT,
    "kernel": TEXT,
    "size": TEXT,
    "timestamp": TEXT,
    "uuid": TEXT,
    "mig": TEXT,
}
"""What a run of ours adds to a figure; empty where the device has no such thing."""

KEYS = {
    "precision": TEXT,
    "level": TEXT,
    "access": TEXT,
    "store": TEXT,
    "scope": TEXT,
    "threads": COUNT,
    "operands": TEXT,
    "regime": TEXT,
    "statistic": TEXT,
    "variant": TEXT,
    "best": NUMBER,
    "converged": TRUTH,
    "contended": NUMBER,
    "tool_version": TEXT,
    "commit": TEXT,
}
"""The keys of the record, which make each value comparable."""

OF_THE_DEVICE = ("vendor", "arch", "cc", "driver", "cuda", "uuid", "mig")
"""Columns taken from the profile's identity by the same name."""

QUANTITIES = {
    "pi": "peak_flops",
    "beta": "bandwidth",
    "latency": "latency",
    "t0": "overhead",
    "capacity": "capacity",
}
"""Of ceilings, as tables of published figures name them; an overhead is what the time of nothing takes."""

COLUMNS: dict[str, str] = {**REFERENCE, **RUN, **KEYS}


def rows(profile: Profile) -> list[dict[str, Any]]:
    """Every value of the profile as a row with all COLUMNS; SI units, None where not known."""
    empty = dict.fromkeys(COLUMNS) | _common(profile)
    return [empty | part for part in (*_ceilings(profile), *_fits(profile), *_placements(profile))]


def _common(profile: Profile) -> dict[str, Any]:
    identity, provenance = profile.identity, profile.provenance
    version = str(provenance.get("tool_version", TOOL_VERSION))
    commit = heading.commit(profile) or None
    return {
        "device": heading.device_name(profile),
        **{name: _text(identity.get(name)) for name in OF_THE_DEVICE},
        "kind": "simulated" if profile.simulated else "measured",
        "source": f"empirical-roofline {version}" + (f" at {commit}" if commit else ""),
        "timestamp": _text(provenance.get("time")),
        "tool_version": version,
        "commit": commit,
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _measured(interval: Interval) -> dict[str, Any]:
    return {"value": interval.value, "ci_low": interval.low, "ci_high": interval.high}


def _ceilings(profile: Profile) -> Iterator[dict[str, Any]]:
    for ceiling in profile.ceilings:
        yield {
            **_measured(ceiling.estimate),
            "quantity": QUANTITIES[ceiling.quantity],
            "precision_or_level": _name(ceiling),
            "unit": ceiling.unit,
            "stat": f"{ceiling.statistic}_{ceiling.regime}",
            "n": ceiling.rounds,
            "sm_clock_mhz": None if ceiling.clock_hz is None else ceiling.clock_hz / 1e6,
            "kernel": ceiling.kernel,
            "precision": ceiling.precision.label,
            **{
                key: getattr(ceiling, key)
                for key in KEYS
                if key not in ("precision", "tool_version", "commit")
            },
        }


def _name(ceiling: Ceiling) -> str:
    """fp64, fp32_gemm, dram_copy_nontemporal, l1_read_core: unique within a quantity and a stat."""
    kernel = ceiling.kernel.removeprefix("cache-")
    if ceiling.quantity == "pi":
        parts = [_types(ceiling.precision), "" if kernel == "fma" else kernel]
    elif ceiling.quantity != "beta" or roofs.is_link(ceiling):
        access = "" if ceiling.access == "none" else ceiling.access
        words = [
            ceiling.level,
            kernel,
            ceiling.variant,
            access,
            f"all{ceiling.threads}" * (ceiling.scope in WHOLE),
        ]
        parts = [re.sub(r"[ >]+", "_", word).lower() for word in words]
    else:
        inputs = ceiling.precision.inputs
        parts = [ceiling.level.lower(), kernel, "" if inputs == "fp64" else inputs]
    parts += [ceiling.store if ceiling.store == "nontemporal" else ""]
    parts += ["" if ceiling.scope in WHOLE else ceiling.scope]
    parts += ["" if ceiling.operands == "random" else ceiling.operands]
    return "_".join(part for part in parts if part)


def _types(precision: Precision) -> str:
    unit = "" if precision.unit in ("vector", "library") else precision.unit
    inputs = precision.inputs if precision.inputs == precision.accumulate else precision.label.split()[0]
    return "_".join(part for part in (inputs, unit, precision.mode) if part)


def _fits(profile: Profile) -> Iterator[dict[str, Any]]:
    for curve in profile.curves:
        for fit in curve.fits:
            if fit.chosen:
                yield from _fit(curve, fit)


def _fit(curve: Curve, fit: Fit) -> Iterator[dict[str, Any]]:
    values = {
        "ridge_point": (fit.ridge, "FLOP/byte"),
        "overlap": (fit.omega, "1"),
        "launch_overhead": (Interval(fit.t0), "s"),
    }
    for quantity, (interval, unit) in values.items():
        yield {
            **_measured(interval),
            "quantity": quantity,
            "precision_or_level": f"{curve.precision.inputs}_{curve.mode}_{curve.scope}{curve.threads}",
            "unit": unit,
            "stat": f"fit_{fit.form}",
            "n": len(curve.points),
            "kernel": f"{curve.kind}-{curve.mode}",
            "precision": curve.precision.label,
            "scope": curve.scope,
            "threads": curve.threads,
        }


def _placements(profile: Profile) -> Iterator[dict[str, Any]]:
    for placed in profile.placements:
        yield from _placement(placed)


def _placement(placed: Placement) -> Iterator[dict[str, Any]]:
    values = {
        "workload_achieved": (placed.achieved, placed.unit),
        "workload_attainable": (placed.attainable, placed.unit),
        "workload_efficiency": (placed.efficiency, "1"),
        "workload_seconds": (placed.seconds, "s"),
    }
    for quantity, (interval, unit) in values.items():
        yield {
            **_measured(interval),
            "quantity": quantity,
            "precision_or_level": f"{placed.precision.inputs}_{placed.name}",
            "unit": unit,
            "stat": "median_typical",
            "kernel": placed.name,
            "library": placed.implementation,
            "precision": placed.precision.label,
            "level": placed.level,
            "threads": placed.threads,
        }
