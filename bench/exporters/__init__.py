"""Other tools' formats, one file each: every one offers export(profile, path)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bench import whole_files
from bench.errors import FileError, UsageError
from bench.profile.records import Profile

FORMATS = {
    "csv": ".csv",
    "json": ".json",
    "parquet": ".parquet",
    "prometheus": ".prom",
    "nsight": ".section",
    "ert": ".ert.json",
    "tracelens": ".tracelens.json",
    "aiconfigurator": ".aiconfigurator.yaml",
}
"""Name of each format (a module of this package) and the ending of its files."""


def export(profile: Profile, name: str, path: Path, allow_simulated: bool = False) -> None:
    """Write `profile` to `path` in format `name`; UsageError lists the formats there are.

    Invented numbers stay out of other tools: UsageError for a simulated profile unless allowed.
    """
    ending(name)
    if profile.simulated and not allow_simulated:
        raise UsageError(
            "this profile is SIMULATED and would pass for a measurement in another tool; "
            "--allow-simulated exports it all the same, marked as simulated"
        )
    importlib.import_module(f"{__name__}.{name}").export(profile, path)


def ending(name: str) -> str:
    """The usual end of file names of a format; UsageError lists the formats there are."""
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}; valid: {', '.join(FORMATS)}")
    return FORMATS[name]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` in one step, and only if the block ends well.

    What is no file (/dev/stdout, a pipe) is written to: nothing may take its place.
    """
    _check_place(path)
    if is_stream(path):
        with path.open("wb") as stream:
            yield stream
        return
    with whole_files.replacing(path) as beside, beside.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


SYSTEM = ("dev", "proc")
"""Folders whose names are streams, whatever lies behind them: /dev/stdout may be redirected to a file."""


def is_stream(path: Path) -> bool:
    """Whether a path is there and must be written to as it is: a device, a pipe, the program's own output."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1:2] in [(top,) for top in SYSTEM])


def _check_place(path: Path) -> None:
    """FileError, in the words of who named `path`, when no file can be there."""
    if path.is_dir():
        raise FileError(f"{path} is a folder: name a file in it with --output")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is no folder: make it, or name another file with --output")
