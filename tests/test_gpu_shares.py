"""Shares of theory where there is one, sets of L2 that pass L1 by, boards at half rate, rounds to spare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.fitting.in_theory import share
from bench.fitting.working_sets import lies_inside, room
from bench.gpu.rates import flops_per_clock_per_sm
from bench.profile.records import Point, Precision
from bench.store import read_profile
from tests.test_simulated_gpu import run

FP32 = Precision.of("fp32")
MIB = 1 << 20
H200: dict[str, Any] = {
    "facts": {"compute_capability": 90, "unit": "SM"},
    "caches": (
        {"level": "L1", "bytes": MIB // 4, "sharers": 1, "instances": 132},
        {"level": "L2", "bytes": 60 * MIB, "sharers": 132, "instances": 1},
    ),
}


def cached(level: str, variant: str, kib: int) -> Point:
    sizes = {"bytes": kib << 10, "plateau": 1}
    where = (FP32, level, "read", "none", "device", 132)
    return Point("cache", "cache-read", variant, *where, sizes=sizes)


def test_a_bandwidth_of_a_cache_is_no_share_of_the_arithmetic() -> None:
    assert share(cached("L2", "cg l8 b1024", 200), 64.0, 1e13, H200) is None
    chain = Point("fma", "fma", "8 chains b256", FP32, scope="device", threads=132)
    assert share(chain, 248.0, 6e13, H200) == pytest.approx(248 / 256)


@pytest.mark.parametrize(
    ("variant", "kib", "inside"),
    [
        ("simulated", 232, True),
        ("cg l8 b1024", 232, True),
        ("ca l8 b1024", 232, False),
        ("simulated", 400, False),
    ],
)
def test_half_of_l2_is_in_l2_alone_where_loads_pass_l1(variant: str, kib: int, inside: bool) -> None:
    """An SM's part of this L2 is hardly larger than its L1: no other set could be."""
    point = cached("L2", variant, kib)
    ends = room(H200, point)
    assert ends is not None and lies_inside(point.sizes["bytes"], ends) is inside


@pytest.mark.parametrize(
    ("board", "sms", "gigahertz", "tera"),
    [("NVIDIA L40", 142, 2.49, 181), ("NVIDIA L40S", 142, 2.52, 362), ("NVIDIA L4", 58, 2.04, 121)],
)
def test_professional_boards_have_the_rate_of_their_data_sheet(
    board: str, sms: int, gigahertz: float, tera: float
) -> None:
    rate, note = flops_per_clock_per_sm(89, "bf16>fp32 matrix", board)
    assert rate is not None and rate * sms * gigahertz * 1e9 == pytest.approx(tera * 1e12, rel=0.02)
    assert ("data sheet (181" in note) == (board == "NVIDIA L40")


def test_a_healthy_gpu_fails_no_check_and_time_that_is_left_gives_every_ceiling_its_verdict(
    tmp_path: Path,
) -> None:
    for folder in (
        run(tmp_path / "a", "gpu-large", "--minutes", 1, "--families", "fma,cache"),
        run(tmp_path / "b", "gpu-large", "--minutes", 1, "--families", "stream,launch"),
    ):
        found = read_profile(folder).ceilings
        assert len(found) >= 5 and {c.rounds for c in found} == {5}
        assert {c.converged for c in found} == {True}
        failed = [text for c in found for text in c.checks.values() if text.startswith("fails")]
        assert failed == []
        assert {c.share_at_clock for c in found if c.level in ("L1", "L2")} <= {None}
