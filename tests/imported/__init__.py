"""Small files in the forms of other tools, and a folder of ERT made for a test."""

from __future__ import annotations

import json
import math
from pathlib import Path

FILES = Path(__file__).resolve().parent

METADATA = """
META_DATA
ERT_VERSION  1.1.0
HOSTNAME  ('node7', [], ['127.0.1.1'])
CONFIG  {'ERT_GPU': [%s], 'ERT_RESULTS': ['Results.p100.01']}
UNAME  ('Linux', 'node7', '4.4.0', '#1 SMP', 'x86_64', 'x86_64')
"""


def ert_folder(
    top: Path, gpu: str = "False", pi: float = 80.0, levels: tuple[float, float] = (400.0, 20.0)
) -> Path:
    """Run.001 of a CPU of pi (GFLOP/s) and two levels (GB/s); one row in each table is inf."""
    run = top / "Results.p100.01" / "Run.001"
    for flops in (1, 2, 4, 8, 16, 32, 64):
        table = run / f"FLOPS.{flops:03}" / "MPI.0002" / "OpenMP.0004"
        table.mkdir(parents=True)
        lines = []
        for size, beta in ((16384, levels[0]), (2**30, levels[1])):
            x = flops / 16
            rate = min(pi, beta * x)
            took = 2**34 / (rate / x * 1e9) * 1e6
            lines.append(f"{size} 8 {took} {took} {took} " + " ".join([f"{rate / x}"] * 3 + [f"{rate}"] * 3))
        lines.append("4096 8 0.0 0.0 0.0 inf inf inf inf inf inf")
        (table / "max").write_text("\n".join(lines) + METADATA % gpu)
    (run / "config.ert").write_text("# Workstation (12-core Example CPU)\n\nERT_FLOPS 1,2,4\n")
    stated = {"gbytes": {"data": [["L1", 400.0], ["DRAM", math.nan]]}, "gflops": {"data": [["GFLOPs", 80.0]]}}
    (run / "roofline.json").write_text(json.dumps({"empirical": stated}))
    return run
