"""Measured ceilings as Prometheus gauges, for node-exporter's textfile collector (*.prom)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.exporters import replacing
from bench.profile.records import Ceiling, Curve, Profile
from bench.report import roofs
from bench.report.heading import device_name

Series = tuple[dict[str, Any], float]

HELP = {
    "roofline_peak_flops": "Measured peak arithmetic throughput in FLOP per second, an FMA counts 2.",
    "roofline_peak_flops_low": "Lower end of the 95 % interval of roofline_peak_flops.",
    "roofline_peak_flops_high": "Upper end of the 95 % interval of roofline_peak_flops.",
    "roofline_bandwidth_bytes_per_second": "Measured bandwidth in bytes per second, counted bytes only.",
    "roofline_bandwidth_low_bytes_per_second": "Lower end of the 95 % interval of the bandwidth.",
    "roofline_bandwidth_high_bytes_per_second": "Upper end of the 95 % interval of the bandwidth.",
    "roofline_latency_seconds": "Measured time of one dependent access in seconds.",
    "roofline_latency_low_seconds": "Lower end of the 95 % interval of the latency.",
    "roofline_latency_high_seconds": "Upper end of the 95 % interval of the latency.",
    "roofline_overhead_seconds": "Measured time of the smallest launch or transfer in seconds.",
    "roofline_overhead_low_seconds": "Lower end of the 95 % interval of the overhead.",
    "roofline_overhead_high_seconds": "Upper end of the 95 % interval of the overhead.",
    "roofline_capacity_bytes": "Bytes that a memory level holds, as its bandwidth or latency tells.",
    "roofline_capacity_low_bytes": "Lower end of the 95 % interval of the capacity.",
    "roofline_capacity_high_bytes": "Upper end of the 95 % interval of the capacity.",
    "roofline_ridge_flops_per_byte": "Fitted ridge point: arithmetic intensity where compute begins to bind.",
    "roofline_overlap_ratio": "Fitted overlap of compute and movement at the ridge: 0 serial, 1 hidden.",
    "roofline_measured_timestamp_seconds": "Unix time at which the measurement started.",
}


NAMES = {
    "pi": "roofline_peak_flops{}",
    "beta": "roofline_bandwidth{}_bytes_per_second",
    "latency": "roofline_latency{}_seconds",
    "t0": "roofline_overhead{}_seconds",
    "capacity": "roofline_capacity{}_bytes",
}
"""Gauge of each quantity; the end of the interval goes before the unit."""


def export(profile: Profile, path: Path) -> None:
    """Write text exposition format 0.0.4: base units, no time stamps."""
    text = "".join(_family(name, series) for name, series in _families(profile).items() if series)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _families(profile: Profile) -> dict[str, list[Series]]:
    families: dict[str, list[Series]] = {name: [] for name in HELP}
    device = {"device": device_name(profile), "kind": "simulated" if profile.simulated else "measured"}
    for ceiling in profile.ceilings:
        for name, value in _values(ceiling):
            families[name].append(({**device, **_labels(ceiling)}, value))
    for curve in profile.curves:
        for name, labels, value in _fitted(curve):
            families[name].append(({**device, **labels}, value))
    said = profile.provenance
    started = _unix_seconds(said.get("time"))
    if started is not None:
        families["roofline_measured_timestamp_seconds"].append((device, started))
    return families


def _values(ceiling: Ceiling) -> Iterator[tuple[str, float]]:
    estimate = ceiling.estimate
    for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
        if value is not None:
            yield NAMES[ceiling.quantity].format(end), value


def _labels(ceiling: Ceiling) -> dict[str, Any]:
    names = ("level", "access", "store", "scope", "threads", "operands", "kernel", "statistic", "regime")
    labels = {"precision": ceiling.precision.label, **{name: getattr(ceiling, name) for name in names}}
    plain = ceiling.quantity == "pi" or (ceiling.quantity == "beta" and not roofs.is_link(ceiling))
    return labels if plain else {**labels, "variant": ceiling.variant}


def _fitted(curve: Curve) -> Iterator[tuple[str, dict[str, Any], float]]:
    labels = {"precision": curve.precision.label, "mode": curve.mode, "scope": curve.scope}
    labels["threads"] = str(curve.threads)
    for fit in curve.fits:
        if fit.chosen:
            yield "roofline_ridge_flops_per_byte", {**labels, "form": fit.form}, fit.ridge.value
            yield "roofline_overlap_ratio", {**labels, "form": fit.form}, fit.omega.value


def _unix_seconds(text: Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time in UTC, None where it is absent or unreadable."""
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


def _family(name: str, series: list[Series]) -> str:
    lines = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{_label_text(labels)}}} {value!r}" for labels, value in series]
    return "\n".join(lines) + "\n"


def _label_text(labels: Mapping[str, Any]) -> str:
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
