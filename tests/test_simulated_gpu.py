"""Simulated GPUs through the command line: plan, telemetry, regimes, lost processes, labels, cross-check."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from bench import arguments
from bench.backends import cuda, open_backend
from bench.backends.simulated import SimulatedBackend
from bench.planning.planned import PROCESS_OF
from bench.profile.records import Ceiling, Sample
from bench.store import read_log, read_profile
from tests.simulated_runs import TRUTHS, code, file_of, run
from tests.simulated_runs import one_version as one_version


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One minute on a whole simulated GPU."""
    return run(tmp_path_factory.mktemp("quick"), "gpu-large", "--minutes", 1, report=True)


def test_a_minute_finds_the_truth_of_a_gpu(quick: Path) -> None:
    profile, truth = read_profile(quick), TRUTHS["gpu-large"]
    pi = {c.precision.label: c.estimate.value for c in profile.ceilings if c.kernel == "fma"}
    assert pi == pytest.approx({n: truth["pi"][n] for n in ("fp32", "fp64", "fp16", "bf16")}, rel=0.02)
    matrix = {c.precision.label: c for c in profile.ceilings if c.precision.unit == "matrix"}
    assert matrix["fp16>fp32 matrix"].estimate.value == pytest.approx(360e12, rel=0.02)
    dram = [c for c in profile.ceilings if c.level == "DRAM" and c.kernel != "chase"]
    beta = {c.access: c.estimate.value for c in dram if c.quantity == "beta"}
    assert beta == pytest.approx({a: truth["memory"][a] for a in beta}, rel=0.02) and len(beta) == 4
    shares = {(c.scope, c.threads, c.regime) for c in profile.ceilings if c.kernel != "chase"}
    assert shares == {("device", 64, "typical")}
    near = {c.level: c.estimate.value for c in profile.ceilings if c.kernel == "cache-read"}
    assert near == pytest.approx({c["level"]: c["read"] for c in truth["caches"]}, rel=0.03)
    waits = {c.level: c.estimate.value for c in profile.ceilings if c.quantity == "latency"}
    assert waits == pytest.approx(truth["latency"], rel=0.03)
    assert {c.rounds for c in profile.ceilings} <= {4, 5}
    assert {c.rounds for c in profile.ceilings if c.kernel == "fma"} == {5}, "what is left is for a verdict"
    (curve,) = (c for c in profile.curves if c.kind == "mix")
    (fit,) = (f for f in curve.fits if f.chosen)
    assert fit.ridge.value == pytest.approx(8.0, rel=0.02)


def test_it_counts_sms_and_says_that_it_is_simulated(quick: Path) -> None:
    table = (quick / "table.txt").read_text(encoding="utf-8")
    assert "SIMULATED gpu-large · 64 SMs" in table and "thread" not in table.split("How to read")[0]
    assert "sustained rates: 10 s each do not fit" in table
    assert (quick / "roofline.svg").stat().st_size > 1000
    assert quick.parent.name == "sim-gpu-large-simulated"


def test_each_family_of_a_round_is_measured_on_its_own(quick: Path) -> None:
    rounds: dict[int, list[Sample]] = defaultdict(list)
    for sample in read_log(quick).samples:
        rounds[sample.round].append(sample)
    orders = []
    for number in (1, 2, 3, 4):
        names = [PROCESS_OF.get(s.point.family, s.point.family) for s in rounds[number]]
        changes = [a != b for a, b in pairwise(names)]
        assert sum(changes) == 6, "six families and the memory hierarchy, each once"
        orders.append([name for name, new in zip(names, [True, *changes], strict=True) if new])
        assert len({(n, s.process) for n, s in zip(names, rounds[number], strict=True)}) == 7
    assert len({tuple(order) for order in orders}) > 1, "shuffled anew"


def test_telemetry_is_in_every_repetition(quick: Path) -> None:
    gpu = TRUTHS["gpu-large"]["gpu"]
    for sample in read_log(quick).samples:
        told, n = sample.repetitions, len(sample.repetitions)
        assert len(told.power_w) == len(told.temperature_c) == len(told.throttle) == len(told.clock_hz) == n
        assert set(told.power_w) == {gpu["load_w"]} and set(told.throttle) == {""}
        assert all(30 <= t < 70 for t in told.temperature_c)


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three minutes with the fp32 chain, product and stream only."""
    words = ("--precisions", "fp32,fp4", "--families", "fma,gemm,stream")
    return run(tmp_path_factory.mktemp("standard"), "gpu-large", "--minutes", 3, *words, report=True)


def regimes(folder: Path, family: str) -> dict[str, Ceiling]:
    kernels = {"fma": "fma", "gemm": "gemm", "stream": "read"}
    return {c.regime: c for c in read_profile(folder).ceilings if c.kernel == kernels[family]}


def test_burst_is_faster_than_typical_and_sustained_slower(standard: Path) -> None:
    found, truth = regimes(standard, "fma"), TRUTHS["gpu-large"]
    gpu, pi, clock = truth["gpu"], truth["pi"]["fp32"], truth["clock_hz"]
    for regime, share in (("typical", 1.0), ("burst", gpu["burst"]), ("sustained", gpu["sustained"])):
        assert found[regime].clock_hz == pytest.approx(share * clock)
        assert found[regime].estimate.value == pytest.approx(share * pi, rel=0.02)
        assert found[regime].share_at_clock == pytest.approx(pi / (64 * 256 * clock), rel=0.02), regime
    assert (found["typical"].rounds, found["sustained"].rounds) == (5, 1)
    stream = regimes(standard, "stream")
    assert stream["sustained"].estimate.value == pytest.approx(stream["typical"].estimate.value, rel=0.02)


def test_a_sustained_rate_is_the_end_of_ten_seconds_of_load(standard: Path) -> None:
    long = [s for s in read_log(standard).samples if s.regime == "sustained"]
    assert {s.point.family for s in long} == {"fma", "stream"} and {s.round for s in long} == {1}
    for sample in long:
        assert sample.facts["settled_seconds"] >= 5 and sample.facts["scale"] == 1.0
        assert sample.facts["settled_seconds"] + sum(sample.repetitions.seconds) > 10
        assert set(sample.repetitions.throttle) == {"sw_power_cap"}
    power = {c.regime: c.energy_j for c in read_profile(standard).ceilings if c.kernel == "fma"}
    gpu, pi = TRUTHS["gpu-large"]["gpu"], TRUTHS["gpu-large"]["pi"]["fp32"]
    held = gpu["idle_w"] + gpu["sustained"] * (gpu["load_w"] - gpu["idle_w"])
    assert power["sustained"] == pytest.approx(held / (gpu["sustained"] * pi), rel=0.02)


def test_rounds_begin_cold_and_end_with_the_longest_load(standard: Path) -> None:
    order = [s.regime for s in read_log(standard).samples if s.round == 1]
    assert order == sorted(order, key=("burst", "typical", "sustained").index) and len(set(order)) == 3
    second = [s for s in read_log(standard).samples if s.round == 2]
    last, after = [
        next(s for s in side if s.regime == r) for side, r in ((second[::-1], "burst"), (second, "typical"))
    ]
    assert last.process == after.process, "its process goes on, warmed up"


def test_what_a_gpu_lacks_is_skipped_with_its_reason(standard: Path) -> None:
    (row,) = read_profile(standard).skipped
    assert row["what"].startswith("gemm fp4>fp32 library") and "needs a later GPU" in row["reason"]


def test_strict_asks_no_interval_of_what_is_measured_once(standard: Path) -> None:
    arguments.check_converged(read_profile(standard))


def test_results_of_several_gpus_keep_their_names(tmp_path: Path, quick: Path) -> None:
    small = run(tmp_path, "gpu-small", "--minutes", 1, "--families", "fma,stream")
    for folder, name, sms, cc in ((quick, "gpu-large", 64, "9.0"), (small, "gpu-small", 20, "8.6")):
        log, profile = read_log(folder), read_profile(folder)
        assert log.header["device"]["id"] == log.header["plan"]["options"]["device"] == f"sim:{name}"
        assert folder.parent.name == f"sim-{name}-simulated"
        assert (profile.identity["device"], profile.identity["cc"]) == (f"SIMULATED {name}", cc)
        whole = {s.point.threads for s in log.samples if s.point.scope == "device"}
        assert whole == {profile.identity["sms"]} == {sms}
    assert code("compare", quick, small, "--allow-simulated", "--json") == 0


def test_two_gpus_of_one_kind_are_two_devices() -> None:
    one, other = (SimulatedBackend("twin", open_backend("sim:gpu-large").truth).device for _ in "ab")
    assert one.identity["uuid"] == other.identity["uuid"]
    truth = open_backend("sim:gpu-small").truth
    assert SimulatedBackend("twin", truth).device.identity["uuid"] != one.identity["uuid"]


def test_a_gpu_is_warmed_up_for_long_enough_to_find_its_clock_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(SimulatedBackend, "warm_up", lambda self, seconds: asked.append(seconds))
    run(tmp_path, "gpu-small", "--minutes", 1, "--families", "fma", "--precisions", "fp32")
    assert asked and min(asked) > cuda.LEAST_WARM + cuda.FLAT_READINGS * cuda.WARM_BATCH


def test_a_slice_is_measured_as_what_it_is(tmp_path: Path) -> None:
    folder = run(
        tmp_path, "gpu-mig", "--minutes", 1, "--families", "fma,stream", "--precisions", "fp32,int32"
    )
    log, profile = read_log(folder), read_profile(folder)
    assert folder.parent.name == "sim-gpu-mig-simulated-mig"
    assert profile.identity["mig"] == "1s.8gb"
    facts = log.header["device"]["facts"]
    assert (facts["mig"]["sms"], facts["mig"]["memory_bytes"]) == (8, 8_000_000_000)
    assert "whole board" in facts["mig"]["note"] and facts["memory_bus_bits"] is None
    assert all(s.facts["whole_board"] for s in log.samples if s.status == "ok")
    assert not any(s.repetitions.power_w for s in log.samples), "watts of all slices are not this one's"
    (pi,) = (c for c in profile.ceilings if c.quantity == "pi")
    assert pi.threads == 8 and pi.share_at_clock == pytest.approx(3e12 / (8 * 256 * 1.5e9), rel=0.02)
    assert {c.share_at_clock for c in profile.ceilings if c.quantity == "beta"} == {None}
    assert max(s.point.sizes.get("bytes", 0) for s in log.samples) <= 8e9 / 4
    (row,) = profile.skipped
    assert row["what"].startswith("fma int32") and row["reason"].endswith("no int32 unit")


@pytest.mark.parametrize(("capability", "share"), [(95, 0.97), (133, None)])
def test_a_capability_that_nobody_knows_falls_back(
    tmp_path: Path, capability: int, share: float | None
) -> None:
    device = file_of(tmp_path, "gpu-large", gpu={"compute_capability": capability})
    folder = run(tmp_path / "r", device, "--minutes", 1, "--families", "fma,gemm", "--precisions", "fp32")
    found = {c.kernel: c for c in read_profile(folder).ceilings}
    assert found["fma"].estimate.value == pytest.approx(24e12, rel=0.02)
    assert found["fma"].share_at_clock == (share and pytest.approx(share, rel=0.02))
    edges = {s.point.sizes["n"] for s in read_log(folder).samples if s.point.family == "gemm"}
    assert edges == ({4096} if share is None else {4096, 8192})
