"""No pass, no time: each compiled loop against its NumPy reference on a small set with guard zones."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.errors import VerificationError
from bench.native.arena import RESULT_BYTES, block
from bench.native.emit import CHAIN_UNROLL, Form
from bench.native.isa import Isa
from bench.native.loops import block_bytes
from bench.native.memory import Region
from kernels import dots
from kernels.mix import BLOCK_VECTORS, blocks
from kernels.spec import ITEM_BYTES, ChainShape, Kernel, MixShape, StreamShape

BLOCKS = 3  # of every sub-stream: first, inner and last trip of the loop
FACTOR = 2.0**-6  # large enough to show in every result, exact in every precision
MOST_ROUNDS = 37  # the count is given at run time: a few prove the loop
GUARD_BYTES = 4096
SCALAR = 1.5


Call = Callable[[Any], None]
"""Runs the loop once on an argument block."""


def at(address: int) -> Call:
    """The loop at an address of this process."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    return lambda args: function(args.ctypes.data)


def check_loop(call: Call, kernel: Kernel, form: Form, precision: str, isa: Isa) -> None:
    """Run a loop once on random operands; VerificationError names the kernel when it is wrong."""
    if precision in dots.INTO:
        return _check_dots(call, kernel, form, precision, isa)
    trial = _Trial(call, kernel, form, precision, isa)
    if isinstance(kernel.shape, ChainShape):
        trial.chain()
    elif isinstance(kernel.shape, StreamShape):
        trial.stream(kernel.shape)
    elif isinstance(kernel.shape, MixShape):
        trial.mix(kernel.shape)


def _check_dots(call: Call, kernel: Kernel, form: Form, precision: str, isa: Isa) -> None:
    """Chains of dot products on small numbers, whose sums are exact: they must be equal bit by bit."""
    rng, iterations = np.random.default_rng(1), 3
    kind = np.dtype({"fp32": np.float32, "int32": np.int32}[dots.INTO[precision]])
    lanes = isa.vector_bytes // kind.itemsize
    items = kind.itemsize // ITEM_BYTES[precision]
    a, b = operands = rng.integers(1, 128, (2, lanes, items))
    b *= rng.choice([-1, 1], b.shape)  # of a the unit of x86-64 sees no sign
    places = [Region(isa.vector_bytes) for _ in operands]
    for place, numbers in zip(places, operands, strict=True):
        place.array[:] = dots.narrow(np, precision, numbers)
    result = Region(RESULT_BYTES)
    x = result.view(kind, 0, form.chains * lanes).reshape(form.chains, lanes)
    x[:] = rng.integers(-1000, 1000, x.shape)
    want = dots.reference(np, x.copy(), a, b, iterations * CHAIN_UNROLL)
    call(block(a=places[0].address, b=places[1].address, span=iterations, result=result.address))
    if not np.array_equal(x, want):
        raise VerificationError(f"{kernel.name} ({form}) of {precision} is wrong; it is not timed")


class _Trial:
    """One small run of one loop and what it must give."""

    def __init__(self, call: Call, kernel: Kernel, form: Form, precision: str, isa: Isa) -> None:
        self._call = call
        self.kernel, self.form = kernel, form
        self.kind = np.dtype(f"f{ITEM_BYTES[precision]}")
        self.lanes = isa.vector_bytes // self.kind.itemsize
        self.span = (
            0 if isinstance(kernel.shape, ChainShape) else BLOCKS * block_bytes(kernel.shape, form, isa)
        )
        self.result = Region(RESULT_BYTES)
        rng = np.random.default_rng(1)
        self.regions = {name: Region(self.span + 2 * GUARD_BYTES) for name in "abc"}
        for region in self.regions.values():
            items = region.bytes // self.kind.itemsize
            region.view(self.kind, 0, items)[:] = rng.random(items) + 1.0
        self.before = {name: region.array.copy() for name, region in self.regions.items()}

    def array(self, name: str) -> Any:
        """The part of an array that the loop walks."""
        return self.regions[name].view(self.kind, GUARD_BYTES, self.span // self.kind.itemsize)

    def old(self, name: str) -> Any:
        """The same part as it was before the run."""
        return self.before[name][GUARD_BYTES : GUARD_BYTES + self.span].view(self.kind)

    def results(self, vectors: int) -> Any:
        """The first vectors of the result region, as [vector, lane]."""
        return self.result.view(self.kind, 0, vectors * self.lanes).reshape(vectors, self.lanes)

    def run(self, span: int, factor: float, rounds: int = 0) -> None:
        """One call with one pass, each array entered behind its guard zone."""
        places = {name: region.address for name, region in self.regions.items()}
        args = block(**places, span=span, passes=1, rounds=rounds, factor=factor, result=self.result.address)
        args[0] = GUARD_BYTES
        self._call(args)
        self._guards()

    def _guards(self) -> None:
        for name, region in self.regions.items():
            same = region.array == self.before[name]
            if not (same[:GUARD_BYTES].all() and same[GUARD_BYTES + self.span :].all()):
                self.fail(f"it wrote outside array {name}")

    def fail(self, why: str) -> None:
        """Raise with the kernel's name."""
        raise VerificationError(f"{self.kernel.name} ({self.form}) is wrong: {why}; it is not timed")

    def compare(self, got: Any, want: Any, steps: float, what: str) -> None:
        """Relative tolerance from the item's precision and the number of rounding steps."""
        tolerance = float(np.finfo(self.kind).eps) * (4.0 + steps)
        if not np.allclose(got, want, rtol=tolerance, atol=0.0):
            want = np.asarray(want, float)
            worst = np.max(np.abs(got - want)) / np.max(np.abs(want))
            self.fail(f"{what} differs from the reference by {worst:.1e} (allowed {tolerance:.1e})")

    def chain(self) -> None:
        x = self.results(self.form.chains)
        x[:] = np.linspace(1.0, 2.0, x.size).reshape(x.shape)
        iterations = 3
        want = self.kernel.reference(np, x.copy(), FACTOR, iterations * CHAIN_UNROLL)
        self.run(iterations, FACTOR)
        self.compare(x, want, iterations * CHAIN_UNROLL, "a chain")

    def stream(self, shape: StreamShape) -> None:
        self.run(self.span, SCALAR)
        want = self.kernel.reference(np, *(self.old(name) for name in "abc"), self.kind.type(SCALAR))
        if shape.stores:
            self.compare(self.array("a"), want, 0, "a stored value")
        else:
            got = self.results(self.form.streams * self.form.vectors).sum(dtype=np.float64) + SCALAR
            self.compare(got, want, BLOCKS, "the sum")

    def mix(self, shape: MixShape) -> None:
        rounds = min(MOST_ROUNDS, self.form.fma // BLOCK_VECTORS - 1) if self.form.fma >= BLOCK_VECTORS else 0
        fma = (rounds + 1) * BLOCK_VECTORS if self.form.fma >= BLOCK_VECTORS else self.form.fma
        self.run(self.span, FACTOR, rounds)
        old, streams = self.old("a"), self.form.streams
        sums, stored = self.kernel.reference(np, old, FACTOR, fma, self.lanes, streams)
        steps = BLOCKS * (rounds + 1)
        self.compare(self.results(BLOCK_VECTORS + 1)[:BLOCK_VECTORS], sums, steps, "an accumulator")
        self.compare(blocks(np, self.array("a"), self.lanes, streams), stored, steps, "a stored value")
        if not shape.write_back and fma < BLOCK_VECTORS:
            self._checksum(blocks(np, old, self.lanes, streams)[:, fma:])

    def _checksum(self, untouched: Any) -> None:
        bits = np.dtype(f"u{self.kind.itemsize}")
        want = np.bitwise_xor.reduce(np.ascontiguousarray(untouched).view(bits), axis=(0, 1))
        if not np.array_equal(self.results(BLOCK_VECTORS + 1)[-1].view(bits), want):
            self.fail("the checksum of the vectors without an FMA differs")
