"""The prefix table: every text that people read comes from it, edge cases included."""

from __future__ import annotations

import math

import pytest

from bench.report import units


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (91.3e9, "FLOP/s", "91.3 GFLOP/s"),
        (0.0, "FLOP/s", "0 FLOP/s"),
        (-0.0, "byte/s", "0 B/s"),
        (-1.2345e10, "byte/s", "-12.3 GB/s"),
        (999.6e9, "FLOP/s", "1.00 TFLOP/s"),
        (999.4e9, "FLOP/s", "999 GFLOP/s"),
        (1e9, "byte/s", "1.00 GB/s"),
        (0.25, "FLOP/s", "0.250 FLOP/s"),
        (3.3e26, "FLOP/s", "330 YFLOP/s"),
        (4e31, "FLOP/s", "4.00e+07 YFLOP/s"),
        (1.24e-3, "s", "1.24 ms"),
        (3.7e-5, "s", "37.0 µs"),
        (4210.0, "s", "4210 s"),
        (2e-19, "s", "0.000200 fs"),
        (0.0208, "FLOP/byte", "0.0208 FLOP/byte"),
        (1.3e5, "FLOP/byte", "130000 FLOP/byte"),
        (2.9e9, "Hz", "2.90 GHz"),
        (1.1e-11, "J", "11.0 pJ"),
        (float("inf"), "byte/s", "∞ B/s"),
        (float("nan"), "byte/s", "–"),
        (None, "byte/s", "–"),
    ],
)
def test_si(value: float | None, unit: str, text: str) -> None:
    assert units.si(value, unit) == text


def test_si_keeps_the_digits_asked_for() -> None:
    assert units.si(123456789.0, "FLOP/s", digits=5) == "123.46 MFLOP/s"
    assert units.si(9.96e9, "FLOP/s", digits=2) == "10 GFLOP/s"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (512, "512 B"), (48 << 10, "48 KiB"), (1.5 * 2**30, "1.50 GiB"), (2**80, "1048576 EiB")],
)
def test_capacity(size: float, text: str) -> None:
    assert units.capacity(size) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.012, "1.2 %"),
        (0.0995, "10 %"),
        (0.951, "95 %"),
        (1.2, "120 %"),
        (0.0003, "0.03 %"),
        (-0.11, "-11 %"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_percent(share: float | None, text: str) -> None:
    assert units.percent(share) == text


def test_plus_minus() -> None:
    assert units.plus_minus(0.012) == "± 1.2 %"
    assert units.plus_minus(None) == "–"


def test_bare_uses_the_prefix_of_its_reference() -> None:
    assert units.bare(45.9e9, "FLOP/s", 90e9) == "45.9"
    assert units.bare(512e9, "FLOP/s", 1.2e12) == "0.512"
    assert units.bare(None, "FLOP/s", 90e9) == ""


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("91.3 GFLOP/s", 91.3e9, "FLOP/s"),
        ("20GB/s", 20e9, "byte/s"),
        ("20 Gbyte/s", 20e9, "byte/s"),
        ("48 KiB", 49152.0, "byte"),
        ("64 MB", 64e6, "byte"),
        ("1.24 ms", 1.24e-3, "s"),
        ("37 µs", 37e-6, "s"),
        ("37us", 37e-6, "s"),
        ("5 %", 0.05, ""),
        ("-2.5e3", -2500.0, ""),
        (" 4.5 FLOP/byte ", 4.5, "FLOP/byte"),
    ],
)
def test_parse(text: str, value: float, unit: str) -> None:
    parsed, base = units.parse(text)
    assert parsed == pytest.approx(value, rel=1e-12)
    assert base == unit


@pytest.mark.parametrize("text", ["", "GB/s", "12 parsecs", "1 2 GB", "1,5 GB", "5 gb/s"])
def test_parse_refuses_with_the_text_and_the_valid_units(text: str) -> None:
    with pytest.raises(
        ValueError, match="is no quantity: write a number and a unit such as GFLOP/s"
    ) as refusal:
        units.parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("exponent", range(-14, 27))
def test_parse_reads_back_what_si_prints(exponent: int) -> None:
    for unit in ("s", "FLOP/s", "byte/s", "Hz", "J"):
        value = 1.23 * 10.0**exponent
        printed = units.si(value, unit)
        assert units.parse(printed)[0] == pytest.approx(
            value, rel=5e-3 if value >= 1 or unit in "sJ" else 1
        ), printed
