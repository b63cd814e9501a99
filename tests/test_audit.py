"""Instruction counts of every emitted loop equal the declared work, on every instruction set."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from bench.backends.emitted import chain_counts
from bench.native import audit, emit, isa, jit
from bench.native.emit import Form
from kernels import KERNELS
from kernels.spec import LOOPED, Kernel

ISAS = list(isa.KNOWN.values())
MACHINES = [*ISAS, isa.host()]
LOOPS = [k for k in KERNELS.values() if k.family in ("stream", "cache", "mix")]


def layouts(kernel: Kernel) -> list[Form]:
    """Every layout that the backend may choose for a kernel, and more."""
    if kernel.family == "mix":
        return [Form(s, 0, 0, False, p, f) for s in (3, 6) for p in (0, 512) for f in (1, 6, 12, 24)]
    reads = kernel.access in ("read", "update")
    shapes = ((3, 4), (6, 2), (1, 12), (1, 8)) if reads else ((1, 4), (1, 8), (2, 4))
    stores = (False,) if reads else (False, True)
    return [Form(s, u, 0, n, p) for s, u in shapes for n in stores for p in (0, 512)]


@pytest.mark.parametrize("precision", LOOPED)
@pytest.mark.parametrize("target", MACHINES, ids=lambda t: f"{t.name}-{t.cpu}")
def test_chains_hold_exactly_the_declared_arithmetic(target: isa.Isa, precision: str) -> None:
    kernel = KERNELS["fma"]
    for chains in chain_counts(target):
        form = Form(chains=chains)
        text = jit.assembly(emit.loop_ir(kernel.shape, form, target, precision), target)
        assert audit.audit(text, kernel, form, target, precision) == []


UNITS = [(target, precision) for target in ISAS for precision in sorted(target.units)]


@pytest.mark.parametrize(
    ("target", "precision"), UNITS, ids=[f"{target.name}-{precision}" for target, precision in UNITS]
)
def test_chains_of_narrow_items_hold_exactly_the_declared_arithmetic(target: isa.Isa, precision: str) -> None:
    """Every step is one instruction of the unit itself, nothing else, and no spill."""
    opcode = {"fp16": r"vfmadd\w*ph|fmla", "bf16": "vdpbf16ps|bfdot", "int8": "vpdpbusd|sdot"}[precision]
    kernel = KERNELS["fma"]
    for chains in chain_counts(target):
        form = Form(chains=chains)
        text = jit.assembly(emit.loop_ir(kernel.shape, form, target, precision), target)
        assert audit.audit(text, kernel, form, target, precision) == []
        assert len(re.findall(rf"\b(?:{opcode})\t", text)) == emit.CHAIN_UNROLL * chains
        lost = re.sub(rf".*\b(?:{opcode})\t.*\n", "", text, count=1)
        assert any(
            "fma instructions" in fault for fault in audit.audit(lost, kernel, form, target, precision)
        )


@pytest.mark.parametrize("target", MACHINES, ids=lambda t: f"{t.name}-{t.cpu}")
@pytest.mark.parametrize("kernel", LOOPS, ids=lambda k: k.name)
def test_loops_hold_exactly_the_declared_traffic_and_arithmetic(kernel: Kernel, target: isa.Isa) -> None:
    for precision in LOOPED:
        for form in layouts(kernel)[:: 1 if precision == "fp64" else 4]:
            text = jit.assembly(emit.loop_ir(kernel.shape, form, target, precision), target)
            assert audit.audit(text, kernel, form, target, precision) == [], (precision, form)


@pytest.mark.parametrize(
    ("name", "register"), [("sse2", "xmm"), ("avx2", "ymm"), ("avx512", "zmm"), ("neon", r"v\d+\.")]
)
def test_vectors_have_the_full_width(name: str, register: str) -> None:
    target = isa.KNOWN[name]
    text = jit.assembly(emit.loop_ir(KERNELS["fma"].shape, Form(chains=8), target, "fp64"), target)
    arithmetic = [
        line for line in text.splitlines() if re.search(r"\b(v?fmadd|vfmadd\w*|mulpd|addpd|fmla)", line)
    ]
    assert len(arithmetic) >= 32
    assert all(re.search(register, line) for line in arithmetic)


def triad_text(target: isa.Isa, form: Form) -> str:
    return jit.assembly(emit.loop_ir(KERNELS["triad"].shape, form, target, "fp64"), target)


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [(r".*vfmadd.*\n", "fma"), (r".*vmovapd\t%ymm\d+, .*\n", "store"), (r".*vmovapd\t-?\d*\(.*\n", "load")],
)
def test_a_dropped_instruction_is_caught(pattern: str, kind: str) -> None:
    target, form = isa.KNOWN["avx2"], Form(1, 4)
    text = triad_text(target, form)
    broken, dropped = re.subn(pattern, "", text, count=1)
    assert dropped == 1
    assert any(kind in fault for fault in audit.audit(broken, KERNELS["triad"], form, target, "fp64"))


def test_a_folded_loop_is_caught() -> None:
    target, form = isa.KNOWN["avx2"], Form(1, 4)
    assert audit.audit("loop:\n\tretq\n", KERNELS["triad"], form, target, "fp64") == ["no loop survived"]


def test_an_ordinary_store_in_place_of_a_non_temporal_one_is_caught() -> None:
    target, form = isa.KNOWN["avx2"], Form(1, 4, 0, True)
    text = triad_text(target, form).replace("vmovntpd", "vmovapd")
    faults = audit.audit(text, KERNELS["triad"], form, target, "fp64")
    assert faults == [
        "loop: 4 store instructions, declared 0",
        "loop: 0 nontemporal instructions, declared 4",
    ]


def test_a_spill_is_caught() -> None:
    target, form = isa.KNOWN["sse2"], Form(chains=14)
    text = jit.assembly(emit.loop_ir(KERNELS["fma"].shape, form, target, "fp64"), target)
    assert any("spill" in fault for fault in audit.audit(text, KERNELS["fma"], form, target, "fp64"))


def test_addresses_computed_anew_in_every_trip_are_caught() -> None:
    target, form, kernel = isa.KNOWN["avx2"], Form(6, 2), KERNELS["read"]
    known = emit.loop_ir(kernel.shape, form, target, "fp64")
    # Without this the compiler knows that the six starts are one start and multiples of a part.
    ir, starts = re.subn(r'call ptr asm +"", "=r,0"\(ptr (\S+)\)', r"getelementptr i8, ptr \1, i64 0", known)
    assert starts == 6
    faults = audit.audit(jit.assembly(ir, target), kernel, form, target, "fp64")
    assert faults == ["loop: 8 instructions beside the vectors, a trip takes 3"]


def test_loops_are_found_wherever_their_blocks_stand() -> None:
    rotated = (
        "f:\n\tjmp\t.L2\n.L1:\n\tvaddpd\t%ymm0, %ymm1, %ymm1\n.L2:\n\tcmpq\t%rax, %rcx\n\tjl\t.L1\n\tretq\n"
    )
    found = audit.loops(rotated)
    assert [len(body) for body in found] == [3]
    assert audit.count(found[0], isa.KNOWN["avx2"]) == Counter(add=1)


def test_without_fma_units_a_step_is_a_multiply_and_an_add() -> None:
    want = audit.expected(KERNELS["fma"], Form(chains=8), isa.KNOWN["sse2"], "fp64")["loop"]
    assert want == Counter(multiply=32, add=32)


def test_a_library_kernel_has_no_loop_to_audit() -> None:
    with pytest.raises(TypeError, match="gemm"):
        audit.expected(KERNELS["gemm"], Form(), isa.KNOWN["avx2"], "fp64")
    with pytest.raises(TypeError, match="LibraryShape"):
        emit.loop_ir(KERNELS["gemm"].shape, Form(), isa.KNOWN["avx2"], "fp64")
