"""A results folder of the Empirical Roofline Toolkit (Berkeley Lab), version 1.1.0 and its ports.

FLOPS.nnn (FLOP an item) / geometry (MPI.nnnn/OpenMP.nnnn, or blocks and threads of a GPU) / max, a row a
working set: bytes, trials; least, median and greatest time (µs); the same of bandwidth (1e9 byte/s, one
read and one write an item) and of rate (1e9 FLOP/s). `pre` holds every trial count; `config.ert` the
options. Medians are read. A sweep over FLOPS.nnn is made for each geometry at two working sets: the
largest, and that of the highest bandwidth. Levels of caches are guesses of the toolkit, so they are only
repeated as stated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import FileError
from bench.importers import ert_json, ert_words
from bench.importers.contents import text_of
from bench.importers.rows import Refusal, attempt, number, point, quotient
from bench.importers.sweep import Imported, Refused, Stated, Sweep
from bench.profile.records import CurvePoint

NAME, SOURCE = "ert", "Empirical Roofline Toolkit, results folder"

CELLS = 11
MOST_FILES = 4096
ITEMS = {4: "fp32", 8: "fp64"}

Table = dict[float, CurvePoint]
"""Points by working set (byte)."""


def recognises(path: Path) -> bool:
    """Whether a folder is a run of ERT, or holds runs."""
    return bool(_runs(path))


def _runs(path: Path) -> list[Path]:
    if any(path.glob("FLOPS.*")):
        return [path]
    return sorted({found.parent for found in (*path.glob("Run.*/FLOPS.*"), *path.glob("*/Run.*/FLOPS.*"))})


def read(path: Path) -> Imported:
    """The sweeps of every run in the folder; rows that cannot be used are refused one by one."""
    runs = _runs(path)
    parts = [_run(run, f"{run.name} " if len(runs) > 1 else "") for run in runs]
    sweeps = tuple(sweep for part in parts for sweep in part.sweeps)
    device = " / ".join(dict.fromkeys(part.device for part in parts if part.device))
    stated = tuple(ceiling for part in parts for ceiling in part.stated)
    refused = tuple(row for part in parts for row in part.refused)
    remarks = tuple(dict.fromkeys(text for part in parts for text in part.remarks))
    return Imported(NAME, SOURCE, device, sweeps, stated, refused, remarks)


def _run(run: Path, prefix: str) -> Imported:
    refused: list[Refused] = []
    known: dict[str, Any] = {}
    geometries: dict[str, dict[int, Table]] = {}
    for flops, geometry, file in _files(run):
        lines = text_of(file).splitlines()
        known = ert_words.metadata(lines) | known
        geometries.setdefault(geometry, {})[flops] = _table(lines, file.relative_to(run), refused)
    device = ert_words.device(known, _comment(run / "config.ert"))
    sweeps = [
        sweep for name, tables in geometries.items() for sweep in _sweeps(f"{prefix}{name}", device, tables)
    ]
    stated, remarks = _stated(run / "roofline.json")
    remarks = (*ert_words.remarks(known, run.parent.name), *remarks)
    return Imported(NAME, SOURCE, device, tuple(sweeps), stated, tuple(refused), remarks)


def _files(run: Path) -> Iterator[tuple[int, str, Path]]:
    """FLOP an item, geometry and file of each table, `max` where it is there."""
    folders = sorted({p.parent for name in ("max", "pre") for p in run.glob(f"FLOPS.*/**/{name}")})
    if len(folders) > MOST_FILES:
        raise FileError(
            f"{run} holds more than {MOST_FILES} tables: give one of its runs, or fewer geometries"
        )
    for folder in folders:
        flops, *rest = folder.relative_to(run).parts
        if digits := re.search(r"\d+", flops):
            geometry = ", ".join(re.sub(r"\.0*(?=\d)", " ", part) for part in rest)
            yield int(digits[0]), geometry, folder / ("max" if (folder / "max").is_file() else "pre")


def _table(lines: Sequence[str], where: Path, refused: list[Refused]) -> Table:
    """Points by working set; of several trial counts the last and largest."""
    found: Table = {}
    for row, line in enumerate(lines, 1):
        if line.strip() in ("MAX", "SUM", ert_words.MARK):
            break
        if line.strip():
            made = attempt(row, f"{where.as_posix()}: {line}", partial(_point, line.split()), refused)
            if made:
                found[made[0]] = made[1]
    return found


def _point(cells: Sequence[str]) -> tuple[float, CurvePoint]:
    if len(cells) != CELLS:
        raise Refusal(f"{len(cells)} columns where ERT writes {CELLS}")
    size, took = number(cells[0], "working set"), number(cells[3], "time", "µs")
    bandwidth, rate = number(cells[6], "bandwidth", "GB/s"), number(cells[9], "rate", "GFLOP/s")
    return size.value, point(quotient(rate, bandwidth), rate, bandwidth, took.value)


def _sweeps(name: str, device: str, tables: Mapping[int, Table]) -> Iterator[Sweep]:
    """The sweeps over FLOP an item at the largest working set and at that of the highest bandwidth."""
    first = next((tables[flops] for flops in sorted(tables) if tables[flops]), None)
    if first is None:
        return
    fastest = max(first, key=lambda size: first[size].estimate.value / first[size].x)
    for mode, size in (("largest working set", max(first)), ("fastest working set", fastest)):
        points = [(flops, _nearest(table, size)) for flops, table in sorted(tables.items()) if table]
        item = round(points[0][0] / points[0][1].x / 2)
        yield Sweep(name, device, ITEMS.get(item, ""), mode, "FLOP/s", tuple(p for _, p in points))


def _nearest(table: Table, size: float) -> CurvePoint:
    return table[min(table, key=lambda other: max(other / size, size / other))]


def _comment(path: Path) -> str:
    """What the first line of config.ert, a comment, calls the machine."""
    if not path.is_file():
        return ""
    first = text_of(path).splitlines()[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def _stated(path: Path) -> tuple[tuple[Stated, ...], tuple[str, ...]]:
    if not path.is_file():
        return (), ()
    try:
        stated = ert_json.read(text_of(path), path).stated
        return stated, ert_json.guessed(stated)
    except FileError as error:
        return (), (f"its roofline.json says nothing: {error}",)
