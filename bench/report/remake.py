"""Remakes what people read in a result folder, table and plot, from its profile."""

from __future__ import annotations

import os
from pathlib import Path

from bench.errors import FileError, ResourceError
from bench.report import plot, table

TABLE, SVG, PNG = "table.txt", "roofline.svg", "roofline.png"


def report(folder: Path) -> str:
    """Write table.txt, roofline.svg and roofline.png of a result folder; returns the table's text.

    Each file appears whole or not at all. FileError when the profile is missing or corrupt,
    ResourceError when the folder cannot be written.
    """
    from bench import store

    if not folder.is_dir():
        raise FileError(f"{folder} is no result folder: name one that holds a profile.json")
    profile = store.read_profile(folder)
    text = table.render(profile)
    try:
        _write(folder / TABLE, text)
        plot.draw([profile], folder / SVG, folder / PNG)
    except OSError as error:
        raise ResourceError(
            f"cannot write the report into {folder} ({error.strerror or error}): make the folder writable, "
            "free some space, or copy the result elsewhere and report there"
        ) from error
    return text


def _write(path: Path, text: str) -> None:
    """Through a temporary file beside it, so that no reader sees half of it."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
