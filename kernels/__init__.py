"""The table of contents: every kernel family, in the order of the report."""

from __future__ import annotations

from kernels import cache, fma, gemm, mix, stream
from kernels.spec import Kernel

FAMILIES: dict[str, tuple[Kernel, ...]] = {
    "stream": stream.KERNELS,
    "fma": fma.KERNELS,
    "mix": mix.KERNELS,
    "gemm": gemm.KERNELS,
    "cache": cache.KERNELS,
}

KERNELS: dict[str, Kernel] = {kernel.name: kernel for family in FAMILIES.values() for kernel in family}
