"""roofline.json of the Empirical Roofline Toolkit (Berkeley Lab), with the true names of levels."""

from __future__ import annotations

from pathlib import Path

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.encoding import dumps
from bench.profile.records import Profile

TYPES = ("fp64", "fp32", "fp16", "bf16")

VERSION = "1.1.0"
"""Of the toolkit whose form this is; readers ask for it."""


def export(profile: Profile, path: Path) -> None:
    """Write the vector ceilings by type and the betas of reads by level; FileError where there are none."""
    peaks = {name: found for name in TYPES if (found := achievable.rate(profile, name, "vector"))}
    levels = achievable.memory(profile)
    if not (peaks and levels):
        raise FileError("ERT's file needs a π and a β: measure the fma, stream and cache families")
    measured = {
        "gbytes": {"data": [[name, c.estimate.value / 1e9] for name, c in levels.items()], "metadata": {}},
        "gflops": {
            "data": [[f"{name.upper()} GFLOPs", c.estimate.value / 1e9] for name, c in peaks.items()],
            "metadata": {},
        },
        "metadata": {"ERT_VERSION": VERSION, "HOSTNAME": [achievable.who(profile, peaks.values()), [], []]},
    }
    with replacing(path) as file:
        file.write((dumps({"empirical": measured}, indent=1) + "\n").encode("utf-8"))
