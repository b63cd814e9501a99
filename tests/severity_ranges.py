"""The half of the severities that nobody chose: from which ranges they are drawn, and how that is written.

A range says how severe a defect may be and still be called so; where it lies is argued beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.backends.simulation.defects import SEVERITIES, severities
from bench.errors import UsageError

Values = dict[str, Any]
Range = Callable[[np.random.Generator], Values]

MARK = "\ndrawn:"


def _one(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _throttling(rng: np.random.Generator) -> Values:
    """A run on a CPU takes about 50 s, its pilot 4; on a GPU 150 and 8: some rounds lie on each side."""
    share = rng.uniform(0.35, 0.55)
    return {
        "share": share,
        "after": rng.uniform(10, 25),
        "gpu": {"after": rng.uniform(30, 80), "share": share},
    }


def _byte_count(rng: np.random.Generator) -> Values:
    """Kernels that have another beside them which moves bytes the same way; accesses differ by 1.5 anyway."""
    kernels = _one(rng, "read", "update", "copy", "triad", "copy/triad", "mix-read-only")
    return {"kernels": kernels, "moved": _one(rng, 0.25, 1 / 3, 3.0, 4.0)}


def _timer_mild(rng: np.random.Generator) -> Values:
    """A repetition takes 1.5 to 8 ms on a CPU, 25 ms on a GPU: 1 to 13 % of it, so it can still be timed."""
    share = _log(rng, 1, 4)
    return {"tick": share * 5e-5, "gpu": {"tick": share * 5e-4}}


def _sweep_step(rng: np.random.Generator) -> Values:
    """Slower or faster, to the end or over three octaves, with some points of the sweep on each side."""
    factor, start = _log(rng, 2, 4), _log(rng, 0.25, 32)
    values = {"start": start, "factor": _one(rng, factor, 1 / factor)}
    return values | _one(rng, {}, {"end": start * _log(rng, 8, 16)})


def _hang_mild(rng: np.random.Generator) -> Values:
    """One kernel of those that every device has."""
    return {
        "family": "stream",
        "kernel": _one(rng, "write", "copy", "triad"),
        "seconds": _log(rng, 200, 2000),
    }


RANGES: Mapping[tuple[str, str], Range] = {
    ("throttling", "severe"): _throttling,
    # 10 to 20 % less: more than clocks of healthy devices wander; and what an idle clock is to a full one.
    ("stuck-clock", "mild"): lambda rng: {"share": rng.uniform(0.8, 0.9)},
    ("stuck-clock", "severe"): lambda rng: {"share": rng.uniform(0.2, 0.45)},
    ("memory-clock", "severe"): lambda rng: {"share": rng.uniform(0.15, 0.45)},
    # The cache serves 45 to 66 % of the traffic; all of it.
    ("cache-resident", "mild"): lambda rng: {"fill": rng.uniform(0.95, 1.1)},
    ("cache-resident", "severe"): lambda rng: {"fill": rng.uniform(0.1, 0.6)},
    ("byte-count", "severe"): _byte_count,
    # One multiply-add in two is gone, of one precision or all; most of them; all but one pass.
    ("folded-chain", "mild"): lambda rng: {"factor": 2.0, "precision": _one(rng, "", "fp64", "fp32")},
    ("folded-chain", "severe"): lambda rng: {"factor": _one(rng, 0.0, 8.0, 12.0, 16.0)},
    ("noisy-neighbour", "severe"): lambda rng: {"share": rng.uniform(0.5, 0.8), "stretch": _log(rng, 2.5, 6)},
    ("timer", "mild"): _timer_mild,
    ("timer", "severe"): lambda rng: {"factor": _one(rng, 0.0, 0.25, 0.5, 2.0, 4.0)},
    ("sweep-step", "severe"): _sweep_step,
    # The library alone, or everything in a precision that the headlines need.
    ("missing-precision", "mild"): lambda rng: {
        "precision": _one(rng, "fp32", "fp64"),
        "family": "gemm",
        "gpu": {"precision": _one(rng, "fp32", "fp16")},
    },
    ("missing-precision", "severe"): lambda rng: {
        "precision": _one(rng, "fp32", "fp64"),
        "gpu": {"precision": _one(rng, "fp32", "fp64")},
    },
    # No DRAM array fits, on a GPU not even half of one.
    ("out-of-memory", "severe"): lambda rng: {
        "limit_bytes": _log(rng, 5e7, 1.2e8),
        "gpu": {"limit_bytes": _log(rng, 1e8, 5e8)},
    },
    ("hang", "mild"): _hang_mild,
    ("hang", "severe"): lambda rng: {
        "family": _one(rng, "fma", "stream", "mix"),
        "seconds": _log(rng, 200, 2000),
    },
}
"""(defect, severity): what draws its parameters."""


def rounded(value: Any) -> Any:
    """Numbers to four digits, so that the file can be read."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return value if isinstance(value, str) else float(f"{float(value):.4g}")


def drawn(seed: int) -> dict[str, dict[str, Values]]:
    """{defect: {severity: parameters}}; each from a stream of its own, so that no range moves another."""
    found: dict[str, dict[str, Values]] = {}
    for place, ((kind, grade), draw) in enumerate(RANGES.items()):
        found.setdefault(kind, {})[grade] = rounded(draw(np.random.default_rng([seed, place])))
    return found


def write(seed: int, path: Path = SEVERITIES) -> None:
    """Append what is drawn to the file; UsageError where it has been drawn: once more would be choosing."""
    text = path.read_text(encoding="utf-8")
    if any(severity.set == "drawn" for severity in severities(path)):
        raise UsageError(f"{path.name} has its drawn half: drawing until it pleases is no drawing")
    lines = [MARK, f"  # by tests/severity_ranges.py, seed {seed}"]
    for kind, grades in drawn(seed).items():
        lines.append(f"  {kind}:")
        for grade, values in grades.items():
            flow = yaml.safe_dump(values, default_flow_style=True, width=1000, sort_keys=False).strip()
            lines.append(f"    {grade}: {flow}")
    path.write_text(text.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
