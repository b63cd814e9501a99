"""A whole run on the slow fake device, to be killed: `python -m tests.fake_run RESULTS [RESUME]`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bench import provenance
from bench.planning.plan import PRESETS
from bench.running import suite
from bench.running.child import WORKER
from bench.running.runners import Children
from tests.fake_device import FAKE

COMMAND = (WORKER[0], "-m", "tests.fake_worker", "{}")


def main() -> None:
    provenance.source_hash = lambda *_: "0123456789ab"  # others may be editing while this runs
    suite.open_device = lambda device, blocker=True: (FAKE, Children(device, COMMAND))
    PRESETS["quick"] = replace(PRESETS["quick"], rounds=3)
    suite._derive = lambda store: None
    resume = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    folder = suite.run(
        "fake",
        minutes=0.3,
        preset="quick",
        results=Path(sys.argv[1]),
        families=["fma", "gemm"],
        resume=resume,
    )
    print(folder)


if __name__ == "__main__":
    main()
