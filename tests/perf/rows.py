"""What a comparison must show, what it showed, and the verdict in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.perf.pairs import SHORTEST_WINDOW, Ratio, Window, rate, ratio, shortest

REFERENCE, CONTROL, SUITE = "reference", "control", "suite"


@dataclass(frozen=True)
class Demand:
    """Least number of pairs and the bounds of the ratio and of the lower end of its interval."""

    pairs: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """As printed in the table: 0.98 (low 0.96), 0.90 to 1.10, or "shown" without a demand."""
        if self.ratio is None:
            return "shown"
        if self.high is not None:
            return f"{self.ratio:.2f} to {self.high:.2f}"
        return f"{self.ratio:.2f}" + (f", low {self.low:.2f}" if self.low is not None else "")


SHOWN = Demand()


@dataclass(frozen=True)
class Row:
    """One comparison: names, rates (FLOP/s or byte/s), ratio of suite to reference, its control, its demand.

    control: the reference against itself, in the same turns;  window: seconds of the shortest window
    beside: further sides by name, each as its ratio to the reference (or to the point it belongs to)
    """

    name: str
    threads: int
    unit: str
    reference: str
    reference_rate: float
    suite: str
    suite_rate: float
    ratio: Ratio
    control: Ratio
    demand: Demand
    window: float
    beside: Mapping[str, Ratio] = field(default_factory=dict)
    note: str = ""

    @property
    def verdict(self) -> str:
        """pass, shown, or in words what is missing."""
        demand, found = self.demand, self.ratio
        if self.window < SHORTEST_WINDOW:
            return "window under 2 ms"
        if demand.ratio is None:
            return "shown"
        if found.pairs < demand.pairs:
            return f"{found.pairs} of {demand.pairs} pairs"
        if found.value < demand.ratio:
            return "too low"
        if demand.high is not None and found.value > demand.high:
            return "too high"
        if demand.low is not None and (found.low is None or found.low < demand.low):
            return "bound too low"
        return "pass"

    @property
    def holds(self) -> bool:
        """Whether nothing that was demanded is missing."""
        return self.verdict in ("pass", "shown")


def row(
    name: str,
    threads: int,
    unit: str,
    names: tuple[str, str],
    windows: Mapping[str, Sequence[Window]],
    demand: Demand,
    note: str = "",
) -> Row:
    """The row of interleaved windows with the labels REFERENCE, CONTROL and SUITE, others beside.

    names: the reference's and the suite's variant
    """
    reference, suite = windows[REFERENCE], windows[SUITE]
    others = {k: ratio(w, reference) for k, w in windows.items() if k not in (REFERENCE, CONTROL, SUITE)}
    return Row(
        name=name,
        threads=threads,
        unit=unit,
        reference=names[0],
        reference_rate=rate(reference),
        suite=names[1],
        suite_rate=rate(suite),
        ratio=ratio(suite, reference),
        control=ratio(windows[CONTROL], reference),
        demand=demand,
        window=shortest(windows),
        beside=others,
        note=note,
    )
