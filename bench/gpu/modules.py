"""Compiles the CUDA C++ of a family to functions: only the entries that are needed, each once a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.errors import DeviceError
from bench.gpu.faults import first_line, translated
from bench.gpu.states import state
from kernels.spec import CudaFamily, CudaForm

STANDARD = "--std=c++17"
"""The bodies choose between their variants with `if constexpr`."""

HEADERS = ("could not open source file", "cannot open source file", "CUDA root directory")
"""What a compiler says that does not find cuda_fp16.h and its like."""


@dataclass(frozen=True)
class Function:
    """A compiled __global__ function: what is launched, and what the compiler made of it.

    call:  CuPy's Function, called with (grid, block, arguments, shared_mem, stream)
    registers, local_bytes: of one thread;  most_threads: of a block;  shared_bytes: dynamic, of a block
    """

    call: Any
    registers: int
    local_bytes: int
    most_threads: int
    shared_bytes: int = 0


@dataclass
class Modules:
    """The functions of this process, compiled by CuPy's NVRTC and cached on disk by CuPy (CUPY_CACHE_DIR)."""

    cupy: Any
    capability: int
    _known: dict[tuple[str, str], Function] = field(default_factory=dict)

    def form(self, name: str, family: CudaFamily, form: CudaForm) -> Function:
        """The function of a form of family `name`; DeviceError names what the compiler lacks or dislikes."""
        key = (name, form.entry)
        if key not in self._known:
            source = family.source(form.entry)
            own = f"{self.capability}a"  # with what only this very architecture has
            options = (f"-arch=sm_{own}",) if own in form.only else ()
            (raw,) = self.compiled(source, (form.entry,), options)
            self._known[key] = self._described(raw, form)
        return self._known[key]

    def compiled(
        self, source: str, entries: tuple[str, ...], options: tuple[str, ...] = ()
    ) -> tuple[Any, ...]:
        """RawKernels of `entries`, compiled for the device of this process.

        CuPy names the device's own architecture behind `options`; one with a letter behind it ("sm_90a"),
        which has more instructions, prevails in either order.
        """
        try:
            with translated("compiling CUDA code"):
                module = self.cupy.RawModule(code=source, options=(STANDARD, *options))
                return tuple(module.get_function(entry) for entry in entries)
        except DeviceError as error:
            raise self._missing(error) from None
        except self.cupy.cuda.compiler.CompileException as error:
            raise self._missing(error, ", ".join(entries)) from None

    def _missing(self, error: Exception, entries: str = "") -> DeviceError:
        """What to say when there is no compiler, when it finds no headers, or refuses the code."""
        wheel = self.cupy.cuda.runtime.runtimeGetVersion() // 1000
        text = str(error)
        if any(words in text for words in HEADERS):
            line = next(row for row in text.splitlines() if any(words in row for words in HEADERS))
            return DeviceError(state("no-headers", error=line.strip(), wheel=wheel).sentence)
        if "libnvrtc" in text or "DynamicLibNotFound" in text:
            return DeviceError(state("no-nvrtc", error=first_line(text), wheel=wheel).sentence)
        if not entries:
            return error if isinstance(error, DeviceError) else DeviceError(text)
        complaint = next((row for row in text.splitlines() if "error" in row), first_line(text))
        return DeviceError(f"the CUDA compiler refuses {entries}: {complaint.strip()}")

    def _described(self, raw: Any, form: CudaForm) -> Function:
        """The function with what the driver says of it; more than 48 KiB of shared memory is asked for."""
        with translated(f"loading {form.entry}"):
            if form.shared_bytes:
                raw.max_dynamic_shared_size_bytes = form.shared_bytes
            if form.carveout >= 0:
                raw.preferred_shared_memory_carveout = form.carveout
            return Function(
                raw.kernel, raw.num_regs, raw.local_size_bytes, raw.max_threads_per_block, form.shared_bytes
            )


def entries(families: Mapping[str, CudaFamily], kernel: str, precision: str) -> list[tuple[str, CudaForm]]:
    """(family name, form) of all forms that measure `kernel` in `precision`, in the order of their file."""
    found = [(name, form) for name, family in families.items() for form in family.forms]
    return [(name, form) for name, form in found if form.kernel == kernel and form.precision == precision]


def lacking(form: CudaForm, capability: int) -> str:
    """Why a GPU of that compute capability (x 10) cannot run a form, "" where it can."""
    if form.only and f"{capability}a" not in form.only and str(capability) not in form.only:
        targets = " or ".join(sorted({f"{int(t.rstrip('af')) / 10:.1f}" for t in form.only}))
        return f"{form.kernel} exists on compute capability {targets} only"
    if capability < form.least_cc:
        return f"{form.precision} {form.kernel} needs compute capability {form.least_cc / 10:.1f}"
    return ""
