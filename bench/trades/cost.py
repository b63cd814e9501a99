"""What a device spends on a step, the rates that turn it into time, and the two laws over both."""

from __future__ import annotations

from dataclasses import dataclass, replace

RESOURCES = ("compute", "memory", "network", "beyond")
"""What a device spends time on: arithmetic, its memory, the other devices, what lies behind its memory."""


@dataclass(frozen=True)
class Rates:
    """pi FLOP/s; byte/s of memory (beta), network, reads and writes beyond it; alpha s a message."""

    pi: float
    beta: float
    network: float
    alpha: float
    read: float
    write: float


@dataclass(frozen=True)
class Cost:
    """What one device does in a step.

    flops; moved, sent: byte through its memory and over the network; messages: how many one after another
    kept: byte that go beyond the memory and come back;  held: byte that lie in its memory
    stretch: times that all of it takes because devices wait for each other (1 where none does)
    """

    flops: float
    moved: float
    sent: float = 0.0
    messages: float = 0.0
    kept: float = 0.0
    held: float = 0.0
    stretch: float = 1.0

    def seconds(self, rates: Rates) -> dict[str, float]:
        """The time of each resource alone, in s, stretched."""
        alone = (
            self.flops / rates.pi,
            self.moved / rates.beta,
            self.sent / rates.network + self.messages * rates.alpha if self.messages else 0.0,
            self.kept / rates.read + self.kept / rates.write if self.kept else 0.0,
        )
        return {name: value * self.stretch for name, value in zip(RESOURCES, alone, strict=True)}

    def overlapped(self, rates: Rates) -> float:
        """The least time: every resource works while the others do (max law, p -> infinity)."""
        return max(self.seconds(rates).values())

    def serial(self, rates: Rates) -> float:
        """The most time: one resource after the other (Amdahl's law, p = 1)."""
        return sum(self.seconds(rates).values())

    def binds(self, rates: Rates) -> str:
        """The resource that takes longest."""
        alone = self.seconds(rates)
        return max(alone, key=alone.__getitem__)


def crossing(base: Cost, other: Cost, rates: Rates) -> float | None:
    """The network's byte/s below which `other` takes less time than `base` in series, None if it never does.

    Infinite where `other` is faster over any network. Both spend what they spend elsewhere at `rates`.
    """
    saved = base.sent * base.stretch - other.sent * other.stretch
    if saved <= 0:
        return None
    still = replace(rates, network=float("inf"))
    dearer = other.serial(still) - base.serial(still)
    return saved / dearer if dearer > 0 else float("inf")
