"""The CUDA forms of chains and matrix units: their names, what they count and what they must give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from bench.profile.records import Precision
from kernels import CUDA, FAMILIES, KERNELS, encoding, fma, mma, tensor, wgmma
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


def test_matrix_instructions_only_where_they_are_real() -> None:
    def where(precision: str) -> list[int]:
        real = [f for f in WARP_FORMS if f.precision == precision]
        return [
            c for c in (70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121) if any(exists(f, c) for f in real)
        ]

    assert where("fp8>fp32 matrix") == [89, 120, 121]
    assert where("fp64 matrix") == [80, 90, 100]
    assert where("bf16>fp32 matrix") == where("fp32 matrix tf32") == [80, 86, 89, 90, 100, 103, 110, 120, 121]
    assert where("fp16>fp32 matrix") == where("int8>int32 matrix") == [75, *where("bf16>fp32 matrix")]
    assert all(form.only == ("90a",) for form in GROUP_FORMS)


@by_chain
def test_chains_count_their_flop(form: CudaForm) -> None:
    chains = int(form.variant.removesuffix(" apart").removesuffix(" chains"))
    steps, rest = divmod(fma.BODY, chains)
    products = {"fp16": 2, "bf16": 2, "int8>int32": 4}.get(form.precision, 1)
    assert rest == 0 and chains >= 8 and chains * steps >= 256
    assert form.flops == chains * steps * products * 2
    assert sum(form.expect.opcodes.values()) == chains * steps
    assert form.shim and form.expect.share >= 0.98


@pytest.mark.parametrize("form", MATRIX, ids=lambda f: f.entry)
def test_matrix_forms_count_their_flop(form: CudaForm) -> None:
    m, n, k = map(int, re.fullmatch(r"m(\d+)n(\d+)k(\d+)", form.variant).groups())  # type: ignore[union-attr]
    instructions, *waits = form.expect.opcodes.values()
    assert waits == ([2, 1] if form.kernel == "wgmma" else [])
    threads = 128 if form.kernel == "wgmma" else 32
    assert form.flops * threads == 2 * m * n * k * instructions
    assert f"{form.variant}." in form.code and not form.shim
    assert all(block % threads == 0 for block in form.blocks)


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


# matrix instructions of a warp, by the element formulas of the PTX ISA


def pieces(i: mma.Instruction) -> Iterator[tuple[int, int, int, int]]:
    """(register, item in it, row, column) of A in lane 0; g adds to the row, t x `per_word` to the column."""
    for register in range(i.m // 8 * i.words // 4):
        for part in range(i.per_word):
            if i.m == 8:
                yield register, part, 0, part
            elif i.item == "fp64":
                yield register, part, 8 * (register % 2), 2 * register - 2 * (register % 2)
            else:
                yield register, part, 8 * (register in (1, 3)), part + 4 * i.per_word * (register >= 2)


@pytest.mark.parametrize("form", WARP_FORMS, ids=lambda f: f.entry)
@pytest.mark.parametrize("trips", [0, 2])
def test_mma_reference_equals_fragments_lane_by_lane(form: CudaForm, trips: int) -> None:
    i, b, s = mma.BY_ENTRY[form.entry], tensor.operands(np, form, "check"), tensor.start(np, form, "check")
    words = encoding.decoded(np, i.item, b).reshape(-1, i.per_word)
    warps, of_a_set = mma.SETS + 1, 2 * (i.m + mma.N) * i.words
    got = tensor.expected(np, form, b, s, 32 * warps, trips)
    assert got.shape == tensor.results(np, form, 32 * warps).shape
    for warp in range(warps):
        products = [
            slow_product(i, words[warp % mma.SETS * of_a_set :], p, q) for p, q in product((0, 1), (0, 1))
        ]
        for lane in range(32):
            g, t = divmod(lane, 4)
            where = [(g + 8 * (c >= 2), 2 * t + c % 2) for c in range(i.m // 4)]
            total = sum(j + 1 for j in range(mma.CHAINS)) * len(where)
            total += 4 * trips * mma.STEPS // 2 * sum(int(p[place]) for p in products for place in where)
            assert got[32 * warp + lane] == total


INDEX_OF_A, INDEX_OF_B = (
    compile(found.replace("/", "//"), "index", "eval")
    for found in re.findall(r"\[p\]\[i\] = b\[(.*)\];", mma.PREAMBLE)
)
"""Which word a lane loads into register i of matrix p, as the C++ says it."""


def slow_product(i: mma.Instruction, words: Any, which_a: int, which_b: int) -> Any:
    """A B from the registers that each lane loads, put where the documented fragments say they belong."""
    a, b = np.full((i.m, i.k), np.nan), np.full((i.k, mma.N), np.nan)
    for lane in range(32):
        g, t = divmod(lane, 4)
        names = {"row": g, "word": t, "M": i.m, "K": i.words, "HALVES": i.m // 8}
        for register, part, row, column in pieces(i):
            place = eval(INDEX_OF_A, names | {"p": which_a, "i": register})
            a[row + g, column + t * i.per_word] = words[place, part]
        for register, part in product(range(i.words // 4), range(i.per_word)):
            place = eval(INDEX_OF_B, names | {"p": which_b, "i": register})
            b[t * i.per_word + part + 4 * i.per_word * register, g] = words[place, part]
    assert not np.isnan(a).any() and not np.isnan(b).any()
    return a @ b


# matrix instructions of four warps, by descriptor and swizzle


@pytest.mark.parametrize("form", GROUP_FORMS, ids=lambda f: f.entry)
@pytest.mark.parametrize("purpose", ["check", "layout"])
def test_wgmma_reference_equals_what_the_descriptors_address(form: CudaForm, purpose: str) -> None:
    i, b, s = wgmma.BY_ENTRY[form.entry], tensor.operands(np, form, purpose), tensor.start(np, form, purpose)
    memory = np.ascontiguousarray(b).view(np.uint8)
    assert len(memory) == wgmma.TILE_BYTES
    steps = [
        (addressed(i, memory, 32 * k, wgmma.M), addressed(i, memory, 64 * 128 + 32 * k, wgmma.N))
        for k in range(4)
    ]
    total = (
        2 * 2 * sum(x @ y.T for x, y in steps) + 1
    )  # two groups a trip, two trips, accumulators begin with 1
    got = tensor.expected(np, form, b, s, 256, 2)
    for thread in range(256):
        warp, lane = divmod(thread % 128, 32)
        row, t = 16 * warp + lane // 4, lane % 4
        columns = [8 * j + 2 * t + right for j in range(32) for right in (0, 1)]
        assert got[thread] == total[row, columns].sum() + total[row + 8, columns].sum()
    assert (len(np.unique(got)) == 1) == (purpose == "check")


def addressed(i: wgmma.Instruction, memory: Any, start: int, rows: int) -> Any:
    """Rows of 32 bytes as the hardware finds them: 8 rows in 1024 bytes, address bits 4-6 ^ bits 7-9."""
    row, byte = np.indices((rows, wgmma.STEP_BYTES))
    address = start + row // 8 * 1024 + row % 8 * 128 + byte
    address ^= address >> 3 & 0x70
    return encoding.decoded(np, i.item, memory[address].view(encoding.item_type(np, i.item)))


def test_the_descriptor_is_written_as_it_is_described() -> None:
    text = re.search(r"return (\(address.*?);", wgmma.PREAMBLE)
    assert text is not None
    code = text[1].replace("ull", "").replace("Descriptor(ATOM >> 4)", str(wgmma.ATOM >> 4))
    value = eval(code.replace("(address & 0x3FFFF) >> 4", "((address & 0x3FFFF) >> 4)"), {"address": 0x8400})
    places = {"start": (0, 14), "leading": (16, 14), "stride": (32, 14), "base": (49, 3), "swizzle": (62, 2)}
    fields = {name: value >> low & (1 << bits) - 1 for name, (low, bits) in places.items()}
    assert fields == {"start": 0x840, "leading": 1, "stride": 64, "base": 0, "swizzle": 1}


# operands of matrix instructions


@pytest.mark.parametrize("form", MATRIX, ids=lambda f: f.entry)
def test_timed_accumulators_stay_of_the_size_of_one_product(form: CudaForm) -> None:
    i, b = tensor.instruction(form), tensor.operands(np, form, "time")
    values = encoding.decoded(np, i.item, b)
    assert np.isfinite(values).all() and len(np.unique(values)) > 60
    for first, second in pairs(form, b):
        assert (first == -second).all() and abs(first).max() > 0
        assert i.total != "fp16" or abs(first).max() < 60000
    zeros = tensor.operands(np, form, "zeros")
    assert zeros.shape == b.shape and not encoding.decoded(np, i.item, zeros).any()
    assert not tensor.start(np, form, "zeros").any()


def pairs(form: CudaForm, b: Any) -> Iterator[tuple[Any, Any]]:
    """Products of neighbouring steps on one accumulator."""
    if form.kernel == "mma":
        x, y = mma.matrices(np, mma.BY_ENTRY[form.entry], b)
        for which in (0, 1):
            yield x[:, which] @ y[:, 0], x[:, which] @ y[:, 1]
        return
    i = wgmma.BY_ENTRY[form.entry]
    memory = np.ascontiguousarray(b).view(np.uint8)
    steps = [addressed(i, memory, 32 * k, 64) @ addressed(i, memory, 8192 + 32 * k, 256).T for k in range(4)]
    yield from ((steps[0], steps[1]), (steps[2], steps[3]))


@pytest.mark.parametrize("form", MATRIX, ids=lambda f: f.entry)
def test_checks_are_exact_and_see_what_is_lost(form: CudaForm) -> None:
    i = tensor.instruction(form)
    products = i.k * (mma.STEPS if form.kernel == "mma" else wgmma.STEPS * wgmma.GROUPS) * tensor.MOST_TRIPS
    for purpose in ("check", "layout"):
        b, s = tensor.operands(np, form, purpose), tensor.start(np, form, purpose)
        largest = abs(encoding.decoded(np, i.item, b)).max() ** 2 * products + mma.CHAINS * s[0]
        assert largest <= {"fp16": 2**11, "fp8": 2**13}.get(i.total if i.item == "fp16" else i.item, 2**24)
        one, two = (tensor.expected(np, form, b, s, 256, trips) for trips in (1, 2))
        assert (one != two).mean() > 0.9
    assert tensor.tolerance(np, form) == 0 == fma.tolerance(np, form)
    assert tensor.decoded(np, form, tensor.results(np, form, 4)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("module", [fma, tensor])
def test_both_families_offer_the_same_verbs(module: Any) -> None:
    verbs: list[Callable[..., Any]] = [
        getattr(module, verb) for verb in ("operands", "start", "results", "decoded", "expected", "tolerance")
    ]
    assert all(verb.__doc__ for verb in verbs) and module.MOST_TRIPS == 3
