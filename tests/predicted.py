"""The simulated run that predictions are made from."""

from __future__ import annotations

from pathlib import Path

from bench.running import suite


def standard_run(results: Path) -> Path:
    """Folder of a standard run of a simulated CPU."""
    families = ["fma", "stream", "mix", "gemm"]
    return suite.run("sim:small-cpu", minutes=3, results=results, families=families, quiet=True)
