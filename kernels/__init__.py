"""The table of contents: every kernel family, in the order of the report."""

from __future__ import annotations

from kernels import cache, fma, gemm, mix, stream, tensor
from kernels.spec import CudaFamily, Kernel

FAMILIES: dict[str, tuple[Kernel, ...]] = {
    "stream": stream.KERNELS,
    "fma": fma.KERNELS,
    "mix": mix.KERNELS,
    "gemm": gemm.KERNELS,
    "tensor": tensor.KERNELS,
    "cache": cache.KERNELS,
}

KERNELS: dict[str, Kernel] = {kernel.name: kernel for family in FAMILIES.values() for kernel in family}

CUDA: dict[str, CudaFamily] = {
    "stream": stream.CUDA,
    "fma": fma.CUDA,
    "mix": mix.CUDA,
    "tensor": tensor.CUDA,
}
"""The families that have CUDA C++ bodies; gemm is the library's."""
