"""mma.sync, the matrix instruction of one warp: A, B and C in registers.

    C <- C + A B,  8 accumulators a warp, 8 steps a trip on each: 64 instructions

    m16n8k16: 64 x 2 x 16 x 8 x 16 FLOP / 32 threads = 8192 FLOP a thread and trip

Eight accumulators hide the latency of one within the warp, and 8 warps a block and more do the rest.
Neighbouring accumulators are fed by two different A, neighbouring steps by two different B.

Lane 4 g + t holds (PTX ISA, "matrix fragments", in words of 32 bits along k; of fp64, items):
A word t + 4 (i / 2) of row g + 8 (i mod 2), B word t + 4 i of column g, and of C columns 2 t and 2 t + 1 of
rows g and g + 8; where m is 8 there is no second half of rows. Memory holds A by rows and B by columns.

Compute capability decides which instruction exists in silicon, machine code which one is real:
    fp16, int8 on 7.5   half the k, then m16n8k16 and m16n8k32
    fp64 on 8.0, 10.0   m8n8k4; on 9.0 m16n8k16. All others have it for compatibility only: the compiler
                        puts tens of empty instructions behind each
    fp8 on 8.9, 12.x    m16n8k32. On 9.0, 10.x and 11.0 it is unpacked to fp16 and the product leaves the loop
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.encoding import decoded
from kernels.spec import CudaForm, Expect

WARP, N = 32, 8
CHAINS, STEPS = 8, 8  # accumulators of a warp, and instructions on each in one trip
SETS = 4  # sets of operands in b: warp w takes set w mod 4


@dataclass(frozen=True)
class Accumulator:
    """C++ of one accumulator type: result type, register type, items in a register, PTX constraint.

    pack, unpack: statements that turn a result `t` into a register, and a register `w` into a result
    """

    result: str
    word: str = ""
    lanes: int = 1
    constraint: str = "r"
    pack: str = "return t;"
    unpack: str = "return w;"
    include: str = ""


ACCUMULATORS = {
    "fp64": Accumulator("double", "double", constraint="d"),
    "fp32": Accumulator("float", "float", constraint="f"),
    "int32": Accumulator("int", "int"),
    "fp16": Accumulator(
        "float",
        "unsigned",
        2,
        pack="__half2 h = __floats2half2_rn(t, t); return *(unsigned*)&h;",
        unpack="float2 f = __half22float2(*(__half2*)&w); return f.x + f.y;",
        include="#include <cuda_fp16.h>\n",
    ),
}
"""By type; of fp16 two share a register, and their sum is taken and stored in fp32."""


@dataclass(frozen=True)
class Instruction:
    """One mma.sync: label, input and accumulator type, PTX types, shape, opcode, where it is real.

    per_word: inputs in one operand register;  registers: most that a thread may use
    """

    precision: str
    item: str
    total: str
    ptx: str
    m: int
    k: int
    per_word: int
    opcode: str
    least_cc: int = 80
    only: tuple[str, ...] = ()
    registers: int = 64

    @property
    def name(self) -> str:
        """Name of its function."""
        return f"mma_{self.ptx.split('.')[1]}_{self.ptx.split('.')[0]}_{self.shape}"

    @property
    def shape(self) -> str:
        """As PTX spells it: m16n8k16."""
        return f"m{self.m}n{N}k{self.k}"

    @property
    def words(self) -> int:
        """Operand words along k, of one row of A or one column of B."""
        return self.k // self.per_word


F16, F16_HALF = "f32.f16.f16.f32", "f16.f16.f16.f16"
I8, F64, TF32 = "s32.s8.s8.s32", "f64.f64.f64.f64", "f32.tf32.tf32.f32"
INSTRUCTIONS = (
    Instruction("fp16>fp32 matrix", "fp16", "fp32", F16, 16, 16, 2, r"HMMA\.16816\.F32"),
    Instruction("fp16>fp32 matrix", "fp16", "fp32", F16, 16, 8, 2, r"HMMA\.1688\.F32", 75, ("75",)),
    Instruction("fp16 matrix", "fp16", "fp16", F16_HALF, 16, 16, 2, r"HMMA\.16816\.F16"),
    Instruction("fp16 matrix", "fp16", "fp16", F16_HALF, 16, 8, 2, r"HMMA\.1688\.F16", 75, ("75",)),
    Instruction(
        "bf16>fp32 matrix", "bf16", "fp32", "f32.bf16.bf16.f32", 16, 16, 2, r"HMMA\.16816\.F32\.BF16"
    ),
    Instruction("fp32 matrix tf32", "fp32", "fp32", TF32, 16, 8, 1, r"HMMA\.1688\.F32\.TF32"),
    Instruction("int8>int32 matrix", "int8", "int32", I8, 16, 32, 4, r"IMMA\.16832\.S8\.S8"),
    Instruction("int8>int32 matrix", "int8", "int32", I8, 8, 16, 4, r"IMMA\.8816\.S8\.S8", 75, ("75",)),
    Instruction("fp64 matrix", "fp64", "fp64", F64, 8, 4, 1, r"DMMA\.(884|8x8x4)", 80, ("80", "100")),
    Instruction("fp64 matrix", "fp64", "fp64", F64, 16, 16, 1, r"DMMA\.16x8x16", 90, ("90",), 224),
    Instruction(
        "fp8>fp32 matrix", "fp8", "fp32", "f32.e4m3.e4m3.f32", 16, 32, 4,
        r"QMMA\.16832\.F32\.E4M3\.E4M3", 89, ("89", "120", "121"),
    ),
)  # fmt: skip

PREAMBLE = r"""
template <class Op, class W, class T>
__device__ void mma_loop(T* a, const W* b, const T* s, long long n, int count) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int row = threadIdx.x % 32 / 4, word = threadIdx.x % 4;
    constexpr int M = Op::M, K = Op::K, HALVES = M / 8;
    b += thread / 32 % SETS * (2 * (M + 8) * K);
    W x[2][HALVES * K / 4], y[2][K / 4];
    typename Op::Word c[CHAINS][Op::WORDS];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
#pragma unroll
        for (int i = 0; i < HALVES * K / 4; ++i)
            x[p][i] = b[(p * M + row + 8 * (i % HALVES)) * K + word + 4 * (i / HALVES)];
#pragma unroll
        for (int i = 0; i < K / 4; ++i) y[p][i] = b[(2 * M + p * 8 + row) * K + word + 4 * i];
    }
#pragma unroll
    for (int j = 0; j < CHAINS; ++j)
#pragma unroll
        for (int i = 0; i < Op::WORDS; ++i) c[j][i] = Op::pack(s[0] * T(j + 1));
#pragma unroll 1
    for (int trip = 0; trip < count; ++trip) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int j = 0; j < CHAINS; ++j) Op::multiply(c[j], x[j % 2], y[step % 2]);
    }
    T total = 0;
#pragma unroll
    for (int j = 0; j < CHAINS; ++j)
#pragma unroll
        for (int i = 0; i < Op::WORDS; ++i) total += Op::unpack(c[j][i]);
    if (thread < n) a[thread] = total;
}
"""
DEFINES = {"CHAINS": CHAINS, "STEPS": STEPS, "SETS": SETS}


def operation(name: str, total: Accumulator, words: int, constants: str, methods: str) -> str:
    """C++ of the struct through which a loop uses one instruction."""
    return (
        f"{total.include}struct {name} {{\n"
        f"    using Word = {total.word}; enum {{ WORDS = {words}{constants} }};\n"
        f"    static __device__ Word pack({total.result} t) {{ {total.pack} }}\n"
        f"    static __device__ {total.result} unpack(Word w) {{ {total.unpack} }}\n{methods}}};\n"
    )


def function(entry: str, loop: str, result: str, operand: str) -> str:
    """C++ of the __global__ function that runs a loop."""
    return (
        f'extern "C" __global__ void __launch_bounds__(256) {entry}({result}* a, const {operand}* b, '
        f"const {operand}* c, const {result}* s, long long n, int count) {{ {loop}(a, b, s, n, count); }}"
    )


def registers(first: int, count: int) -> str:
    """Operands of inline PTX: {%4, %5}."""
    return "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"


def _code(i: Instruction) -> str:
    total, operand, kind = ACCUMULATORS[i.total], "unsigned", "r"
    if i.item == "fp64":
        operand, kind = "double", "d"
    words, of_a, of_b = i.m * N // WARP // total.lanes, i.m // 8 * i.words // 4, i.words // 4
    accumulators = ", ".join(f'"+{total.constraint}"(c[{j}])' for j in range(words))
    inputs = [f'"{kind}"(x[{j}])' for j in range(of_a)] + [f'"{kind}"(y[{j}])' for j in range(of_b)]
    c, a, b = registers(0, words), registers(words, of_a), registers(words + of_a, of_b)
    ptx = f"mma.sync.aligned.{i.shape}.row.col.{i.ptx} {c}, {a}, {b}, {c};"
    arguments = f"Word (&c)[{words}], const {operand} (&x)[{of_a}], const {operand} (&y)[{of_b}]"
    methods = (
        f"    static __device__ void multiply({arguments}) {{\n"
        f'        asm volatile("{ptx}" : {accumulators} : {", ".join(inputs)});\n    }}\n'
    )
    struct = operation(f"Op_{i.name}", total, words, f", M = {i.m}, K = {i.words}", methods)
    return struct + function(i.name, f"mma_loop<Op_{i.name}>", total.result, operand)


def form(i: Instruction) -> CudaForm:
    """The function that measures one instruction.

    No share of the loop is asked: a matrix instruction takes several cycles, and where it takes
    many the compiler fills them with instructions that do nothing.
    """
    return CudaForm(
        entry=i.name,
        code=_code(i),
        kernel="mma",
        precision=i.precision,
        variant=i.shape,
        expect=Expect({i.opcode: CHAINS * STEPS}, registers=i.registers, forbidden=(r"F2FP\..*UNPACK.*",)),
        flops=2 * i.m * N * i.k // WARP * CHAINS * STEPS,
        grid="persistent",
        blocks=(256, 128),
        least_cc=i.least_cc,
        only=i.only,
        shim=False,
    )


BY_ENTRY = {i.name: i for i in INSTRUCTIONS}
FORMS = tuple(form(i) for i in INSTRUCTIONS)


def matrices(np: Any, i: Instruction, b: Any) -> tuple[Any, Any]:
    """A as [set, which, row, k] and B as [set, which, k, column] of the array b, decoded."""
    values = decoded(np, i.item, b).reshape(SETS, 2 * (i.m + N), i.k)
    a, by_column = values[:, : 2 * i.m].reshape(SETS, 2, i.m, i.k), values[:, 2 * i.m :]
    return a, by_column.reshape(SETS, 2, N, i.k).swapaxes(2, 3)


def expected(np: Any, form: CudaForm, b: Any, s: Any, threads: int, trips: int) -> Any:
    """Sum of all accumulators of each thread after `trips` trips."""
    i = BY_ENTRY[form.entry]
    a, b = matrices(np, i, b)
    products = a @ b.sum(axis=1, keepdims=True)  # [set, which A, row, column], both B in turn
    total = CHAINS // 2 * trips * STEPS // 2 * products.sum(axis=1)
    total = total + s.astype(total.dtype)[0] * sum(range(1, CHAINS + 1))
    thread = np.arange(threads)
    own = total[thread // WARP % SETS]
    row, column = thread % WARP // 4, thread % 4 * 2
    rows = range(0, i.m, 8)
    return sum(own[thread, row + high, column + right] for high in rows for right in (0, 1))
