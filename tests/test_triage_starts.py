"""Triage where starting a repetition takes its time, and on guests that are told of a smaller cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.backends import simulated
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.device import Device
from bench.fitting.ceilings import derive
from bench.running import suite
from bench.store import read_log
from bench.triage import Finding, diagnose, starting
from bench.triage.case import Case
from bench.triage.finding import found
from tests.crafted import only, profile
from tests.simulated_runs import one_version as one_version

MIB = 1 << 20


def measured(
    folder: Path, families: tuple[str, ...], preset: str = "quick", name: str = "small-cpu", **changes: Any
) -> list[Finding]:
    """Findings of a run on a device of the catalogue with these changes."""
    truth = {**read(CATALOGUE)[name], **changes}
    (folder / "changed.yaml").write_text(yaml.safe_dump(truth), encoding="utf-8")
    device = f"sim:{folder / 'changed.yaml'}"
    log = read_log(suite.run(device, preset=preset, results=folder / "r", families=families, quiet=True))
    return list(diagnose(derive(log.header, log.conditions, log.samples), log.samples))


@pytest.mark.parametrize(
    "t0", [pytest.param(3e-4, marks=pytest.mark.slow), 1e-3, pytest.param(3e-3, marks=pytest.mark.slow)]
)
def test_a_long_start_is_no_wrong_count_no_cache_and_no_step(t0: float, tmp_path: Path) -> None:
    one = only(measured(tmp_path, ("fma", "stream", "mix"), t0=t0), "launch-bound")
    assert one.subject == "repetitions" and float(one.evidence["t0_seconds"]) == pytest.approx(t0, rel=0.15)
    assert 0.1 < float(one.evidence["share"]) <= 1


@pytest.mark.slow
def test_a_usual_start_is_none(tmp_path: Path) -> None:
    assert measured(tmp_path, ("fma", "stream", "mix"), t0=5e-6) == []


@pytest.mark.parametrize(
    ("share", "evidence", "explained"),
    [
        (0.2, {"factor": 1.33}, True),
        (0.2, {"factor": 0.75}, True),
        (0.2, {"ratio": 2.0}, False),
        (0.2, {"before": 1.0, "behind": 0.4}, False),
        (0.2, {"before": 1.0, "behind": 0.8}, True),
        (0.5, {"ratio": 2.0}, True),
        (0.95, {"factor": 1000.0}, True),
        (0.05, {"tested": "all"}, True),
    ],
)
def test_a_start_explains_as_much_as_it_takes(
    share: float, evidence: dict[str, float | str], explained: bool
) -> None:
    told = found("launch-bound", "repetitions", "", t0_seconds=1e-3, share=share)
    assert starting.explains(told, found("byte-count", "read", "", **evidence)) is explained


def test_no_repetitions_tell_no_start() -> None:
    assert starting.overhead(Case(profile({"facts": {}}), ())) is None


@pytest.fixture(params=["told", "not told"])
def virtual(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the device says that it is a virtual machine: sweeps then reach 128 MiB, else 64."""
    told, made = request.param == "told", simulated._device

    def device(*given: Any) -> Device:
        plain = made(*given)
        return replace(plain, facts={**plain.facts, "virtual_machine": "kvm"}) if told else plain

    monkeypatch.setattr(simulated, "_device", device)
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("held", "cached"), [(64, False), (96, True)])
def test_a_guest_told_of_a_smaller_cache_counts_right(
    held: int, cached: bool, virtual: bool, tmp_path: Path
) -> None:
    """An L3 of so many MiB, told as 16. Of 64 arrays of 128 MiB keep nothing, of 96 they do."""
    caches = [*read(CATALOGUE)["small-cpu"]["caches"]]
    caches[-1] |= {"bytes": held * MIB, "reported": 16 * MIB}
    found = measured(tmp_path, ("stream", "cache"), "standard", caches=caches)
    if cached and virtual:
        assert "sets up to 108 MiB are read over 1.25 times" in only(found, "cache-resident").sentence
    else:
        assert found == []


@pytest.mark.parametrize("held", [64, pytest.param(128, marks=pytest.mark.slow)])
def test_a_coarse_sweep_of_a_guest_accuses_no_count(held: int, virtual: bool, tmp_path: Path) -> None:
    caches = [*read(CATALOGUE)["small-cpu"]["caches"]]
    caches[-1] |= {"bytes": held * MIB, "reported": 16 * MIB}
    assert measured(tmp_path, ("stream", "cache"), caches=caches) == []


def test_three_arrays_that_leave_a_hidden_cache_count_as_right_as_two(tmp_path: Path) -> None:
    """256 MiB of L3, told as 64: copies are half cached, triads with one array more are not."""
    caches = [*read(CATALOGUE)["big-cpu"]["caches"]]
    caches[-1] |= {"reported": caches[-1]["bytes"] / 4}
    assert measured(tmp_path, ("stream", "cache"), name="big-cpu", caches=caches) == []
