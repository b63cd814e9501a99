"""The zoo: the real workloads that are run and placed on the roof, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bench.workloads.adam import ADAM
from bench.workloads.convolution import CONVOLUTION
from bench.workloads.dot import DOT
from bench.workloads.gemv import GEMV
from bench.workloads.layernorm import LAYERNORM
from bench.workloads.library import FFT, GEMM
from bench.workloads.softmax import SOFTMAX
from bench.workloads.spmv import SPMV
from bench.workloads.stencil import STENCIL
from bench.workloads.tall import GEMM_TALL
from bench.workloads.transpose import TRANSPOSE
from bench.workloads.workload import Workload

ZOO: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            GEMM,
            GEMM_TALL,
            CONVOLUTION,
            FFT,
            STENCIL,
            LAYERNORM,
            SOFTMAX,
            ADAM,
            GEMV,
            DOT,
            SPMV,
            TRANSPOSE,
        )
    }
)
