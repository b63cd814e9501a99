"""Profiles, ceilings and placements written by hand, for tests of triage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bench import reference
from bench.profile.records import Ceiling, Interval, Placement, Precision, Profile
from bench.triage import Finding
from bench.triage.finding import REMEDIES


def placement(**changes: Any) -> Placement:
    """A memory-bound workload of 1 GB at 80 % of its roof of 100 GB/s."""
    values: dict[str, Any] = {
        "name": "stencil",
        "precision": Precision.of("fp64"),
        "level": "DRAM",
        "threads": 8,
        "implementation": "compiled",
        "flops": 1e9,
        "bytes_read": 5e8,
        "bytes_written": 5e8,
        "seconds": near(0.0125),
        "achieved": near(8e10),
        "attainable": near(1e11),
        "efficiency": near(0.8),
        "unit": "FLOP/s",
        "binds": "memory",
        "idle": 0.5,
        "least_seconds": 0.01,
    }
    return Placement(**{**values, **changes})


def near(value: float) -> Interval:
    return Interval(value, value * 0.99, value * 1.01)


def ceiling(label: str, value: float, quantity: str = "pi", **changes: Any) -> Ceiling:
    """A ceiling of a whole device."""
    kind, _, unit = label.partition(" ")
    inputs, _, accumulate = kind.partition(">")
    precision = Precision(inputs, accumulate or inputs, accumulate or inputs, unit or "vector")
    beta = quantity == "beta"
    values: dict[str, Any] = {
        "quantity": quantity,
        "precision": precision,
        "level": "DRAM" if beta else "",
        "access": "read" if beta else "none",
        "store": "none",
        "scope": "device",
        "threads": 8,
        "operands": "random",
        "kernel": "read" if beta else "fma",
        "variant": "",
        "estimate": near(value),
        "best": value,
        "unit": "byte/s" if beta else "FLOP/s",
        "regime": "typical",
        "statistic": "median",
        "rounds": 5,
        "cap": 0.02,
        "converged": True,
        "contended": 0.0,
    }
    return Ceiling(**{**values, **changes})


def cuda(name: str, sms: int) -> dict[str, Any]:
    """A device as a header describes it, that the reference figures know under its name."""
    known = next(n for n in reference.known().names if n.device == name)
    cc = float(reference.known().of(name)[0].cc)
    facts = {"compute_capability": round(cc * 10), "mig": {}}
    memory = int(known.memory_gib * 2**30)
    return {
        "kind": "cuda",
        "name": known.reported_name,
        "memory_bytes": memory,
        "threads": sms,
        "facts": facts,
    }


def profile(device: Mapping[str, Any], ceilings: Iterable[Ceiling] = (), *placed: Placement) -> Profile:
    return Profile(1, {}, {}, (), False, tuple(ceilings), (), tuple(placed), facts={"device": device})


def only(found: Iterable[Finding], cause: str) -> Finding:
    """The one finding, of that cause, with a remedy and a number with its unit in the sentence."""
    found = list(found)
    assert [f.cause for f in found] == [cause], [f"{f.cause}: {f.sentence}" for f in found]
    assert found[0].remedy == REMEDIES[cause] and found[0].evidence
    assert re.search(r"\d", found[0].sentence), found[0].sentence
    return found[0]
