"""Where CuPy, the CUDA driver and Matplotlib keep what they made, for homes that are small or read-only."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "ROOFLINE_CACHE_DIR"
"""Names one folder for all caches; our own objects and Numba's lie there, too (bench/native/jit.py)."""

CACHES = {
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
    "MPLCONFIGDIR": "matplotlib",
    "PIP_CACHE_DIR": "pip",
}
"""Variable by which each package is told its cache, and our folder for it. Not Numba's: it looks at a
function's own file only, so its folder must change with all of them, which bench/native/jit.py sees to."""


def cache_environment(folder: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables that put the caches into `folder`, less those that the user has set.

    Without a folder and with a home that cannot be written CuPy keeps its code in memory: it would fail else.
    """
    if not folder:
        home = os.path.expanduser("~")
        held = os.access(home, os.W_OK) or environ.get("CUPY_CACHE_DIR")
        return {} if held else {"CUPY_CACHE_IN_MEMORY": "1"}
    root = os.path.abspath(os.path.expanduser(folder))
    wanted = {name: os.path.join(root, place) for name, place in CACHES.items()}
    return {name: place for name, place in wanted.items() if not environ.get(name)}


def use(environ: Mapping[str, str] = os.environ) -> None:
    """Set them for this process and all that it starts."""
    os.environ.update(cache_environment(environ.get(VARIABLE, ""), environ))
