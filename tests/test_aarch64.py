"""Optional: the loops emitted for AArch64 run under qemu-user and equal their references."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.native import abi, emit, isa, jit
from bench.native.arena import RESULT_BYTES
from bench.native.check import BLOCKS, GUARD_BYTES, check_loop
from bench.native.emit import Form
from bench.native.loops import block_bytes
from kernels import KERNELS
from kernels.spec import LOOPED, ChainShape
from tests.test_native import forms

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ABSENT = [tool for tool in (COMPILER, EMULATOR) if not shutil.which(tool)]
EMITTED = ("stream", "fma", "mix")  # pointers of a chase would not survive the copy into the emulator
NEON = isa.KNOWN["neon"]

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(bool(ABSENT), reason=f"needs {ABSENT}"),
]


def program(folder: Path, text: str) -> Path:
    (folder / "loop.o").write_bytes(jit.object_code(text, NEON))
    made = folder / "program"
    harness = Path(__file__).with_name("aarch64.c")
    subprocess.run([COMPILER, "-O2", "-static", harness, folder / "loop.o", "-o", made], check=True)
    return made


def emulated(binary: Path, span: int) -> Any:
    """A call that runs the loop in the emulator on a copy of the memory its arguments point to."""
    words = (abi.A, abi.B, abi.C, abi.RESULT)

    def call(args: Any) -> None:
        sizes = [(span + 2 * GUARD_BYTES) * bool(args[w]) for w in words[:3]] + [RESULT_BYTES]
        memory = b"".join(ctypes.string_at(int(args[w]), n) for w, n in zip(words, sizes, strict=True))
        given = args.tobytes() + np.array(sizes, np.int64).tobytes() + memory
        done = subprocess.run([EMULATOR, binary], input=given, capture_output=True, check=True).stdout
        assert len(done) == sum(sizes)
        for word, n in zip(words, sizes, strict=True):
            ctypes.memmove(int(args[word]), done[:n], n)
            done = done[n:]

    return call


@pytest.mark.parametrize("precision", LOOPED)
@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if k.family in EMITTED])
def test_loop_equals_its_reference_on_aarch64(name: str, precision: str, tmp_path: Path) -> None:
    kernel = KERNELS[name]
    for form in forms(name):
        span = 0 if isinstance(kernel.shape, ChainShape) else BLOCKS * block_bytes(kernel.shape, form, NEON)
        binary = program(tmp_path, emit.loop_ir(kernel.shape, form, NEON, precision))
        check_loop(emulated(binary, span), kernel, form, precision, NEON)


@pytest.mark.parametrize("precision", sorted(NEON.units))
def test_chains_of_narrow_items_equal_their_reference_on_aarch64(precision: str, tmp_path: Path) -> None:
    for form in forms("fma"):
        binary = program(tmp_path, emit.loop_ir(ChainShape(), form, NEON, precision))
        check_loop(emulated(binary, 0), KERNELS["fma"], form, precision, NEON)


def test_the_emulated_check_can_fail(tmp_path: Path) -> None:
    form = Form(1, 4)
    binary = program(tmp_path, emit.loop_ir(KERNELS["copy"].shape, form, NEON, "fp64"))
    span = BLOCKS * block_bytes(KERNELS["copy"].shape, form, NEON)
    with pytest.raises(Exception, match="scale"):
        check_loop(emulated(binary, span), KERNELS["scale"], form, "fp64", NEON)
