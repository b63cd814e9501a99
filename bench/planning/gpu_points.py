"""The points of every family on a GPU: the whole device, in precisions, sizes and regimes of the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bench.errors import ResourceError
from bench.fitting.in_theory import board, in_units
from bench.fitting.intervals import CAP_PI, MEDIAN, P75, memory_cap
from bench.gpu.rates import (
    bus_bytes_per_second,
    flops_per_clock_per_sm,
    has_matrix_units,
    units_lacking,
)
from bench.planning import gpu_link_points, gpu_memory_points
from bench.planning.gpu_budget import BUDGETS, SWEEP, Budget, Shape
from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, MIX, STREAMS, Draft
from bench.planning.sizes import MIB
from bench.profile.records import Point, Precision
from bench.report.units import capacity, percent
from kernels import CUDA
from kernels.mix import cuda_points
from kernels.spec import ITEM_BYTES

BEYOND = (*gpu_memory_points.FAMILIES, *gpu_link_points.FAMILIES)
OFFERED = ("fma", "stream", "mix", "gemm", "tensor", *BEYOND, "workload")
"""Families that a GPU has, in the order in which a run begins with them."""

WINDOW = 0.025
"""Seconds of one repetition: batches of launches so long that the gaps between them vanish."""

BUDGET, MINIMUM = 0.2, 5
"""Seconds, and repetitions, of one visit."""

SUSTAINED_WINDOW, SETTLE, SUSTAINED = 0.2, 5.0, 5.5
"""Seconds of one repetition, of load before the first, and of all: the rate at the end of 10 s of load."""

WANTED_ARRAY, CACHE_FACTOR, ARRAY_SHARE = 1 << 30, 4, 0.25
"""DRAM arrays: so many bytes, at least so many L2 caches, at most this share of the free memory, each."""

PASS = 1e-3
"""Seconds that a stream's pass over one array takes at least at the rate of the bus: kernels begin and end in
microseconds, and of 1 GiB a fast memory would spend two per cent of its time on that."""

VECTOR = {name: Precision.of(name) for name in ("fp64", "fp32", "fp16", "bf16", "int32")}
VECTOR["int8"] = Precision("int8", "int32", "int32")

LIBRARY = {
    "fp64": (Precision.of("fp64", "library"),),
    "fp32": (Precision.of("fp32", "library"),),
    "tf32": (Precision("fp32", "fp32", "fp32", "library", "tf32"),),
    "fp16": (Precision("fp16", "fp32", "fp16", "library"), Precision.of("fp16", "library")),
    "bf16": (Precision("bf16", "fp32", "bf16", "library"),),
    "int8": (Precision("int8", "int32", "int32", "library"),),
    "fp8": (Precision("fp8", "fp32", "fp16", "library"),),
    "fp4": (Precision("fp4", "fp32", "fp16", "library"),),
}

MATRIX = {
    "fp16": (Precision("fp16", "fp32", "fp32", "matrix"), Precision.of("fp16", "matrix")),
    "bf16": (Precision("bf16", "fp32", "fp32", "matrix"),),
    "tf32": (Precision("fp32", "fp32", "fp32", "matrix", "tf32"),),
    "int8": (Precision("int8", "int32", "int32", "matrix"),),
    "fp64": (Precision.of("fp64", "matrix"),),
    "fp8": (Precision("fp8", "fp32", "fp32", "matrix"),),
}
"""The kinds of arithmetic behind a precision's name, the usual one first."""


def fill(
    draft: Draft, asked: Sequence[str], names: Sequence[str], by_name: bool, workloads: Sequence[Point] = ()
) -> None:
    """Plan the families `asked` in the precisions `names`, which the user gave or all are (`by_name`)."""
    budget = BUDGETS[draft.preset.name]
    write = {"fma": _fma, "stream": _streams, "mix": _mix, "gemm": _gemm, "tensor": _tensor}
    for family in write:
        if family in asked:
            write[family](draft, budget, names, by_name)
    gpu_memory_points.fill(draft, budget, tuple(asked), tuple(names))
    gpu_link_points.fill(draft, budget, tuple(asked), tuple(names))
    for point in workloads if "workload" in asked else ():
        lasting = Planned(point, 1, CAP_CURVE, MEDIAN, 0.02, WINDOW, BUDGET, MINIMUM)
        _add(draft, lasting, point.precision.inputs)
    _add_regimes(draft, budget)


def _chosen(wanted: Sequence[str], known: Sequence[str], names: Sequence[str], by_name: bool) -> list[str]:
    """Of `names` those that a family has: all where they were asked for, else the budget's, in its order."""
    order = [*wanted, *(name for name in known if name not in wanted)]
    return [name for name in order if name in names and (by_name or name in wanted)]


def _left_out(
    draft: Draft, family: str, known: Sequence[str], names: Sequence[str], taken: Sequence[str]
) -> None:
    if gone := [name for name in known if name in names and name not in taken]:
        draft.notes.append(f"{family} in {', '.join(gone)}: not in the {draft.preset.name} preset")


def _point(draft: Draft, family: str, kernel: str, precision: Precision) -> Point:
    return Point(family, kernel, "", precision, scope="device", threads=draft.threads)


def _add(draft: Draft, planned: Planned, name: str, tuned_here: bool = True) -> None:
    """Plan a point; of a precision that the device lacks one without variants, which will be skipped."""
    lacking = bool(draft.device.precisions.get(name))
    draft.add(replace(planned, tune="", visits=1) if lacking else planned, tuned_here and not lacking)


def _fma(draft: Draft, budget: Budget, names: Sequence[str], by_name: bool) -> None:
    """Peak chains in registers."""
    chosen = _chosen(budget.fma, tuple(VECTOR), names, by_name)
    _left_out(draft, "fma", tuple(VECTOR), names, chosen)
    for name in chosen:
        point = _point(draft, "fma", "fma", VECTOR[name])
        planned = Planned(point, 0, CAP_PI, P75, 0.004, WINDOW, BUDGET, MINIMUM, tune=f"fma/{name}")
        _add(draft, replace(planned, visits=budget.visits), name)


def stream_bytes(draft: Draft) -> tuple[int, float]:
    """The same of arrays of streams, which are so long that a pass takes PASS."""
    facts = draft.device.facts
    bus = bus_bytes_per_second(facts.get("memory_bus_bits"), facts.get("max_memory_clock_hz"))
    return array_bytes(draft, PASS * (bus or 0.0))


def array_bytes(draft: Draft, wanted: float = 0.0) -> tuple[int, float]:
    """Bytes of each DRAM array, and the least that they may be; ResourceError where memory is too small."""
    least = max(float(MIB), CACHE_FACTOR * draft.device.last_level_cache_bytes)
    most = ARRAY_SHARE * draft.memory
    if least > most:
        raise ResourceError(
            f"DRAM arrays must be {CACHE_FACTOR}x the {capacity(least / CACHE_FACTOR)} L2 cache, "
            f"{capacity(least)} each, but only {capacity(most)} ({percent(ARRAY_SHARE)} of the free memory) "
            "may be used; free memory, or measure the rest with --families fma,gemm,tensor"
        )
    least = math.ceil(least / MIB) * MIB
    return math.floor(min(max(WANTED_ARRAY, wanted, least), most) / MIB) * MIB, least


def _streams(draft: Draft, budget: Budget, names: Sequence[str], by_name: bool) -> None:
    """DRAM bandwidths per access; bytes are bytes, so one type will do: fp32, unless only fp64 is wanted."""
    size, least = stream_bytes(draft)
    there = [name for name in names if not draft.device.precisions[name]]
    only = ["fp64"] if "fp64" in there else ["fp32"]
    for name in [name for name in budget.stream_precisions if name in there] or only:
        for kernel in budget.streams:
            access, _, _, shared, _ = STREAMS[kernel]
            store = "none" if access == "read" else "ordinary"
            point = _point(draft, "stream", kernel, Precision.of(name))
            point = replace(point, level="DRAM", access=access, store=store, sizes={"bytes": size})
            planned = Planned(
                point, 0, memory_cap(draft.device.state), MEDIAN, 0.005, WINDOW, BUDGET, MINIMUM
            )
            planned = replace(planned, tune=f"{shared}/{name}", visits=budget.visits, least_bytes=least)
            draft.add(planned, tuned_here=kernel == shared)


def _mix(draft: Draft, budget: Budget, names: Sequence[str], by_name: bool) -> None:
    """The intensity sweep, read-only and in place; its forms follow from the intensity."""
    size, least = array_bytes(draft)
    chosen = [n for n in _chosen(budget.mix, budget.mix, names, by_name) if not draft.device.precisions[n]]
    if {*chosen} & {*budget.sparse}:
        gpu_memory_points.few_blocks(draft, budget, size, least)
    for name in chosen:
        for kernel, access, store in MIX if name in budget.both else MIX[:1]:
            write_back = access == "update"
            dense = name in budget.dense and (budget.dense_in_place or not write_back)
            for variant, fma, block, _ in cuda_points(ITEM_BYTES[name], write_back, dense):
                point = replace(_point(draft, "mix", kernel, Precision.of(name)), variant=variant)
                sizes = {"bytes": size, "fma": fma, "block": block}
                point = replace(point, level="DRAM", access=access, store=store, sizes=sizes)
                priority = 1 if name == chosen[0] else 2
                planned = Planned(point, priority, CAP_CURVE, MEDIAN, 0.01, WINDOW, BUDGET / 2, 4)
                planned = replace(planned, least_bytes=least)
                draft.add(planned)


def seconds(draft: Draft, precision: Precision, shape: Shape) -> float:
    """What a product should take at half of the theoretical rate; infinite where no rate is known."""
    facts, (m, n, k) = draft.device.facts, shape
    label = in_units(precision).label
    name = board(draft.device.kind, draft.device.name)
    rate, _ = flops_per_clock_per_sm(int(facts.get("compute_capability", 0)), label, name)
    clock = facts.get("max_sm_clock_hz")
    return 2.0 * m * n * k / (0.5 * rate * draft.threads * float(clock)) if rate and clock else math.inf


def _fits(draft: Draft, budget: Budget, name: str, precision: Precision, shape: Shape) -> bool:
    """Whether a product fits into memory and time; of an unknown device only up to 4096."""
    m, n, k = shape
    out = ITEM_BYTES.get(precision.output, 4)
    bytes = ITEM_BYTES.get(precision.inputs, 1) * (m * k + k * n) + out * m * n
    taken = seconds(draft, precision, shape)
    soon = max(shape) <= 4096 if taken == math.inf else taken <= budget.longest
    return soon and bytes <= draft.memory / 2


def shapes(draft: Draft, budget: Budget, name: str, precision: Precision, first: bool) -> list[Shape]:
    """Of a library product, the largest first: candidates for the best, and the sweep where it is wanted."""
    wanted = dict.fromkeys((*budget.shapes, *(SWEEP if first and name in budget.swept else ())))
    fitting = [s for s in wanted if _fits(draft, budget, name, precision, s)]
    return sorted(fitting or [(2048, 2048, 2048)], key=lambda s: (-math.prod(s), s))


def _gemm(draft: Draft, budget: Budget, names: Sequence[str], by_name: bool) -> None:
    """The library's ceilings: candidates of shapes, size sweeps, zeros beside random operands."""
    chosen = _chosen(budget.gemm, tuple(LIBRARY), names, by_name)
    _left_out(draft, "gemm", tuple(LIBRARY), names, chosen)
    for name in chosen:
        for kind, precision in enumerate(LIBRARY[name][: budget.kinds]):
            found = shapes(draft, budget, name, precision, kind == 0)
            lacking = bool(draft.device.precisions.get(name))
            for place, (m, n, k) in enumerate(found[:1] if lacking else found):
                point = _point(draft, "gemm", "gemm", precision)
                point = replace(point, level="DRAM", sizes={"m": m, "n": n, "k": k})
                priority = 0 if place == kind == 0 else 1 if place < 3 else 2
                planned = Planned(point, priority, CAP_PI, P75, 0.005, WINDOW, BUDGET, MINIMUM)
                _add(draft, replace(planned, tune=f"gemm/{precision.label}"), name)
                if place == kind == 0 and name in budget.zeros and not lacking:
                    zeros = replace(planned, point=replace(point, operands="zeros"), priority=2)
                    draft.add(replace(zeros, tune=f"gemm/{precision.label}"))


def _tensor(draft: Draft, budget: Budget, names: Sequence[str], by_name: bool) -> None:
    """Matrix instructions on operands in registers (mma) or shared memory (wgmma), where the GPU has them."""
    chosen = _chosen(budget.tensor, tuple(MATRIX), names, by_name)
    _left_out(draft, "tensor", tuple(MATRIX), names, chosen)
    capability = int(draft.device.facts.get("compute_capability") or 0)
    there = matrix_units(capability)
    if chosen and there and not _has_units(draft, capability):
        return
    for name in chosen:
        if draft.device.precisions.get(name):
            continue  # skipped once, as a chain or a product
        for precision in MATRIX[name][: budget.kinds]:
            kernels = [kernel for kernel, label in there if label == precision.label]
            if not kernels:
                draft.notes.append(f"tensor {precision.label}: this GPU has no instruction for it")
            for kernel in kernels:
                point = _point(draft, "tensor", kernel, precision)
                tune = f"{kernel}/{precision.label}"
                planned = Planned(point, 1, CAP_PI, P75, 0.004, WINDOW, BUDGET, MINIMUM, tune=tune)
                draft.add(replace(planned, visits=budget.visits), tuned_here=True)


def _has_units(draft: Draft, capability: int) -> bool:
    """Whether matrix units may do the work of their instructions; a note where not, or not known."""
    name = board(draft.device.kind, draft.device.name)
    if name and (why := units_lacking(capability, name)):
        draft.notes.append(f"tensor: {why}")
    return not name or has_matrix_units(capability, name) is not False


def matrix_units(capability: int) -> tuple[tuple[str, str], ...]:
    """(kernel, precision label) of every matrix instruction that a compute capability (x 10) has."""
    forms = [f for f in CUDA["tensor"].forms if f.least_cc <= capability]
    there = [f for f in forms if not f.only or str(capability) in {t.rstrip("af") for t in f.only}]
    return tuple(dict.fromkeys((form.kernel, form.precision) for form in there))


def _add_regimes(draft: Draft, budget: Budget) -> None:
    """Burst and sustained forms of headline points that are planned."""
    typical = [p for p in draft.points.values() if p.tune and p.point.operands == "random"]
    for planned in typical:
        head = planned.priority == 0 and planned.point.family in ("fma", "gemm")
        if head and planned.point.precision.inputs in budget.burst and not planned.point.precision.mode:
            draft.add(replace(planned, regime="burst", priority=1, visits=1))
    headline = [p for p in (_headline(typical, *wanted) for wanted in SUSTAINED_HEADLINES) if p]
    if not budget.sustained:
        if headline:
            draft.notes.append(f"sustained rates: 10 s each do not fit into the {draft.preset.name} preset")
        return
    for planned in headline:
        long = replace(planned, regime="sustained", priority=1, visits=1, times=budget.sustained)
        long = replace(long, target=SUSTAINED_WINDOW, settle=SETTLE, budget=SUSTAINED)
        draft.add(replace(long, half_width=-1.0))


SUSTAINED_HEADLINES = (
    ("fma", ("fp32",)),
    ("gemm", ("fp16>fp32 library", "bf16>fp32 library")),
    ("stream", ("read",)),
)
"""Vector rate, matrix rate and bandwidth that are also held for 10 s: the first of each that is planned."""


def _headline(typical: Sequence[Planned], family: str, wanted: Sequence[str]) -> Planned | None:
    found = [
        p
        for p in typical
        if p.point.family == family and {p.point.precision.label, p.point.kernel} & {*wanted}
    ]
    return min(found, key=lambda p: p.priority, default=None)
