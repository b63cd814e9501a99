"""The checkout is the product: where it lies, and how a process that we start finds this very one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
"""The folder that holds bench and kernels."""


SPIN_VARIABLE, SPIN = "OPENBLAS_THREAD_TIMEOUT", "20"
"""For how long OpenBLAS's threads spin after a call: 2^20 cycles (2^26 unless asked for, 20 to 30 ms of all
CPUs that no point may be measured in)."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child gets that imports our modules, from whatever folder it is started; `extra` wins."""
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {SPIN_VARIABLE: SPIN, **os.environ, "PYTHONPATH": os.pathsep.join(paths), **(extra or {})}
