"""The laws against hand-worked values: Amdahl, the max law, and the bracket around measured overlap."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from bench import laws
from bench.errors import FileError, UsageError
from bench.laws import Job, Roof
from bench.profile.records import Interval
from bench.report import ways
from tests.synthetic import synthetic_profile

INFINITY = float("inf")
ESSAY = Job(compute=9.0, movement=1.0)
"""1 s of movement and 9 s of compute."""


@pytest.mark.parametrize(("factor", "expected"), [(1, 1.0), (3, 2.5), (9, 5.0), (INFINITY, 10.0)])
def test_serial_speed_up_of_the_essay(factor: float, expected: float) -> None:
    assert laws.speed_up(ESSAY, "raise pi", factor, p=1) == pytest.approx(expected)
    q = ESSAY.compute_share
    assert expected == pytest.approx(1 / (1 - q + q / factor)), "Amdahl's law"


@pytest.mark.parametrize(("factor", "expected"), [(3, 3.0), (9, 9.0), (18, 9.0), (INFINITY, 9.0)])
def test_overlapped_speed_up_stops_at_the_ridge(factor: float, expected: float) -> None:
    assert laws.speed_up(ESSAY, "raise pi", factor, INFINITY) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("way", "p", "expected"),
    [
        ("raise pi", 1, 12 / 9),  # T0 2, C 6, M 4, s = 2: 12 s become 2 + 3 + 4
        ("raise beta", 1, 12 / 10),
        ("raise I", 1, 12 / 10),
        ("lower T0", 1, 12 / 11),
        ("raise pi", INFINITY, 8 / 6),  # 2 + max(6, 4) become 2 + max(3, 4)
        ("raise beta", INFINITY, 1.0),
        ("raise I", INFINITY, 1.0),
        ("lower T0", INFINITY, 8 / 7),
        ("raise pi", 2, (2 + math.hypot(6, 4)) / (2 + math.hypot(3, 4))),
    ],
)
def test_four_ways_up(way: str, p: float, expected: float) -> None:
    assert laws.speed_up(Job(6.0, 4.0, 2.0), way, 2.0, p) == pytest.approx(expected)


def test_two_laws_bracket_every_overlap() -> None:
    generator = random.Random(1)
    for _ in range(2000):
        job = Job(10 ** generator.uniform(-2, 2), 10 ** generator.uniform(-2, 2))
        way, factor = generator.choice(laws.WAYS), 10 ** generator.uniform(0, 2)
        ends = sorted(laws.speed_up(job, way, factor, p) for p in (1.0, INFINITY))
        value = laws.speed_up(job, way, factor, 10 ** generator.uniform(0, 2))
        assert ends[0] * (1 - 1e-9) <= value <= ends[1] * (1 + 1e-9)


def test_compute_share_is_the_textbook_fraction() -> None:
    roof = Roof("", pi=90e9, beta=20e9)
    job = laws.placed_job(roof, intensity=0.5)
    assert job.compute_share == pytest.approx(0.5 * 20e9 / (90e9 + 0.5 * 20e9))
    assert job.t0 == 0
    assert laws.placed_job(roof, roof.ridge).compute_share == pytest.approx(0.5)


def test_launch_overhead_counts_only_with_a_work() -> None:
    roof = Roof("", pi=100e9, beta=10e9, t0=1e-3)
    small = laws.placed_job(roof, intensity=100.0, flops=1e8)
    assert (small.compute, small.movement, small.t0) == pytest.approx((1e-3, 1e-4, 1e-3))
    assert laws.speed_up(small, "lower T0", INFINITY, INFINITY) == pytest.approx(2.0)
    assert laws.work_at_half_rate(100.0, roof) == pytest.approx(1e8)


def test_measured_overlap_gives_a_value_between_and_an_interval() -> None:
    omega = Interval(2 - 2**0.5, 0.5, 0.7)  # p = 2
    (way,) = [w for w in laws.ways_up(ESSAY, (3.0,), omega) if (w.way, w.factor) == ("raise pi", 3.0)]
    assert way.measured is not None
    assert way.measured.value == pytest.approx(math.hypot(9, 1) / math.hypot(3, 1))
    assert way.serial < way.measured.low < way.measured.value < way.measured.high < way.overlapped  # type: ignore[operator]


def test_overlap_outside_its_range_counts_as_the_nearer_end() -> None:
    assert (laws.norm(-0.1), laws.norm(1.2)) == (1.0, INFINITY)


def test_every_way_has_its_limit_and_json_has_no_infinity() -> None:
    found = laws.ways_up(ESSAY, (3.0, 9.0))
    assert [(w.way, w.factor) for w in found[:4]] == [
        ("raise pi", 3.0),
        ("raise pi", 9.0),
        ("raise pi", None),
        ("raise beta", 3.0),
    ]
    assert len(found) == 4 * 3
    assert all(w.measured is None for w in found)


def test_roof_of_a_profile() -> None:
    roof = laws.measured_roof(synthetic_profile())
    assert (roof.pi, roof.beta, roof.t0, roof.ridge) == (90e9, 20e9, 2e-6, 4.5)
    assert roof.omega is not None
    assert laws.norm(roof.omega.value) == pytest.approx(6.0)
    other = laws.measured_roof(synthetic_profile(), "fp32", "in-place", overhead=0.0)
    assert (other.pi, other.beta, other.t0) == (180e9, 30e9, 0.0)
    assert other.omega is not None
    assert laws.norm(other.omega.value) == pytest.approx(4.0)
    assert "SIMULATED" in laws.measured_roof(synthetic_profile(simulated=True)).source


def test_what_a_profile_lacks_is_said() -> None:
    profile = synthetic_profile()
    with pytest.raises(UsageError, match="no pi of precision 'fp8' in this profile; valid: fp64, fp32"):
        laws.measured_roof(profile, "fp8")
    with pytest.raises(UsageError, match="unknown mode 'sideways'; valid: read-only, in-place"):
        laws.measured_roof(profile, mode="sideways")
    only = {q: tuple(c for c in profile.ceilings if c.quantity == q) for q in ("pi", "beta")}
    with pytest.raises(FileError, match="no beta of access read"):
        laws.measured_roof(dataclasses.replace(profile, ceilings=only["pi"]))
    with pytest.raises(FileError, match="holds no pi"):
        laws.measured_roof(dataclasses.replace(profile, ceilings=only["beta"]))
    assert laws.measured_roof(dataclasses.replace(profile, curves=())).omega is None


def test_quantities_are_read_with_their_units() -> None:
    roof = laws.given_roof("91.3 GFLOP/s", "2e10", 1e-6)
    assert (roof.pi, roof.beta, roof.t0) == (pytest.approx(91.3e9), 2e10, 1e-6)


@pytest.mark.parametrize(
    ("pi", "beta", "words"),
    [
        ("9e10", "", "--pi and --beta belong together"),
        ("fast", "2e10", "--pi: 'fast' is no quantity"),
        ("9 GB/s", "2e10", "--pi takes FLOP/s"),
        ("9e10", "-1", "--beta must be a positive number"),
    ],
)
def test_wrong_quantities_are_refused(pi: str, beta: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        laws.given_roof(pi, beta)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="belong together"):
        laws.timed_job(1.0, None)
    with pytest.raises(UsageError, match="--movement must be a positive number, got 0"):
        laws.timed_job(0.0, 9.0)
    with pytest.raises(UsageError, match="--overhead"):
        laws.timed_job(1.0, 9.0, -1.0)
    with pytest.raises(UsageError, match="--factor must be a positive number, got -2"):
        laws.factors((3.0, -2.0))
    with pytest.raises(UsageError, match="--overlap must lie in 0"):
        laws.given_overlap(1.5)
    with pytest.raises(ValueError, match="unknown way 'pray'"):
        ESSAY.after("pray", 2.0)
    with pytest.raises(ValueError, match="factor must be positive"):
        ESSAY.after("raise pi", 0.0)


def test_text_fits_and_names_what_binds() -> None:
    roof = laws.measured_roof(synthetic_profile())
    job = laws.placed_job(roof, 0.25)
    text = ways.render(job, laws.ways_up(job, (3.0,), roof.omega), roof.omega, roof, 0.25)
    assert "at 0.250 FLOP/byte memory binds" in text
    assert "ridge π/β 4.50 FLOP/byte" in text
    assert "the work of one launch with --flops" in text
    assert max(map(len, text.splitlines())) <= 100
    timed = ways.render(ESSAY, laws.ways_up(ESSAY, (3.0, 9.0)), None, None, None)
    lines = [line.split() for line in timed.splitlines() if line.startswith("raise π")]
    assert [line[3] for line in lines] == ["2.50x", "5.00x", "10.0x"]
    assert "compute binds" in timed
