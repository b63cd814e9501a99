"""The time budget of a GPU run as data: which precisions, sizes, regimes and visits fit into each preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
