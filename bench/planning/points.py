"""The points of every family: which forms, sizes, scopes and precisions a preset measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from bench.device import Device
from bench.fitting.intervals import CAP_PI, MEDIAN, P75, memory_cap
from bench.planning import sizes
from bench.planning.planned import Planned, Preset
from bench.profile.records import Point, Precision
from kernels.dots import INTO
from kernels.spec import ITEM_BYTES

VISITS = {
    "fma": (3, 8, 8),
    "stream": (2, 5, 5),
    "stream on one core": (1, 3, 3),
    "mix": (1, 2, 2),
    "gemm": (1, 4, 4),
    "gemm on one core": (1, 2, 2),
    "cache read": (2, 8, 8),
    "cache": (1, 5, 5),
}
"""Visits a round to a point, by what it measures and detail: on a shared machine a CPU is lost to others for
0.03 to 3 s at a time, so a round spreads what it spends on a ceiling over many short visits."""

LEAST = {"stream": (5, 3, 3), "mix": (6, 3, 3), "gemm": (5, 2, 2), "cache": (6, 4, 4)}
"""Clean repetitions that each visit has at least, by family and detail."""

CAP_CURVE = 0.10
"""Relative half-width over rounds that is good enough for a point that is no ceiling."""


@dataclass
class Draft:
    """A plan being written: its points, and the point at which each choice of variant is made.

    precisions: those that have loops here;  memory: available bytes;  detail: 0 quick to 2 full
    """

    device: Device
    preset: Preset
    threads: int
    memory: float
    precisions: tuple[str, ...] = ()
    points: dict[str, Planned] = field(default_factory=dict)
    tuned_at: dict[str, Planned] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def detail(self) -> int:
        """How dense the sweeps are and how much is measured beside the headlines."""
        return self.preset.detail

    @property
    def scopes(self) -> tuple[tuple[str, int], ...]:
        """(scope, threads): all threads, and one core where that is something else."""
        return (("all", self.threads), ("core", 1)) if self.threads > 1 else (("all", 1),)

    def choice(self, name: str, scope: str) -> str:
        """Name of a choice of variant; the quick preset lets one core use what won on all threads."""
        return name if self.detail == 0 else f"{name}/{scope}"

    def add(self, planned: Planned, tuned_here: bool = False) -> None:
        """Plan a point once; variants of its choice are compared at the first point `tuned_here`."""
        self.points.setdefault(planned.key, planned)
        if not planned.tune or planned.tune in self.chosen:
            return
        if tuned_here:
            self.chosen.add(planned.tune)
        if tuned_here or planned.tune not in self.tuned_at:
            self.tuned_at[planned.tune] = planned


VECTOR = {name: Precision(name, into, into) for name, into in INTO.items()}
"""Precisions of a CPU's chains that accumulate in another."""


def fma(draft: Draft, names: Sequence[str]) -> None:
    """Peak chains in every precision of `names`; one that the device lacks is planned to be skipped."""
    for name in names:
        lacking = bool(draft.device.precisions[name])
        for scope, threads in draft.scopes[:1] if lacking else draft.scopes:
            precision = VECTOR.get(name) or Precision.of(name)
            point = Point("fma", "fma", "", precision, scope=scope, threads=threads)
            tune = "" if lacking else draft.choice(f"fma/{name}", scope)
            planned = Planned(point, 0, CAP_PI, P75, 0.004, 1.5e-3, 0.02, 5, tune=tune)
            draft.add(replace(planned, visits=1 if lacking else VISITS["fma"][draft.detail]))
            if scope == "all" and draft.detail == 2 and not lacking:
                draft.add(replace(planned, regime="burst", minimum=12))
    for name in draft.precisions:
        naive = Point("fma", "fma-naive", "numba", Precision.of(name), scope="core", threads=1)
        draft.add(Planned(naive, 2, CAP_PI, P75, 0.01, 2.5e-3, 0.03, 6))


# kernel: access, arrays, stores, the kernel whose variant it shares, least detail on one core.
STREAMS = {
    "read": ("read", 1, ("none",), "read", 0),
    "update": ("update", 1, ("ordinary",), "update", 1),
    "write": ("write", 1, ("nontemporal", "ordinary"), "write", 2),
    "copy": ("copy", 2, ("nontemporal", "ordinary"), "copy", 1),
    "triad": ("triad", 3, ("nontemporal", "ordinary"), "triad", 1),
    "scale": ("copy", 2, ("nontemporal", "ordinary"), "copy", 2),
    "add": ("triad", 3, ("nontemporal", "ordinary"), "triad", 2),
}


def streams(draft: Draft) -> None:
    """DRAM bandwidths per access and store kind; scale and add, accesses like others, only when full."""
    for name in draft.precisions if draft.detail == 2 else draft.precisions[:1]:
        for kernel, (_, _, stores, shared, least) in STREAMS.items():
            if draft.detail < 2 and kernel != shared:
                continue
            for store, (scope, threads) in product(stores, draft.scopes):
                if scope == "all" or draft.detail >= least:
                    planned = _stream(draft, name, kernel, store, scope, threads)
                    draft.add(planned, tuned_here=kernel == shared)


def _stream(draft: Draft, name: str, kernel: str, store: str, scope: str, threads: int) -> Planned:
    access, arrays, _, shared, _ = STREAMS[kernel]
    point = Point("stream", kernel, "", Precision.of(name), "DRAM", access, store, scope, threads)
    point = replace(point, sizes={"bytes": sizes.array_bytes(draft.device, arrays, draft.memory)})
    tune = draft.choice(f"{shared}/{name}/{store}", scope)
    priority, moved = (0 if scope == "all" else 1), 16.0 * sizes.MIB
    cap, least = memory_cap(draft.device.state), LEAST["stream"][draft.detail]
    visits = VISITS["stream" if scope == "all" else "stream on one core"][draft.detail]
    return Planned(point, priority, cap, MEDIAN, 0.02, 8e-3, 0.05, least, moved, tune=tune, visits=visits)


MIX = (("mix-read-only", "read", "none"), ("mix-in-place", "update", "ordinary"))

KNEE = 24
"""From this many FMAs a block on the best form is chosen anew: prefetch matters near the ridge."""

TUNED_AT = {"low": 3, "knee": 96}
"""FMAs a block at which the two choices are made; both are part of every grid."""

SHORT_WINDOWS = (20, 50, 200)
"""Microseconds of repetitions so short that the overhead T0 of starting one shows beside the work."""


def mix(draft: Draft) -> None:
    """The intensity sweep in both modes: dense in the first precision, in all of them when full."""
    size = sizes.array_bytes(draft.device, 1, draft.memory)
    for index, name in enumerate(draft.precisions if draft.detail else draft.precisions[:1]):
        dense = draft.detail == 2 or (draft.detail == 1 and index == 0)
        scopes = draft.scopes if draft.detail == 2 else draft.scopes[:1]
        for (kernel, access, store), (scope, threads) in product(MIX, scopes):
            for count in sizes.fma_counts(ITEM_BYTES[name], access == "update", dense):
                side = "low" if count < KNEE else "knee"
                point = Point("mix", kernel, "", Precision.of(name), "DRAM", access, store, scope, threads)
                point = replace(point, sizes={"bytes": size, "fma": count})
                tune, least = f"{kernel}/{name}/{side}/{scope}", LEAST["mix"][draft.detail]
                planned = Planned(point, 1, CAP_CURVE, MEDIAN, 0.015, 4e-3, 0.04, least, tune=tune)
                planned = replace(planned, visits=VISITS["mix"][draft.detail])
                draft.add(planned, tuned_here=count == TUNED_AT[side])
                if dense and index == 0 and scope == "all" and count in TUNED_AT.values():
                    _short(draft, planned)


def _short(draft: Draft, planned: Planned) -> None:
    """The same loop over the same arrays in short repetitions: what T0 is fitted to."""
    for window in SHORT_WINDOWS:
        sized = {**planned.point.sizes, "window": window}
        point = replace(planned.point, sizes=sized)
        draft.add(replace(planned, point=point, target=window * 1e-6, budget=0.01, minimum=20, visits=1))


BIG_MATRIX = 512
"""Edge from which a product may be the library's ceiling."""


FEW_ROUNDS = 3
"""Rounds of what explains or predicts, and is no ceiling."""


def gemm(draft: Draft) -> None:
    """The library's ceiling over sizes on all threads, at one size on one core; what edges cost."""
    for name, (scope, threads) in product(draft.precisions, draft.scopes):
        found = sizes.matrix_sizes(threads, draft.memory, draft.detail > 0 and scope == "all")
        if scope == "core":
            found = found[:1] if draft.detail else []
        point = Point("gemm", "gemm", "square", Precision.of(name, "library"), "DRAM")
        point = replace(point, scope=scope, threads=threads)
        for n in found:
            big = draft.detail if n >= BIG_MATRIX else 0
            square = replace(point, sizes={"m": n, "n": n, "k": n})
            planned = Planned(square, 1, CAP_PI, P75, 0.01, 4e-3, 0.08, LEAST["gemm"][big])
            draft.add(replace(planned, visits=VISITS["gemm" if scope == "all" else "gemm on one core"][big]))
        for m, n, k in sizes.oblong_matrices(draft.memory) if draft.detail and scope == "all" else ():
            oblong = replace(point, variant="oblong", sizes={"m": m, "n": n, "k": k})
            draft.add(Planned(oblong, 1, CAP_PI, P75, 0.02, 1e-3, 0.03, 8, times=FEW_ROUNDS))


def workloads(draft: Draft, found: Sequence[Point]) -> None:
    """Real workloads, at least one whole execution a repetition."""
    for point in found:
        if point.level != "DRAM":  # what its own instructions take, with operands in a cache
            draft.add(Planned(point, 1, CAP_CURVE, MEDIAN, 0.02, 1e-3, 0.02, 20, times=FEW_ROUNDS))
            continue
        visits = 2 if draft.detail else 1
        draft.add(Planned(point, 1, CAP_CURVE, MEDIAN, 0.02, 1e-3, 0.08, 5, visits=visits))
