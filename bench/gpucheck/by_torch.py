"""Products in turn with PyTorch's on the same shapes, where it is installed: ours must not be slower.

PyTorch runs in a process of its own, so that its libraries and ours never meet. A request on stdin,
{"item": "fp16", "edge": 8192}, is answered by {"seconds": ...} of one product or by {"absent": why}; one that
says {"import": true} is answered when PyTorch is there, or not: the GPU is left alone until then.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from statistics import median
from typing import Any

from bench.backends import Prepared
from bench.errors import DeviceError
from bench.gpucheck.bed import Bed, sized
from bench.gpucheck.check import Check, passed, skipped
from bench.profile.encoding import dumps, loads
from bench.profile.records import Point
from bench.running.child import Child, Died, Silent

WORDS = (sys.executable, "-m", "bench.gpucheck.by_torch")

LABELS, EDGE = ("fp16>fp32 library", "bf16>fp32 library"), 8192
TYPES = {"fp16": "float16", "bf16": "bfloat16"}

LEAST, PAIRS = 0.98, 5
"""Share of PyTorch's rate that ours must reach, in the median of so many pairs of turns."""

SECONDS, LIMIT = 0.05, 30.0
"""Of a turn; and to wait for PyTorch, whose import alone takes several."""


def ahead() -> Child:
    """PyTorch's process, which imports it while others work."""
    child = Child(WORDS)
    with suppress(Died):  # who asks it first is told
        child.send({"import": True})
    return child


def against_torch(bed: Bed) -> Iterator[Check]:
    """Our best library against the best of PyTorch's layouts, in each precision of deep learning."""
    name, found = "products / PyTorch's", [p for p in (_product(bed, label) for label in LABELS) if p]
    if bed.backend.device.kind != "cuda" or not found:
        yield skipped(name, "no such product runs here" if not found else "a simulated device has no PyTorch")
        return
    child = bed.other or Child(WORDS)
    try:
        for point in found:
            yield _compared(bed, child, point)
    except (Silent, Died) as error:
        yield skipped(name, f"PyTorch: {error}")
    finally:
        child.end(kill=True)


def _product(bed: Bed, label: str) -> Point | None:
    """The usual product of a precision, at the size that is compared."""
    found = bed.first(lambda p: (p.family, p.precision.label, p.operands) == ("gemm", label, "random"))
    return sized(found, m=EDGE, n=EDGE, k=EDGE) if found else None


def _compared(bed: Bed, child: Child, point: Point) -> Check:
    name, asked = f"{point.precision.label} / PyTorch's", {"item": point.precision.inputs, "edge": EDGE}
    if absent := child.ask(asked, _patience(bed)).get("absent"):
        return skipped(name, str(absent))
    with ExitStack() as stack:
        ours = list(_ready(bed, stack, point))
        if not ours:
            return skipped(name, "no library here makes this product")
        ratios = []
        for turn in range(PAIRS):
            theirs = child.ask(asked, _patience(bed))["seconds"] if turn % 2 else 0.0
            own = min(bed.fastest(made, amount, 2) / amount for made, amount in ours)
            ratios.append((theirs or child.ask(asked, _patience(bed))["seconds"]) / own)
    ratio = median(ratios)
    return passed(name, ratio >= LEAST, f"{ratio:.4f} of its rate", f"at least {LEAST}")


def _patience(bed: Bed) -> float:
    """Seconds to wait for an answer: a stage that is killed for it would count as a failed check."""
    return min(LIMIT, bed.end - time.monotonic())


def _ready(bed: Bed, stack: ExitStack, point: Point) -> Iterator[tuple[Prepared, int]]:
    """The product by each of our libraries, checked, with the amount that lasts a turn."""
    for library in bed.backend.variants("gemm", point.precision, point.level, point.threads):
        with suppress(DeviceError):  # a library that is not here
            made = stack.enter_context(bed.prepared(replace(point, variant=library)))
            bed.backend.verify(made)
            yield made, bed.amount(made, SECONDS)


# in the other process


class Products:
    """PyTorch's products: operands stay for the next request."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._kept: dict[tuple[str, int], tuple[Any, Any, Any]] = {}

    def seconds(self, item: str, edge: int) -> float:
        """Of one product C = A B, the faster of B by rows and by columns."""
        if (item, edge) not in self._kept:
            self._kept = {
                (item, edge): (self._random(item, edge), self._random(item, edge), self._empty(item, edge))
            }
        a, b, c = self._kept[item, edge]
        return min(self._timed(a, b, c), self._timed(a, b.t(), c))

    def _random(self, item: str, edge: int) -> Any:
        """Numbers of either sign, 1/2 to 1 in size, as ours are."""
        size = (edge, edge)
        values = self.torch.rand(size, device="cuda") * 0.5 + 0.5
        signs = self.torch.randint(0, 2, size, device="cuda") * 2 - 1
        return (values * signs).to(getattr(self.torch, TYPES[item]))

    def _empty(self, item: str, edge: int) -> Any:
        return self.torch.empty((edge, edge), device="cuda", dtype=getattr(self.torch, TYPES[item]))

    def _timed(self, a: Any, b: Any, c: Any) -> float:
        once = self._batch(a, b, c, 3)
        return self._batch(a, b, c, max(3, math.ceil(SECONDS / once)))

    def _batch(self, a: Any, b: Any, c: Any, times: int) -> float:
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.matmul(a, b, out=c)
        first.record()
        for _ in range(times):
            self.torch.matmul(a, b, out=c)
        last.record()
        self.torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / times


def answered(request: Mapping[str, Any], made: list[Products]) -> dict[str, Any]:
    """The reply to a request; `made` keeps the products of this process."""
    try:
        if not made:
            torch = import_module("torch")
            if "import" in request:
                return {"imported": True}
            if not torch.cuda.is_available():
                return {"absent": "PyTorch is installed, but sees no GPU"}
            made.append(Products(torch))
        return {"seconds": made[0].seconds(request["item"], request["edge"])}
    except ImportError:
        return {"absent": "PyTorch is not installed"}
    except RuntimeError as error:  # whatever its libraries say
        return {"absent": f"PyTorch: {str(error).splitlines()[0]}"}


def main() -> None:
    """Answer every line of stdin."""
    made: list[Products] = []
    for line in sys.stdin:
        print(dumps(answered(loads(line), made)), flush=True)


if __name__ == "__main__":
    main()
