"""The immutable records that a run writes and every other part of the suite reads; all SI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .interval import Interval as Interval

SCHEMA_VERSION = 1
"""Version of samples.jsonl and profile.json. History: 1 (2026-11) first published form. A word that a field
may hold is added without a new version: every file that was valid stays so."""

TOOL_VERSION = "0.1.0"

WHOLE = ("all", "device")
"""Scopes that mean everything a device has: all threads of a host, all SMs of a GPU."""

MIN_CPU_SHARE = 0.98
"""CPU time over wall time below which a repetition counts as disturbed (not clean)."""

MAX_SWITCHES_PER_SECOND = 50.0
"""Where CPU time is not known: involuntary switches a second that housekeeping of the system explains."""


@dataclass(frozen=True)
class Precision:
    """Which arithmetic: input, accumulator and output types, the unit that does it, its mode.

    unit: vector | matrix | library; mode: "" or tf32 | sparse | emulated.
    """

    inputs: str
    accumulate: str
    output: str
    unit: str = "vector"
    mode: str = ""

    @classmethod
    def of(cls, name: str, unit: str = "vector") -> Precision:
        """The plain precision whose three types are all `name` (fp64, fp32, ...)."""
        return cls(name, name, name, unit)

    @property
    def label(self) -> str:
        """Short name for tables: fp64, fp32 library, fp16>fp32 matrix."""
        types = self.inputs if self.inputs == self.accumulate else f"{self.inputs}>{self.accumulate}"
        unit = "" if self.unit == "vector" else f" {self.unit}"
        return f"{types}{unit}" + (f" {self.mode}" if self.mode else "")


@dataclass(frozen=True)
class Point:
    """What is measured; `key` is its identity for resuming and for pooling rounds.

    family, kernel, variant: which loop, and which form of it ("12 chains", "nt s1u4", "numpy")
    level:   name of a memory level (DRAM) or link ("host link"), or "";  store: ordinary | nontemporal | none
    access:  read | write | update | copy | triad | none; of links also h2d | d2h | both | send | exchange
    scope:   core | socket | device | all, with `threads` the number of threads that take part
    sizes:   what fixes the work, by name (bytes, fma, m, n, k, plateau, chunks, devices), integers
    """

    family: str
    kernel: str
    variant: str
    precision: Precision
    level: str = ""
    access: str = "none"
    store: str = "none"
    scope: str = "all"
    threads: int = 1
    operands: str = "random"
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """One line that is equal exactly when the points are."""
        sizes = ",".join(f"{k}={v}" for k, v in sorted(self.sizes.items()))
        precision = self.precision.label
        if self.precision.output != self.precision.accumulate:
            precision += f">{self.precision.output}"
        parts = (self.family, self.kernel, self.variant, precision, self.level, self.access)
        return "/".join((*parts, self.store, f"{self.scope}{self.threads}", self.operands, sizes))


@dataclass(frozen=True)
class Repetitions:
    """Every timed repetition of a sample, one tuple entry each (empty where unsupported).

    start, seconds: s on the sample's clock;  switches: involuntary context switches, all threads
    cpu_share: least CPU time over wall time of any thread;  clock_hz, power_w, temperature_c,
    throttle: what telemetry saw in that repetition
    """

    start: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    switches: tuple[int, ...] = ()
    cpu_share: tuple[float, ...] = ()
    clock_hz: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    temperature_c: tuple[float, ...] = ()
    throttle: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def clean(self) -> tuple[bool, ...]:
        """Per repetition: every thread had its CPU for all but 2 % of the time.

        A switch that took no time disturbs nothing: on a shared machine repetitions with one
        and a full CPU share differ by 0.1 % from those without, while they are a third of all.
        """
        if self.cpu_share:
            return tuple(share >= MIN_CPU_SHARE for share in self.cpu_share)
        switches = self.switches or (0,) * len(self)
        return tuple(n <= MAX_SWITCHES_PER_SECOND * s for n, s in zip(switches, self.seconds, strict=True))


@dataclass(frozen=True)
class Sample:
    """One point in one round: raw, never changed, never thrown away.

    status: ok | skipped | failed, with `reason` in words for the last two
    flops, bytes_read, bytes_written: work of ONE repetition (FLOP, byte) at point.level
    regime: pilot (tuning, enters no ceiling) | burst | typical | sustained
    round:  0 for the pilot, then 1, 2, ...; process: running number of the child process
    visit:  0, 1, ... of the same point within a round, spread over it, so that one bad moment of
            the machine does not decide a round
    facts:  what else is worth keeping (chosen launch shape, library version), JSON values
    """

    point: Point
    round: int
    process: int
    order: int
    visit: int = 0
    status: str = "ok"
    reason: str = ""
    regime: str = "typical"
    clock_source: str = "native"
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    repetitions: Repetitions = field(default_factory=Repetitions)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> float:
        """Bytes moved by one repetition."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Ceiling:
    """One measured figure of a device, such as a pi or a beta, with what makes it comparable.

    quantity: pi (FLOP/s, OP/s of integers) | beta (byte/s) | latency (s of an access) | t0 (s, overhead that
    nothing overlaps) | capacity (byte held);  estimate: median over rounds, t-interval on logarithms
    best: best clean repetition seen, of all where too few were clean
    statistic: p75 | median | p90 | best, within a round
    rounds: how many independent rounds (processes) stand behind it;  cap: allowed half-width
    converged: None when fewer than 5 rounds (no verdict), else width <= cap
    contended: share of the repetitions that were disturbed (evidence, not opinion)
    hidden_traffic: write-allocate and other bytes moved but not counted, bytes per counted byte
    clock_hz: held while measuring;  per_clock_per_unit: FLOP or byte a cycle of each thread or SM
    share_at_clock: of what the units could do in theory at that clock;  energy_j: J per FLOP or byte,
    where measured over at least 1 s;  each None where not known
    """

    quantity: str
    precision: Precision
    level: str
    access: str
    store: str
    scope: str
    threads: int
    operands: str
    kernel: str
    variant: str
    estimate: Interval
    best: float
    unit: str
    regime: str
    statistic: str
    rounds: int
    cap: float
    converged: bool | None
    contended: float
    hidden_traffic: float = 0.0
    clock_hz: float | None = None
    per_clock_per_unit: float | None = None
    share_at_clock: float | None = None
    energy_j: float | None = None
    share_of_datasheet: float | None = None
    checks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CurvePoint:
    """One setting of a sweep: x, as the curve's kind says, and its rate, or its time in a curve of times.

    flops, bytes, seconds: of one repetition
    rates: one a round, of the rounds that the curve has in common; empty where one of them is missing
    clock_hz: held at this point, where known;  note: "launch-limited", or why no fit uses it
    """

    x: float
    estimate: Interval
    flops: float
    bytes: float
    seconds: float
    rates: tuple[float, ...] = ()
    variant: str = ""
    clock_hz: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """One model form fitted to one curve (see docs/format.md for the forms).

    form: hard-min | p-norm | power-capped | clock-normalised
    pi FLOP/s, beta byte/s, ridge FLOP/byte, t0 s, p and omega pure
    rms: root mean square of log residuals;  chosen: the form with the lowest AICc
    limits: in words, when a parameter is one-sided ("pi not reached: at least ...") or the sweep has a step
    pi_c, beta_c: FLOP/s and byte/s of the cap, of the power-capped form only
    clock_hz: that pi refers to, held_clock_hz at held_intensity FLOP/byte: of the clock-normalised form
    """

    form: str
    pi: Interval
    beta: Interval
    ridge: Interval
    omega: Interval
    p: float | None
    t0: float
    rms: float
    aicc: float
    chosen: bool = False
    limits: str = ""
    pi_c: float | None = None
    beta_c: float | None = None
    clock_hz: float | None = None
    held_intensity: tuple[float, ...] = ()
    held_clock_hz: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A sweep over rounds with the fits to it.

    kind: mix (FLOP/s against FLOP/byte) | cache, link, collective (byte/s against byte) | gemm (FLOP/s
    against n) | latency, launch (s against byte) | concurrency (byte/s against bytes in flight) | cores
    (byte/s or FLOP/s against threads or SMs) | overlap (s against chunks)
    mode: read-only | in-place for mix; the access for cache; the shape for gemm; in words for the others
    plateaus: what the analysis found in it (docs/format.md)
    """

    kind: str
    mode: str
    precision: Precision
    scope: str
    threads: int
    unit: str
    points: tuple[CurvePoint, ...]
    fits: tuple[Fit, ...] = ()
    plateaus: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Placement:
    """One real workload on the roof of its own precision, threads, level and read fraction.

    achieved FLOP/s (byte/s where flops is 0); attainable in the same unit; efficiency = ratio
    binds: memory | compute | launch | cannot tell;  idle: share of the OTHER resource unused
    least_seconds: the time this work takes on the roof, launch overhead included
    """

    name: str
    precision: Precision
    level: str
    threads: int
    implementation: str
    flops: float
    bytes_read: float
    bytes_written: float
    seconds: Interval
    achieved: Interval
    attainable: Interval
    efficiency: Interval
    unit: str
    binds: str
    idle: float
    least_seconds: float
    source: str = ""
    note: str = ""

    @property
    def bytes(self) -> float:
        """Compulsory bytes of one execution."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOP/byte: 0 for a workload without arithmetic, infinite for one that moves nothing."""
        return self.flops / self.bytes if self.bytes else float("inf")


@dataclass(frozen=True)
class Profile:
    """A device as measured: everything derived from samples.jsonl, remade by `fit`.

    identity must match before samples are combined; conditions are recorded, never compared
    skipped and not_measured say in words what is absent and why
    """

    schema_version: int
    identity: Mapping[str, Any]
    provenance: Mapping[str, Any]
    conditions: tuple[Mapping[str, Any], ...]
    simulated: bool
    ceilings: tuple[Ceiling, ...]
    curves: tuple[Curve, ...]
    placements: tuple[Placement, ...]
    skipped: tuple[Mapping[str, str], ...] = ()
    not_measured: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
