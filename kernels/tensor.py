"""Matrix units: what their instructions reach on operands that never leave the SM.

    C <- C + A B,  2 m n k FLOP an instruction

Instruction peak, not library peak: nothing is loaded from memory in the loop. `mma` (kernels/mma.py) is
the instruction of one warp and exists from compute capability 7.5 on; `wgmma` (kernels/wgmma.py) is the
one of four warps, without which capability 9.0 gives about two thirds of its peak. Boards of 7.5 without
matrix units run `mma` on other units: what they reach is no rate of matrix units, and is not measured.

Operands while timing are random, but every second product takes the B before it with the other sign:
accumulators stay of the size of one product for any count, in fp16 too, and no value is special.
Operands while checking are small integers, exact in every type, so that results must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels import mma, wgmma
from kernels.encoding import encoded, item_type
from kernels.spec import CudaFamily, CudaForm, Kernel, TensorShape, Work

MOST_TRIPS = 3
"""Trips while checking: accumulators stay below 2048, up to which fp16 knows every integer."""


def product(c: Any, a: Any, b: Any, m: int, n: int, k: int, steps: int) -> None:
    """The textbook product added to c `steps` times; a is [m, k], b is [k, n], row-major."""
    for _ in range(steps):
        for i in range(m):
            for j in range(n):
                for p in range(k):
                    c[i * n + j] = c[i * n + j] + a[i * k + p] * b[p * n + j]


def reference(np: Any, c: Any, a: Any, b: Any, steps: int) -> Any:
    """c + steps A B of matrices."""
    return c + steps * (a @ b)


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["n"]` multiply-adds: m n k x instructions, 2 FLOP each, nothing moved."""
    return Work(2.0 * sizes["n"])


KERNELS = (
    Kernel("mma", "tensor", "none", cost, product, reference, TensorShape()),
    Kernel("wgmma", "tensor", "none", cost, product, reference, TensorShape()),
)

CUDA = CudaFamily(
    "".join(f"#define {name} {value}\n" for name, value in {**mma.DEFINES, **wgmma.DEFINES}.items())
    + mma.PREAMBLE
    + wgmma.PREAMBLE,
    mma.FORMS + wgmma.FORMS,
)


def instruction(form: CudaForm) -> mma.Instruction | wgmma.Instruction:
    """What a form measures."""
    return mma.BY_ENTRY[form.entry] if form.kernel == "mma" else wgmma.BY_ENTRY[form.entry]


def operands(np: Any, form: CudaForm, purpose: str) -> Any:
    """The array b for `purpose` time (random) | zeros | check | layout (of mma the same as check)."""
    rng, i = np.random.default_rng(7), instruction(form)
    if isinstance(i, mma.Instruction):
        a, b = (mma.SETS, 2, i.m, i.k), (mma.SETS, 2, mma.N, i.k)  # both by k: A by rows, B by columns
        of_a, of_b = _filled(np, rng, i.item, purpose, a), _filled(np, rng, i.item, purpose, b)
        if purpose == "time":
            of_b[:, 1] = -of_b[:, 0]
        parts = [part.reshape(mma.SETS, -1) for part in (of_a, of_b)]
        return encoded(np, i.item, np.concatenate(parts, axis=1)).ravel()
    return _tile(np, rng, i, purpose)


def _tile(np: Any, rng: Any, i: wgmma.Instruction, purpose: str) -> Any:
    """A above B^T as they lie in shared memory; while timing, step 1 takes step 0's with the other sign."""
    rows = _filled(np, rng, i.item, purpose, (wgmma.M + wgmma.N, wgmma.STEPS // 2, 2, i.k))
    if purpose == "time":
        rows[:, :, 1] = rows[:, :, 0]
        rows[wgmma.M :, :, 1] *= -1
    if purpose == "check":
        rows[: wgmma.M], rows[wgmma.M :] = 1, 2
    return wgmma.swizzled(np, encoded(np, i.item, rows.reshape(len(rows), -1))).ravel()


def _filled(np: Any, rng: Any, item: str, purpose: str, shape: tuple[int, ...]) -> Any:
    if purpose == "zeros":
        return np.zeros(shape)
    if purpose != "time":
        return rng.integers(-2, 3, shape).astype(np.float64)
    return rng.integers(-127, 128, shape) if item == "int8" else rng.uniform(-1.0, 1.0, shape)


def _result_type(np: Any, form: CudaForm) -> Any:
    total = instruction(form).total
    return item_type(np, "fp32" if total == "fp16" else total)


def start(np: Any, form: CudaForm, purpose: str) -> Any:
    """The array s: what accumulators begin with, those of mma with 1, 2, ... times as much."""
    return np.full(1, 0 if purpose == "zeros" else 1, _result_type(np, form))


def results(np: Any, form: CudaForm, threads: int) -> Any:
    """An array a that `threads` threads fill, each with the sum of its accumulators."""
    return np.zeros(threads, _result_type(np, form))


def decoded(np: Any, form: CudaForm, stored: Any) -> Any:
    """What a filled array a means: fp64 of floats, the integers themselves."""
    return stored if stored.dtype.kind == "i" else stored.astype(np.float64)


def expected(np: Any, form: CudaForm, b: Any, s: Any, threads: int, trips: int) -> Any:
    """What a must hold after `trips` trips, decoded, for the purposes zeros, check and layout."""
    module = mma if form.kernel == "mma" else wgmma
    return module.expected(np, form, b, s, threads, trips)


def tolerance(np: Any, form: CudaForm) -> float:
    """Relative difference from `expected` that is allowed: none, the operands are exact."""
    return 0.0
