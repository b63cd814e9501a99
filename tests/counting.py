"""Numbers and arrays that count the arithmetic, loads and stores done with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


class Number:
    """A value that counts each addition and multiplication; a negation is free."""

    def __init__(self, value: float, tally: Counter[str]) -> None:
        self.value, self.tally = value, tally

    def _apply(self, other: Any, value: float) -> Number:
        self.tally["flops"] += 1
        return Number(value, self.tally)

    def __add__(self, other: Any) -> Number:
        return self._apply(other, self.value + worth(other))

    def __sub__(self, other: Any) -> Number:
        return Number(self.value - worth(other), self.tally)  # only used to make a zero

    def __mul__(self, other: Any) -> Number:
        return self._apply(other, self.value * worth(other))

    def __neg__(self) -> Number:
        return Number(-self.value, self.tally)


def worth(value: Any) -> float:
    """The plain value of a Number or a number."""
    return value.value if isinstance(value, Number) else value


class Array:
    """A sequence of numbers that counts what is loaded and stored."""

    def __init__(self, values: Iterable[float], tally: Counter[str], integers: bool = False) -> None:
        self.values, self.tally, self.integers = list(values), tally, integers

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        self.tally["loads"] += 1
        value = self.values[index]
        return value if self.integers else Number(value, self.tally)

    def __setitem__(self, index: int, value: Any) -> None:
        self.tally["stores"] += 1
        self.values[index] = worth(value)
