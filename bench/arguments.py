"""What the verbs are given on the command line, checked: time boxes, names and result folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import FileError, NotConverged, UsageError

if TYPE_CHECKING:
    from bench.profile.records import Profile


def check_box(minutes: float | None, preset: str | None) -> None:
    """UsageError for a time box that cannot be."""
    if minutes is not None and preset is not None:
        raise UsageError(f"give --minutes or --preset, not both: {preset} means its own minutes")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UsageError(f"--minutes must be a positive number, got {minutes:g}")


def resumable(path: Path, options: bool) -> Path:
    """The folder to go on with; UsageError when options are given that it has already."""
    folder = path.parent if path.name == "samples.jsonl" else path
    if options:
        raise UsageError(
            "--resume goes on as the run was begun: leave out --device, --minutes, --preset, --threads, "
            "--precisions, --families, --no-workloads, --cross-check and --no-blocker, or start a new run "
            "without --resume"
        )
    if not (folder / "samples.jsonl").is_file():
        raise FileError(f"nothing to resume: {folder} holds no samples.jsonl; give the folder of a run")
    return folder


INSIDE = ("profile.json", "samples.jsonl")
"""Files by which a result folder may be named."""


def home(path: Path) -> Path:
    """The folder of a result, which may be named by a file in it."""
    return path.parent if path.name in INSIDE and path.is_file() else path


def is_own(path: Path) -> bool:
    """Whether a path names a result folder of this suite, or one of the two files in it."""
    return (home(path) / "samples.jsonl").is_file()


def are_foreign(a: Path, b: Path) -> bool:
    """Whether both paths are what other tools wrote; UsageError where one is and the other is ours."""
    of_others = [_is_foreign(path) for path in (a, b)]
    if any(of_others) and not all(of_others):
        theirs, ours = (a, b) if of_others[0] else (b, a)
        raise UsageError(
            f"{theirs} is no result of this suite, {ours} is: give two results, or two files of other tools"
        )
    return all(of_others)


def _is_foreign(path: Path) -> bool:
    from bench.importers import ert

    if is_own(path):
        return False
    return ert.recognises(path) if path.is_dir() else path.is_file() and path.suffix != ".json"


def names(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list; UsageError for one of commas alone."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if text and not found:
        raise UsageError(f"{text!r} names nothing: give words with commas between them, or none for all")
    return found


def newest(results: Path) -> Path:
    """The result folder of the latest run; folders are named by their time in UTC."""
    found = [path.parent for path in results.glob("*/*/samples.jsonl")]
    if not found:
        raise FileError(f"no result folder under {results}: measure first with `python -m bench run`")
    return max(found, key=lambda folder: folder.name)


def check_converged(profile: Profile) -> None:
    """NotConverged, with the ceilings named, unless every one has converged."""
    from bench.compare import ceiling_name

    wide = [ceiling_name(c) for c in profile.ceilings if c.converged is False]
    many = [c for c in profile.ceilings if c.regime != "sustained"]  # which is measured once, for 10 s
    few = [ceiling_name(c) for c in many if c.converged is None]
    if wide:
        raise NotConverged(f"did not converge: {'; '.join(wide)}. Give more --minutes, or a quieter machine")
    if few:
        raise NotConverged(f"too few rounds for a verdict: {'; '.join(few)}. Give more --minutes")


def plot_files(plot: Path | None) -> tuple[Path, Path] | tuple[()]:
    """The SVG and the PNG that --plot FILE means, none without it; refused where they cannot be written."""
    if plot is None:
        return ()
    if plot.suffix not in ("", ".svg", ".png"):
        raise UsageError(f"cannot draw {plot.suffix} files; valid endings: .svg, .png (both are written)")
    if not plot.name or not plot.parent.is_dir():
        raise FileError(f"{plot.parent} is no folder that can hold the plot: make it, or name another")
    return plot.with_suffix(".svg"), plot.with_suffix(".png")


def amount(option: str, text: str, unit: str) -> float:
    """A number in base units, as in "1e12" or "2 GB"; UsageError names the option."""
    from bench.report.units import parse

    try:
        value, found = parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if found not in ("", unit):
        raise UsageError(f"{option} takes {unit}, got {text!r}")
    return value
