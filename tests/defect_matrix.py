"""Twelve defects at three severities on random devices: is each found and named, and nothing lost by it.

    python -m tests.defect_matrix [--seeds 20] [--healthy 500] [--only hang,timer:mild] [--jobs 2] [--json]
                                  [--first-seed 0]
    python -m tests.defect_matrix draw --seed N

Every run is a whole one on the virtual clock of a simulated device: the plan of the standard preset on all
threads, every point once a round, the intensity sweep in one precision, five rounds and no extra ones. The
profile is derived from what it wrote, and its findings are compared with what was wrong. Exit code 1 where
less than 95 % are named rightly, a run did not finish or lost something, or more than 2 % of the healthy
devices raise an alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.defects import SETS, Severity, defect_of, severities
from bench.backends.simulation.distortion import Defect
from bench.backends.simulation.truth import truth_of
from bench.fitting.ceilings import derive
from bench.planning.plan import Plan, plan
from bench.planning.planned import Planned
from bench.planning.timebox import TimeBox
from bench.profile.encoding import plain
from bench.profile.records import SCHEMA_VERSION, TOOL_VERSION, WHOLE, Profile, Sample
from bench.running.campaign import FINISHED, Campaign
from bench.running.progress import Screen
from bench.running.runners import InProcess
from bench.store import SAMPLES, Store, key_of
from tests import healthy_devices, severity_ranges

TWELVE = tuple(dict.fromkeys(severity.kind for severity in severities()))

MINUTES, FAMILIES = 40.0, ("fma", "stream", "mix", "gemm", "tensor", "cache")
"""Of virtual time, so that what hangs leaves room for the rest; the families that all devices have."""

ON_GPU = ("memory-clock",)
"""Nothing on a CPU shows a lowered memory clock: it is just a CPU with slower memory."""

NAMED, FALSE_ALARMS = 0.95, 0.02
"""Least share of defects named rightly, and most of the healthy devices with an alarm."""

TRUE_OF = {"boost-clock": "burst", "power-cap": "sustained", "thermal-cap": "sustained"}
"""Findings that are no false alarms on a healthy GPU whose clock is not constant."""


class PlannedRounds(Campaign):
    """The run without the extra rounds that wide intervals ask for: they cost most and show nothing new."""

    def extra_rounds(self, points: Sequence[Planned]) -> None:
        """None."""


@dataclass(frozen=True)
class Run:
    """What a run left behind; lost: planned points without a sample and samples without their repetitions."""

    profile: Profile
    samples: tuple[Sample, ...]
    finished: bool
    lost: tuple[str, ...]

    @property
    def causes(self) -> tuple[str, ...]:
        """Causes of all findings, each once."""
        found = self.profile.facts.get("findings")
        if found is None:
            from bench.triage import diagnose

            found = [asdict(finding) for finding in diagnose(self.profile, self.samples)]
        return tuple(dict.fromkeys(str(finding["cause"]) for finding in found))


@dataclass(frozen=True)
class Verdict:
    """One run judged. detected: anything was found; named: the defect was, and no other of the twelve."""

    kind: str
    grade: str
    set: str
    seed: int
    gpu: bool
    causes: tuple[str, ...]
    detected: bool
    named: bool
    finished: bool
    lost: tuple[str, ...]


def smaller(drafted: Plan) -> Plan:
    """The plan on all threads, every point once a round, the intensity sweep in its first precision only."""
    first = next((p.point.precision for p in drafted.points if p.point.family == "mix"), None)

    def kept(planned: Planned) -> bool:
        point = planned.point
        return point.scope in WHOLE and (point.family != "mix" or point.precision == first)

    points = tuple(replace(p, visits=1) for p in drafted.points if kept(p))
    return replace(drafted, points=points, pilot=tuple(filter(kept, drafted.pilot)))


def run(
    truth: Mapping[str, Any], defects: Sequence[Defect] = (), folder: Path | None = None, rounds: int = 0
) -> Run:
    """A whole run on a device with these defects, its file in `folder` (a temporary one without it).

    rounds: instead of the preset's five
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            return run(truth, defects, Path(made), rounds)
    backend = SimulatedBackend("random", truth_of(truth, "a random device"), defects)
    runner = InProcess(backend)
    runner.open(0)
    drafted = smaller(plan(backend.device, runner.variants, "standard", families=FAMILIES))
    if rounds:
        drafted = replace(drafted, preset=replace(drafted.preset, rounds=rounds, least_rounds=rounds))
    with Store.create(folder / "run", header(backend, drafted)) as store:
        box = TimeBox(runner.now, 60 * MINUTES)
        campaign = PlannedRounds(runner, store, box, drafted, Screen(quiet=True), int(truth["seed"]))
        campaign.run()
        finished = any(note.get("text") == FINISHED for note in store.notes)
        profile = derive(store.header, store.conditions, store.samples)
        return Run(profile, store.samples, finished, tuple(_lost(campaign, store)))


def header(backend: SimulatedBackend, drafted: Plan) -> dict[str, Any]:
    """First line of the file, as a run writes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": TOOL_VERSION,
        "identity": plain(backend.device.identity),
        "provenance": {},
        "device": plain(backend.device),
        "simulated": True,
        "plan": {"rounds": drafted.preset.rounds, "points": len(drafted.points), "pilot": len(drafted.pilot)},
        "not_measured": list(drafted.notes),
    }


def _lost(campaign: Campaign, store: Store) -> Iterator[str]:
    """Planned points without a sample, samples that carry less than they must, lines that are missing."""
    winners = next(note["winners"] for note in store.notes if "winners" in note)
    seen = {key_of(s) for s in store.samples if s.round > 0}
    for planned in map(campaign.history.fitted, campaign.plan.settled(winners)):
        if planned.key not in seen:
            yield f"no sample of {planned.key}"
    for sample in store.samples:
        if sample.status == "ok" and not all(s > 0 for s in sample.repetitions.seconds or (0.0,)):
            yield f"no repetitions of {sample.point.key}"
        if sample.status != "ok" and not sample.reason:
            yield f"no reason why {sample.point.key} {sample.status}"
    lines = (store.folder / SAMPLES).read_text(encoding="utf-8").count('{"record": "sample"')
    if lines != len(store.samples):
        yield f"{len(store.samples) - lines} of {len(store.samples)} samples are not in the file"


def judged(severity: Severity, seed: int) -> Verdict:
    """The defect on the random device of that seed: GPUs where only they show it, else every other one."""
    gpu = severity.kind in ON_GPU or seed % 2 == 1
    truth = healthy_devices.gpu(seed) if gpu else healthy_devices.cpu(seed)
    done = run(truth, [defect_of({"kind": severity.kind, **severity.on(gpu)})])
    twelve = set(done.causes) & set(TWELVE)
    return Verdict(
        severity.kind,
        severity.grade,
        severity.set,
        seed,
        gpu,
        done.causes,
        detected=bool(done.causes),
        named=twelve == {severity.kind},
        finished=done.finished,
        lost=done.lost,
    )


def alarm(seed: int) -> Verdict:
    """A healthy device; detected: something was found that is not true of it."""
    truth = healthy_devices.device(seed)
    done = run(truth)
    board = truth.get("gpu", {})
    true = {cause for cause, field in TRUE_OF.items() if board.get(field, 1.0) != 1.0}
    false = tuple(cause for cause in done.causes if cause not in true)
    return Verdict(
        "healthy", "", "", seed, bool(board), done.causes, bool(false), not false, done.finished, done.lost
    )


def chosen(only: str, which: str) -> list[Severity]:
    """Parameter sets of `only` (kind or kind:grade, joined by commas; "" all) and of one or both sets."""
    words = {word for word in only.split(",") if word}
    return [
        severity
        for severity in severities()
        if which in ("", severity.set)
        and (not words or words & {severity.kind, f"{severity.kind}:{severity.grade}"})
    ]


def shares(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Of some verdicts: how many were detected, named, finished and kept everything."""
    n = len(verdicts)
    tests = {
        "detected": [v.detected for v in verdicts],
        "named": [v.named for v in verdicts],
        "finished": [v.finished for v in verdicts],
        "kept": [not v.lost for v in verdicts],
    }
    return {name: sum(held) / n for name, held in tests.items()} | {"runs": n}


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Every figure: by defect and severity, in all, false alarms, and what was taken for what."""
    ill, well = [v for v in verdicts if v.grade], [v for v in verdicts if not v.grade]
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in sorted(ill, key=lambda v: TWELVE.index(v.kind)):
        groups.setdefault((verdict.kind, f"{verdict.grade}, {verdict.set}"), []).append(verdict)
    wrong = Counter((v.kind, v.grade, "GPU" if v.gpu else "CPU", v.causes) for v in ill if not v.named)
    alarms = Counter(("GPU" if v.gpu else "CPU", v.causes) for v in well if v.detected)
    return {
        "by_severity": {f"{kind} ({grade})": shares(group) for (kind, grade), group in groups.items()},
        "defects": shares(ill) if ill else {},
        "healthy": shares(well) if well else {},
        "confusions": [[*case[:3], list(case[3]), n] for case, n in wrong.most_common()],
        "false_alarms": [[kind, list(causes), n] for (kind, causes), n in alarms.most_common()],
        "lost": sorted({text for v in verdicts for text in v.lost})[:20],
    }


def passes(found: Mapping[str, Any]) -> bool:
    """Whether the figures are what they must be."""
    ill, well = found["defects"], found["healthy"]
    named = not ill or (ill["named"] >= NAMED and ill["finished"] == ill["kept"] == 1.0)
    return named and (
        not well or (well["detected"] <= FALSE_ALARMS and well["finished"] == well["kept"] == 1)
    )


def printed(found: Mapping[str, Any]) -> Iterator[str]:
    """The figures as lines."""
    columns = ("runs", "detected", "named", "finished", "kept")
    yield f"{'':36}" + "".join(f"{name:>10}" for name in columns)
    rows = {**found["by_severity"], "all defects": found["defects"], "healthy": found["healthy"]}
    for name, row in rows.items():
        cells = (f"{row[c]:>10}" if c == "runs" else f"{row[c]:>10.3f}" for c in columns if row)
        yield f"{name:36}" + "".join(cells)
    yield from (
        f"{kind}:{grade} on a {on}: {', '.join(c) or 'nothing'} ({n})"
        for kind, grade, on, c, n in found["confusions"]
    )
    yield from (f"healthy {on}: {', '.join(causes)} ({n})" for on, causes, n in found["false_alarms"])
    yield from (f"lost: {text}" for text in found["lost"])


def task(asked: tuple[Severity | None, int]) -> Verdict:
    """One run: a defect, or a healthy device, and the seed of the device."""
    severity, seed = asked
    return alarm(seed) if severity is None else judged(severity, seed)


def verdicts(
    only: str, which: str, seeds: int, healthy: int, jobs: int = 1, first: int = 0
) -> Iterator[Verdict]:
    """Every run that was asked for, seeds from `first` on; the healthy devices are others."""
    devices = range(first, first + seeds)
    ill = [(severity, 10_000 + seed) for seed in devices for severity in chosen(only, which)]
    tasks: list[tuple[Severity | None, int]] = [*ill, *((None, first + seed) for seed in range(healthy))]
    if jobs == 1:
        yield from map(task, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(task, tasks, chunksize=4)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.defect_matrix", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("verb", nargs="?", default="run", choices=("run", "draw"))
    parser.add_argument("--seeds", type=int, default=20, help="devices for each severity")
    parser.add_argument("--healthy", type=int, default=500, help="devices without a defect")
    parser.add_argument("--first-seed", type=int, default=0, help="of the devices; tune with others than 0")
    parser.add_argument("--only", default="", help="defects, or defect:severity, joined by commas")
    parser.add_argument("--set", default="", choices=("", *SETS), help="one half of the parameter sets")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", action="store_true", help="every figure and verdict as JSON")
    parser.add_argument("--seed", type=int, help="of the drawing")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Exit code: 0 where everything is as it must be."""
    asked = arguments(words)
    if asked.verb == "draw":
        severity_ranges.write(asked.seed)
        return 0
    found = []
    for verdict in verdicts(asked.only, asked.set, asked.seeds, asked.healthy, asked.jobs, asked.first_seed):
        found.append(verdict)
        if sys.stderr.isatty():
            print(f"\r{len(found)} runs", end="", file=sys.stderr)
    told = summary(found)
    if asked.json:
        print(json.dumps(told | {"verdicts": [asdict(v) for v in found]}, indent=1))
    else:
        print("\n".join(printed(told)))
    return 0 if passes(told) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
