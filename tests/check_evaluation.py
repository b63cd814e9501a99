"""Measures healthy simulated devices, says which self-checks fail: python -m tests.check_evaluation [N].

Devices of the catalogue that stand for a kind of machine, each with N seeds (100), quick preset: a check that
fails on one of them is a false alarm.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from bench import store
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.fitting.ceilings import ceilings
from bench.fitting.pooled import pool
from bench.profile.verdict import FAILS, word
from bench.running import suite

ON_GPU = ("fma", "stream", "mix", "gemm", "tensor")
"""Families whose ceilings are checked on simulated GPUs: their L1 knows no loads that pass it by, so that it
serves what a real one leaves to L2."""

DEVICES: dict[str, tuple[str, ...] | None] = {
    "small-cpu": None,
    "big-cpu": None,
    "gpu-large": ON_GPU,
    "gpu-small": ON_GPU,
}
"""Names in the catalogue, with the families that are measured; None: all."""


@dataclass
class Alarms:
    """Answers by check, and how many devices had any that fails, out of how many."""

    answers: Counter[tuple[str, str]]
    examples: list[str]
    devices: int = 0
    alarmed: int = 0

    @property
    def share(self) -> float:
        """Of the devices that had a false alarm."""
        return self.alarmed / self.devices


def run(name: str, seeds: Sequence[int], preset: str = "quick") -> Alarms:
    """Measure a device of the catalogue with other seeds, and count what its ceilings say."""
    found = Alarms(Counter(), [])
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "healthy.yaml"
            file.write_text(json.dumps({**read(CATALOGUE)[name], "seed": seed}))
            options = {"results": Path(folder), "quiet": True, "workloads": False, "families": DEVICES[name]}
            with patch.object(suite, "_derive"), patch.object(os, "fsync"):  # no fits, and thrown away
                log = store.read_log(suite.run(f"sim:{file}", preset=preset, **options))
        made = ceilings(pool(log.samples), log.header["device"], log.samples)
        said = [(c, check, text) for c in made for check, text in c.checks.items()]
        wrong = [
            f"{name} {seed}: {c.kernel} {check}: {text}" for c, check, text in said if word(text) == FAILS
        ]
        found.answers.update((check, word(text)) for _, check, text in said)
        found.examples += wrong
        found.devices += 1
        found.alarmed += bool(wrong)
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name in DEVICES:
        found = run(name, range(1, count + 1))
        print(f"{name}: {found.alarmed} of {found.devices} devices with a check that fails")
        for (check, answer), times in sorted(found.answers.items()):
            print(f"    {check:16} {answer:11} {times}")
        print("\n".join(f"    {text}" for text in found.examples[:20]), flush=True)


if __name__ == "__main__":
    main()
