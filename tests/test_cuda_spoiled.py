"""Every CUDA kernel passes the audit as it is, and spoiled on purpose it is caught in the right words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.audit import expectations, survey, toolchain
from bench.audit.toolchain import Usage
from kernels import CUDA
from kernels.spec import CudaFamily, Expect
from tests.listing import CHAIN, form, needs_tools

# the kernels


def test_every_form_exists_on_an_audited_architecture() -> None:
    for family in CUDA.values():
        for each in family.forms:
            made = [a for a in toolchain.ARCHITECTURES if expectations.is_made_for(each, a)]
            assert made, each.entry
            assert set(each.only) <= set(toolchain.ARCHITECTURES), each.entry
            assert each.expect.opcodes, each.entry


def test_only_what_is_made_for_a_variant_is_compiled_for_it() -> None:
    plain, hopper = form(CHAIN, least_cc=80), form(CHAIN, only=("90a",))
    assert [expectations.is_made_for(plain, a) for a in ("75", "80", "90", "90a")] == [
        False,
        True,
        True,
        False,
    ]
    assert [expectations.is_made_for(hopper, a) for a in ("90", "90a", "100")] == [False, True, False]


# kernels spoiled on purpose


def spoiled(family: CudaFamily, old: str, new: str) -> CudaFamily:
    """The family with one change to its preamble; a change that no longer applies fails."""
    assert old in family.preamble, f"the mutation has lost its place: {old}"
    return replace(family, preamble=family.preamble.replace(old, new))


def found(family: CudaFamily, entry: str, architecture: str = "90") -> str:
    """The sentences of one function of a family, joined."""
    (one,) = (each for each in family.forms if each.entry == entry)
    ((finding,), unread) = survey.examine(survey.Job("family", family, architecture, (one,)))
    assert unread == ""
    return "; ".join(finding.misses)


FMA, STREAMS = CUDA["fma"], CUDA["stream"]


@needs_tools
@pytest.mark.parametrize("entry", ["fma_f64_c16", "fma_f32_c8"])
def test_a_chain_passes_as_it_is(entry: str) -> None:
    assert found(FMA, entry) == ""


@needs_tools
def test_a_dropped_accumulator_is_caught() -> None:
    family = spoiled(
        FMA, "for (int j = 1; j < CHAINS; ++j) x[0] =", "for (int j = 1; j < CHAINS - 1; ++j) x[0] ="
    )
    assert "expected 512 DFMA in a trip of the hot loop, found 448" in found(family, "fma_f64_c8")


@needs_tools
def test_a_removed_result_is_caught() -> None:
    family = spoiled(FMA, "a[thread] = x[0];", ";")
    assert found(family, "fma_f64_c8") == "expected a loop with DFMA, found no loop: it was folded away"


@needs_tools
def test_matrix_instructions_that_wait_for_each_other_are_caught() -> None:
    """Accumulators that something else touches inside the loop: the compiler puts waits around it."""
    fence = '        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
    family = CUDA["tensor"]
    assert found(family, "wgmma_bf16_f32", "90a") == ""
    touched = spoiled(family, fence, f"        if (trip % 3 == 2) c[1] = c[0];\n{fence}")
    said = found(touched, "wgmma_bf16_f32", "90a")
    assert "WARPGROUP" in said and "of the hot loop, found" in said


@needs_tools
def test_a_removed_store_of_a_stream_is_caught() -> None:
    family = spoiled(
        STREAMS, "store<CS>(to + k * blockDim.x, x[k]);", "if (k) store<CS>(to + k * blockDim.x, x[k]);"
    )
    assert "expected 4 STG.E.128 in the function, found 3" in found(family, "copy_fp32_v16_l4")


@needs_tools
def test_loads_that_wait_for_each_other_are_caught() -> None:
    """What the kernel did before: the compiler put additions between the loads."""
    assert found(STREAMS, "read_fp32_v16_l8") == ""
    family = spoiled(STREAMS, "__launch_bounds__(512, 1)", "__launch_bounds__(512)")
    assert "expected 8 loads before the first is waited for, found" in found(family, "read_fp32_v16_l8")
    family = spoiled(STREAMS, "store<CS>(to + k * blockDim.x, x[k]);", "__threadfence();")
    between = "x[k] = load<CS>(one + k * blockDim.x);"
    family = spoiled(family, between, between + " store<CS>(to + k * blockDim.x, x[k]);")
    assert "expected 4 loads before the first is waited for, found 1" in found(family, "copy_fp32_v16_l4")


@needs_tools
def test_a_double_literal_in_an_fp32_kernel_is_caught() -> None:
    family = spoiled(FMA, "return x * m + y;", "return x * m + y * 0.9;")
    said = found(family, "fma_f32_c8")
    assert "expected no DFMA, found" in said or "expected no DMUL, found" in said
    assert "a literal without its f?" in said


@needs_tools
def test_lowered_load_widths_are_caught() -> None:
    entry = "triad_fp32_v16_l4"
    (one,) = (each for each in STREAMS.forms if each.entry == entry)
    narrow = replace(one, code=one.code.replace("float, 16, 4", "float, 8, 8"))
    assert narrow != one
    said = found(replace(STREAMS, forms=(narrow,)), entry)
    assert "expected 8 LDG.E.128 in the function, found 0" in said
    assert "expected 128-bit loads and stores, found 16 LDG.E.64 of 64 bits" in said
    assert "found 8 STG.E.64 of 64 bits" in said


@needs_tools
def test_forced_spills_are_caught() -> None:
    family = spoiled(FMA, "__launch_bounds__(1024)", "__launch_bounds__(1024, 2)")
    said = found(family, "fma_f64_c16")
    assert "bytes spilled to local memory" in said
    assert "expected no STL" in said


SHARED = r"""
extern "C" __global__ void __launch_bounds__(256) k(float* a, const float* b, const float* c,
                                                    const float* s, long long n, int count) {
    __shared__ float4 tile[2048];
    for (int i = threadIdx.x; i < 2048; i += 256) tile[i] = make_float4(b[i], b[i + 1], b[i + 2], b[i + 3]);
    __syncthreads();
    float sum = 0;
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip)
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            READ;
            sum += v.x + v.y + v.z + v.w;
        }
    a[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""
NAIVE = "float4 v = tile[threadIdx.x + 256 * k]"
HELD = (
    'float4 v; asm volatile("ld.volatile.shared.v4.f32 {%0,%1,%2,%3}, [%4];" '
    ': "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) '
    ': "r"((unsigned)__cvta_generic_to_shared(tile + threadIdx.x + 256 * k)))'
)


@needs_tools
def test_a_naive_shared_memory_loop_whose_loads_move_out_is_caught() -> None:
    expect = Expect({r"LDS\.128": 8, r"FADD(\.FTZ)?": 32})
    loop = form(expect)
    held = CudaFamily(SHARED.replace("READ", HELD), (loop,))
    assert found(held, "k") == ""
    naive = CudaFamily(SHARED.replace("READ", NAIVE), (loop,))
    assert "expected 8 LDS.128 in a trip of the hot loop, found 0" in found(naive, "k")


FP8 = r"""
extern "C" __global__ void __launch_bounds__(256) k(float* a, const unsigned* b, const unsigned* c,
                                                    const float* s, long long n, int count) {
    float x[4][4];
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) x[j][i] = s[4 * j + i];
    const unsigned p = b[threadIdx.x], q = c[threadIdx.x];
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                : "+f"(x[j][0]), "+f"(x[j][1]), "+f"(x[j][2]), "+f"(x[j][3]) : "r"(p), "r"(q));
    float sum = 0;
    for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) sum += x[j][i];
    a[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


@needs_tools
def test_an_fp8_product_that_is_not_in_the_silicon_is_caught() -> None:
    family = CudaFamily(
        FP8, (form(Expect({r"QMMA\.16832\.F32\.E4M3\.E4M3": 4}), precision="fp8>fp32 matrix"),)
    )
    assert found(family, "k", "89") == ""
    assert "expected a loop with QMMA.16832.F32.E4M3.E4M3, found one with " in found(family, "k", "90")


@needs_tools
def test_a_loop_that_the_compiler_unrolls_further_passes() -> None:
    family = spoiled(FMA, "#pragma unroll 1\n", "#pragma unroll 2\n")
    (one,) = (each for each in family.forms if each.entry == "fma_f64_c8")
    ((finding,), _) = survey.examine(survey.Job("fma", family, "90", (one,)))
    assert (finding.trips, finding.misses) == (2, ())
    assert dict(finding.counts) == {"DFMA": (1024, 1024)}


@needs_tools
def test_a_function_that_does_not_compile_is_named_and_the_others_are_audited() -> None:
    good, bad = (each for each in FMA.forms if each.entry in ("fma_f64_c8", "fma_f64_c16"))
    bad = replace(bad, code=bad.code + "\nnonsense;")
    family = CudaFamily(FMA.preamble, (good, bad))
    findings, _ = survey.examine(survey.Job("fma", family, "90", family.forms))
    assert findings[0].misses == ()
    assert findings[1].misses[0].startswith("expected it to compile, found: ")


class Tools:
    """Stands for the tools and gives back what it was made of."""

    def __init__(self, build: toolchain.Build) -> None:
        self.made = build

    def build(self, source: str, architecture: str) -> toolchain.Build:
        return self.made


@pytest.mark.parametrize(
    ("unread", "told"),
    [("", ["expected a loop with FFMA, found no loop: it was folded away"]), ("too old to be read", [])],
)
def test_a_function_that_the_listing_lacks_is_a_miss_unless_nothing_could_be_read(
    unread: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toolchain.Build("", {"k": Usage(24)}, unread)
    monkeypatch.setattr(toolchain, "find", lambda: Tools(made))
    family = CudaFamily("", (form(CHAIN),))
    ((finding,), why) = survey.examine(survey.Job("fma", family, "70", family.forms))
    assert (list(finding.misses), why) == (told, unread)
    assert finding.registers == 24
