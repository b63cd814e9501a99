"""Whether a measured number is normal: shares of the datasheet, published ranges, bands."""

from __future__ import annotations

from typing import Any

import pytest

from bench import reference
from bench.errors import FileError
from bench.fitting import normal
from bench.fitting.ceilings import derive
from bench.profile.records import Ceiling, Precision
from bench.reference import Reference
from bench.report import bands, normality, roofs
from bench.report.table import render
from tests.h200 import GIB, gpu
from tests.synthetic import ceiling, synthetic_profile


def pi(rate: float, precision: Precision, **changes: Any) -> Ceiling:
    return ceiling("pi", rate, precision=precision, scope="device", threads=132, **changes)


def beta(rate: float, access: str, **changes: Any) -> Ceiling:
    return ceiling("beta", rate, kernel=access, access=access, scope="device", **{"threads": 132, **changes})


BF16 = Precision("bf16", "fp32", "bf16", "library")


@pytest.mark.parametrize(
    ("measured", "share", "told"),
    [
        (pi(33.5e12, Precision.of("fp64")), 1.0, "not tested: unjudged, 1.00 of the datasheet"),
        (pi(60.3e12, Precision.of("fp32")), 0.9, "ok: normal, 0.90 of the datasheet, published 0.89"),
        (pi(60.3e12, Precision.of("fp64", "library")), 0.9, "not tested: unjudged, 0.90 of the"),
        (pi(800e12, BF16), 0.809, "ok: normal, 0.81 of the datasheet, published 0.67-0.95"),
        (pi(500e12, BF16), 0.506, "fails: low, 0.51 of the datasheet, published 0.67-0.95"),
        (pi(1300e12, BF16), 1.314, "fails: high, 1.31 of the datasheet, published 0.67-0.95"),
        (pi(1979e12, Precision("fp8", "fp32", "fp32", "matrix")), 1.0, "not tested: unjudged, 1.00"),
        (beta(4.32e12, "read"), 0.9, "ok: normal, 0.90 of the datasheet, published 0.81-0.91"),
        (beta(2.4e12, "read"), 0.5, "fails: low, 0.50 of the datasheet, published 0.81-0.91"),
        (beta(9.6e12, "copy"), 2.0, "fails: high, 2.00 of the datasheet, published 0.84"),
        (beta(4.32e12, "update"), 0.9, "ok: normal, 0.90 of the datasheet, published 0.79-0.91 (oth"),
        (beta(9.5e12, "read", level="L2"), None, "ok: normal, published 9.80 TB/s"),
        (beta(4e12, "read", level="L2"), None, "fails: low, published 9.80 TB/s"),
        (beta(20e12, "read", level="L2"), None, "fails: high, published 9.80 TB/s"),
    ],
    ids=lambda x: x.split(":")[0] if isinstance(x, str) else None,
)
def test_share_and_verdict_on_an_h200(measured: Ceiling, share: float | None, told: str) -> None:
    found = normal.judged(measured, gpu())
    assert found.share_of_datasheet == (None if share is None else pytest.approx(share, abs=0.001))
    assert found.checks[normal.CHECK].startswith(told), found.checks


def test_the_library_uses_the_matrix_units_of_fp64_only_where_there_are_some() -> None:
    fp64 = pi(6.24e12, Precision.of("fp64", "library"))
    volta = gpu(name="Tesla V100-SXM2-16GB", threads=80, memory_bytes=15.8 * GIB, facts={})
    assert normal.judged(fp64, volta).share_of_datasheet == pytest.approx(0.8)
    assert normal.judged(fp64, gpu()).share_of_datasheet == pytest.approx(6.24 / 67)


def test_a_clock_above_the_datasheets_explains_a_share_above_one() -> None:
    fp32, board = (
        Precision.of("fp32"),
        gpu(name="NVIDIA GeForce RTX 4090", threads=128, memory_bytes=24 * GIB, facts={}),
    )
    boosted = normal.judged(pi(88.4e12, fp32, clock_hz=2.73e9), board).checks["normal"]
    assert boosted.startswith("not tested: unjudged, 1.07 of the datasheet (at 2.73 GHz, it counts 2.52 GHz)")
    nominal = normal.judged(pi(88.4e12, fp32, clock_hz=2.52e9), board).checks["normal"]
    assert nominal.startswith("fails: high, 1.07 of the datasheet, ")
    slow = normal.judged(pi(40e12, fp32, clock_hz=1.2e9), gpu()).checks["normal"]
    assert slow.startswith("fails: low, 0.60 of the datasheet (at 1.20 GHz, it counts 1.98 GHz)")


@pytest.mark.parametrize("kind", ["cpu", "simulated"])
def test_nothing_is_said_of_cpus_and_simulations(kind: str) -> None:
    measured = pi(60e12, Precision.of("fp32"))
    assert normal.judged(measured, gpu(kind=kind)) is measured


def test_an_unknown_gpu_and_a_slice_are_unknown_and_a_part_is_not_judged() -> None:
    measured = pi(60e12, Precision.of("fp32"))
    for device, why in (
        (gpu(name="NVIDIA H100 NVL"), "no reference figures of 'NVIDIA H100 NVL'"),
        (gpu(identity={"mig": "1g.18gb"}), "'NVIDIA H200' is a slice of a GPU"),
        (gpu(threads=120), "120 SMs are usable where a H200 SXM has 132"),
    ):
        found = normal.judged(measured, device)
        assert found.share_of_datasheet is None
        assert found.checks["normal"].startswith(f"not tested: unknown, {why}")
    part = ceiling("pi", 60e12, precision="fp32", scope="core", threads=1)
    assert normal.judged(part, gpu()) is part


def test_unreadable_tables_never_stop_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Reference:
        raise FileError("reference figures cannot be read (figures.csv: gone): restore it")

    monkeypatch.setattr(reference, "known", fail)
    found = normal.judged(pi(60e12, Precision.of("fp32")), gpu())
    assert found.checks["normal"].startswith("not tested: unknown, reference figures cannot be read")


def test_a_fit_fills_the_share_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.profile.records import Point, Repetitions, Sample

    point = Point("stream", "read", "v16 l4", Precision.of("fp32"), "DRAM", "read", "none", "device", 132)
    samples = [
        Sample(
            point, r, r, 0, bytes_read=4.32e9, repetitions=Repetitions(start=(0.0,) * 5, seconds=(1e-3,) * 5)
        )
        for r in range(1, 6)
    ]
    (found,) = derive({"device": gpu()}, [], samples).ceilings
    assert found.share_of_datasheet == pytest.approx(0.9)
    assert found.checks["normal"] == "ok: normal, 0.90 of the datasheet, published 0.81-0.91"
    (plain,) = derive({"device": gpu(kind="simulated")}, [], samples).ceilings
    assert plain.share_of_datasheet is None and "normal" not in plain.checks


# what is printed


def test_lines_count_the_normal_and_name_the_others() -> None:
    measured = [
        pi(800e12, BF16, kernel="gemm"),
        beta(4.32e12, "read"),
        beta(2.4e12, "copy", regime="burst"),
    ]
    lines = normality.lines([normal.judged(c, gpu()) for c in measured])
    assert lines == [
        "normal: 2 of them, by datasheet and published measurements",
        "DRAM copy burst: low, 0.50 of the datasheet, published 0.84",
    ]
    unknown = [normal.judged(c, gpu(name="NVIDIA H100 NVL")) for c in measured]
    assert normality.lines(unknown) == ["is it normal? unknown, no reference figures of 'NVIDIA H100 NVL'"]
    assert normality.lines(measured) == []


def test_the_report_has_a_column_only_where_shares_are_known() -> None:
    from dataclasses import replace

    profile = synthetic_profile()
    assert "datasheet" not in render(profile, width=160) and "normal: " not in render(profile, width=160)
    known = replace(profile, ceilings=(normal.judged(pi(60.3e12, Precision.of("fp32")), gpu()),))
    text = render(known, width=160)
    assert "datasheet" in text and "90 %" in text
    assert "normal: 1 of them, by datasheet and published measurements" in text
    assert roofs.NORMAL == normal.CHECK and normality.UNKNOWN == normal.UNKNOWN


# bands


def test_a_band_runs_over_regimes_with_their_clocks_and_operands_beside() -> None:
    fp32 = Precision.of("fp32")
    measured = [
        pi(93e12, fp32, regime="sustained", clock_hz=1.76e9),
        pi(100e12, fp32, regime="burst", clock_hz=1.98e9),
        pi(97e12, fp32),
        pi(106.7e12, fp32, operands="zeros"),
        pi(50e12, Precision.of("fp64")),
    ]
    (found,) = bands.bands(measured)
    assert found.text == (
        "burst 1.00 at 1.98 GHz to typical 0.97 to sustained 0.93 at 1.76 GHz; zeros 1.10 of random"
    )
    assert (found.low, found.high) == (pytest.approx(0.93), pytest.approx(1.067))
    assert [c.regime for c in found.ceilings] == ["burst", "typical", "sustained", "typical"]


def test_zeros_alone_make_a_band_and_other_kernels_do_not() -> None:
    random, zeros = pi(700e12, BF16), pi(805e12, BF16, operands="zeros", regime="burst")
    (found,) = bands.bands([random, zeros])
    assert found.text == "zeros burst 1.15 of random typical"
    assert bands.bands([random, pi(1e12, BF16, kernel="mma", operands="zeros")]) == ()
    assert bands.bands([]) == ()


# the verb
