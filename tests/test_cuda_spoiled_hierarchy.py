"""Loads of working sets and chases spoiled on purpose are caught: operator, width, number, hoisting."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kernels import CUDA, working_sets
from tests.listing import needs_tools
from tests.test_cuda_spoiled import found, spoiled

SETS, CHASES, STARTS = CUDA["cache"], CUDA["latency"], CUDA["launch"]

pytestmark = needs_tools


def test_functions_pass_as_they_are() -> None:
    """Where operators are spelt as nowhere else; the audit itself looks at all architectures."""
    for family, entry in (
        (SETS, "cache_read_ca_l8"),
        (SETS, "cache_read_shared_l8"),
        (CHASES, "chase_shared"),
    ):
        assert found(family, entry, "75") == ""


@pytest.mark.parametrize(
    ("entry", "operator", "instead", "told"),
    [
        ("cache_read_ca_l8", "global.ca", "global.cv", "expected 8 LDG.E.128.STRONG.(SM|CTA)"),
        (
            "cache_read_cg_l8",
            '"global.cg", "global.cg"',
            '"global.ca", "global.cg"',
            "8 LDG.E.128.STRONG.GPU",
        ),
        ("cache_read_nc_l8", "global.nc", "global.ca", "expected 8 LDG.E.128.CONSTANT"),
        ("cache_write_cg_l8", '"global.cg", "global.cg"', '"global.cg", "global"', "STG.E.128.STRONG.GPU"),
    ],
)
def test_another_cache_operator_is_caught(entry: str, operator: str, instead: str, told: str) -> None:
    said = found(spoiled(SETS, operator, instead), entry)
    assert told in said and re.search(r"found (0|one with|no loop)", said)


def test_loads_that_a_compiler_may_move_out_of_the_loop_are_caught() -> None:
    """Plain C++ loads at an address that does not change: what a naive loop over a small set becomes."""
    plain = spoiled(SETS, "LOAD(IN, v, p, KIND);", "v = *(const float4*)(unsigned long long)p;")
    fixed = spoiled(plain, "            i += step;\n", "")
    said = found(fixed, "cache_read_cg_l8")
    assert "expected 8 LDG.E.128.STRONG.GPU" in said and "found 0" in said
    naive = replace(
        SETS.forms[2], expect=replace(SETS.forms[2].expect, opcodes={r"LDG\.E\.128(\.CONSTANT)?": 8})
    )
    moved = found(replace(fixed, forms=(naive,)), naive.entry)
    assert re.search(r"LDG.E.128.*found (0|one with|no loop)", moved), (
        "whatever its operator, no load is left in the loop"
    )


def test_loads_stay_where_only_the_address_is_fixed() -> None:
    """The volatile PTX alone keeps them: the check above would else prove nothing about it."""
    assert found(spoiled(SETS, "            i += step;\n", ""), "cache_read_cg_l8") == ""


def test_a_narrower_access_is_caught() -> None:
    narrow = SETS.preamble.replace(
        '"ld." OPERATOR ".v4.f32 {%0, %1, %2, %3}, [%4];"',
        '"ld." OPERATOR ".v2.f32 {%0, %1}, [%4]; ld." OPERATOR ".v2.f32 {%2, %3}, [%4+8];"',
    )
    assert narrow != SETS.preamble, "the mutation has lost its place"
    said = found(replace(SETS, preamble=narrow), "cache_read_cg_l8")
    assert "expected 8 LDG.E.128.STRONG.GPU in a trip of the hot loop, found 0" in said
    assert "expected 128-bit loads and stores, found 16 LDG.E.64.STRONG.GPU of 64 bits" in said


def test_fewer_loads_or_sums_than_declared_are_caught() -> None:
    (form,) = (each for each in SETS.forms if each.entry == "cache_read_cg_l8")
    fewer = replace(form, code=form.code.replace("Read, 8", "Read, 7"))
    assert fewer != form
    said = found(replace(SETS, forms=(fewer,)), form.entry)
    assert "expected 8 LDG.E.128.STRONG.GPU in a trip of the hot loop, found 7" in said
    said = found(spoiled(SETS, "sum.w += x[k].w;", ""), form.entry)
    assert "expected 32 FADD in a trip of the hot loop, found 24" in said


def test_a_store_left_out_is_caught() -> None:
    family = spoiled(SETS, "if (F::stores) {\n", "if (F::stores && k) {\n")
    assert "expected 4 STG.E.128.STRONG.GPU in a trip of the hot loop, found 3" in found(
        family, "cache_copy_cg_l4"
    )


def test_a_chase_of_another_length_or_operator_is_caught() -> None:
    half = spoiled(CHASES, "step < LOADS / CHAINS;", "step < LOADS / CHAINS / 2;")
    assert "expected 32 LDG.E.64.STRONG.(SM|CTA) in a trip of the hot loop, found 16" in found(
        half, "chase_ca_4"
    )
    other = spoiled(CHASES, "ld.global.cg.u64", "ld.global.ca.u64")
    assert "expected a loop with LDG.E.64.STRONG.GPU, found one with 32 LDG" in found(other, "chase_cg_1")


def test_a_chase_that_does_not_follow_is_caught() -> None:
    """Loads of one address that wait for nothing and may be dropped."""
    family = spoiled(CHASES, 'asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p) :: "memory")', "p = p + 8")
    assert "expected a loop with LDG.E.64.STRONG.(SM|CTA), found" in found(family, "chase_ca_1")


def test_an_empty_kernel_that_does_something_is_caught() -> None:
    (form,) = (each for each in STARTS.forms if each.entry == "empty")
    busy = replace(form, code="ENTRY(empty) { a[threadIdx.x] = s[0]; }")
    said = found(replace(STARTS, forms=(busy,)), "empty")
    assert "expected no LDG.E, found 1" in said and "expected no STG.E, found 1" in said


def test_every_operator_of_a_load_is_one_that_is_looked_for() -> None:
    used = {way.operator for ways in working_sets.WAYS.values() for way in ways} - {"shared"}
    assert used == {*working_sets.OPERATORS}
