"""Adjustable intensity: blocks of 12 vectors streamed past 12 accumulators, F FMAs a block.

    read-only: 2 F lanes FLOP against 12 lanes items loaded             I = F / (6 item bytes)
    in-place:  the same FLOP against 12 lanes items loaded and stored   I = F / (12 item bytes)

The first FMA of an accumulator takes the loaded vector, acc <- acc m + x; F / 12 - 1 further
rounds acc <- acc m + acc run over all 12 in a loop whose count is given at run time, so that
neighbouring intensities share one code shape. Twelve accumulators persist over blocks: always
12 chains in flight, no bubble at a block's end. F < 12 gives the low end: the vectors without
an FMA are folded into a bit-wise checksum (read-only) or stored negated (in-place): real
traffic, no FLOP. With m tiny the accumulators stay close to the data: passes over what was
stored in place neither grow nor become denormal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels.encoding import decoded, encoded
from kernels.intensities import THREAD_BYTES, TYPES, VECTOR_BYTES, bodies
from kernels.intensities import cuda_points as cuda_points
from kernels.spec import ITEM_BYTES, CudaFamily, CudaForm, Expect, Kernel, MixShape, Work

BLOCK_VECTORS = 12


def mix_read_only(x: Any, bits: Any, m: Any, fma: int) -> Any:
    """Scalar form (lanes = 1); `bits` is `x` seen as integers."""
    accumulators = [m - m] * BLOCK_VECTORS
    checksum = 0
    for start in range(0, len(x), BLOCK_VECTORS):
        for v in range(BLOCK_VECTORS):
            if v < fma:
                accumulators[v] = accumulators[v] * m + x[start + v]
            else:
                checksum = checksum ^ bits[start + v]
        for _ in range(1, fma // BLOCK_VECTORS):
            for v in range(BLOCK_VECTORS):
                accumulators[v] = accumulators[v] * m + accumulators[v]
    return accumulators, checksum


def mix_in_place(x: Any, bits: Any, m: Any, fma: int) -> Any:
    """Scalar form (lanes = 1); a negation is no FLOP."""
    accumulators = [m - m] * BLOCK_VECTORS
    for start in range(0, len(x), BLOCK_VECTORS):
        for v in range(min(fma, BLOCK_VECTORS)):
            accumulators[v] = accumulators[v] * m + x[start + v]
        for _ in range(1, fma // BLOCK_VECTORS):
            for v in range(BLOCK_VECTORS):
                accumulators[v] = accumulators[v] * m + accumulators[v]
        for v in range(BLOCK_VECTORS):
            x[start + v] = accumulators[v] if v < fma else -x[start + v]
    return accumulators, 0


def blocks(np: Any, x: Any, lanes: int, streams: int) -> Any:
    """View of `x` as [block, vector, lane]: each block takes 12 / streams vectors of every sub-stream."""
    vectors = BLOCK_VECTORS // streams
    cut = x.reshape(streams, -1, vectors, lanes)
    return np.swapaxes(cut, 0, 1).reshape(-1, BLOCK_VECTORS, lanes)


def reference(write_back: bool) -> Callable[..., Any]:
    """NumPy result (accumulators in fp64, stored blocks) for any lanes and number of sub-streams."""

    def result(np: Any, x: Any, m: float, fma: int, lanes: int = 1, streams: int = 1) -> Any:
        loaded = blocks(np, x, lanes, streams)
        stored = -loaded.astype(np.float64)
        busy = min(fma, BLOCK_VECTORS)
        accumulators = np.zeros((BLOCK_VECTORS, lanes))
        for b in range(len(loaded)):
            accumulators[:busy] = accumulators[:busy] * m + loaded[b, :busy]
            for _ in range(1, fma // BLOCK_VECTORS):
                accumulators = accumulators * m + accumulators
            stored[b, :busy] = accumulators[:busy]
        return accumulators, stored if write_back else loaded

    return result


def cost(write_back: bool) -> Callable[[int, Mapping[str, int], str], Work]:
    """Work of streaming `sizes["n"]` items with `sizes["fma"]` FMAs on each `sizes["block"]` of them.

    Without "block": vector FMAs on a block of 12 vectors, as the loops for CPUs do.
    """

    def work(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
        moved = sizes["n"] * item_bytes
        flops = 2.0 * sizes["fma"] * sizes["n"] / sizes.get("block", BLOCK_VECTORS)
        return Work.at(level, flops, reads=moved, writes=moved if write_back else 0)

    return work


KERNELS = (
    Kernel("mix-read-only", "mix", "read", cost(False), mix_read_only, reference(False), MixShape(False)),
    Kernel("mix-in-place", "mix", "update", cost(True), mix_in_place, reference(True), MixShape(True)),
)

MODES = {kernel.name.removeprefix("mix-"): kernel.access for kernel in KERNELS}  # and its access

# CUDA. A thread holds E items, four 16-byte vectors, as packs (fp16: half2), one accumulator a pack: 8
# chains of fp64, 16 of the others. A trip takes the loaded x once, acc <- acc m + x, and goes on with
# acc <- acc m + acc for the rest of its R rounds over all packs; all trips are alike.
#
#   low F    one round over the first F items, the others cost nothing: a checksum of their bits
#            (read-only) or neighbouring packs stored in each other's place (in-place)
#   fine     128 FMA instructions a trip, then single rounds: count is rounds
#   coarse   256 FMA instructions a trip: the plateau
#
# read-only: as many blocks as the device holds, accumulators persist over a block's tiles, the sum of a
# thread's is its one result (a pack), so no load can be dropped. in-place: a thread for every E items, acc
# starts as x. n is a multiple of block x E. With fma.FACTORS acc stays x to the last bit: always finite.
PREAMBLE = r"""
#include <cuda_fp16.h>
#define UNROLL _Pragma("unroll")
#define ENTRY(NAME, P) extern "C" __global__ void __launch_bounds__(512) NAME( \
    P* a, const P* b, const P* c, const P* s, long long n, int count)

constexpr int LOADS = 4;
template <class P> constexpr int N = 16 / sizeof(P);       // packs of a vector
template <class P> constexpr int PACKS = LOADS * N<P>;     // of a thread
template <class P> constexpr int LANES = 1;                // items of a pack
template <> constexpr int LANES<__half2> = 2;

__device__ double fused(double x, double m, double y) { return __fma_rn(x, m, y); }
__device__ float fused(float x, float m, float y) { return __fmaf_rn(x, m, y); }
__device__ __half2 fused(__half2 x, __half2 m, __half2 y) { return __hfma2(x, m, y); }
template <class P> __device__ P spread(unsigned x) { return P(x); }
template <> __device__ __half2 spread<__half2>(unsigned x) { return __float2half2_rn(x); }
template <class P> __device__ unsigned folded(P x) {
    const unsigned* word = reinterpret_cast<const unsigned*>(&x);
    return sizeof(P) == 8 ? word[0] ^ word[1] : word[0];
}

template <class P> __device__ void load(P (&x)[PACKS<P>], const P* tile) {
    const int4* from = reinterpret_cast<const int4*>(tile) + threadIdx.x;
    UNROLL for (int k = 0; k < LOADS; ++k) {
        const int4 bits = from[k * blockDim.x];  // a struct of half2 would be loaded in 32-bit pieces
        UNROLL for (int i = 0; i < N<P>; ++i) x[k * N<P> + i] = reinterpret_cast<const P*>(&bits)[i];
    }
}

template <int F, int R, class P> __device__ void trip(P (&acc)[PACKS<P>], const P (&x)[PACKS<P>], P m) {
    UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int j = 0; j < F; ++j) acc[j] = fused(acc[j], m, r ? acc[j] : x[j]);
}

template <int F, int R, bool SINGLES, class P>
__device__ void trips(P (&acc)[PACKS<P>], const P (&x)[PACKS<P>], P m, unsigned count) {
    if constexpr (F < PACKS<P>) return trip<F, 1>(acc, x, m);
#pragma unroll 1
    for (unsigned t = SINGLES ? count / R : count; t > 0; --t) trip<F, R>(acc, x, m);
#pragma unroll 1
    for (unsigned t = SINGLES ? count % R : 0; t > 0; --t) trip<F, 1>(acc, x, m);
}

template <class P, int F, int R, bool SINGLES>
__device__ void read_only(P* a, const P* b, P m, long long n, int count) {
    const unsigned tile = blockDim.x * PACKS<P>;
    P acc[PACKS<P>], x[PACKS<P>];
    unsigned bits = 0;
    UNROLL for (int j = 0; j < F; ++j) acc[j] = spread<P>(0);
#pragma unroll 1
    for (long long t = blockIdx.x; (t + 1) * tile <= n / LANES<P>; t += gridDim.x) {
        load(x, b + t * tile);
        trips<F, R, SINGLES>(acc, x, m, count);
        UNROLL for (int j = F; j < PACKS<P>; ++j) bits ^= folded(x[j]);
    }
    P total = acc[0];
    UNROLL for (int j = 1; j < F; ++j) total = total + acc[j];
    if constexpr (F < PACKS<P>) total = total + spread<P>(__popc(bits));
    a[(long long)blockIdx.x * blockDim.x + threadIdx.x] = total;
}

template <class P, int F, int R, bool SINGLES> __device__ void in_place(P* a, P m, int count) {
    P* tile = a + (long long)blockIdx.x * blockDim.x * PACKS<P>;
    P acc[PACKS<P>], x[PACKS<P>];
    load(x, tile);
    UNROLL for (int j = 0; j < PACKS<P>; ++j) acc[j] = j < F ? x[j] : x[j ^ 1];
    trips<F, R, SINGLES>(acc, x, m, count);
    int4 bits, *to = reinterpret_cast<int4*>(tile) + threadIdx.x;
    UNROLL for (int k = 0; k < LOADS; ++k) {
        UNROLL for (int i = 0; i < N<P>; ++i) reinterpret_cast<P*>(&bits)[i] = acc[k * N<P> + i];
        to[k * blockDim.x] = bits;
    }
}
"""

SHARES = {"fine": 0.95, "coarse": 0.97}
MOVED = ({r"LDG\.E\.128(\.CONSTANT)?(\.SYS)?": 4}, {r"STG\.E\.128(\.SYS)?": 4})


def _form(precision: str, write_back: bool, variant: str) -> CudaForm:
    pack, lanes, opcode = TYPES[precision]
    packs, rounds = bodies(precision, write_back)[variant]
    entry = f"mix_{'in_place' if write_back else 'read_only'}_{precision}_{variant}"
    shape = f"<{pack}, {packs}, {rounds}, {str(variant == 'fine').lower()}>"
    call = f"in_place{shape}(a, s[0], count)" if write_back else f"read_only{shape}(a, b, s[0], n, count)"
    low, wanted = variant not in SHARES, {opcode + r"(\..+)?": packs * rounds}
    wanted |= (MOVED[0] | MOVED[1] if write_back else MOVED[0]) if low else {}
    return CudaForm(
        entry=entry,
        code=f"ENTRY({entry}, {pack}) {{ {call}; }}",
        kernel=KERNELS[write_back].name,
        precision=precision,
        variant=variant,
        expect=Expect(wanted, not (low and write_back), SHARES.get(variant, 0.0), 128, registers=80),
        items=THREAD_BYTES // ITEM_BYTES[precision],
        flops=2 * lanes * packs * (1 if variant == "fine" else rounds),
        grid="cover" if write_back else "persistent",
    )


CUDA = CudaFamily(PREAMBLE, tuple(_form(p, w, v) for w in (False, True) for p in TYPES for v in bodies(p, w)))
"""For F FMA on each E items `count` is 2 F / flops."""


def checked_count(form: CudaForm, count: int) -> int:
    """At most this count while checking: every loop of the form is passed, and fp16 stays in reach."""
    packs = form.items // TYPES[form.precision][1]
    return min(count, 128 // packs + 2 if form.variant == "fine" else 3)


def expected(np: Any, form: CudaForm, x: Any, m: float, count: int, grid: int, block: int) -> Any:
    """What a launch leaves in `a`, rounded as the device rounds: the n items in place, else [thread, lane].

    x: the n items as they were (a in place, else b);  m: for one item
    """
    lanes, write_back = TYPES[form.precision][1], form.kernel == KERNELS[1].name
    packs, rounds = bodies(form.precision, write_back)[form.variant]
    whole, singles = divmod(count, rounds) if form.variant == "fine" else (count, 0)
    vectors = x.reshape(-1, THREAD_BYTES // VECTOR_BYTES, block, VECTOR_BYTES // lanes // x.itemsize, lanes)
    cut = vectors.swapaxes(1, 2).reshape(len(vectors), block, -1, lanes)  # tile, thread, pack, lane
    busy, idle = cut[:, :, :packs].astype(np.float64), cut[:, :, packs:]

    def rounded(x: Any) -> Any:
        return decoded(np, form.precision, encoded(np, form.precision, x))

    def run(acc: Any, loaded: Any) -> Any:
        for r in [*range(rounds)] * whole + [0] * singles:
            acc = rounded(acc * m + (acc if r else loaded))
        return acc

    if write_back:
        swapped = idle.reshape(*idle.shape[:2], -1, 2, lanes)[:, :, :, ::-1].reshape(idle.shape)
        stored = np.concatenate([run(busy, busy), swapped], axis=2)
        return stored.reshape(len(stored), block, len(vectors[0]), -1, lanes).swapaxes(1, 2).reshape(-1)
    acc, words = np.zeros((grid, *busy.shape[1:])), np.zeros((grid, block), np.uint32)
    for t in range(0, len(busy), grid):
        n = len(busy[t : t + grid])
        acc[:n] = run(acc[:n], busy[t : t + grid])
        bits = np.ascontiguousarray(idle[t : t + grid]).reshape(n, block, -1).view(np.uint32)
        words[:n] ^= np.bitwise_xor.reduce(bits, axis=-1)
    total = acc[:, :, 0]
    for j in range(1, packs):
        total = rounded(total + acc[:, :, j])
    return rounded(total + np.bitwise_count(words)[..., None]).reshape(-1, lanes)
