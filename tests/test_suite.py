"""A whole run on fake devices: time box, rounds, resuming without loss, refusals, interruption."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import host
from bench.backends import Prepared
from bench.backends.simulation.truth import CATALOGUE
from bench.errors import DeviceError, FileError, UsageError
from bench.planning.planned import PRESETS, Planned
from bench.profile.records import Point, Precision, Repetitions, Sample
from bench.running import suite
from bench.running.campaign import GRACE, winners
from bench.running.runners import Children, InProcess
from bench.store import Log, Store, read_log, read_profile
from bench.workloads.zoo import ZOO
from kernels import KERNELS
from tests.fake_device import FAKE, FakeBackend


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The fake device with its virtual clock behind every --device, measured in this process."""
    return use(monkeypatch, FakeBackend())


def use(monkeypatch: pytest.MonkeyPatch, backend: FakeBackend) -> FakeBackend:
    monkeypatch.setattr(
        suite, "open_device", lambda device, blocker=True: (backend.device, InProcess(backend))
    )
    monkeypatch.setattr(suite, "_derive", lambda store: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # these runs are thrown away
    monkeypatch.setattr(suite.provenance, "source_hash", lambda *_: "0123456789ab")
    return backend


def run(tmp_path: Path, **options: Any) -> Log:
    defaults = {"device": "fake", "results": tmp_path, "quiet": True, "workloads": False}
    return read_log(suite.run(**{**defaults, **options}))


def rounds_of(log: Log) -> dict[int, int]:
    return dict(sorted(Counter(s.round for s in log.samples).items()))


def keys(samples: list[Sample]) -> Counter[tuple[int, str, str]]:
    return Counter((s.round, s.regime, s.point.key, s.visit) for s in samples)


def test_a_standard_run_has_all_its_rounds_in_its_box(fake: FakeBackend, tmp_path: Path) -> None:
    log = run(tmp_path, preset="standard", families=["fma", "stream", "gemm"])
    assert fake.now() <= 180
    counts = rounds_of(log)
    rounds = PRESETS["standard"].rounds
    assert list(counts)[: rounds + 1] == list(range(rounds + 1))
    assert counts[1] == counts[2] + 1, "what is skipped is recorded once"
    assert counts[2] == counts[3] > counts[4] == counts[5], "what only predicts has three rounds"
    assert {s.status for s in log.samples} == {"ok", "skipped"}
    assert max(keys(log.samples).values()) == 1
    assert {s.process for s in log.samples if s.round == 3} != {
        s.process for s in log.samples if s.round == 4
    }
    assert [c["round"] for c in log.conditions] == list(counts)


def test_every_round_is_shuffled_anew_and_burst_comes_first_on_a_cool_device(
    fake: FakeBackend, tmp_path: Path
) -> None:
    log = run(tmp_path, preset="full", families=["fma"])
    orders = [[s.point.key for s in log.samples if s.round == n] for n in (2, 3)]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]
    regimes = [s.regime for s in log.samples if s.round == 2]
    assert regimes[:2] == ["burst", "burst"] and set(regimes[2:]) == {"typical"}
    after = [c[0] for c in fake.calls[fake.calls.index(("begin_round", 2)) :]]
    assert after.index("warm_up") > after.index("measure"), "burst is measured before the warm-up"


def test_the_pilots_winner_is_used_and_noted(fake: FakeBackend, tmp_path: Path) -> None:
    log = run(tmp_path, preset="quick", families=["fma", "stream"])
    noted = next(n["winners"] for n in log.notes if "winners" in n)
    assert set(noted.values()) == {"second"}, "the fake's second variant is 10 % faster"
    rounds = {s.point.variant for s in log.samples if s.round and s.status == "ok"}
    assert rounds == {"second", "numba"}
    assert {s.regime for s in log.samples if s.round == 0} == {"pilot"}


def test_the_header_says_what_was_run(fake: FakeBackend, tmp_path: Path) -> None:
    log = run(tmp_path, minutes=1.0, precisions=("fp64",), families=("fma",))
    options = log.header["plan"]["options"]
    assert (options["preset"], options["minutes"], options["families"]) == ("quick", 1.0, ["fma"])
    assert log.header["identity"] == {
        "device": "Fake CPU",
        "threads": 2,
        "source": "0123456789ab",
        "schema_version": 1,
    }
    assert log.header["device"]["name"] == "Fake CPU" and log.header["simulated"] is False
    assert "stream: not asked for" in log.header["not_measured"]
    folder = next(tmp_path.glob("*/*"))
    assert folder.parent.name == "fake-cpu-vm" and folder.name[8] == "T"


def test_two_runs_within_a_second_get_two_folders(fake: FakeBackend, tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, preset="quick", families=["gemm"])
    assert len(list(tmp_path.glob("*/*/samples.jsonl"))) == 2


@pytest.mark.parametrize("minutes", [0.2, 0.5, 1.0, 2.5])
def test_the_box_is_kept_on_a_slow_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minutes: float
) -> None:
    backend = use(monkeypatch, FakeBackend(slow={"gemm": 1e5, "read": 30.0}))
    log = run(tmp_path, minutes=minutes, families=["fma", "stream", "gemm"])
    assert backend.now() <= 60 * minutes
    headlines = {s.point.kernel for s in log.samples if s.round == 1}
    assert {"fma", "read", "triad", "update"} <= headlines


class Tiring(FakeBackend):
    """From round 3 on everything takes 1000 times as long: nothing that was learnt holds."""

    def begin_round(self, round: int) -> None:
        super().begin_round(round)
        if round >= 3:
            self.slow = dict.fromkeys(KERNELS, 1000.0)

    def prepare(self, point: Point) -> Prepared:
        self._pass(1e-2 * self.slow.get(point.kernel, 1.0))
        return super().prepare(point)


def test_a_round_that_outlasts_the_box_is_cut_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = use(monkeypatch, Tiring())
    log = run(tmp_path, preset="standard", families=["fma", "stream", "gemm"])
    assert backend.now() <= 180 + 4 * GRACE, "only the point that was running may still finish"
    ends = [n for n in log.notes if n.get("event") == "end"]
    assert [n["complete"] for n in ends] == [True] * (len(ends) - 1) + [False]


def test_detail_is_given_up_before_rounds_and_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = use(monkeypatch, FakeBackend(slow={"gemm": 5e5}))
    log = run(tmp_path, preset="standard", families=["fma", "gemm", "stream"])
    assert backend.now() <= 180
    fma = Counter(s.round for s in log.samples if s.point.kernel == "fma" and s.status == "ok" and s.round)
    assert len(fma) >= 5
    gemm = Counter(s.point.key for s in log.samples if s.point.kernel == "gemm")
    assert len(gemm) == 44 and min(gemm.values()) <= 2, "in the first round, then given up"
    assert any("measured in fewer rounds" in text for text in log.header["not_measured"])


def test_failures_do_not_stop_the_run_and_are_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, FakeBackend(faults={"copy": "memory", "triad": "verify"}))
    log = run(tmp_path, preset="standard", families=["stream"])
    failed = Counter(s.point.kernel for s in log.samples if s.status == "failed" and s.round)
    assert set(failed) == {"copy", "triad"}
    per_point = Counter(s.point.key for s in log.samples if s.status == "failed" and s.round)
    assert max(per_point.values()) == 5, "all visits of one round, then never again"
    assert sum(s.status == "ok" and s.point.kernel == "read" for s in log.samples) > 10


def test_hangs_cost_no_more_than_the_box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = use(monkeypatch, FakeBackend(faults={"fma-naive": "hang"}))
    log = run(tmp_path, preset="standard", families=["fma"])
    hung = [s for s in log.samples if s.status == "failed"]
    assert {s.point.kernel for s in hung} == {"fma-naive"} and hung[0].reason == "no answer within 21 s"
    assert backend.now() <= 180 + 40
    assert sum(s.point.kernel == "fma" and s.status == "ok" for s in log.samples) >= 20


class Wandering(FakeBackend):
    """read differs by 30 % from round to round, everything else is steady."""

    def begin_round(self, round: int) -> None:
        super().begin_round(round)
        self.slow["read"] = random.Random(round).uniform(0.7, 1.3)


def test_extra_rounds_measure_only_what_is_wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend = use(monkeypatch, Wandering())
    log = run(tmp_path, preset="standard", families=["fma", "stream"])
    extra = [n["round"] for n in log.notes if n.get("kind") == "extra" and n["event"] == "end"]
    assert extra
    assert {s.point.kernel for s in log.samples if s.round in extra} == {"read"}
    assert backend.now() <= 180


def test_a_run_that_is_over_is_resumed_without_measuring(fake: FakeBackend, tmp_path: Path) -> None:
    before = run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    after = read_log(suite.run(resume=folder, quiet=True))
    assert after.samples == before.samples


def test_a_finished_run_is_not_measured_on(
    fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    monkeypatch.setattr(suite, "_measure", lambda *_: pytest.fail("it measured again"))
    suite.run(resume=folder, quiet=False)
    assert f"{folder} is finished" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_sizes_when_memory_has_become_scarce(
    fake: FakeBackend, tmp_path: Path
) -> None:
    fake.available = 360 << 20
    run(tmp_path, preset="quick", families=["stream"])
    folder = next(tmp_path.glob("*/*"))
    before = read_log(folder).samples
    assert {s.point.sizes["bytes"] for s in before if s.point.kernel == "triad"} == {60 << 20}
    fake.available = 8 << 30
    assert read_log(suite.run(resume=folder, quiet=True)).samples == before


class Interrupted(InProcess):
    """Ctrl-C at the n-th point."""

    def __init__(self, backend: FakeBackend, at: int) -> None:
        super().__init__(backend)
        self.at = at
        self.killed = False

    def measure(self, *arguments: Any) -> Sample:
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return super().measure(*arguments)

    def close(self, kill: bool = False) -> None:
        self.killed = self.killed or kill


@pytest.mark.parametrize("at", [1, 4, 9, 30])
def test_ctrl_c_keeps_everything_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int
) -> None:
    use(monkeypatch, FakeBackend())
    runner = Interrupted(FakeBackend(), at)
    resumable = suite.open_device
    monkeypatch.setattr(suite, "open_device", lambda device, blocker=True: (FAKE, runner))
    with pytest.raises(
        KeyboardInterrupt, match=rf"{at - 1} samples are kept .* python -m bench run --resume"
    ):
        run(tmp_path, preset="quick", families=["fma", "gemm"])
    assert runner.killed
    folder = next(tmp_path.glob("*/*"))
    kept = read_log(folder).samples
    monkeypatch.setattr(suite, "open_device", resumable)
    log = read_log(suite.run(resume=folder, quiet=True))
    assert log.samples[: len(kept)] == kept
    assert max(keys(log.samples).values()) == 1
    assert len([n for n in log.notes if "winners" in n]) == 1
    rounds = PRESETS["quick"].rounds
    assert list(rounds_of(log))[: rounds + 1] == list(range(rounds + 1)), (
        "the round that was cut short is completed"
    )
    whole = [n for n in log.notes if n.get("event") == "end" and n["kind"] == "planned" and n["complete"]]
    assert len(whole) == rounds


def test_a_simulated_file_leaves_no_folder_and_is_not_needed_to_resume(tmp_path: Path) -> None:
    truth = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))["small-cpu"]
    file = tmp_path / "private" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(truth))
    log = run(tmp_path / "r", device=f"sim:{file}", preset="quick", families=["fma"])
    folder = next((tmp_path / "r").glob("*/*"))
    assert log.header["plan"]["options"]["device"] == "sim:mine.yaml"
    assert "private" not in (folder / "samples.jsonl").read_text(encoding="utf-8")
    file.unlink()
    kept = read_log(folder).samples
    assert suite.run(resume=folder, quiet=True) == folder
    assert read_log(folder).samples[: len(kept)] == kept


def test_resuming_another_version_or_device_is_refused(
    fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    fake.device = replace(FAKE, identity={"device": "Other CPU", "threads": 2})
    with pytest.raises(FileError, match=r"another device .device: Fake CPU, here Other CPU.: start"):
        suite.run(resume=folder, quiet=True)
    monkeypatch.setattr(suite.provenance, "source_hash", lambda *_: "ffffffffffff")
    with pytest.raises(
        FileError, match=r"another version of this tool .source 0123456789ab, now ffffffffffff"
    ):
        suite.run(resume=folder, quiet=True)
    Store.open(folder).close()


def test_a_header_without_options_cannot_be_resumed(fake: FakeBackend, tmp_path: Path) -> None:
    Store.create(tmp_path / "old", {"schema_version": 1, "identity": {}}).close()
    with pytest.raises(FileError, match="does not say how it was run"):
        suite.run(resume=tmp_path / "old", quiet=True)


def test_a_login_node_is_spared_unless_asked_for_by_name(
    fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "login_node", lambda: "Slurm")
    with pytest.raises(DeviceError, match=r"Slurm is here, but no allocation.*--device cpu"):
        run(tmp_path, device="auto", preset="quick")
    assert not list(tmp_path.iterdir())
    assert run(tmp_path, device="cpu", preset="quick", families=["gemm"]).samples


def test_auto_is_the_host(fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "login_node", lambda: "")
    asked: list[str] = []
    opened = suite.open_device
    monkeypatch.setattr(
        suite, "open_device", lambda device, blocker=True: (asked.append(device), opened(device))[1]
    )
    log = run(tmp_path, device="auto", preset="quick", families=["gemm"])
    assert (asked, log.header["plan"]["options"]["device"]) == (["cpu"], fake.device.id)


def test_an_unknown_preset_is_refused(fake: FakeBackend, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="valid: quick, standard, full"):
        run(tmp_path, preset="fast")


def test_progress_in_plain_lines(
    fake: FakeBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, preset="quick", families=["fma", "stream"], quiet=False)
    said = capsys.readouterr().err
    assert "Fake CPU, 2 threads, into" in said
    assert "first pi: 111 MFLOP/s (fma fp64, second, 2 threads" in said, "100 FLOP in 0.9 us"
    assert said.index("first pi") < said.index("first beta") < said.index("round 1 of 4")
    assert "round 4 of 4" in said
    run(tmp_path, preset="quick", families=["fma"], quiet=True)
    assert capsys.readouterr().err == ""


def test_a_simulated_run_finds_its_truth(tmp_path: Path) -> None:
    folder = suite.run(
        "sim:small-cpu", preset="quick", results=tmp_path, families=["fma", "workload"], quiet=True
    )
    profile = read_profile(folder)
    assert profile.simulated and folder.parent.name == "sim-small-cpu-simulated"
    pi = {c.precision.label: c for c in profile.ceilings if c.scope == "all"}
    assert pi["fp64"].estimate.value == pytest.approx(50e9, rel=0.03)
    assert pi["fp32"].estimate.value == pytest.approx(100e9, rel=0.03)
    assert pi["fp64"].rounds >= 5
    names = {s.point.kernel for s in read_log(folder).samples if s.point.family == "workload"}
    assert names == set(ZOO)


def test_simulated_workloads_say_that_nothing_ran_them() -> None:
    options = suite.Options("sim:small-cpu", 1.0, "quick", memory=4e9)
    simulated = suite.workload_points(replace(FAKE, kind="simulated"), options)
    assert {p.variant for p in simulated} == {"simulated"}
    assert "simulated" not in {p.variant for p in suite.workload_points(FAKE, options)}


def test_workloads_follow_the_precisions_asked_for() -> None:
    options = suite.Options("cpu", 1.0, "quick", precisions=("fp32",), memory=4e9)
    points = suite.workload_points(FAKE, options)
    assert points and {p.precision.inputs for p in points} == {"fp32"}
    assert {(p.family, p.level, p.scope, p.threads) for p in points} == {("workload", "DRAM", "all", 2)}


def test_the_host_is_measured_by_children_only() -> None:
    device, runner = suite.open_device("cpu")
    assert device.kind == "cpu" and isinstance(runner, Children) and runner.process == 0
    with pytest.raises(DeviceError, match="unknown device 'abacus'; valid: cpu, cuda:N, sim:NAME"):
        suite.open_device("abacus")


@pytest.mark.parametrize(("ahead", "winner"), [(0.5, "first"), (1.015, "first"), (1.03, "second")])
def test_the_guess_stands_unless_another_form_is_clearly_faster(ahead: float, winner: str) -> None:
    from bench.planning.plan import plan

    drafted = plan(FAKE, FakeBackend().variants, "quick", families=["fma"], precisions=["fp64"])
    runner = InProcess(FakeBackend())
    samples = [runner.measure(trial, n, 1.0, 100) for n, trial in enumerate(drafted.pilot)]
    rates = {"first": 1.0, "second": ahead}
    even = [
        replace(s, flops=rates[s.point.variant] * 1e9, repetitions=Repetitions(seconds=(1.0,) * 5))
        for s in samples
    ]
    assert winners(drafted.pilot, even) == {"fma/fp64": winner}


def test_on_a_gpu_half_a_per_cent_is_clear() -> None:
    point = Point("fma", "fma", "first", Precision.of("fp64"), scope="device")
    trial = Planned(point, 0, 0.1, 0.5, 0.01, 0.1, 0.1, 3, tune="it")
    for ahead, winner in ((1.004, "first"), (1.006, "second")):
        trials = [trial, trial.with_variant("second")]
        timed = [
            Sample(t.point, 0, 1, n, flops=rate, repetitions=Repetitions(seconds=(1.0,) * 5))
            for n, (t, rate) in enumerate(zip(trials, (1e9, ahead * 1e9), strict=True))
        ]
        assert winners(trials, timed) == {"it": winner}


def test_winners_are_the_highest_medians_of_what_could_be_measured() -> None:
    from bench.planning.plan import plan

    drafted = plan(FAKE, FakeBackend().variants, "quick", families=["fma"])
    runner = InProcess(FakeBackend(slow={"fma": 1.0}))
    samples = [runner.measure(trial, n, 1.0, 100) for n, trial in enumerate(drafted.pilot)]
    assert winners(drafted.pilot, samples) == {"fma/fp64": "second", "fma/fp32": "second"}
    failed = [replace(s, status="failed") if s.point.variant == "second" else s for s in samples]
    assert winners(drafted.pilot, failed) == {"fma/fp64": "first", "fma/fp32": "first"}
    assert winners(drafted.pilot, []) == {}
