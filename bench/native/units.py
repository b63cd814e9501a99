"""Vector units beside those of fp64 and fp32: which flag promises one, and what compilers call it.

    fp16   fused multiply-add of halves, a chain like those of fp64 and fp32
    bf16   dot product of pairs into fp32: two multiply-adds a lane of 32 bit
    int8   dot product of fours into int32: four a lane (on x86-64 unsigned times signed numbers)

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, VPDPBUSD, VDPBF16PS, VFMADD213PH;
Arm Architecture Reference Manual, SDOT, BFDOT, FMLA (vector).
"""

from __future__ import annotations

from collections.abc import Collection

UNITS = {
    "avx512": {
        "fp16": ("avx512_fp16", "avx512fp16"),
        "bf16": ("avx512_bf16", "avx512bf16"),
        "int8": ("avx512_vnni", "avx512vnni"),
    },
    "avx2": {"int8": ("avx_vnni", "avxvnni")},
    "neon": {"fp16": ("asimdhp", "fullfp16"), "bf16": ("bf16", "bf16"), "int8": ("asimddp", "dotprod")},
}
"""Code -> precision -> the flag by which Linux shows the unit, and LLVM's name of the feature."""


def code(flags: Collection[str]) -> str:
    """The code of full vector width that a CPU of these flags runs, "" for one that has no such unit."""
    if "asimd" in flags:
        return "neon"
    if "avx512f" in flags:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= set(flags) else ""


def units(flags: Collection[str]) -> frozenset[str]:
    """Precisions of which a CPU has the unit in its full vector width."""
    known = UNITS.get(code(flags), {})
    return frozenset(precision for precision, (flag, _) in known.items() if flag in flags)
