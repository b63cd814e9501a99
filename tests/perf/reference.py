"""The C reference: compiled for this host, loaded, its memory, and its windows as sides of a comparison."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import DeviceError, ResourceError
from bench.native.loops import WARM_SECONDS
from kernels.spec import ITEM_BYTES
from tests.perf.pairs import Window

SOURCE = Path(__file__).with_name("reference.c")
OPTIONS = ("-O3", "-fopenmp", "-shared", "-fPIC")
STREAMS = {"write": 1, "read": 1, "update": 2, "copy": 2, "scale": 2, "add": 3, "triad": 3}
"""Arrays loaded plus arrays stored: the byte convention of the suite, stated independently of it."""

ARRAYS = {"write": 1, "read": 1, "update": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
SPARE = 4096  # doubles behind each array: room for the skewed starts
FACTOR = 1.0 + 2.0**-30  # stays finite over any number of updates that a run can do
CHAIN_FACTOR = 1e-12


def compiler() -> str:
    """Path of the C compiler: CC from the environment, gcc, clang; DeviceError when there is none."""
    wanted = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"]
    for name in wanted:
        if found := shutil.which(name):
            return found
    raise DeviceError(
        f"no C compiler found (looked for {', '.join(wanted)}); "
        "install gcc (Debian: apt install gcc) or name yours: CC=..."
    )


def build(folder: Path) -> Path:
    """Compile the reference into `folder` for this very host; DeviceError says what the compiler said."""
    command = compiler()
    tune = "-mcpu=native" if platform.machine() == "aarch64" else "-march=native"
    # Without this gcc turns the plain copy into memcpy, which picks its kind of store by itself.
    plain = () if "clang" in Path(command).name else ("-fno-tree-loop-distribute-patterns",)
    library = folder / "reference.so"
    call = [command, *OPTIONS, tune, *plain, str(SOURCE), "-o", str(library)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise DeviceError(
            f"{Path(command).name} could not compile the C reference: {said}; try another one: CC=..."
        )
    return library


class _Team(ctypes.Structure):
    _fields_ = (("threads", c_int), ("cpus", POINTER(c_int)), ("warm", c_double))


class _StreamEntry(ctypes.Structure):
    _fields_ = (
        ("kernel", c_char_p),
        ("store", c_char_p),
        ("variant", c_char_p),
        ("run", c_void_p),
        ("skew", c_int64),
    )


class _PeakEntry(ctypes.Structure):
    _fields_ = (("precision", c_char_p), ("run", c_void_p), ("chains", c_int))


@dataclass(frozen=True)
class StreamForm:
    """One stream loop of the reference: what it computes, how it stores, in which form."""

    index: int
    kernel: str
    store: str
    variant: str
    skew: int


@dataclass(frozen=True)
class PeakForm:
    """One FMA loop of the reference."""

    index: int
    precision: str
    chains: int


class Reference:
    """The loaded library: tables of loops and calls that return seconds."""

    def __init__(self, library: Path) -> None:
        # Threads that spin after their work would disturb the other side's next window.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        self._c = c = ctypes.CDLL(str(library))
        c.reference_isa.restype = c_char_p
        c.reference_stream_entry.restype = POINTER(_StreamEntry)
        c.reference_peak_entry.restype = POINTER(_PeakEntry)
        c.reference_allocate.restype, c.reference_allocate.argtypes = c_void_p, [c_size_t]
        c.reference_release.argtypes = [c_void_p, c_size_t]
        result = POINTER(c_double)
        c.reference_peak.argtypes = [c_int, _Team, c_int64, c_double, result]
        c.reference_stream.argtypes = [c_int, _Team, *[c_void_p] * 3, *[c_int64] * 4, c_double, result]
        c.reference_touch.argtypes = [_Team, c_void_p, c_int64, c_int64, c_int, result]
        c.reference_cycle.argtypes = [c_void_p, c_int64, c_int64]
        c.reference_chase.argtypes = [_Team, c_void_p, c_int64, POINTER(c_void_p), c_int64, result]
        for timed in (c.reference_peak, c.reference_stream, c.reference_touch, c.reference_chase):
            timed.restype = c_double
        self.isa = c.reference_isa().decode()
        self.vector_bytes = int(c.reference_vector_bytes())
        self.granule = int(c.reference_granule())

    def streams(self, kernel: str, store: str) -> tuple[StreamForm, ...]:
        """All forms of `kernel` with this kind of store (read has the store kind none)."""
        entries = (self._c.reference_stream_entry(i)[0] for i in range(self._c.reference_stream_count()))
        forms = (
            StreamForm(i, e.kernel.decode(), e.store.decode(), e.variant.decode(), e.skew)
            for i, e in enumerate(entries)
        )
        return tuple(form for form in forms if (form.kernel, form.store) == (kernel, store))

    def peaks(self, precision: str) -> tuple[PeakForm, ...]:
        """All FMA loops of one precision."""
        entries = (self._c.reference_peak_entry(i)[0] for i in range(self._c.reference_peak_count()))
        forms = (PeakForm(i, e.precision.decode(), e.chains) for i, e in enumerate(entries))
        return tuple(form for form in forms if form.precision == precision)

    def call(self, name: str, first: Sequence[Any], team: Team, rest: Sequence[Any]) -> tuple[float, float]:
        """Run one entry on a team; (seconds, sum that the loop returned)."""
        result = c_double()
        function = getattr(self._c, f"reference_{name}")
        seconds = function(*first, team.block, *rest, ctypes.byref(result))
        if seconds < 0:
            raise ResourceError(
                f"OpenMP gave fewer than {team.threads} threads; unset OMP_THREAD_LIMIT and OMP_DYNAMIC"
            )
        return seconds, result.value

    def cycle(self, address: int, lines: int, seed: int) -> None:
        """Write a random cycle of pointers over the lines of a set; ResourceError without memory for it."""
        if self._c.reference_cycle(address, lines, seed):
            raise ResourceError(f"no memory for the order of {lines} lines; choose a smaller set")

    def allocate(self, bytes: int) -> int:
        """Address of fresh memory that nobody has touched; ResourceError when there is none."""
        address = self._c.reference_allocate(bytes)
        if not address:
            raise ResourceError(f"no memory for an array of {bytes} byte; choose smaller arrays")
        return int(address)

    def release(self, address: int, bytes: int) -> None:
        """Give an allocation back."""
        self._c.reference_release(address, bytes)


class Team:
    """Which CPUs take part, thread by thread, and how long each warms up before a window (s)."""

    def __init__(self, cpus: Sequence[int], warm: float = WARM_SECONDS) -> None:
        self.threads = len(cpus)
        self.block = _Team(self.threads, (c_int * self.threads)(*cpus), warm)


class Arrays:
    """Three equal arrays of doubles, touched first by the team, with a window that walks through them."""

    def __init__(self, reference: Reference, team: Team, bytes: int) -> None:
        """`bytes` of ONE array, rounded down to whole granules per thread."""
        self.reference, self.team = reference, team
        unit = reference.granule
        self.pitch = bytes // 8 // team.threads // unit * unit
        if not self.pitch:
            raise ResourceError(f"an array of {bytes} byte is too small for {team.threads} threads")
        self.items = self.pitch * team.threads
        self._bytes = 8 * (self.items + SPARE)
        self.addresses = [reference.allocate(self._bytes) for _ in range(3)]
        self._offset = 0
        for seed, address in enumerate(self.addresses):
            reference.call("touch", [], team, [address, self.pitch, SPARE, seed])

    def next(self, count: int) -> int:
        """Offset of the next `count` doubles of each thread's slice, wrapping at the end."""
        if self._offset + count > self.pitch:
            self._offset = 0
        at, self._offset = self._offset, self._offset + count
        return at

    def view(self, which: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Array `which` as NumPy sees it, spare tail included."""
        block = (c_double * (self.items + SPARE)).from_address(self.addresses[which])
        return np.ctypeslib.as_array(block)

    def close(self) -> None:
        """Give the memory back; views die with it."""
        for address in self.addresses:
            self.reference.release(address, self._bytes)
        self.addresses = []


class StreamSide:
    """Windows of one stream loop over cold memory: `bytes` counted bytes each, all threads together."""

    def __init__(self, arrays: Arrays, form: StreamForm, bytes: float) -> None:
        self.name = form.variant
        self._arrays, self._form = arrays, form
        unit, team = arrays.reference.granule, arrays.team
        wanted = bytes / STREAMS[form.kernel] / 8 / team.threads
        self._passes = max(1, math.ceil(wanted / (arrays.pitch + unit)))
        self._count = min(max(round(wanted / self._passes / unit), 1) * unit, arrays.pitch)
        self.sum = 0.0

    def window(self) -> Window:
        """Stream the next part of every thread's slice."""
        arrays, offset = self._arrays, self._arrays.next(self._count)
        rest = [*arrays.addresses, arrays.pitch, offset, self._count, self._passes, FACTOR]
        seconds, self.sum = arrays.reference.call("stream", [self._form.index], arrays.team, rest)
        work = 8 * STREAMS[self._form.kernel] * self._count * self._passes * arrays.team.threads
        return Window(float(work), seconds)


class CacheSide:
    """Windows that read the same `set_bytes` of each thread `repeats` times."""

    def __init__(self, arrays: Arrays, form: StreamForm, set_bytes: int, repeats: int) -> None:
        unit = arrays.reference.granule
        self.name = form.variant
        self.repeats = repeats
        self._arrays, self._form = arrays, form
        self._count = min(max(set_bytes // 8 // unit, 1) * unit, arrays.pitch)
        self.sum = 0.0

    def window(self) -> Window:
        """Read the set many times; only the first of the repeats is cold."""
        arrays = self._arrays
        rest = [*arrays.addresses, arrays.pitch, 0, self._count, self.repeats, FACTOR]
        seconds, self.sum = arrays.reference.call("stream", [self._form.index], arrays.team, rest)
        return Window(float(8 * self._count * self.repeats * arrays.team.threads), seconds)


class PeakSide:
    """Windows of one FMA loop; work in FLOP."""

    def __init__(self, reference: Reference, team: Team, form: PeakForm, flops: float) -> None:
        self.name = f"{form.chains} chains"
        self._reference, self._team, self._form = reference, team, form
        item = ITEM_BYTES[form.precision]
        self._step = 2 * form.chains * reference.vector_bytes // item * team.threads
        self.iterations = max(1, round(flops / self._step))
        self.factor = CHAIN_FACTOR
        self.sum = 0.0

    def window(self) -> Window:
        """All chains, `iterations` steps on every thread."""
        rest = [self.iterations, self.factor]
        seconds, self.sum = self._reference.call("peak", [self._form.index], self._team, rest)
        return Window(float(self._step * self.iterations), seconds)


LINE_BYTES = 64
UNROLLED = 16  # loads of one turn of the loop


class ChaseSide:
    """Windows of one chain of dependent loads around a random cycle over a set of its own."""

    name = "1 chain"

    def __init__(
        self, reference: Reference, team: Team, bytes: int, loads: float, kept: bool, seed: int
    ) -> None:
        """`loads` loads a window; `kept`: the set fits the caches, and is passed before every window."""
        self.lines, self.kept = bytes // LINE_BYTES, kept
        self.loads = max(1, round(loads / UNROLLED)) * UNROLLED
        self._reference, self._team, self._bytes = reference, team, bytes
        self.address = reference.allocate(bytes)
        reference.cycle(self.address, self.lines, seed)
        self.place = c_void_p(self.address)

    def window(self) -> Window:
        """Go on with the chase; work in byte, a line a load."""
        rest = [self.address, self.lines if self.kept else 0, ctypes.byref(self.place), self.loads]
        seconds, _ = self._reference.call("chase", [], self._team, rest)
        return Window(float(LINE_BYTES * self.loads), seconds)

    def close(self) -> None:
        """Give the set back."""
        self._reference.release(self.address, self._bytes)
