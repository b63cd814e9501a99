"""What numbers lose in a smaller type or packed as gradients, found by rounding random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SIGNIFICANT = {"fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3, "fp8": 4}
"""Bits of the significand by type, the implied one counted (fp8 products multiply e4m3)."""

PLACE = 4.0
"""Bytes that say where a gradient belongs."""

BLOCK = 256
"""Gradients that share one scale."""

DRAWN = 1 << 16
"""Random numbers that an error is taken over: enough for two digits of it."""

SEED = 20261130


@dataclass(frozen=True)
class Packing:
    """A smaller form of the gradients on their way between devices.

    bits: of each gradient;  share: of the gradients that are sent, below 1 as they are and with their place
    passes: times that a device reads or writes all unpacked gradients to pack and unpack them
    repack: numbers as they arrive
    """

    name: str
    bits: float
    passes: float
    repack: Callable[[Any], Any]
    share: float = 1.0

    @property
    def gathered(self) -> bool:
        """Whether every device needs what every other sends, instead of sums of parts."""
        return self.share < 1

    def volume(self, parameters: float, item: float) -> float:
        """Bytes of one packed set, of gradients of `item` byte."""
        return parameters * self.share * (item + PLACE if self.gathered else self.bits / 8)


def rounded(values: Any, bits: int) -> Any:
    """Values with a significand of `bits` bits; exponents have no limits."""
    import numpy as np

    fractions, exponents = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fractions, bits)), exponents - bits)


def _halves(values: Any) -> Any:
    return rounded(values, SIGNIFICANT["bf16"])


def _bytes(values: Any) -> Any:
    """127 steps up to the largest of each block, and down."""
    import numpy as np

    blocks = values.reshape(-1, BLOCK)
    steps = np.abs(blocks).max(axis=1, keepdims=True) / 127
    return (np.rint(blocks / steps) * steps).reshape(-1)


def _signs(values: Any) -> Any:
    """-1, 0 or 1 times the largest of a block, right in the mean (Wen et al., TernGrad, 2017)."""
    import numpy as np

    blocks = values.reshape(-1, BLOCK)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    kept = np.random.default_rng(SEED).random(blocks.shape) < np.abs(blocks) / largest
    return (np.sign(blocks) * largest * kept).reshape(-1)


def _hundredth(values: Any) -> Any:
    """The largest hundredth, the rest waits for later (Lin et al., Deep Gradient Compression, 2017)."""
    import numpy as np

    least = np.quantile(np.abs(values), 0.99)
    return np.where(np.abs(values) >= least, values, 0.0)


PACKINGS = (
    Packing("gradients in bf16", 16, passes=2, repack=_halves),
    Packing("gradients in 8 bit", 8, passes=2, repack=_bytes),
    Packing("gradients in 2 bit", 2, passes=2, repack=_signs),
    Packing("top 1 % of gradients", 32, passes=4, repack=_hundredth, share=0.01),
)
"""Passes: read and written, a block and its scale at once; what is not sent, also kept and read again."""


def error(repack: Callable[[Any], Any]) -> float:
    """Root mean square of what is lost over that of the numbers, normally distributed ones."""
    import numpy as np

    values = np.random.default_rng(SEED).standard_normal(DRAWN)
    lost = repack(values) - values
    return float(np.sqrt(np.mean(lost**2) / np.mean(values**2)))


def type_error(name: str) -> float:
    """The same of one rounding to a type; 0 for a type that is not known."""
    bits = SIGNIFICANT.get(name)
    return error(lambda values: rounded(values, bits)) if bits else 0.0
