"""kill -9 at any moment: the file stays readable, resuming completes the run, nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.checkout import CHECKOUT
from bench.profile.records import Sample
from bench.store import read_log


def start(results: Path, resume: Path | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fake_run", str(results), *([str(resume)] if resume else [])]
    return subprocess.Popen(command, cwd=CHECKOUT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed_and_resumed(results: Path, kills: int, seed: int) -> None:
    """Kill a run `kills` times, resume it each time, and check every line that was ever seen."""
    moment = random.Random(seed)
    folder: Path | None = None
    kept: list[Sample] = []
    for _ in range(kills):
        process = start(results, folder)
        while folder is None or len(read_log(folder).samples) == len(kept):
            folder = next((p.parent for p in results.glob("*/*/samples.jsonl")), None)
            if process.poll() is not None:
                break
            time.sleep(0.02)
        time.sleep(moment.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = read_log(folder).samples if folder else []
        assert found[: len(kept)] == kept
        kept = found
    process = start(results, folder)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert folder is not None and list(results.glob("*/*")) == [folder]
    log = read_log(folder)
    assert log.samples[: len(kept)] == kept
    assert max(Counter((s.round, s.regime, s.point.key, s.visit) for s in log.samples).values()) == 1
    whole = [n["round"] for n in log.notes if n.get("kind") == "planned" and n["event"] == "end"]
    assert whole == [1, 2, 3]
    counts = Counter(s.round for s in log.samples)
    assert {counts[n] for n in (2, 3)} == {counts[1] - 1}, "round 1 also holds what is skipped"


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, kills=2, seed=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_polite_end_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    words = ("run", "--device", "sim:small-cpu", "--minutes", "1", "--results", str(tmp_path))
    restored = "import signal as s; [s.signal(n, s.SIG_DFL) for n in (s.SIGTERM, s.SIGHUP)]; "
    restored += "s.signal(s.SIGINT, s.default_int_handler); from bench.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", restored, *words], cwd=CHECKOUT, text=True, stderr=subprocess.PIPE
    )
    while not (found := list(tmp_path.glob("*/*/samples.jsonl"))) or not read_log(found[0].parent).samples:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    folder, told = found[0].parent, said.splitlines()[-1]
    assert process.returncode == 130
    assert told.startswith(f"interrupted; {len(read_log(folder).samples)} samples are kept in {folder}; ")
    assert told.endswith(f"go on with: python -m bench run --resume {folder}")


@pytest.mark.slow
def test_kill_9_ten_times(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, kills=10, seed=2)
