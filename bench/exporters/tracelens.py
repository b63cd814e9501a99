"""The GPU architecture file of TraceLens: what operations could reach, 1e12 FLOP/s and 1e9 byte/s."""

from __future__ import annotations

from pathlib import Path

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.encoding import dumps
from bench.profile.records import Profile

MATRIX = ("fp16", "bf16", "fp32", "fp64", "fp8", "int8", "fp4")
VECTOR = ("fp16", "bf16", "fp32", "fp64")


def export(profile: Profile, path: Path) -> None:
    """Write the peaks that were measured and the beta of reads; FileError where one of the two lacks."""
    peaks = {f"matrix_{name}": achievable.matrix(profile, name) for name in MATRIX}
    peaks |= {f"vector_{name}": achievable.rate(profile, name, "vector") for name in VECTOR}
    reads, size = achievable.memory(profile).get("DRAM"), achievable.memory_bytes(profile)
    there = {name: found for name, found in peaks.items() if found}
    if reads is None or not there:
        raise FileError("TraceLens needs a π and the β of DRAM: measure the fma, gemm and stream families")
    value = {
        "name": achievable.who(profile, there.values()),
        "mem_bw_gbps": reads.estimate.value / 1e9,
        **({"memory_gb": size / 1e9} if size else {}),
        "max_achievable_tflops": {name: c.estimate.value / 1e12 for name, c in there.items()},
    }
    with replacing(path) as file:
        file.write((dumps(value, indent=1) + "\n").encode("utf-8"))
