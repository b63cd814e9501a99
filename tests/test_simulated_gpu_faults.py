"""Simulated GPUs on which something goes wrong: memory, lost processes, a second opinion, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from bench.backends.simulated import SimulatedBackend
from bench.gpu.crosscheck import AGREE, FAULT
from bench.gpu.faults import ContextLost
from bench.planning.planned import Planned
from bench.profile.records import Point, Sample
from bench.running import suite
from bench.running.campaign import Campaign
from bench.store import read_log, read_profile
from tests.simulated_runs import FP32, code, file_of, grouped, run, said
from tests.simulated_runs import one_version as one_version


def test_memory_that_is_not_there_halves_the_arrays(tmp_path: Path) -> None:
    folder = run(tmp_path, "gpu-large+out-of-memory,limit_bytes=7e9", "--minutes", 1, "--families", "stream")
    log = read_log(folder)
    sizes = {c.access: None for c in read_profile(folder).ceilings}
    assert set(sizes) == {"read", "write", "copy", "triad"}, "all were measured"
    found = {s.point.kernel: s.point.sizes["bytes"] for s in log.samples if s.status == "ok" and s.round}
    assert found == {"read": 3051 << 20, "write": 3051 << 20, "copy": 3051 << 20, "triad": 3051 << 19}
    failed = [s for s in log.samples if s.status == "failed"]
    assert [(s.point.kernel, s.round) for s in failed] == [("triad", 0)], "seen once, in the pilot"
    assert "triad fp32: no memory for arrays of 2.98 GiB, measured with 1.49 GiB" in said(log)


def test_where_half_is_not_there_either_it_is_recorded_and_given_up(tmp_path: Path) -> None:
    folder = run(
        tmp_path, "gpu-large+out-of-memory,limit_bytes=3.6e9", "--minutes", 1, "--families", "stream"
    )
    log = read_log(folder)
    assert {c.access for c in read_profile(folder).ceilings} == {"read", "write", "copy"}
    triad = [s for s in log.samples if s.point.kernel == "triad"]
    assert {s.status for s in triad} == {"failed"}
    assert sum(s.round > 0 for s in triad) == 2, "never a third time"


def test_a_family_that_dies_costs_its_own_rounds_only(tmp_path: Path) -> None:
    folder = run(tmp_path, "gpu-large+dies,family=tensor,kernel=wgmma", "--minutes", 1)
    log, found = read_log(folder), grouped(read_log(folder))
    lost = [s for s in log.samples if s.facts.get("lost")]
    assert {s.point.kernel for s in lost} == {"wgmma"}
    assert sorted(s.round for s in lost if s.round) == [1, 2], (
        "one point a round, then the family is given up"
    )
    tried = [s for s in found["tensor", "typical"] if s.status != "skipped"]
    assert {s.round for s in tried} == {1, 2}
    for family in ("fma", "stream", "mix", "gemm"):
        assert {s.status for s in found[family, "typical"]} == {"ok"}
        assert {s.round for s in found[family, "typical"]} >= {1, 2, 3, 4}
    kernels = [s.point.kernel for s in tried]
    assert kernels == ["mma", "mma", "wgmma"] * 2, "what killed the pilot's process comes after the others"
    why = "the measuring process ended: SIMULATED: an illegal address in wgmma"
    assert f"tensor: given up after 2 rounds: {why}" in said(log)


def test_a_family_that_hangs_is_given_up_by_the_watchdog(tmp_path: Path) -> None:
    folder = run(tmp_path, "gpu-large+hang,family=mix,seconds=30", "--minutes", 5, "--families", "mix,fma")
    log, found = read_log(folder), grouped(read_log(folder))
    hung = [s for s in found["mix", "typical"] if s.facts.get("lost")]
    assert {s.reason for s in hung} == {"no answer within 22 s"} and [s.round for s in hung] == [1, 2]
    others = [s for s in found["mix", "typical"] if s not in hung]
    why = "its family was given up before its turn came: no answer within 22 s"
    assert {(s.status, s.reason) for s in others} == {("skipped", why)}
    assert len({s.point.key for s in found["mix", "typical"]}) == len(found["mix", "typical"]) > 10
    assert {s.status for s in found["fma", "typical"]} == {"ok"}
    assert {s.round for s in found["fma", "typical"]} >= {1, 2, 3, 4, 5}
    assert "mix: given up after 2 rounds: no answer within 22 s" in said(log)


def crossed(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = read_log(folder).header["cross_check"]
    return record


def test_two_implementations_that_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--minutes", 1, "--families", "fma", "--precisions", "fp32", "--cross-check", "--no-blocker")
    folder = run(tmp_path, "gpu-large", *words)
    record = crossed(folder)
    assert record["names"] == ["simulated", "second"] and len(record["compared"]) == 17
    assert {one["verdict"] for one in record["compared"]} == {AGREE}
    rates = [pair for one in record["compared"] for pair in one["rates"]]
    assert all(a != b for a, b in rates), "each with noise of its own"
    options = read_log(folder).header["plan"]["options"]
    assert (options["cross_check"], options["blocker"]) == (True, False)
    notes = [n["text"] for n in read_log(folder).notes if "cross_check" in n]
    assert notes == ["cross-check: 0 harness faults in 17 kernels"]


def test_one_that_is_off_is_a_harness_fault(tmp_path: Path) -> None:
    device = file_of(tmp_path, "gpu-large", gpu={"second": 1.04})
    words = ("--minutes", 1, "--families", "fma", "--precisions", "fp32", "--cross-check")
    record = crossed(run(tmp_path / "r", device, *words))
    assert {one["verdict"] for one in record["compared"]} == {FAULT}
    ratios = [one["ratio"]["value"] for one in record["compared"]]
    assert median(ratios) == pytest.approx(1 / 1.04, rel=0.003)
    assert "more than 2 % apart" in record["compared"][0]["sentence"]


@pytest.mark.parametrize(
    ("device", "flag", "told"),
    [
        ("sim:small-cpu", "--cross-check", "--cross-check compares two implementations on a GPU"),
        (
            "sim:small-cpu",
            "--no-blocker",
            "--no-blocker is about launches on a GPU; SIMULATED small-cpu has none",
        ),
        ("sim:gpu-large", "--threads=3", "--threads is for CPUs"),
        (
            "sim:gpu-small",
            "--precisions=fp8,fp4",
            "nothing of --precisions can be measured here (fp8: needs a later",
        ),
        ("sim:gpu-large+dies,family", "--quiet", "'family' is not NAME=NUMBER"),
        ("numba:0", "--quiet", "the second opinion of `run --cross-check`"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    device: str, flag: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code("run", "--device", device, flag, "--results", tmp_path) in (2, 3)
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def gpu(**changes: Any) -> SimulatedBackend:
    name = changes.pop("name", "gpu-large")
    return SimulatedBackend.named(f"{name}{changes.pop('suffix', '')}")


CHAIN = Point("fma", "fma", "8 chains b256", FP32, scope="device", threads=64)


def test_the_clock_falls_under_one_load_and_recovers_for_the_next() -> None:
    device = gpu()
    device.warm_up(1.0)
    prepared = device.prepare(CHAIN)
    one = device.measure(prepared, 10**9, 1).seconds[0]
    done = device.measure(prepared, 10**9, int(8 / one))
    hot = [hz < 1.5e9 for hz in done.clock_hz]
    first = hot.index(True)
    assert all(hot[first:]) and sum(done.seconds[:first]) + one == pytest.approx(4.0, abs=2 * one)
    assert median(done.seconds[first:]) == pytest.approx(median(done.seconds[:first]) / 0.8, rel=0.01)
    assert set(done.power_w[:first]) == {500.0} and set(done.power_w[first:]) == {80 + 0.8 * 420}
    assert set(done.throttle) == {"", "sw_power_cap"}
    assert list(done.temperature_c) == sorted(done.temperature_c)
    assert device.measure(device.prepare(CHAIN), 10**9, 1).clock_hz == (1.5e9,)


def test_dying_takes_the_kernel_that_it_names_and_off_by_stretches_time() -> None:
    sick = gpu(suffix="+dies,family=fma+off-by,factor=2,family=stream")
    with pytest.raises(ContextLost, match="illegal address in fma"):
        sick.prepare(CHAIN)
    read = Point(
        "stream", "read", "v16 l4 b256", FP32, "DRAM", "read", "none", "device", 64, sizes={"bytes": 1 << 30}
    )
    seconds = [d.measure(d.prepare(read), 10**6, 1).seconds[0] for d in (sick, gpu())]
    assert seconds[0] == pytest.approx(2 * seconds[1])


@pytest.mark.parametrize(("settle", "limit"), [(5.0, 16.5), (0.0, 11.5)])
def test_what_is_begun_before_the_box_ends_has_the_time_that_it_takes(settle: float, limit: float) -> None:
    """Ten seconds of load and more: ended after eleven, its process would count as one that hung."""
    point = Point("fma", "fma", "8 chains b256", FP32, scope="device")
    planned = Planned(point, 1, 0.02, 0.75, -1.0, 0.2, 5.5, 5, settle=settle, regime="sustained")
    seen: list[float] = []

    def measure(planned: Planned, order: int, scale: float, limit: float) -> Sample:
        seen.append(limit)
        return Sample(planned.point, 1, 1, order)

    nothing = SimpleNamespace(point=lambda *_: None, append=lambda _: None, add=lambda *_: None)
    nothing.learn = lambda *_: None
    runner = SimpleNamespace(by_family=True, measure=measure)
    rest = dict.fromkeys(("screen", "store", "ledger", "history"), nothing)
    box, unit = SimpleNamespace(left=0.5), SimpleNamespace(unit="SM")
    campaign: Any = SimpleNamespace(runner=runner, box=box, plan=unit, _calibrated=lambda p: p, **rest)
    Campaign._measure(campaign, planned, 0, 1.0, 0)
    assert seen == [limit]


def test_a_run_that_was_interrupted_measures_what_it_would_have_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite.os, "urandom", lambda n: bytes(n))
    opened: Callable[..., Any] = suite.open_device
    words = {"preset": "quick", "families": ["fma", "stream"], "quiet": True, "workloads": False}
    whole = read_log(suite.run("sim:small-cpu", results=tmp_path / "a", **words)).samples  # type: ignore[arg-type]

    def stopping(device: str, blocker: bool = True) -> Any:
        found, runner = opened(device, blocker)
        measure, left = runner.measure, [61]

        def limited(*arguments: Any) -> Sample:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return measure(*arguments)  # type: ignore[no-any-return]

        runner.measure = limited
        return found, runner

    monkeypatch.setattr(suite, "open_device", stopping)
    with pytest.raises(KeyboardInterrupt):
        suite.run("sim:small-cpu", results=tmp_path / "b", **words)  # type: ignore[arg-type]
    monkeypatch.setattr(suite, "open_device", opened)
    (folder,) = (tmp_path / "b").glob("*/*")
    assert len(read_log(folder).samples) == 60
    suite.run(resume=folder, quiet=True)
    again = read_log(folder).samples
    assert [s.point.key for s in again] == [s.point.key for s in whole]
    cut = next(i for i, s in enumerate(whole) if s.round == whole[60].round + 1)
    for one, other in zip(whole[60:cut], again[60:cut], strict=True):
        if one.status == "ok":
            pairs = list(zip(one.repetitions.seconds, other.repetitions.seconds, strict=False))
            assert len(pairs) >= 5 and all(a == b for a, b in pairs)
