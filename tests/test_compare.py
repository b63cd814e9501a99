"""Ratios, intervals and verdicts of `compare` against hand-worked values, and what it refuses."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from typing import Any

import pytest

from bench import compare
from bench.errors import FileError, UsageError
from bench.fitting.intervals import interval
from bench.profile.records import Ceiling, Interval, Profile
from bench.report import comparison
from tests.synthetic import ceiling, synthetic_profile


def profile(*ceilings: Ceiling, **changes: Any) -> Profile:
    return dataclasses.replace(synthetic_profile(), ceilings=ceilings, **changes)


def only_row(a: Ceiling, b: Ceiling) -> compare.Row:
    (row,) = compare.compare(profile(a), profile(b)).rows
    return row


def pi(value: float, half_width: float = 0.006, **changes: Any) -> Ceiling:
    return ceiling("pi", value, half_width=half_width, **changes)


def test_ratio_of_equal_rounds_follows_welch() -> None:
    """Five rounds each: t(4) = 2.776 scales down to errors, t(8) = 2.306 scales their sum up."""
    ratio = compare.ratio_interval(pi(100e9, 0.02), pi(110e9, 0.02))
    reach = 2.306004 * math.sqrt(2) * math.log(1.02) / 2.776445
    assert ratio.value == pytest.approx(1.1)
    assert (ratio.low, ratio.high) == pytest.approx((1.1 * math.exp(-reach), 1.1 * math.exp(reach)), rel=1e-6)


def test_one_exact_side_leaves_the_other_alone() -> None:
    ratio = compare.ratio_interval(pi(100e9, 0.0), pi(100e9, 0.02))
    assert (ratio.low, ratio.high) == pytest.approx((1 / 1.02, 1.02), rel=1e-6)
    same = compare.ratio_interval(pi(100e9, 0.0), pi(200e9, 0.0))
    assert (same.low, same.high) == (2.0, 2.0)


def test_lopsided_intervals_are_turned_the_right_way() -> None:
    wide_below = dataclasses.replace(pi(100e9), estimate=Interval(100e9, 80e9, 100e9))
    exact = pi(100e9, 0.0)
    up = compare.ratio_interval(wide_below, exact)  # A may be lower, so B/A may be higher
    assert up.low == pytest.approx(1.0)
    assert up.high == pytest.approx(1.25)
    down = compare.ratio_interval(exact, wide_below)
    assert (down.low, down.high) == (pytest.approx(0.8), pytest.approx(1.0))


def test_interval_covers_the_true_ratio() -> None:
    """Of 400 pairs of runs with 2 % and 5 % between rounds about 95 % hold the true 1.1."""
    generator = random.Random(7)
    held = 0
    for _ in range(400):
        rounds_a = [100 * generator.lognormvariate(0, 0.02) for _ in range(5)]
        rounds_b = [110 * generator.lognormvariate(0, 0.05) for _ in range(5)]
        a, b = (
            dataclasses.replace(pi(1.0), estimate=interval(r, statistics.geometric_mean(r)))
            for r in (rounds_a, rounds_b)
        )
        ratio = compare.ratio_interval(a, b)
        assert ratio.low is not None and ratio.high is not None
        held += ratio.low <= 1.1 <= ratio.high
    assert 0.92 * 400 <= held <= 0.99 * 400


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.98, 1.02, "same"),
        (1.01, 1.02, "same"),  # a real difference, but none that matters
        (1 / 1.03, 1.03, "same"),
        (0.97, 1.02, "cannot tell"),
        (0.99, 1.04, "cannot tell"),
        (1.001, 1.04, "faster"),
        (1.5, 1.6, "faster"),
        (0.96, 0.999, "slower"),
        (0.5, 0.6, "slower"),
        (0.5, 2.0, "cannot tell"),
        (None, None, "cannot tell"),
    ],
)
def test_verdicts(low: float | None, high: float | None, expected: str) -> None:
    middle = 1.0 if low is None or high is None else math.sqrt(low * high)
    assert compare.verdict(Interval(middle, low, high)) == expected


@pytest.mark.parametrize(
    ("unit", "below", "above"),
    [("FLOP/s", "slower", "faster"), ("s", "faster", "slower"), ("byte", "smaller", "larger")],
)
def test_what_more_means_depends_on_the_unit(unit: str, below: str, above: str) -> None:
    """Less time is faster, and a larger cache is no faster one."""
    assert compare.verdict(Interval(0.5, 0.4, 0.6), unit) == below
    assert compare.verdict(Interval(2.0, 1.9, 2.1), unit) == above
    assert compare.verdict(Interval(1.0, 0.99, 1.01), unit) == "same"
    row = only_row(*(pi(v, unit=unit) for v in (100e9, 300e9)))
    assert row.verdict == above


def test_one_round_gives_no_verdict() -> None:
    single = dataclasses.replace(pi(200e9), estimate=Interval(200e9), rounds=1, converged=None)
    row = only_row(pi(100e9), single)
    assert (row.ratio, row.verdict) == (Interval(2.0), "cannot tell")
    assert row.note == "B has no interval (one round)"


def test_doubts_are_carried() -> None:
    row = only_row(pi(100e9, converged=False), pi(150e9, converged=None, rounds=3))
    assert (row.note, row.verdict) == ("A did not converge; B has 3 rounds only", "faster")


def test_keys_pair_ceilings_and_the_rest_is_listed() -> None:
    a = profile(pi(100e9), ceiling("beta", 20e9, kernel="copy", access="copy", store="ordinary"))
    b = profile(ceiling("beta", 28e9, kernel="copy", access="copy", store="nontemporal"), pi(50e9, threads=4))
    found = compare.compare(a, b)
    assert [(row.name, row.verdict, row.threads_a, row.threads_b) for row in found.rows] == [
        ("pi fp64 fma", "slower", 2, 4)
    ]
    assert found.only_a == ("beta DRAM copy, fp64",)
    assert found.only_b == ("beta DRAM copy nontemporal, fp64",)
    assert (
        compare.Difference("ceilings", "threads or SMs of the whole device", "2", "2, 4") in found.differences
    )


def test_one_core_and_burst_and_zeros_are_not_mixed_with_the_rest() -> None:
    others = [pi(1e9, scope="core", threads=1), pi(1e9, regime="burst"), pi(1e9, operands="zeros")]
    found = compare.compare(profile(pi(1e9)), profile(*others))
    assert found.rows == ()
    assert found.only_b == ("pi fp64 fma, core/1", "pi fp64 fma, burst", "pi fp64 fma, zeros")


def test_the_whole_of_a_gpu_pairs_with_the_whole_of_a_host() -> None:
    gpu = profile(pi(9e12, scope="device", threads=132))
    (row,) = compare.compare(profile(pi(1e12)), gpu).rows
    assert (row.name, row.threads_a, row.threads_b) == ("pi fp64 fma", 2, 132)


def test_a_profile_against_itself_is_the_same_or_cannot_be_told() -> None:
    whole = synthetic_profile()
    found = compare.compare(whole, whole)
    assert len(found.rows) == len(whole.ceilings)
    assert {row.verdict for row in found.rows} == {"same", "cannot tell"}
    assert all(row.ratio.value == 1.0 for row in found.rows)
    assert (found.only_a, found.only_b, found.differences) == ((), (), ())
    assert any("not interleaved" in note for note in found.notes)


def test_doubled_ceilings_are_named() -> None:
    found = compare.compare(profile(pi(100e9), pi(90e9, variant="8 chains")), profile(pi(100e9)))
    assert "A holds pi fp64 fma more than once; the first is compared" in found.notes
    assert [row.ratio.value for row in found.rows] == [1.0]


def test_other_schema_is_refused() -> None:
    with pytest.raises(FileError, match="A has schema version 1 and B 2"):
        compare.compare(profile(), profile(schema_version=2))


def test_simulated_against_measured_is_refused_unless_allowed() -> None:
    with pytest.raises(UsageError, match="B is SIMULATED"):
        compare.compare(synthetic_profile(), synthetic_profile(simulated=True))
    found = compare.compare(synthetic_profile(), synthetic_profile(simulated=True), allow_simulated=True)
    assert found.simulated == (False, True)
    assert any(note.startswith("B is SIMULATED") for note in found.notes)
    assert "SIMULATED" in comparison.render(found).splitlines()[1]


def test_differences_of_identity_provenance_and_conditions() -> None:
    condition = {"load": 0.12, "governor": "unknown", "virtual_machine": True}
    condition |= {"load_average": [0.1, 0.2], "temperature_c": None}
    base = profile(conditions=tuple({"round": n, **condition} for n in range(1, 6)))
    other = dataclasses.replace(
        base,
        identity={**base.identity, "state": "quiet"},
        provenance={**base.provenance, "tool_version": "0.2.0", "time": "2027-01-01T00:00:00Z"},
        conditions=tuple({"round": n, "values": {"load": 0.5, "governor": "performance"}} for n in (1, 2, 3)),
    )
    found = set(compare.differences(base, other))
    assert compare.Difference("identity", "state", "vm", "quiet") in found
    assert compare.Difference("provenance", "tool_version", "0.1.0", "0.2.0") in found
    assert compare.Difference("conditions", "load", "0.12", "0.5") in found
    assert compare.Difference("conditions", "governor", "unknown", "performance") in found
    assert compare.Difference("conditions", "virtual_machine", "True", "not recorded") in found
    assert not [d for d in found if d.what in ("time", "round")]
    assert compare.Difference("conditions", "load_average.0", "0.1", "not recorded") in found
    near = dataclasses.replace(base, conditions=tuple({**c, "load": 0.125} for c in base.conditions))
    assert list(compare.differences(base, near)) == []


def test_text_fits_one_hundred_columns_and_says_all() -> None:
    a = synthetic_profile()
    first, _, *rest = a.ceilings
    changed = dataclasses.replace(first, estimate=Interval(100e9), rounds=1)
    text = comparison.render(compare.compare(a, dataclasses.replace(a, ceilings=(changed, *rest))))
    assert max(map(len, text.splitlines())) <= 100
    assert "only in A: pi fp64 fma, burst" in text
    told = "pi fp64 fma 90.0 GFLOP/s 100 GFLOP/s 1.111 none cannot tell (B has no interval (one round))"
    assert told in " ".join(text.split())
    assert "1 faster" not in text and " same, " in text
    assert "differ in nothing that was recorded" in text
