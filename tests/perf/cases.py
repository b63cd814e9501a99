"""The comparisons with C: peak, streams, caches, latencies; GEMM with a bare loop, sweeps with ceilings."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product

from threadpoolctl import threadpool_limits

from bench.planning import sizes
from bench.planning.points import KNEE, TUNED_AT
from bench.profile.records import Point
from bench.profile.roofline import ridge_point
from bench.report.units import duration
from kernels.spec import ITEM_BYTES, LOOPED
from tests.perf.blas import BareGemm
from tests.perf.pairs import Side, Window, fastest, interleave, rate
from tests.perf.reference import (
    ARRAYS,
    LINE_BYTES,
    Arrays,
    CacheSide,
    ChaseSide,
    PeakSide,
    Reference,
    StreamSide,
    Team,
)
from tests.perf.rows import CONTROL, REFERENCE, SHOWN, SUITE, Demand, Row, row
from tests.perf.suite import Suite, SuiteSide

PI_SECONDS, BETA_SECONDS, CACHE_SECONDS, LATENCY_SECONDS, SWEEP_SECONDS = 10e-3, 8e-3, 5e-3, 3e-3, 5e-3
"""Length aimed at for one window: well above the 2 ms below which it would say nothing."""

LEAST_PI_PAIRS, LEAST_BETA_PAIRS = 9, 200
PI = Demand(LEAST_PI_PAIRS, 0.98)
MOVED = Demand(LEAST_BETA_PAIRS, 0.98, 0.96)  # copy and triad, same kind of store
IN_PLACE = Demand(LEAST_BETA_PAIRS, 0.97, 0.96)  # read and update
STREAM_DEMANDS = {"copy": MOVED, "triad": MOVED, "read": IN_PLACE, "update": IN_PLACE}
PLACEMENTS = 12  # of a stream's arrays: which pages they get moves a rate by up to 10 %, for either side
SHOWN_SHARE = 0.25  # of the pairs, for the streams of which nothing is demanded
CACHE_DEMAND = Demand(LEAST_PI_PAIRS, 0.95)
LATENCY_DEMAND = Demand(LEAST_PI_PAIRS, 0.95, high=1.05)
GEMM_DEMAND = Demand(LEAST_PI_PAIRS, 0.97)
SWEEP_PI, SWEEP_BETA = Demand(LEAST_PI_PAIRS, 0.97), Demand(LEAST_PI_PAIRS, 0.90, high=1.10)
FAR_RIGHT, FAR_LEFT = 20.0, 1.0 / 8.0
"""Multiples of the ridge from which, and below which, a sweep must show pi and beta alone."""

STORES = {"read": ("none",), "update": ("ordinary",)}
BOTH_STORES = ("ordinary", "nontemporal")
GEMM_N = 1024
SWEEPS = {"mix-read-only": ("none", "read"), "mix-in-place": ("ordinary", "update")}


@dataclass
class Race:
    """One run: both contenders, how many pairs each comparison gets, and the order of everything.

    pairs: by "pi", "beta", "cache", "latency", "gemm" and "sweep"
    """

    reference: Reference
    suite: Suite
    pairs: Mapping[str, int]
    order: random.Random
    arrays: dict[int, tuple[Arrays, Arrays]] = field(default_factory=dict)

    def team(self, threads: int) -> Team:
        """The CPUs that the suite's first `threads` threads are pinned to."""
        cpus: Sequence[int] = self.suite.backend.device.facts["cpus"]
        return Team(cpus[:threads])

    def array_bytes(self, arrays: int) -> int:
        """Bytes of one array, as the suite's plan chooses it."""
        device = self.suite.backend.device
        return sizes.array_bytes(device, arrays, float(device.memory_bytes))

    @contextmanager
    def memory(self, threads: int) -> Iterator[tuple[Arrays, Arrays]]:
        """Two sets of arrays of their own, so that the control contains what placement does to a rate."""
        team, size = self.team(threads), max(map(self.array_bytes, (1, 2, 3)))
        if threads not in self.arrays:
            self.close()
            self.arrays[threads] = (Arrays(self.reference, team, size), Arrays(self.reference, team, size))
        yield self.arrays[threads]

    def place_anew(self) -> None:
        """Give both sides' arrays back, so that the next ones lie on other pages."""
        self.close()
        self.suite.place_anew()

    def close(self) -> None:
        """Give the arrays back."""
        for pair in self.arrays.values():
            for arrays in pair:
                arrays.close()
        self.arrays.clear()

    def turns(self, kind: str, share: float = 1.0) -> int:
        """How many turns this kind of comparison gets, or a share of them."""
        return max(1, round(self.pairs[kind] * share))

    def run(self, sides: Mapping[str, Side], kind: str) -> dict[str, list[Window]]:
        """All sides interleaved, in as many turns as this kind of comparison gets."""
        return interleave(sides, self.turns(kind), self.order)


def shares(turns: int, parts: int) -> list[int]:
    """Turns in up to `parts` nearly equal portions, none of them empty."""
    return [n for n in (turns // parts + (i < turns % parts) for i in range(parts)) if n]


def peak(race: Race, precision: str, threads: int) -> Row:
    """FMA peak; on one thread the textbook loop stands beside it."""
    team, reference = race.team(threads), race.reference
    forms = reference.peaks(precision)
    trial = PeakSide(reference, team, forms[0], 1e6)
    trial = PeakSide(reference, team, forms[0], max(trial.window().rate for _ in range(3)) * 2e-3)
    flops = max(trial.window().rate for _ in range(5)) * PI_SECONDS
    best = fastest([PeakSide(reference, team, form, flops) for form in forms], race.order)
    form = next(f for f in forms if f"{f.chains} chains" == best.name)
    mine = race.suite.best(race.suite.point("fma", precision, threads), PI_SECONDS)
    sides: dict[str, Side] = {REFERENCE: best, CONTROL: PeakSide(reference, team, form, flops), SUITE: mine}
    if threads == 1:
        naive = replace(race.suite.point("fma-naive", precision, 1), variant="numba")
        sides["naive Numba loop"] = race.suite.side(naive, PI_SECONDS)
    windows = race.run(sides, "pi")
    return row(f"peak {precision}", threads, "FLOP/s", (best.name, mine.name), windows, PI)


def stream(race: Race, kernel: str, store: str, threads: int) -> Row:
    """One stream kernel with one kind of store, both sides over equally many cold bytes.

    All arrays are placed anew PLACEMENTS times, as a run does in every round.
    """
    point = race.suite.point(kernel, "fp64", threads, "DRAM", store, bytes=race.array_bytes(ARRAYS[kernel]))
    forms = {form.variant: form for form in race.reference.streams(kernel, store)}
    turns = race.turns("beta", 1.0 if kernel in STREAM_DEMANDS else SHOWN_SHARE)
    windows: dict[str, list[Window]] = {}
    chosen = ""
    for some in shares(turns, PLACEMENTS):
        race.place_anew()
        mine = race.suite.best(point, BETA_SECONDS)
        with race.memory(threads) as (arrays, others):
            if not chosen:
                trial = [StreamSide(arrays, form, mine.work) for form in forms.values()]
                chosen = fastest(trial, race.order).name
            best, control = (StreamSide(a, forms[chosen], mine.work) for a in (arrays, others))
            found = interleave({REFERENCE: best, CONTROL: control, SUITE: mine}, some, race.order)
        mine.release()
        for side, taken in found.items():
            windows.setdefault(side, []).extend(taken)
    name = kernel if store == "none" else f"{kernel} {store}"
    demand = STREAM_DEMANDS.get(kernel, SHOWN)
    return row(name, threads, "byte/s", (chosen, mine.name), windows, demand)


def cache(race: Race, level: str, set_bytes: int, threads: int) -> Row:
    """Reading a set that lies in one cache level, again and again."""
    point = race.suite.point("cache-read", "fp64", threads, level, bytes=set_bytes)
    mine = race.suite.best(point, CACHE_SECONDS)
    with race.memory(threads) as (arrays, others):
        forms = {form.variant: form for form in race.reference.streams("read", "none")}
        trial = CacheSide(arrays, next(iter(forms.values())), set_bytes, 1)
        repeats = max(1, round(mine.work / trial.window().work))
        best = fastest([CacheSide(arrays, f, set_bytes, repeats) for f in forms.values()], race.order)
        control = CacheSide(others, forms[best.name], set_bytes, repeats)
        windows = race.run({REFERENCE: best, CONTROL: control, SUITE: mine}, "cache")
    note = f"{sizes.printed(set_bytes)} a thread"
    names = (best.name, mine.name)
    return row(f"cache read {level}", threads, "byte/s", names, windows, CACHE_DEMAND, note)


def latency(race: Race, level: str, set_bytes: int) -> Row:
    """One chain of dependent loads on one core: the rate of lines is the reciprocal of the latency."""
    point = replace(race.suite.point("chase", "fp64", 1, level, bytes=set_bytes), variant="1 chain")
    mine = race.suite.side(point, LATENCY_SECONDS)
    team, loads, kept = race.team(1), mine.work / LINE_BYTES, level != "DRAM"
    sides = [ChaseSide(race.reference, team, set_bytes, loads, kept, seed) for seed in range(2)]
    try:
        windows = race.run({REFERENCE: sides[0], CONTROL: sides[1], SUITE: mine}, "latency")
    finally:
        for side in sides:
            side.close()
    load = {name: duration(LINE_BYTES / rate(windows[name])) for name in (SUITE, REFERENCE)}
    note = f"{sizes.printed(set_bytes)}, {load[SUITE]} a load, C {load[REFERENCE]}"
    return row(f"latency {level}", 1, "byte/s", (sides[0].name, mine.name), windows, LATENCY_DEMAND, note)


def gemm(race: Race, precision: str, threads: int) -> Row:
    """The BLAS through the suite against the same BLAS in a bare loop."""
    point = race.suite.point("gemm", precision, threads, "DRAM", m=GEMM_N, n=GEMM_N, k=GEMM_N)
    with threadpool_limits(threads, user_api="blas"):
        mine = race.suite.best(point, PI_SECONDS)
        best, control = (BareGemm(GEMM_N, precision, mine.amount) for _ in range(2))
        windows = race.run({REFERENCE: best, CONTROL: control, SUITE: mine}, "gemm")
    note = f"n = {GEMM_N}, {mine.prepared.facts.get('library', '')}"
    return row(f"gemm {precision}", threads, "FLOP/s", (best.name, mine.name), windows, GEMM_DEMAND, note)


def sweep(race: Race, kernel: str, precision: str, threads: int) -> Iterator[Row]:
    """The ends of an intensity sweep against the suite's dedicated pi and beta; the worst point counts."""
    store, dedicated = SWEEPS[kernel]
    suite, size = race.suite, race.array_bytes(1)
    beta = suite.best(suite.point(dedicated, precision, threads, "DRAM", store, bytes=size), SWEEP_SECONDS)
    pi = suite.best(suite.point("fma", precision, threads), SWEEP_SECONDS)
    trial = interleave({"pi": pi, "beta": beta}, 9, race.order)
    ridge = ridge_point(rate(trial["pi"]), rate(trial["beta"]))
    counts = sizes.fma_counts(ITEM_BYTES[precision], kernel == "mix-in-place", dense=True)
    point = suite.point(kernel, precision, threads, "DRAM", store, bytes=size)
    intensities = {fma: _intensity(suite, point, fma) for fma in counts}
    low = {fma: i for fma, i in intensities.items() if i < FAR_LEFT * ridge}
    high = {fma: i for fma, i in intensities.items() if i >= FAR_RIGHT * ridge}
    name = f"{kernel} {precision}"
    yield _end(race, f"{name}, left", point, beta, low or _only(intensities, min), bool(low))
    yield _end(race, f"{name}, right", point, pi, high or _only(intensities, max), bool(high))


def _only(intensities: Mapping[int, float], end: Callable[[Mapping[int, float]], int]) -> dict[int, float]:
    """The outermost point, where the sweep does not reach far enough from this machine's ridge."""
    return {end(intensities): intensities[end(intensities)]}


def _intensity(suite: Suite, point: Point, fma: int) -> float:
    variant = suite.backend.variants(point.kernel, point.precision, point.level, point.threads)[0]
    prepared = suite.backend.prepare(replace(point, variant=variant, sizes={**point.sizes, "fma": fma}))
    return prepared.work(prepared.least).intensity(point.level)


def _end(
    race: Race, name: str, point: Point, dedicated: SuiteSide, ends: Mapping[int, float], far: bool
) -> Row:
    """One end of a sweep: its points (FMAs a block: FLOP/byte) and the dedicated kernel in the same turns.

    The variants are those that a run would use: chosen once for few FMAs and once for many.
    """
    by_bytes, suite = dedicated.prepared.point.family == "stream", race.suite
    sides: dict[str, Side] = {REFERENCE: dedicated, CONTROL: dedicated}
    for fma, intensity in ends.items():
        tuned_at = TUNED_AT["low" if fma < KNEE else "knee"]
        form = suite.best(
            replace(point, sizes={**point.sizes, "fma": tuned_at}), SWEEP_SECONDS, by_bytes=by_bytes
        )
        at = replace(point, variant=form.name, sizes={**point.sizes, "fma": fma})
        sides[f"I = {intensity:.3g}"] = suite.side(at, SWEEP_SECONDS, by_bytes=by_bytes)
    windows = race.run(sides, "sweep")
    off = {k: math.log(rate(w) / rate(windows[REFERENCE])) for k, w in windows.items() if k.startswith("I")}
    worst = max(off, key=lambda k: abs(off[k])) if by_bytes else min(off, key=lambda k: off[k])
    unit, demand = ("byte/s", SWEEP_BETA) if by_bytes else ("FLOP/s", SWEEP_PI)
    demand = demand if far else SHOWN
    names = (f"{dedicated.prepared.point.kernel} {dedicated.name}", sides[worst].name)
    note = f"{worst} FLOP/byte, " + (f"the worst of {len(off)}" if far else "not far enough from the ridge")
    return row(name, point.threads, unit, names, {**windows, SUITE: windows[worst]}, demand, note)


def comparisons(race: Race, only: Collection[str], teams: Sequence[int]) -> Iterator[Row]:
    """Every comparison whose name is in `only`; GEMM last, since BLAS threads spin on after their work."""
    everyone = max(teams)
    if "peak" in only:
        yield from (peak(race, precision, threads) for threads in teams for precision in LOOPED)
    for threads in teams:
        for kernel in (k for k in ARRAYS if k in only):
            yield from (stream(race, kernel, store, threads) for store in STORES.get(kernel, BOTH_STORES))
        if "cache" in only:
            for level, size in sizes.plateaus(race.suite.backend.device, threads)[0].items():
                yield cache(race, level, size, threads)
        if "latency" in only and threads == 1:
            device = race.suite.backend.device
            for level, size in sizes.chase_sets(device, float(device.memory_bytes))[0].items():
                yield latency(race, level, size)
    if "sweep" in only:
        for kernel, threads, precision in product(SWEEPS, teams, LOOPED):
            if precision == "fp64" or threads == everyone:
                yield from sweep(race, kernel, precision, threads)
    if "gemm" in only:
        yield from (gemm(race, precision, threads) for threads in teams for precision in LOOPED)


NAMES = ("peak", *ARRAYS, "cache", "latency", "sweep", "gemm")
"""What --only takes."""
