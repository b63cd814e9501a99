"""What the processor is: its name, flags, vector level, and why a precision cannot be measured."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from bench.host import tree
from bench.native.units import UNITS, units

NATIVE = {"fp16": "fp16 FMA", "bf16": "bf16 dot product", "int8": "int8 dot product"}
"""Vector units that not every CPU has, by precision."""

TILES = ("amx_fp16", "amx_bf16", "amx_int8")
"""Flags of matrix units, which no loop here uses."""

_VECTOR = (
    ("AVX-512", {"avx512f"}),
    ("AVX2 + FMA", {"avx2", "fma"}),
    ("SSE2", {"sse2"}),
    ("SVE", {"sve"}),
    ("NEON", {"asimd"}),
)

_IDENTITY = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
    "variant": ("CPU variant",),
    "microcode": ("microcode",),
}

_NOISE = re.compile(
    r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\bwith .*graphics.*|\b\d+-core\b|\bvirtual\b", re.IGNORECASE
)


def processors(root: Path) -> dict[int, dict[str, str]]:
    """The fields of /proc/cpuinfo by CPU number."""
    blocks = re.split(r"\n\s*\n", tree.text(root, "proc/cpuinfo"))
    fields = [dict(re.findall(r"(?m)^([^:\n]+?)\s*:[ \t]*(.*)$", block)) for block in blocks]
    return {int(f["processor"]): f for f in fields if f.get("processor", "").isdigit()}


def flags(root: Path, cpus: Iterable[int]) -> frozenset[str]:
    """Flags that every one of `cpus` has, so that any thread may run any code chosen by them."""
    known = processors(root)
    sets = [_flags(known[cpu]) for cpu in cpus if cpu in known]
    return frozenset.intersection(*sets) if sets else frozenset()


def _flags(fields: dict[str, str]) -> frozenset[str]:
    return frozenset(fields.get("flags", fields.get("Features", "")).split())


def flags_hash(names: frozenset[str]) -> str:
    """Twelve hex digits that are equal exactly when the sets of flags are."""
    return hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()[:12]


def vector_level(names: frozenset[str]) -> str:
    """The widest vector instruction set that the flags promise, "unknown" where none is named."""
    return next((level for level, needed in _VECTOR if needed <= names), "unknown")


def precisions(names: frozenset[str], machine: str) -> dict[str, str]:
    """Reason for each precision that cannot be measured, "" for those that can."""
    ours = machine in ("x86_64", "aarch64")
    plain = "" if ours else f"no vector kernel for {machine} yet (x86-64 and AArch64 have one)"
    return {"fp64": plain, "fp32": plain, **{p: _reason(p, names) for p in NATIVE}}


def _reason(precision: str, names: frozenset[str]) -> str:
    if precision in units(names):
        return ""
    needed = [known[precision][0] for known in UNITS.values() if precision in known]
    tiles = [flag for flag in TILES if flag in names and flag.endswith(precision)]
    beside = f"; {tiles[0]} is of its matrix units, which are not measured" if tiles else ""
    return (
        f"this CPU has no vector {NATIVE[precision]} (needs {', '.join(needed[:-1])} or {needed[-1]}{beside})"
    )


def nominal_clock(root: Path, cpu: int) -> float | None:
    """The clock that the maker promises, in Hz, None where nothing tells it.

    As the driver says, else as in the name ("@ 2.90GHz"), else the clock that a virtual machine is shown:
    without a driver the kernel prints that of the time stamp counter, which runs at the nominal clock.
    """
    folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    if base := tree.text(root, f"{folder}/base_frequency"):
        return float(base) * 1e3 if base.isdigit() else None
    fields = processors(root).get(cpu, {})
    if named := re.search(r"@\s*([\d.]+)\s*GHz", fields.get("model name", "")):
        return float(named[1]) * 1e9
    shown = fields.get("cpu MHz", "")
    driven = bool(tree.text(root, f"{folder}/scaling_driver"))
    return float(shown) * 1e6 if re.fullmatch(r"\d+(\.\d+)?", shown) and not driven else None


def model_name(root: Path, cpu: int) -> str:
    """The maker's name of the processor; on AArch64 by py-cpuinfo, else by its part number."""
    fields = processors(root).get(cpu, {})
    name = fields.get("model name", "").strip()
    if name or root != tree.ROOT:
        return name or _part(fields)
    return _name_by_library() or _part(fields)


def _part(fields: dict[str, str]) -> str:
    if "CPU part" in fields:
        return f"AArch64 {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return "unknown processor"


def _name_by_library() -> str:
    """py-cpuinfo asks several sources and needs a second: only where the kernel gives no name."""
    try:
        from cpuinfo import get_cpu_info
    except ImportError:
        return ""
    return str(get_cpu_info().get("brand_raw", ""))


def identity(root: Path, cpu: int) -> dict[str, str]:
    """Vendor, family, model, stepping (or the AArch64 counterparts) and microcode as text."""
    fields = processors(root).get(cpu, {})
    found = {key: next((fields[n] for n in names if n in fields), "") for key, names in _IDENTITY.items()}
    return {key: value for key, value in found.items() if value}


def slug(name: str, cores: int) -> str:
    """Folder-safe name such as amd-epyc-7763-64c."""
    words = _NOISE.sub(" ", name).lower().replace("+", "plus")
    return f"{re.sub(r'[^a-z0-9]+', '-', words).strip('-')[:48] or 'cpu'}-{cores}c"
