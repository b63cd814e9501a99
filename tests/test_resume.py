"""A run that is resumed: nothing is lost or measured twice, and what cannot go on is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.backends.simulation.truth import CATALOGUE
from bench.errors import FileError
from bench.planning.planned import PRESETS
from bench.profile.records import Sample
from bench.running import suite
from bench.running.runners import InProcess
from bench.store import Store, read_log
from tests.fake_device import FAKE, FakeBackend
from tests.fake_suite import keys, rounds_of, run, use


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The fake device with its virtual clock behind every --device, measured in this process."""
    return use(monkeypatch, FakeBackend())


def test_a_run_that_is_over_is_resumed_without_measuring(fake: FakeBackend, tmp_path: Path) -> None:
    before = run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    after = read_log(suite.run(resume=folder, quiet=True))
    assert after.samples == before.samples


def test_a_finished_run_is_not_measured_on(
    fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    monkeypatch.setattr(suite, "_measure", lambda *_: pytest.fail("it measured again"))
    suite.run(resume=folder, quiet=False)
    assert f"{folder} is finished" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_sizes_when_memory_has_become_scarce(
    fake: FakeBackend, tmp_path: Path
) -> None:
    fake.available = 360 << 20
    run(tmp_path, preset="quick", families=["stream"])
    folder = next(tmp_path.glob("*/*"))
    before = read_log(folder).samples
    assert {s.point.sizes["bytes"] for s in before if s.point.kernel == "triad"} == {60 << 20}
    fake.available = 8 << 30
    assert read_log(suite.run(resume=folder, quiet=True)).samples == before


class Interrupted(InProcess):
    """Ctrl-C at the n-th point."""

    def __init__(self, backend: FakeBackend, at: int) -> None:
        super().__init__(backend)
        self.at = at
        self.killed = False

    def measure(self, *arguments: Any) -> Sample:
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return super().measure(*arguments)

    def close(self, kill: bool = False) -> None:
        self.killed = self.killed or kill


def test_ctrl_c_while_the_profile_is_derived_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bench.fitting.ceilings.derive", stop)
        with pytest.raises(KeyboardInterrupt, match=r"[1-9]\d* samples are kept .* bench run --resume"):
            run(tmp_path, device="sim:small-cpu", minutes=0.1, families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    assert not (folder / "profile.json").exists()
    before = read_log(folder).samples
    suite.run(resume=folder, quiet=True)
    assert read_log(folder).samples == before and (folder / "profile.json").exists()


@pytest.mark.parametrize("at", [1, 4, 9, 30])
def test_ctrl_c_keeps_everything_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int
) -> None:
    use(monkeypatch, FakeBackend())
    runner = Interrupted(FakeBackend(), at)
    resumable = suite.open_device
    monkeypatch.setattr(suite, "open_device", lambda device, blocker=True: (FAKE, runner))
    with pytest.raises(
        KeyboardInterrupt, match=rf"{at - 1} samples are kept .* python -m bench run --resume"
    ):
        run(tmp_path, preset="quick", families=["fma", "gemm"])
    assert runner.killed
    folder = next(tmp_path.glob("*/*"))
    kept = read_log(folder).samples
    monkeypatch.setattr(suite, "open_device", resumable)
    log = read_log(suite.run(resume=folder, quiet=True))
    assert log.samples[: len(kept)] == kept
    assert max(keys(log.samples).values()) == 1
    assert len([n for n in log.notes if "winners" in n]) == 1
    rounds = PRESETS["quick"].rounds
    assert list(rounds_of(log))[: rounds + 1] == list(range(rounds + 1)), (
        "the round that was cut short is completed"
    )
    whole = [n for n in log.notes if n.get("event") == "end" and n["kind"] == "planned" and n["complete"]]
    assert len(whole) == rounds


def test_a_simulated_file_leaves_no_folder_and_is_not_needed_to_resume(tmp_path: Path) -> None:
    truth = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))["small-cpu"]
    file = tmp_path / "private" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(truth))
    log = run(tmp_path / "r", device=f"sim:{file}", preset="quick", families=["fma"])
    folder = next((tmp_path / "r").glob("*/*"))
    assert log.header["plan"]["options"]["device"] == "sim:mine.yaml"
    assert "private" not in (folder / "samples.jsonl").read_text(encoding="utf-8")
    file.unlink()
    kept = read_log(folder).samples
    assert suite.run(resume=folder, quiet=True) == folder
    assert read_log(folder).samples[: len(kept)] == kept


def test_resuming_another_version_or_device_is_refused(
    fake: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, preset="quick", families=["fma"])
    folder = next(tmp_path.glob("*/*"))
    fake.device = replace(FAKE, identity={"device": "Other CPU", "threads": 2})
    with pytest.raises(FileError, match=r"another device .device: Fake CPU, here Other CPU.: start"):
        suite.run(resume=folder, quiet=True)
    monkeypatch.setattr(suite.provenance, "source_hash", lambda *_: "ffffffffffff")
    with pytest.raises(
        FileError, match=r"another version of this tool .source 0123456789ab, now ffffffffffff"
    ):
        suite.run(resume=folder, quiet=True)
    Store.open(folder).close()


def test_a_header_without_options_cannot_be_resumed(fake: FakeBackend, tmp_path: Path) -> None:
    Store.create(tmp_path / "old", {"schema_version": 1, "identity": {}}).close()
    with pytest.raises(FileError, match="does not say how it was run"):
        suite.run(resume=tmp_path / "old", quiet=True)
