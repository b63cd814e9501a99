"""The audit reads machine code rightly and judges what it reads by what a kernel declares."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bench.audit import expectations, sass, survey, toolchain
from bench.audit.issue import bound, resident_warps
from bench.audit.toolchain import Usage
from bench.errors import DeviceError, UsageError
from kernels import CUDA
from kernels.spec import Expect
from tests.listing import CHAIN, chain, form, listing, misses, needs_tools, only_function


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
    assert thin == [
        "expected 70.0 % of the hot loop to be FFMA, found 61.5 % beside 2 MOV, 1 UIADD3, 1 UISETP"
    ]


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


LOADS = ("LDG.E.128 R12, desc[UR4][R2.64]", "LDG.E.128 R16, desc[UR4][R2.64+0x10]")


@pytest.mark.parametrize(
    ("body", "in_flight"),
    [
        ((*LOADS, "FADD R4, R13, R4"), 2),
        ((LOADS[0], "FADD R4, R13, R4", LOADS[1]), 1),
        ((LOADS[0], "FADD R4, R11, R4", LOADS[1]), 2),
        ((LOADS[0], "LDG.E.128 R12, desc[UR4][R2.64+0x10]"), 1),
        ((LOADS[0], "LDG.E.128 R16, desc[UR4][R14.64]"), 1),
        (("LDG.E R10, desc[UR4][R8.64]", *LOADS), 2),
    ],
    ids=["together", "used between", "another register", "the same place", "its address", "a factor"],
)
def test_loads_in_flight_are_those_before_the_first_that_is_waited_for(
    body: tuple[str, ...], in_flight: int
) -> None:
    function = only_function(*ADDRESS, *body)
    wanted = Expect({r"LDG\.E\.128": 2}, loop=False, in_flight=2)
    said = [] if in_flight == 2 else ["expected 2 loads before the first is waited for, found 1"]
    assert misses(function, wanted) == said


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
