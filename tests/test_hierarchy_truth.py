"""What is derived of memory and links is the truth of the simulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.profile.verdict import FAILS, OK, word
from bench.running import suite
from bench.store import read_profile
from tests.hierarchies import CHUNKS, CPU, GPU, of, profile


@pytest.mark.parametrize("name", [CPU, GPU])
def test_latencies_capacities_and_links_are_the_truth(name: str) -> None:
    truth = SimulatedBackend.named(name).truth
    for level, seconds in truth.latency.items():
        found = of(name, "latency", level=level)
        assert found.estimate.value == pytest.approx(seconds, rel=0.05)
        assert (found.unit, found.converged, found.kernel) == ("s", True, "chase")
        assert found.best <= found.estimate.value
    for held_by in truth.caches:
        held = of(name, "capacity", level=held_by.level, kernel="chase")
        assert held.estimate.value == pytest.approx(held_by.bytes, rel=0.10)
        held = of(name, "capacity", level=held_by.level, kernel="cache-read")
        assert held.estimate.value == pytest.approx(held_by.bytes, rel=0.10)
    for variant, seconds in truth.launch.items():
        assert of(name, "t0", kernel="empty", variant=variant).estimate.value == pytest.approx(
            seconds, rel=0.05
        )
        assert of(name, "t0", kernel="smallest", variant=variant).estimate.value == pytest.approx(
            seconds, rel=0.05
        )


def test_a_link_with_two_protocols_is_the_faster_of_two_lines() -> None:
    (curve,) = [c for c in profile(GPU).curves if c.mode == "host link copy-pinned h2d"]
    found = curve.plateaus
    assert found["form"] == "minimum of two lines"
    # of the sizes only three lie before the change of protocol, the last of them just behind it
    assert found["alpha_s"] == pytest.approx(3e-6, rel=0.15)
    assert found["beta"] == pytest.approx(50e9, rel=0.03)
    assert found["half_bytes"] == pytest.approx(8e-6 * 50e9, rel=0.05)
    beta = of(GPU, "beta", level="host link", kernel="copy-pinned", access="h2d")
    assert beta.estimate.value == found["beta"] and beta.unit == "byte/s"
    both = of(GPU, "beta", level="host link", kernel="copy-pinned", access="both")
    assert both.estimate.value == pytest.approx(85e9, rel=0.03)  # the sum of the directions
    pageable = of(GPU, "beta", level="host link", kernel="copy-pageable")
    assert pageable.estimate.value == pytest.approx(20e9, rel=0.03)


def test_a_collective_has_algorithm_and_bus_bandwidth_by_a_stated_convention() -> None:
    (curve,) = [c for c in profile(GPU).curves if c.kind == "collective"]
    found = curve.plateaus
    assert found["bus_factor"] == 1.0 and found["devices"] == 2  # 2 (n - 1) / n
    assert found["bus_beta"] == pytest.approx(180e9, rel=0.03)
    assert "bus bandwidth" in found["convention"]
    (skip,) = [s for s in profile(CPU).skipped if "all-reduce" in s["what"]]
    assert "1 device, not 2" in skip["reason"]


@pytest.mark.parametrize("name", [CPU, GPU])
def test_overlap_lies_between_the_laws(name: str) -> None:
    (curve,) = [c for c in profile(name).curves if c.kind == "overlap"]
    found = curve.plateaus
    assert found["between_laws"] and found["omega_low"] < found["omega"] < found["omega_high"]
    assert found["max_seconds"] < found["best_seconds"] < found["serial_seconds"]
    steps = [CHUNKS.index(found[key]) for key in ("best_chunks", "predicted_chunks")]
    assert abs(steps[0] - steps[1]) <= 1


def test_bytes_in_flight_follow_little_until_beta_binds() -> None:
    (curve,) = [c for c in profile(CPU).curves if c.kind == "concurrency"]
    found = curve.plateaus
    assert found["latency_s"] == pytest.approx(90e-9, rel=0.05)
    assert found["first_ratio"] == pytest.approx(1.0, rel=0.02)
    assert found["beta"] == pytest.approx(0.7 * 20e9, rel=0.05)  # one thread's share of the memory
    assert 0.5 <= found["half_bytes"] / found["little_bytes"] <= 0.6


def test_a_guest_that_is_told_of_a_smaller_cache_does_not_pass_part_of_it_for_memory(tmp_path: Path) -> None:
    """An L3 of 96 MiB, told as 16: reads of 128 MiB come partly from it, twice 128 MiB of a copy do not."""
    truth = read(CATALOGUE)["small-cpu"]
    truth["caches"][-1] |= {"bytes": 96 << 20, "reported": 16 << 20}
    (tmp_path / "guest.yaml").write_text(yaml.safe_dump(truth), encoding="utf-8")
    asked: dict[str, Any] = {"preset": "standard", "families": ["stream", "cache"], "quiet": True}
    found = suite.run(f"sim:{tmp_path / 'guest.yaml'}", results=tmp_path / "r", **asked)
    whole = [c for c in read_profile(found).ceilings if (c.level, c.threads) == ("DRAM", 2)]
    (reads,) = (c for c in whole if c.kernel == "read")
    (copies,) = (c for c in whole if (c.kernel, c.store) == ("copy", "nontemporal"))
    assert reads.estimate.value > 1.1 * 20e9 and copies.estimate.value == pytest.approx(28e9, rel=0.03)
    assert word(reads.checks["array size"]) == FAILS and "larger cache" in reads.checks["array size"]
    assert word(copies.checks["array size"]) == OK
