"""Records of the right form that no measurement can have given are refused with their place and value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import store
from bench.errors import FileError
from bench.profile.encoding import FormatError, dumps, loads
from bench.profile.records import Interval, Point, Precision, Profile, Repetitions, Sample
from bench.profile.sanity import FORMS, check_profile, check_sample
from tests.synthetic import synthetic_profile

SAMPLE = Sample(
    Point("gemm", "gemm", "square", Precision.of("fp64", "library"), sizes={"m": 8, "n": 8, "k": 8}),
    1,
    1,
    0,
    flops=1024.0,
    repetitions=Repetitions(start=(0.0, 1.0), seconds=(1e-3, 1e-3)),
    facts={"amount": 1, "wall_seconds": None, "library": "blas"},
)


def timed(**lists: Any) -> dict[str, Any]:
    return {"repetitions": replace(SAMPLE.repetitions, **lists)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flops": -1.0}, "sample.flops is -1"),
        ({"bytes_read": -8.0}, "sample.bytes_read is -8"),
        ({"flops": 1e300}, "sample.flops is 1e+300"),
        (timed(cpu_share=(1.0,)), "sample.repetitions.cpu_share has 1 values for 2 repetitions"),
        (timed(seconds=(1e-3, 5e-324)), "holds 4.94066e-324 s, which no clock tells"),
        (timed(seconds=(1e-3, float("inf"))), "holds inf s"),
        ({"point": replace(SAMPLE.point, sizes={"m": 8})}, "sample.point.sizes of gemm lacks n, k"),
        ({"facts": {"amount": "many"}}, "sample.facts.amount must be a number, got 'many'"),
    ],
)
def test_a_sample_that_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    check_sample(SAMPLE)
    with pytest.raises(FormatError) as why:
        check_sample(replace(SAMPLE, **changes))
    assert said in str(why.value)


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (-1e-3, 1e-3)])
def test_times_of_a_broken_timer_are_kept_for_triage(seconds: tuple[float, float]) -> None:
    check_sample(replace(SAMPLE, **timed(seconds=seconds)))


def test_a_skipped_sample_needs_no_sizes() -> None:
    bare = replace(SAMPLE.point, sizes={})
    check_sample(replace(SAMPLE, point=bare, status="skipped", repetitions=Repetitions()))


def with_found(profile: Profile, kind: str, **found: Any) -> Profile:
    first, *rest = profile.curves
    return replace(profile, curves=(replace(first, kind=kind, plateaus=found), *rest))


def with_fit(profile: Profile, **changes: Any) -> Profile:
    first, *rest = profile.curves
    return replace(profile, curves=(replace(first, fits=(replace(first.fits[0], **changes),)), *rest))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda p: replace(p, ceilings=(replace(p.ceilings[0], estimate=Interval(0.0)), *p.ceilings[1:])),
            "profile.ceilings[0] (pi fp64 fma) has the value 0",
        ),
        (
            lambda p: replace(p, ceilings=(replace(p.ceilings[0], estimate=Interval(-1.0, -2.0, 1.0)),)),
            "profile.ceilings[0] (pi fp64 fma) has the value -1",
        ),
        (lambda p: with_fit(p, beta=Interval(0.0)), "profile.curves[0].fits[0].beta has the value 0"),
        (lambda p: with_fit(p, form="parabola"), "has the form 'parabola'; known: " + ", ".join(FORMS)),
        (lambda p: replace(p, curves=(replace(p.curves[0], points=()),)), "profile.curves[0] (mix "),
        (
            lambda p: with_found(p, "link"),
            "curves[0].plateaus of link read-only lacks level, kernel, variant",
        ),
        (
            lambda p: with_found(p, "launch", variant="plain", access="copy", beta=1e9),
            "plateaus of launch read-only lacks alpha_s,",
        ),
        (
            lambda p: with_found(p, "overlap", omega=0.5),
            "plateaus of overlap read-only lacks compute_seconds,",
        ),
        (lambda p: replace(p, facts={"device": []}), "profile.facts.device must be an object, got list"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(change: Callable[[Profile], Profile], said: str) -> None:
    check_profile(synthetic_profile())
    with pytest.raises(FormatError) as why:
        check_profile(change(synthetic_profile()))
    assert said in str(why.value)


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 400, "9" * 5000, "1e+1000"])
def test_numbers_beyond_all_floats_are_never_read(number: str) -> None:
    with pytest.raises(FormatError, match="is beyond all numbers"):
        loads(f'{{"a": [1.5, {number}]}}')
    assert loads('["1e999 as text", 1e300, 7, 1e-400]') == ["1e999 as text", 1e300, 7, 0.0]


def test_a_file_that_cannot_be_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    header = {"record": "header", "schema_version": 1}
    wrong = dumps(replace(SAMPLE, flops=-1.0))
    lines = [dumps(header), '{"record": "sample", ' + wrong[1:]]
    (tmp_path / store.SAMPLES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"line 2 is corrupt \(sample.flops is -1\): delete that line"):
        store.read_log(tmp_path)
    (tmp_path / store.PROFILE).write_text(dumps(replace(synthetic_profile(), facts={"device": 3})))
    with pytest.raises(FileError, match=r"facts.device must be an object, got int\): remake it"):
        store.read_profile(tmp_path)
