"""Do repeated runs agree? `python -m tests.perf.agreement FOLDER FOLDER ...` reads what `make bench` left.

For every ceiling: in how many runs its interval holds the median of all runs' values, and in how
many it is as narrow as its cap. Run the suite several times one after another, then this.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.profile.records import Ceiling
from bench.store import read_profile


@dataclass(frozen=True)
class Agreement:
    """One ceiling over all runs: its common value, and how many of `runs` agree and converge."""

    name: str
    value: float
    spread: float
    widest: float
    agreeing: int
    converged: int
    runs: int


def key(c: Ceiling) -> str:
    """What the same ceiling is called in every run."""
    kernel = "" if c.quantity == "pi" else c.kernel
    where = f"{c.scope}/{c.threads}"
    parts = (c.quantity, c.precision.label, c.level, kernel, c.access, c.store, where, c.regime)
    return " ".join(part for part in parts if part not in ("", "none", "typical"))


def agreement(name: str, found: Sequence[Ceiling]) -> Agreement:
    """Compare the ceilings of one name; one without an interval neither agrees nor converges."""
    values = [c.estimate.value for c in found]
    common = median(values)
    inside = [c.estimate for c in found if c.estimate.low is not None and c.estimate.high is not None]
    agreeing = sum(e.low <= common <= e.high for e in inside if e.low is not None and e.high is not None)
    widths = [w for c in found if (w := c.estimate.half_width) is not None]
    return Agreement(
        name,
        common,
        max(values) / min(values) - 1.0,
        max(widths, default=float("inf")),
        agreeing,
        sum(c.converged is True for c in found),
        len(found),
    )


def agreements(folders: Sequence[Path]) -> list[Agreement]:
    """Every ceiling that all runs measured."""
    groups: dict[str, list[Ceiling]] = defaultdict(list)
    for folder in folders:
        for c in read_profile(folder).ceilings:
            groups[key(c)].append(c)
    return [agreement(name, found) for name, found in groups.items() if len(found) == len(folders)]


def main(arguments: Sequence[str]) -> int:
    """Print the table; 2 without at least two folders."""
    if len(arguments) < 2:
        print(
            "usage: python -m tests.perf.agreement FOLDER FOLDER ... (several runs)",
            file=sys.stderr,
        )
        return 2
    found = agreements([Path(a) for a in arguments])
    print(f"{'ceiling':52} {'median':>10} {'spread':>7} {'widest':>7} {'agree':>7} {'narrow':>7}")
    for a in found:
        print(
            f"{a.name:52} {a.value:10.3g} {a.spread:7.1%} {a.widest:7.1%} "
            f"{a.agreeing:3}/{a.runs:<3} {a.converged:3}/{a.runs:<3}"
        )
    agree = sum(a.agreeing for a in found) / sum(a.runs for a in found)
    narrow = sum(a.converged for a in found) / sum(a.runs for a in found)
    print(f"of all ceilings in all runs {agree:.0%} agree with the median, {narrow:.0%} keep their cap")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
