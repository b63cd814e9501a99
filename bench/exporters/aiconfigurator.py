"""The system file of NVIDIA's AIConfigurator: a GPU and its links, byte/s one way, dense FLOP/s, byte, s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.records import Profile
from bench.report import roofs

FLOPS = {"bfloat16_tc_flops": "bf16", "int8_tc_flops": "int8", "fp8_tc_flops": "fp8", "fp4_tc_flops": "fp4"}
"""Key by type of input; a key that is left out is refused by the tool when that type is asked for."""

MISC = {"nccl_mem": dict.fromkeys((1, 2, 4, 8), 0), "other_mem": 0}
"""Memory that libraries take beside a model, which is not measured: none is counted."""

BOUND = (
    "{} was not measured, and the tool needs it: it is that of the host link, which those bytes cross as well"
)


def export(profile: Profile, path: Path) -> None:
    """Write what was measured; FileError for a device that is no GPU, or without a beta or the links."""
    import yaml

    facts = profile.facts.get("device", {}).get("facts", {})
    reads, capability = achievable.memory(profile).get("DRAM"), facts.get("compute_capability")
    if reads is None or not capability:
        raise FileError(
            "AIConfigurator describes GPUs: give a result of one, with the stream family measured"
        )
    peaks = {key: found for key, name in FLOPS.items() if (found := achievable.matrix(profile, name))}
    gpu = {
        "mem_bw": reads.estimate.value,
        "mem_bw_empirical_scaling_factor": 1.0,
        "mem_empirical_constant_latency": _launch(profile),
        "mem_capacity": achievable.memory_bytes(profile),
        **{key: found.estimate.value for key, found in peaks.items()},
        "sm_version": int(capability),
    }
    node, remarks = _node(profile, max(1, len(facts.get("gpus", ()))))
    head = "".join(f"# {line}\n" for line in (achievable.who(profile, peaks.values()), *remarks))
    value = {"data_dir": "data", "gpu": _known(gpu), "node": _known(node), "misc": MISC}
    with replacing(path) as file:
        file.write((head + yaml.safe_dump(value, sort_keys=False)).encode("utf-8"))


def _launch(profile: Profile) -> float | None:
    """Seconds of an empty kernel: the constant that the tool adds to the time of every memory operation."""
    starts = (c for c in profile.ceilings if (c.quantity, c.kernel, c.variant) == ("t0", "empty", "plain"))
    return next((c.estimate.value for c in starts), None)


def _node(profile: Profile, gpus: int) -> tuple[dict[str, Any], list[str]]:
    """The links of a node with so many GPUs, and what is not measured among them."""
    host, peers, network = (
        achievable.fastest_link(profile, kind) for kind in ("host link", "peer", "node network")
    )
    if host is None or (peers is None and gpus > 1):
        raise FileError(
            "AIConfigurator needs the links of a node: measure the link family on all of its GPUs"
        )
    inside, outside = peers or host, network or host
    values = {
        "num_gpus_per_node": gpus,
        "inter_node_bw": outside.estimate.value,
        "intra_node_bw": inside.estimate.value,
        "pcie_bw": host.estimate.value,
        "p2p_latency": start.estimate.value if (start := roofs.start_of(profile, inside)) else None,
    }
    bounds = {"inter_node_bw": network, "intra_node_bw": peers}
    return values, [BOUND.format(name) for name, link in bounds.items() if link is None]


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
