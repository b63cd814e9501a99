"""The CUDA forms of matrix units: what they count, and their references by the documented fragments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from kernels import CUDA, encoding, fma, mma, tensor, wgmma
from kernels.spec import CudaForm
from tests.test_cuda_chains import exists

MATRIX = CUDA["tensor"].forms
WARP_FORMS = [form for form in MATRIX if form.kernel == "mma"]
GROUP_FORMS = [form for form in MATRIX if form.kernel == "wgmma"]


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


@pytest.mark.parametrize("form", MATRIX, ids=lambda f: f.entry)
def test_matrix_forms_count_their_flop(form: CudaForm) -> None:
    m, n, k = map(int, re.fullmatch(r"m(\d+)n(\d+)k(\d+)", form.variant).groups())  # type: ignore[union-attr]
    instructions, *waits = form.expect.opcodes.values()
    assert waits == ([2, 1] if form.kernel == "wgmma" else [])
    threads = 128 if form.kernel == "wgmma" else 32
    assert form.flops * threads == 2 * m * n * k * instructions
    assert f"{form.variant}." in form.code and not form.shim
    assert all(block % threads == 0 for block in form.blocks)


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
