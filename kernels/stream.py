"""Stream kernels: which bandwidth beta depends on what is loaded and what is stored.

    kernel   formula        loads  stores  FLOP per item
    write    a = s            0      1        0
    read     sum += b         1      0        1
    update   a = s a          1      1        1
    copy     a = b            1      1        0
    scale    a = s b          1      1        1
    add      a = b + c        2      1        1
    triad    a = b + s c      2      1        2

Bytes are streams x item size (McCalpin, STREAM). An ordinary store to a line that is not
cached makes most CPUs load that line first: that write-allocate traffic is one hidden stream
more for write, copy, scale, add and triad, none for update and for non-temporal stores.
A GPU has no such traffic: whole 32-byte sectors are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.spec import ITEM_BYTES, CudaFamily, CudaForm, Expect, Kernel, StreamShape, Work


def write(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s


def read(a: Any, b: Any, c: Any, s: Any) -> Any:
    total = s
    for i in range(len(b)):
        total = total + b[i]
    return total


def update(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s * a[i]


def copy(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i]


def scale(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = s * b[i]


def add(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i] + c[i]


def triad(a: Any, b: Any, c: Any, s: Any) -> Any:
    for i in range(len(a)):
        a[i] = b[i] + s * c[i]


# What NumPy says the destination (read: the sum) must be, from the arrays before the run.
REFERENCES = {
    "write": lambda np, a, b, c, s: np.full_like(a, s),
    "read": lambda np, a, b, c, s: b.sum(dtype=np.float64) + s,
    "update": lambda np, a, b, c, s: s * a,
    "copy": lambda np, a, b, c, s: b.copy(),
    "scale": lambda np, a, b, c, s: s * b,
    "add": lambda np, a, b, c, s: b + c,
    "triad": lambda np, a, b, c, s: b + s * c,
}

# The same formulas over whatever `ops` computes with: here, vectors of machine code.
SHAPES = {
    "write": StreamShape((), ("a",), lambda ops, s: s),
    "read": StreamShape(("b",), ()),
    "update": StreamShape(("a",), ("a",), lambda ops, s, a: ops.mul(s, a)),
    "copy": StreamShape(("b",), ("a",), lambda ops, s, b: b),
    "scale": StreamShape(("b",), ("a",), lambda ops, s, b: ops.mul(s, b)),
    "add": StreamShape(("b", "c"), ("a",), lambda ops, s, b, c: ops.add(b, c)),
    "triad": StreamShape(("b", "c"), ("a",), lambda ops, s, b, c: ops.fma(s, c, b)),
}

FLOPS_PER_ITEM = {"write": 0, "read": 1, "update": 1, "copy": 0, "scale": 1, "add": 1, "triad": 2}

ACCESS = {"write": "write", "read": "read", "update": "update", "copy": "copy", "scale": "copy"}


def hidden_streams(shape: StreamShape, store: str) -> int:
    """Streams that write-allocate adds: one per array stored ordinarily without being loaded."""
    return 0 if store != "ordinary" else len(set(shape.stores) - set(shape.loads))


def cost(name: str, item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
    """Work of `sizes["passes"]` (default 1) passes over `sizes["n"]` items a stream."""
    items = sizes["n"] * sizes.get("passes", 1)
    shape = SHAPES[name]
    return Work.at(
        level,
        FLOPS_PER_ITEM[name] * items,
        reads=len(shape.loads) * item_bytes * items,
        writes=len(shape.stores) * item_bytes * items,
    )


def _kernel(plain: Any) -> Kernel:
    name = plain.__name__
    return Kernel(
        name=name,
        family="stream",
        access=ACCESS.get(name, "triad"),
        work=lambda item_bytes, sizes, level: cost(name, item_bytes, sizes, level),
        plain=plain,
        reference=REFERENCES[name],
        shape=SHAPES[name],
    )


KERNELS = tuple(_kernel(body) for body in (write, read, update, copy, scale, add, triad))

# CUDA. A form is named by the bytes of one access and the accesses a thread has in flight: "v16 l4";
# "cs" marks them all evict-first, so that what was just stored leaves L2 before what is still to come.
#
# Neighbouring threads access neighbouring vectors; a block owns one piece of block x L vectors of each
# stream. All loads of a thread come before its first store, and as a might alias b and c (no __restrict__)
# the compiler has to leave them there: with __restrict__ it trades loads in flight for registers. Additions
# it would move up between the loads, to fit one block more on an SM: of eight loads three were in flight.
# The bound of 512 threads and 1 block takes that aim from it, and the audit counts (in_flight).
# cover: the launcher makes n a multiple of block x items, there is no tail to guard.
#
# `read` has nothing to store: its grid is a few times what the device holds at once, a thread keeps a vector
# of sums over all its tiles (any n), and stores one result: below 1 % of 1 GiB on the largest chips, and
# enough to keep every load alive. The first thread adds s, so the results add up to the reference's.
PREAMBLE = r"""
#define UNROLL _Pragma("unroll")
#define ENTRY(NAME, T) extern "C" __global__ void __launch_bounds__(512, 1) NAME( \
    T* a, const T* b, const T* c, const T* s, long long n, int count)

#define FORMULA(NAME, STREAMS, IN_PLACE, RESULT) struct NAME { \
    enum { streams = STREAMS, in_place = IN_PLACE }; \
    template <class T> static __device__ T item(T s, T x, T y) { return RESULT; } };

FORMULA(Write,  0, false, s)
FORMULA(Update, 1, true,  s * x)
FORMULA(Copy,   1, false, x)
FORMULA(Scale,  1, false, s * x)
FORMULA(Add,    2, false, x + y)
FORMULA(Triad,  2, false, x + s * y)

template <class T, int N> struct alignas(N * sizeof(T)) Vector { T item[N]; };

template <bool CS, class V> __device__ V load(const V* p) {
    if constexpr (!CS) return *p;
    int4 bits = __ldcs(reinterpret_cast<const int4*>(p));
    return *reinterpret_cast<V*>(&bits);
}

template <bool CS, class V> __device__ void store(V* p, V v) {
    if constexpr (!CS) *p = v;
    else __stcs(reinterpret_cast<int4*>(p), *reinterpret_cast<int4*>(&v));
}

template <class F, class T, int BYTES, int L, bool CS>
__device__ void pass(T* a, const T* b, const T* c, const T* s) {
    constexpr int N = BYTES / sizeof(T);
    using V = Vector<T, N>;
    const long long first = (long long)blockIdx.x * blockDim.x * L + threadIdx.x;
    V* to = reinterpret_cast<V*>(a) + first;
    const V* one = F::in_place ? to : reinterpret_cast<const V*>(b) + first;
    const V* two = reinterpret_cast<const V*>(c) + first;
    const T factor = s[0];
    V x[L] = {}, y[L] = {};
    UNROLL for (int k = 0; k < L; ++k) {
        if constexpr (F::streams > 0) x[k] = load<CS>(one + k * blockDim.x);
        if constexpr (F::streams > 1) y[k] = load<CS>(two + k * blockDim.x);
    }
    UNROLL for (int k = 0; k < L; ++k) {
        UNROLL for (int i = 0; i < N; ++i) x[k].item[i] = F::item(factor, x[k].item[i], y[k].item[i]);
        store<CS>(to + k * blockDim.x, x[k]);
    }
}

template <class T, int BYTES, int L, bool CS>
__device__ void sum(T* a, const T* b, const T* s, long long n) {
    constexpr int N = BYTES / sizeof(T);
    using V = Vector<T, N>;
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, tile = blockDim.x * L * N;
    T total = thread ? T(0) : s[0];
    V sums = {};
    long long first = blockIdx.x * tile;
#pragma unroll 1
    for (; first + tile <= n; first += gridDim.x * tile) {
        const V* from = reinterpret_cast<const V*>(b + first) + threadIdx.x;
        V x[L];
        UNROLL for (int k = 0; k < L; ++k) x[k] = load<CS>(from + k * blockDim.x);
        UNROLL for (int k = 0; k < L; ++k)
            UNROLL for (int i = 0; i < N; ++i) sums.item[i] = sums.item[i] + x[k].item[i];
    }
#pragma unroll 1
    for (first += threadIdx.x; first < n; first += blockDim.x) total = total + b[first];  // a broken tile
    UNROLL for (int i = 0; i < N; ++i) total = total + sums.item[i];
    a[thread] = total;
}
"""

C_TYPE = {"fp64": "double", "fp32": "float"}

ARITHMETIC = {"read": "ADD", "update": "MUL", "scale": "MUL", "add": "ADD", "triad": "FMA"}
"""Opcode of the one instruction an item costs, less its F or D."""


def opcodes(name: str, precision: str, access: int, loads: int, hint: str) -> dict[str, int]:
    """Instructions of one thread (read: of one trip); the factor is one more load as wide as an item."""
    items, width = loads * access // ITEM_BYTES[precision], {16: r"\.128", 8: r"\.64", 4: ""}[access]
    streams, bulk = len(SHAPES[name].loads), access > ITEM_BYTES[precision]
    factor = 0 if bulk or name in ("read", "copy", "add") else 1
    wanted = {
        rf"LDG\.E{hint}{width}(\.CONSTANT)?(\.SYS)?": loads * streams + factor,
        rf"STG\.E{hint}{width}(\.SYS)?": loads * len(SHAPES[name].stores),
    }
    if name in ARITHMETIC:
        wanted[("D" if precision == "fp64" else "F") + ARITHMETIC[name] + r"(\.FTZ)?"] = items
    return {opcode: count for opcode, count in wanted.items() if count}


def _form(name: str, precision: str, access: int, loads: int, evict_first: bool) -> CudaForm:
    variant = f"v{access} l{loads}" + " cs" * evict_first
    entry = f"{name}_{precision}_{variant.replace(' ', '_')}"
    shape = f"{C_TYPE[precision]}, {access}, {loads}, {str(evict_first).lower()}"
    body = f"sum<{shape}>(a, b, s, n)" if name == "read" else f"pass<{name.title()}, {shape}>(a, b, c, s)"
    wanted = opcodes(name, precision, access, loads, r"\.EF" if evict_first else "")
    flying = loads * len(SHAPES[name].loads)
    return CudaForm(
        entry=entry,
        code=f"ENTRY({entry}, {C_TYPE[precision]}) {{ {body}; }}",
        kernel=name,
        precision=precision,
        variant=variant,
        expect=Expect(wanted, loop=name == "read", load_bits=8 * access, registers=88, in_flight=flying),
        items=0 if name == "read" else loads * access // ITEM_BYTES[precision],
        grid="persistent" if name == "read" else "cover",
        blocks=(256, 512, 128),
    )


CUDA = CudaFamily(
    PREAMBLE,
    tuple(
        _form(kernel.name, precision, access or ITEM_BYTES[precision], loads, evict_first)
        for kernel in KERNELS
        for precision in C_TYPE
        for access, loads, evict_first in (
            (16, 4, False), (16, 8, False), (16, 2, False), (16, 4, True), (16, 1, False), (0, 1, False),
        )
    ),
)  # fmt: skip
"""Best guess first; the last is the naive one: one item a thread (read: a trip)."""
