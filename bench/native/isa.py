"""Instruction sets that the loops are emitted for: vector width, FMA, registers, target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from llvmlite import binding as llvm

from bench.native.units import UNITS, code, units


@dataclass(frozen=True)
class Isa:
    """One target of code generation.

    vector_bytes: width of a vector register;  registers: how many of them
    fma: whether multiply and add are one instruction (else two, counted as such)
    units: precisions beside fp64 and fp32 of which it has the vector unit (bench/native/units.py)
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    fma: bool
    units: frozenset[str] = frozenset()

    @property
    def x86(self) -> bool:
        """True for x86-64, false for AArch64."""
        return self.triple.startswith("x86_64")


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


def _with_units(isa: Isa, found: Collection[str]) -> Isa:
    """The set with the units of these precisions, which the compiler is told of."""
    names = [f"+{UNITS[isa.name][precision][1]}" for precision in sorted(found)]
    features = ",".join(filter(None, (isa.features, *names)))
    return replace(isa, features=features, units=frozenset(found))


KNOWN = {
    isa.name: _with_units(isa, UNITS.get(isa.name, ()))
    for isa in (
        Isa("sse2", _X86, "x86-64", "", 16, 16, False),
        Isa("avx2", _X86, "haswell", "", 32, 16, True),
        Isa("avx512", _X86, "skylake-avx512", "", 64, 32, True),
        Isa("neon", _ARM, "neoverse-n1", "", 16, 32, True),
    )
}
"""Every instruction set the assembly is audited for, by cross-compilation, with all its units."""


def host(flags: Collection[str] = ()) -> Isa:
    """The widest vector code that this machine can run; RuntimeError on other CPUs.

    flags: as Linux shows them, of which the vector units are known (bench/native/units.py)
    """
    isa = _widest()
    return _with_units(isa, units(flags)) if code(flags) == isa.name else isa


def _widest() -> Isa:
    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    features = llvm.get_host_cpu_features()
    flat = features.flatten()
    if triple.startswith("aarch64") or triple.startswith("arm64"):
        return Isa("neon", triple, cpu, flat, 16, 32, True)
    if not triple.startswith("x86_64"):
        raise RuntimeError(f"no loops for {triple}: only x86-64 and AArch64 are emitted")
    if features.get("avx512f"):
        return Isa("avx512", triple, cpu, flat, 64, 32, True)
    if features.get("avx"):
        fused = bool(features.get("fma"))
        return Isa("avx2" if fused else "avx", triple, cpu, flat, 32, 16, fused)
    return Isa("sse2", triple, cpu, flat, 16, 16, False)
