"""Simulated GPUs through the command line: plan, telemetry, regimes, lost processes, labels, cross-check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from bench import arguments, cli, provenance
from bench.backends import cuda, open_backend
from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.gpu.crosscheck import AGREE, FAULT
from bench.gpu.faults import ContextLost
from bench.planning.planned import PROCESS_OF
from bench.profile.records import Ceiling, Point, Precision, Sample
from bench.report import remake
from bench.running import suite
from bench.store import Log, read_log, read_profile

TRUTHS: dict[str, Any] = read(CATALOGUE)
FP32 = Precision.of("fp32")


@pytest.fixture(autouse=True)
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout may be edited while this runs; that is not what is tested here."""
    monkeypatch.setattr(provenance, "source_hash", lambda *_: "0123456789ab")


def code(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return int(stop.value.code or 0)


def run(results: Path, device: str, *words: object, report: bool = False) -> Path:
    """The result folder of one run; with its table and plots where they are asked for."""
    with pytest.MonkeyPatch.context() as patched:
        if not report:
            patched.setattr(remake, "report", lambda folder: "")
        assert code("run", "--device", f"sim:{device}", "--quiet", "--results", results, *words) == 0
    (folder,) = results.glob("*/*")
    return folder


def file_of(folder: Path, name: str, **changes: Any) -> str:
    """A catalogue device changed in a file of its own; `gpu` is merged."""
    truth = {**TRUTHS[name], **changes}
    truth["gpu"] = {**TRUTHS[name]["gpu"], **changes.get("gpu", {})}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(truth), encoding="utf-8")
    return str(path)


def grouped(log: Log) -> dict[tuple[str, str], list[Sample]]:
    """Samples of the rounds by family and regime."""
    found = defaultdict(list)
    for sample in log.samples:
        if sample.round > 0:
            found[sample.point.family, sample.regime].append(sample)
    return found


def said(log: Log) -> str:
    return "\n".join(log.header["not_measured"])


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


# the second opinion


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


# the backend


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
