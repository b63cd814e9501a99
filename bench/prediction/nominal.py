"""The roof that a datasheet promises: nominal clock times FLOP a cycle, and the memory's rated bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.profile.records import Precision, Profile

LANES = {"AVX-512": 8, "AVX2 + FMA": 4, "NEON": 2}
"""fp64 items of a vector. Other levels have no fused multiply-add or no fixed width: nothing is assumed."""

FMA_PIPES, FLOPS_PER_FMA = 2, 2
"""Two vector FMA pipes a core, as every server core with these units has had; narrower ones reach half."""

MEMORY: Mapping[tuple[str, str, str], tuple[float, str]] = {
    ("AuthenticAMD", "23", "1"): (8 * 8 * 2.666e9, "EPYC 7001 datasheet: 8 channels of DDR4-2666"),
    ("AuthenticAMD", "23", "49"): (8 * 8 * 3.2e9, "EPYC 7002 datasheet: 8 channels of DDR4-3200"),
    ("AuthenticAMD", "25", "1"): (8 * 8 * 3.2e9, "EPYC 7003 datasheet: 8 channels of DDR4-3200"),
    ("AuthenticAMD", "25", "17"): (12 * 8 * 4.8e9, "EPYC 9004 datasheet: 12 channels of DDR5-4800"),
    ("GenuineIntel", "6", "106"): (
        8 * 8 * 3.2e9,
        "Xeon Scalable (3rd) datasheet: 8 channels of DDR4-3200",
    ),
    ("GenuineIntel", "6", "143"): (
        8 * 8 * 4.8e9,
        "Xeon Scalable (4th) datasheet: 8 channels of DDR5-4800",
    ),
}
"""Rated byte/s of a whole socket by vendor, family and model, with its source; others are unknown."""


@dataclass(frozen=True)
class Nominal:
    """Rated pi (FLOP/s) and beta (byte/s), None where unknown, and where each comes from."""

    pi: float | None = None
    beta: float | None = None
    source: str = ""

    def seconds(self, flops: float, moved: float) -> float | None:
        """max(F/pi, Q/beta) in s, None where a figure that it needs is unknown."""
        if (flops and self.pi is None) or (moved and self.beta is None):
            return None
        return max(flops / (self.pi or 1.0), moved / (self.beta or 1.0))


def nominal(profile: Profile, precision: Precision, threads: int) -> Nominal:
    """What the datasheet says of a profile's device: of a GPU by name, of a CPU by clock and vector width."""
    device = profile.facts.get("device", {})
    if profile.simulated:
        return Nominal()
    if device.get("kind") == "cuda":
        return _gpu(device, precision)
    if device.get("kind") == "cpu":
        return _cpu(device, profile.identity, precision, threads)
    return Nominal()


def _gpu(device: Mapping[str, Any], precision: Precision) -> Nominal:
    from bench import reference
    from bench.fitting.in_theory import candidates

    name = reference.of_device(device).device
    sheet = [f for f in reference.known().of(name) if f.kind == reference.DATASHEET] if name else []
    peaks = {f.precision: f.value for f in sheet if f.quantity == "peak_flops"}
    pi = [peaks[unit.label] for unit in candidates(precision) if unit.label in peaks]
    beta = [f.value for f in sheet if f.quantity == "bandwidth" and f.level == "DRAM"]
    source = f"datasheet of {name}" if pi or beta else ""
    return Nominal(pi[0] if pi else None, beta[0] if beta else None, source)


def _cpu(
    device: Mapping[str, Any], identity: Mapping[str, Any], precision: Precision, threads: int
) -> Nominal:
    facts = device.get("facts", {})
    clock, lanes = facts.get("nominal_clock_hz"), LANES.get(str(facts.get("vector")))
    pi, said = None, []
    if clock and lanes and precision.inputs in ("fp64", "fp32"):
        per_cycle = lanes * (1 if precision.inputs == "fp64" else 2) * FMA_PIPES * FLOPS_PER_FMA
        pi = float(clock) * per_cycle * threads
        said.append(f"{float(clock) / 1e9:.2f} GHz x {per_cycle} FLOP/cycle x {threads}")
    vendor, family, model = (str(identity.get(name)) for name in ("vendor", "family", "model"))
    known = MEMORY.get((vendor, family, model))
    if known:
        said.append(known[1])
    return Nominal(pi, known[0] if known else None, "; ".join(said))
