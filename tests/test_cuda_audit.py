"""The audit reads machine code rightly, and every way to spoil a CUDA kernel is caught in the right words."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import cli
from bench.audit import expectations, report, sass, survey, toolchain
from bench.audit.issue import bound, resident_warps
from bench.audit.sass import Function
from bench.audit.toolchain import Usage
from bench.errors import DeviceError, UsageError
from kernels import CUDA
from kernels.spec import CudaFamily, CudaForm, Expect

TOP = Path(__file__).resolve().parent.parent


def has_tools() -> bool:
    try:
        toolchain.find()
    except DeviceError:
        return False
    return True


needs_tools = pytest.mark.skipif(not has_tools(), reason="the audit's packages are missing: make audit")


# machine code as text


def listing(*lines: str, name: str = "k", stall: int = 2) -> str:
    """What nvdisasm prints of one function: "label:" or an instruction, with stall cycles behind @@."""
    text = [f'\t.section\t.text.{name},"ax",@progbits', f".text.{name}:"]
    address = 0
    for line in lines:
        if line.endswith(":"):
            text.append(line)
            continue
        words, _, cycles = line.partition(" @@")
        guard, words = words.split(" ", 1) if words.startswith("@") else ("", words)
        text.append(f"        /*{address:04x}*/  {guard:>6} {words} ;   /* 0x000000ff00067224 */")
        text.append(f"                    /* 0x{int(cycles or stall) << 41:016x} */")
        address += 16
    return "\n".join(text) + "\n"


def only_function(*lines: str, stall: int = 2) -> Function:
    (function,) = sass.parse(listing(*lines, stall=stall)).values()
    return function


def chain(fma: int, step: str, others: tuple[str, ...] = ()) -> Function:
    """A counted loop with so many FFMA, and a trap behind the exit as compilers make it."""
    return only_function(
        "LDG.E R4, desc[UR4][R2.64]",
        ".L_x_1:",
        *("FFMA R4, R4, R5, R4" for _ in range(fma)),
        *others,
        f"UIADD3 UR6, UPT, UPT, UR6, {step}, URZ",
        "UISETP.NE.AND UP0, UPT, UR6, URZ, UPT",
        "BRA.U UP0, `(.L_x_1)",
        "STG.E desc[UR4][R2.64], R4",
        "EXIT",
        ".L_x_2:",
        "BRA `(.L_x_2)",
        "NOP",
    )


def form(expect: Expect, **facts: object) -> CudaForm:
    plain = CudaForm("k", "", "fma", "fp32", "8 chains", expect, flops=16)
    return replace(plain, **facts)  # type: ignore[arg-type]


def misses(
    function: Function | None, expect: Expect, usage: Usage | None = None, **facts: object
) -> list[str]:
    found = expectations.check("fma", form(expect, **facts), "90", function, usage or Usage(24))
    return list(found.misses)


CHAIN = Expect({r"FFMA(\.FTZ)?": 8})


def test_instructions_are_read_with_their_guard_operands_and_stall() -> None:
    function = only_function("@!P0 IMAD.WIDE.U32 R2, R5.reuse, UR4, R2 @@5", "EXIT")
    first = function.instructions[0]
    assert (first.predicate, first.opcode, first.base) == ("!P0", "IMAD.WIDE.U32", "IMAD")
    assert (first.operands, first.stall) == (("R2", "R5", "UR4", "R2"), 5)


def test_functions_are_read_by_name() -> None:
    text = listing("EXIT", name="a") + listing("NOP", "EXIT", name="b")
    assert {name: len(f.instructions) for name, f in sass.parse(text).items()} == {"a": 1, "b": 2}


def test_the_trap_at_the_end_is_no_loop() -> None:
    assert only_function("EXIT", ".L_x_1:", "BRA `(.L_x_1)").loops == ()


def test_of_nested_loops_the_inner_one_counts() -> None:
    function = only_function(
        ".L_x_1:",
        "LDG.E.128 R4, [R2.64]",
        ".L_x_2:",
        "FFMA R4, R4, R5, R4",
        "@P0 BRA `(.L_x_2)",
        "@P1 BRA `(.L_x_1)",
        "EXIT",
    )
    (inner,) = function.loops
    assert [i.base for i in inner.instructions] == ["FFMA", "BRA"]


@pytest.mark.parametrize(
    "lines",
    [
        ("IADD3 R6, R6, -0x4, RZ", "ISETP.NE.AND P1, PT, R6, RZ, PT", "@P1 BRA `(.L_x_1)"),
        ("VIADD R6, R6, 0xfffffffc", "ISETP.NE.AND P1, PT, R6, RZ, PT", "@P1 BRA `(.L_x_1)"),
        ("UIADD3 UR4, UR4, 0x4, URZ", "ISETP.LE.AND P0, PT, R5, UR4, PT", "@!P0 BRA `(.L_x_1)"),
        (
            "UIADD3 UR4, UR4, 0x4, URZ",
            "UISETP.GT.U32.AND UP0, UPT, UR4, UR8, UPT",
            "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
            "@!P0 BRA `(.L_x_1)",
        ),
        (
            "IADD3 R4, R4, 0x4, RZ",
            "ISETP.GE.AND P0, PT, R4, c[0x0][0x170], PT",
            "@P0 CALL.REL.NOINC `(.L_x_9)",
            "BRA `(.L_x_1)",
        ),
    ],
    ids=["down", "virtual", "uniform", "through-plop3", "left-by-a-call"],
)
def test_the_step_of_the_counter_is_found_in_each_form_that_compilers_write(lines: tuple[str, ...]) -> None:
    function = only_function(".L_x_1:", "FFMA R9, R9, R8, R9", *lines, ".L_x_9:", "EXIT")
    assert [loop.steps for loop in function.loops] == [{4}]


def test_a_loop_of_one_trip_a_pass_passes() -> None:
    assert misses(chain(8, "0x1"), CHAIN) == []


def test_a_loop_that_the_compiler_unrolled_is_divided_by_its_step() -> None:
    assert misses(chain(32, "-0x4"), CHAIN) == []
    finding = expectations.check("fma", form(CHAIN), "90", chain(32, "-0x4"), Usage(24))
    assert (finding.trips, dict(finding.counts)) == (4, {r"FFMA(\.FTZ)?": (32, 32)})


def test_work_dropped_while_unrolling_is_no_smaller_loop() -> None:
    assert misses(chain(8, "-0x4"), CHAIN) == ["expected 32 FFMA in 4 trips of the hot loop, found 8"]


def test_twice_the_work_in_a_trip_is_caught() -> None:
    assert misses(chain(16, "0x1"), CHAIN) == ["expected 8 FFMA in a trip of the hot loop, found 16"]


def test_the_step_of_an_address_is_not_taken_for_unrolling() -> None:
    assert misses(chain(8, "0x1000"), CHAIN) == []


def test_a_loop_that_is_gone_is_told_with_what_is_there() -> None:
    assert misses(only_function("EXIT"), CHAIN) == [
        "expected a loop with FFMA, found no loop: it was folded away"
    ]
    text = "expected a loop with FFMA, found one with 6 DFMA, 1 UIADD3"
    assert misses(chain(0, "0x1", ("DFMA R4, R4, R6, R4",) * 6), CHAIN)[0] == text


def test_a_thin_loop_is_caught_and_pacing_no_ops_are_not() -> None:
    dense = Expect({"FFMA": 8}, share=0.7)
    assert misses(chain(8, "0x1", ("NOP",) * 20), dense) == []
    thin = misses(chain(8, "0x1", ("MOV R9, R8",) * 2), dense)
    assert thin == ["expected 70.0% of the hot loop to be FFMA, found 61.5% beside 2 MOV, 1 UIADD3, 1 UISETP"]


def test_chains_are_asked_for_more_on_sm_90() -> None:
    dense = form(Expect({"FFMA": 1}, share=0.97))
    assert [expectations.least_share(dense, a) for a in ("80", "90", "90a")] == [0.97, 0.98, 0.98]
    assert expectations.least_share(form(Expect({"FFMA": 1}, share=0.95)), "90") == 0.95


def test_registers_spills_and_stack_are_caught() -> None:
    few = replace(CHAIN, registers=20)
    assert misses(chain(8, "0x1"), few) == ["expected at most 20 registers, found 24"]
    spilled = misses(chain(8, "0x1"), CHAIN, Usage(32, 64, 48))
    assert spilled == ["expected no spill, found 48 bytes spilled to local memory"]
    stack = misses(chain(8, "0x1"), CHAIN, Usage(32, 64))
    assert stack == ["expected no stack, found 64 bytes of it in local memory"]
    local = misses(chain(8, "0x1", ("STL.64 [R1], R8", "LDL R9, [R1]")), CHAIN)
    assert local == ["expected no STL.64, found 1", "expected no LDL, found 1"]


def test_double_arithmetic_is_caught_in_all_but_fp64() -> None:
    wide = chain(8, "0x1", ("F2F.F64.F32 R6, R4", "DMUL R6, R6, R8"))
    hint = ", arithmetic in fp64: a literal without its f?"
    assert misses(wide, CHAIN) == [
        f"expected no F2F.F64.F32, found 1{hint}",
        f"expected no DMUL, found 1{hint}",
    ]
    assert misses(wide, CHAIN, precision="fp64") == []


def test_forbidden_opcodes_are_caught() -> None:
    strict = replace(CHAIN, forbidden=(r"MUFU\..*", "DMUL"))
    assert misses(chain(8, "0x1", ("MUFU.RCP R6, R4",)), strict) == ["expected no MUFU.RCP, found 1"]
    twice = misses(chain(8, "0x1", ("DMUL R6, R6, R8",)), strict)
    assert len(twice) == 1 and twice[0].startswith("expected no DMUL, found 1,"), "named twice, counted once"


STREAM = Expect({r"LDG\.E\.128": 2, r"STG\.E\.128": 1}, loop=False, load_bits=128)
ADDRESS = ("LDC.64 R8, c[0x0][0x228]", "IMAD.WIDE.U32 R2, R5, UR4, R2")


def test_a_factor_that_all_threads_read_is_no_bulk_load() -> None:
    function = only_function(
        *ADDRESS,
        "LDG.E R10, desc[UR4][R8.64]",
        "LDG.E.128.CONSTANT R12, desc[UR4][R2.64]",
        "STG.E.128 desc[UR4][R2.64], R12",
    )
    assert misses(function, Expect({r"LDG\.E\.128\.CONSTANT": 1}, loop=False, load_bits=128)) == []


def test_a_narrow_bulk_load_and_a_missing_store_are_caught() -> None:
    function = only_function(
        *ADDRESS, "LDG.E.128 R12, desc[UR4][R2.64]", "LDG.E.64 R16, desc[UR4][R2.64+0x10]"
    )
    assert misses(function, STREAM) == [
        "expected 2 LDG.E.128 in the function, found 1",
        "expected 1 STG.E.128 in the function, found 0",
        "expected 128-bit loads and stores, found 1 LDG.E.64 of 64 bits",
    ]


def test_a_result_of_a_persistent_grid_may_be_narrow_and_a_store_of_a_stream_may_not() -> None:
    body = (*ADDRESS, "LDG.E.128 R12, desc[UR4][R2.64]", "STG.E desc[UR4][R2.64], R12")
    one = Expect({r"LDG\.E\.128": 1}, loop=False, load_bits=128)
    assert misses(only_function(*body), one, grid="persistent") == []
    wide = ["expected 128-bit loads and stores, found 1 STG.E of 32 bits"]
    assert misses(only_function(*body), one, grid="cover") == wide


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [
        ("LDG.E", 32),
        ("LDG.E.U16", 16),
        ("LDG.E.S8.CONSTANT", 8),
        ("LDG.E.64.SYS", 64),
        ("STG.E.EF.128", 128),
        ("LDG.E.LTC128B.64", 64),
        ("LDG.E.ENL2.256", 256),
    ],
)
def test_widths(opcode: str, bits: int) -> None:
    assert expectations.width(opcode) == bits


def test_an_absent_function_is_caught() -> None:
    finding = expectations.check("fma", form(CHAIN), "90", only_function(), None)
    assert finding.misses[0] == "expected the function in the compiler's output, found none"


def test_readable_names() -> None:
    assert expectations.readable(r"LDG\.E(\.EF)?\.128(\.CONSTANT)?(\.(SYS|GPU))?") == "LDG.E.128"
    assert expectations.readable(r"HFMA2(\.MMA)?\.BF16(_V2)?") == "HFMA2.BF16"


# issue rate and occupancy


def test_the_issue_bound_of_one_warp_and_of_many() -> None:
    function = only_function(
        ".L_x_1:", *("FFMA R4, R4, R5, R4" for _ in range(256)), "MOV R9, R8 @@8", "NOP", "@P0 BRA `(.L_x_1)",
        stall=1,
    )  # fmt: skip
    (loop,) = function.loops
    found = bound(loop, 2 * 256, "fp32", "90")  # peak: 256 FLOP a clock and SM
    assert found is not None
    assert found.one_warp == pytest.approx(256 / (256 + 8 + 2))
    assert found.many_warps == pytest.approx(256 / 259)
    small = bound(loop, 2 * 256, "fp64", "86")  # a unit far slower than its issue slots hides the loop
    assert small is not None and (small.one_warp, small.many_warps) == (1.0, 1.0)
    assert bound(loop, 512, "no such precision", "90") is None
    assert bound(loop, 0, "fp32", "90") is None


@pytest.mark.parametrize(
    ("registers", "block", "architecture", "warps"),
    [
        (32, 256, "90", 64),
        (42, 256, "90", 40),
        (154, 256, "90a", 8),
        (32, 256, "86", 48),
        (24, 256, "75", 32),
    ],
)
def test_resident_warps(registers: int, block: int, architecture: str, warps: int) -> None:
    assert resident_warps(registers, block, architecture) == warps


# what the tools say


LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
ptxas         .     136 bytes stack frame, 128 bytes spill stores, 64 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 136 bytes cumulative stack size
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers, 396 bytes cmem[0]
"""


def test_the_report_of_the_assembler() -> None:
    assert toolchain.usage(LOG) == {"second": Usage(32, 136, 192), "first": Usage(18)}


def test_the_first_complaint_of_a_compiler() -> None:
    said = '6: NVRTC_ERROR_COMPILATION, log:\n\ndefault_program(3): error: identifier "y" is unknown\n'
    assert toolchain.complaint(said) == 'identifier "y" is unknown'
    assert toolchain.complaint("") == "no reason was given"


def test_an_architecture_that_the_compiler_does_not_know_is_named_with_the_remedy() -> None:
    tools = toolchain.Toolchain("13.0", "13.5", "nvdisasm", "include", ("75", "90"))
    assert tools.lack("90a") == ""
    assert "sm_70: that needs the CUDA 12 wheels" in tools.lack("70")
    assert "sm_120: that needs newer wheels" in tools.lack("120")


@pytest.mark.parametrize("name", ["cuda.core", "cuda.bindings.nvrtc", "cuda.pathfinder"])
def test_a_missing_package_is_named_with_the_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DeviceError, match=r"the Python package cuda-\w+ is missing: type `make audit`"):
        toolchain.find.__wrapped__()


@needs_tools
def test_a_missing_disassembler_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda name: None)
    for variable in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, "")
    with pytest.raises(DeviceError, match=r"nvdisasm is missing: .*nvidia-cuda-nvdisasm"):
        toolchain.find.__wrapped__()


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown family 'fmaa'; valid: stream, fma"):
        survey.survey(CUDA, ("fmaa",))
    with pytest.raises(UsageError, match="unknown architecture '91'; valid: 70, 75"):
        survey.survey(CUDA, (), ("91",))


@needs_tools
def test_nothing_audited_is_no_pass() -> None:
    with pytest.raises(UsageError, match="stream: no function is made for 90a"):
        survey.survey(CUDA, ("stream",), ("90a",))


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
def test_a_removed_store_of_a_stream_is_caught() -> None:
    family = spoiled(
        STREAMS, "store<CS>(to + k * blockDim.x, x[k]);", "if (k) store<CS>(to + k * blockDim.x, x[k]);"
    )
    assert "expected 4 STG.E.128 in the function, found 3" in found(family, "copy_fp32_v16_l4")


@needs_tools
def test_a_double_literal_in_an_fp32_kernel_is_caught() -> None:
    family = spoiled(FMA, "return x * m + x;", "return x * m + x * 0.9;")
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


# the verb


@needs_tools
def test_the_verb_audits_in_children_and_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    few = tuple(each for each in FMA.forms if each.entry in ("fma_f64_c8", "fma_i8_c8"))
    monkeypatch.setattr(kernels, "CUDA", {"fma": CudaFamily(FMA.preamble, few), "stream": STREAMS})
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", "--family", "fma", "--arch", "sm_80,90", "--quiet", "--functions"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert out.startswith("audit: all 4 functions passed (NVRTC ")
    (row,) = (line.split() for line in out.splitlines() if line.startswith("fma "))
    assert row[:4] == ["fma", "2", "ok", "ok"] and float(row[4]) > 98
    lines = [line.split()[:3] for line in out.splitlines() if line.startswith("fma_")]
    assert lines == [[entry, a, "ok"] for a in ("80", "90") for entry in ("fma_f64_c8", "fma_i8_c8")]


@needs_tools
def test_a_miss_ends_with_a_code_of_its_own_and_is_in_the_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    (one,) = (each for each in FMA.forms if each.entry == "fma_f64_c8")
    strict = replace(one, expect=replace(one.expect, registers=8))
    monkeypatch.setattr(kernels, "CUDA", {"fma": CudaFamily(FMA.preamble, (strict,))})
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", "--arch", "90", "--json", "--quiet"])
    said = capsys.readouterr()
    value = json.loads(said.out)
    assert stop.value.code == 8
    assert said.err == "Error: 1 of 1 functions missed: see the sentences above\n"
    (finding,) = value["findings"]
    assert finding["entry"] == "fma_f64_c8" and finding["architecture"] == "90"
    assert finding["misses"][0].startswith("expected at most 8 registers, found ")
    assert finding["counts"] == {"DFMA": [512, 512]}
    assert 0.9 < finding["bound"]["one_warp"] <= finding["bound"]["many_warps"] <= 1


def result(*found: expectations.Finding, **facts: object) -> survey.Survey:
    plain = survey.Survey("13.0", "13.5", ("80", "90", "90a"), found, {})
    return replace(plain, **facts)  # type: ignore[arg-type]


def test_the_table_says_where_what_missed_and_what_was_not_audited() -> None:
    passed = expectations.check("fma", form(Expect({"FFMA": 8}, share=0.5)), "80", chain(8, "0x1"), Usage(24))
    missed = expectations.check("fma", form(Expect({"FFMA": 9}, share=0.5)), "90", chain(8, "0x1"), Usage(26))
    everywhere = toolchain.ARCHITECTURES[1:]
    text = report.render(
        result(passed, missed, architectures=everywhere, not_audited={"70": "it is too old"})
    )
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("audit: 1 of 2 functions missed (NVRTC 13.0, nvdisasm 13.5; no GPU was used)\n")
    (row,) = (line.split() for line in text.splitlines() if line.startswith("fma "))
    assert row == ["fma", "1", "–", "ok", "–", "–", "–", "1", *"––––––", "72.7", "26", "36.4", "/", "72.7"]
    assert "\nnot audited: sm_70: it is too old\n" in text
    assert "\n  k on sm_90: expected 9 FFMA in a trip of the hot loop, found 8\n" in text


def test_the_same_miss_on_several_architectures_is_told_once() -> None:
    both = [expectations.check("fma", form(CHAIN), a, chain(7, "0x1"), Usage(24)) for a in ("80", "90")]
    (sentence,) = result(*both).misses
    assert sentence == "k on sm_80, sm_90: expected 8 FFMA in a trip of the hot loop, found 7"


def test_many_misses_are_counted() -> None:
    many = [
        replace(expectations.failed("fma", form(CHAIN), "90", "x"), entry=f"k{i}")
        for i in range(report.MOST_MISSES + 3)
    ]
    assert report.render(result(*many)).endswith("  and 3 more, all in --json\n")


def test_without_the_packages_the_verb_ends_in_one_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cuda'] = None\n"
        "from bench import cli\ncli.main(['audit', '--quiet'])"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: the Python package cuda-core ")
    assert "make audit" in done.stderr and "Traceback" not in done.stderr
