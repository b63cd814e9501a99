"""Defects of the simulated device: they distort what the protocol returns and leave the truth alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.defects import DEFECTS, defect_of, parse
from bench.backends.simulation.distortion import Call, Defect
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.errors import DeviceError, UsageError, VerificationError
from bench.gpu.faults import ContextLost
from bench.planning.planned import Planned
from bench.profile.records import Point, Precision, Repetitions
from bench.running.measure import Session
from bench.running.runners import InProcess
from kernels import KERNELS
from tests.truths import QUIET, backend, changed, point, random_truth

HEALTHY = changed(random_truth(21), threads=2, noise={"within": 0.02, "between": 0.03})
SHARP = {"noise": QUIET, "t0": 0.0, "p": 1000.0}
"""Changes that leave nothing but pi and beta."""

GPU = changed(read(CATALOGUE)["gpu-large"], noise=QUIET, t0=0.0)
FAMILIES = ("fma", "stream", "mix", "gemm", "cache")


def ill(*defects: dict[str, Any], truth: dict[str, Any] = HEALTHY, **changes: Any) -> SimulatedBackend:
    return backend(changed(truth, defects=list(defects), **changes))


def repetitions(device: SimulatedBackend, what: str | Point, amount: int = 1000, n: int = 3) -> Repetitions:
    device.begin_round(1)
    what = point(what, threads=2) if isinstance(what, str) else what
    return device.measure(device.prepare(what), amount, n)


def slower(defect: dict[str, Any], what: str | Point, amount: int = 10**6) -> float:
    """Seconds told with the defect over those without, of a device without noise or overhead."""
    with_it, without = (repetitions(ill(*d, **SHARP), what, amount).seconds[0] for d in ((defect,), ()))
    return with_it / without


def board(name: str, kernel: str) -> Point:
    """A point of the large simulated GPU."""
    family = KERNELS[kernel].family
    where = {"level": "DRAM", "access": "read", "sizes": {"bytes": 1 << 30}} if family == "stream" else {}
    return Point(family, kernel, "", Precision.of(name), scope="device", threads=64, **where)  # type: ignore[arg-type]


def test_the_twelve_come_first_and_have_their_names() -> None:
    assert list(DEFECTS)[:12] == [
        *("throttling", "stuck-clock", "memory-clock", "cache-resident", "byte-count", "folded-chain"),
        *("noisy-neighbour", "timer", "sweep-step", "missing-precision", "out-of-memory", "hang"),
    ]


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_changes_nothing_but_what_the_protocol_returns(kind: str) -> None:
    healthy, sick = ill(), ill({"kind": kind})
    assert sick.device.caches == healthy.device.caches and sick.device.precisions == healthy.device.precisions
    assert sick.device.facts == healthy.device.facts
    assert replace(sick.truth, defects=()) == healthy.truth
    fp64 = Precision.of("fp64")
    for name in (k for k, kernel in KERNELS.items() if kernel.family in (*FAMILIES, "tensor")):
        what = point(name, threads=2, **({"sizes": {"bytes": 1 << 20}} if name in ("read", "triad") else {}))
        assert sick.unsupported(what) == healthy.unsupported(what) == ""
        assert sick.variants(name, fp64, "DRAM", 2) == healthy.variants(name, fp64, "DRAM", 2)
        try:
            prepared = sick.prepare(what)
        except MemoryError:
            assert kind == "out-of-memory"
            continue
        except ContextLost:
            assert kind == "dies" and KERNELS[name].family == "tensor"
            continue
        assert prepared.work(10) == healthy.prepare(what).work(10)


def test_a_place_for_defects_does_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFECTS, "none", Defect)
    for kernel in (name for name, k in KERNELS.items() if k.family in FAMILIES):
        assert repetitions(ill({"kind": "none"}), kernel, 1000, 20) == repetitions(ill(), kernel, 1000, 20)


def test_a_noisy_neighbour_disturbs_a_share_and_leaves_evidence() -> None:
    sick = ill({"kind": "noisy-neighbour", "share": 0.25, "stretch": 3.0})
    seen, true = repetitions(sick, "read", 1000, 4000), repetitions(ill(), "read", 1000, 4000)
    clean = np.array(seen.clean)
    assert 1 - clean.mean() == pytest.approx(0.25, abs=0.02)
    ratio = np.array(seen.seconds) / np.array(true.seconds)
    assert ratio[clean] == pytest.approx(1) and ratio[~clean] == pytest.approx(3)
    assert set(np.array(seen.switches)[~clean]) == {1} and set(np.array(seen.switches)[clean]) == {0}
    assert np.array(seen.cpu_share)[~clean] == pytest.approx(1 / 3)
    assert np.diff(seen.start) == pytest.approx(seen.seconds[:-1], rel=1e-6)
    assert sick.now() == pytest.approx(sum(seen.seconds)) and sick.conditions()["load"] == 0.25
    assert repetitions(sick, "read", 1000, 4000).seconds == seen.seconds


def test_on_a_gpu_only_the_list_of_processes_shows_a_neighbour() -> None:
    sick = ill({"kind": "noisy-neighbour", "share": 0.5, "stretch": 3.0}, truth=GPU)
    seen, true = (repetitions(device, board("fp32", "fma"), 10**6, 200) for device in (sick, ill(truth=GPU)))
    ratio = np.array(seen.seconds) / np.array(true.seconds)
    assert set(ratio.round(6)) == {1.0, 3.0} and all(seen.clean)
    assert sick.conditions()["processes"] == 1 and ill(truth=GPU).conditions()["processes"] == 0


@pytest.mark.parametrize(("kernel", "times"), [("fma", 2.0), ("cache-read", 2.0), ("read", 1.0)])
def test_throttling_takes_clock_and_pi_from_a_moment_on(kernel: str, times: float) -> None:
    def long(device: SimulatedBackend) -> Repetitions:
        device.begin_round(1)
        prepared = device.prepare(point(kernel, threads=2))
        one = device.measure(prepared, 10**6, 1).seconds[0]
        device.warm_up(100.0 - device.now())
        return device.measure(prepared, int(10**6 * 0.01 / one), 400)

    sick = ill({"kind": "throttling", "after": 102.0, "share": 0.5}, noise=QUIET, t0=0.0)
    seen, true = long(sick), long(ill(noise=QUIET, t0=0.0))
    hot = np.array([why == "thermal" for why in seen.throttle])
    first = int(np.argmax(hot))
    assert (
        0.4 < first / 400 < 0.6 and hot[first:].all() and true.start[first] == pytest.approx(102.0, abs=0.02)
    )
    ratio = np.array(seen.seconds) / np.array(true.seconds)
    assert ratio[:first] == pytest.approx(1) and ratio[first:] == pytest.approx(times)
    clock = sick.truth.clock_hz
    assert set(seen.clock_hz[:first]) == {clock} and set(seen.clock_hz[first:]) == {clock / 2}
    assert sick.conditions()["clock_hz"] == clock / 2
    assert ill({"kind": "throttling", "after": 102.0}).conditions()["clock_hz"] == clock


def test_a_throttled_board_is_hot_and_its_driver_says_so() -> None:
    sick = ill({"kind": "throttling", "after": 0.0, "share": 0.5}, truth=GPU)
    sick.warm_up(1.0)
    seen = repetitions(sick, board("fp32", "fma"), 10**6, 3)
    assert set(seen.throttle) == {"hw_thermal"} and set(seen.temperature_c) == {90.0}
    assert set(seen.power_w) == {GPU["gpu"]["load_w"] / 2}


@pytest.mark.parametrize(("kernel", "times"), [("fma", 4.0), ("cache-copy", 4.0), ("copy", 1.0)])
def test_a_stuck_clock_slows_all_but_dram_from_the_start_and_nothing_says_why(
    kernel: str, times: float
) -> None:
    assert slower({"kind": "stuck-clock", "share": 0.25}, kernel) == pytest.approx(times)
    sick = ill({"kind": "stuck-clock", "share": 0.25})
    seen = repetitions(sick, kernel)
    assert set(seen.clock_hz) == {sick.truth.clock_hz / 4} and not any(seen.throttle)
    assert sick.conditions()["clock_hz"] == sick.truth.clock_hz / 4


@pytest.mark.parametrize(
    ("kernel", "times"), [("read", 2.5), ("triad", 2.5), ("cache-read", 1.0), ("fma", 1.0)]
)
def test_a_lowered_memory_clock_slows_dram_alone(kernel: str, times: float) -> None:
    assert slower({"kind": "memory-clock", "share": 0.4}, kernel) == pytest.approx(times)
    seen, told = (
        repetitions(ill({"kind": "memory-clock"}), kernel),
        ill({"kind": "memory-clock"}).conditions(),
    )
    assert set(seen.clock_hz) == {HEALTHY["clock_hz"]} and "memory_clock_hz" not in told
    board = ill({"kind": "memory-clock", "share": 0.4}, truth=GPU)
    assert board.conditions()["memory_clock_hz"] == pytest.approx(0.4 * GPU["gpu"]["memory_clock_hz"])
    assert board.device.facts["max_memory_clock_hz"] == GPU["gpu"]["memory_clock_hz"]


@pytest.mark.parametrize(("fill", "held"), [(0.5, 1.0), (1.0606601717798212, 0.5), (2.0, 0.0)])
def test_arrays_smaller_than_asked_are_served_by_the_last_cache(fill: float, held: float) -> None:
    memory, last = HEALTHY["memory"]["read"], HEALTHY["caches"][-1]["read"]
    memory *= 1.0  # all threads of a two-thread device
    expected = held * memory / last + 1 - held
    sick = {"kind": "cache-resident", "fill": fill}
    assert slower(sick, "read") == pytest.approx(expected, rel=1e-3)
    low = point("mix-read-only", threads=2, sizes={"bytes": 4 << 30, "fma": 1})
    assert slower(sick, low) == pytest.approx(expected, rel=1e-3)
    assert slower(sick, "fma") == slower(sick, "cache-read") == slower(sick, "gemm") == 1.0
    assert ill(sick).prepare(point("read")).facts == ill().prepare(point("read")).facts


def test_without_a_cache_no_array_is_in_one() -> None:
    none = changed(HEALTHY, caches=[])
    assert repetitions(ill({"kind": "cache-resident"}, truth=none), "read") == repetitions(
        ill(truth=none), "read"
    )


def test_bytes_that_are_not_counted_cost_time_all_the_same() -> None:
    sick = {"kind": "byte-count", "kernels": "copy/mix-read-only", "moved": 1.5}
    low, high = (
        point("mix-read-only", threads=2, sizes={"bytes": 4 << 30, "fma": f}) for f in (1, 12 * 4096)
    )
    assert [slower(sick, "copy"), slower(sick, low)] == pytest.approx([1.5, 1.5])
    assert slower(sick, "triad") == 1.0 and slower(sick, high) == pytest.approx(1.0), "compute binds there"


def test_a_folded_chain_is_a_factor_faster_in_its_precision() -> None:
    sick = {"kind": "folded-chain", "factor": 4, "precision": "fp32"}
    assert slower(sick, point("fma", "fp32", threads=2)) == pytest.approx(0.25)
    assert slower(sick, "fma") == slower(sick, point("mix-read-only", "fp32", threads=2)) == 1.0
    ill(sick).verify(ill(sick).prepare(point("fma", "fp32")))
    with pytest.raises(VerificationError, match="SIMULATED: fma differs from its reference"):
        wrong = ill({**sick, "verifies": 0})
        wrong.verify(wrong.prepare(point("fma", "fp32")))


def test_of_a_chain_folded_to_nothing_no_amount_takes_longer() -> None:
    device = ill({"kind": "folded-chain", "factor": 0}, noise=QUIET)
    one, many = (repetitions(device, "fma", amount).seconds for amount in (1, 10**9))
    assert one == pytest.approx(many) and one[0] == pytest.approx(
        repetitions(ill(noise=QUIET), "fma", 1).seconds[0]
    )


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_a_timer_off_by_a_factor_tells_what_did_not_pass(factor: float) -> None:
    sick, true = ill({"kind": "timer", "factor": factor}), ill()
    for device in (sick, true):
        device.warm_up(5.0)
    seen, real = repetitions(sick, "read", 1000, 5), repetitions(true, "read", 1000, 5)
    assert seen.seconds == pytest.approx([factor * s for s in real.seconds])
    assert seen.start[0] == real.start[0] == 5.0
    assert sick.now() == true.now() == pytest.approx(5.0 + sum(real.seconds))
    assert np.diff(seen.start) == pytest.approx(seen.seconds[:-1])


def test_a_coarse_timer_tells_whole_ticks_and_nothing_in_the_mean_is_lost() -> None:
    sick, true = ill({"kind": "timer", "tick": 1e-3}, noise=QUIET), ill(noise=QUIET)
    one = repetitions(true, "read", 10**6, 1).seconds[0]
    amount = int(10**6 * 3.3e-3 / one)
    seen, real = (repetitions(device, "read", amount, 1000).seconds for device in (sick, true))
    assert set(np.round(np.array(seen) / 1e-3, 9)) == {3.0, 4.0}
    assert np.mean(seen) == pytest.approx(np.mean(real), rel=1e-3)


def test_a_timer_that_stands_still_is_told_before_the_watchdog_has_to() -> None:
    device = ill({"kind": "timer", "factor": 0})
    sample = Session(device, 1, 1).sample(
        Planned(point("fma", threads=2), 0, 0.1, 0.5, 0.01, 1.5e-3, 0.02, 5), 0
    )
    assert sample.status == "failed" and sample.reason.startswith("the timer returned 0 s for runs of ")
    assert sample.reason.endswith(" s: this device's clock stands still") and 0.25 < device.now() < 5.0


@dataclass(frozen=True)
class Breaks(Defect):
    """A timer that works for a while."""

    def told(self, repetitions: Repetitions, call: Call) -> Repetitions:
        works = [s * (start < 0.02) for start, s in zip(repetitions.start, repetitions.seconds, strict=True)]
        return replace(repetitions, seconds=tuple(works))


def test_what_was_timed_before_a_point_failed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFECTS, "breaks", Breaks)
    planned = Planned(point("fma", threads=2), 0, 0.1, 0.5, 1e-9, 1e-3, 0.04, 6)
    broken, whole = (Session(ill(*d), 1, 1).sample(planned, 0) for d in (({"kind": "breaks"},), ()))
    assert broken.status == "failed" and "the timer returned 0.0 s for a repetition" in broken.reason
    kept = broken.repetitions.seconds
    assert len(kept) >= 6 and kept == whole.repetitions.seconds[: len(kept)]


def test_a_step_lies_between_its_intensities_and_nowhere_else() -> None:
    sick = {"kind": "sweep-step", "start": 1.0, "end": 8.0, "factor": 1.5}
    for kernel, item in (("mix-read-only", 48), ("mix-in-place", 96)):
        at = {
            f / item: point(kernel, threads=2, sizes={"bytes": 4 << 30, "fma": f})
            for f in (12, 48, 96, 384, 768)
        }
        found = {intensity: round(slower(sick, p), 9) for intensity, p in at.items()}
        assert found == {x: 1.5 if 1 <= x < 8 else 1.0 for x in at}
    assert slower(sick, "read") == slower(sick, "gemm") == 1.0


def test_a_precision_that_is_claimed_is_refused() -> None:
    device = ill({"kind": "missing-precision", "precision": "fp32", "family": "gemm"})
    assert device.device.precisions["fp32"] == "" and device.unsupported(point("gemm", "fp32")) == ""
    with pytest.raises(DeviceError, match="SIMULATED: no fp32 code of gemm loads on this device"):
        device.prepare(point("gemm", "fp32"))
    device.prepare(point("fma", "fp32")), device.prepare(point("gemm"))
    with pytest.raises(DeviceError):
        ill({"kind": "missing-precision", "precision": "fp32"}).prepare(point("fma", "fp32"))


def test_memory_runs_out_above_the_limit() -> None:
    device = ill({"kind": "out-of-memory", "limit_bytes": 3e6})
    assert device.device.memory_bytes == int(HEALTHY["memory"]["bytes"])
    device.prepare(point("triad", sizes={"bytes": 1_000_000}))
    with pytest.raises(MemoryError, match="SIMULATED: no room for 3300000 byte, the limit is 3000000 byte"):
        device.prepare(point("triad", sizes={"bytes": 1_100_000}))
    device.prepare(point("fma"))


def test_a_hang_costs_what_the_watchdog_allows_and_no_more() -> None:
    runner = InProcess(ill({"kind": "hang", "family": "stream", "kernel": "copy", "seconds": 1e6}))
    runner.open(1)
    first, process = runner.now(), runner.process
    planned = Planned(point("copy", threads=2), 0, 0.1, 0.5, 0.01, 1.5e-3, 0.02, 5)
    sample = runner.measure(planned, 0, 1.0, 25.0)
    assert (sample.status, sample.reason) == ("failed", "no answer within 25 s") and sample.facts["lost"]
    assert runner.now() == first + 25.0 and runner.process == process + 1
    again = runner.measure(replace(planned, point=point("triad", threads=2)), 1, 1.0, 25.0)
    assert again.status == "ok" and math.isinf(runner.backend.deadline)


def test_defects_act_one_after_another() -> None:
    both = ill({"kind": "throttling", "after": 0.0, "share": 0.5}, {"kind": "noisy-neighbour", "share": 1.0})
    seen, true = repetitions(both, "fma", 10**9, 50), repetitions(ill(), "fma", 10**9, 50)
    assert np.array(seen.seconds) / np.array(true.seconds) == pytest.approx(4.0, rel=1e-3)
    assert not any(seen.clean) and set(seen.throttle) == {"thermal"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("throttling:mild", {"kind": "throttling", "severity": "mild"}),
        ("hang:middle,seconds=30", {"kind": "hang", "severity": "middle", "seconds": 30.0}),
        ("byte-count,kernels=copy/triad", {"kind": "byte-count", "kernels": "copy/triad"}),
    ],
)
def test_a_defect_is_asked_for_by_severity_or_parameters(text: str, values: dict[str, Any]) -> None:
    assert parse(text) == values
    assert SimulatedBackend.named(f"small-cpu+{text}").defects == (defect_of(values),)


def test_a_severity_may_differ_on_a_gpu_and_what_is_given_wins() -> None:
    here, there = (
        SimulatedBackend.named(f"{n}+out-of-memory:mild").defects[0] for n in ("small-cpu", "gpu-large")
    )
    assert (here, there) == (
        defect_of(parse("out-of-memory:mild")),
        defect_of(parse("out-of-memory:mild"), True),
    )
    assert here != there
    mild = SimulatedBackend.named("small-cpu+out-of-memory:mild,limit_bytes=7").defects[0]
    assert mild == defect_of({"kind": "out-of-memory", "limit_bytes": 7})
    recorded = SimulatedBackend.again(SimulatedBackend.named("gpu-large+out-of-memory:mild").device)
    assert recorded.defects == (there,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("throttling:fatal", "unknown severity 'fatal' of throttling; valid: mild, middle"),
        (
            "dies:mild",
            "unknown severity 'mild' of dies; valid: none, give its parameters as in dies,NAME=VALUE",
        ),
        ("sweep-step,start=8,end=2", "end must lie beyond start"),
        ("byte-count,kernels=copy/rust", "kernels has unknown names: rust; valid: "),
        ("folded-chain,factor=-1", "factor must be positive, got -1.0"),
        ("timer,tick=inf", "tick must be positive, got inf"),
    ],
)
def test_a_wrong_severity_or_parameter_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        SimulatedBackend.named(f"small-cpu+{text}")
    assert message in str(refused.value)
