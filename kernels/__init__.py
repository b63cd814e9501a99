"""The table of contents: every kernel family, in the order of the report."""

from __future__ import annotations

from kernels import (
    cache,
    chases,
    collective,
    fma,
    gemm,
    latency,
    launch,
    link,
    mix,
    overlap,
    stream,
    tensor,
    working_sets,
)
from kernels.spec import CudaFamily, Kernel

FAMILIES: dict[str, tuple[Kernel, ...]] = {
    "stream": stream.KERNELS,
    "fma": fma.KERNELS,
    "mix": mix.KERNELS,
    "gemm": gemm.KERNELS,
    "tensor": tensor.KERNELS,
    "cache": cache.KERNELS,
    "latency": latency.KERNELS,
    "launch": launch.KERNELS,
    "link": link.KERNELS,
    "overlap": overlap.KERNELS,
    "collective": collective.KERNELS,
}

KERNELS: dict[str, Kernel] = {kernel.name: kernel for family in FAMILIES.values() for kernel in family}

CUDA: dict[str, CudaFamily] = {
    "stream": stream.CUDA,
    "fma": fma.CUDA,
    "mix": mix.CUDA,
    "tensor": tensor.CUDA,
    "cache": working_sets.CUDA,
    "latency": chases.CUDA,
    "launch": launch.CUDA,
    "overlap": overlap.CUDA,
}
"""The families that have CUDA C++ bodies; gemm is the library's."""
