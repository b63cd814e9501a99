"""Links of GPUs in the plan, in gpu-check and in the placing of work beyond the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.backends.simulated import SimulatedBackend
from bench.fitting import offload
from bench.gpu.copies import WAYS
from bench.gpucheck import links
from bench.gpucheck.bed import Bed
from bench.planning import gpu_link_points
from bench.planning.gpu_budget import BUDGETS
from bench.planning.plan import plan
from bench.planning.planned import TOGETHER
from bench.profile.records import Sample
from kernels import KERNELS
from tests.synthetic import ceiling, synthetic_profile
from tests.test_cuda_backend import backend as backend
from tests.test_cuda_backend import gpu as gpu
from tests.test_gpu_links import KIB, crossing, drafted

# the plan


def test_every_planned_link_is_one_that_a_gpu_has() -> None:
    for preset in BUDGETS:
        for p in drafted(preset, gpus=[0, 1, 3]):
            if p.point.family == "link":
                assert p.point.access in WAYS[p.point.kernel]
                assert p.point.kernel not in ("zero-copy", "managed") or p.point.sizes["bytes"] >= 64 * KIB
                assert KERNELS[p.point.kernel].family == "link"


def test_ceilings_of_the_host_link_are_measured_in_every_round_and_over_enough_sizes() -> None:
    for preset, least in (("quick", 3), ("standard", 8), ("full", 8)):
        pinned = [p for p in drafted(preset) if p.point.kernel == "copy-pinned"]
        for access in BUDGETS[preset].host_ways:
            sizes = {p.point.sizes["bytes"] for p in pinned if p.point.access == access}
            assert len(sizes) >= least and min(sizes) == (64 * KIB if preset == "quick" else KIB)
        assert not any(p.times for p in pinned)


def test_the_matrix_of_peers_is_full_and_has_its_own_process() -> None:
    points = [p for p in drafted("standard", gpus=[0, 1, 3]) if p.point.kernel == "copy-peer"]
    assert {p.point.level for p in points} == {
        f"peer {i}>{j}" for i in (0, 1, 3) for j in (0, 1, 3) if i != j
    }
    assert {p.process for p in points} == {TOGETHER}
    for level in {p.point.level for p in points}:
        own = [p.point.sizes["bytes"] for p in points if (p.point.level, p.point.access) == (level, "write")]
        assert len(own) >= 3, "a line needs three sizes"
    assert {p.point.level for p in points if p.point.access == "both"} == {"peer 0>1", "peer 0>3", "peer 1>3"}
    several = [p for p in drafted("standard", gpus=[0, 1, 3]) if "devices" in p.point.sizes]
    assert {p.process for p in several} == {TOGETHER}
    assert {p.point.sizes["devices"] for p in several if p.point.family == "scaling"} == {1, 2, 3}


def test_one_gpu_is_said_to_be_alone() -> None:
    from bench.backends import open_backend

    found = open_backend("sim:gpu-large")
    notes = plan(found.device, found.variants, "standard").notes
    for what in ("link from GPU to GPU", "collective", "several GPUs at once"):
        assert any(note.startswith(what) and "one whole GPU" in note for note in notes)
    assert not [p for p in drafted("standard") if p.process == TOGETHER]


def test_transfers_leave_room_in_memory() -> None:
    small = [p.point for p in drafted("full") if p.point.family == "link"]
    from bench.backends import open_backend

    found = open_backend("sim:gpu-small")
    tight = plan(found.device, found.variants, "full", memory=1e9).points
    largest = max(p.point.sizes["bytes"] for p in tight if p.point.family == "link")
    assert largest <= 1e9 * gpu_link_points.DEVICE_SHARE
    assert max(p.sizes["bytes"] for p in small) == 1 << 30


# checks of gpu-check


@pytest.mark.parametrize(
    ("rate", "generation", "width", "status", "words"),
    [
        (0.985, 5, 16, "ok", "at least"),
        (0.97, 5, 16, "FAIL", "at least"),
        (0.5, 5, 8, "ok", "no published figure"),
        (0.5, 9, 16, "ok", "no published figure"),
        (0.5, None, None, "ok", "told, not judged"),
    ],
)
def test_the_host_link_is_judged_by_what_its_generation_gives_others(
    rate: float, generation: int | None, width: int | None, status: str, words: str
) -> None:
    known = links.published(5, "h2d")
    assert known and 5e10 < known < 6.3e10, "below what 16 lanes carry"
    (check,) = links.judged("host link", rate * known, "h2d", generation, width)
    assert check.status == status and words in check.expected
    assert not list(links.judged("host link", None, "h2d", 5, 16))


def test_a_run_is_judged_by_the_link_that_its_samples_saw() -> None:
    beta = ceiling(
        quantity="beta", value=4e10, unit="byte/s", kernel="copy-pinned", access="h2d", level="host link"
    )
    point = crossing("copy-pinned", "h2d")
    idle, busy = (
        Sample(point, 1, 1, 0, facts={"pcie_generation": generation, "pcie_width": 16})
        for generation in (1, 5)
    )
    profile = replace(synthetic_profile(), ceilings=(beta,))
    (check,) = links.measured([idle, busy], profile)
    assert check.status == "FAIL" and "PCIe 5 x16 under load" in check.value
    (check,) = links.measured([], profile)
    assert check.status == "ok" and "link not told" in check.value


def test_a_working_set_beyond_the_memory_costs_the_links_slope() -> None:
    common = {"quantity": "beta", "unit": "byte/s", "regime": "typical"}
    dram = ceiling(**common, value=4e12, kernel="read", access="read", level="DRAM")
    zero = ceiling(**common, value=5e10, kernel="zero-copy", access="h2d", level="host link")
    fault = ceiling(**common, value=2e10, kernel="managed", access="h2d", level="host link")
    pinned = ceiling(**common, value=6e10, kernel="copy-pinned", access="h2d", level="host link")
    found = offload.beyond([dram, zero, fault, pinned])
    assert (found["kernel"], found["beta"], found["slowdown"]) == ("zero-copy", 5e10, 80.0)
    assert offload.beyond([zero, pinned]) == {} and offload.beyond([dram, pinned]) == {}


def test_a_copy_engine_that_is_slower_than_pages_is_noticed() -> None:
    class Slow(SimulatedBackend):
        def measure(self, prepared: Any, amount: int, n: int) -> Any:
            found = super().measure(prepared, amount, n)
            factor = 3.0 if prepared.point.kernel == "copy-pinned" else 1.0
            return replace(found, seconds=tuple(factor * s for s in found.seconds))

    sound = {c.name: c.status for c in links.links(Bed(SimulatedBackend.named("gpu-large")))}
    broken = {c.name: c.status for c in links.links(Bed(Slow.named("gpu-large")))}
    assert set(sound.values()) <= {"ok", "skip"} and sound["both ways at once / one way"] == "ok"
    assert broken["zero-copy / copy of locked memory"] == "FAIL"
