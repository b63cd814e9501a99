"""The system file of NVIDIA's AIConfigurator: a GPU and its links, byte/s one way, dense FLOP/s, byte, s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.records import Ceiling, Profile

FLOPS = {"bfloat16_tc_flops": "bf16", "int8_tc_flops": "int8", "fp8_tc_flops": "fp8", "fp4_tc_flops": "fp4"}
"""Key by type of input; a key that is left out is refused by the tool when that type is asked for."""


MISC = {"nccl_mem": dict.fromkeys((1, 2, 4, 8), 0), "other_mem": 0}
"""Memory that libraries take beside a model, which is not measured: none is counted."""

BOUND = "{} was not measured: it is that of the host link, which bytes to other nodes cross as well"


def export(profile: Profile, path: Path) -> None:
    """Write what was measured; FileError for a device that is no GPU, or without a beta."""
    import yaml

    facts = profile.facts.get("device", {}).get("facts", {})
    reads, capability = achievable.memory(profile).get("DRAM"), facts.get("compute_capability")
    if reads is None or not capability:
        raise FileError(
            "AIConfigurator describes GPUs: give a result of one, with the stream family measured"
        )
    latency = next((c for c in profile.ceilings if c.quantity == "latency" and c.level == "DRAM"), None)
    gpu = {
        "mem_bw": reads.estimate.value,
        "mem_bw_empirical_scaling_factor": 1.0,
        "mem_empirical_constant_latency": latency.estimate.value if latency else None,
        "mem_capacity": achievable.memory_bytes(profile),
        **{key: _value(achievable.matrix(profile, name)) for key, name in FLOPS.items()},
        "sm_version": int(capability),
    }
    host = achievable.fastest_link(profile, "host link")
    if host is None:
        raise FileError("AIConfigurator needs the links of a node: measure the link family")
    peers, network = (achievable.fastest_link(profile, kind) for kind in ("peer", "node network"))
    node = {
        "num_gpus_per_node": len(facts.get("gpus", ())) or 1,
        "inter_node_bw": _value(network or host),
        "intra_node_bw": _value(peers or host),
        "pcie_bw": _value(host),
        "p2p_latency": _start(profile, peers or host),
    }
    said = [achievable.who(profile)]
    said += [BOUND.format("inter_node_bw")] * (network is None) + [BOUND.format("intra_node_bw")] * (
        peers is None
    )
    head = "".join(f"# {line}\n" for line in said)
    text = head + yaml.safe_dump(
        {"data_dir": "data", "gpu": _known(gpu), "node": _known(node), "misc": MISC}, sort_keys=False
    )
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _value(found: Ceiling | None) -> float | None:
    return found.estimate.value if found else None


def _start(profile: Profile, link: Ceiling | None) -> float | None:
    """Seconds of the smallest transfer over a link."""
    same = ("level", "kernel", "variant", "access")
    starts = (c for c in profile.ceilings if c.quantity == "t0" and link)
    return next(
        (c.estimate.value for c in starts if all(getattr(c, s) == getattr(link, s) for s in same)), None
    )
