"""The cross-check of two implementations: who is named a fault, what noise hides, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import Noise, find
from bench.errors import DeviceError
from bench.gpu import crosscheck
from bench.gpu.crosscheck import ABSENT, AGREE, FAULT, UNCLEAR, Side
from bench.planning.planned import Planned
from bench.profile.encoding import decode, dumps, loads, plain
from bench.profile.records import Point, Precision, Repetitions, Sample
from bench.running.measure import Session

CHAIN = Point("fma", "fma", "8 chains b256", Precision.of("fp64"), scope="device", threads=64)
COPY = Point(
    *("stream", "copy", "v16 l4 b256", Precision.of("fp64"), "DRAM", "copy", "ordinary", "device", 64),
    sizes={"bytes": 1 << 28},
)


def simulated(share: float = 1.0, within: float = 0.003, between: float = 0.003, seed: int = 1) -> Side:
    """A simulated GPU whose rates are `share` of the truth; every sample is a round of its own."""
    name, truth = find("gpu-large")
    slower = {kind: share * rate for kind, rate in truth.pi.items()}
    memory = replace(truth.memory, copy=share * truth.memory.copy)
    truth = replace(truth, pi=slower, memory=memory, noise=Noise(within, between), seed=seed)
    backend = SimulatedBackend(name, truth)

    def measure(point: Point, order: int) -> Sample:
        backend.begin_round(order)
        planned = Planned(point, 0, 0.02, 0.5, 0.0, target=0.02, budget=0.06, minimum=2)
        return Session(backend, order, 1).sample(planned, order)

    return Side(f"side {seed}", measure)


def fixed(rate: float, **more: Any) -> Side:
    """Exactly `rate` FLOP/s or byte/s, with these facts in the record."""
    clocks = more.pop("clock_hz", ())
    status = more.pop("status", "ok")

    def measure(point: Point, order: int) -> Sample:
        done = Repetitions((0.0, 1.0), (1.0, 1.0), clock_hz=clocks)
        work = (
            {"flops": rate} if point.family == "fma" else {"bytes_read": rate / 2, "bytes_written": rate / 2}
        )
        return Sample(
            point,
            1,
            1,
            order,
            status=status,
            reason=more.get("reason", ""),
            repetitions=done,
            facts=more,
            **work,
        )

    return Side(f"fixed {rate:g}", measure)


# verdicts


@pytest.mark.parametrize("point", [CHAIN, COPY], ids=lambda point: point.kernel)
@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, AGREE), (0.95, FAULT), (1.05, FAULT), (0.99, AGREE), (1.01, AGREE)]
)
def test_five_percent_is_a_fault_and_one_is_none(point: Point, share: float, verdict: str) -> None:
    found = crosscheck.compare(simulated(), simulated(share, seed=2), point)
    assert found.verdict == verdict
    assert found.ratio is not None and found.ratio.value == pytest.approx(share, abs=0.006)
    assert found.ratio.low is not None and found.ratio.high is not None
    assert found.ratio.low < found.ratio.value < found.ratio.high
    assert len(found.rates) >= 9


@pytest.mark.parametrize("seed", range(2, 12))
def test_noise_alone_is_no_fault(seed: int) -> None:
    found = crosscheck.compare(simulated(between=0.05), simulated(between=0.05, seed=seed), CHAIN)
    assert found.verdict in (AGREE, UNCLEAR)
    assert len(found.rates) > 9, "what is unclear is measured on"


def test_more_pairs_see_through_noise_that_nine_do_not() -> None:
    def noisy(point: Point, order: int) -> Sample:
        return fixed(95.0 * (1 + 0.06 * (-1) ** (order // 2))).measure(point, order)

    sides = fixed(100.0), Side("noisy", noisy)
    few, many = (crosscheck.compare(*sides, CHAIN, most=most) for most in (9, 90))
    assert (few.verdict, many.verdict) == (UNCLEAR, FAULT)
    assert len(few.rates) == 9 < len(many.rates) <= 90


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.0, AGREE), (1.019, AGREE), (1.021, FAULT), (1 / 1.019, AGREE), (1 / 1.021, FAULT)],
)
def test_the_limit_is_two_percent_either_way(ratio: float, verdict: str) -> None:
    assert crosscheck.judged([(100.0, 100.0 * ratio)] * 9)[0] == verdict


@pytest.mark.parametrize("swing", [0.02, 0.2])
def test_a_wide_interval_around_the_limit_decides_nothing(swing: float) -> None:
    rates = [(100.0, 102.0 * (1 + swing * (-1) ** i)) for i in range(10)]
    assert crosscheck.judged(rates)[0] == UNCLEAR


def test_one_pair_is_no_agreement() -> None:
    assert crosscheck.judged([(1.0, 1.0)])[0] == UNCLEAR


# turns


def test_sides_take_turns_and_who_begins_changes() -> None:
    log: list[str] = []

    def side(name: str) -> Side:
        honest = fixed(100.0)
        return Side(name, lambda point, order: (log.append(name), honest.measure(point, order))[1])

    found = crosscheck.compare(side("a"), side("b"), CHAIN)
    assert len(found.rates) == 9 and len(log) == 20, "the first pair only warms up"
    pairs = ["".join(log[i : i + 2]) for i in range(0, 20, 2)]
    assert pairs == ["ab", "ba"] * 5


def test_a_drift_of_the_device_favours_nobody() -> None:
    clock = iter(range(1000))

    def drifting(point: Point, order: int) -> Sample:
        seconds = 1.0 + 0.01 * next(clock)
        return Sample(point, 1, 1, order, flops=1e12, repetitions=Repetitions((0.0,), (seconds,)))

    found = crosscheck.compare(Side("a", drifting), Side("b", drifting), CHAIN)
    assert found.ratio is not None and found.ratio.value == pytest.approx(1.0, abs=0.011)
    assert found.verdict != FAULT
    blocks = [1.0 + 0.01 * i for i in range(18)]
    assert sum(blocks[9:]) / sum(blocks[:9]) > 1.05, "in blocks it would have been a fault"


# words


def test_a_fault_says_which_kernel_both_figures_what_differs_and_what_to_try() -> None:
    first = fixed(5e13, registers=24, launch="1056 x 256", clock_hz=(1.5e9, 1.5e9))
    second = fixed(4.5e13, registers=38, launch="1056 x 256", clock_hz=(1.2e9, 1.2e9))
    said = crosscheck.compare(first, second, CHAIN).sentence
    assert "fma fp64 (8 chains b256)" in said and "\n" not in said
    assert "fixed 5e+13 50.00 TFLOP/s, fixed 4.5e+13 45.00 TFLOP/s" in said
    assert "-10.0 %" in said and "harness fault, more than 2 % apart" in said
    assert "registers 24 and 38" in said and "launch 1056 x 256 both" in said
    assert "clock 0.800 times the first side's" in said
    assert "python -m bench audit" in said
    assert "--no-blocker" in crosscheck.compare(fixed(1.0), fixed(2.0), COPY).sentence


def test_what_is_not_known_is_not_made_up() -> None:
    assert crosscheck.differences(({}, {})) == "neither says its registers or its launch"
    assert crosscheck.differences(({"registers": 24}, {})) == "registers 24 and unknown"


@pytest.mark.parametrize("order", [0, 1])
def test_a_side_that_cannot_is_named_with_its_reason(order: int) -> None:
    pair = [fixed(1.0), fixed(2.0, status="skipped", reason="no fp64 here")]
    found = crosscheck.compare(*(pair if order else pair[::-1]), CHAIN)
    assert (found.verdict, found.ratio) == (ABSENT, None)
    assert found.sentence == "fma fp64 (8 chains b256): not compared, fixed 2: no fp64 here"


def test_a_timer_that_stands_still_compares_nothing() -> None:
    def stopped(point: Point, order: int) -> Sample:
        return Sample(point, 1, 1, order, flops=1.0, repetitions=Repetitions((0.0,), (0.0,)))

    found = crosscheck.compare(fixed(1.0), Side("b", stopped), CHAIN)
    assert found.verdict == ABSENT and "b: its timer returned no time above 0 s" in found.sentence


def test_the_whole_check_as_record_and_as_table() -> None:
    heard: list[str] = []
    wanted = (CHAIN, replace(CHAIN, precision=Precision.of("int32")), COPY)
    found = crosscheck.cross_check(simulated(), simulated(0.95, seed=2), wanted, say=heard.append)
    assert len(found.faults) == 3 and heard == [one.sentence for one in found.compared]
    assert [one.unit for one in found.compared] == ["FLOP/s", "OP/s", "byte/s"]
    again = decode(crosscheck.CrossCheck, loads(dumps(plain(found))), "cross-check")
    assert again == found and json.loads(dumps(plain(found)))["names"] == ["side 1", "side 2"]
    lines = crosscheck.table(found).splitlines()
    assert lines[0].split() == [
        *("kernel", "precision", "variant", "side", "1", "side", "2", "ratio", "interval", "verdict")
    ]
    assert " TFLOP/s  " in lines[1] and " TOP/s  " in lines[2] and " TB/s  " in lines[3], "with their units"
    assert all("harness fault" in line for line in lines[1:4]) and lines[4:] == list(found.faults)


def test_a_table_of_kernels_that_agree_has_nothing_below() -> None:
    both = crosscheck.cross_check(fixed(1.0), fixed(1.0), (CHAIN,))
    assert len(crosscheck.table(both).splitlines()) == 2 and both.faults == ()
    none = crosscheck.cross_check(fixed(1.0), fixed(1.0, status="failed", reason="lost"), (CHAIN,))
    assert crosscheck.table(none).splitlines()[1].split()[-2:] == ["not", "compared"]
    assert "fixed 1: lost" in crosscheck.table(none)


# points


def gpu() -> Any:
    return SimulatedBackend.named("gpu-large").device


def test_points_are_the_chains_and_the_streams_at_one_launch_shape() -> None:
    device = gpu()
    found = crosscheck.points(device)
    assert [p.precision.label for p in found if p.family == "fma"] == ["fp64", "fp32", "int32"]
    assert [p.kernel for p in found if p.precision.label == "fp32"][1:] == [
        *("write", "read", "update", "copy", "scale", "add", "triad")
    ]
    assert len({p.key for p in found}) == len(found) == 3 + 2 * 7
    assert {p.variant for p in found} == {"8 chains b256", "v16 l4 b256"}
    assert {p.threads for p in found} == {device.threads} and {p.scope for p in found} == {"device"}
    assert {p.store for p in found if p.kernel == "read"} == {"none"}


def test_points_take_what_tuning_chose_and_leave_out_what_is_missing() -> None:
    device = replace(gpu(), precisions={"fp32": "", "fp64": "too slow", "int32": "none"})
    found = crosscheck.points(device, {"stream": "v16 l8 b512", "read": "v16 l2 b256"}, bytes=1 << 25)
    assert {p.precision.label for p in found} == {"fp32"} and len(found) == 8
    assert {p.kernel: p.variant for p in found}["read"] == "v16 l2 b256"
    assert {p.kernel: p.variant for p in found}["copy"] == "v16 l8 b512"
    assert {p.sizes.get("bytes") for p in found} == {None, 1 << 25}


@pytest.mark.parametrize(
    ("free", "l2", "bytes"),
    [(1 << 40, 1 << 20, 1 << 28), (1 << 40, 1 << 27, 1 << 29), (1 << 30, 1 << 20, 102 << 20)],
)
def test_both_processes_fit_into_the_memory(free: int, l2: int, bytes: int) -> None:
    device = gpu()
    cache = replace(device.caches[-1], bytes=l2, instances=1)
    device = replace(device, caches=(cache,), facts={**device.facts, "free_bytes": free})
    (sizes,) = {p.sizes["bytes"] for p in crosscheck.points(device) if p.family == "stream"}
    assert sizes == bytes and 6 * sizes < free


def test_a_device_that_cannot_be_opened_is_not_swallowed() -> None:
    def gone(point: Point, order: int) -> Sample:
        raise DeviceError("exclusive")

    failing: Callable[[Point, int], Sample] = gone
    with pytest.raises(DeviceError, match="exclusive"):
        crosscheck.cross_check(fixed(1.0), Side("b", failing), (CHAIN,))
