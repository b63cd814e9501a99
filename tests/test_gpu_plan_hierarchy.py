"""What is planned of the memory hierarchy of a GPU: sets, sweeps, chains, fewer SMs, shared processes."""

from __future__ import annotations

import pytest

from bench.planning import gpu_memory_points
from kernels.mix import cuda_points
from tests.test_gpu_plan import LARGE, of, planned


def test_sets_of_l2_and_l1_follow_from_the_device() -> None:
    l1, l2 = (cache.bytes for cache in LARGE.caches)
    flat = [p.point for p in of(planned("standard"), "cache") if "plateau" in p.point.sizes]
    of_l2 = {p.sizes["bytes"] * p.threads / l2 for p in flat if p.level == "L2" and "whole" not in p.sizes}
    assert sorted(of_l2) == pytest.approx([0.25, 0.5], rel=0.01)
    assert {p.sizes["bytes"] / l1 for p in flat if p.level == "L1"} == {0.5}
    assert {p.access for p in flat if p.level == "L2"} == {"read", "write", "update", "copy"}
    assert {p.access for p in flat if p.level == "L1"} == {"read"}, "it writes through"


def test_sweeps_reach_from_a_few_kilobytes_to_four_times_l2_in_one_form() -> None:
    l2 = LARGE.last_level_cache_bytes
    reads = [p.point for p in of(planned("standard"), "cache") if p.point.access == "read"]
    own = [p for p in reads if not {"plateau", "whole"} & {*p.sizes}]
    sets = sorted(p.sizes["bytes"] for p in own)
    assert {p.variant for p in own} == {"ca l8 b1024"}, "a step of the curve is the device's"
    assert sets[0] == 4096 and 2 * l2 < sets[-1] * LARGE.threads <= 4 * l2
    near = [s for s in sets if 0.6 < s * LARGE.threads / l2 < 1.6]
    assert len(near) > len([s for s in sets if 1.6 < s * LARGE.threads / l2 < 4]), "finer around L2"
    whole = sorted(p.sizes["bytes"] / l2 for p in reads if "whole" in p.sizes)
    assert whole[0] < 0.1 < 0.5 < 0.62 < whole[-1], "on both sides of the half that is held twice"


def test_chains_grow_from_one_to_more_than_warps_and_the_latency_is_one_thread() -> None:
    found = [p.point for p in of(planned("standard"), "latency")]
    flat = {p.level: p for p in found if p.variant == "1 chain" and p.threads == 1 and "plateau" in p.sizes}
    assert {"L1", "L2", "DRAM"} <= {*flat} and flat["DRAM"].sizes[
        "bytes"
    ] >= 3.9 * LARGE.last_level_cache_bytes
    crowds = {(p.level, p.threads) for p in found if p.variant == "256 chains"}
    assert crowds == {("L2", 1), ("L2", 64), ("DRAM", 1), ("DRAM", 64)}
    assert {p.sizes.get("line") for p in found if p.level != "shared"} == {128}


def test_fewer_sms_do_the_same_work_each() -> None:
    found = [p.point for p in of(planned("standard"), "scaling") if "slice" not in p.point.sizes]
    assert sorted({p.threads for p in found}) == [1, 4, 16, 64]
    assert len({p.sizes["bytes"] for p in found if p.level == "L2"}) == 1
    together = [p.sizes["bytes"] * p.threads for p in found if p.level == "DRAM"]
    assert min(together) >= 3.9 * LARGE.last_level_cache_bytes
    slices = [p.point.sizes for p in of(planned("standard"), "scaling") if "slice" in p.point.sizes]
    assert [s["slice"] for s in slices] == [1, 2, 3]


def test_few_blocks_an_sm_are_a_sweep_of_their_own() -> None:
    few = [p.point for p in of(planned("standard"), "mix") if "blocks_per_sm" in p.point.sizes]
    assert {p.sizes["blocks_per_sm"] for p in few} == {1} and {p.precision.inputs for p in few} == {"fp32"}
    assert all(p.variant.endswith(" b128") for p in few) and len(few) == len(cuda_points(4, False, False))


def test_without_fp32_the_hierarchy_is_left_out_with_a_note() -> None:
    drafted = planned("standard", precisions=["fp64"])
    assert not {"cache", "latency", "launch", "scaling"} & {p.point.family for p in drafted.points}
    assert "latency: measured in fp32, which --precisions leaves out" in drafted.notes


def test_families_of_the_hierarchy_share_a_process_and_the_others_have_their_own() -> None:
    shared = {p.point.family: p.process for p in planned("standard").points}
    together = {*gpu_memory_points.FAMILIES, "link", "overlap"}
    assert {f for f, process in shared.items() if process == "cache"} == together
    assert all(process == f for f, process in shared.items() if f not in together)
