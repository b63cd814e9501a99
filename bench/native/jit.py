"""IR text to a callable address, with compiled objects kept on disk for the next process."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from bench.checkout import CHECKOUT
from bench.native.isa import Isa
from bench.whole_files import replacing

CACHE_VARIABLE = "ROOFLINE_CACHE_DIR"
_kept: list[Any] = []  # linked libraries stay mapped as long as the process lives


@cache
def _targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def cache_folder() -> Path:
    """Where compiled objects are kept: $ROOFLINE_CACHE_DIR, else under $XDG_CACHE_HOME or ~/.cache.

    A user without a name and a home (a container under any number) has none: nothing can be made below it.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    home = os.path.expanduser("~")
    usual = os.path.join(home, ".cache") if home != "~" else os.devnull
    return Path(os.environ.get("XDG_CACHE_HOME") or usual, "empirical-roofline")


def numba_folder() -> str:
    """Numba's cache, apart for each state of our bodies: Numba itself looks at a function's own file only."""
    files = sorted([*CHECKOUT.glob("kernels/*.py"), *CHECKOUT.glob("bench/workloads/*.py")])
    text = b"".join(path.read_bytes() for path in files)
    return str(cache_folder() / f"numba-{hashlib.sha256(text).hexdigest()[:12]}")


def _machine(isa: Isa) -> Any:
    _targets()
    target = llvm.Target.from_triple(isa.triple)
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="small"
    )


def assembly(ir: str, isa: Isa) -> str:
    """The machine code of a module as assembly text of its target."""
    module = llvm.parse_assembly(ir)
    module.verify()
    return str(_machine(isa).emit_assembly(module))


def object_code(ir: str, isa: Isa) -> bytes:
    """The machine code of a module as an object file."""
    module = llvm.parse_assembly(ir)
    module.verify()
    return bytes(_machine(isa).emit_object(module))


def _cached_object(ir: str, isa: Isa) -> bytes:
    version = ".".join(map(str, llvm.llvm_version_info))
    key = hashlib.sha256("\0".join((version, isa.triple, isa.cpu, isa.features, ir)).encode()).hexdigest()
    path = cache_folder() / f"{key[:32]}.o"
    try:
        data = path.read_bytes()
        if data[:4] == b"\x7fELF" and data.endswith(key[:32].encode()):
            return data[:-32]
    except OSError:
        pass
    data = object_code(ir, isa)
    _keep(path, data + key[:32].encode())
    return data


def _keep(path: Path, data: bytes) -> None:
    """Write for the next process; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            beside.write_bytes(data)
    except OSError:
        return


@cache
def _linker() -> Any:
    _targets()
    return llvm.create_lljit_compiler()


@cache
def address(ir: str, isa: Isa, symbol: str = "loop") -> int:
    """Address of `symbol` of a module compiled for this machine."""
    name = f"module{len(_kept)}"
    builder = llvm.JITLibraryBuilder().add_object_img(_cached_object(ir, isa)).export_symbol(symbol)
    library = builder.link(_linker(), name)
    _kept.append(library)
    return int(library[symbol])
