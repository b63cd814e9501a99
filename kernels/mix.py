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

from kernels.spec import Kernel, MixShape, Work

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
    """Work of streaming `sizes["n"]` items with `sizes["fma"]` vector FMAs per block."""

    def work(item_bytes: int, sizes: Mapping[str, int], level: str) -> Work:
        moved = sizes["n"] * item_bytes
        flops = 2.0 * sizes["fma"] * sizes["n"] / BLOCK_VECTORS
        return Work.at(level, flops, reads=moved, writes=moved if write_back else 0)

    return work


KERNELS = (
    Kernel("mix-read-only", "mix", "read", cost(False), mix_read_only, reference(False), MixShape(False)),
    Kernel("mix-in-place", "mix", "update", cost(True), mix_in_place, reference(True), MixShape(True)),
)
