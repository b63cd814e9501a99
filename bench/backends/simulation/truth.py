"""The truth of a simulated device: the numbers that a run on it has to find again, read from YAML."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.backends.simulation.defects import defect_of
from bench.backends.simulation.links import Link, Overlap, Peers
from bench.backends.simulation.written import read
from bench.errors import DeviceError, FileError, UsageError
from bench.fitting.in_theory import in_units
from bench.gpu.rates import LABELS
from bench.profile.encoding import FormatError, decode
from bench.profile.records import Precision
from kernels.spec import ITEM_BYTES

CATALOGUE = Path(__file__).parent.with_name("simulated.yaml")

EDGE, HALF_HELD = 2.0, 0.75 * 2**0.5
"""Factor over which a cache goes from holding all of a set to none; share of the capacity half-way."""

_MAY_BE_ZERO = {"t0", "within", "between", "variant_spread", "after", "reported", "small_alpha", "small_beta"}
_SHARES = {"hidden", "efficiency", "naive", "variant_spread"}
_SHARES |= {"one_thread.pi", "one_thread.memory", "gpu.sustained"}

GPU_NAMES = ("fp64", "fp32", "tf32", "fp16", "bf16", "int32", "int8", "fp8", "fp4")
"""What a GPU may have or lack, as real ones name it."""


@dataclass(frozen=True)
class Memory:
    """DRAM: capacity in bytes, beta in byte/s of real traffic per access, and its store habit.

    write_allocate: an ordinary store to an uncached line loads the line first, so that the
    counted bytes of write, copy and triad flow slower than beta; non-temporal stores do not.
    """

    bytes: float
    read: float
    write: float
    update: float
    copy: float
    triad: float
    write_allocate: bool


@dataclass(frozen=True)
class CacheLevel:
    """One cache level: bytes of an instance, who shares it, beta in byte/s of all threads.

    reported: bytes that the system claims where it lies, 0 where it does not know the level
    edge: factor in the working set between holding all of it and nothing
    """

    level: str
    bytes: float
    sharers: int
    instances: int
    read: float
    copy: float
    reported: float | None = None
    edge: float = EDGE

    @property
    def shown(self) -> float:
        """Bytes that the system claims."""
        return self.bytes if self.reported is None else self.reported


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log seconds: within a round (per repetition), between rounds."""

    within: float
    between: float


@dataclass(frozen=True)
class OneThread:
    """Share of the whole device's pi and DRAM beta that one thread alone reaches."""

    pi: float
    memory: float


@dataclass(frozen=True)
class Library:
    """A BLAS that reaches efficiency x s / (s + half_size) of pi, s = (m n k)^(1/3)."""

    efficiency: float = 0.8
    half_size: float = 50.0


@dataclass(frozen=True)
class Gpu:
    """What makes a simulated device a GPU: its threads are SMs, it has telemetry, its clock obeys its power.

    compute_capability: x 10, of which theoretical rates follow
    burst:  factor on the clock until the first warm-up of a round
    sustained, after: share of the clock that is left after so many seconds of one load
    idle_w, load_w, idle_c, load_c: power and temperature, W and degree Celsius
    memory_bus_bits, memory_clock_hz: of the theoretical bandwidth;  sparse_p: p with few blocks an SM
    mig: profile of the slice of a board that it is, "" for a whole one
    second: factor on the times of the second implementation that a cross-check compares with
    """

    compute_capability: int
    burst: float = 1.0
    sustained: float = 1.0
    after: float = 3.0
    idle_w: float = 50.0
    load_w: float = 300.0
    idle_c: float = 30.0
    load_c: float = 70.0
    memory_bus_bits: int = 4096
    memory_clock_hz: float = 1e9
    mig: str = ""
    second: float = 1.0
    sparse_p: float | None = None


@dataclass(frozen=True)
class Truth:
    """Every parameter of a simulated device; all rates are those of all threads together, SI.

    pi: FLOP/s per precision, as the suite is to report it (see bench/backends/simulated.py); on a GPU by
        the label of the unit that does the work ("fp32", "fp16>fp32 matrix")
    p, t0: overlap norm and overhead (s) of T = t0 + ((F/pi)^p + (Q/beta)^p)^(1/p)
    naive: share of pi that the textbook loop reaches;  unsupported: why, per precision
    workloads: efficiency by workload name ("default" for the rest)
    variant_spread: what the worst variant of a kernel loses; the best one has the stated rates
    latency: s of one access by level;  launch: s of starting nothing, by the way it is started
    links, peers, overlap: see links.py
    defects: [{kind: ..., severity: ...} or {kind: ..., ...}], see defects.py
    """

    threads: int
    seed: int
    clock_hz: float
    pi: Mapping[str, float]
    memory: Memory
    caches: tuple[CacheLevel, ...]
    p: float
    t0: float
    one_thread: OneThread
    noise: Noise
    library: Library = field(default_factory=Library)
    naive: float = 0.3
    unsupported: Mapping[str, str] = field(default_factory=dict)
    workloads: Mapping[str, float] = field(default_factory=dict)
    variant_spread: float = 0.0
    defects: tuple[Mapping[str, Any], ...] = ()
    gpu: Gpu | None = None
    latency: Mapping[str, float] = field(default_factory=dict)
    launch: Mapping[str, float] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    peers: Peers | None = None
    overlap: Overlap | None = None

    @property
    def levels(self) -> tuple[str, ...]:
        """Memory levels from the core outwards."""
        return (*(cache.level for cache in self.caches), "DRAM")

    @property
    def precisions(self) -> dict[str, str]:
        """Why each known precision cannot be measured, "" where it can."""
        if self.gpu is None:
            return {**dict.fromkeys(self.pi, ""), **self.unsupported}
        have = {"tf32" if label.endswith(" tf32") else re.split("[> ]", label)[0] for label in self.pi}
        lacking = {n: self.unsupported.get(n, f"no {n} unit") for n in GPU_NAMES if n not in have}
        return {name: lacking.get(name, "") for name in GPU_NAMES}

    def rate_of(self, precision: Precision) -> str:
        """The name in `pi` of the rate behind a precision: a GPU's library runs on its matrix units."""
        dense = "fp64 matrix" in self.pi and precision == Precision.of("fp64", "library")
        return precision.inputs if self.gpu is None else "fp64 matrix" if dense else in_units(precision).label

    def pi_at(self, precision: str, threads: int) -> float:
        """FLOP/s that `threads` threads reach together."""
        return self.pi[precision] * self._share(self.one_thread.pi, threads)

    def library_share(self, m: int, n: int, k: int) -> float:
        """Share of pi that the library reaches at this size."""
        size = (m * n * k) ** (1 / 3)
        return float(self.library.efficiency * size / (size + self.library.half_size))

    def beta_at(self, level: str, access: str, threads: int) -> float:
        """Byte/s of real traffic; a cache belongs to the cores and scales with threads as pi does."""
        if level == "DRAM":
            return float(getattr(self.memory, access)) * self._share(self.one_thread.memory, threads)
        cache = next(c for c in self.caches if c.level == level)
        rate = cache.read if access == "read" else cache.copy
        return rate * self._share(self.one_thread.pi, threads)

    def beta_of_mixture(self, read_fraction: float, threads: int) -> float:
        """DRAM byte/s at a read fraction: linear between write (0), the better of update and copy (1/2)
        and read (1)."""
        low, middle, high = self.memory.write, max(self.memory.update, self.memory.copy), self.memory.read
        near, far = (low, middle) if read_fraction < 0.5 else (middle, high)
        rate = near + (far - near) * (2 * read_fraction - (read_fraction >= 0.5))
        return rate * self._share(self.one_thread.memory, threads)

    def residency(self, working_set: float, threads: int, passed: str = "") -> dict[str, float]:
        """Share of `working_set` (byte, of all threads) that each level serves, but for the one passed by."""
        shares, rest = {}, 1.0
        for cache in (cache for cache in self.caches if cache.level != passed):
            fill = working_set / (cache.bytes * min(cache.instances, threads))
            held = rest * _held(fill, cache.edge)
            if held:
                shares[cache.level] = held
            rest -= held
        return {**shares, "DRAM": rest} if rest else shares

    def _share(self, one: float, threads: int) -> float:
        """Power law from one thread (`one`) to all of them (1)."""
        if self.threads == 1:
            return 1.0
        return float(one ** (1 - math.log(threads) / math.log(self.threads)))


def _held(fill: float, edge: float) -> float:
    """Share of a working set that a cache holds: all, none, log-linear between."""
    return min(1.0, max(0.0, 0.5 - math.log(fill / HALF_HELD) / math.log(edge)))


def truth_of(values: Any, where: str) -> Truth:
    """Truth from plain values; FileError names a missing, unknown, ill-typed or not positive field."""
    try:
        truth = decode(Truth, values, "device")
        for name, value in _numbers(truth, "device"):
            _check(name, value)
        _check_names(truth)
        for defect in truth.defects:
            defect_of(defect, truth.gpu is not None)
    except (FormatError, UsageError) as error:
        raise FileError(
            f"{where}: {error}; bench/backends/{CATALOGUE.name} shows complete simulated devices"
        ) from None
    return truth


def _numbers(value: Any, where: str) -> list[tuple[str, Any]]:
    """Every leaf that must be a number, with its full name."""
    if dataclasses.is_dataclass(value):
        names = [
            f.name for f in dataclasses.fields(value) if f.name not in ("seed", "unsupported", "defects")
        ]
        return [leaf for name in names for leaf in _numbers(getattr(value, name), f"{where}.{name}")]
    if isinstance(value, Mapping):
        return [(f"{where}.{name}", leaf) for name, leaf in value.items()]
    if isinstance(value, tuple):
        return [leaf for i, v in enumerate(value) for leaf in _numbers(v, f"{where}[{i}]")]
    return [] if value is None or isinstance(value, bool | str) else [(where, value)]


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        corner = " (1000 is a sharp corner)" if name == "device.p" else ""
        raise FormatError(f"{name} must be finite, got {value}{corner}")
    may_be_zero = name.rsplit(".", 1)[1] in _MAY_BE_ZERO
    if value < 0 or (value == 0 and not may_be_zero):
        raise FormatError(f"{name} must {'not be negative' if may_be_zero else 'be positive'}, got {value}")
    share = name.rsplit(".", 1)[1] in _SHARES or name.split(".", 1)[1] in _SHARES or ".workloads." in name
    if share and value > 1:
        raise FormatError(f"{name} is a share and must not exceed 1, got {value}")


def _check_names(truth: Truth) -> None:
    if not truth.pi:
        raise FormatError(f"device.pi needs at least one precision of: {', '.join(ITEM_BYTES)}")
    valid = ITEM_BYTES if truth.gpu is None else LABELS
    if unknown := set(truth.pi) - set(valid):
        known = ", ".join(valid)
        named = ", ".join(sorted(map(str, unknown)))
        raise FormatError(f"device.pi has unknown precisions: {named}; known: {known}")
    if both := set(truth.pi) & set(truth.unsupported):
        raise FormatError(
            f"device.unsupported names a precision that device.pi has: {', '.join(sorted(both))}"
        )
    _refuse_unknown("unsupported", truth.unsupported, tuple(dict.fromkeys((*ITEM_BYTES, *GPU_NAMES))))
    if set(truth.workloads) - {"default"}:
        from bench.workloads.on_gpu import ON_GPU
        from bench.workloads.zoo import ZOO

        _refuse_unknown("workloads", truth.workloads, tuple(dict.fromkeys(("default", *ZOO, *ON_GPU))))
    for name in ("burst", "sparse_p") if truth.gpu else ():
        if (value := getattr(truth.gpu, name)) is not None and value < 1:
            raise FormatError(f"device.gpu.{name} must be at least 1, got {value}")
    if len(set(truth.levels)) < len(truth.levels):
        raise FormatError(f"device.caches names a level twice: {', '.join(truth.levels)}")
    if (totals := [cache.bytes * cache.instances for cache in truth.caches]) != sorted(totals):
        raise FormatError("device.caches must be listed from the smallest level to the largest")
    if any(cache.edge <= 1 for cache in truth.caches):
        raise FormatError("device.caches: edge must exceed 1, the factor over which a cache fades")
    if truth.p < 1:
        raise FormatError(f"device.p must be at least 1 (1 is serial, 1000 a sharp corner), got {truth.p}")


def _refuse_unknown(field: str, names: Iterable[str], valid: Sequence[str]) -> None:
    if unknown := sorted(set(map(str, names)) - set(valid)):
        raise FormatError(
            f"device.{field} has unknown names: {', '.join(unknown)}; valid: {', '.join(valid)}"
        )


def catalogue() -> dict[str, Truth]:
    """The simulated devices that come with the suite, by name."""
    return {name: truth_of(values, f"{CATALOGUE.name} ({name})") for name, values in read(CATALOGUE).items()}


def find(name: str) -> tuple[str, Truth]:
    """Name and truth of a catalogue entry or a YAML file; DeviceError lists the catalogue."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return path.stem, truth_of(read(path), path.name)
    entries = catalogue()
    if name not in entries:
        raise DeviceError(
            f"unknown simulated device {name!r}; valid: {', '.join(entries)}, or the path of a *.yaml file"
        )
    return name, entries[name]
