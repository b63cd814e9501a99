"""What gpu-check asks of a result, and the verb: its stages, limits, files and refusals."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import cli, store
from bench.errors import DeviceError, ResourceError, UsageError
from bench.gpucheck import result, stages, verb
from bench.gpucheck.check import FAILED, OK, SKIPPED, Check
from bench.profile.records import Point, Precision, Profile, Sample
from tests.synthetic import ceiling, synthetic_profile
from tests.test_gpucheck import GPU, statuses

# the result


def point(family: str, precision: str = "fp32") -> Point:
    return Point(family, family, "", Precision.of(precision), scope="device")


def sample(family: str = "fma", precision: str = "fp32", **changes: Any) -> Sample:
    return replace(Sample(point(family, precision), 1, 1, 0), **changes)


def with_shares(*shares: tuple[str, float, str]) -> Profile:
    made = [
        ceiling("pi" if kernel == "fma" else "beta", 1e12, kernel=kernel, precision="fp32", regime=regime)
        for kernel, _, regime in shares
    ]
    return replace(
        synthetic_profile(),
        ceilings=tuple(replace(c, share_at_clock=s[1]) for c, s in zip(made, shares, strict=True)),
    )


def test_a_family_without_a_value_needs_a_reason() -> None:
    lacking = sample("tensor", "fp8", status="skipped", reason="needs compute capability 8.9")
    found = {c.name: c for c in result.present([sample(), lacking], synthetic_profile())}
    assert found["measured tensor"].status == OK and "fp8" in found["measured tensor"].value
    dead = sample("gemm", status="failed", reason="no answer within 20 s")
    found = {c.name: c for c in result.present([sample(), dead], synthetic_profile())}
    assert found["measured gemm"].status == FAILED and "no answer" in found["measured gemm"].value
    half = [replace(dead, status="ok", reason=""), replace(dead, point=point("gemm", "fp16"))]
    assert FAILED in statuses(result.present(half, synthetic_profile())), "one point failed, another did not"
    again = [dead, replace(dead, status="ok", reason="", round=2)]
    assert statuses(result.present(again, synthetic_profile())) == {OK}, "what came right later is measured"
    silent = list(result.present([sample(status="skipped")], synthetic_profile()))
    assert [c.status for c in silent if c.name == "every gap has its reason"] == [FAILED]


def test_faster_than_the_hardware_is_a_fault() -> None:
    good = with_shares(("fma", 0.985, "typical"), ("read", 0.93, "typical"))
    assert statuses(result.possible(good)) == {OK}
    assert FAILED in statuses(result.possible(with_shares(("fma", 1.2, "typical"))))
    assert FAILED in statuses(result.possible(with_shares(("read", 1.05, "typical"))))
    assert FAILED in statuses(result.possible(with_shares(("fma", 0.7, "typical")))), "half a loop is missing"
    assert FAILED not in statuses(result.possible(with_shares(("fma", 0.92, "sustained"))))
    assert statuses(result.possible(synthetic_profile())) == {SKIPPED}


def test_of_a_capability_that_is_known_well_more_is_asked() -> None:
    memory = with_shares(("read", 0.91, "typical"))
    group = ceiling("pi", 1e12, kernel="wgmma", precision="bf16")
    group = replace(group, precision=Precision("bf16", "fp32", "fp32", "matrix"), share_at_clock=0.94)
    for cc, status in (("8.0", OK), ("9.0", FAILED)):
        for found in (memory, replace(memory, ceilings=(group,))):
            assert FAILED not in statuses(result.possible(replace(found, simulated=True)))
            known = replace(found, simulated=False, identity={**found.identity, "cc": cc})
            assert (FAILED in statuses(result.possible(known))) == (status == FAILED)
    close = replace(memory, identity={"cc": "9.0"}, simulated=False)
    shares = ((0.955, group), (0.93, memory.ceilings[0]))
    close = replace(close, ceilings=tuple(replace(c, share_at_clock=share) for share, c in shares))
    assert statuses(result.possible(close)) == {OK}


def test_a_value_outside_its_interval_is_a_fault() -> None:
    one = ceiling("pi", 1e12)
    wrong = replace(one, estimate=replace(one.estimate, low=2e12))
    assert FAILED in statuses(result.intervals(replace(synthetic_profile(), ceilings=(wrong,))))
    assert FAILED not in statuses(result.intervals(replace(synthetic_profile(), ceilings=(one,))))


def test_launches_that_waited_for_the_host_are_a_fault() -> None:
    assert statuses(result.evidence([sample(facts={"event_share": 0.9})])) == {OK}
    assert FAILED in statuses(result.evidence([sample(facts={"host_bound": True})]))
    assert FAILED in statuses(result.evidence([sample(facts={"event_share": 1.2})]))


# the verb


def test_the_verb_refuses_what_it_cannot_check(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"valid: tests, audit, cross-check, run, checks"):
        verb.check_gpu(GPU, tmp_path, "all", print)
    with pytest.raises(UsageError, match="gpu-check is for GPUs"):
        verb.check_gpu("cpu", tmp_path, "", print)
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_it_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.gpu import described

    def none(id: str) -> None:
        raise DeviceError("cuda:0: no NVIDIA driver found")

    monkeypatch.setattr(described, "cuda_device", none)
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-check", "--out", str(tmp_path / "out")])
    assert stop.value.code == 3
    assert capsys.readouterr().err == "Error: cuda:0: no NVIDIA driver found\n"
    assert not (tmp_path / "out").exists()


def test_one_stage_of_a_simulated_gpu_through_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-check", "--device", GPU, "--stage", "tests", "--json"])
    assert stop.value.code in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / verb.FOLDER / verb.RECORD).read_text()) | {
        "seconds": found["seconds"]
    }
    assert found["simulated"] is True and found["passed"] is True and found["count"][FAILED] == 0
    assert [stage["stage"] for stage in found["stages"]] == ["tests"]
    assert "SIMULATED, no hardware is checked" in (tmp_path / verb.FOLDER / verb.TABLE).read_text()


def fake_run(files: dict[str, str], code: int | None) -> Callable[..., tuple[int | None, str]]:
    """Stands in for the measured run: leaves files where the words say."""

    def run(words: list[str], seconds: float) -> tuple[int | None, str]:
        if "--results" in words:
            home = Path(words[words.index("--results") + 1]) / "gpu-quiet" / "time"
            home.mkdir(parents=True)
            for name, text in files.items():
                (home / name).write_text(text)
        return code, "Error: the GPU fell off"

    return run


WHOLE = {
    "samples.jsonl": "s" * 10,
    "profile.json": "{}",
    "roofline.png": "p",
    "roofline.svg": "v",
    "table.txt": "t",
}


def test_of_a_run_four_files_stay_beside_record_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_run", fake_run(WHOLE, 0))
    found = list(verb.measured(GPU, tmp_path, 100.0, []))
    assert statuses(found) == {OK}
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(verb.KEPT), "no folder stays behind"


def test_samples_too_large_to_travel_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "LARGEST", 5)
    monkeypatch.setattr(verb, "_run", fake_run({**WHOLE, "profile.json": ""}, 0))
    notes: list[str] = []
    monkeypatch.setattr(verb.shutil, "copyfileobj", lambda plain, file: None)
    list(verb.measured(GPU, tmp_path, 100.0, notes))
    assert "samples.jsonl is packed: it was 10 byte" in notes
    assert "samples.jsonl is left out: packed it was still above 5 byte" in notes
    assert not (tmp_path / "samples.jsonl").exists() and not (tmp_path / "samples.jsonl.gz").exists()


def test_packed_samples_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "LARGEST", 90)
    monkeypatch.setattr(verb, "_run", fake_run({**WHOLE, "samples.jsonl": "s" * 5000}, 0))
    list(verb.measured(GPU, tmp_path, 100.0, []))
    with gzip.open(tmp_path / "samples.jsonl.gz", "rt") as file:
        assert file.read() == "s" * 5000
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("code", "told"), [(3, "exit code 3: Error: the GPU fell off"), (None, "no end in time")]
)
def test_a_run_that_fails_keeps_what_it_measured(
    code: int | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_run", fake_run({"samples.jsonl": "s"}, code))
    found = list(verb.measured(GPU, tmp_path, 100.0, []))
    assert [(c.status, c.value) for c in found] == [(FAILED, told), (FAILED, "none")]
    assert (tmp_path / "samples.jsonl").read_text() == "s"


def test_every_stage_but_the_run_has_its_process_and_a_result_is_needed_for_checks(tmp_path: Path) -> None:
    assert set(verb.LIMITS) == {*stages.STAGES, "run"}
    (found,) = verb.staged("checks", GPU, tmp_path, {}, record(tmp_path))
    assert found.status == SKIPPED and "no measured run" in found.value


def record(folder: Path, spent: float = 0.0) -> verb.Record:
    """Of a simulated GPU, begun `spent` seconds ago."""
    return verb.Record(verb.opened(GPU)[0], folder, lambda line: None, time.monotonic() - spent)


def test_later_stages_get_what_earlier_ones_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, float]] = []

    def lines(name: str, words: list[str], pinned: dict[str, str], seconds: float) -> list[str]:
        assert float(words[-2]) == seconds
        asked.append((name, seconds))
        return []

    monkeypatch.setattr(verb, "lines", lines)
    for spent in (0.0, verb.END - 20.0, verb.END + 100.0):
        list(verb.staged("audit", GPU, tmp_path, {}, record(tmp_path, spent)))
    assert [seconds for _, seconds in asked] == [30.0, pytest.approx(20.0, abs=1.0), 1.0]
    most = sum(verb.LIMITS.values())
    assert most <= verb.END < 270.0 and verb.LIMITS["checks"] >= verb.AFTER_RUN


def test_a_run_that_was_ended_is_fitted_and_drawn_in_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, float]] = []
    run = fake_run({"samples.jsonl": "s"}, None)

    def noted(words: list[str], seconds: float) -> tuple[int | None, str]:
        asked.append((words[3], seconds))
        return run(words, seconds)

    monkeypatch.setattr(verb, "_run", noted)
    list(verb.measured(GPU, tmp_path, 100.0, [], time.monotonic() + 9.0))
    assert [name for name, _ in asked] == ["run", "fit", "report"]
    assert all(7.0 < seconds <= 9.0 for _, seconds in asked)
    asked.clear()
    list(verb.measured(GPU, tmp_path, 100.0, []))
    assert asked == [("run", 95.0), ("fit", verb.DERIVING), ("report", verb.DERIVING)]


def test_a_stage_that_is_interrupted_keeps_its_checks(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Check]:
        yield Check("first", OK)
        raise KeyboardInterrupt

    made = record(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made.stage("tests", interrupted())
    found = json.loads((tmp_path / verb.RECORD).read_text())
    assert [check["name"] for check in found["stages"][0]["checks"]] == ["first"]
    assert "ok   first" in (tmp_path / verb.TABLE).read_text()


def test_a_stage_that_breaks_leaves_the_next_ones_their_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lines(name: str, *words: Any) -> Iterator[str]:
        yield '{"name": "first", "status": "ok"}' if name == "audit" else '{"unknown": 1}'

    monkeypatch.setattr(verb, "lines", lines)
    monkeypatch.setattr(verb, "LIMITS", {"tests": 1.0, "audit": 1.0})
    found = verb.check_gpu(GPU, tmp_path, "", lambda line: None)
    assert [(c["name"], c["status"]) for c in found.all] == [("tests", FAILED), ("first", OK)]


@pytest.mark.slow
def test_the_whole_verb_on_a_simulated_gpu(tmp_path: Path) -> None:
    lines: list[str] = []
    record = verb.check_gpu(GPU, tmp_path, "", lines.append)
    assert record.failed == []
    assert [stage["stage"] for stage in record.stages] == list(verb.LIMITS)
    kept = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.name for p in kept} == {*verb.KEPT, verb.RECORD, verb.TABLE}
    assert all(p.parent == tmp_path / verb.FOLDER and p.stat().st_size < 16e6 for p in kept)
    assert store.read_profile(tmp_path / verb.FOLDER).simulated
    assert (tmp_path / verb.FOLDER / verb.TABLE).read_text() == "\n".join(lines) + "\n"


def test_a_simulated_cpu_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sim:small-cpu is a simulated CPU"):
        verb.check_gpu("sim:small-cpu", tmp_path, "", print)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match=r"cannot be made .*name another with --out"):
        verb.check_gpu("sim:gpu-large", tmp_path / "file", "checks", print)


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / verb.FOLDER / verb.TABLE).mkdir(parents=True)  # root may write everywhere, but not over this
    monkeypatch.setattr(verb, "staged", lambda *words: pytest.fail("a stage has begun"))
    with pytest.raises(ResourceError, match="name another with --out"):
        verb.check_gpu(GPU, tmp_path, "tests", print)
