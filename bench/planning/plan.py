"""The plan of a run: what of every family is measured on a device, and what the pilot compares first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.device import Device
from bench.errors import UsageError
from bench.planning import doublings, gpu_points, levels, link_points, points
from bench.planning.planned import PRESETS, Plan, Planned
from bench.planning.points import Draft
from bench.profile.records import WHOLE, Point, Precision
from kernels.spec import LOOPED

__all__ = ["FAMILIES", "PRESETS", "Plan", "plan", "preset_for"]

Variants = Callable[[str, Precision, str, int], tuple[str, ...]]
"""variants(kernel, precision, level, threads): forms worth trying, best guess first."""

FAMILIES = (
    "fma",
    "stream",
    "mix",
    "gemm",
    "tensor",
    "cache",
    "latency",
    "scaling",
    "launch",
    "link",
    "overlap",
    "collective",
    "workload",
)

ON_CPU = tuple(family for family in FAMILIES if family not in ("tensor", "collective"))
"""What a CPU has of them: no matrix units, and nothing to combine."""

WRITERS: dict[str, Callable[[Draft], None]] = {
    "stream": points.streams,
    "mix": points.mix,
    "gemm": points.gemm,
    "cache": levels.cache,
    "latency": levels.latency,
    "scaling": levels.scaling,
    "launch": link_points.launch,
    "link": link_points.links,
    "overlap": link_points.overlap,
}
"""Who writes the points of a family of a CPU, in this order; fma and workloads need more than the draft."""


BESIDE = ("scaling", "launch", "overlap")
"""Families that are no roofs and on which no placement rests; nor does one on sweeps over working sets
and on chases of several chains."""

BESIDE_ROUNDS = 3
"""Rounds that measure them on a CPU, but in the full preset: five would take a third of three minutes."""


def preset_for(minutes: float) -> str:
    """The preset whose plan suits a time box of `minutes`."""
    return "quick" if minutes < 2 else "standard" if minutes < 8 else "full"


def usable_precisions(device: Device, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Names asked for, or all that the device knows of; UsageError when it knows or has none of them."""
    for name in asked or ():
        if name not in device.precisions:
            raise UsageError(f"unknown precision {name!r}; this device knows: {', '.join(device.precisions)}")
    if asked and all(device.precisions[name] for name in asked):
        reasons = "; ".join(f"{name}: {device.precisions[name]}" for name in dict.fromkeys(asked))
        have = ", ".join(name for name, reason in device.precisions.items() if not reason)
        raise UsageError(f"nothing of --precisions can be measured here ({reasons}); this device has: {have}")
    return tuple(name for name in device.precisions if not asked or name in asked)


def _checked(name: str, value: str, valid: Sequence[str]) -> str:
    if value not in valid:
        raise UsageError(f"unknown {name} {value!r}; valid: {', '.join(valid)}")
    return value


def plan(
    device: Device,
    variants: Variants,
    preset: str,
    threads: int | None = None,
    precisions: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    workloads: Sequence[Point] = (),
    memory: float | None = None,
) -> Plan:
    """What to measure on `device`; `memory` byte are available (default: all of the device's).

    UsageError for a preset, precision, family or thread count that does not exist or leaves nothing,
    ResourceError when the DRAM arrays do not fit.
    """
    chosen = PRESETS[_checked("preset", preset, tuple(PRESETS))]
    asked = [_checked("family", family, FAMILIES) for family in families or FAMILIES]
    count = threads_of(device, threads)
    names = usable_precisions(device, precisions)
    looped = tuple(n for n in names if n in LOOPED and not device.precisions[n])
    draft = Draft(device, chosen, count, memory or device.memory_bytes, looped)
    if device.is_gpu:
        gpu_points.fill(draft, asked, names, bool(precisions), workloads)
    else:
        _fill(draft, asked, names, workloads)
        _few_rounds(draft)
    doublings.add(draft)
    offered = gpu_points.OFFERED if device.is_gpu else ON_CPU
    draft.notes += [f"{family}: not asked for" for family in offered if family not in asked]
    if not draft.points:
        why = "; ".join(
            note
            for note in draft.notes
            if note.split(":")[0].split(" ")[0] in asked and ": not asked" not in note
        )
        none = f"{device.name} has no points of {', '.join(asked)} in {', '.join(names)}"
        raise UsageError(
            f"nothing to measure: {none}{f' ({why})' if why else ''}; its families: {', '.join(offered)}"
        )
    return _finished(draft, variants)


def threads_of(device: Device, asked: int | None) -> int:
    """Threads of the roof, SMs of a GPU; UsageError for a number that it has not."""
    if asked is None:
        return device.threads
    if device.is_gpu:
        raise UsageError("--threads is for CPUs: a GPU is measured on all its SMs; leave it out")
    if not 1 <= asked <= device.threads:
        raise UsageError(f"--threads {asked}: this device has 1 to {device.threads} threads for us")
    return asked


def _fill(draft: Draft, asked: Sequence[str], names: Sequence[str], workloads: Sequence[Point]) -> None:
    if "fma" in asked:
        points.fma(draft, names)
    for family, write in WRITERS.items() if draft.precisions else ():
        if family in asked:
            write(draft)
    if "workload" in asked:
        points.workloads(draft, workloads)


def _few_rounds(draft: Draft) -> None:
    """Unless all is measured, what stands beside the roof is measured in the first rounds only."""
    for key, planned in draft.points.items() if draft.detail < 2 else ():
        point = planned.point
        swept = point.family in ("cache", "latency") and "plateau" not in point.sizes
        crowd = point.family == "latency" and point.variant != "1 chain"
        if swept or crowd or point.family in BESIDE:
            draft.points[key] = replace(planned, times=planned.times or BESIDE_ROUNDS)


def _finished(draft: Draft, variants: Variants) -> Plan:
    """Ask for the variants of every choice; where there is more than one, plan a pilot."""
    guesses: dict[str, str] = {}
    trials: list[tuple[tuple[int, int], int, Planned]] = []
    for tune, planned in draft.tuned_at.items():
        p = planned.point
        forms = variants(p.kernel, p.precision, p.level, p.threads)[: draft.preset.variants] or ("",)
        guesses[tune] = forms[0]
        for rank, form in enumerate(forms if len(forms) > 1 else ()):
            trial = replace(planned.with_variant(form), regime="pilot", budget=planned.budget / 2)
            trial = replace(trial, minimum=3 if draft.device.is_gpu else 5)
            trials.append((_haste(p), rank, replace(trial, visits=1)))
    pilot = tuple(trial for _, _, trial in sorted(trials, key=lambda t: t[:2]))
    measured, notes = tuple(draft.points.values()), tuple(draft.notes)
    return Plan(draft.preset, draft.threads, measured, pilot, guesses, notes, draft.device.unit)


def _haste(point: Point) -> tuple[int, int]:
    """Order of the pilot: what gives the first pi and beta on the screen, then first guesses first.

    On a GPU family by family, since each has a process of its own.
    """
    quick = {"fma": 0, "read": 1, "triad": 1}
    haste = quick.get(point.kernel, 2) if point.scope in WHOLE else 2
    return (gpu_points.OFFERED.index(point.family) if point.scope == "device" else 0), haste
