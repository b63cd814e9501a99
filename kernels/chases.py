"""CUDA of the latency family: dependent loads through memory, timed by the SM's own clock.

    chase    each chain follows pointers around a random cycle of lines of 128 bytes, from where the last
             launch left it: a set larger than what one launch passes does not shrink to that
    lines    one thread waits for the same line again and again, then for the next: near and far parts of L2
    link     writes the cycle into memory: every word of a line points to the same word of the next line

A load's address is the pointer that the load before it brought, nothing is computed in between. With one
chain a single thread runs. With more, each warp reads whole lines, its lanes the words of one, and has 1, 4
or 8 chains of its own: 32 loads a trip and thread in every form.
"""

from __future__ import annotations

from typing import Any

from kernels.spec import CudaFamily, CudaForm, Expect

LINE_BYTES = 128
"""What a warp's load of neighbouring words moves at once; L1 and L2 keep tags for so much."""

WORDS = 16
"""Pointers of a line."""

LOADS = 32
"""Of one thread in one trip."""

SHARED_WORDS = 4096
"""Places of the cycle in shared memory, of 4 bytes: 16 KiB."""

SPREAD = 33
"""Lines from one line that `lines` waits for to the next: 4 KiB and one line."""

# a: of each thread the place of each chain, then the clock cycles that it took; b: of `link` and of the
# shared form the place that follows each; s[0]: of `lines` the first address, of the shared form the start;
# n: threads (link: lines; lines: those waited for); count: trips.
PREAMBLE = r"""
#define UNROLL _Pragma("unroll")
typedef unsigned long long Word;
#define ENTRY(NAME) extern "C" __global__ void __launch_bounds__(1024) NAME( \
    Word* a, const Word* b, const Word* c, const Word* s, long long n, int count)

#define SPACE(NAME, ADDRESS, LOAD) struct NAME { \
    typedef ADDRESS Address; \
    static __device__ void follow(Address& p) { LOAD; } };

SPACE(Ca, Word, asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p) :: "memory"))
SPACE(Cg, Word, asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p) :: "memory"))
SPACE(Shared, unsigned, asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(p) :: "memory"))

template <class M, int CHAINS> __device__ void follow(typename M::Address (&at)[CHAINS], int count) {
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip)
        UNROLL for (int step = 0; step < LOADS / CHAINS; ++step)
            UNROLL for (int j = 0; j < CHAINS; ++j) M::follow(at[j]);
}

template <class M, int CHAINS> __device__ void chase(Word* a, long long n, int count) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    Word at[CHAINS];
    UNROLL for (int j = 0; j < CHAINS; ++j) at[j] = a[thread * CHAINS + j];
    const long long began = clock64();
    follow<M, CHAINS>(at, count);
    UNROLL for (int j = 0; j < CHAINS; ++j) a[thread * CHAINS + j] = at[j];  // waits for the last loads
    a[n * CHAINS + thread] = clock64() - began;
}

__device__ void chase_shared(Word* a, const Word* b, int count) {
    extern __shared__ unsigned table[];
    const unsigned base = (unsigned)__cvta_generic_to_shared(table);
    for (unsigned i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) table[i] = base + 4 * (unsigned)b[i];
    __syncthreads();
    if (threadIdx.x) return;
    unsigned at[1] = {base + 4 * (unsigned)a[0]};
    const long long began = clock64();
    follow<Shared, 1>(at, count);
    a[0] = (at[0] - base) / 4;
    a[1] = clock64() - began;
}

__device__ void lines(Word* a, Word first, long long n, int count) {
#pragma unroll 1
    for (long long line = 0; line < n; ++line) {
        Word at[1] = {first + line * SPREAD * LINE_BYTES};
        Cg::follow(at[0]);
        a[line] = at[0];
        const long long began = clock64();
        follow<Cg, 1>(at, count);
        a[line] = at[0];
        a[n + line] = clock64() - began;
    }
}

__device__ void link(Word* a, const Word* b, long long n) {
    const long long all = n * WORDS, step = (long long)gridDim.x * blockDim.x;
#pragma unroll 1
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step)
        a[i] = (Word)(a + b[i / WORDS] * WORDS + i % WORDS);
}
"""

DEFINES = {"LOADS": LOADS, "WORDS": WORDS, "SPREAD": SPREAD, "LINE_BYTES": LINE_BYTES}
DEFINES["SHARED_WORDS"] = SHARED_WORDS

CHAINS = (1, 4, 8)
"""Chains of a thread: more of them where the warps of an SM are not enough."""


def _form(name: str, variant: str, call: str, opcode: str, count: int = LOADS, shared: int = 0) -> CudaForm:
    return CudaForm(
        entry=name,
        code=f"ENTRY({name}) {{ {call}; }}",
        kernel="chase",
        precision="fp32",
        variant=variant,
        expect=Expect({opcode: count}, registers=64),
        grid="persistent",
        blocks=(1,),
        shared_bytes=shared,
        carveout=-1 if shared else 0,
        shim=False,
    )


CUDA = CudaFamily(
    "".join(f"#define {name} {value}\n" for name, value in DEFINES.items()) + PREAMBLE,
    (
        *(
            _form(f"chase_ca_{k}", f"ca {k}", f"chase<Ca, {k}>(a, n, count)", r"LDG\.E\.64\.STRONG\.(SM|CTA)")
            for k in CHAINS
        ),
        *(
            _form(f"chase_cg_{k}", f"cg {k}", f"chase<Cg, {k}>(a, n, count)", r"LDG\.E\.64\.STRONG\.GPU")
            for k in CHAINS
        ),
        _form("chase_shared", "shared 1", "chase_shared(a, b, count)", r"LDS(\.U)?", shared=4 * SHARED_WORDS),
        _form("chase_lines", "lines", "lines(a, s[0], n, count)", r"LDG\.E\.64\.STRONG\.GPU"),
        _form("chase_link", "link", "link(a, b, n)", r"STG\.E\.64(\.SYS)?", count=1),
    ),
)
"""`precision` says nothing here: what is loaded is a pointer."""

BY_VARIANT = {form.variant: form for form in CUDA.forms}


def cycle(np: Any, places: int, seed: int = 11) -> tuple[Any, Any]:
    """A random cycle over all `places`: the order in which they come, and which one follows each."""
    order = np.random.default_rng(seed).permutation(places).astype(np.uint64)
    following = np.empty(places, np.uint64)
    following[order] = np.roll(order, -1)
    return order, following
