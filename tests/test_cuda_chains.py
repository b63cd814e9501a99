"""The CUDA forms of chains, and what they share with matrix units: names, labels, encodings and code."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bench.profile.records import Precision
from kernels import CUDA, FAMILIES, KERNELS, encoding, fma, tensor
from kernels.spec import CudaForm

CHAINS = CUDA["fma"].forms
MATRIX = CUDA["tensor"].forms
WARP_FORMS = [form for form in MATRIX if form.kernel == "mma"]
GROUP_FORMS = [form for form in MATRIX if form.kernel == "wgmma"]
DIGITS = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8, "fp8": 4}

by_entry = pytest.mark.parametrize("form", CHAINS + MATRIX, ids=lambda f: f.entry)
by_chain = pytest.mark.parametrize("form", CHAINS, ids=lambda f: f.entry)


def nearest(value: Fraction, digits: int) -> Fraction:
    """Round to `digits` binary digits, ties to even: what one operation of a float type gives."""
    if value == 0:
        return value
    unit = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - digits)
    while abs(value) / unit >= 2**digits:
        unit *= 2
    while abs(value) / unit < 2 ** (digits - 1):
        unit /= 2
    return round(value / unit) * unit  # Python's round is to even


# names, labels, counts


@pytest.mark.parametrize("family", ["fma", "tensor"])
def test_forms_are_unique_and_their_kernels_exist(family: str) -> None:
    forms = CUDA[family].forms
    assert len({form.entry for form in forms}) == len(forms)
    for form in forms:
        assert KERNELS[form.kernel] in FAMILIES[family]
        assert form.grid == "persistent" and form.items == 0
        assert all(block % 32 == 0 and block <= 1024 for block in form.blocks)
    for capability in (70, 75, 80, 86, 89, 90, 100, 103, 120):
        here = [f for f in forms if exists(f, capability)]
        assert len({(f.kernel, f.precision, f.variant) for f in here}) == len(here)


def exists(form: CudaForm, capability: int) -> bool:
    targets = {target.rstrip("a") for target in form.only}
    return capability >= form.least_cc and (not targets or str(capability) in targets)


def test_labels_are_those_of_precisions() -> None:
    plain = {Precision.of(name).label for name in ("fp64", "fp32", "fp16", "bf16", "int32")}
    assert {form.precision for form in CHAINS} == plain | {Precision("int8", "int32", "int32").label}
    fp32 = {Precision(item, "fp32", "fp32", "matrix").label for item in ("fp16", "bf16", "fp8")}
    own = {Precision.of("fp16", "matrix").label, Precision("fp32", "fp32", "fp32", "matrix", "tf32").label}
    both = fp32 | own | {Precision("int8", "int32", "int32", "matrix").label}
    assert {form.precision for form in GROUP_FORMS} == both
    assert {form.precision for form in WARP_FORMS} == both | {Precision.of("fp64", "matrix").label}


@by_chain
def test_chains_count_their_flop(form: CudaForm) -> None:
    chains = int(form.variant.removesuffix(" apart").removesuffix(" chains"))
    steps, rest = divmod(fma.BODY, chains)
    products = {"fp16": 2, "bf16": 2, "int8>int32": 4}.get(form.precision, 1)
    assert rest == 0 and chains >= 8 and chains * steps >= 256
    assert form.flops == chains * steps * products * 2
    assert sum(form.expect.opcodes.values()) == chains * steps
    assert form.shim and form.expect.share >= 0.98


@by_entry
def test_sources_hold_what_was_asked_for(form: CudaForm) -> None:
    family = CUDA["fma" if form in CHAINS else "tensor"]
    source = family.source(form.entry)
    assert form.entry in form.code and source.startswith(family.preamble)
    others = [f.entry for f in family.forms if f.entry != form.entry and f.entry not in form.entry]
    assert not [name for name in others if re.search(rf"\b{name}\b", source)]
    with pytest.raises(KeyError):
        family.source("nothing")


@by_entry
def test_expected_opcodes_are_patterns_that_exclude_what_is_forbidden(form: CudaForm) -> None:
    for pattern in (*form.expect.opcodes, *form.expect.forbidden):
        re.compile(pattern)
    for pattern in form.expect.opcodes:
        plain = re.sub(r"\(.*?\)\??|\\", "", pattern)
        assert not [bad for bad in form.expect.forbidden if re.fullmatch(bad, plain)]


# numbers in memory


@pytest.mark.parametrize("item", ["fp64", "fp32", "fp16", "bf16"])
def test_encoding_rounds_to_nearest_even(item: str) -> None:
    values = np.concatenate([np.random.default_rng(3).uniform(-8, 8, 200), [1.00390625, 1.01171875, 1.0]])
    got = encoding.rounded(np, item, values)
    assert [Fraction(v) for v in got] == [nearest(Fraction(v), DIGITS[item]) for v in values]


def test_fp8_is_e4m3() -> None:
    bits = np.array([0x00, 0x01, 0x07, 0x08, 0x38, 0x39, 0x40, 0x7E, 0xB8, 0xFE], np.uint8)
    values = [0, 2**-9, 7 * 2**-9, 2**-6, 1, 1.125, 2, 448, -1, -448]
    assert encoding.decoded(np, "fp8", bits).tolist() == values
    assert encoding.encoded(np, "fp8", np.array(values)).tolist() == bits.tolist()
    assert encoding.decoded(np, "fp8", encoding.encoded(np, "fp8", [1e9, 1.05, -0.3])).tolist() == [
        448,
        1,
        -0.3125,
    ]


# chains


@by_chain
def test_chain_reference_equals_exact_arithmetic(form: CudaForm) -> None:
    b, s = (f(np, form, "check") for f in (fma.operands, fma.start))
    threads, trips = 2, 1
    got = fma.decoded(np, form, fma.encoded(np, fma.item(form), fma.expected(np, form, b, s, threads, trips)))
    assert got.shape == fma.results(np, form, threads).shape
    assert got.tolist() == [
        [slow_chains(form, b, s, thread, lane, trips) for lane in range(got.shape[1])]
        for thread in range(threads)
    ]


def slow_chains(form: CudaForm, b: Any, s: Any, thread: int, lane: int, trips: int) -> float:
    """One lane of one thread in exact numbers, rounded after every operation."""
    chains, item = int(form.variant.split()[0]), fma.item(form)
    seeds = [(thread + fma.STRIDE * j) % len(b) for j in range(chains)]
    if item == "int32":
        total = sum(
            slow_integer(form, int(b[k, lane]), int(s[lane]), trips * fma.BODY // chains) for k in seeds
        )
        return signed(total)
    values, constants = encoding.decoded(np, item, b), encoding.decoded(np, item, s)
    m, y = (Fraction(float(row[lane])) for row in (constants, constants[::-1][: len(b[0])]))
    apart = form.variant.endswith("apart")
    sums = Fraction(0)
    for k in seeds:
        x = Fraction(float(values[k, lane]))
        for _ in range(trips * fma.BODY // chains):
            x = nearest(x * m + (y if apart else x), DIGITS[item])
        sums = nearest(sums + x, DIGITS[item])
    return float(sums)


def slow_integer(form: CudaForm, x: int, m: int, steps: int) -> int:
    for _ in range(steps):
        step = (
            sum(p * q for p, q in zip(digits(x), digits(m), strict=True)) if "8" in form.precision else x * m
        )
        x = signed(x + step)
    return x


def signed(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def digits(x: int) -> list[int]:
    return list(memoryview((x % 2**32).to_bytes(4, "little")).cast("b"))


@by_chain
def test_chains_see_a_lost_trip_a_lost_chain_and_another_m(form: CudaForm) -> None:
    b, s = (f(np, form, "check") for f in (fma.operands, fma.start))
    want = fma.expected(np, form, b, s, 64, 2)
    assert np.isfinite(fma.expected(np, form, b, s, 64, fma.MOST_TRIPS)).all()
    assert (fma.expected(np, form, b, s, 64, 1) != want).all()
    constants, lanes = fma.decoded(np, form, s), len(b[0])
    for part in range(0, len(s), lanes):  # m, and y where it is apart
        other = constants.copy()
        other[part : part + lanes] = other[part : part + lanes] * (2 if len(s) == lanes else 0.5)
        other = fma.encoded(np, fma.item(form), other)
        assert (fma.expected(np, form, b, other, 64, 2) != want).all()
    assert len(np.unique(want[:, 0])) >= 20  # seeds differ by thread
    assert not fma.expected(np, form, *(f(np, form, "zeros") for f in (fma.operands, fma.start)), 64, 2).any()


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16"])
def test_timed_floats_stay_what_they_are_for_any_count(precision: str) -> None:
    form = next(f for f in CHAINS if f.precision == precision)
    x, m = (fma.decoded(np, form, f(np, form, "time")) for f in (fma.operands, fma.start))
    assert (m > {"fp16": 2.0**-14}.get(precision, 2.0**-126)).all()  # normal, and so is x m
    assert (encoding.rounded(np, precision, x * m) != 0).all()
    assert len(np.unique(x)) > min(100, 2 ** DIGITS[precision] / 2)
    if precision != "fp64":
        assert (encoding.rounded(np, precision, x * m + x) == x).all()
    else:
        assert m.max() < 1e-11


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16"])
def test_with_the_addend_apart_timed_floats_take_turns_for_any_count(precision: str) -> None:
    (form,) = (f for f in CHAINS if f.precision == precision and f.variant.endswith("apart"))
    x, (m, *_, y) = (fma.decoded(np, form, f(np, form, "time")) for f in (fma.operands, fma.start))
    once = encoding.rounded(np, precision, x * m + y)
    twice = encoding.rounded(np, precision, once * m + y)
    assert (encoding.rounded(np, precision, twice * m + y) == once).all(), "the same two numbers for ever"
    assert (abs(once) >= 1).all() and (abs(once) <= 10).all() and (abs(twice) >= 1).all()
    assert (once != twice).all() and len(np.unique(once)) > min(100, 2 ** DIGITS[precision] / 8)


def test_only_chains_whose_registers_could_be_the_limit_have_an_addend_apart() -> None:
    assert {f.precision for f in CHAINS if f.variant.endswith("apart")} == {"fp64", "fp32", "fp16", "bf16"}


def test_timed_integers_never_die_out() -> None:
    m = int(fma.FACTORS["int32"])
    assert m % 2 == 0 and (1 + m) % 8 == 5  # odd and 5 mod 8: 2^30 steps until the first repetition
    assert pow(1 + m, 2**29, 2**32) != 1 and pow(1 + m, 2**30, 2**32) == 1
    assert digits(int(fma.FACTORS["int8>int32"])) == [-19, 37, -71, 113]


@pytest.mark.parametrize("module", [fma, tensor])
def test_both_families_offer_the_same_verbs(module: Any) -> None:
    verbs: list[Callable[..., Any]] = [
        getattr(module, verb) for verb in ("operands", "start", "results", "decoded", "expected", "tolerance")
    ]
    assert all(verb.__doc__ for verb in verbs) and module.MOST_TRIPS == 3
