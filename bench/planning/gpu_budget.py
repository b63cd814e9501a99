"""The time budget of a GPU run as data: which precisions, sizes, regimes and visits fit into each preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.planning.planned import PRESETS
from kernels.mix import cuda_points
from kernels.spec import ITEM_BYTES

HEADLINES = ("fp32", "fp64", "fp16", "bf16")
"""Precisions that are measured first and given up last, with their matrix products."""

VECTOR = (*HEADLINES, "int32", "int8")
LIBRARY = (*HEADLINES, "tf32", "int8", "fp8", "fp4")
MATRIX = ("fp16", "bf16", "tf32", "int8", "fp64", "fp8")
"""Precisions that the three units may have, most wanted first."""

ACCESSES = ("read", "write", "update", "copy")
STARTS = ("plain", "graph", "host", "sync")
"""Ways in which kernels/launch.py starts a kernel."""

MEANS = {"copy-pageable": ("",), "zero-copy": ("v16 l4 b256",), "managed": ("prefetch", "fault")}
"""Ways of crossing the host link beside copies of locked memory, and the forms of each."""


def fourfold(least: int, most: int) -> tuple[int, ...]:
    """Powers of two from 2^least to 2^most, every second one."""
    return tuple(1 << n for n in range(least, most + 1, 2))


Shape = tuple[int, int, int]
"""m, n, k of a matrix product."""


def squares(*edges: int) -> tuple[Shape, ...]:
    """Square products."""
    return tuple((n, n, n) for n in edges)


SWEEP = squares(512, 1024, 2048, 4096, 8192, 16384)
"""Of the efficiency curve over sizes."""


@dataclass(frozen=True)
class Budget:
    """What one preset measures on a GPU; a precision that is asked for by name is measured all the same.

    fma, gemm, tensor: precisions of the register chains, the library and the matrix units
    streams, stream_precisions: kernels and item types of the DRAM bandwidths
    mix: precisions of the intensity sweep;  both: those also in place
    dense: precisions with all intensities (in place only with `dense_in_place`)
    shapes: of a matrix product;  swept: precisions with the whole size sweep;  zeros: of zeros, too
    kinds: how many accumulations a library or matrix precision is measured with
    burst: precisions of chains and products that are also measured cold
    sustained: rounds in which the three headline ceilings run for 10 s each
    visits: a round to each ceiling;  longest: seconds that one product may take
    caches, shared: accesses in L2 and in shared memory;  swept_sets: accesses swept over working sets
    sets, chased_sets: working sets an octave of those sweeps, and of the latency (0: levels only)
    crowds: chains an SM of the concurrency curves;  starts: of an empty kernel
    smallest: bytes of the smallest kernel;  scaled: precisions of chains on fewer SMs
    sm_step: factor between numbers of SMs (0: none);  sparse: precisions of the sweep with few blocks an SM
    transfers: bytes of copies, from locked host memory, within the GPU and to others;  host_ways: accesses
    other_means: further ways over the host link, with their forms;  other_transfers: their bytes
    collected: bytes of collectives, where there are several GPUs (and work on all of them, with sm_step)
    chunks: of the pipelining experiment;  few_chunks: where computing is shorter or longer than moving
    detail_rounds: in which the points of these curves are measured, the first ones (0: all)
    """

    fma: tuple[str, ...]
    gemm: tuple[str, ...]
    tensor: tuple[str, ...]
    streams: tuple[str, ...]
    stream_precisions: tuple[str, ...]
    mix: tuple[str, ...]
    dense: tuple[str, ...]
    dense_in_place: bool
    both: tuple[str, ...]
    shapes: tuple[Shape, ...]
    swept: tuple[str, ...]
    zeros: tuple[str, ...]
    kinds: int
    burst: tuple[str, ...]
    sustained: int
    visits: int
    longest: float
    caches: tuple[str, ...]
    shared: tuple[str, ...]
    swept_sets: tuple[str, ...]
    sets: float
    chased_sets: float
    crowds: tuple[int, ...]
    starts: tuple[str, ...]
    smallest: tuple[int, ...]
    scaled: tuple[str, ...]
    sm_step: int
    sparse: tuple[str, ...]
    transfers: tuple[int, ...]
    host_ways: tuple[str, ...]
    other_means: Mapping[str, tuple[str, ...]]
    other_transfers: tuple[int, ...]
    collected: tuple[int, ...]
    chunks: tuple[int, ...]
    few_chunks: tuple[int, ...]
    detail_rounds: int


BUDGETS = {
    "quick": Budget(
        fma=HEADLINES,
        gemm=HEADLINES,
        tensor=("fp16", "bf16"),
        streams=("read", "write", "copy", "triad"),
        stream_precisions=("fp32",),
        mix=("fp32",),
        dense=(),
        dense_in_place=False,
        both=(),
        shapes=squares(4096, 8192),
        swept=(),
        zeros=(),
        kinds=1,
        burst=(),
        sustained=0,
        visits=1,
        longest=0.1,
        caches=("read",),
        shared=(),
        swept_sets=(),
        sets=0,
        chased_sets=0,
        crowds=(),
        starts=("plain",),
        smallest=(),
        scaled=(),
        sm_step=0,
        sparse=(),
        transfers=(1 << 16, 1 << 20, 1 << 26),
        host_ways=("h2d", "d2h"),
        other_means={},
        other_transfers=(),
        collected=(),
        chunks=(),
        few_chunks=(),
        detail_rounds=0,
    ),
    "standard": Budget(
        fma=VECTOR,
        gemm=LIBRARY,
        tensor=MATRIX,
        streams=("read", "update", "write", "copy", "triad"),
        stream_precisions=("fp32",),
        mix=("fp32", "fp64"),
        dense=("fp32",),
        dense_in_place=False,
        both=("fp32",),
        shapes=squares(4096, 8192),
        swept=("fp32", "fp16"),
        zeros=("fp16",),
        kinds=2,
        burst=("fp32", "fp16"),
        sustained=1,
        visits=1,
        longest=0.3,
        caches=ACCESSES,
        shared=("read", "copy"),
        swept_sets=("read",),
        sets=2.0,
        chased_sets=0.5,
        crowds=(1, 4, 16, 64, 256),
        starts=STARTS,
        smallest=(1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 24),
        scaled=("fp32",),
        sm_step=4,
        sparse=("fp32",),
        transfers=tuple(1 << n for n in (10, 11, 12, 13, 15, 17, 20, 24, 28)),
        host_ways=("h2d", "d2h", "both"),
        other_means=MEANS,
        other_transfers=tuple(1 << n for n in (16, 20, 24, 27)),
        collected=fourfold(12, 28),
        chunks=tuple(1 << n for n in range(7)),
        few_chunks=(1, 4, 16, 64),
        detail_rounds=3,
    ),
    "full": Budget(
        fma=VECTOR,
        gemm=LIBRARY,
        tensor=MATRIX,
        streams=("read", "update", "write", "copy", "triad", "scale", "add"),
        stream_precisions=("fp32", "fp64"),
        mix=("fp32", "fp64", "fp16"),
        dense=("fp32", "fp64", "fp16"),
        dense_in_place=True,
        both=("fp32", "fp64", "fp16"),
        shapes=(*squares(4096, 8192, 16384), (8192, 8192, 4096), (16384, 8192, 8192), (8192, 16384, 4096)),
        swept=("fp32", "fp64", "fp16", "bf16"),
        zeros=("fp32", "fp16", "bf16", "int8", "fp8"),
        kinds=2,
        burst=("fp32", "fp64", "fp16", "bf16"),
        sustained=3,
        visits=2,
        longest=1.0,
        caches=ACCESSES,
        shared=ACCESSES,
        swept_sets=ACCESSES,
        sets=2.0,
        chased_sets=2.0,
        crowds=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        starts=STARTS,
        smallest=tuple(1 << n for n in range(10, 26)),
        scaled=("fp32", "fp64"),
        sm_step=2,
        sparse=("fp32", "fp64"),
        transfers=tuple(sorted((1 << 11, 1 << 13, *fourfold(10, 30)))),
        host_ways=("h2d", "d2h", "both"),
        other_means=MEANS,
        other_transfers=fourfold(10, 30),
        collected=fourfold(10, 32),
        chunks=tuple(1 << n for n in range(7)),
        few_chunks=tuple(1 << n for n in range(7)),
        detail_rounds=0,
    ),
}
"""By the name of the preset: 1, 3 and 15 minutes."""


def listed(names: Sequence[str]) -> str:
    """For a cell of the table."""
    return ", ".join(names) or "–"


def _intensities(budget: Budget) -> str:
    counts = [len(cuda_points(ITEM_BYTES["fp32"], False, dense)) for dense in (False, True)]
    every = f"{counts[1]} in {listed(budget.dense)}" if budget.dense else ""
    return "; ".join(filter(None, (every, f"{counts[0]} in others" if every else f"{counts[0]}")))


ROWS: tuple[tuple[str, Callable[[Budget], str]], ...] = (
    ("chains in registers (fma)", lambda b: listed(b.fma)),
    ("streams from DRAM", lambda b: f"{listed(b.streams)} in {listed(b.stream_precisions)}"),
    ("library products (gemm)", lambda b: listed(b.gemm)),
    ("matrix units (tensor)", lambda b: listed(b.tensor)),
    ("intensity sweep (mix)", lambda b: f"{listed(b.mix)}; in place {listed(b.both)}"),
    ("... settings of a sweep", _intensities),
    ("shapes of a product", lambda b: listed(tuple("x".join(map(str, s)) for s in b.shapes))),
    ("... sizes 512 to 16384", lambda b: listed(b.swept)),
    ("... zeros beside random", lambda b: listed(b.zeros)),
    ("accesses in L2", lambda b: listed(b.caches)),
    ("... in shared memory", lambda b: listed(b.shared)),
    ("... swept over working sets", lambda b: listed(b.swept_sets)),
    ("latency of a level", lambda b: "each" + (", and over working sets" if b.chased_sets else "")),
    ("... chains an SM", lambda b: listed(tuple(map(str, b.crowds)))),
    ("starts of an empty kernel", lambda b: listed(b.starts)),
    ("... sizes of the smallest", lambda b: str(len(b.smallest)) if b.smallest else "–"),
    ("fewer SMs", lambda b: f"1, {b.sm_step}, {b.sm_step**2}, ..., all" if b.sm_step else "–"),
    ("intensity sweep, 1 block an SM", lambda b: listed(b.sparse)),
    ("copies of locked memory", lambda b: f"{', '.join(b.host_ways)} in {len(b.transfers)} sizes"),
    ("... up to", lambda b: f"{b.transfers[-1] >> 20} MiB"),
    ("further ways over the host link", lambda b: listed(tuple(b.other_means))),
    ("chunks of the pipeline", lambda b: f"{b.chunks[0]} to {b.chunks[-1]}" if b.chunks else "–"),
    ("sizes of collectives, on several GPUs", lambda b: str(len(b.collected)) if b.collected else "–"),
    ("rounds of such detail", lambda b: str(b.detail_rounds) if b.detail_rounds else "all"),
    ("longest single product", lambda b: f"{b.longest:g} s"),
    ("burst, on a cool device", lambda b: listed(b.burst)),
    ("sustained, 10 s each", lambda b: f"{b.sustained}x in the run" if b.sustained else "–"),
    ("visits of a ceiling a round", lambda b: str(b.visits)),
)
"""Rows of the table in docs/gpu-budget.md, and what each says of a preset."""


def table() -> str:
    """The budgets as a Markdown table, one column a preset."""
    rounds = [f"{p.rounds}, at least {p.least_rounds}" for p in PRESETS.values()]
    rows = [
        ["", *(f"{p.name}, {p.minutes:g} min" for p in PRESETS.values())],
        ["---"] * (1 + len(PRESETS)),
        ["rounds", *rounds],
        *([title, *(tell(BUDGETS[name]) for name in PRESETS)] for title, tell in ROWS),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
