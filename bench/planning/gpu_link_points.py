"""The points of a GPU's links: the host, its own memory, other GPUs, collectives, pipelining, all at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from bench.fitting.intervals import CAP_PI, MEDIAN, P75, memory_cap
from bench.planning import sizes
from bench.planning.gpu_budget import Budget
from bench.planning.planned import Planned
from bench.planning.points import CAP_CURVE, Draft
from bench.profile.records import Point, Precision
from kernels import collective

KIB, MIB = sizes.KIB, sizes.MIB
WORD, PIPED = "fp32", "fp64"
"""Types of what is moved, a byte being a byte, and of what is computed on while it moves."""

FAMILIES = ("link", "overlap", "collective")

HOST_LINK, WITHIN = "host link", "device"

TARGET, SPENT, LEAST = 2e-3, 0.03, 5
"""Seconds of a repetition and of a visit; repetitions at least. A large transfer is one repetition."""

SHORT = 3e-4
"""Seconds of a repetition of small transfers, which all lie in the queue before the first begins."""

SMALLEST_OF_A_KERNEL = 64 * KIB
"""A kernel moves whole tiles, and so do pages."""

HOST_SHARE, DEVICE_SHARE = 1 / 16, 1 / 8
"""Of free GPU memory: the most that a transfer is, each of up to two arrays (hosts tend to have more)."""

BALANCES = ((100, 64 * MIB), (25, 64 * MIB), (400, 16 * MIB))
"""Percent of the time of moving that computing takes, and bytes of a pass."""

BOTH_FROM = 100
"""Where chunks go back, too, computing takes at least as long as moving: both directions of the link at once
are faster than one after the other, so that below no law of two parts holds."""

OF_A_PAIR = (64 * KIB, MIB)
"""Bytes, with the largest, of copies between GPUs other than the first two."""

ALONE = "one whole GPU is visible to this run"

ALL_AT_ONCE = 1 << 30
"""Bytes of the array that each GPU reads when all do."""


def fill(draft: Draft, budget: Budget, asked: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Plan those of FAMILIES that are asked for, and with scaling what all GPUs do at once."""
    write = {"link": _links, "overlap": _overlap, "collective": _collectives, "scaling": _at_once}
    for family, plan in write.items():
        kind = PIPED if family == "overlap" else WORD
        if family not in asked:
            continue
        if kind in names:
            plan(draft, budget)
        elif family in FAMILIES:
            draft.notes.append(f"{family}: measured in {kind}, which --precisions leaves out")


def gpus(draft: Draft) -> list[int]:
    """Numbers of the GPUs that can do something together, this one among them."""
    return [int(number) for number in draft.device.facts.get("gpus") or [0]]


def _point(draft: Draft, family: str, kernel: str, level: str, access: str, **sized: int) -> Point:
    kind = Precision.of(PIPED if family == "overlap" else WORD)
    point = Point(family, kernel, "", kind, level, access, scope="device", threads=draft.threads)
    return replace(point, sizes=sized)


def _planned(draft: Draft, point: Point, priority: int, times: int = 0) -> None:
    size = point.sizes["bytes"]
    target = SHORT if size < MIB else TARGET
    cap = memory_cap(draft.device.state)
    draft.add(Planned(point, priority, cap, MEDIAN, 0.01, target, SPENT, LEAST, times=times))


# -- links -------------------------------------------------------------------------------------------


def _links(draft: Draft, budget: Budget) -> None:
    """Locked memory each way in all rounds, which the ceilings are made of; the other means in the first."""
    largest = HOST_SHARE * draft.memory
    for access in budget.host_ways:
        for size in _fitting(budget.transfers, largest):
            _planned(draft, _point(draft, "link", "copy-pinned", HOST_LINK, access, bytes=size), 1)
    for size in _fitting(budget.transfers if budget.other_means else (), DEVICE_SHARE * draft.memory):
        _planned(draft, _point(draft, "link", "copy-device", WITHIN, "copy", bytes=size), 1)
    for kernel, variants in budget.other_means.items():
        for access in ("h2d", "d2h", "both") if kernel == "zero-copy" else ("h2d", "d2h"):
            for size in _fitting(budget.other_transfers, largest):
                for variant in variants if kernel == "copy-pageable" or size >= SMALLEST_OF_A_KERNEL else ():
                    point = _point(draft, "link", kernel, HOST_LINK, access, bytes=size)
                    _planned(draft, replace(point, variant=variant), 2, budget.detail_rounds)
    if not budget.other_means:
        what = "pageable, zero-copy and managed memory, copies within the GPU"
        draft.notes.append(f"link by {what}: not in the {draft.preset.name} preset")
    _peers(draft, budget)


def _fitting(wanted: tuple[int, ...], largest: float) -> list[int]:
    return [size for size in wanted if size <= largest]


def _peers(draft: Draft, budget: Budget) -> None:
    """The full matrix in as many sizes as a line needs; between the first two in all."""
    numbers = gpus(draft)
    if len(numbers) < 2 or not budget.other_means:
        why = f"not in the {draft.preset.name} preset" if len(numbers) > 1 else ALONE
        draft.notes.append(f"link from GPU to GPU: {why}")
        return
    largest = max(_fitting(budget.transfers, DEVICE_SHARE * draft.memory), default=0)
    for one, other in permutations(numbers, 2):
        level = f"peer {one}>{other}"
        every = (one, other) == tuple(numbers[:2])
        for size in _fitting(budget.transfers if every else (*OF_A_PAIR, largest), largest):
            for access in ("write", "both") if one < other else ("write",):
                point = _point(draft, "link", "copy-peer", level, access, bytes=size)
                _planned(draft, point, 1 if every else 2, 0 if every else budget.detail_rounds)


# -- all GPUs ----------------------------------------------------------------------------------------


def _collectives(draft: Draft, budget: Budget) -> None:
    """Every operation over all GPUs, and the sum over two where there are more."""
    count = len(gpus(draft))
    if count < 2:
        draft.notes.append(f"collective: {ALONE}")
        return
    for name in collective.NAMES if budget.collected else ():
        for size in _fitting(budget.collected, DEVICE_SHARE * draft.memory):
            for devices in {count, 2} if name == collective.NAMES[0] else {count}:
                level = f"{devices} devices"
                sized = {"bytes": size, "devices": devices}
                point = replace(_point(draft, "collective", name, level, "exchange", **sized), variant="nccl")
                _planned(draft, point, 1 if name == collective.NAMES[0] else 2)
    if not budget.collected:
        draft.notes.append(f"collective: not in the {draft.preset.name} preset")


def _at_once(draft: Draft, budget: Budget) -> None:
    """pi and beta of this GPU alone and of 2, 4, ... all of them together."""
    count = len(gpus(draft))
    if count < 2 or not budget.sm_step:
        if count < 2:
            draft.notes.append(f"several GPUs at once: {ALONE}")
        return
    size = int(min(ALL_AT_ONCE, DEVICE_SHARE * draft.memory)) // MIB * MIB
    several = sorted({1, 2, count, *(1 << k for k in range(count.bit_length()) if 1 << k <= count)})
    for devices in several:
        chain = _point(draft, "scaling", "fma", "", "none", devices=devices)
        read = _point(draft, "scaling", "read", "DRAM", "read", bytes=size, devices=devices)
        chain, read = replace(chain, variant="8 chains b256"), replace(read, variant="v16 l4 b256")
        for point, cap, q in ((chain, CAP_PI, P75), (read, CAP_CURVE, MEDIAN)):
            draft.add(Planned(point, 1, cap, q, 0.01, 0.02, 0.1, 3, times=budget.detail_rounds))


# -- pipelining --------------------------------------------------------------------------------------


def _overlap(draft: Draft, budget: Budget) -> None:
    """Chunks over the host link, computing shorter, as long and longer than moving; the parts alone, too."""
    if not budget.chunks:
        draft.notes.append(f"overlap: not in the {draft.preset.name} preset")
        return
    for access in ("h2d", "both"):
        for percent, size in BALANCES:
            if access == "both" and percent < BOTH_FROM:
                continue
            point = _point(draft, "overlap", "pipeline", HOST_LINK, access, bytes=size, percent=percent)
            for variant in ("copy alone", "compute alone"):
                _passes(draft, replace(point, variant=variant), budget)
            for chunks in budget.chunks if percent == BALANCES[0][0] else budget.few_chunks:
                sized = {**point.sizes, "chunks": chunks}
                _passes(draft, replace(point, variant="pipelined", sizes=sized), budget)


def _passes(draft: Draft, point: Point, budget: Budget) -> None:
    planned = Planned(point, 2, CAP_CURVE, MEDIAN, 0.03, TARGET, 2 * SPENT, 3, times=budget.detail_rounds)
    draft.add(planned)
