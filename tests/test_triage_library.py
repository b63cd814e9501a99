"""A library whose code is narrower than the machine's vectors is named, with what asks for that code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.backends import calls
from bench.fitting.ceilings import derive
from bench.profile.records import Sample
from bench.report.table import render
from bench.store import Log
from tests.triaged import diagnosed, measured, slower

WIDE = {"isa": ["avx2", "avx512f", "fma"]}


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return measured(tmp_path_factory.mktemp("runs"), "small-cpu", ("fma", "gemm"))


def by(library: str, factor: float = 2.0, **more: Any) -> Any:
    """Products of that library, `factor` times as long."""

    def change(s: Sample) -> Sample:
        if s.point.family != "gemm" or not s.repetitions.seconds:
            return s
        return replace(slower(s, factor), facts={**s.facts, "library": library, **more})

    return change


def test_narrow_code_that_the_environment_asks_for(cpu: Log) -> None:
    change = by("openblas 0.3.31 Haswell", library_set_by="OPENBLAS_CORETYPE=Haswell")
    (one,) = [f for f in diagnosed(cpu, change, **WIDE) if f.cause == "library"]
    assert "openblas 0.3.31 runs its code for Haswell, whose vectors hold 32 byte, this CPU's hold 64" in (
        one.sentence
    )
    assert one.sentence.endswith("; OPENBLAS_CORETYPE=Haswell in the environment asks for it")
    assert one.remedy == "unset OPENBLAS_CORETYPE, then measure again"
    assert any("fp64 library" in s for s in one.subjects) and any("fp32 library" in s for s in one.subjects)


def test_narrow_code_that_nobody_asked_for(cpu: Log) -> None:
    (one,) = [f for f in diagnosed(cpu, by("openblas 0.3.31 Zen"), **WIDE) if f.cause == "library"]
    assert "environment" not in one.sentence
    assert one.remedy.startswith("try OPENBLAS_CORETYPE=SkylakeX in the environment, or")


@pytest.mark.parametrize(
    ("library", "factor", "isa"),
    [
        ("openblas 0.3.31 SkylakeX", 2.0, WIDE),  # as wide as the machine
        ("openblas 0.3.31 Haswell", 2.0, {"isa": ["avx2", "fma"]}),  # and here
        ("openblas 0.3.31 Haswell", 0.85, WIDE),  # fast all the same
        ("mkl 2025.1 Intel", 2.0, WIDE),  # of which no width is known
        ("unknown BLAS", 2.0, WIDE),
    ],
)
def test_no_other_library_is_accused(cpu: Log, library: str, factor: float, isa: dict[str, Any]) -> None:
    assert "library" not in {f.cause for f in diagnosed(cpu, by(library, factor), **isa)}


def test_the_report_names_library_and_variable(cpu: Log) -> None:
    change = by("openblas 0.3.31 Haswell", library_set_by="OPENBLAS_CORETYPE=Haswell")
    profile = derive(cpu.header, cpu.conditions, [change(s) for s in cpu.samples])
    assert profile.facts["libraries"] == ["openblas 0.3.31 Haswell (OPENBLAS_CORETYPE=Haswell)"]
    assert "library: openblas 0.3.31 Haswell (OPENBLAS_CORETYPE=Haswell)\n" in render(profile)


def test_what_chooses_the_code_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in calls.STEERS:
        monkeypatch.delenv(name, raising=False)
    assert calls.steered_by() == ""
    monkeypatch.setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2")
    assert calls.steered_by() == "MKL_ENABLE_INSTRUCTIONS=AVX2"
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert calls.steered_by() == "OPENBLAS_CORETYPE=Haswell"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("20", 2**20 / 2e9), ("", 2**26 / 2e9), ("x", 2**26 / 2e9), ("0", 2**26 / 2e9), ("40", 2**30 / 2e9)],
)
def test_the_wait_is_as_long_as_the_library_spins(
    asked: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(calls.time, "sleep", slept.append)
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", asked)
    calls.wait_for_spinning()
    assert slept == [pytest.approx(seconds)]
