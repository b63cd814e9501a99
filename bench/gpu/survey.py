"""Which GPUs a run could use here, found without a context in this process; and why the others cannot be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import DeviceError
from bench.gpu import probe, states
from bench.gpu.nvml import Board, NvmlAbsent, of_slice, open_nvml
from bench.gpu.states import State, state
from bench.gpu.visible import ORDER, VARIABLE, Visible, child_environment, hidden, select, sliceless
from bench.host import tree


@dataclass(frozen=True)
class Gpu:
    """A visible GPU with NVML's reading of it."""

    visible: Visible
    reading: Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """What there is: GPUs that may be measured, states of those that cannot, driver version, a note."""

    gpus: tuple[Gpu, ...]
    states: tuple[State, ...] = ()
    driver: str = ""
    note: str = ""


def environment(id: str, root: Path = tree.ROOT, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment of a child that measures this GPU must hold; DeviceError as cuda_device."""
    found = survey(root, environ)
    return child_environment(chosen(id, found).visible, [gpu.visible for gpu in found.gpus])


def survey(root: Path = tree.ROOT, environ: Mapping[str, str] = os.environ) -> Survey:
    """The GPUs that NVML shows and the environment leaves; without NVML those that a child counts."""
    try:
        with open_nvml() as session:
            boards, broken = session.boards()
            gpus = tuple(Gpu(v, _board_of(v, boards).reading()) for v in select(boards, environ))
            silent = [s for s in broken if not (gpus and s.code == "no-permission")]
            troubles = (*silent, *_troubles(boards, bool(gpus or broken), root, environ))
            return Survey(gpus, tuple(dict.fromkeys(troubles)), session.driver)
    except NvmlAbsent as absent:
        return _without_nvml(absent.state, root, environ)


def _board_of(visible: Visible, boards: tuple[Board, ...]) -> Board:
    """The board of a GPU, the board as the slice has it for a slice."""
    for place, board in enumerate(boards):
        if visible.token in (board.uuid, str(place)):
            return board
        for part in board.slices:
            if part.uuid == visible.uuid:
                return of_slice(board, part)
    return Board.silent()


def _troubles(
    boards: tuple[Board, ...], something: bool, root: Path, environ: Mapping[str, str]
) -> list[State]:
    """States of boards that cannot be opened; where nothing else is there, why."""
    bare = state("mig-without-slices")
    found = [State(bare.code, f"{b.name}: {bare.sentence}") for b in boards if sliceless(b)]
    if something or found:
        return found
    if boards:
        return [hidden(environ.get(VARIABLE, ""), boards)]
    return [state("no-device") if states.signs(root)["nodes"] else state("container")]


def _without_nvml(absent: State, root: Path, environ: Mapping[str, str]) -> Survey:
    """Where NVML cannot be read a GPU may still work (WSL, Jetson, missing package): CUDA is asked."""
    signs = states.signs(root)
    if absent.code == "not-loaded" and signs["driver"] and not signs["nodes"]:
        return Survey((), (state("container"),))
    if absent.code not in ("no-package", "no-driver", "nvml-failed"):
        return Survey((), (absent,))
    if not (signs["nodes"] or signs["wsl"] or signs["jetson"]):
        return Survey((), (states.without_driver(signs),))
    (said,) = probe.ask([{ORDER: "PCI_BUS_ID", **_given(environ)}], ["--count"])
    if "state" in said:
        lacking = said["state"] in ("no-driver", "no-device")
        return Survey((), (states.without_driver(signs) if lacking else states.told(said),))
    names = said["names"]
    tokens = environ[VARIABLE].split(",") if VARIABLE in environ else map(str, range(len(names)))
    pairs = enumerate(zip(tokens, names, strict=False))
    seen = (Visible(n, token.strip(), "", name) for n, (token, name) in pairs)
    gpus = tuple(Gpu(visible, Board.silent().reading()) for visible in seen)
    return Survey(gpus, note=f"no telemetry: {absent.sentence}")


def _given(environ: Mapping[str, str]) -> dict[str, str]:
    return {VARIABLE: environ[VARIABLE]} if VARIABLE in environ else {}


def chosen(id: str, found: Survey) -> Gpu:
    for gpu in found.gpus:
        if gpu.visible.id == id:
            return gpu
    if not found.gpus:
        raise (found.states or (state("no-device"),))[0].error(id)
    known = ", ".join(gpu.visible.id for gpu in found.gpus)
    raise DeviceError(f"unknown device {id!r}; GPUs here: {known} (see `python -m bench devices`)")
