"""Other people's sweep files, one file a format: each says what it recognises and reads what is there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from bench.errors import FileError, UsageError
from bench.importers import csv, ert, ert_json, gpu_benches, intensity_sweep, mixbench
from bench.importers.contents import text_of
from bench.importers.sweep import Imported

FORMATS: dict[str, ModuleType] = {
    "mixbench": mixbench,
    "gpu-benches": gpu_benches,
    "intensity-sweep": intensity_sweep,
    "ert-json": ert_json,
    "csv": csv,
}
"""Formats of single files by name, the pickiest first."""

NAMES = (*FORMATS, "ert")
"""Every name that --format takes; ert is a folder."""


def load(path: Path, name: str = "") -> tuple[Imported, ...]:
    """What a file or folder holds, by format: of `name`, or of every format recognised in it.

    Text of several tools in one file gives an entry for each. UsageError for an unknown name, FileError for
    whatever cannot be read or holds no sweep.
    """
    if name and name not in NAMES:
        raise UsageError(f"unknown format {name!r}; valid: {', '.join(NAMES)}")
    if path.is_dir():
        return (_folder(path, name),)
    text = text_of(path)
    if name == ert.NAME:
        raise FileError(
            f"{path} is a file: {ert.NAME} takes a folder that ERT wrote, ert-json its roofline.json"
        )
    chosen = [FORMATS[name]] if name else [m for m in FORMATS.values() if m.recognises(text)]
    if len(chosen) > 1:
        chosen = [m for m in chosen if m is not csv]
    if not chosen:
        raise FileError(
            f"{path} is no sweep of a known format{csv.what_lacks(text)}; --format takes {', '.join(NAMES)}"
        )
    return tuple(_checked(path, module.read(text, path)) for module in chosen)


def _folder(path: Path, name: str) -> Imported:
    if name not in ("", ert.NAME):
        raise FileError(f"{path} is a folder: --format {name} takes a file")
    if not ert.recognises(path):
        raise FileError(
            f"{path} holds neither samples.jsonl nor FLOPS.* of ERT: give a folder of results, or a file"
        )
    return _checked(path, ert.read(path))


def _checked(path: Path, found: Imported) -> Imported:
    """The same when it holds anything to work with; FileError with the first reason when it does not."""
    if found.stated or any(sweep.points for sweep in found.sweeps):
        return found
    refused = [*found.refused, *(r for sweep in found.sweeps for r in sweep.refused)]
    if not refused:
        raise FileError(
            f"{path} holds no row of the format {found.format}: is it cut off, or another format?"
        )
    first = refused[0]
    raise FileError(
        f"{path}: every one of its {len(refused)} rows is refused, the first (line {first.row}) because "
        f"{first.why}"
    )
