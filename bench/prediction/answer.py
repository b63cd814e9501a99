"""The questions that `predict` answers from a profile: products by shape, workloads, any FLOP and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.errors import FileError, UsageError
from bench.prediction import asked, limits, placed, products, works
from bench.prediction.estimate import Prediction, largest, spread
from bench.prediction.works import Load
from bench.profile.records import Interval, Precision, Profile
from bench.report import heading
from bench.report.units import percent, si
from kernels.launch import BY_BLAS
from kernels.spec import ITEM_BYTES

LIBRARY = " library"


def threads_of(profile: Profile, asked_for: int | None) -> int:
    """Threads (SMs) to predict for: those asked for, else the most that the profile measured."""
    valid = sorted({c.threads for c in profile.ceilings})
    if not valid:
        raise FileError("this profile holds no ceiling: nothing can be predicted from it, run all families")
    if asked_for is None:
        return max(heading.threads(profile), valid[-1])
    if asked_for not in valid:
        raise UsageError(
            f"nothing was measured with {asked_for} threads; measured: {', '.join(map(str, valid))}"
        )
    return asked_for


def precision_of(profile: Profile, name: str, library: bool, threads: int) -> Precision:
    """The measured precision of a name such as fp32 or fp16>fp32; UsageError lists those there are."""
    if library:
        known = [c.precision for c in profile.curves if c.kind == "gemm" and c.threads == threads]
    else:
        peaks = [c for c in profile.ceilings if c.quantity == "pi" and c.threads == threads]
        known = [c.precision for c in peaks if c.precision.unit != "library"]
    labels = {p.label.removesuffix(LIBRARY): p for p in reversed(known)}
    found = labels.get(name.removesuffix(LIBRARY))
    found = found or next((p for label, p in labels.items() if name in (p.mode, p.inputs)), None)
    if found is None:
        what = "products" if library else "pi"
        valid = ", ".join(sorted(labels)) or f"none: run the {'gemm' if library else 'fma'} family"
        raise UsageError(f"no {what} of precision {name!r} in this profile; measured: {valid}")
    return found


# products


def gemm(
    profile: Profile, shapes: Sequence[tuple[int, int, int]], name: str, threads: int
) -> tuple[Prediction, ...]:
    """Every product by the efficiency curve of its library, never faster than its bytes on the roof."""
    precision = precision_of(profile, name, True, threads)
    cpu = _is_cpu(profile)  # a GPU's precisions run on different units, each with kernels of its own
    measured = (products.together if cpu else products.measured)(profile, precision, threads)
    if not measured:
        raise FileError("this profile holds no matrix products: run the gemm family, then predict again")
    curve = products.fitted(measured, threads if cpu else 1)
    return tuple(_product(profile, curve, precision, threads, shape) for shape in shapes)


def _is_cpu(profile: Profile) -> bool:
    return heading.unit(profile) == "thread"


def _product(
    profile: Profile,
    curve: products.Efficiency,
    precision: Precision,
    threads: int,
    shape: tuple[int, int, int],
) -> Prediction:
    m, n, k = shape
    item = ITEM_BYTES.get(precision.inputs, 1)
    out = ITEM_BYTES.get(precision.output, item)
    reads, writes = float(item) * (m * k + k * n), float(out) * m * n
    load = Load(precision, threads, 2.0 * m * n * k, reads, writes, reads + writes)
    found, level = _roof_or_none(profile, load)
    parts = curve.parts(m, n, k)
    value, binds, notes = sum(parts.values()), largest(parts), []
    floor = parts["launch"] + found.memory(load.bytes)
    if floor > value:
        value, binds = floor, "memory"
        notes.append("its bytes take longer than the curve says: the measured bandwidth decides")
    width = curve.width(m, n, k)
    interval = Interval(value) if width is None else spread(value, width)
    if curve.bounds_only(m, n, k):
        interval = Interval(value, interval.low or value)
        notes.append("an edge is shorter than any measured: what a call and its edges cost is not known")
    if width is None:
        notes.append(f"no interval: {len(curve.shapes)} measured sizes leave none over to check the curve on")
    if beyond := curve.beyond(m, n, k):
        notes.append(f"extrapolated from the measured edges: {beyond}")
    notes += limits.beyond_memory(profile, load.footprint)
    interval, said, bound = limits.above_start(profile, threads, interval, notes, BY_BLAS)
    on_roof = found.seconds(load.flops, load.bytes)
    error = "" if curve.error is None else f", error at left-out sizes {percent(curve.error)}"
    basis = f"{len(curve.shapes)} measured products, {curve.form} form{error}"
    what = f"gemm {m}x{n}x{k}"
    return works.prediction(profile, load, level, what, interval, found, on_roof, basis, said, bound or binds)


def _roof_or_none(profile: Profile, load: Load) -> tuple[Any, str]:
    """The roof beside a product: what is not measured of it bounds nothing."""
    try:
        return works.roof_of(profile, load)
    except (UsageError, FileError):
        from bench.workloads.roof import Roof, pi_of

        same = [c for c in profile.ceilings if c.threads == load.threads]
        return Roof(pi_of(load.precision, same), None), "DRAM"


# workloads


def zoo(
    profile: Profile, name: str, words: Sequence[str], threads: int, level: str
) -> tuple[Prediction, ...]:
    """A workload of the zoo at every size, in its own precision."""
    from bench.workloads.zoo import ZOO

    found = asked.workload(name, ZOO)
    if not words:
        example = "x".join(str(v) for key, v in found.small.items() if key != "sets")
        names = ", ".join(key for key in found.small if key != "sets")
        raise UsageError(f"give the size of {found.name} as {names}: predict '{found.name}' {example}")
    answers = []
    for word in words:
        sizes = asked.sizes(word, found)
        work = found.work(sizes)
        reads, writes = work.reads.get("DRAM", 0.0), work.writes.get("DRAM", 0.0)
        size = works.footprint(reads, writes, found.in_place)
        precision = Precision.of(found.precision)
        load = Load(precision, threads, work.flops, reads, writes, size, found.in_place, level)
        shown = "x".join(str(v) for key, v in sizes.items() if key != "sets")
        answers.append(placed.workload(profile, found.name, load, f"{found.name} {shown}"))
    return tuple(answers)


# any work


@dataclass(frozen=True)
class Amounts:
    """Any work: FLOP, bytes, the share of them that is read, whether writes go over what was read."""

    flops: float
    moved: float
    read_fraction: float = 1.0
    in_place: bool = False


def plain(profile: Profile, amounts: Amounts, name: str, threads: int, level: str) -> Prediction:
    """Any FLOP and bytes at a memory level (DRAM when empty), in a precision by name."""
    flops, moved, read_fraction = amounts.flops, amounts.moved, amounts.read_fraction
    if not flops and not moved:
        raise UsageError("give --flops, --bytes or both: work that does nothing takes no time")
    if not 0 <= read_fraction <= 1:
        raise UsageError(
            f"--read-fraction must lie in 0 (all written) to 1 (all read), got {read_fraction:g}"
        )
    precision = precision_of(profile, name, False, threads) if flops else Precision.of(name)
    if precision.inputs not in ITEM_BYTES:
        raise UsageError(f"unknown precision {name!r}; valid: {', '.join(ITEM_BYTES)}")
    reads = moved * read_fraction
    load = Load(precision, threads, flops, reads, moved - reads, moved, amounts.in_place, level or "DRAM")
    what = ", ".join(_amounts(flops, moved))
    return works.plain(profile, load, what)


def _amounts(flops: float, moved: float) -> list[str]:
    found = [si(flops, "FLOP")] if flops else []
    return found + ([si(moved, "byte")] if moved else [])
