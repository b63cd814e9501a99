"""The simulated device: known pi, beta, overlap, overhead and noise behind the verbs of every backend.

    T = t0 + ((F/pi)^p + (Q/beta)^p)^(1/p)

F/pi and Q/beta each carry log-normal noise, drawn per (seed, round, resource) between rounds and
per (seed, round, point, visit, amount) within: a point measures the same in whatever order points come,
and in a run that was interrupted between two visits.
The clock is virtual. Noise is centred where the suite reads a point (pi at the p75 of the rates,
everything else at the median), so that a truth is what a report should say.
The arithmetic of a stream is part of its measured beta, as on a real device; where arrays lie
follows from their size, not from the level that a point claims.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from bench.backends import UNBOUNDED, Prepared
from bench.backends.simulation import cost as price
from bench.backends.simulation import links
from bench.backends.simulation.board import Board, gpu_facts, gpu_identity
from bench.backends.simulation.clocks import OffBy
from bench.backends.simulation.defects import defect_of, kind_of, parse
from bench.backends.simulation.distortion import Call, Defect
from bench.backends.simulation.truth import Truth, find, truth_of
from bench.device import Cache, Device
from bench.errors import DeviceError
from bench.profile import roofline
from bench.profile.encoding import plain
from bench.profile.records import Point, Precision, Repetitions
from kernels import KERNELS


class SimulatedBackend:
    """A device whose truth is known; the verbs are explained in bench/backends/__init__.py."""

    clock_source = "virtual"

    def __init__(self, name: str, truth: Truth, defects: Sequence[Defect] = (), id: str = "") -> None:
        self.name, self.truth, self.given = name, truth, tuple(defects)
        gpu = truth.gpu is not None
        self.defects = (*(defect_of(values, gpu) for values in truth.defects), *defects)
        self.device = _device(name, truth, self.defects, id or f"sim:{name}")
        self.board = Board(truth)
        self._caches = {cache.level for cache in truth.caches}
        self._salt: tuple[str, ...] = ()
        self._seconds, self.deadline = 0.0, math.inf
        self.begin_round(0)

    @classmethod
    def named(cls, text: str) -> SimulatedBackend:
        """The device of "NAME", "FILE.yaml", or either with "+defect:severity,setting=number" behind it."""
        cut = text.find("+", max(text.rfind(".yaml"), text.rfind(".yml"), 0))
        cut = len(text) if cut < 0 else cut
        name, truth = find(text[:cut])
        # An absolute path would carry a user's name into the results.
        shown = Path(text[:cut]).name if Path(text[:cut]).is_absolute() else text[:cut]
        gpu = truth.gpu is not None
        defects = [defect_of(parse(part), gpu) for part in text[cut:].split("+") if part]
        return cls(name, truth, defects, f"sim:{shown}{text[cut:]}")

    @classmethod
    def again(cls, device: Device) -> SimulatedBackend:
        """The same device from its record, though its YAML file be gone; FileError if that is damaged."""
        identity = device.identity
        parameters = {**identity.get("parameters", {}), "defects": identity.get("defects", [])}
        name = str(identity.get("device", "")).removeprefix("SIMULATED ")
        return cls(name, truth_of(parameters, f"the record of {device.id}"), (), device.id)

    def second(self) -> SimulatedBackend:
        """Another implementation on the same device, with noise of its own: what a cross-check compares."""
        factor = self.truth.gpu.second if self.truth.gpu else 1.0
        other = SimulatedBackend(self.name, self.truth, [*self.given, OffBy(factor)])
        other._salt = ("second",)
        return other

    def begin_round(self, round: int) -> None:
        """Everything measured from now on carries the noise of `round` (0: the pilot)."""
        self._round = round
        self._factors: dict[str, float] = {}
        self.board.warm = False
        self.begin_visit("", 0)

    def begin_visit(self, regime: str, visit: int) -> None:
        """What comes now draws its own noise, whatever was measured before it in this round."""
        self._visit = (regime, visit)
        self._noise: dict[tuple[object, ...], np.random.Generator] = {}

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Forms of `kernel`; which of them is best is part of the truth (variant_spread)."""
        return price.variants(kernel, self.device.is_gpu)

    def unsupported(self, point: Point) -> str:
        """Why `point` cannot be measured here, or "" if it can."""
        name, precision = self.device.name, self.truth.rate_of(point.precision)
        if point.family in links.FAMILIES:
            why = links.unsupported(self.truth, point)
            return f"{name}: {why}" if why else ""
        if why := links.too_few(self.truth, point):
            return f"{name}: {why}"
        if precision not in self.truth.pi:
            names = (point.precision.mode, point.precision.inputs)
            why = next(filter(None, map(self.device.precisions.get, names)), "")
            return f"{name}: {why or f'no {precision} arithmetic'}"
        if not 1 <= point.threads <= self.truth.threads:
            return f"{name} has {self.truth.threads} {self.device.unit}s, not {point.threads}"
        if point.level and point.level not in self.truth.levels:
            return f"{name} has no level {point.level}; it has {', '.join(self.truth.levels)}"
        known = price.known_kernels(point.family, self.truth.gpu is not None)
        return "" if point.kernel in known else f"{name} knows no {point.kernel}; it knows {', '.join(known)}"

    def prepare(self, point: Point) -> Prepared:
        """Work out what the point costs; MemoryError when its arrays exceed the memory."""
        if reason := self.unsupported(point):
            raise DeviceError(f"{reason}; leave it out")
        cost, memory = price.cost(self.truth, point), self.truth.memory.bytes
        if cost.allocated > memory:
            raise MemoryError(
                f"{self.device.name}: {cost.allocated:.4g} byte wanted, {memory:.4g} byte there"
            )
        facts: dict[str, Any] = {"simulated": True, "allocated_bytes": int(cost.allocated)}
        if point.family == "stream":
            facts["hidden_traffic"] = price.hidden_traffic(self.truth, KERNELS[point.kernel], point.store)
        self.board.loaded = 0.0
        prepared = Prepared(point, cost.unit.times, 1, UNBOUNDED, 1, facts | self.board.facts, cost)
        for defect in self.defects:
            prepared = defect.prepare(prepared, cost.allocated)
        return prepared

    def verify(self, prepared: Prepared) -> None:
        """Nothing is computed, so nothing differs, unless a defect says so."""
        for defect in self.defects:
            defect.verify(prepared)

    def warm_up(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        self._seconds += seconds
        self.board.warm = True

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """n repetitions of `amount` units; ValueError for an amount that `prepared` does not allow.

        TimeoutError at `deadline` (s of the virtual clock), as a watchdog would end the process.
        """
        if not (prepared.least <= amount <= prepared.most and amount % prepared.step == 0 and n >= 1):
            raise ValueError(f"{n} x {amount} units: allowed are {prepared.least} to {prepared.most}")
        what: tuple[object, ...] = (*self._salt, prepared.point.key, *self._visit, amount)
        if n == 1 and what not in self._noise:
            what = (*what, "trial")  # a process that goes on with a round begins with one
        normal = self._drawn(*what).standard_normal(n)
        done = self._repetitions(
            self.board.clocked(lambda c: self._model(prepared.handle, amount, normal, c))
        )
        calls = [self._call(prepared, amount, *what, f"defect {i}") for i in range(len(self.defects))]
        for defect, call in zip(self.defects, calls, strict=True):
            distorted = defect.measure(done, call)
            if distorted is not done:
                done = replace(distorted, start=self._starts(distorted.seconds))
        self._seconds = min(self.deadline, done.start[-1] + done.seconds[-1])
        if self._seconds >= self.deadline:
            raise TimeoutError(f"{prepared.point.kernel} took too long")
        for defect, call in zip(self.defects, calls, strict=True):
            done = defect.told(done, call)
        return done

    def release(self, prepared: Prepared) -> None:
        """Nothing was allocated."""

    def conditions(self) -> Mapping[str, Any]:
        """A quiet machine, as far as no defect disturbs it."""
        values: Mapping[str, Any] = {"simulated": True, "load": 0.0, "clock_hz": self.truth.clock_hz}
        values = {**values, **self.board.conditions()}
        for defect in self.defects:
            values = defect.conditions(values, self._seconds)
        return values

    def now(self) -> float:
        """Virtual seconds since the backend was opened."""
        return self._seconds

    def _starts(self, seconds: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(accumulate(seconds[:-1], initial=self._seconds))

    def _repetitions(self, rows: Sequence[tuple[float, float, float]]) -> Repetitions:
        """Of (seconds, share of the clock, seconds under load before) each."""
        seconds, n = tuple(row[0] for row in rows), len(rows)
        clock = tuple(self.truth.clock_hz * share for _, share, _ in rows)
        told = self.board.telemetry(rows)
        return Repetitions(self._starts(seconds), seconds, (0,) * n, (1.0,) * n, clock, **told)

    def _drawn(self, *what: object) -> np.random.Generator:
        """The generator of this visit that goes on where its last call ended."""
        if what not in self._noise:
            self._noise[what] = self._generator(*what)
        return self._noise[what]

    def _generator(self, *what: object) -> np.random.Generator:
        text = "|".join(str(part) for part in (self.truth.seed, self._round, *what))
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(digest, "big"))

    def _between(self, resource: str) -> float:
        """This round's factor on the seconds of a resource: pi of a precision, beta of a level."""
        if resource not in self._factors:
            normal = self._generator("resource", resource).standard_normal()
            self._factors[resource] = float(np.exp(self.truth.noise.between * normal))
        return self._factors[resource]

    def _model(self, cost: price.Cost, amount: int, normal: Any, clock: float = 1.0) -> Any:
        """Seconds per repetition; `clock` is the core clock's share, which pi and the caches follow."""
        within = self.truth.noise.within
        compute = amount * cost.compute / clock * self._between(f"pi {cost.precision}")
        memory = amount * sum(
            seconds * self._between(f"beta {level}") / (clock if level in self._caches else 1.0)
            for level, seconds in cost.memory
        )
        slow = np.exp(within * (normal + _deviations(cost.read_at)))
        start = 0.0 if cost.bare else self.truth.t0
        return start + roofline.seconds(compute, memory, 1.0, 1.0, cost.p or self.truth.p) * slow

    def _call(self, prepared: Prepared, amount: int, *what: object) -> Call:
        typical = np.zeros(1)
        return Call(
            prepared,
            amount,
            lambda cost, units, core: float(self._model(cost, units, typical, core)[0]),
            lambda fill: self._resident(prepared, fill),
            lambda: self._drawn(*what),
        )

    def _resident(self, prepared: Prepared, fill: float) -> price.Cost:
        """What the point would cost in arrays that together take `fill` times the last cache."""
        point, cost = prepared.point, prepared.handle
        if not self.truth.caches or not cost.allocated:
            return cost  # type: ignore[no-any-return]
        last = self.truth.caches[-1]
        wanted = fill * last.bytes * min(last.instances, point.threads) / cost.allocated
        sizes = {**point.sizes, "bytes": max(1, int(point.sizes["bytes"] * wanted))}
        return price.cost(self.truth, replace(point, sizes=sizes))


@cache
def _deviations(share: float) -> float:
    """Standard deviations above the mean that a normal variable stays below with probability `share`."""
    return NormalDist().inv_cdf(share)


def _device(name: str, truth: Truth, defects: Sequence[Defect], id: str) -> Device:
    kinds = [kind_of(defect) for defect in defects]
    gpu = truth.gpu
    slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in "-".join((name, *kinds)).lower())
    parameters = plain(truth)
    del parameters["defects"]
    ills = [{"kind": kind, **plain(defect)} for kind, defect in zip(kinds, defects, strict=True)]
    return Device(
        id=id,
        kind="simulated",
        name=f"SIMULATED {name}" + (f" with {', '.join(kinds)}" if kinds else ""),
        slug=f"sim-{slug}",
        state="simulated-mig" if gpu and gpu.mig else "simulated",
        threads=truth.threads,
        memory_bytes=int(truth.memory.bytes),
        caches=tuple(Cache(c.level, int(c.shown), c.sharers, c.instances) for c in truth.caches if c.shown),
        precisions=truth.precisions,
        identity={
            "device": f"SIMULATED {name}",
            "kind": "simulated",
            "parameters": parameters,
            "defects": ills,
            **gpu_identity(name, truth),
        },
        facts={"clock_hz": truth.clock_hz, **links.facts(truth), **gpu_facts(truth)},
    )
