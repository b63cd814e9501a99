"""CUDA families compiled by g++ for the CPU through the shim, and their functions called on small arrays."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.spec import CudaFamily, CudaForm

HERE = Path(__file__).parent
GUARD = 64
"""Bytes behind each array that no function may touch, as wide as the widest access."""

OPTIONS = ("-O1", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-w")


@dataclass(frozen=True)
class Tally:
    """What one launch did: FLOP, bytes loaded from and stored to its arrays (0 in a plain build)."""

    flops: float
    loaded: float
    stored: float

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.flops - other.flops, self.loaded - other.loaded, self.stored - other.stored)


class Host:
    """A family's functions on the CPU."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def launch(
        self, entry: str, grid: int, block: int, arrays: Sequence[Any], s: Any, n: int, count: int = 1
    ) -> Tally:
        """Run every thread of a grid on arrays a, b and c (as many as are given), in place."""
        guarded = [_guarded(array) for array in arrays]
        nothing = np.zeros(0, np.uint8)
        pointers = [g.ctypes.data for g in guarded] + [nothing.ctypes.data] * (3 - len(arrays))
        sizes = (ctypes.c_longlong * 3)(*(array.nbytes for array in arrays), *[0] * (3 - len(arrays)))
        tally = (ctypes.c_double * 3)()
        self._library.shim_launch(
            ctypes.cast(getattr(self._library, entry), ctypes.c_void_p),
            *(grid, block),
            *map(ctypes.c_void_p, [*pointers, s.ctypes.data]),
            *(ctypes.c_longlong(n), count, sizes, tally),
        )
        for array, after in zip(arrays, guarded, strict=True):
            assert (after[array.nbytes :] == 0xA5).all(), f"{entry} wrote behind an array"
            array.view(np.uint8).reshape(-1)[:] = after[: array.nbytes]
        return Tally(*tally)


def _guarded(array: Any) -> Any:
    """Bytes of an array at an address that is a multiple of 64, with the guard behind them."""
    room = np.full(array.nbytes + GUARD + 64, 0xA5, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + array.nbytes] = array.view(np.uint8).reshape(-1)
    return room[start : start + array.nbytes + GUARD]


def build(family: CudaFamily, folder: Path, counting: bool = False) -> Host:
    """Compile the functions of a family that need no GPU; AssertionError with g++'s words."""
    compiler = shutil.which("g++")
    assert compiler, "g++ is not installed: the CUDA functions cannot be run on the CPU (apt install g++)"
    forms = tuple(_counted(form) if counting else form for form in family.forms if form.shim)
    source, library = folder / f"family{counting:d}.cpp", folder / f"family{counting:d}.so"
    source.write_text(replace(family, forms=forms).source())
    words = [compiler, *OPTIONS, *["-DCOUNTING"] * counting, "-include", str(HERE / "cuda_shim.h")]
    done = subprocess.run(
        [*words, f"-I{HERE}", str(source), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:2000]
    return Host(library)


def _counted(form: CudaForm) -> CudaForm:
    """The form with integers that count, where it works on them: the macros of the shim are of floats."""
    return replace(form, code=re.sub(r"\bunsigned\b", "shim::Counted<unsigned>", form.code))
