"""LayerNorm over rows in fp32, the normalisation of a transformer block.

    y_j = (x_j - mean) / sqrt(variance + eps) g_j + b_j        F = 8 r c        Q = 4 (r c + r c + 2 c) byte

Eight FLOP an item: 1 for the mean, 3 for the variance, 4 to normalise, scale and shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import LINE_BYTES, Operands, blocks, shares
from bench.workloads.primitives import drain, floats, prefetch, write_out
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import ITEM_BYTES, Work

ITEM = ITEM_BYTES["fp32"]
LINE = LINE_BYTES // ITEM
COLUMNS = 1024
"""Hidden size of BERT-large: a row, its result, gain and bias (16 KiB) stay in L1."""

PIECES = 4  # of the next row, asked for with the three passes and the writing out
F = np.float32
EPSILON = F(1e-5)


def layernorm(
    out: Any, x: Any, gain: Any, bias: Any, count: Any, epsilon: Any, zero: Any, ahead: int, piece: int
) -> None:
    """One row, three passes over it in L1; `count` is its length as a number.

    With each pass `piece` bytes of the next row, at `ahead`, are asked for.
    """
    prefetch(ahead, piece)
    total = zero
    for j in range(len(x)):
        total += x[j]
    mean = total / count
    prefetch(ahead + piece, piece)
    squares = zero
    for j in range(len(x)):
        away = x[j] - mean
        squares += away * away
    factor = count / count / np.sqrt(squares / count + epsilon)
    prefetch(ahead + 2 * piece, piece)
    for j in range(len(x)):
        out[j] = (x[j] - mean) * factor * gain[j] + bias[j]


def chunk(args: Any) -> None:
    """x, y, gain, bias, scratch row, rows, columns, kind of store.

    A row is made in the scratch and written out, past the caches where x and y exceed them.
    """
    columns = args[7]
    size = columns * ITEM
    piece = size // (PIECES * LINE_BYTES) * LINE_BYTES
    gain, bias, out = floats(args[3], columns), floats(args[4], columns), floats(args[5], columns)
    for i in range(args[6]):
        x, ahead = floats(args[1] + i * size, columns), args[1] + (i + 1) * size
        layernorm(out, x, gain, bias, F(columns), EPSILON, F(0.0), ahead, piece)
        prefetch(ahead + 3 * piece, size - 3 * piece)
        write_out(args[2] + i * size, args[5], size, args[8])
    drain()


def work(sizes: Mapping[str, int]) -> Work:
    """8 FLOP an item; x, gain and bias read once, y written once."""
    items = sizes["rows"] * sizes["columns"]
    return Work.at("DRAM", 8.0 * items, reads=ITEM * (items + 2 * sizes["columns"]), writes=ITEM * items)


def fit(room: Room) -> dict[str, int]:
    """x and y together of the cold bytes."""
    return {"rows": max(1, int(room.cold_bytes / (2 * ITEM * COLUMNS))), "columns": COLUMNS}


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Cut by rows; one scratch row a thread."""
    from bench.workloads import compiled

    rows, columns = sizes["rows"], sizes["columns"]
    both, one = ITEM * rows * columns, ITEM * columns
    held = Operands({"x": both, "y": both, "gain": one, "bias": one, "scratch": one * threads})
    held.fill(run, threads, {"x": (-3.0, 5.0), "y": (0.0, 1.0), "scratch": (0.0, 1.0)}, "fp32")
    held.fill(run, threads, {"gain": (0.5, 1.5), "bias": (-1.0, 1.0)}, "fp32")
    x, y = (held.view(name, np.float32, (rows, columns)) for name in "xy")
    gain, bias = (held.view(name, np.float32, (columns,)) for name in ("gain", "bias"))
    parts = [
        (
            held.address("x", first * columns, ITEM),
            held.address("y", first * columns, ITEM),
            held.address("gain"),
            held.address("bias"),
            held.address("scratch", t * columns, ITEM),
            last - first,
            columns,
            run.past,
        )
        for t, (first, last) in enumerate(shares(rows, threads))
    ]
    return Ready(
        "native",
        "x and y together exceed the caches",
        expected=lambda: reference(x, gain, bias),
        result=lambda: y,
        address=compiled.address(chunk, layernorm),
        blocks=blocks(parts),
        keep=(held,),
    )


def reference(x: Any, gain: Any, bias: Any) -> Any:
    """The same by NumPy in fp64."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + float(EPSILON)) * gain + bias


LAYERNORM = Workload(
    name="layernorm",
    precision="fp32",
    formula="F = 8 r c, Q = 4 (r c + r c + 2 c)",
    source="per item: 1 FLOP for the mean, 3 for the variance, 4 to normalise; one read, one write",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"rows": 13, "columns": 112},
    grain={"columns": LINE},
    terms=lambda sizes: sizes["columns"],
    build=build,
)
