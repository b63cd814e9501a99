"""Runs that begin in the same second on equal devices, as an array of jobs does: each has its folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.errors import ResourceError
from bench.running import suite
from bench.store import Store, Taken, read_log

CHECKOUT = Path(__file__).resolve().parents[1]
HEADER: dict[str, Any] = {"schema_version": 1, "identity": {}}


class Still:
    """A clock that stands: every run begins in this second."""

    @staticmethod
    def now(zone: Any) -> Any:
        from datetime import datetime

        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)


def test_a_folder_that_another_run_took_meanwhile_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes the name between looking and making: only the making can tell."""
    monkeypatch.setattr(suite, "datetime", Still)
    genuine, others = Store.create, []

    def slower(folder: Path, header: Any) -> Store:
        if not others:
            others.append(folder)
            genuine(folder, HEADER).close()
        return genuine(folder, header)

    monkeypatch.setattr(Store, "create", slower)
    words = {
        "device": "sim:small-cpu",
        "minutes": 0.1,
        "families": ["fma"],
        "results": tmp_path,
        "quiet": True,
    }
    folder = suite.run(**words)
    assert folder.name == f"{others[0].name}-2" and folder.parent == others[0].parent
    assert read_log(folder).samples and not read_log(others[0]).samples


def test_the_folder_itself_says_that_it_is_taken(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", HEADER).close()
    with pytest.raises(Taken, match=r"already holds samples\.jsonl: continue it") as raised:
        Store.create(tmp_path / "run", HEADER)
    assert raised.value.exit_code == ResourceError.exit_code


def test_four_runs_at_once_all_end_well(tmp_path: Path) -> None:
    words = [
        "run",
        "--device",
        "sim:small-cpu",
        "--minutes",
        "0.05",
        "--families",
        "fma",
        "--quiet",
        "--results",
    ]
    command = [sys.executable, "-m", "bench", *words, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=CHECKOUT) for _ in range(4)]
    assert [one.wait(60) for one in started] == [0] * 4
    assert len(list(tmp_path.glob("*/*/profile.json"))) == 4
