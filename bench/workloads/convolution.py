"""One convolution of ResNet-50 in fp32: 3 x 3, 64 to 64 channels, padded, at 56 x 56 (conv2_x).

    y_n,i,j,o = sum over r, s, c of x_n,i+r,j+s,c w_r,s,c,o
    F = 2 N H W C 9 C        Q = 4 (N H W C + 9 C C + N H W C) byte

An implicit GEMM: channels are innermost, so the 3 C inputs below one row of the window lie side by
side, and a tile of pixels x output channels is summed in registers without any copy of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workloads.operands import Operands, blocks, sets_beyond, shares
from bench.workloads.shapes import CHANNELS, PIXEL, SINGLE, WINDOW
from bench.workloads.workload import Ready, Room, Run, Workload
from kernels.launch import BY_THREADS
from kernels.spec import Work

EDGE = 56


def convolve(y: Any, x: Any, w: Any, zero: Any) -> None:
    """The textbook loops, on nested sequences y[i][j][o], x[i][j][c] (padded), w[r][s][c][o]."""
    for i in range(len(y)):
        for j in range(len(y[i])):
            for o in range(len(y[i][j])):
                total = zero
                for r in range(len(w)):
                    for s in range(len(w[r])):
                        for c in range(len(w[r][s])):
                            total = total + x[i + r][j + s][c] * w[r][s][c][o]
                y[i][j][o] = total


def work(sizes: Mapping[str, int]) -> Work:
    """2 FLOP a term, padding included as is usual; input and weights read once, output written once."""
    outputs = sizes["images"] * sizes["edge"] ** 2 * CHANNELS
    weights = (WINDOW * CHANNELS) ** 2
    return Work.at(
        "DRAM",
        2.0 * outputs * WINDOW * WINDOW * CHANNELS,
        reads=SINGLE * (outputs + weights),
        writes=SINGLE * outputs,
    )


def fit(room: Room) -> dict[str, int]:
    """The layer itself, as many images as fill the time and operand sets as exceed the caches twice."""
    one = work({"images": 1, "edge": EDGE}).flops
    images = max(1, round(room.flops("fp32") / one))
    moved = work({"images": images, "edge": EDGE}).bytes("DRAM")
    return {"images": images, "edge": EDGE, "sets": sets_beyond(room.cache_bytes, moved)}


def packed(w: Any, wide: int) -> Any:
    """Weights w[r][s][c][o] in the order a tile reads them: blocks of `wide` output channels outermost."""
    return np.ascontiguousarray(w.reshape(WINDOW * WINDOW * CHANNELS, CHANNELS // wide, wide).swapaxes(0, 1))


def build(threads: int, sizes: Mapping[str, int], run: Run) -> Ready:
    """Output rows of all images shared out to the threads; the packed weights are read by all."""
    from bench.workloads import compiled, registers

    images, edge, sets = sizes["images"], sizes["edge"], sizes["sets"]
    padded, weights = edge + WINDOW - 1, (WINDOW * CHANNELS) ** 2
    layout = {"x": images * padded**2 * PIXEL, "w": SINGLE * weights, "y": images * edge**2 * PIXEL}
    held = Operands({**layout, "packed": SINGLE * weights}, sets)
    held.fill(run, threads, {"x": (-1.0, 1.0), "w": (-0.1, 0.1), "y": (0.0, 1.0)}, "fp32")
    shape = (WINDOW, WINDOW, CHANNELS, CHANNELS)
    for s in range(sets):
        _frame(held.view("x", np.float32, (images, padded, padded, CHANNELS), s))
        held.view("packed", np.float32, (weights,), s)[:] = packed(
            held.view("w", np.float32, shape, s), registers.CONVOLUTION_COLUMNS
        ).ravel()
    ends = (held.address("y"), held.address("x"), held.address("packed"), edge)
    x, w = held.view("x", np.float32, (images, padded, padded, CHANNELS)), held.view("w", np.float32, shape)
    return Ready(
        "native",
        f"{sets} operand sets in turn exceed twice the caches",
        expected=lambda: reference(x, w),
        result=lambda: held.view("y", np.float32, (images, edge, edge, CHANNELS)),
        address=compiled.address(registers.convolve),
        blocks=blocks([(*ends, *rows) for rows in shares(images * edge, threads)]),
        windows=held.windows,
        keep=(held,),
    )


def _frame(x: Any) -> None:
    """Zero the border of every image."""
    x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1] = 0, 0, 0, 0


def reference(x: Any, w: Any) -> Any:
    """The same by nine shifted products in fp64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    edge = x.shape[1] - WINDOW + 1
    shifts = [(r, s) for r in range(WINDOW) for s in range(WINDOW)]
    return sum(x[:, r : r + edge, s : s + edge] @ w[r, s] for r, s in shifts)


CONVOLUTION = Workload(
    name="resnet50 conv 3x3",
    precision="fp32",
    formula="F = 18 N H W C^2, Q = 4 (N H W C + 9 C^2 + N H W C), H = W = 56, C = 64",
    source="layer conv2_x of He et al., CVPR 2016: 231 MFLOP an image, one multiply and one add per term",
    implementation=BY_THREADS,
    in_place=False,
    work=work,
    fit=fit,
    small={"images": 2, "edge": 14, "sets": 2},
    grain={"edge": 14},
    terms=lambda sizes: WINDOW * WINDOW * CHANNELS,
    build=build,
)
