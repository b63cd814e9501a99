"""Placement by hand: the roof of the same mix, efficiency with its interval, what binds, what lies idle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from bench.errors import DeviceError
from bench.fitting.intervals import interval
from bench.profile.records import (
    Ceiling,
    Curve,
    Fit,
    Interval,
    Placement,
    Point,
    Precision,
    Repetitions,
    Sample,
)
from bench.workloads.place import place, unplaced
from bench.workloads.roof import beta_at
from bench.workloads.zoo import ZOO

FP64, FP32 = Precision.of("fp64"), Precision.of("fp32")


def ceiling(
    quantity: str, value: float, access: str = "none", width: float | None = 0.0, **other: Any
) -> Ceiling:
    """A ceiling of two threads whose interval is value / (1 + width) ... value (1 + width)."""
    known = width is not None
    estimate = Interval(value, value / (1 + width), value * (1 + width)) if known else Interval(value)  # type: ignore[operator]
    fields: dict[str, Any] = {
        "precision": FP64,
        "level": "" if quantity == "pi" else "DRAM",
        "store": "ordinary",
        "scope": "all",
        "threads": 2,
        "operands": "random",
        "kernel": "fma" if quantity == "pi" else access,
        "variant": "",
        "best": value,
        "unit": "FLOP/s" if quantity == "pi" else "byte/s",
        "regime": "typical",
        "statistic": "median",
        "rounds": 5,
        "cap": 0.1,
        "converged": True,
        "contended": 0.0,
    }
    return Ceiling(quantity=quantity, access=access, estimate=estimate, **{**fields, **other})


ROOF = [
    ceiling("pi", 100e9),
    ceiling("beta", 12e9, "write"),
    ceiling("beta", 20e9, "copy"),
    ceiling("beta", 30e9, "update"),
    ceiling("beta", 24e9, "triad"),
    ceiling("beta", 18e9, "read"),
]


def sample(seconds: Any, flops: float, read: float, written: float, round: int = 1, **other: Any) -> Sample:
    """A workload sample of one or several repetitions."""
    times = tuple(seconds) if isinstance(seconds, list | tuple) else (float(seconds),)
    fields = {"kernel": "own code", "variant": "C", "precision": FP64, "threads": 2, "level": "DRAM", **other}
    facts = fields.pop("facts", {})
    extra = {name: fields.pop(name) for name in ("status", "regime") if name in fields}
    return Sample(
        Point("workload", scope="all", sizes={"n": 1}, **fields),
        round,
        1,
        1,
        flops=flops,
        bytes_read=read,
        bytes_written=written,
        repetitions=Repetitions(seconds=times),
        facts=facts,
        **extra,
    )


def one(*samples: Sample, roof: list[Ceiling] = ROOF, curves: tuple[Curve, ...] = ()) -> Placement:
    (placement,) = place(samples, roof, curves)
    return placement


@pytest.mark.parametrize(
    "fraction, in_place, beta",
    [
        (0.0, False, 12e9),
        (0.25, False, 16e9),  # half way from write 12 to copy 20
        (0.5, False, 20e9),
        (0.5, True, 30e9),
        (7 / 12, False, 22e9),  # half way from copy 20 to triad 24
        (7 / 12, True, 27e9),  # half way from update 30 to triad 24
        (2 / 3, False, 24e9),
        (5 / 6, False, 21e9),  # half way from triad 24 to read 18
        (0.9, True, 24e9 - 0.7 * 6e9),
        (1.0, True, 18e9),
    ],
)
def test_beta_is_linear_between_the_kernels_of_the_nearest_mix(
    fraction: float, in_place: bool, beta: float
) -> None:
    found = beta_at(fraction, in_place, FP64, ROOF)
    assert found is not None and found.value == pytest.approx(beta)


def test_beta_takes_the_best_store_kernel_and_the_precision_that_was_measured() -> None:
    copies = [
        ceiling("beta", 20e9, "copy"),
        ceiling("beta", 28e9, "copy", store="nontemporal"),
        ceiling("beta", 26e9, "copy", kernel="scale", store="nontemporal"),
        ceiling("beta", 40e9, "copy", precision=FP32),
    ]
    assert beta_at(0.5, False, FP64, copies).value == 28e9  # type: ignore[union-attr]
    assert beta_at(0.5, False, FP32, copies).value == 40e9  # type: ignore[union-attr]
    assert beta_at(0.5, False, FP32, copies[:3]).value == 28e9  # type: ignore[union-attr]
    assert beta_at(0.9, False, FP64, copies[:1]).value == 20e9  # type: ignore[union-attr]
    assert beta_at(0.5, False, FP64, []) is None


def test_beta_mixes_the_ends_of_the_intervals() -> None:
    roof = [ceiling("beta", 20e9, "copy", 0.25), ceiling("beta", 10e9, "read", 0.0)]
    found = beta_at(0.75, False, FP64, roof)
    assert found == Interval(15e9, pytest.approx(13e9), pytest.approx(17.5e9))
    alone = beta_at(0.75, False, FP64, [ceiling("beta", 20e9, "copy", None), roof[1]])
    assert alone == Interval(15e9, None, None)


def test_memory_bound_workload_by_hand() -> None:
    """1 GFLOP over 4 GB read-only in 0.25 s: 16 GB/s of 18, arithmetic needs 10 ms of the 250."""
    p = one(sample(0.25, 1e9, 4e9, 0))
    assert (p.intensity, p.unit, p.binds) == (0.25, "FLOP/s", "memory")
    assert p.seconds.value == pytest.approx(0.25)
    assert p.achieved.value == pytest.approx(4e9)
    assert p.attainable.value == pytest.approx(4.5e9)
    assert p.efficiency.value == pytest.approx(16 / 18)
    assert p.idle == pytest.approx(1 - 0.01 / 0.25)
    assert p.least_seconds == pytest.approx(4 / 18)
    assert (p.implementation, p.note) == ("C", "")


def test_compute_bound_workload_by_hand() -> None:
    """80 GFLOP over 1 GB + 1 GB in 1 s: 80 of 100 GFLOP/s, memory needs 0.1 s at the copy's 20 GB/s."""
    p = one(sample(1.0, 80e9, 1e9, 1e9))
    assert (p.binds, p.intensity) == ("compute", 40)
    assert (p.attainable.value, p.efficiency.value) == pytest.approx((100e9, 0.8))
    assert p.idle == pytest.approx(0.9)
    assert p.least_seconds == pytest.approx(0.8)


def test_in_place_workload_is_measured_against_update() -> None:
    p = one(sample(0.1, 1e9, 1e9, 1e9, facts={"in_place": True}))
    assert p.attainable.value == pytest.approx(30e9 * 0.5)
    known = sample(0.1, 1e9, 1e9, 1e9, kernel="adam", precision=FP64)
    assert ZOO["adam"].in_place and one(known).attainable.value == pytest.approx(15e9)
    assert one(known).source == ZOO["adam"].source


def test_a_gpu_library_may_stand_above_fp64_vectors_where_matrix_units_were_not_measured() -> None:
    precision = Precision.of("fp64", "library")
    own = ceiling("pi", 180e9, precision=precision, kernel="gemm")
    product = sample(1.0, 170e9, 1e8, 1e8, precision=precision)

    def pi(*ceilings: Ceiling) -> float:
        return one(product, roof=[*ROOF, *ceilings]).attainable.value

    assert pi(replace(own, scope="device")) == 180e9
    assert pi(own) == 100e9, "a CPU has no others"
    matrix = ceiling("pi", 150e9, precision=Precision.of("fp64", "matrix"))
    assert pi(replace(own, scope="device"), replace(matrix, scope="device")) == 150e9
    slower = replace(own, scope="device", estimate=Interval(60e9))
    assert pi(slower) == 100e9


def test_library_workload_stands_under_the_vector_pi_of_its_threads_in_the_typical_regime() -> None:
    roof = [
        *ROOF,
        ceiling("pi", 75e9, precision=Precision.of("fp64", "library"), kernel="gemm"),
        ceiling("pi", 120e9, regime="burst"),
        ceiling("pi", 55e9, threads=1),
        ceiling("pi", 210e9, precision=FP32),
        ceiling("beta", 90e9, "copy", level="L3"),
        ceiling("beta", 9e9, "copy", threads=1),
    ]
    library = sample(1.0, 80e9, 1e9, 1e9, precision=Precision.of("fp64", "library"))
    assert one(library, roof=roof).attainable.value == 100e9
    single = replace(sample(1.0, 80e9, 1e9, 1e9, precision=FP32))
    assert one(single, roof=roof).attainable.value == 210e9
    level = sample(1.0, 1e9, 1e9, 1e9, level="L3")
    assert one(level, roof=roof).attainable.value == pytest.approx(45e9)
    alone = sample(1.0, 1e9, 1e9, 1e9, threads=1)
    assert one(alone, roof=roof).attainable.value == pytest.approx(4.5e9)


def test_without_arithmetic_it_is_placed_in_bytes() -> None:
    p = one(sample(0.2, 0.0, 1e9, 1e9))
    assert (p.unit, p.intensity, p.binds, p.idle) == ("byte/s", 0, "memory", 1.0)
    assert p.achieved.value == pytest.approx(10e9)
    assert (p.attainable.value, p.efficiency.value, p.least_seconds) == pytest.approx((20e9, 0.5, 0.1))


def test_rounds_are_pooled_by_the_median_of_clean_repetitions() -> None:
    noisy = Repetitions(
        seconds=(1.0, 1.0, 1.1, 0.9, 1.0, 5.0, 5.0, 5.0), switches=(0, 0, 0, 0, 0, 999, 999, 999)
    )
    first = replace(sample(1.0, 1e9, 1e9, 1e9), repetitions=noisy)
    others = [sample(s, 1e9, 1e9, 1e9, round=r) for r, s in ((2, 1.25), (3, 0.8))]
    pilot = sample(0.001, 1e9, 1e9, 1e9, round=0, regime="pilot")
    failed = sample(0.001, 1e9, 1e9, 1e9, round=4, status="failed")
    p = one(first, *others, pilot, failed)
    rates = interval([1e9, 0.8e9, 1.25e9])
    assert p.achieved == Interval(*(pytest.approx(x) for x in (rates.value, rates.low, rates.high)))
    assert p.seconds == Interval(1.0, pytest.approx(1e9 / rates.high), pytest.approx(1e9 / rates.low))  # type: ignore[operator]


def test_one_round_gives_no_interval_and_few_clean_repetitions_use_all() -> None:
    dirty = Repetitions(seconds=(1.0, 2.0, 3.0), switches=(0, 999, 999))
    p = one(replace(sample(1.0, 1e9, 1e9, 1e9), repetitions=dirty))
    assert p.seconds == Interval(2.0, None, None)
    assert (p.efficiency.low, p.efficiency.high) == (None, None)


def test_efficiency_joins_the_widths_of_workload_and_roof() -> None:
    roof = [ceiling("pi", 100e9, width=0.03), ceiling("beta", 20e9, "copy")]
    rounds = [sample(s, 80e9, 1e9, 1e9, round=r) for r, s in enumerate((0.98, 1.0, 1.02), 1)]
    p = one(*rounds, roof=roof)
    own = math.log(p.achieved.high / p.achieved.low) / 2  # type: ignore[operator]
    joined = math.log(p.efficiency.high / p.efficiency.low) / 2  # type: ignore[operator]
    assert joined == pytest.approx(math.hypot(own, math.log(1.03)))
    assert own > 0.01


def test_inside_the_ridge_interval_it_cannot_tell() -> None:
    """Ridge 100 / 20 = 5 FLOP/byte, 3 % and 4 % wide: 5 % together."""
    roof = [ceiling("pi", 100e9, width=0.03), ceiling("beta", 20e9, "copy", 0.04)]
    said = [one(sample(1.0, i * 2e9, 1e9, 1e9), roof=roof).binds for i in (4.7, 4.8, 5.2, 5.3)]
    assert said == ["memory", "cannot tell", "cannot tell", "compute"]
    sharp = [ceiling("pi", 100e9, width=None), ceiling("beta", 20e9, "copy", None)]
    assert one(sample(1.0, 4.99 * 2e9, 1e9, 1e9), roof=sharp).binds == "memory"


def test_launch_overhead_of_the_fitted_sweep_counts_and_can_bind() -> None:
    unknown = Interval(1.0)

    def curve(mode: str, t0: float, chosen: bool = True) -> Curve:
        fit = Fit("p-norm", unknown, unknown, unknown, unknown, 2.0, t0, 0.01, 0.0, chosen)
        return Curve("mix", mode, FP64, "all", 2, "FLOP/s", (), (replace(fit, t0=9.0, chosen=False), fit))

    curves = (curve("in-place", 0.3), curve("read-only", 0.02))
    p = one(sample(1.0, 1e9, 1e9, 1e9), curves=curves)
    assert (p.least_seconds, p.binds) == (pytest.approx(0.02 + math.hypot(0.1, 0.01)), "memory"), "p = 2"
    cached = one(sample(1.0, 1e9, 1e9, 1e9, level="L3"), curves=curves)
    assert cached.least_seconds * cached.attainable.value == pytest.approx(1e9), "no sweep was made there"
    q = one(sample(1.0, 1e9, 1e9, 1e9, facts={"in_place": True}), curves=curves)
    assert (q.least_seconds, q.binds) == (pytest.approx(0.3 + math.hypot(2 / 30, 0.01)), "launch")


def test_above_the_roof_is_said_in_words_and_not_before_three_percent() -> None:
    fast = one(sample(0.08, 1e9, 1e9, 1e9))
    assert fast.efficiency.value == pytest.approx(1.25)
    assert fast.note.startswith("above roof: 25 % more than is possible; check the FLOP and byte counts")
    assert one(sample(0.098, 1e9, 1e9, 1e9)).note == ""
    assert fast.idle <= 1


def test_above_the_roof_by_less_than_the_interval_is_no_alarm() -> None:
    seconds = (0.06, 0.08, 0.11)
    p = one(*(sample(s, 1e9, 1e9, 1e9, round=n) for n, s in enumerate(seconds, 1)))
    assert p.efficiency.low is not None and p.efficiency.low < 1.0 < 1.2 < p.efficiency.value
    assert p.note.startswith("25 % above its roof, which lies within its interval")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_times_are_refused_by_name(bad: float) -> None:
    samples = [sample(1.0, 1e9, 1e9, 1e9), sample([1.0, bad], 1e9, 1e9, 1e9, round=2, kernel="dot")]
    with pytest.raises(
        DeviceError, match=r"sample workload/dot/.* of round 2 took .* s: the timer or the file is broken"
    ):
        place(samples, ROOF, ())


def test_no_repetition_is_refused_by_name() -> None:
    with pytest.raises(DeviceError, match=r"workload/own code/.* of round 1 has no timed repetition"):
        place([sample([], 1e9, 1e9, 1e9)], ROOF, ())


def test_missing_roofs_are_said_and_never_silent() -> None:
    memory_only = one(sample(1.0, 80e9, 1e9, 1e9), roof=ROOF[1:])
    assert memory_only.note == "no pi measured for fp64: placed under the bandwidth alone"
    assert (memory_only.binds, memory_only.attainable.value) == ("memory", pytest.approx(800e9))
    compute_only = one(sample(1.0, 80e9, 1e9, 1e9), roof=ROOF[:1])
    assert (compute_only.binds, compute_only.attainable.value) == ("compute", 100e9)
    assert compute_only.note == "no beta of DRAM measured: placed under pi alone"
    transposed = sample(1.0, 0.0, 1e9, 1e9)
    assert place([transposed], ROOF[:1], ()) == ()
    assert unplaced([transposed], ROOF[:1]) == ("workload own code: no beta of DRAM measured with 2 threads",)
    assert unplaced([transposed], ROOF) == ()


def test_points_are_placed_apart_in_order_of_appearance() -> None:
    samples = [sample(1.0, 1e9, 1e9, 1e9, kernel=k) for k in ("dot", "adam", "dot")]
    assert [p.name for p in place(samples, ROOF, ())] == ["adam", "dot"], "equal intensity: by name"
    assert place([replace(samples[0], point=replace(samples[0].point, family="stream"))], ROOF, ()) == ()


def test_a_batch_of_executions_is_placed_as_one_of_them() -> None:
    single = one(sample(2.0, 1e9, 8e9, 0.0))
    batch = one(sample(20.0, 10e9, 80e9, 0.0, facts={"amount": 10}))
    assert (batch.flops, batch.bytes_read, batch.seconds.value) == (1e9, 8e9, 2.0)
    assert batch == single
