"""The truth of a simulated device: the numbers that a run on it has to find again, read from YAML."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.backends.simulation.defects import defect_of
from bench.errors import DeviceError, FileError, UsageError
from bench.profile.encoding import FormatError, decode
from kernels.spec import ITEM_BYTES

CATALOGUE = Path(__file__).parent.with_name("simulated.yaml")

RESIDENT, EVICTED = 0.75, 1.5
"""Working set over capacity up to which a cache holds all of it, and from which it holds nothing."""

_MAY_BE_ZERO = {"t0", "within", "between", "variant_spread"}
_SHARES = {"efficiency", "naive", "variant_spread", "one_thread.pi", "one_thread.memory"}


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
    """One cache level: bytes of an instance, who shares it, beta in byte/s of all threads."""

    level: str
    bytes: float
    sharers: int
    instances: int
    read: float
    copy: float


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
class Truth:
    """Every parameter of a simulated device; all rates are those of all threads together, SI.

    pi: FLOP/s per precision, as the suite is to report it (see bench/backends/simulated.py)
    p, t0: overlap norm and overhead (s) of T = t0 + ((F/pi)^p + (Q/beta)^p)^(1/p)
    naive: share of pi that the textbook loop reaches;  unsupported: why, per precision
    workloads: efficiency by workload name ("default" for the rest)
    variant_spread: what the worst variant of a kernel loses; the best one has the stated rates
    defects: [{kind: ..., ...}], see defects.py
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

    @property
    def levels(self) -> tuple[str, ...]:
        """Memory levels from the core outwards."""
        return (*(cache.level for cache in self.caches), "DRAM")

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

    def residency(self, working_set: float, threads: int) -> dict[str, float]:
        """Share of the traffic that each level serves, for `working_set` bytes of all threads together."""
        shares, rest = {}, 1.0
        for cache in self.caches:
            fill = working_set / (cache.bytes * min(cache.instances, threads))
            held = rest * _held(fill)
            if held:
                shares[cache.level] = held
            rest -= held
        return {**shares, "DRAM": rest} if rest else shares

    def _share(self, one: float, threads: int) -> float:
        """Power law from one thread (`one`) to all of them (1)."""
        if self.threads == 1:
            return 1.0
        return float(one ** (1 - math.log(threads) / math.log(self.threads)))


def _held(fill: float) -> float:
    """Share of a working set that a cache holds: all, none, log-linear between."""
    if fill <= RESIDENT:
        return 1.0
    return max(0.0, 1 - math.log(fill / RESIDENT) / math.log(EVICTED / RESIDENT))


class _Loader(yaml.SafeLoader):
    """YAML as people write numbers: 1e9 is a number (YAML 1.2), a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.MarkedYAMLError(problem=f"given twice: {', '.join(sorted(twice))}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise FileError(f"{path.name} is not valid YAML: {where}") from None
    except RecursionError:
        raise FileError(f"{path.name} is nested too deeply: a simulated device has two levels") from None
    except UnicodeDecodeError:
        raise FileError(f"{path.name} is not UTF-8 text: a simulated device is a YAML file") from None
    except OSError as error:
        raise FileError(
            f"cannot read the simulated device {path.name}: {error.strerror}; give a readable file"
        ) from None


def truth_of(values: Any, where: str) -> Truth:
    """Truth from plain values; FileError names a missing, unknown, ill-typed or not positive field."""
    try:
        truth = decode(Truth, values, "device")
        for name, value in _numbers(truth, "device"):
            _check(name, value)
        _check_names(truth)
        for defect in truth.defects:
            defect_of(defect)
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
    return [] if isinstance(value, bool | str) else [(where, value)]


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
    if unknown := set(truth.pi) - set(ITEM_BYTES):
        known = ", ".join(ITEM_BYTES)
        named = ", ".join(sorted(map(str, unknown)))
        raise FormatError(f"device.pi has unknown precisions: {named}; known: {known}")
    if both := set(truth.pi) & set(truth.unsupported):
        raise FormatError(
            f"device.unsupported names a precision that device.pi has: {', '.join(sorted(both))}"
        )
    if len(set(truth.levels)) < len(truth.levels):
        raise FormatError(f"device.caches names a level twice: {', '.join(truth.levels)}")
    totals = [cache.bytes * cache.instances for cache in truth.caches]
    if totals != sorted(totals):
        raise FormatError("device.caches must be listed from the smallest level to the largest")
    if truth.p < 1:
        raise FormatError(f"device.p must be at least 1 (1 is serial, 1000 a sharp corner), got {truth.p}")


def catalogue() -> dict[str, Truth]:
    """The simulated devices that come with the suite, by name."""
    return {name: truth_of(values, f"{CATALOGUE.name} ({name})") for name, values in _read(CATALOGUE).items()}


def find(name: str) -> tuple[str, Truth]:
    """Name and truth of a catalogue entry or a YAML file; DeviceError lists the catalogue."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return path.stem, truth_of(_read(path), path.name)
    entries = catalogue()
    if name not in entries:
        raise DeviceError(
            f"unknown simulated device {name!r}; valid: {', '.join(entries)}, or the path of a *.yaml file"
        )
    return name, entries[name]
