"""Work that no sweep has measured, drawn by a seed and timed on this CPU visit by visit in random order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from bench.backends import Backend
from bench.fitting.intervals import MEDIAN, P75, clean_rates, quantile
from bench.profile.records import Point, Precision
from bench.running.measure import calibrate
from bench.workloads.workload import Room
from bench.workloads.zoo import ZOO

KINDS = ("square", "tall", "thin", "small")
MOST_FLOPS = 4e9
"""Of one product: longer ones are what the sweep's largest squares are, and would fill the time."""

WINDOW, BUDGET, FEWEST = 1e-3, 0.025, 5
"""Seconds of one repetition of a product, of all repetitions of a visit, and how many there are at least."""

GEMM_FLOPS = (2e8, 6e8, 2e9)
CONVOLUTION_IMAGES = (3, 9, 27)


@dataclass
class Job:
    """One piece of work: a point and what was measured of it, seconds of one execution by visit."""

    group: str
    point: Point
    work: float
    visits: list[float] = field(default_factory=list)
    disturbed: int = 0
    repetitions: int = 0

    @property
    def seconds(self) -> float:
        """Median over visits, each the quantile at which the suite reads such a point."""
        return median(self.visits)

    @property
    def spread(self) -> float:
        """Slowest over fastest visit."""
        return max(self.visits) / min(self.visits)


def _between(order: random.Random, low: float, high: float) -> int:
    """A whole number, uniform in its logarithm."""
    return round(math.exp(order.uniform(math.log(low), math.log(high))))


def shape(kind: str, order: random.Random) -> tuple[int, int, int]:
    """m, n, k of one product of a kind."""
    if kind == "square":
        edge = _between(order, 96, 1200)
        m, n, k = (max(1, round(edge * order.uniform(0.8, 1.25))) for _ in range(3))
    elif kind == "tall":
        m, n, k = _between(order, 1024, 12000), _between(order, 16, 160), _between(order, 16, 160)
    elif kind == "thin":
        m, n, k = _between(order, 200, 1800), _between(order, 200, 1800), _between(order, 8, 64)
    else:
        m, n, k = (_between(order, 12, 144) for _ in range(3))
    edges = [m, n, k]
    if kind in ("tall", "thin"):
        order.shuffle(edges)
    return edges[0], edges[1], edges[2]


def products(
    count: int, order: random.Random, threads: int, seen: Iterable[tuple[int, int, int]]
) -> list[Job]:
    """`count` products, kinds and precisions in turn, none of them in `seen`."""
    known, jobs = set(seen), []
    while len(jobs) < count:
        kind, name = KINDS[len(jobs) // 2 % len(KINDS)], ("fp64", "fp32")[len(jobs) % 2]
        m, n, k = shape(kind, order)
        if (m, n, k) in known or 2.0 * m * n * k > MOST_FLOPS:
            continue
        known.add((m, n, k))
        point = Point("gemm", "gemm", "unseen", Precision.of(name, "library"), "DRAM", threads=threads)
        sized = replace(point, sizes={"m": m, "n": n, "k": k})
        jobs.append(Job(f"gemm {name} {kind}", sized, 2.0 * m * n * k))
    return jobs


def workloads(backend: Backend, threads: int, near: float) -> list[Job]:
    """Every workload at three sizes: operands of 8 x `near` byte (a cache), half and twice the cold bytes."""
    device, jobs = backend.device, []
    cold = Room(device.memory_bytes, device.last_level_cache_bytes, threads).cold_bytes
    for name, known in ZOO.items():
        for place, target in enumerate((8 * near, cold / 2, 2 * cold)):
            sizes = known.near_sizes(target, threads)
            if name == "gemm":
                edge = round((GEMM_FLOPS[place] / 2) ** (1 / 3))
                sizes = {"m": edge, "n": edge, "k": edge, "sets": 2}
            elif sizes is None:
                sizes = {"images": CONVOLUTION_IMAGES[place], "edge": 56, "sets": 2}
            precision = Precision.of(known.precision)
            point = Point("workload", name, known.implementation, precision, "DRAM", threads=threads)
            work = known.work(sizes)
            jobs.append(Job(name, replace(point, sizes=sizes), work.flops or work.bytes("DRAM")))
    return jobs


def visit(backend: Backend, job: Job) -> None:
    """Measure a job once: prepare, one untimed repetition or a calibration, repeat for the budget."""
    prepared = backend.prepare(job.point)
    try:
        gemm = job.point.family == "gemm"
        amount, expected = calibrate(backend, prepared, WINDOW) if gemm else (1, 0.0)
        expected = expected or min(backend.measure(prepared, 1, 3).seconds)
        count = max(FEWEST, min(400, int(BUDGET / expected)))
        taken = backend.measure(prepared, amount, count)
    finally:
        backend.release(prepared)
    rates = clean_rates(float(amount), taken)
    job.disturbed += rates.disturbed
    job.repetitions += rates.total
    job.visits.append(1 / quantile(rates.rates, P75 if gemm else MEDIAN))


def measure(backend: Backend, jobs: Sequence[Job], visits: int, order: random.Random) -> None:
    """Every job once a visit, in a fresh random order each time."""
    for _ in range(visits):
        for job in order.sample(list(jobs), len(jobs)):
            visit(backend, job)
