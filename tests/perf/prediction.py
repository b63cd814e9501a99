"""Predicted against measured on this CPU: shapes and sizes that no sweep has seen, beside the nominal roof.

`python -m tests.perf.prediction` measures a profile, then 200 matrix products and every workload at three
sizes, and exits with 1 when predictions are worse than demanded. Run it with nothing else running.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from bench.device import Device
from bench.errors import BenchError, FileError
from bench.fitting.intervals import quantile
from bench.prediction import answer, placed, products, works
from bench.prediction.estimate import Prediction
from bench.prediction.works import Load
from bench.profile.records import Precision, Profile
from bench.report.units import duration, percent
from bench.workloads.zoo import ZOO
from tests.perf import unseen
from tests.perf.unseen import Job

FAMILIES = ("fma", "stream", "mix", "gemm", "cache", "workload")
GEMM_ERROR, WORKLOAD_ERROR, OF_NOMINAL = 0.10, 0.20, 0.5
"""Median errors allowed, and the share of the nominal roof's median error that products may have."""

PLAIN = ("the operands fit", "the level")
"""Beginnings of notes that say where operands lie, which explains no miss."""

VISITS = 5
"""Of each piece of work: the machine's speed moves within seconds, and the median of two would follow it."""

MISS, MOVED, DISTURBED = 2.0, 1.5, 0.2
"""Ratio from which a miss must be explained; spread of visits and share of disturbed repetitions that do."""


@dataclass(frozen=True)
class Row:
    """One piece of work: what it took, what was predicted, what the nominal roof says (s, None unknown)."""

    group: str
    what: str
    measured: float
    predicted: float
    low: float | None
    high: float | None
    nominal: float | None
    reason: str

    @property
    def error(self) -> float:
        """Share of the measured time by which the prediction is off."""
        return abs(self.predicted / self.measured - 1)

    @property
    def nominal_error(self) -> float | None:
        """The same of the nominal roof."""
        return None if self.nominal is None else abs(self.nominal / self.measured - 1)

    @property
    def ratio(self) -> float:
        """How many times too long or too short."""
        return max(self.predicted / self.measured, self.measured / self.predicted)

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the interval."""
        return (self.low or 0.0) <= self.measured <= (self.high or float("inf"))


def predicted(profile: Profile, job: Job, threads: int) -> Prediction:
    """What the suite predicts for a job: a product by its shape, a workload by its size."""
    sizes = job.point.sizes
    if job.point.kernel == "gemm":
        name = job.point.precision.inputs
        (found,) = answer.gemm(profile, [(sizes["m"], sizes["n"], sizes["k"])], name, threads)
        return found
    known = ZOO[job.point.kernel]
    work = known.work(sizes)
    reads, writes = work.reads["DRAM"], work.writes["DRAM"]
    size = works.footprint(reads, writes, known.in_place)
    precision = Precision.of(known.precision)
    load = Load(precision, threads, work.flops, reads, writes, size, known.in_place)
    shown = "x".join(str(v) for k, v in sizes.items() if k != "sets")
    return placed.workload(profile, known.name, load, f"{known.name} {shown}")


def reason(profile: Profile, job: Job, found: Prediction) -> str:
    """What may explain a miss: triage of the profile, a machine that moved, or what the predictor said."""
    findings = [f for f in profile.facts.get("findings", ()) if job.point.kernel in str(f.get("subject"))]
    said = [f"triage: {f['cause']}" for f in findings]
    if job.spread > MOVED:
        said.append(f"the machine moved: visits differ by {job.spread:.1f}x")
    if job.repetitions and job.disturbed / job.repetitions > DISTURBED:
        said.append(f"noisy-neighbour: {job.disturbed / job.repetitions:.0%} of the repetitions were cut")
    return "; ".join([*said, *(note for note in found.notes if not note.startswith(PLAIN))])


def rows(profile: Profile, jobs: Sequence[Job], threads: int) -> list[Row]:
    """Every job beside its prediction."""
    table = []
    for job in jobs:
        found = predicted(profile, job, threads)
        ends = found.seconds.low, found.seconds.high
        values = (job.seconds, found.seconds.value, *ends, found.nominal_seconds)
        table.append(Row(job.group, found.what, *values, reason(profile, job, found)))
    return table


@dataclass(frozen=True)
class Summary:
    """Errors of a group: median, 90th percentile, worst, the nominal roof's median, share in the interval."""

    group: str
    count: int
    median: float
    p90: float
    worst: Row
    nominal: float | None
    inside: float


def summary(group: str, found: Sequence[Row]) -> Summary:
    """The errors of some rows."""
    errors = [row.error for row in found]
    nominal = [row.nominal_error for row in found if row.nominal_error is not None]
    return Summary(
        group,
        len(found),
        median(errors),
        quantile(errors, 0.9),
        max(found, key=lambda row: row.error),
        median(nominal) if nominal else None,
        sum(row.inside for row in found) / len(found),
    )


def grouped(found: Sequence[Row]) -> list[Summary]:
    """One summary a group, in order of appearance."""
    return [summary(g, [r for r in found if r.group == g]) for g in dict.fromkeys(r.group for r in found)]


def verdicts(gemm: Sequence[Row], zoo: Sequence[Row]) -> list[tuple[bool, str]]:
    """What is demanded, each with whether it holds."""
    found = []
    if gemm:
        of_gemm = summary("products", gemm)
        text = f"products: median error {percent(of_gemm.median)}, at most {percent(GEMM_ERROR)}"
        found.append((of_gemm.median <= GEMM_ERROR, text))
        if of_gemm.nominal is not None:
            text = f"at most {OF_NOMINAL:g} of the nominal roof's {percent(of_gemm.nominal)}"
            found.append((of_gemm.median <= OF_NOMINAL * of_gemm.nominal, f"products: {text}"))
        else:
            found.append((True, "products: the nominal roof of this CPU is not known, nothing to compare"))
    if zoo:
        of_zoo = summary("workloads", zoo)
        text = f"workloads: median error {percent(of_zoo.median)}, at most {percent(WORKLOAD_ERROR)}"
        found.append((of_zoo.median <= WORKLOAD_ERROR, text))
        missed = [row for row in zoo if row.ratio > MISS]
        blank = [row.what for row in missed if not row.reason]
        text = f"workloads: {len(missed)} misses above {MISS:g}x, each explained"
        found.append((not blank, text + (f"; not: {', '.join(blank)}" if blank else "")))
    return found


def lines(gemm: Sequence[Row], zoo: Sequence[Row]) -> Iterable[str]:
    """The tables for people."""
    yield f"{'':<22}{'n':>4}{'median':>9}{'p90':>8}{'worst':>8}  {'nominal':>8}{'inside':>8}  worst of them"
    every = [*grouped(gemm)] + ([summary("all products", gemm)] if gemm else [])
    for s in every + ([summary("all workloads", zoo)] if zoo else []):
        errors = f"{percent(s.median):>9}{percent(s.p90):>8}{percent(s.worst.error):>8}"
        beside = f"{percent(s.nominal):>8}{percent(s.inside):>8}  {s.worst.what}"
        yield f"{s.group:<22}{s.count:>4}{errors}  {beside}"
    if zoo:
        yield ""
        yield f"{'':<28}{'measured':>10}{'predicted':>10}{'error':>8}  {'nominal':>8}  if above 2x, why"
    for row in zoo:
        times = f"{duration(row.measured):>10}{duration(row.predicted):>10}{percent(row.error):>8}"
        beside = f"{duration(row.nominal):>8}" + (f"  {row.reason or 'none'}" if row.ratio > MISS else "")
        yield f"{row.what:<28}{times}  {beside}"


def _profile(given: Path | None, minutes: float, folder: Path) -> Profile:
    from bench import store
    from bench.running import suite

    if given is None:
        given = suite.run(device="cpu", minutes=minutes, preset=None, results=folder, families=FAMILIES)
    return store.read_profile(given)


def with_nominal(profile: Profile, device: Device) -> Profile:
    """The profile with what its older versions lack of this CPU: its nominal clock."""
    there = profile.facts.get("device", {})
    facts = {"nominal_clock_hz": device.facts.get("nominal_clock_hz"), **there.get("facts", {})}
    return replace(profile, facts={**profile.facts, "device": {**there, "facts": facts}})


def _seen(profile: Profile) -> list[tuple[int, int, int]]:
    return [s for curve in profile.curves if curve.kind == "gemm" for s in products.shapes_of(curve)]


def evaluate(arguments: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Measure profile, products and workloads; the rows of the last two."""
    from bench.backends import open_backend
    from bench.planning import sizes

    with tempfile.TemporaryDirectory() as folder:
        profile = _profile(arguments.profile, arguments.minutes, Path(folder))
    order = random.Random(arguments.seed)
    backend = open_backend("cpu")
    profile = with_nominal(profile, backend.device)
    threads = answer.threads_of(profile, None)
    near = sizes.near_level(backend.device, threads)
    gemm = unseen.products(arguments.shapes, order, threads, _seen(profile))
    zoo = [] if arguments.no_workloads else unseen.workloads(backend, threads, near[1] if near else 1 << 20)
    backend.warm_up(0.5)
    unseen.measure(backend, [*gemm, *zoo], arguments.visits, order)
    return rows(profile, gemm, threads), rows(profile, zoo, threads)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.prediction", description=__doc__)
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="take this one, measure none")
    parser.add_argument("--minutes", type=float, default=3.0, help="of the profile's run (default 3)")
    parser.add_argument("--shapes", type=int, default=200, help="matrix products (default 200)")
    parser.add_argument("--no-workloads", action="store_true", help="products only")
    parser.add_argument(
        "--visits", type=int, default=VISITS, help=f"times each is measured (default {VISITS})"
    )
    parser.add_argument("--seed", type=int, default=20, help="of shapes and order (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there as well")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 when predictions are worse than demanded, else that of the error."""
    arguments, began = _arguments(argv), time.monotonic()
    try:
        gemm, zoo = evaluate(arguments)
        if arguments.json:
            _write(arguments.json, [*gemm, *zoo])
    except BenchError as error:
        print(f"prediction: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(lines(gemm, zoo)), end="\n\n")
    found = verdicts(gemm, zoo)
    print("\n".join(f"{'ok' if holds else 'MISSED':<7}{text}" for holds, text in found))
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0 if all(holds for holds, _ in found) else 1


def _write(path: Path, found: Sequence[Row]) -> None:
    body = [{**asdict(row), "error": row.error, "nominal_error": row.nominal_error} for row in found]
    try:
        path.write_text(json.dumps(body, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}; name another file with --json") from None


if __name__ == "__main__":
    sys.exit(main())
