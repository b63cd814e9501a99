"""What triage looks at: a profile, its samples, and what follows from both for more than one hypothesis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from bench.fitting.pooled import usable, work
from bench.profile.records import WHOLE, Ceiling, Curve, Fit, Profile, Sample
from bench.triage import sweeps

COMPUTE, STREAMS = ("fma", "tensor", "gemm"), ("stream",)
"""Families that the arithmetic binds, and those that DRAM binds."""


@dataclass(frozen=True)
class Case:
    """A profile and the samples it came from; nothing else is known, least of all what a device truly is."""

    profile: Profile
    samples: tuple[Sample, ...]

    @cached_property
    def device(self) -> Mapping[str, Any]:
        """As in the run's header, less what only a simulated one knows of itself."""
        given = self.profile.facts.get("device", {})
        return given if isinstance(given, Mapping) else {}

    @property
    def facts(self) -> Mapping[str, Any]:
        """The device's facts."""
        found = self.device.get("facts", {})
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def timed(self) -> tuple[Sample, ...]:
        """Usable samples at the ordinary load, in order of time."""
        typical = [s for s in self.samples if usable(s) and s.regime == "typical"]
        return tuple(sorted(typical, key=start))

    @cached_property
    def piloted(self) -> tuple[Sample, ...]:
        """Good samples of the pilot, which enter no figure."""
        return tuple(s for s in self.samples if s.status == "ok" and s.regime == "pilot")

    @cached_property
    def points(self) -> Mapping[str, Sequence[Sample]]:
        """`timed` by point."""
        groups: dict[str, list[Sample]] = {}
        for sample in self.timed:
            groups.setdefault(sample.point.key, []).append(sample)
        return groups

    @cached_property
    def began(self) -> float:
        """Start of the first repetition, on the samples' clock (s)."""
        return min((start(s) for s in self.timed), default=0.0)

    @cached_property
    def cache_bytes(self) -> float:
        """Bytes of all instances of the last-level cache together, 0 where not known."""
        caches = self.device.get("caches") or ()
        return float(caches[-1]["bytes"] * caches[-1]["instances"]) if caches else 0.0

    @property
    def last_level(self) -> str:
        """Name of the last-level cache, "" where not known."""
        caches = self.device.get("caches") or ()
        return str(caches[-1]["level"]) if caches else ""

    @cached_property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """Typical ceilings of random operands."""
        return tuple(c for c in self.profile.ceilings if c.regime == "typical" and c.operands == "random")

    @cached_property
    def peaks(self) -> tuple[Ceiling, ...]:
        """Every pi of the whole device."""
        return tuple(c for c in self.ceilings if c.quantity == "pi" and c.scope in WHOLE)

    @cached_property
    def memory(self) -> tuple[Ceiling, ...]:
        """Every DRAM beta of the whole device, by stream kernels."""
        streams = (c for c in self.ceilings if c.quantity == "beta" and c.level == "DRAM")
        return tuple(c for c in streams if c.scope in WHOLE)

    @cached_property
    def sweeps(self) -> tuple[tuple[Curve, tuple[sweeps.Step, ...]], ...]:
        """Every intensity sweep of the whole device with the steps inside it."""
        mixes = [c for c in self.profile.curves if c.kind == "mix" and c.scope in WHOLE]
        chains = [c for c in self.peaks if c.kernel == "fma"]
        return sweeps.by_curve(mixes, {c.precision.label: c.estimate.value for c in chains})

    def fit(self, mode: str, precision: str = "") -> Fit | None:
        """The chosen fit of the whole device's intensity sweep of a mode, in that precision or in any.

        None of a sweep with a step inside: what is fitted across one is neither side.
        """
        curves = [c for c, steps in self.sweeps if c.mode == mode and not steps]
        wanted = [c for c in curves if precision in ("", c.precision.label)]
        return next((f for c in wanted for f in c.fits if f.chosen), None)

    def arrays(self, c: Ceiling) -> float:
        """Bytes of all arrays of a stream ceiling, 0 where not known."""
        streams = {"read": 1, "write": 1, "update": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
        sizes = [s.point.sizes.get("bytes", 0) for s in self.timed if _measures(s, c)]
        return float(median(sizes)) * streams.get(c.kernel, 1) if sizes else 0.0

    @cached_property
    def repetitions(self) -> tuple[tuple[float, float, float, Sample], ...]:
        """(start s, seconds, clock Hz or 0, sample) of every positive repetition of `timed`."""
        return tuple(rep for sample in self.timed for rep in _each(sample))

    def conditions(self, name: str) -> list[float]:
        """What the rounds' conditions say of a quantity, where they do."""
        values = (c.get("values", {}).get(name) for c in self.profile.conditions)
        return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _measures(sample: Sample, c: Ceiling) -> bool:
    p = sample.point
    return (p.kernel, p.level, p.access, p.store, p.threads) == (
        c.kernel,
        c.level,
        c.access,
        c.store,
        c.threads,
    )


def _each(sample: Sample) -> Iterator[tuple[float, float, float, Sample]]:
    r = sample.repetitions
    starts = r.start if len(r.start) == len(r) else (0.0,) * len(r)
    clocks = r.clock_hz if len(r.clock_hz) == len(r) else (0.0,) * len(r)
    for begin, seconds, clock in zip(starts, r.seconds, clocks, strict=True):
        if seconds > 0 and math.isfinite(seconds):
            yield begin, seconds, clock, sample


def start(sample: Sample) -> float:
    """When a sample's first repetition began (s); its place in the run where starts are not known."""
    return sample.repetitions.start[0] if sample.repetitions.start else float(sample.order)


def sample_rate(sample: Sample) -> float:
    """Median rate of a sample's positive repetitions (work/s), 0 where it counts no work."""
    rates = [(work(sample) or sample.bytes) / s for s in sample.repetitions.seconds if s > 0]
    return median(rates) if rates else 0.0


def clean_low(c: Ceiling) -> float:
    """Lower end of a ceiling's interval, its value where there is none."""
    return c.estimate.value if c.estimate.low is None else c.estimate.low


def agree(a: float, b: float, margin: float) -> bool:
    """Whether two positive numbers differ by at most a share."""
    return a > 0 and b > 0 and abs(math.log(a / b)) <= math.log1p(margin)
