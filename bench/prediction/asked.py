"""What a user asks for, read: shapes of products, sizes of workloads, FLOP and bytes, files of shapes."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.arguments import amount
from bench.errors import FileError, UsageError
from bench.workloads.workload import Workload

MOST = 2**40
"""Edges from which on a number is a mistake."""

Shape = tuple[int, int, int]


def numbers(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """The sizes of "4096x1024" or "rows=4096,columns=1024", in the order of `names`; UsageError."""
    wanted = f"{'x'.join(name.upper() for name in names)}, such as {'x'.join(['1024'] * len(names))}"
    if "=" in text:
        given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if set(given) != set(names):
            raise UsageError(f"{text!r} must name the sizes {', '.join(names)}, each once")
        parts = [given[name] for name in names]
    else:
        parts = re.split("[xX×*]", text.strip())
    if len(parts) != len(names) or not all(re.fullmatch(r"\d+", p.strip()) for p in parts):
        raise UsageError(f"{text!r} is no size: give {wanted}")
    sizes = tuple(int(p) for p in parts)
    if not all(1 <= size <= MOST for size in sizes):
        raise UsageError(f"{text!r}: every size must lie within 1 to 2^40")
    return sizes


def shapes(words: Sequence[str]) -> list[Shape]:
    """m, n, k of every word: MxNxK, or a CSV file with columns m, n and k; UsageError, FileError."""
    found: list[Shape] = []
    for word in words:
        if word.endswith(".csv") or Path(word).is_file():
            found += _file(Path(word))
        else:
            m, n, k = numbers(word, ("m", "n", "k"))
            found.append((m, n, k))
    if not found:
        raise UsageError("name at least one product: predict gemm 4096x512x1024, or a CSV file with m, n, k")
    return found


def _file(path: Path) -> list[Shape]:
    try:
        reader = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", "") or "it is no table in UTF-8"
        raise FileError(f"cannot read {path}: {why}; give a CSV file with columns m, n and k") from None
    found: list[Shape] = []
    for line, row in rows:
        cells = {str(k).strip().lower(): (v or "").strip() for k, v in row.items() if k is not None}
        if not {"m", "n", "k"} <= set(cells):
            raise FileError(f"{path} has no columns m, n and k; its first line names {', '.join(cells)}")
        try:
            m, n, k = numbers("x".join(cells[name] for name in "mnk"), ("m", "n", "k"))
        except UsageError as error:
            raise FileError(f"{path}, line {line}: {error}") from None
        found.append((m, n, k))
    if not found:
        raise FileError(f"{path} holds no shapes: write m,n,k in its first line and one shape a line below")
    return found


def workload(name: str, zoo: Mapping[str, Workload]) -> Workload:
    """The workload of a name or of its only beginning; UsageError lists all."""
    wanted = name.strip().lower()
    fits = [w for known, w in zoo.items() if known == wanted] or [
        w for known, w in zoo.items() if known.startswith(wanted)
    ]
    if len(fits) > 1 and wanted:
        raise UsageError(f"{name!r} may be {', '.join(w.name for w in fits)}: write more of it")
    if len(fits) != 1:
        raise UsageError(f"unknown workload {name!r}; valid: {', '.join(zoo)}; or give --flops and --bytes")
    return fits[0]


def sizes(word: str, of: Workload) -> dict[str, int]:
    """The sizes of a workload by name; operand sets are the suite's own matter."""
    names = [name for name in of.small if name != "sets"]
    return dict(zip(names, numbers(word, names), strict=True)) | ({"sets": 1} if "sets" in of.small else {})


def quantity(option: str, text: str, unit: str) -> float:
    """A positive number in base units of "1e12" or "2 GB"; UsageError."""
    value = amount(option, text, unit)
    if not 0 <= value <= 1e50:
        raise UsageError(f"{option} must be a number from 0 to 1e50, got {value:g}")
    return value
