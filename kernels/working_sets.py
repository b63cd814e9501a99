"""CUDA of the cache family: sets of any size in L1, shared memory, L2 or DRAM, passed again and again.

A trip is L accesses of 16 bytes by each thread; the set is a ring that the block walks around, so that any
size is passed evenly:

    own     every block has its own part of what all SMs pass together
    whole   every block passes all of one set, each from another place: what L2 holds twice shows

The level follows from size and cache operator. "ca" may stay in L1, "nc" is the read-only path to it, "cg"
passes L1 by; "shared" is filled once and never left. In machine code "cg" is a load that has to see what
all SMs store, which an L2 of two parts may have to fetch from the part that owns the line. "na" promises that
nobody stores and leaves nothing in L1: the nearer part may keep a copy, as for loads of ordinary code. All
accesses are volatile PTX, for two reasons: nothing
can be moved out of the loop, and the operator is in the machine code, where the audit finds it (STRONG.SM or
.CTA, CONSTANT, STRONG.GPU). L1 writes through, so that a store reaches L2 whatever the operator.

Of the address one step costs 5 instructions beside the load and its 4 additions: 10 issue slots of the 16
that a scheduler has while L1 delivers 512 bytes at 128 a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.spec import CudaFamily, CudaForm, Expect
from kernels.stream import SHAPES

SHARED_BYTES = 32 << 10
"""Of a block: two of 1024 threads fit everywhere where their threads do."""

VECTOR_BYTES, WARP = 16, 32
"""Of one access; a set is a multiple of what a warp accesses at a time."""

# a: results of read (one a thread, then the SM of each block), else what is stored to; b: what is loaded;
# n: items of a block's part of one array, with "whole" of all of it; count: trips.
PREAMBLE = r"""
#define UNROLL _Pragma("unroll")
#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(1024) NAME( \
    float* a, const float* b, const float* c, const float* s, long long n, int count)

#define LOAD(OPERATOR, V, ADDRESS, KIND) asm volatile("ld." OPERATOR ".v4.f32 {%0, %1, %2, %3}, [%4];" \
    : "=f"(V.x), "=f"(V.y), "=f"(V.z), "=f"(V.w) : KIND(ADDRESS) : "memory")
#define STORE(OPERATOR, V, ADDRESS, KIND) asm volatile("st." OPERATOR ".v4.f32 [%4], {%0, %1, %2, %3};" \
    :: "f"(V.x), "f"(V.y), "f"(V.z), "f"(V.w), KIND(ADDRESS) : "memory")

#define SPACE(NAME, ADDRESS, OF, KIND, IN, OUT) struct NAME { \
    typedef ADDRESS Address; \
    static __device__ Address of(const void* p) { return (Address)OF(p); } \
    static __device__ float4 load(Address p) { float4 v; LOAD(IN, v, p, KIND); return v; } \
    static __device__ void store(Address p, float4 v) { STORE(OUT, v, p, KIND); } };

SPACE(Ca,     unsigned long long, __cvta_generic_to_global, "l", "global.ca", "global.cg")
SPACE(Nc,     unsigned long long, __cvta_generic_to_global, "l", "global.nc", "global.cg")
SPACE(Na,     unsigned long long, __cvta_generic_to_global, "l", "global.nc.L1::no_allocate", "global.cg")
SPACE(Cg,     unsigned long long, __cvta_generic_to_global, "l", "global.cg", "global.cg")
SPACE(Shared, unsigned,           __cvta_generic_to_shared, "r", "volatile.shared", "volatile.shared")

#define FORMULA(NAME, LOADS, STORES, IN_PLACE, RESULT) struct NAME { \
    enum { loads = LOADS, stores = STORES, in_place = IN_PLACE }; \
    static __device__ float item(float s, float x) { return RESULT; } };

FORMULA(Read,   1, 0, 0, x)
FORMULA(Write,  0, 1, 0, s)
FORMULA(Update, 1, 1, 1, s * x)
FORMULA(Copy,   1, 1, 0, x)

template <class F> __device__ float4 each(float s, float4 x) {
    return make_float4(F::item(s, x.x), F::item(s, x.y), F::item(s, x.z), F::item(s, x.w));
}

template <class M, class F, int L>
__device__ float walk(typename M::Address from, typename M::Address to, unsigned vectors, unsigned first,
                      float s, int count) {
    const unsigned step = blockDim.x % vectors;
    unsigned i = (first + threadIdx.x) % vectors;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip) {
        unsigned at[L];
        float4 x[L] = {};
        UNROLL for (int k = 0; k < L; ++k) {
            at[k] = i;
            i += step;
            if (i >= vectors) i -= vectors;
        }
        if (F::loads)
            UNROLL for (int k = 0; k < L; ++k) x[k] = M::load(from + 16 * (typename M::Address)at[k]);
        UNROLL for (int k = 0; k < L; ++k) {
            if (F::stores) {
                M::store(to + 16 * (typename M::Address)at[k], each<F>(s, x[k]));
            } else {
                sum.x += x[k].x; sum.y += x[k].y; sum.z += x[k].z; sum.w += x[k].w;
            }
        }
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

__device__ void told(float* a, float total, float s) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    a[thread] = total + (thread ? 0.0f : s);
    if (threadIdx.x == 0) a[gridDim.x * blockDim.x + blockIdx.x] = (float)sm;
}

template <class M, class F, int L, bool WHOLE>
__device__ void in_memory(float* a, const float* b, float s, long long n, int count) {
    const unsigned vectors = n / 4, first = WHOLE ? vectors / gridDim.x * blockIdx.x : 0;
    const long long own = WHOLE ? 0 : blockIdx.x * n;
    const float* from = F::in_place ? a + own : b + own;
    const float total = walk<M, F, L>(M::of(from), M::of(a + own), vectors, first, s, count);
    if (!F::stores) told(a, total, s);
}

template <class F, int L>
__device__ void in_shared(float* a, const float* b, float s, long long n, int count) {
    extern __shared__ float4 held[];
    const unsigned vectors = n / 4;
    const float4* from = reinterpret_cast<const float4*>(F::in_place ? a : b) + (size_t)blockIdx.x * vectors;
    float4* to = reinterpret_cast<float4*>(a) + (size_t)blockIdx.x * vectors;
    float4* stored = F::loads && !F::in_place ? held + vectors : held;
    if (F::loads) for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) held[i] = from[i];
    __syncthreads();
    const float total = walk<Shared, F, L>(Shared::of(held), Shared::of(stored), vectors, 0, s, count);
    __syncthreads();
    if (F::stores) for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) to[i] = stored[i];
    if (!F::stores) told(a, total, s);
}
"""

OPERATORS = {
    "ca": r"128\.STRONG\.(SM|CTA)",
    "nc": r"128\.CONSTANT(\.SYS)?",
    "cg": r"128\.STRONG\.GPU",
    "na": r"NA\.128\.CONSTANT(\.SYS)?",
}
"""Cache operators of loads and what the machine code calls them (STRONG.CTA on sm_75)."""

ARITHMETIC = {"read": r"FADD(\.FTZ)?", "update": r"FMUL(\.FTZ)?"}


@dataclass(frozen=True)
class Way:
    """How a set is passed: operator or "shared", accesses a trip, whether by all blocks alike."""

    operator: str
    accesses: int
    whole: bool = False

    @property
    def name(self) -> str:
        """As in a form's variant: "cg l8 whole"."""
        return f"{self.operator} l{self.accesses}" + " whole" * self.whole

    @property
    def carveout(self) -> int:
        """Share of the on-chip memory wanted as shared memory: none where L1 is what counts."""
        return -1 if self.operator == "shared" else 0


WAYS = {
    "read": (
        *(Way(o, 8) for o in ("ca", "nc", "cg")),
        *(Way("cg", 4), Way("cg", 8, True), Way("shared", 8), Way("na", 8), Way("na", 8, True)),
    ),
    "write": (Way("cg", 8), Way("cg", 4), Way("shared", 8)),
    "update": (Way("cg", 8), Way("cg", 4), Way("shared", 8)),
    "copy": (Way("cg", 8), Way("cg", 4), Way("shared", 8)),
}
"""By kernel, best guess of each level first."""


def opcodes(name: str, way: Way) -> dict[str, int]:
    """Instructions of one trip of a thread."""
    shape, shared = SHAPES[name], way.operator == "shared"
    load = r"LDS(\.U)?\.128" if shared else rf"LDG\.E\.{OPERATORS[way.operator]}"
    store = r"STS\.128" if shared else r"STG\.E\.128\.STRONG\.GPU"
    wanted = {load: way.accesses * len(shape.loads), store: way.accesses * len(shape.stores)}
    if name in ARITHMETIC:
        wanted[ARITHMETIC[name]] = 4 * way.accesses
    return {opcode: count for opcode, count in wanted.items() if count}


def _form(name: str, way: Way) -> CudaForm:
    entry, shared = f"cache_{name}_{way.name.replace(' ', '_')}", way.operator == "shared"
    formula, whole = name.title(), str(way.whole).lower()
    call = f"in_shared<{formula}" if shared else f"in_memory<{way.operator.title()}, {formula}"
    call += f", {way.accesses}" + (">" if shared else f", {whole}>")
    return CudaForm(
        entry=entry,
        code=f"ENTRY({entry}) {{ {call}(a, b, s[0], n, count); }}",
        kernel=f"cache-{name}",
        precision="fp32",
        variant=way.name,
        expect=Expect(opcodes(name, way), load_bits=0 if shared else 8 * VECTOR_BYTES, registers=64),
        grid="persistent",
        blocks=(1024, 512),
        shared_bytes=SHARED_BYTES if shared else 0,
        carveout=way.carveout,
        shim=False,
    )


CUDA = CudaFamily(PREAMBLE, tuple(_form(name, way) for name, ways in WAYS.items() for way in ways))

BY_ENTRY = {
    form.entry: way for form, way in zip(CUDA.forms, (w for ways in WAYS.values() for w in ways), strict=True)
}
"""The way of each form."""
