"""Command line of `make perf`: race the suite against the C reference, or (`prediction`) test predictions."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# Before anything loads OpenMP: a team that spins after its work would disturb the other side's window.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from rich.console import Console

from bench.errors import BenchError, FileError
from tests.perf import reference, table
from tests.perf.cases import NAMES, Race, comparisons
from tests.perf.rows import Row

WIDTH = 150  # columns of the table where the output is no terminal


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; valid: {', '.join(NAMES)}")
    return names


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs: 1 or more")
    return int(text)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf", description=__doc__)
    parser.add_argument("--only", type=_names, default=NAMES, help=f"comma list of {', '.join(NAMES)}")
    parser.add_argument("--threads", choices=("1", "all", "both"), default="both")
    for kind, default in {"pi": 21, "beta": 200, "cache": 41, "latency": 41, "sweep": 31, "gemm": 15}.items():
        parser.add_argument(f"--pairs-{kind}", type=_count, default=default, help=f"default {default}")
    parser.add_argument("--seed", type=int, help="of the order of windows (default: a new one each time)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison there as well")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a comparison falls short")
    return parser.parse_args(argv)


def _race(arguments: argparse.Namespace, folder: Path) -> Race:
    from bench.backends import open_backend
    from tests.perf.suite import Suite

    order = random.Random(arguments.seed)
    built = reference.Reference(reference.build(folder))
    kinds = ("pi", "beta", "cache", "latency", "sweep", "gemm")
    pairs = {kind: getattr(arguments, f"pairs_{kind}") for kind in kinds}
    return Race(built, Suite(open_backend("cpu"), order), pairs, order)


def _teams(wanted: str, everyone: int) -> tuple[int, ...]:
    teams = {"1": (1,), "all": (everyone,), "both": (1, everyone)}[wanted]
    return tuple(dict.fromkeys(teams))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}; name another file with --json") from None


def compare(arguments: argparse.Namespace, console: Console) -> list[Row]:
    """Run all comparisons that were asked for, one line each as they end, then the table and the file."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        race = _race(arguments, Path(folder))
        device = race.suite.backend.device
        console.print(
            f"{device.name}, {device.threads} threads, C reference: {race.reference.isa}", highlight=False
        )
        rows = []
        try:
            for row in comparisons(race, arguments.only, _teams(arguments.threads, device.threads)):
                rows.append(row)
                console.print(table.line(row), highlight=False)
        finally:
            race.close()
    table.render(rows, console)
    console.print(f"{time.monotonic() - began:.0f} s in all", highlight=False)
    if arguments.json:
        facts = {"device": device.name, "state": device.state, "isa": race.reference.isa}
        _write(arguments.json, table.document(rows, facts))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 with --check when something falls short, else that of the error."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["prediction"]:
        from tests.perf import prediction

        return prediction.main(words[1:])
    arguments = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        rows = compare(arguments, console)
    except BenchError as error:
        print(f"perf: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("perf: interrupted", file=sys.stderr)
        return 130
    except MemoryError as error:
        print(f"perf: out of memory: {error}; close other programs", file=sys.stderr)
        return 5
    return 1 if arguments.check and not all(row.holds for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
