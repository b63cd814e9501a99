"""Remakes what people read in a result folder, table, plots and page, from its profile."""

from __future__ import annotations

from pathlib import Path

from bench.errors import FileError, ResourceError
from bench.report import hierarchy_plot, page, plot, table
from bench.report.units import counted
from bench.whole_files import write

TABLE, SVG, PNG, PAGE = "table.txt", "roofline.svg", "roofline.png", "report.html"
LEVELS_SVG, LEVELS_PNG = "hierarchy.svg", "hierarchy.png"


def report(folder: Path) -> str:
    """Write the table, the plots and the page of a result folder; returns the table's text.

    The plots of the hierarchy are only there when it was measured.

    Each file appears whole or not at all. FileError when the profile is missing or corrupt,
    ResourceError when the folder cannot be written.
    """
    from bench import store

    if not folder.is_dir():
        raise FileError(f"{folder} is no result folder: name one that holds a profile.json")
    profile = store.read_profile(folder)
    text = table.render(profile)
    try:
        write(folder / TABLE, text)
        plot.draw([profile], folder / SVG, folder / PNG)
        plots = {"roofline": folder / SVG}
        if hierarchy_plot.draw(profile, folder / LEVELS_SVG, folder / LEVELS_PNG):
            plots["hierarchy of memory and links"] = folder / LEVELS_SVG
        write(folder / PAGE, page.render(profile, text, plots))
    except OSError as error:
        raise ResourceError(
            f"cannot write the report into {folder} ({error.strerror or error}): make the folder writable, "
            "free some space, or copy the result elsewhere and report there"
        ) from error
    return text


def derived(folder: Path, drawn: tuple[Path, Path] | tuple[()]) -> str:
    """Derive profile.json of a result folder again from its samples; says in words what it holds.

    drawn: SVG and PNG to draw besides the folder's own, which `report` makes
    """
    from bench import store
    from bench.fitting import ceilings

    raw = store.read_log(folder)
    profile = ceilings.derive(raw.header, raw.conditions, raw.samples)
    store.write_profile(folder, profile)
    if drawn:
        plot.draw([profile], *drawn)
    found = {"ceiling": profile.ceilings, "curve": profile.curves, "workload": profile.placements}
    counts = ", ".join(counted(len(parts), name) for name, parts in found.items())
    return f"{folder / 'profile.json'}: {counts}; now run `report`"
