"""wgmma, the matrix instruction of four warps (sm_90a): A and B in shared memory, C in registers.

    C <- C + A B,  A 64 x k, B k x 256, 32 bytes of each row and column in one instruction

    m64n256k16: 8 instructions x 2 x 64 x 256 x 16 FLOP / 128 threads = 32768 FLOP a thread and trip

Why this shape: n = 256 reads the fewest bytes of shared memory for a FLOP (10 KiB in the 128 cycles that
4096 FLOP a cycle need for m64n256k16). Four instructions make a commit group, all on one set of accumulators:
the hardware runs them in order and no fence lies between them. After each group the loop waits until at most
one is in flight, so that one is always queued while one runs. Two or more groups of warps share an SM.
The accumulators may not be touched while a group is in flight: inside the loop only wgmma names them, and
the last wait names all of them again, so that no compiler can move their sum before it.

A and B^T lie K-major, 128 bytes to a row, in the 128-byte swizzle: the 16 bytes c of row r lie at
c ^ (r mod 8). The descriptor (PTX ISA, "matrix descriptor format") holds address / 16 in bits 0-13, the
distance of 8 rows (1024) / 16 in bits 32-45 and 1 for this swizzle in bits 62-63; the leading offset is
not used here (1). The next 32 bytes along k are 2 further on in the address.

What the check can see: with operands `check` all of A is one number and all of B another, so the product
is known whatever the layout: lost instructions, accumulators, steps, trips or warps show, not where
an element lies. With operands `layout` all elements differ, and a wrong descriptor or swizzle shows too.
Time depends on neither as long as no banks conflict, so `check` decides whether a form is timed, and
`layout` belongs to the tests on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.encoding import decoded
from kernels.mma import ACCUMULATORS, function, operation, registers
from kernels.spec import CudaForm, Expect

M, N = 64, 256
ROW_BYTES, STEP_BYTES, SWIZZLE_ROWS = 128, 32, 8  # of a row of a tile, of one instruction, of the pattern
STEPS = ROW_BYTES // STEP_BYTES  # instructions of a commit group
GROUPS = 2  # commit groups of a trip
THREADS = 128  # that work on one product
TILE_BYTES, ATOM = (M + N) * ROW_BYTES, SWIZZLE_ROWS * ROW_BYTES
DEFINES = {
    "TILE_BYTES": TILE_BYTES,
    "A_BYTES": M * ROW_BYTES,
    "ATOM": ATOM,
    "IN_GROUP": STEPS,
    "GROUPS": GROUPS,
}

PREAMBLE = r"""
using Descriptor = unsigned long long;
__device__ inline Descriptor descriptor(unsigned address) {
    return (address & 0x3FFFF) >> 4 | 1ull << 16 | Descriptor(ATOM >> 4) << 32 | 1ull << 62;
}

template <class Op, class T>
__device__ void wgmma_loop(T* a, const unsigned* b, const T* s, long long n, int count) {
    extern __shared__ unsigned char memory[];
    unsigned tile = (unsigned)__cvta_generic_to_shared(memory);
    const unsigned skipped = (ATOM - tile % ATOM) % ATOM;  // the swizzle is one of addresses
    unsigned* words = reinterpret_cast<unsigned*>(memory + skipped);
    tile += skipped;
    for (int i = threadIdx.x; i < TILE_BYTES / 4; i += blockDim.x) words[i] = b[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads by another path than we store
    __syncthreads();
    const Descriptor of_a = descriptor(tile), of_b = descriptor(tile + A_BYTES);
    typename Op::Word c[Op::WORDS];
#pragma unroll
    for (int i = 0; i < Op::WORDS; ++i) c[i] = Op::pack(s[0]);
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
            for (int step = 0; step < IN_GROUP; ++step) Op::multiply(c, of_a + 2 * step, of_b + 2 * step);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        }
    }
    Op::wait(c);
    T total = 0;
#pragma unroll
    for (int i = 0; i < Op::WORDS; ++i) total += Op::unpack(c[i]);
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread < n) a[thread] = total;
}
"""


@dataclass(frozen=True)
class Instruction:
    """One wgmma: label, input and accumulator type, PTX types, inputs along k, opcode, PTX tail.

    tail: signs of A and B (+1) and, of 16-bit inputs, which of them are transposed (none)
    """

    precision: str
    item: str
    total: str
    ptx: str
    k: int
    opcode: str
    tail: str = ", 1, 1"

    @property
    def name(self) -> str:
        """Name of its function."""
        return f"wgmma_{self.ptx.split('.')[1]}_{self.ptx.split('.')[0]}"


HALF = ", 1, 1, 0, 0"
INSTRUCTIONS = (
    Instruction("fp16>fp32 matrix", "fp16", "fp32", "f32.f16.f16", 16, r"HGMMA\.64x256x16\.F32", HALF),
    Instruction("fp16 matrix", "fp16", "fp16", "f16.f16.f16", 16, r"HGMMA\.64x256x16\.F16", HALF),
    Instruction(
        "bf16>fp32 matrix", "bf16", "fp32", "f32.bf16.bf16", 16, r"HGMMA\.64x256x16\.F32\.BF16", HALF
    ),
    Instruction("fp32 matrix tf32", "fp32", "fp32", "f32.tf32.tf32", 8, r"HGMMA\.64x256x8\.F32\.TF32"),
    Instruction("int8>int32 matrix", "int8", "int32", "s32.s8.s8", 32, r"IGMMA\.64x256x32\.S8\.S8", ""),
    Instruction("fp8>fp32 matrix", "fp8", "fp32", "f32.e4m3.e4m3", 32, r"QGMMA\.64x256x32\.F32\.E4M3\.E4M3"),
)


def _code(i: Instruction) -> str:
    total = ACCUMULATORS[i.total]
    words = M * N // THREADS // total.lanes
    bound = ", ".join(f'"+{total.constraint}"(c[{j}])' for j in range(words))
    ptx = f"wgmma.mma_async.sync.aligned.m{M}n{N}k{i.k}.{i.ptx} {registers(0, words)}"
    methods = (
        "    static __device__ void multiply(Word (&c)[WORDS], Descriptor a, Descriptor b) {\n"
        f'        asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0;"\n'
        f'            "{ptx}, %{words}, %{words + 1}, p{i.tail}; }}"\n'
        f'            : {bound} : "l"(a), "l"(b));\n    }}\n'
        "    static __device__ void wait(Word (&c)[WORDS]) {\n"
        f'        asm volatile("wgmma.wait_group.sync.aligned 0;" : {bound} :: "memory");\n    }}\n'
    )
    struct = operation(f"Op_{i.name}", total, words, "", methods)
    return struct + function(i.name, f"wgmma_loop<Op_{i.name}>", total.result, "unsigned")


WAITS = {r"WARPGROUP\.DEPBAR\.LE": GROUPS, r"WARPGROUP\.ARRIVE": 1}
"""In a trip: our own waits and fence. Where a compiler does not see that only wgmma touches the accumulators,
it puts more of them between the instructions, which then run one by one."""


def form(i: Instruction) -> CudaForm:
    """The function that measures one instruction."""
    return CudaForm(
        entry=i.name,
        code=_code(i),
        kernel="wgmma",
        precision=i.precision,
        variant=f"m{M}n{N}k{i.k}",
        expect=Expect({i.opcode: STEPS * GROUPS, **WAITS}, registers=168, forbidden=(r"[HIQ]MMA\..*",)),
        flops=2 * M * N * i.k // THREADS * STEPS * GROUPS,
        grid="persistent",
        blocks=(128, 256),
        shared_bytes=TILE_BYTES + ATOM,
        least_cc=90,
        only=("90a",),
        shim=False,
    )


BY_ENTRY = {i.name: i for i in INSTRUCTIONS}
FORMS = tuple(form(i) for i in INSTRUCTIONS)


def swizzled(np: Any, rows: Any) -> Any:
    """Rows of 128 bytes with their 16-byte chunks where the hardware looks for them; its own inverse."""
    chunks = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1, 16)
    row, chunk = np.indices(chunks.shape[:2])
    return chunks[row, chunk ^ row % SWIZZLE_ROWS].reshape(len(rows), -1).view(rows.dtype)


def expected(np: Any, form: CudaForm, b: Any, s: Any, threads: int, trips: int) -> Any:
    """Sum of all accumulators of each thread after `trips` trips."""
    i = BY_ENTRY[form.entry]
    rows = decoded(np, i.item, swizzled(np, b.reshape(M + N, -1)))
    total = trips * GROUPS * (rows[:M] @ rows[M:].T)
    total = total + s.astype(total.dtype)[0]
    thread = np.arange(threads) % THREADS
    row = thread // 32 * 16 + thread % 32 // 4
    by_column = total.reshape(M, N // 8, 4, 2).sum(axis=(1, 3))  # columns 8 j + 2 t and 8 j + 2 t + 1
    return by_column[row, thread % 4] + by_column[row + 8, thread % 4]
