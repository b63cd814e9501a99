"""The layout of the argument blocks that Python and native code share: arrays of int64.

Every native loop is `void loop(int64 *args)`. The driver writes OFFSET before each repetition;
the rest is the loop's own. The names below are what the emitted loops read.
"""

from __future__ import annotations

OFFSET = 0  # bytes added to A, B and C in this repetition
A, B, C = 1, 2, 3  # addresses of this thread's part of each stream
SPAN = 4  # bytes of each stream to walk, a multiple of the block; chain: iterations
PASSES = 5  # how often to walk it
ROUNDS = 6  # mix: FMA rounds per block beyond the first
FACTOR = 7  # m or s, as the bits of a double
RESULT = 8  # address where the accumulators are stored (chain: and loaded from)
ARGS = 16  # words in an argument block

# One repetition as the driver records it, one row of int64 a thread.
START, END, CPU_START, CPU_END, SWITCHES_START, SWITCHES_END = range(6)
ROW = 6
