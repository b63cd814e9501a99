"""The simulated device: rates are the truth, noise as stated, work the kernel's own, time virtual."""

from __future__ import annotations

import math
import sys
import types
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest

from bench.backends import open_backend
from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation import links
from bench.backends.simulation.truth import catalogue
from bench.errors import DeviceError
from bench.profile import roofline
from bench.profile.records import Point, Precision
from bench.workloads import on_gpu
from kernels import KERNELS
from kernels.spec import ITEM_BYTES, Work
from tests.truths import QUIET, backend, changed, once, point, random_truth

G = 1e9
QUIET_TRUTH = changed(
    random_truth(7),
    threads=4,
    pi={"fp64": 100 * G, "fp32": 200 * G},
    memory={
        "bytes": 64e9,
        "read": 10 * G,
        "write": 12 * G,
        "update": 15 * G,
        "copy": 14 * G,
        "triad": 13 * G,
        "write_allocate": True,
    },
    caches=[
        {"level": "L1", "bytes": 32768, "sharers": 1, "instances": 4, "read": 400 * G, "copy": 300 * G},
        {"level": "L2", "bytes": 1 << 20, "sharers": 4, "instances": 1, "read": 80 * G, "copy": 60 * G},
    ],
    one_thread={"pi": 0.25, "memory": 0.5},
    p=3.0,
    t0=0.0,
    noise=QUIET,
)
"""Round numbers without noise or overhead."""

LARGE = {"bytes": 4 << 30}


def rate(what: Point, **changes: object) -> float:
    """Counted byte/s of a point, FLOP/s where nothing is moved."""
    device = backend(changed(QUIET_TRUTH, **changes))
    prepared, seconds = once(device, what)
    work = prepared.work(1_000_000)
    return (work.bytes(what.level) if what.access != "none" else work.flops) / seconds


@pytest.mark.parametrize("name", [n for n in KERNELS if KERNELS[n].family not in ("mix", *links.FAMILIES)])
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_work_is_what_the_kernel_declares(name: str, precision: str) -> None:
    what = point(name, precision, threads=4)
    prepared = backend(QUIET_TRUTH).prepare(what)
    seven, fourteen = prepared.work(7), prepared.work(14)
    assert fourteen.flops == 2 * seven.flops
    family = KERNELS[name].family
    if family in ("fma", "tensor"):
        items = seven.flops / 2
    elif family == "gemm":
        items = 512**3
    else:
        streams = {"write": 1, "read": 1, "update": 2, "copy": 2, "scale": 2}.get(name.split("-")[-1], 3)
        items = seven.bytes("DRAM") / ITEM_BYTES[precision] / streams
    sizes = {"m": 512, "n": 512, "k": 512} if family == "gemm" else {"n": round(items)}
    declared = KERNELS[name].work(ITEM_BYTES[precision], sizes, what.level)
    assert seven == (declared.times(7) if family == "gemm" else declared)


def test_one_pass_over_a_cache_is_the_working_set_of_every_thread() -> None:
    for name in ("cache-read", "cache-copy"):
        prepared = backend(QUIET_TRUTH).prepare(point(name, threads=4, sizes={"bytes": 12288}))
        assert prepared.work(3).bytes("DRAM") == 3 * 4 * 12288


@pytest.mark.parametrize("name", ["small-cpu", "big-cpu", "gpu-like"])
@pytest.mark.parametrize(("kernel", "access"), [("mix-read-only", "read"), ("mix-in-place", "update")])
def test_mix_rates_follow_the_p_norm(name: str, kernel: str, access: str) -> None:
    truth = catalogue()[name]
    values = {**SimulatedBackend(name, truth).device.identity["parameters"], "noise": QUIET}
    for precision, threads in (("fp64", truth.threads), ("fp32", 1)):
        for fma in (1, 6, 12, 96, 1536):
            sizes = {"bytes": 4 << 30, "fma": fma}
            what = point(kernel, precision, threads, sizes=sizes)
            prepared, seconds = once(backend(values), what)
            work = prepared.work(1_000_000)
            streams = 2 if access == "update" else 1
            assert work.intensity("DRAM") == pytest.approx(fma / (6 * streams * ITEM_BYTES[precision]))
            pi, beta = truth.pi_at(precision, threads), truth.beta_at("DRAM", access, threads)
            expected = roofline.seconds(work.flops, work.bytes("DRAM"), pi, beta, truth.p, truth.t0)
            assert seconds == pytest.approx(expected, rel=1e-12)


def test_at_the_ridge_a_norm_of_three_costs_its_cube_root() -> None:
    truth = changed(QUIET_TRUTH, pi={"fp64": 15 * G}, memory={**QUIET_TRUTH["memory"], "read": 30 * G})
    sizes = {"bytes": 4 << 30, "fma": 24}  # 1/2 FLOP a byte
    prepared, seconds = once(backend(truth), point("mix-read-only", threads=4, sizes=sizes))
    assert prepared.work(1_000_000).flops / seconds == pytest.approx(15 * G / 2 ** (1 / 3))


@pytest.mark.parametrize(
    ("kernel", "store", "expected"),
    [
        ("read", "none", 10.0),
        ("update", "ordinary", 15.0),
        ("write", "nontemporal", 12.0),
        ("write", "ordinary", 12.0 / 2),
        ("copy", "nontemporal", 14.0),
        ("copy", "ordinary", 14.0 * 2 / 3),
        ("scale", "ordinary", 14.0 * 2 / 3),
        ("triad", "nontemporal", 13.0),
        ("triad", "ordinary", 13.0 * 3 / 4),
        ("add", "ordinary", 13.0 * 3 / 4),
    ],
)
def test_streams_count_their_bytes_and_carry_write_allocate(kernel: str, store: str, expected: float) -> None:
    what = point(kernel, threads=4, store=store)
    assert rate(what) == pytest.approx(expected * G)
    free = changed(QUIET_TRUTH["memory"], write_allocate=False)
    without = rate(what, memory=free)
    counted = {"copy": 14, "scale": 14, "triad": 13, "add": 13, "write": 12, "read": 10, "update": 15}
    assert without == pytest.approx(counted[kernel] * G)
    for memory, hidden in ((QUIET_TRUTH["memory"], counted[kernel] / expected - 1), (free, 0)):
        facts = backend(changed(QUIET_TRUTH, memory=memory)).prepare(what).facts
        assert facts["hidden_traffic"] == pytest.approx(hidden), "stated beside beta, never part of it"


@pytest.mark.parametrize(
    ("bytes_each", "threads", "expected"),
    [
        (16384, 4, 400.0),  # half of every L1
        (16384, 1, 100.0),  # caches scale as the cores do
        (131072, 4, 80.0),  # half of the L2 that four threads share
        (524288, 1, 20.0),  # half of it for one thread
        (8 << 20, 4, 10.0),
        (8 << 20, 1, 5.0),
    ],
)
def test_cache_rates_follow_the_working_set(bytes_each: int, threads: int, expected: float) -> None:
    what = point("cache-read", threads=threads, sizes={"bytes": bytes_each})
    assert rate(what) == pytest.approx(expected * G)


def test_a_set_about_as_large_as_a_cache_runs_between_its_levels() -> None:
    rates = [
        rate(point("cache-copy", threads=4, sizes={"bytes": n << 10})) / G for n in (24, 32, 36, 40, 48, 56)
    ]
    assert rates[0] == pytest.approx(300.0) and rates[-1] == pytest.approx(60.0)
    assert rates == sorted(rates, reverse=True) and 60 < rates[2] < 300


def test_arrays_too_small_for_dram_are_served_by_the_cache_that_holds_them() -> None:
    small = point("triad", threads=4, store="nontemporal", sizes={"bytes": 196608})
    assert rate(small) == pytest.approx(60 * G)
    mix = point("mix-read-only", threads=4, sizes={"bytes": 98304, "fma": 1})
    device = backend(QUIET_TRUTH)
    prepared, seconds = once(device, mix)
    work = prepared.work(1_000_000)
    assert seconds == pytest.approx(roofline.seconds(work.flops, work.bytes("DRAM"), 100 * G, 400 * G, 3.0))


def test_compute_kernels_reach_their_share_of_pi() -> None:
    assert rate(point("fma", threads=4)) == pytest.approx(100 * G)
    assert rate(point("fma", "fp32", threads=4)) == pytest.approx(200 * G)
    assert rate(point("fma", threads=1)) == pytest.approx(25 * G)
    assert rate(point("fma-naive", threads=1), naive=0.2) == pytest.approx(5 * G)
    library = {"efficiency": 0.9, "half_size": 512}
    assert rate(point("gemm", threads=4), library=library) == pytest.approx(45 * G)
    sizes = {"m": 512, "n": 512, "k": 512 * 27}
    assert rate(point("gemm", threads=4, sizes=sizes), library=library) == pytest.approx(67.5 * G)


def test_between_one_thread_and_all_rates_follow_a_power_law() -> None:
    assert rate(point("read", threads=2)) == pytest.approx(10 * G * math.sqrt(0.5))


def test_launch_overhead_is_paid_once_a_repetition() -> None:
    device = backend(changed(QUIET_TRUTH, t0=1e-3))
    prepared = device.prepare(point("read", threads=4))
    one, two = (device.measure(prepared, amount, 1).seconds[0] for amount in (1000, 2000))
    assert one == pytest.approx(1e-3 + prepared.work(1000).bytes("DRAM") / (10 * G))
    assert two - one == pytest.approx(one - 1e-3)


@pytest.mark.parametrize(
    ("reads", "writes", "beta"), [(1.0, 0.0, 10.0), (0.5, 0.5, 15.0), (0.0, 1.0, 12.0), (0.75, 0.25, 12.5)]
)
def test_workloads_run_at_their_read_fraction_and_efficiency(
    monkeypatch: pytest.MonkeyPatch, reads: float, writes: float, beta: float
) -> None:
    class Workload:
        precision = Precision.of("fp64")

        def work(self, sizes: dict[str, int]) -> Work:
            return Work.at("DRAM", 5.0 * sizes["n"], reads * sizes["n"], writes * sizes["n"])

    zoo = types.ModuleType("bench.workloads.zoo")
    assert on_gpu.ON_GPU, "made of the zoo before toys take its place"
    zoo.ZOO = {"toy": Workload(), "other": Workload()}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.workloads.zoo", zoo)
    device = backend(changed(QUIET_TRUTH, workloads={"default": 0.5, "other": 0.25}))
    for name, efficiency in (("toy", 0.5), ("other", 0.25)):
        what = Point("workload", name, "any", Precision.of("fp64"), "DRAM", threads=4, sizes={"n": 1_000_000})
        prepared, seconds = once(device, what, 10)
        roof = roofline.seconds(5e7, 1e7, 100 * G, beta * G, 3.0)
        assert prepared.work(10).flops == 5e7
        assert seconds == pytest.approx(roof / efficiency)
    missing = Point("workload", "none", "any", Precision.of("fp64"), "DRAM", threads=4)
    assert device.unsupported(missing).endswith("knows no none; it knows toy, other")


def log_seconds(device: SimulatedBackend, what: Point, n: int) -> np.ndarray:
    return np.log(device.measure(device.prepare(what), 1_000_000, n).seconds)


@pytest.mark.parametrize(
    ("kernel", "centre"), [("fma", NormalDist().inv_cdf(0.75)), ("read", 0.0), ("mix-in-place", 0.0)]
)
def test_noise_within_a_round_has_the_stated_size_and_centre(kernel: str, centre: float) -> None:
    noise = {"within": 0.05, "between": 0.0}
    device, quiet = backend(changed(QUIET_TRUTH, noise=noise)), backend(QUIET_TRUTH)
    logs = log_seconds(device, point(kernel, threads=4), 20_000)
    exact = log_seconds(quiet, point(kernel, threads=4), 1)[0]
    assert logs.std() == pytest.approx(0.05, rel=0.02)
    assert logs.mean() - exact == pytest.approx(0.05 * centre, abs=0.002)
    skew, tails = (((logs - logs.mean()) / logs.std()) ** k for k in (3, 4))
    assert skew.mean() == pytest.approx(0, abs=0.07) and tails.mean() == pytest.approx(3, abs=0.2)


def test_what_the_suite_reads_is_the_truth() -> None:
    """p75 of the rates for pi, median for beta: the statistics contract."""
    device = backend(changed(QUIET_TRUTH, noise={"within": 0.05, "between": 0.0}))
    for kernel, q, expected in (("fma", 0.75, 100 * G), ("read", 0.5, 10 * G)):
        prepared = device.prepare(point(kernel, threads=4))
        work = prepared.work(1000)
        seconds = np.array(device.measure(prepared, 1000, 20_000).seconds)
        rates = (work.flops if kernel == "fma" else work.bytes("DRAM")) / seconds
        assert np.quantile(rates, q) == pytest.approx(expected, rel=0.002)


def test_noise_between_rounds_belongs_to_the_resource() -> None:
    device = backend(changed(QUIET_TRUTH, noise={"within": 0.0, "between": 0.03}))
    whats = {
        "pi": point("fma", threads=4),
        "library": point("gemm", threads=4),
        "fp32": point("fma", "fp32", threads=4),
        "read": point("read", threads=4),
        "copy": point("copy", threads=1),
        "L1": point("cache-read", threads=4),
    }
    logs: dict[str, list[float]] = {name: [] for name in whats}
    for round in range(1, 601):
        device.begin_round(round)
        for name, what in whats.items():
            logs[name].append(log_seconds(device, what, 1)[0])
    for name in whats:
        assert stdev(logs[name]) == pytest.approx(0.03, rel=0.1)
    exact = {name: log_seconds(backend(QUIET_TRUTH), what, 1)[0] for name, what in whats.items()}
    assert all(fmean(logs[name]) - exact[name] == pytest.approx(0, abs=0.004) for name in whats)
    together = np.corrcoef(list(logs.values())).round(9)
    assert together[0, 1] == 1 and together[3, 4] == 1
    assert np.abs(together[np.ix_([0, 2, 3, 5], [0, 2, 3, 5])] - np.eye(4)).max() < 0.15


def test_a_point_measures_the_same_in_any_order() -> None:
    values = random_truth(11)
    threads = values["threads"]
    whats = [point(name, threads=threads) for name in KERNELS if KERNELS[name].family not in links.FAMILIES]
    first, second = backend(values), backend(values)
    for device in (first, second):
        device.begin_round(3)
    forward = {w.key: first.measure(first.prepare(w), 1000, 5).seconds for w in whats}
    second.warm_up(5.0)
    backward = {w.key: second.measure(second.prepare(w), 1000, 5).seconds for w in reversed(whats)}
    assert forward == backward
    again = first.measure(first.prepare(whats[0]), 1000, 5).seconds
    assert again != forward[whats[0].key]
    first.begin_round(3)
    assert first.measure(first.prepare(whats[0]), 1000, 5).seconds == forward[whats[0].key]
    first.begin_round(4)
    assert first.measure(first.prepare(whats[0]), 1000, 5).seconds != forward[whats[0].key]
    other = backend(changed(values, seed=12))
    other.begin_round(3)
    assert other.measure(other.prepare(whats[0]), 1000, 5).seconds != forward[whats[0].key]
    assert len({seconds[0] for seconds in forward.values()}) == len(whats)


def test_every_visit_draws_noise_of_its_own_whatever_came_before() -> None:
    device = backend(random_truth(11))
    prepared = device.prepare(point("read"))

    def visit(regime: str, number: int, trial: bool = False) -> tuple[float, ...]:
        device.begin_visit(regime, number)
        if trial:
            device.measure(prepared, 1000, 1)
        return device.measure(prepared, 1000, 5).seconds

    first, second = visit("typical", 0), visit("typical", 1)
    assert visit("typical", 0) == first == visit("typical", 0, trial=True)
    assert len({*first, *second, *visit("burst", 0)}) == 15
    device.begin_visit("typical", 0)
    parts = device.measure(prepared, 1000, 2).seconds + device.measure(prepared, 1000, 3).seconds
    assert parts == first, "however the repetitions are cut into calls"


def test_the_clock_is_virtual() -> None:
    device = backend(random_truth(5))
    assert device.now() == 0.0 and device.clock_source == "virtual"
    device.warm_up(1000.0)
    prepared = device.prepare(point("read"))
    done = device.measure(prepared, 10_000_000, 7)
    assert len(done) == 7 and done.start[0] == 1000.0
    assert np.diff(done.start) == pytest.approx(done.seconds[:-1], rel=1e-6)
    assert device.now() == pytest.approx(1000.0 + sum(done.seconds))
    assert all(done.clean) and set(done.clock_hz) == {device.truth.clock_hz}
    with pytest.raises(ValueError, match="allowed are 1 to"):
        device.measure(prepared, 0, 1)
    device.verify(prepared)
    device.release(prepared)
    assert device.conditions() == {"simulated": True, "load": 0.0, "clock_hz": device.truth.clock_hz}


def test_the_best_variant_has_the_stated_rate() -> None:
    spread = changed(QUIET_TRUTH, variant_spread=0.2)
    best = set()
    for seed in range(12):
        device = backend(changed(spread, seed=seed))
        names = device.variants("triad", Precision.of("fp64"), "DRAM", 4)
        rates = {}
        for name in names:
            what = Point(
                "stream",
                "triad",
                name,
                Precision.of("fp64"),
                "DRAM",
                "triad",
                "nontemporal",
                threads=4,
                sizes=LARGE,
            )
            prepared, seconds = once(device, what)
            rates[name] = prepared.work(1_000_000).bytes("DRAM") / seconds / G
        assert sorted(rates.values()) == pytest.approx([13 * 0.8, 13 * 0.9, 13])
        best.add(max(rates, key=rates.__getitem__))
    assert len(best) > 1


def test_what_cannot_be_measured_has_its_reason() -> None:
    device = open_backend("sim:small-cpu")
    assert device.unsupported(point("fma", "fp16")) == "SIMULATED small-cpu: no fp16 arithmetic"
    assert device.unsupported(point("fma", "fp8")) == "SIMULATED small-cpu: no fp8 arithmetic"
    assert "has 2 threads, not 3" in device.unsupported(point("fma", threads=3))
    assert device.unsupported(point("read", level="L4")).endswith("no level L4; it has L1, L2, L3, DRAM")
    unknown = Point("stream", "tetrad", "s1u8", Precision.of("fp64"))
    assert "knows no tetrad; it knows write, read" in device.unsupported(unknown)
    near = [name for name in KERNELS if KERNELS[name].family not in links.FAMILIES]
    assert all(device.unsupported(point(name, threads=2)) == "" for name in near)
    with pytest.raises(DeviceError, match="no fp16 arithmetic"):
        device.prepare(point("fma", "fp16"))


def test_arrays_larger_than_the_memory_do_not_fit() -> None:
    device = backend(QUIET_TRUTH)
    device.prepare(point("copy", sizes={"bytes": 32_000_000_000}))
    with pytest.raises(MemoryError, match=r"SIMULATED truth: 6.6e\+10 byte wanted, 6.4e\+10 byte there"):
        device.prepare(point("copy", sizes={"bytes": 33_000_000_000}))
    with pytest.raises(MemoryError):
        device.prepare(point("triad", sizes={"bytes": 22_000_000_000}))
    device.prepare(point("update", sizes={"bytes": 33_000_000_000}))
    with pytest.raises(MemoryError):
        device.prepare(point("cache-read", threads=4, sizes={"bytes": 17_000_000_000}))
