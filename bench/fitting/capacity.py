"""What the main memory of a device holds for us, as a ceiling: bytes that are free, not bytes installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.fitting.intervals import interval
from bench.fitting.recorded import verdict
from bench.profile.records import Ceiling, Precision, Sample

CAP_FREE = 0.10
"""Half-width that is allowed: others take and give back memory during a run."""

TAKEN, FREE = "largest allocation", "free before a round"
"""How the bytes were found: one allocation that succeeded, or what the system says is there."""


def memory(
    device: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]], samples: Sequence[Sample]
) -> list[Ceiling]:
    """The usable bytes of DRAM with their spread over rounds; [] where nothing told them.

    device: as in a run's header;  conditions: one a round, with `values`
    An allocation that succeeded counts before what is said to be free; neither exceeds what we may use.
    """
    most = float(device.get("memory_bytes") or 0)
    taken = {s.round: float(s.facts.get("memory_usable_bytes") or 0) for s in samples}
    said = {c.get("round"): _free(c.get("values", {})) for c in conditions}
    for way, found in ((TAKEN, taken), (FREE, said)):
        values = [min(value, most or value) for value in found.values() if value > 0]
        if values:
            return [_ceiling(way, values, device)]
    return []


def _free(values: Mapping[str, Any]) -> float:
    return float(values.get("memory_available_bytes") or values.get("memory_free_bytes") or 0)


def _ceiling(way: str, values: Sequence[float], device: Mapping[str, Any]) -> Ceiling:
    held = interval(values)
    return Ceiling(
        quantity="capacity",
        precision=Precision.of("int8"),
        level="DRAM",
        access="none",
        store="none",
        scope="device" if device.get("kind") == "cuda" else "all",
        threads=int(device.get("threads", 1)),
        operands="random",
        kernel="memory",
        variant=way,
        estimate=held,
        best=max(values),
        unit="byte",
        regime="typical",
        statistic="median",
        rounds=len(values),
        cap=CAP_FREE,
        converged=verdict(len(values), held.half_width, CAP_FREE),
        contended=0.0,
    )
