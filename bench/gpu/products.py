"""Matrix products by label: the types a library is told, how they round, and how a result is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.errors import DeviceError, VerificationError
from bench.profile.records import Point
from kernels import KERNELS, encoding
from kernels.encoding import item_type
from kernels.gemm import reference
from kernels.spec import Work

R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3, R_4F_E2M1 = 0, 1, 2, 3, 10, 14, 28, 33
"""cudaDataType of library_types.h."""

COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 64, 68, 70, 72, 77
"""cublasComputeType_t of cublas_api.h."""

EDGE = 48
"""Rows and columns at two corners of a product that are compared with the reference."""

SPARE = 4.0
"""Standard deviations of rounding that a result may be off."""


@dataclass(frozen=True)
class Product:
    """One kind of product C = A B of random operands.

    inputs, output: names of item types;  a_type, c_type, compute, scalar: what the library is told
    bits: of an input item;  rounding: of an input, of one step of the sum (both relative)
    multiple: what every dimension must be one of;  transposed: A must be (TN), else either will do
    libraries: which of cublas, cublaslt can do it
    """

    inputs: str
    output: str
    a_type: int
    c_type: int
    compute: int
    scalar: str
    bits: int
    rounding: tuple[float, float]
    multiple: int = 1
    transposed: bool = False
    libraries: tuple[str, ...] = ("cublas", "cublaslt")

    def input_bytes(self, items: int) -> int:
        """Bytes of so many input items."""
        return items * self.bits // 8

    @property
    def output_bytes(self) -> int:
        """Bytes of an item of C."""
        return int(item_type(np, self.output).itemsize)


EXACT = (0.0, 0.0)
HALF = 2.0**-11

PRODUCTS: Mapping[str, Product] = {
    "fp64 library": Product("fp64", "fp64", R_64F, R_64F, COMPUTE_64F, "f8", 64, (0.0, 2.0**-53)),
    "fp32 library": Product("fp32", "fp32", R_32F, R_32F, COMPUTE_32F, "f4", 32, (0.0, 2.0**-24)),
    "fp32 library tf32": Product(
        "fp32", "fp32", R_32F, R_32F, COMPUTE_32F_FAST_TF32, "f4", 32, (2.0**-10, 2.0**-22)
    ),
    "fp16>fp32 library": Product("fp16", "fp16", R_16F, R_16F, COMPUTE_32F, "f4", 16, (HALF, 2.0**-22)),
    "fp16 library": Product("fp16", "fp16", R_16F, R_16F, COMPUTE_16F, "f2", 16, (HALF, HALF)),
    "bf16>fp32 library": Product("bf16", "bf16", R_16BF, R_16BF, COMPUTE_32F, "f4", 16, (2.0**-8, 2.0**-22)),
    "int8>int32 library": Product("int8", "int32", R_8I, R_32I, COMPUTE_32I, "i4", 8, EXACT, 4, True),
    "fp8>fp32 library": Product(
        "fp8", "fp16", R_8F_E4M3, R_16F, COMPUTE_32F, "f4", 8, (HALF, 2.0**-13), 16, True, ("cublaslt",)
    ),
    "fp4>fp32 library": Product(
        "fp4", "fp16", R_4F_E2M1, R_16F, COMPUTE_32F, "f4", 4, (HALF, 2.0**-13), 128, True, ("cublaslt",)
    ),
}
"""By Precision.label. Strict fp32 must not pass as tf32: its rounding is what tells them apart."""


def product(point: Point) -> Product:
    """The product of a point; DeviceError for a precision or a size that no library here does."""
    label = point.precision.label
    if label not in PRODUCTS:
        raise DeviceError(f"no library product in {label!r}; there are {', '.join(PRODUCTS)}")
    found = PRODUCTS[label]
    if point.variant not in found.libraries:
        raise DeviceError(f"{label} is done by {' and '.join(found.libraries)}, not by {point.variant!r}")
    if point.precision.output != found.output:
        raise DeviceError(f"{label} is stored as {found.output} here, not as {point.precision.output}")
    if any(point.sizes[name] % found.multiple for name in "mnk"):
        raise DeviceError(f"{label} needs m, n and k that are multiples of {found.multiple}")
    return found


def work(point: Point, kind: Product, amount: int) -> Work:
    """2 m n k FLOP each; inputs and output may be of different size (int8 into int32, two fp4 a byte)."""
    costs = {bytes: KERNELS["gemm"].work(bytes, point.sizes, point.level) for bytes in (1, kind.output_bytes)}
    reads = {level: moved * kind.bits / 8 for level, moved in costs[1].reads.items()}
    return Work(costs[1].flops, reads, costs[kind.output_bytes].writes).times(amount)


def check(name: str, kind: Product, k: int, corners: tuple[tuple[Any, Any, Any], ...]) -> None:
    """VerificationError unless every corner (rows of A, columns of B, part of C) is the product in fp64.

    What may differ: SPARE standard deviations of k roundings of the sum, and one rounding of the inputs
    (tf32) or of the result, as this kind of product has them.
    """
    once, each = kind.rounding
    for a, b, c in corners:
        want = reference(np, a, b.T)
        size = np.sqrt(reference(np, a * a, (b * b).T))
        allowed = SPARE * (size * (once + each * k**0.5) + np.abs(want) * once)
        worst = float(np.max(np.abs(c - want) - allowed))
        if not worst <= 0:
            raise VerificationError(
                f"{name}: the product is off by {worst:.3g} more than rounding; it is not timed"
            )


def decoded(kind: str, raw: Any) -> Any:
    """Rows of bytes as numbers; two fp4 lie in a byte, the first in its low half."""
    if kind == "fp4":
        nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)
        return FP4[nibbles & 7] * np.where(nibbles & 8, -1.0, 1.0)
    return encoding.decoded(np, kind, np.ascontiguousarray(raw).view(item_type(np, kind)))


FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""The e2m1 numbers that are not negative, by their bits."""
