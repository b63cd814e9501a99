"""Which GPUs CUDA_VISIBLE_DEVICES leaves, in the order in which CUDA programs number them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.gpu.nvml import Board, of_slice
from bench.gpu.states import State, state

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"

PINNED = "ROOFLINE_GPU"
"""Set in a child's environment to the device id that the environment pins: its ordinal 0 is that GPU."""

TOGETHER = "ROOFLINE_GPUS"
"""Set beside it where there are several whole GPUs, which can do something together: "number=token" of each,
its own first. A process sees one GPU, unless it measures what goes between them or what they do at once."""

AMBIGUOUS = (
    "its number is counted in PCI order; other CUDA programs here may number the fastest GPU first, "
    "unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set"
)


@dataclass(frozen=True)
class Visible:
    """A GPU or MIG slice that may be measured: `cuda:number`.

    token: what CUDA_VISIBLE_DEVICES must say for it to be ordinal 0 of a child (a UUID where there is one)
    parent_uuid, profile (1g.10gb), place (GPU/compute instance), sms, memory_bytes: of a MIG slice only
    note: what to know of it, in words
    """

    number: int
    token: str
    uuid: str
    name: str
    pci: str = ""
    parent_uuid: str = ""
    profile: str = ""
    place: str = ""
    sms: int | None = None
    memory_bytes: int | None = None
    note: str = ""

    @property
    def id(self) -> str:
        """What --device takes."""
        return f"cuda:{self.number}"


def child_environment(visible: Visible, others: Sequence[Visible] = ()) -> dict[str, str]:
    """What a child's environment must hold so that its CUDA ordinal 0 is this very GPU.

    others: whole GPUs that it may see too once it needs them; a slice works alone
    """
    found = {ORDER: "PCI_BUS_ID", VARIABLE: visible.token, PINNED: visible.id}
    all = (visible, *(other for other in others if other.token != visible.token and not other.profile))
    if len(all) > 1 and not visible.profile:
        found[TOGETHER] = ",".join(f"{unit.number}={unit.token}" for unit in all)
    return found


def _together(environ: Mapping[str, str]) -> dict[str, int]:
    """Number of each GPU by its token, as TOGETHER lists them."""
    pairs = (word.partition("=") for word in environ.get(TOGETHER, "").split(",") if "=" in word)
    return {token: int(number) for number, _, token in pairs}


def together(environ: Mapping[str, str]) -> list[int]:
    """Numbers of the GPUs that can do something together, as a pinned process was told; its own at least."""
    return sorted(_together(environ).values()) or [_pinned_number(environ)]


def widened(environ: Mapping[str, str]) -> dict[str, str]:
    """What lets a pinned process see all GPUs, its own still ordinal 0; nothing where there is but one."""
    tokens = list(_together(environ))
    return {VARIABLE: ",".join(tokens)} if len(tokens) > 1 else {}


def numbers(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Numbers (of cuda:N) of the GPUs that this pinned process sees, by its ordinals."""
    known, seen = _together(environ), environ.get(VARIABLE, "").split(",")
    if len(seen) > 1 and {*seen} <= {*known}:
        return tuple(known[token] for token in seen)
    return (_pinned_number(environ),)


def select(boards: Sequence[Board], environ: Mapping[str, str]) -> tuple[Visible, ...]:
    """The GPUs and slices that the environment leaves of `boards` (in PCI order), numbered from 0."""
    units = [found for place, board in enumerate(boards) if (found := _units(board, place))]
    value = environ.get(VARIABLE)
    chosen = [unit for group in units for unit in group] if value is None else _named(value, units)
    mixed = len({board.name for board in boards}) > 1 and environ.get(ORDER) != "PCI_BUS_ID"
    note = AMBIGUOUS if mixed and re.match(r"\s*\d", value or "") else ""
    first = _pinned_number(environ) if len(chosen) == 1 else 0
    return tuple(replace(unit, number=number, note=note) for number, unit in enumerate(chosen, first))


def _pinned_number(environ: Mapping[str, str]) -> int:
    """The number that a pinned process's one GPU has for whoever pinned it, else 0."""
    pinned = re.fullmatch(r"cuda:(\d+)", environ.get(PINNED, ""))
    return int(pinned.group(1)) if pinned else 0


def hidden(value: str, boards: Sequence[Board]) -> State:
    """The state of a machine whose GPUs are all hidden by the variable."""
    count = len(boards)
    known = "0" if count == 1 else f"0 to {count - 1}"
    return state("hidden", value=value, known=f"{known}, or a UUID from `nvidia-smi -L`")


def sliceless(board: Board) -> bool:
    """Whether MIG is on without a slice, so that nothing can run."""
    return board.mig and not board.slices


def _units(board: Board, place: int) -> tuple[Visible, ...]:
    """A board as CUDA can open it: itself, or its slices when MIG is on."""
    if board.mig:
        return tuple(of_board(of_slice(board, part), part.uuid) for part in board.slices)
    return (of_board(board, board.uuid or str(place)),)


def of_board(board: Board, token: str, number: int = -1) -> Visible:
    """A board or the slice that it stands for, under the token that pins it."""
    found = Visible(number, token, board.uuid, board.name, board.pci, board.parent_uuid)
    if (part := board.part) is None:
        return found
    place = f"{part.gpu_instance}/{part.compute_instance}"
    return replace(found, profile=part.profile, place=place, sms=part.sms, memory_bytes=part.memory_bytes)


def _named(value: str, units: Sequence[tuple[Visible, ...]]) -> list[Visible]:
    """What the entries name, up to the first that names nothing; CUDA shows none at all for repeated ones.

    All entries are of the kind of the first: numbers, GPU UUIDs or MIG UUIDs, these shortened at will.
    """
    words = [word.strip() for word in value.split(",")]
    find = _finder(words[0])
    chosen: list[Visible] = []
    for word in words:
        found = find(word, units)
        if found is None:
            break
        if found in chosen:
            return []
        chosen.append(found)
    return chosen


def _finder(word: str) -> Callable[[str, Sequence[tuple[Visible, ...]]], Visible | None]:
    if word.startswith("MIG-"):
        return _slice_named
    return _board_named if word.startswith("GPU-") else _numbered


def _numbered(word: str, units: Sequence[tuple[Visible, ...]]) -> Visible | None:
    """By place: leading digits count, as C reads numbers; of a MIG board CUDA opens the first slice."""
    digits = re.match(r"\+?(\d+)", word)
    place = int(digits.group(1)) if digits else len(units)
    return units[place][0] if place < len(units) else None


def _board_named(word: str, units: Sequence[tuple[Visible, ...]]) -> Visible | None:
    """By UUID or a beginning of it that fits one board only."""
    if not word.startswith("GPU-"):
        return None
    fitting = [group[0] for group in units if (group[0].parent_uuid or group[0].uuid).startswith(word)]
    return fitting[0] if len(fitting) == 1 else None


def _slice_named(word: str, units: Sequence[tuple[Visible, ...]]) -> Visible | None:
    """By UUID or its beginning, or by the older MIG-GPU-UUID/gpu instance/compute instance."""
    parts = [unit for group in units for unit in group if unit.profile]
    if older := re.fullmatch(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)", word):
        place = f"{older.group(2)}/{older.group(3)}"
        fitting = [p for p in parts if p.parent_uuid.startswith(older.group(1)) and p.place == place]
    else:
        fitting = [p for p in parts if word.startswith("MIG-") and p.uuid.startswith(word)]
    return fitting[0] if len(fitting) == 1 else None
