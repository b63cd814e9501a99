"""Verbs on results: derive, report, look up, compare, export, and what the laws say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench import arguments
from bench.errors import UsageError
from bench.verbs.options import (
    Folder,
    Json,
    Newest,
    Plot,
    Results,
    Simulated,
    profile_at,
    show,
    show_result,
    show_table,
)

Device = Annotated[str, typer.Argument(help='A device or a part of its name: "H100 PCIe". All when omitted.')]


def fit(
    path: Annotated[Path, typer.Argument(help="A result folder, or another tool's sweep file or folder.")],
    name: Annotated[
        str, typer.Option("--format", help="csv, ert, mixbench, ...; by content if left out.")
    ] = "",
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Derive a result folder again, or fit another tool's sweeps."""
    from bench.report import refits, remake

    folder, drawn = arguments.home(path), arguments.plot_files(plot)
    if name or not arguments.is_own(path):
        show(as_json, *refits.looked_at(path, name, drawn))
    else:
        show_result(folder, remake.derived(folder, drawn), as_json)


def report(folder: Newest = None, results: Results = Path("results"), as_json: Json = False) -> None:
    """Remake table and plot from the files."""
    from bench.report import remake

    folder = arguments.home(folder or arguments.newest(results))
    show_table(folder, remake.report(folder), as_json)


def reference_figures(text: Device = "", as_json: Json = False) -> None:
    """List and search datasheet and published figures."""
    from bench.report import figures

    show(as_json, *figures.looked_up(text))


def compare(
    a: Folder,
    b: Folder,
    plot: Plot = None,
    allow_simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Say whether B is faster than A, ceiling by ceiling.

    Of two files of other tools, lay the roofs side by side.
    """
    from bench import compare as comparing

    if arguments.are_foreign(a, b):
        from bench.report import foreign

        if plot is not None:
            raise UsageError("--plot draws results of this suite; `fit FILE --plot` draws another tool's")
        show(as_json, *foreign.compared(a, b))
        return
    profiles = profile_at(a), profile_at(b)
    comparison = comparing.compare(*profiles, allow_simulated)
    if files := arguments.plot_files(plot):
        from bench.report.plot import draw

        draw(profiles, *files)
    from bench.report.comparison import render

    drawn = f"drawn: {', '.join(map(str, files))}\n" if files else ""
    show(as_json, comparison, render(comparison) + drawn)


def fleet(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Result folders or their parents; all of --results if left out."),
    ] = None,
    results: Results = Path("results"),
    allow_simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Say how results of one model differ and which board is off.

    Models are laid side by side.
    """
    from bench import fleet as fleets
    from bench.report.fleet import render

    members, unread = fleets.read(fleets.gathered(folders or (), results))
    found = fleets.fleet(members, allow_simulated, unread)
    show(as_json, found, render(found))


def export(
    folder: Folder,
    to: Annotated[str, typer.Option(help="csv, json, parquet, prometheus, nsight, ert, tracelens, ...")],
    output: Annotated[Path | None, typer.Option(help="File to write; in FOLDER when omitted.")] = None,
    allow_simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Write the measured numbers in another tool's format."""
    from bench import exporters

    beside = folder.parent if folder.is_file() else folder
    path = output or beside / f"roofline{exporters.ending(to)}"
    exporters.export(profile_at(folder), to, path, allow_simulated)
    if not exporters.is_stream(path):  # whose reader wants nothing else in it
        show(as_json, {"format": to, "file": path.as_posix()}, str(path))


def laws(
    folder: Newest = None,
    results: Results = Path("results"),
    pi: Annotated[str, typer.Option(help='Peak rate: FLOP/s, or "91.3 GFLOP/s".')] = "",
    beta: Annotated[str, typer.Option(help='Bandwidth: byte/s, or "20 GB/s".')] = "",
    overlap: Annotated[float | None, typer.Option(help="Overlap at the ridge, 0 to 1.")] = None,
    overhead: Annotated[float | None, typer.Option(help="T0 of one launch in seconds.")] = None,
    precision: Annotated[str, typer.Option(help="Whose pi to take from FOLDER.")] = "fp64",
    mode: Annotated[str, typer.Option(help="Whose beta and overlap: read-only or in-place.")] = "read-only",
    intensity: Annotated[float | None, typer.Option(help="FLOP/byte; the ridge when omitted.")] = None,
    flops: Annotated[float | None, typer.Option(help="FLOP of one launch, so that T0 counts.")] = None,
    movement: Annotated[float | None, typer.Option(help="Seconds of movement alone.")] = None,
    compute: Annotated[float | None, typer.Option(help="Seconds of compute alone.")] = None,
    factor: Annotated[list[float] | None, typer.Option(help="Factor s, repeatable; 3 and 9.")] = None,
    as_json: Json = False,
) -> None:
    """Say what raising pi, beta or I, or lowering T0, buys."""
    from bench import laws as model
    from bench.report import ways

    timed = movement is not None or compute is not None
    if (pi or beta) and folder is not None:
        raise UsageError("give a FOLDER or --pi and --beta, not both")
    if timed and (pi or beta or intensity is not None or flops is not None):
        raise UsageError("--movement and --compute stand alone: leave out --pi, --beta, --intensity, --flops")
    roof = None
    if pi or beta:
        roof = model.given_roof(pi, beta, overhead)
    elif folder is not None or not timed:
        roof = model.measured_roof(profile_at(folder or arguments.newest(results)), precision, mode, overhead)
    known = model.given_overlap(overlap) or (roof.omega if roof else None)
    if roof and overlap is not None:
        roof = replace(roof, fit=None)
    if timed or roof is None:
        job, at = model.timed_job(movement, compute, overhead), None
    else:
        at = roof.ridge if intensity is None else intensity
        job = model.placed_job(roof, at, flops)
    found = model.ways_up(job, model.factors(factor or (3.0, 9.0)), known)
    parts = (job, found, known, None if timed else roof, at)
    show(as_json, ways.record(*parts), ways.render(*parts))
