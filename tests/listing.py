"""Machine code as a disassembler prints it, and what to audit it by, for tests of the audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.audit import expectations, sass, toolchain
from bench.audit.sass import Function
from bench.audit.toolchain import Usage
from bench.errors import DeviceError
from kernels.spec import CudaForm, Expect

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
