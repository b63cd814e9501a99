"""Options that several verbs share, and what verbs do with a result folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench import streams

if TYPE_CHECKING:
    from bench.profile.records import Profile

Json = Annotated[bool, typer.Option("--json", help="Print strict JSON (docs/format.md) and nothing else.")]
Results = Annotated[Path, typer.Option(help="Folder of the result folders.", file_okay=False)]
Folder = Annotated[Path, typer.Argument(help="A result folder or its profile.json.")]
Newest = Annotated[Path | None, typer.Argument(help="A result folder; the newest one when omitted.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the roofs: FILE.svg and FILE.png.")]
Simulated = Annotated[bool, typer.Option("--allow-simulated", help="Go on with a simulated profile, marked.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]

show = streams.show


def profile_at(path: Path) -> Profile:
    """The profile of a result folder or file; FileError when there is none."""
    from bench import store

    return store.read_profile(path)


def show_table(folder: Path, text: str, as_json: bool) -> None:
    """The table of a result folder, in colour where the terminal has it; or the folder's profile as JSON."""
    if not as_json and streams.in_colour():
        from bench.report import table

        text = table.render(profile_at(folder), colour=True)
    show_result(folder, text, as_json)


def show_result(folder: Path, text: str, as_json: bool) -> None:
    """The report of a result folder, or the folder with its profile as JSON."""
    value = {"folder": folder.as_posix(), "profile": profile_at(folder)} if as_json else None
    show(as_json, value, text)
