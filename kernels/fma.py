"""The peak chain: pi is what independent chains of fused multiply-adds reach in registers.

    x <- x m + x,  2 FLOP a step, no memory traffic

One chain is bound by the latency of its FMA; `chains` of them side by side hide it. With two
FMA pipes of latency 4 exactly 8 chains fit and leave no slack, so machines are tried from 8
to 24. The addend is x itself because AArch64 NEON can only add into the addend's register:
x m + a would cost a move each step there. m arrives at run time, so no compiler can fold the
chain, and is so small that no x overflows or becomes denormal in years.

On a GPU every thread runs its own chains, and warps hide what latency is left: 8 and 16
chains are tried. There x m + x names x twice, which its bank of registers may have to read twice; so
floats are tried with an addend apart, too, x m + y with y in a register of its own: only one operand
is new in each step, and no bank can be the limit. One trip is chains x steps = 512 multiply-adds, so
that the 3 or 4 instructions of the loop itself stay below 1 %:

    fp64, fp32            512 FMA x 2            = 1024 FLOP a thread and trip
    fp16, bf16 (packed)   512 FMA x 2 lanes x 2  = 2048
    int32                 512 multiply-adds x 2  = 1024 OP
    int8 into int32       512 x 4 products x 2   = 4096 (x <- x + the four bytes of x times those of m)

On a CPU fp16 is such a chain, too; bf16 and int8 are dot products there (kernels/dots.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels import encoding
from kernels.encoding import encoded, item_type, rounded
from kernels.spec import ChainShape, CudaFamily, CudaForm, Expect, Kernel, Work

FACTOR = 1e-12
"""m while timing; the check against the reference takes a large one, so that it can fail."""

FACTORS: dict[str, float | int] = {
    "fp64": FACTOR,
    "fp32": FACTOR,
    "fp16": 1e-4,
    "bf16": FACTOR,
    "int32": 1664524,
    "int8>int32": 0x71B925ED,
}
"""m while timing on a GPU, by precision.

Floats: a normal number below a quarter of an ulp of 1, so that x m is computed and rounded away: x stays
what it is, finite and normal, for any count (fp16: 2^-14 <= m < 2^-12); fp64 grows by 1e-12 a step, from
its seed again in every launch. int32: even, or x (1 + m)^n would be 0 after 32 steps; 1 + m = 5 modulo 8
gives the longest cycle. int8: the bytes -19, 37, -71 and 113; where their sum is 0, x stays.
"""

CHECKED = 2.0**-6
"""m of floats while checking: shows in every result, and x m is exact, so that the reference is too."""

MOST_TRIPS = 3
"""Trips while checking: 192 steps let x grow by 20, within reach of fp16."""

APART = "apart"
"""In the name of a form: its addend is y = s[1]."""

MIRROR, ADDEND = -1.0, 8.0
"""m and y of such a form while timing: from its second step on x and 8 - x take turns, exactly."""

CHECKED_APART = {"fp64": (1.0, CHECKED), "fp32": (1.0, CHECKED)}
PACKED_APART = (1.0 + CHECKED, CHECKED)
"""m and y while checking: x m + y rounds once in fp64 arithmetic, and each step shows in the few bits too."""


def fma(x: Any, m: Any, steps: int) -> None:
    """The textbook loop; x holds every chain, one item each."""
    for _ in range(steps):
        for j in range(len(x)):
            x[j] = x[j] * m + x[j]


def reference(np: Any, x: Any, m: float, steps: int) -> Any:
    """Closed form x (1 + m)^steps: in fp64, of 32-bit integers modulo 2^32."""
    if x.dtype.kind in "iu":
        return (x.view(np.uint32) * np.uint32(pow(1 + int(m), steps, 1 << 32))).view(x.dtype)
    return x.astype(np.float64) * (1.0 + float(m)) ** steps


def cost(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["n"]` scalar FMAs: chains x lanes x steps, 2 FLOP each, nothing moved."""
    return Work(2.0 * sizes["n"])


KERNELS = (
    Kernel("fma", "fma", "none", cost, fma, reference, ChainShape()),
    Kernel("fma-naive", "fma", "none", cost, fma, reference, ChainShape()),  # the textbook loop, by Numba
)

# CUDA. Types and intrinsics used, for a host that stands in for the device: float, double, int, unsigned,
# __half2 (cuda_fp16.h), __nv_bfloat162 (cuda_bf16.h), __hfma2, __hadd2, __dp4a.
# a, b and s hold V: a packed pair is one item of theirs. Seeds differ by thread and by chain; the sum of
# all chains is stored, so that none can be dropped.
PREAMBLE = r"""
struct Scalar { template <class V> static __device__ V step(V x, V m, V y) { return x * m + y; }
                template <class V> static __device__ V sum(V x, V y) { return x + y; } };
struct Packed { template <class V> static __device__ V step(V x, V m, V y) { return __hfma2(x, m, y); }
                template <class V> static __device__ V sum(V x, V y) { return __hadd2(x, y); } };
struct Dot4   { template <class V> static __device__ V step(V x, V m, V y) { return __dp4a(x, m, y); }
                template <class V> static __device__ V sum(V x, V y) { return unsigned(x) + unsigned(y); } };

template <class Op, int CHAINS, bool APART, class V>
__device__ void chains(V* a, const V* b, const V* s, long long n, int count) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const V m = s[0], y = s[APART];
    V x[CHAINS];
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) x[j] = b[(thread + STRIDE * j) % SEEDS];
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip) {
#pragma unroll
        for (int step = 0; step < BODY / CHAINS; ++step)
#pragma unroll
            for (int j = 0; j < CHAINS; ++j) x[j] = Op::step(x[j], m, APART ? y : x[j]);
    }
#pragma unroll
    for (int j = 1; j < CHAINS; ++j) x[0] = Op::sum(x[0], x[j]);
    if (thread < n) a[thread] = x[0];
}

#define CHAIN(NAME, OP, CHAINS, APART, V) extern "C" __global__ void __launch_bounds__(1024) NAME( \
    V* a, const V* b, const V* c, const V* s, long long n, int count) \
    { chains<OP, CHAINS, APART>(a, b, s, n, count); }
"""

BODY = 512  # multiply-adds of one trip
SEEDS, STRIDE = 4096, 509  # items of b, and how far apart the chains of a thread start in it


@dataclass(frozen=True)
class Type:
    """How a precision is written in C++: struct of its operation, type of a, b and s, items in that, opcode.

    flops: of one step;  header: that declares the type
    """

    name: str
    operation: str
    vector: str
    lanes: int
    flops: int
    opcode: str
    header: str = ""
    least_cc: int = 70


TYPES = {
    "fp64": Type("f64", "Scalar", "double", 1, 2, r"DFMA"),
    "fp32": Type("f32", "Scalar", "float", 1, 2, r"FFMA(\.FTZ)?"),
    "fp16": Type("f16", "Packed", "__half2", 2, 4, r"HFMA2(\.MMA)?", "cuda_fp16.h"),
    "bf16": Type("bf16", "Packed", "__nv_bfloat162", 2, 4, r"HFMA2(\.MMA)?\.BF16(_V2)?", "cuda_bf16.h", 80),
    "int32": Type("i32", "Scalar", "unsigned", 1, 2, r"IMAD"),
    "int8>int32": Type("i8", "Dot4", "int", 1, 8, r"IDP\.4A\.S8\.S8"),
}

CONVERSIONS = (r"[FI]2[FI].*", r"I2FP.*")
DOUBLES = (r"D(ADD|MUL|FMA|SETP).*",)


def _form(precision: str, chains: int, apart: bool) -> CudaForm:
    type = TYPES[precision]
    entry = f"fma_{type.name}_c{chains}" + f"_{APART}" * apart
    include = f"#include <{type.header}>\n" if type.header else ""
    forbidden = CONVERSIONS if precision == "fp64" else CONVERSIONS + DOUBLES
    return CudaForm(
        entry=entry,
        code=f"{include}CHAIN({entry}, {type.operation}, {chains}, {str(apart).lower()}, {type.vector})",
        kernel="fma",
        precision=precision,
        variant=f"{chains} chains" + f" {APART}" * apart,
        expect=Expect({type.opcode: BODY}, share=0.985, registers=64, forbidden=forbidden),
        flops=BODY * type.flops,
        grid="persistent",
        blocks=(256, 512, 128),
        least_cc=type.least_cc,
    )


CUDA = CudaFamily(
    f"#define BODY {BODY}\n#define SEEDS {SEEDS}\n#define STRIDE {STRIDE}\n{PREAMBLE}",
    tuple(
        _form(precision, chains, apart)
        for precision in TYPES
        for chains, apart in ((8, False), (16, False), (8, True))
        if not (apart and precision.startswith("int"))  # at half the rate, their operands have time
    ),
)


def item(form: CudaForm) -> str:
    """Type of one scalar of a, b and s."""
    return "int32" if form.precision.startswith("int") else form.precision


def decoded(np: Any, form: CudaForm, stored: Any) -> Any:
    """What memory of the device means: fp64 of floats, the integers themselves."""
    return encoding.decoded(np, item(form), stored)


def operands(np: Any, form: CudaForm, purpose: str) -> Any:
    """The array b for `purpose` time | check (random) | zeros."""
    rng, shape = np.random.default_rng(7), (SEEDS, TYPES[form.precision].lanes)
    if purpose == "zeros":
        return np.zeros(shape, item_type(np, item(form)))
    if item(form) == "int32":
        return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)
    signs = rng.choice([-1.0, 1.0], shape) if purpose == "time" else 1.0
    return encoded(np, item(form), rng.uniform(1.0, 2.0, shape) * signs)


def start(np: Any, form: CudaForm, purpose: str) -> Any:
    """The array s for the same purposes: m, once a lane, and with the addend apart y, too."""
    lanes, check = TYPES[form.precision].lanes, purpose == "check"
    if form.variant.endswith(APART):
        m, y = CHECKED_APART.get(form.precision, PACKED_APART) if check else (MIRROR, ADDEND)
        return encoded(np, item(form), np.repeat([m, y * (purpose != "zeros")], lanes))
    m = CHECKED if check and item(form) != "int32" else FACTORS[form.precision]
    return encoded(np, item(form), np.full(lanes, m))


def results(np: Any, form: CudaForm, threads: int) -> Any:
    """An array a that `threads` threads fill, as [thread, lane]."""
    return np.zeros((threads, TYPES[form.precision].lanes), item_type(np, item(form)))


def expected(np: Any, form: CudaForm, b: Any, s: Any, threads: int, trips: int) -> Any:
    """What a must hold after `trips` trips, decoded: step by step in the form's own rounding.

    A few hundred threads will do: this takes 512 array operations a trip and chain.
    """
    chains = int(form.variant.split()[0])
    first = np.arange(threads)[:, None] + STRIDE * np.arange(chains)
    x, s = decoded(np, form, b)[first % SEEDS], decoded(np, form, s).reshape(-1, len(b[0]))
    m, apart = s[0], form.variant.endswith(APART)
    step = _dot4 if form.precision == "int8>int32" else lambda np, x, m: x * m + (s[1] if apart else x)
    for _ in range(trips * BODY // chains):
        x = rounded(np, item(form), step(np, x, m))
    total = x[:, 0]
    for j in range(1, chains):
        total = rounded(np, item(form), total + x[:, j])
    return total


def _dot4(np: Any, x: Any, m: Any) -> Any:
    products = x[..., None].view(np.int8).astype(np.int32) * m[:, None].view(np.int8)
    return x + products.sum(axis=-1, dtype=np.int32)


def tolerance(np: Any, form: CudaForm) -> float:
    """Relative difference from `expected` that is allowed: none, x m is exact, so each step rounds once."""
    return 0.0
