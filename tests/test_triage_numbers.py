"""Triage of workloads on their roof, of bare numbers and of other people's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.importers import load
from bench.importers.refit import refit
from bench.profile.records import Ceiling, Interval, Placement, Precision
from bench.report import refits
from bench.triage import Context, diagnose, explain
from tests.crafted import ceiling, near, only, placement, profile

CACHES = {"caches": [{"level": "L3", "bytes": 32_000_000, "sharers": 8, "instances": 1}], "facts": {}}
L3 = ceiling("fp64", 4e11, "beta", level="L3", kernel="cache-read")
FAST = {"achieved": near(3e11), "efficiency": near(3.0), "seconds": near(1 / 300)}
SLOW = {"achieved": near(2e10), "efficiency": near(0.2), "seconds": near(0.05)}


@pytest.mark.parametrize(
    ("placed", "ceilings", "cause", "said"),
    [
        (placement(**FAST, bytes_read=5e6, bytes_written=5e6), [L3], "cache-resident", "L3 of 30.5 MiB"),
        (placement(**FAST), [L3], "byte-count", "only the L3 can (400 GB/s)"),
        (placement(**FAST), [], "unexplained", "above roof: not possible, check the count or the timing"),
        (placement(**SLOW, binds="launch"), [], "launch-bound", "the launch takes longer"),
        (placement(**SLOW), [], "unexplained", "tested: start, pace, bytes, FLOP and start in turn"),
    ],
)
def test_workloads(placed: Placement, ceilings: list[Ceiling], cause: str, said: str) -> None:
    assert said in only(diagnose(profile(CACHES, ceilings, placed), ()), cause).sentence


def test_a_workload_in_a_wider_precision() -> None:
    slow = placement(
        precision=Precision.of("fp32", "library"),
        binds="compute",
        achieved=near(9.5e11),
        efficiency=near(0.4),
    )
    found = diagnose(profile(CACHES, [ceiling("fp64", 1e12), ceiling("fp32", 2.4e12)], slow), ())
    assert "95 % of π fp64" in only(found, "wrong-precision").sentence


def test_a_workload_that_is_a_few_launches_long() -> None:
    short = placement(**{**SLOW, "seconds": near(1.2e-5)})
    t0 = ceiling("fp64", 4e-6, "t0", unit="s", kernel="empty")
    assert "3.0 launches of 4.00 µs" in only(diagnose(profile(CACHES, [t0], short), ()), "latency").sentence


def test_workloads_on_their_roof_have_no_finding() -> None:
    assert diagnose(profile(CACHES, [L3], placement()), ()) == ()
    loose = placement(achieved=near(1.2e11), efficiency=Interval(1.2, 0.9, 1.6))
    assert diagnose(profile(CACHES, [L3], loose), ()) == (), "within its interval"


@pytest.mark.parametrize(("high", "accused"), [(1.02e11, True), (1.3e11, False), (None, True)])
def test_a_single_round_is_above_its_roof_only_beyond_the_interval_of_the_roof(
    high: float | None, accused: bool
) -> None:
    roof = Interval(1e11, 0.8e11 if high else None, high)
    once = placement(achieved=Interval(1.2e11), attainable=roof, efficiency=Interval(1.2))
    assert bool(diagnose(profile(CACHES, [L3], once), ())) is accused


# -- bare numbers --------------------------------------------------------------------------------

BARE: list[tuple[float, Context, str, str]] = [
    (70e12, Context("pi", "NVIDIA H200", "fp32"), "boost-clock", "likely the boost clock"),
    (70e12, Context("pi", "NVIDIA H200", "fp32", clock_hz=2.1e9), "boost-clock", "it ran at 2.10 GHz"),
    (42.4e12, Context("pi", "NVIDIA H200", "fp32"), "narrow-probe", "the probe may not reach"),
    (42.4e12, Context("pi", "NVIDIA H200", "fp32", clock_hz=1.3e9), "power-cap", "held 1.30 GHz"),
    (600e12, Context("pi", "NVIDIA H200", "bf16>fp32 matrix", expected=1979e12), "sparse-datasheet", "989"),
    (1978e12, Context("pi", "NVIDIA H200", "bf16>fp32 matrix"), "sparse-datasheet", "2:4 sparsity"),
    (400e12, Context("pi", "NVIDIA H200", "fp32"), "tf32", "494 TFLOP/s"),
    (134e12, Context("pi", "NVIDIA H200", "fp64"), "folded-chain", "chains folded by the compiler"),
    (2.7e15, Context("pi", "NVIDIA H200", "fp32"), "timer", "40.30 times"),
    (9.6e12, Context("beta", "NVIDIA H200"), "byte-convention", "counted twice"),
    (2.4e12, Context("beta", "NVIDIA H200"), "byte-convention", "counted once"),
    (
        9e12,
        Context("beta", "NVIDIA H200", working_set=24e6),
        "cache-resident",
        "23 MiB lies in a cache of 50 MiB",
    ),
    (5.9e12, Context("beta", "NVIDIA H200"), "unexplained", "byte convention (1.23 is no ratio"),
    (8.9e12, Context("pi", "NVIDIA H200", "fp64", slice_of="slice 1g.18gb"), "partition", "slice 1g.18gb"),
]


@pytest.mark.parametrize(("value", "context", "cause", "said"), BARE)
def test_bare_numbers(value: float, context: Context, cause: str, said: str) -> None:
    one = explain(value, context)
    assert one is not None and one.cause == cause, one
    assert said in one.sentence and "H200" in one.sentence


def test_bare_numbers_that_need_no_word() -> None:
    assert explain(59.5e12, Context("pi", "NVIDIA H200", "fp32")) is None
    assert explain(4.0e12, Context("beta", "NVIDIA H200")) is None
    assert explain(59.5e12, Context("pi", "Some Other GPU", "fp32")) is None, "nobody's figures are borrowed"


def test_a_number_whose_interval_reaches_what_is_normal_needs_no_word() -> None:
    """0.5 of the datasheet known to a factor of two; 1.2 times it known to 15 %."""
    for value, width, cause in ((2.4e12, 1.0, None), (5.76e12, 0.2, None), (2.4e12, 0.1, "byte-convention")):
        interval = Interval(value, value / (1 + width), value * (1 + width))
        found = explain(value, Context("beta", "NVIDIA H200", interval=interval))
        assert (found.cause if found else None) == cause, found


def test_a_pair_of_numbers_that_is_another_device() -> None:
    one = explain(2.0e12, Context("beta", "NVIDIA H200", "fp32", beside={"pi": 19e12}))
    assert one is not None and one.cause == "wrong-device" and "A100" in one.sentence


# -- other people's files ------------------------------------------------------------------------


def mixbench(scale: float, theory: float = 12000.0) -> str:
    """A sweep of a card unknown to the reference figures, with its own theory above the table."""
    rows = [
        f"{n:3d}, {2 * n / 8:.3f}, {1.0:.2f}, {scale * min(12000.0, 600 * 2 * n / 8):.2f}, "
        f"{min(scale * 600.0, scale * 12000.0 / max(2 * n / 8, 1e-9)):.2f}"
        for n in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    ]
    return "\n".join(
        [
            "mixbench-cuda/read-only (v0.02)",
            "Device:              Example Card 7000",
            f"Compute throughput:  {theory:.2f} GFlops (theoretical single precision FMAs)",
            "Memory bandwidth:    616.00 GB/sec",
            "Experiment ID, Single Precision ops,,,,",
            "Compute iters, Flops/byte, ex.time, GFLOPS, GB/sec",
            *rows,
        ]
    )


@pytest.mark.parametrize(
    ("scale", "theory", "cause", "said"),
    [
        (1.0, 12000.0, None, ""),
        (1.0, 10100.0, "boost-clock", "1.19 times the file's own theory of 10.1 TFLOP/s"),
        (40.0, 12000.0, "timer", "its times or its counts are wrong"),
    ],
)
def test_the_report_of_a_file(
    tmp_path: Path, scale: float, theory: float, cause: str | None, said: str
) -> None:
    path = tmp_path / "card.txt"
    path.write_text(mixbench(scale, theory), encoding="utf-8")
    found = refits.fitted(load(path))
    text, record = refits.render(path, found, ()), refits.record(path, found, ())
    told = [f["cause"] for one in record["imports"] for f in one["findings"]]
    assert ([cause] if cause else []) == list(dict.fromkeys(told)), text
    assert said in " ".join(text.split()) and ("Triage" in text) == bool(cause)


def test_a_device_that_only_the_file_name_names(tmp_path: Path) -> None:
    from bench.triage.refitted import refitted

    path = tmp_path / "sweep_h200.txt"
    path.write_text(mixbench(3.4).replace("Example Card 7000", ""), encoding="utf-8")
    (imported,) = load(path)
    (one,) = refitted(path, imported, [refit(s) for s in imported.sweeps if s.precision == "fp32"][:1])[:1]
    assert (
        one.cause in ("narrow-probe", "byte-convention") and "the name of the file says it is" in one.sentence
    )
