"""Self-checks of ceilings against their neighbours: sweeps, working sets, products of other sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench.profile.records import Sample
from bench.profile.verdict import FAILS, OK, UNTESTED, word
from tests.test_checks import (
    COPY,
    GEMM,
    L2,
    MIB,
    PEAK,
    PI,
    checked,
    doubled,
    gpu,
    of_beta,
    of_pi,
    rounds,
    said,
    sweep,
)


def test_a_jump_on_the_plateau_of_a_pi_fails() -> None:
    jump = {2.0**p: 0.8 for p in (6, 7, 8)}
    told = said([*of_pi(), *of_beta(), *sweep(jump)], "fma", "neighbours")
    assert told == "fails: a jump of 25 % at 64.0 FLOP/byte in mix-read-only, beside the ceiling"
    noisy = sweep(jump, (1.0, 1.3, 0.8, 1.2, 0.9), turned=True)
    told = said([*of_pi(), *of_beta(), *noisy], "fma", "neighbours")
    assert word(told) == OK, "the same jump in rounds that differ by more"


def test_what_serial_execution_changes_fails_nothing() -> None:
    """Where nothing overlaps a doubled intensity changes the rate by 11 % at four times the ridge."""
    serial = {2.0**p: 1 / (1 + min(q := 2.0**p * 20e9 / PI, 1 / q)) for p in range(-4, 9)}
    samples = [*of_pi(), *of_beta(), *sweep(serial)]
    for kernel, check in (("fma", "double bytes"), ("read", "double flops"), ("fma", "double flops")):
        for name in ("neighbours", check):
            told = said(samples, kernel, name)
            assert word(told) == OK, told
    worse = {**serial, **{2.0**p: 0.85 * serial[2.0**p] for p in (7, 8)}}
    assert word(said([*of_pi(), *of_beta(), *sweep(worse)], "fma", "neighbours")) == FAILS


def test_a_jump_shows_on_a_sweep_of_few_settings_too() -> None:
    few = [s for s in sweep({2.0**p: 0.85 for p in (7, 8)}) if s.point.sizes["fma"] >= 48 * 16]
    told = said([*of_pi(), *of_beta(), *few], "fma", "neighbours")
    assert told == "fails: a jump of 18 % at 128 FLOP/byte in mix-read-only, beside the ceiling"


def test_a_sweep_above_or_far_below_its_ceiling_fails() -> None:
    for factor, words in (
        (1.2, "reach 1.20 of it: it is no ceiling"),
        (0.6, "something else made it higher"),
    ):
        scaled = {2.0**p: factor for p in range(-4, 9)}
        told = said([*of_pi(), *of_beta(), *sweep(scaled)], "fma", "neighbours")
        assert word(told) == FAILS and words in told, told
        told = said([*of_pi(), *of_beta(), *sweep(scaled)], "read", "neighbours")
        assert word(told) == FAILS and words in told, told


def test_a_jump_below_the_ridge_is_beside_the_beta() -> None:
    """From 1/2 FLOP/byte on, part of the array comes from a cache."""
    cached = {2.0**p: 1.4 for p in range(-1, 2)}
    told = said([*of_pi(), *of_beta(), *sweep(cached)], "read", "neighbours")
    assert told == "fails: a jump of 40 % at 0.500 FLOP/byte in mix-read-only, beside the ceiling"
    assert said(of_beta(where=COPY), "copy", "neighbours") == "not tested: no sweep has the traffic of copy"


def working_sets(rates: Mapping[int, float]) -> list[Sample]:
    """A plateau of 256 KiB at 150 GB/s beside other sets (KiB: byte/s)."""
    plateau = rounds(replace(L2, sizes={"bytes": 256 << 10, "plateau": 1}), 150e9)
    others = [s for kib, r in rates.items() for s in rounds(replace(L2, sizes={"bytes": kib << 10}), r)]
    return [*plateau, *others]


def test_working_sets_beside_a_plateau() -> None:
    flat = working_sets({128: 152e9, 512: 148e9, 1024: 60e9})
    assert said(flat, "cache-read", "neighbours") == ("ok: beside 256 KiB: 128 KiB 1.01, 512 KiB 0.987 of it")
    assert word(said(flat, "cache-read", "double bytes")) == OK
    steep = working_sets({128: 152e9, 512: 80e9})
    told = said(steep, "cache-read", "neighbours")
    assert told == "fails: 512 KiB reach 0.533 of what 256 KiB do, both inside L2"
    uneven = working_sets({512: 80e9})
    told = said(uneven, "cache-read", "double bytes")
    assert told.startswith("fails: passes over 2.00 times the bytes (256 KiB to 512 KiB) take 3.75 times"), (
        told
    )
    assert word(said(working_sets({}), "cache-read", "neighbours")) == UNTESTED


SMS: dict[str, Any] = {
    **gpu(shared_per_sm=228 << 10),
    "caches": (
        {"level": "L1", "bytes": 256 << 10, "sharers": 1, "instances": 64},
        {"level": "L2", "bytes": 48 * MIB, "sharers": 64, "instances": 1},
    ),
}


@pytest.mark.parametrize(
    ("changes", "kib", "answer"),
    [
        ({"level": "L1", "variant": "ca l8 b1024"}, 128, OK),
        ({"variant": "ca l8 b1024"}, 300, FAILS),
        ({"variant": "cg l8 b1024"}, 300, OK),
        ({"variant": "cg l8 b1024"}, 600, FAILS),
        ({"variant": "cg l8 whole b1024", "whole": 1}, 12 << 10, OK),
        ({"variant": "cg l8 whole b1024", "whole": 1}, 40 << 10, FAILS),
        ({"level": "shared", "variant": "shared"}, 32, OK),
        ({"level": "L7"}, 32, UNTESTED),
    ],
)
def test_working_sets_of_a_gpu(changes: dict[str, Any], kib: int, answer: str) -> None:
    """L2 holds 768 KiB for each of 64 SMs; loads that pass L1 leave nothing in it."""
    sized = {"bytes": kib << 10, "plateau": 1} | ({"whole": 1} if "whole" in changes else {})
    named = {k: v for k, v in changes.items() if k != "whole"}
    where = replace(L2, scope="device", threads=64, sizes=sized, **named)
    told = said(rounds(where, 5e12, seconds=5e-3, clock_source="event"), "cache-read", "array size", SMS)
    assert word(told) == answer, told


def test_one_launch_may_be_shorter_than_a_batch_of_them() -> None:
    where = replace(L2, variant="cg l8 b1024", sizes={"bytes": 300 << 10, "plateau": 1})
    for seconds, answer in ((5e-3, OK), (5e-4, FAILS)):
        told = said(rounds(where, 5e12, seconds=seconds, clock_source="event"), "cache-read", "window", SMS)
        assert word(told) == answer, told


def products(rates: Mapping[int, float]) -> list[Sample]:
    return [
        s
        for n, rate in rates.items()
        for s in rounds(replace(GEMM, sizes={"m": n, "n": n, "k": n}), rate, intensity=n / 16)
    ]


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({512: 60e9, 1024: 70e9}, "ok: n = 512 reaches 0.857 of n = 1024, the largest"),
        ({512: 60e9, 1024: 70e9, 1536: 66e9}, "ok: larger products reach 0.943 of n = 1024"),
        ({512: 60e9, 1024: 70e9, 1536: 35e9}, "fails: n = 1536 reaches only 0.500 of n = 1024"),
        ({512: 40e9, 1024: 70e9}, "not tested: the largest, n = 1024, is still 75 % faster than n = 512"),
        ({512: 40e9}, "not tested: one size of this product was measured"),
    ],
)
def test_products_of_other_sizes(rates: Mapping[int, float], told: str) -> None:
    assert said(products(rates), "gemm", "neighbours") == told


def test_two_products_of_twice_the_flops_tell_of_each_other() -> None:
    half = rounds(replace(GEMM, sizes={"m": 1024, "n": 1024, "k": 512}), 68e9, intensity=50)
    told = said([*products({1024: 70e9}), *half], "gemm", "double flops")
    assert told.startswith("ok: twice the flops of one product (1024x1024x1024) take 1.94 times as long"), (
        told
    )
    slow = [replace(s, point=s.point) for s in rounds(half[0].point, 40e9, intensity=50)]
    assert word(said([*products({1024: 70e9}), *slow], "gemm", "double flops")) == FAILS
    assert word(said(products({1024: 70e9}), "gemm", "double flops")) == UNTESTED


def test_doublings_are_no_ceilings() -> None:
    fast = doubled(PEAK, 3 * PI, seconds=4e-3, intensity=math.inf)
    assert checked([*of_pi(), *fast], "fma").estimate.value == pytest.approx(PI, rel=0.01)
