"""A whole run on fake devices: time box, rounds, what is left out, what is refused, what is said."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench import host
from bench.backends import Prepared
from bench.errors import DeviceError, UsageError
from bench.planning.planned import PRESETS
from bench.profile.records import Point
from bench.running import suite
from bench.running.campaign import GRACE
from bench.running.runners import Children
from bench.store import read_log, read_profile
from bench.workloads.zoo import ZOO
from kernels import KERNELS
from tests.fake_device import FAKE, FakeBackend
from tests.fake_suite import keys, rounds_of, run, use


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The fake device with its virtual clock behind every --device, measured in this process."""
    return use(monkeypatch, FakeBackend())


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
