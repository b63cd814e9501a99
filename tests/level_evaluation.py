"""How well plateaus are found: random simulated devices with caches that may lie, detected and compared.

    python -m tests.level_evaluation [--devices N] [--seed S] [--rounds R] [--steps PER_OCTAVE]

A device has one to four caches of random capacity and bandwidth; a third of those with an L3 report four to
eight times what they have of it, as virtual machines do; half of the GPUs have an L2 in two parts of which
only the whole is reported. Edges are sharp to soft (a factor of 1.05 to 2), those of an L2 in parts sharp. A
plateau counts as found when value and capacity lie within a tenth of the truth, a name as wrong when no part
of the level of that name has about the rate of the plateau.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import truth_of
from bench.fitting import level_names, levels
from bench.planning.sizes import AROUND, PARTED, rounded_set
from bench.profile.records import Point, Precision

KIB, MIB = 1 << 10, 1 << 20
WITHIN = 0.10
"""Of the truth."""


@dataclass(frozen=True)
class Result:
    """Of one device: levels there are, plateaus found right, names given right and wrong, what was off."""

    there: int
    found: int
    named: int
    wrong: int
    remarks: tuple[str, ...]


def truth(seed: int) -> dict[str, Any]:
    """Plain values of a random device, as tests.truths makes them, with one thread and its own hierarchy."""
    draw = random.Random(seed)
    gpu = draw.random() < 0.4
    sizes, beta = _capacities(draw, gpu), 10 ** draw.uniform(10, 12)
    caches: list[dict[str, Any]] = []
    for level, size, claimed in sizes:
        cache = {"level": level, "bytes": size, "sharers": 1, "instances": 1, "read": beta, "copy": beta}
        cache["edge"] = draw.uniform(1.05, 1.3 if len(sizes) == 3 and level[:2] == "L2" and gpu else 2.0)
        caches.append(cache | ({} if claimed == size else {"reported": claimed}))
        beta /= draw.uniform(1.25, 1.5) if level == "L2 near part" else draw.uniform(1.35, 4.0)
    memory = dict.fromkeys(("read", "write", "update", "copy", "triad"), beta)
    return {
        "threads": 1,
        "seed": seed,
        "clock_hz": 2e9,
        "pi": {"fp64": 1e12},
        "memory": {"bytes": 64e9, **memory, "write_allocate": False},
        "caches": caches,
        "p": draw.uniform(1.5, 8.0),
        "t0": 1e-7,
        "one_thread": {"pi": 1, "memory": 1},
        "noise": {"within": draw.uniform(0.002, 0.04), "between": draw.uniform(0.002, 0.03)},
    }


def _capacities(draw: random.Random, gpu: bool) -> list[tuple[str, float, float]]:
    """(level, bytes, bytes reported), nearest first; neighbours differ by a factor of eight at least."""
    if gpu:
        whole = float(draw.choice([4, 6, 24, 40, 48, 50, 60, 96]) * MIB)
        near = [("L2 near part", whole / 2, 0.0)] if draw.random() < 0.5 else []
        first = float(draw.choice([64, 128, 192, 256]) * KIB)
        return [("L1", first, first), *near, ("L2", whole, whole)]
    found = [("L1", float(draw.choice([16, 32, 48, 64]) * KIB))]
    if draw.random() < 0.9:
        found.append(("L2", float(draw.choice([512, 1024, 1280, 2048]) * KIB)))
    claimed = dict(found)
    if draw.random() < 0.8:
        found.append(("L3", float(draw.choice([16, 24, 32, 36, 64]) * MIB)))
        claimed["L3"] = found[-1][1] * (draw.choice([4, 8]) if draw.random() < 0.33 else 1)
    return [(name, size, claimed[name]) for name, size in found]


def is_gpu(values: dict[str, Any]) -> bool:
    """Whether it was drawn as one: its last level is an L2, larger than that of any host."""
    last = values["caches"][-1]
    return last["level"] == "L2" and last["bytes"] >= 4 * MIB


def sweep(values: dict[str, Any], rounds: int, steps: float) -> tuple[list[int], list[list[float]]]:
    """Working sets, and the median rate of each in every round."""
    backend = SimulatedBackend("evaluated", truth_of(values, "random device"))
    known = [c["reported"] if "reported" in c else c["bytes"] for c in values["caches"]]
    top = 4 * max(*known, *(c["bytes"] for c in values["caches"]))
    grid = {rounded_set(4 * KIB * 2 ** (i / steps)) for i in range(int(40 * steps))}
    grid |= {rounded_set(size * f) for size in known for f in AROUND}
    grid |= {rounded_set(known[-1] * f) for f in PARTED if is_gpu(values)}
    sizes = sorted(size for size in grid if size <= top)
    columns = [_round(backend, number, sizes) for number in range(1, rounds + 1)]
    return sizes, [list(row) for row in zip(*columns, strict=True)]


def _round(backend: SimulatedBackend, number: int, sizes: Sequence[int]) -> list[float]:
    backend.begin_round(number)
    rates = []
    for size in sizes:
        point = Point(
            "cache", "cache-read", "s1u8", Precision.of("fp64"), "DRAM", "read", sizes={"bytes": size}
        )
        prepared = backend.prepare(point)
        amount = max(1, int(1e9 / size))
        moved = prepared.work(amount).bytes("DRAM")
        rates.append(moved / median(backend.measure(prepared, amount, 6).seconds))
    return rates


def judge(values: dict[str, Any], rounds: int = 5, steps: float = 4) -> Result:
    """What is found on one device beside what there is."""
    sizes, rates = sweep(values, rounds, steps)
    known = {c["level"]: c.get("reported", c["bytes"]) for c in values["caches"] if c.get("reported", 1)}
    found = level_names.named(levels.detect(sizes, rates), known, is_gpu(values))
    real = {c["level"]: (c["read"], c["bytes"]) for c in values["caches"]}
    real["DRAM"] = (values["memory"]["read"], None)
    right, remarks, named, wrong = 0, [], 0, 0
    for name, (value, size) in real.items():
        match = [level for level in found if _fits(level, value, size)]
        right += bool(match)
        if not match:
            remarks.append(f"{name} ({value:.3g} byte/s, {size}) not found")
    for level in found:
        if not level.name:
            continue
        rates = [rate for name, (rate, _) in real.items() if name.split()[0] == level.name.split()[0]]
        ok = any(abs(level.plateau.value.value / rate - 1) <= 2 * WITHIN for rate in rates)
        named += ok
        wrong += not ok
        if not ok:
            remarks.append(f"{level.name} is said of {level.plateau.value.value:.3g} byte/s, truth {rates}")
    return Result(len(real), right, named, wrong, tuple(remarks))


def _fits(level: level_names.Level, value: float, size: float | None) -> bool:
    plateau = level.plateau
    if abs(plateau.value.value / value - 1) > WITHIN or (size is None) != (plateau.capacity is None):
        return False
    return size is None or abs(plateau.capacity.value / size - 1) <= WITHIN  # type: ignore[union-attr]


def main() -> None:
    """Print the shares over many devices, and what was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=float, default=4.0)
    asked = parser.parse_args()
    there = found = named = wrong = whole = 0
    for seed in range(asked.seed, asked.seed + asked.devices):
        result = judge(truth(seed), asked.rounds, asked.steps)
        there, found = there + result.there, found + result.found
        named, wrong = named + result.named, wrong + result.wrong
        whole += result.found == result.there
        for remark in result.remarks:
            print(f"device {seed}: {remark}")
    print(f"{asked.devices} devices, {there} levels: {found / there:.3f} found within {WITHIN:.0%}")
    print(f"{whole / asked.devices:.3f} of the devices in full; {named} names right, {wrong} wrong")


if __name__ == "__main__":
    main()
