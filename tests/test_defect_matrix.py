"""The matrix of defects: its devices, its severities, how it judges, and every defect survived once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.backends.simulation.defects import DEFECTS, GRADES, SEVERITIES, Severity, defect_of, severities
from bench.backends.simulation.truth import truth_of
from bench.errors import UsageError
from bench.store import read_log
from tests import defect_matrix, healthy_devices, severity_ranges
from tests.defect_matrix import TWELVE, Verdict, passes, printed, summary

ROUNDS, DEADLY = 2, ("hang",)
"""Rounds in which every defect shows, whatever it waits for, and those that cost a family in two: it is given
up, and one more goes on without it."""

DESIGNED = tuple(s for s in severities() if s.set == "designed")


# the severities


def test_half_of_the_severities_is_designed_and_ranges_exist_for_the_other() -> None:
    assert len(DESIGNED) == len(severity_ranges.RANGES) == 18
    designed = {(s.kind, s.grade) for s in DESIGNED}
    assert not designed & set(severity_ranges.RANGES)
    assert designed | set(severity_ranges.RANGES) == {(kind, grade) for kind in TWELVE for grade in GRADES}
    assert list(DEFECTS)[:12] == list(TWELVE)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_is_valid_on_cpus_and_gpus(seed: int) -> None:
    for kind, grades in severity_ranges.drawn(seed).items():
        for grade, values in grades.items():
            gpu = values.pop("gpu", {})
            severity = Severity(kind, grade, "drawn", values, gpu)
            for on in (False, True):
                defect_of({"kind": kind, **severity.on(on)}, on)


def test_the_drawn_half_is_written_once_and_for_all(tmp_path: Path) -> None:
    path = tmp_path / "severities.yaml"
    text = SEVERITIES.read_text(encoding="utf-8").split(severity_ranges.MARK)[0].rstrip("\n") + "\n"
    path.write_text(text, encoding="utf-8")
    assert len(severities(path)) == 18, "it is complete without the drawn half"
    severity_ranges.write(5, path)
    found = severities(path)
    assert [(s.kind, s.grade) for s in found] == [(kind, grade) for kind in TWELVE for grade in GRADES]
    drawn = {
        (s.kind, s.grade): {**s.values, **({"gpu": s.gpu} if s.gpu else {})}
        for s in found
        if s.set == "drawn"
    }
    assert drawn == {(k, g): v for k, grades in severity_ranges.drawn(5).items() for g, v in grades.items()}
    assert path.read_text(encoding="utf-8").startswith(text) and "seed 5" in path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match=r"severities.yaml has its drawn half: drawing until it pleases"):
        severity_ranges.write(6, path)


def test_two_seeds_draw_differently_and_one_the_same() -> None:
    assert severity_ranges.drawn(1) == severity_ranges.drawn(1) != severity_ranges.drawn(2)


# the devices


@pytest.mark.parametrize("seed", range(30))
def test_random_devices_are_complete_and_lie_as_real_ones(seed: int) -> None:
    truth = truth_of(healthy_devices.device(seed), "test")
    assert (truth.gpu is not None) == (seed % 2 == 1)
    betas = [*(cache.read for cache in truth.caches), truth.memory.read]
    assert betas == sorted(betas, reverse=True), "each level is faster than what lies behind it"
    if truth.gpu:
        bus = truth.gpu.memory_bus_bits / 8 * truth.gpu.memory_clock_hz * 2
        assert 0.85 <= truth.memory.read / bus <= 0.95
    else:
        assert 1.9 < truth.pi["fp32"] / truth.pi["fp64"] < 2.1
        assert truth.caches[-1].bytes <= 32 << 20, "DRAM arrays of 128 MiB, as out-of-memory supposes"
    assert healthy_devices.device(seed) == healthy_devices.device(seed)


# judging


def verdict(kind: str, *causes: str, **changes: object) -> Verdict:
    """A run judged as `judged` does it."""
    twelve = set(causes) & set(TWELVE)
    made = Verdict(kind, "mild", "designed", 1, False, causes, bool(causes), twelve == {kind}, True, ())
    return replace(made, **changes)  # type: ignore[arg-type]


def healthy(*causes: str) -> Verdict:
    return Verdict("healthy", "", "", 1, True, causes, bool(causes), not causes, True, ())


def test_the_summary_counts_what_was_named_and_what_was_taken_for_what() -> None:
    right, wrong = verdict("hang", "hang", "unexplained"), verdict("hang", "timer")
    found = summary([right] * 18 + [wrong, verdict("timer", "timer")] + [healthy()] * 49 + [healthy("tf32")])
    assert found["by_severity"]["hang (mild, designed)"]["named"] == pytest.approx(18 / 19)
    assert found["defects"] == {"detected": 1.0, "named": 0.95, "finished": 1.0, "kept": 1.0, "runs": 20}
    assert found["healthy"]["detected"] == 0.02
    assert found["confusions"] == [["hang", "mild", "CPU", ["timer"], 1]]
    assert found["false_alarms"] == [["GPU", ["tf32"], 1]] and passes(found)
    text = "\n".join(printed(found))
    assert "hang:mild on a CPU: timer (1)" in text and "healthy GPU: tf32 (1)" in text


@pytest.mark.parametrize(
    "spoiled",
    [
        [verdict("hang", "timer")] * 2,
        [verdict("hang", "hang", finished=False)],
        [verdict("hang", "hang", lost=("no sample of x",))],
        [verdict("hang", "hang", "timer")] * 2,
        [healthy("timer")] * 2,
    ],
)
def test_the_matrix_fails_where_one_figure_does(spoiled: list[Verdict]) -> None:
    good = [verdict("hang", "hang")] * 20 + [healthy()] * 49
    assert passes(summary(good))
    assert not passes(summary(good + spoiled))


# runs


def left(severity: Severity, seed: int, folder: Path, rounds: int) -> dict[str, Any]:
    """What a run with the defect left: its rounds, whether it is whole, as in its file, and long enough."""
    gpu = severity.kind in defect_matrix.ON_GPU or seed % 2 == 1
    truth = healthy_devices.gpu(seed) if gpu else healthy_devices.cpu(seed)
    defect = defect_of({"kind": severity.kind, **severity.on(gpu)}, gpu)
    done = defect_matrix.run(truth, [defect], folder, rounds)
    ends = [s.repetitions.start[-1] for s in done.samples if s.repetitions.start]
    return {
        "finished": done.finished,
        "lost": done.lost,
        "rounds": {s.round for s in done.samples},
        "kept": tuple(read_log(folder / "run").samples) == done.samples,
        "ceilings": bool(done.profile.ceilings),
        "late enough": max(ends) > severity.on(gpu).get("after", 0.0),
    }


def survived(severity: Severity, seed: int, folder: Path, pool: ProcessPoolExecutor) -> None:
    """The run came to its end, every planned point has its sample, and the file holds what memory does."""
    rounds = ROUNDS + (severity.kind in DEADLY)
    yes = dict.fromkeys(("finished", "kept", "ceilings", "late enough"), True)
    found = pool.submit(left, severity, seed, folder, rounds).result()
    assert found == yes | {"lost": (), "rounds": set(range(rounds + 1))}


def test_a_run_survives_a_hang_and_loses_nothing(tmp_path: Path, untraced: ProcessPoolExecutor) -> None:
    survived(next(s for s in DESIGNED if s.kind == "hang"), 1, tmp_path, untraced)


@pytest.mark.slow
@pytest.mark.parametrize(
    "severity", {s.kind: s for s in severities()}.values(), ids=lambda s: f"{s.kind}:{s.grade}"
)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_kind_is_survived_on_a_cpu_and_a_gpu(
    severity: Severity, seed: int, tmp_path: Path, untraced: ProcessPoolExecutor
) -> None:
    survived(severity, seed, tmp_path, untraced)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_timer_that_stands_still_leaves_a_run_of_reasons(seed: int, tmp_path: Path) -> None:
    done = defect_matrix.run(
        healthy_devices.device(seed), [defect_of({"kind": "timer", "factor": 0})], tmp_path
    )
    assert done.finished and done.lost == () and not done.profile.ceilings
    failed = {s.reason for s in done.samples if s.status == "failed"}
    assert failed and all(reason.endswith("this device's clock stands still") for reason in failed)
