"""Files that appear whole or not at all, and the checkout that a child finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import checkout
from bench.whole_files import replacing, write


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    write(path, "old")
    with replacing(path) as beside:
        beside.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old" and beside.name.startswith(".table.txt.")
    assert path.read_text(encoding="utf-8") == "new" and os.listdir(tmp_path) == ["table.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), OSError(28, "No space left")])
def test_what_is_not_finished_leaves_the_old_file_and_no_scraps(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "table.txt"
    write(path, "old")
    with pytest.raises(type(error)), replacing(path) as beside:
        beside.write_text("half", encoding="utf-8")
        raise error
    assert path.read_text(encoding="utf-8") == "old" and os.listdir(tmp_path) == ["table.txt"]


def test_two_processes_that_report_at_once_do_not_take_each_others_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.txt"
    with replacing(path) as first:
        first.write_text("first", encoding="utf-8")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        write(path, "second")
        assert path.read_text(encoding="utf-8") == "second"
    assert path.read_text(encoding="utf-8") == "first"


def test_a_refusal_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write(tmp_path / "gone" / "table.txt", "text")
    assert raised.value.filename == str(tmp_path / "gone" / "table.txt")


def test_behind_a_link_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    link = tmp_path / "table.txt"
    link.symlink_to(tmp_path / "data" / "real.txt")
    write(link, "new")
    assert link.is_symlink() and (tmp_path / "data" / "real.txt").read_text(encoding="utf-8") == "new"


def test_a_child_finds_this_checkout_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (checkout.CHECKOUT / "bench" / "checkout.py").is_file()
    monkeypatch.setenv("PYTHONPATH", "mine")
    made = checkout.environment({"CUDA_VISIBLE_DEVICES": "GPU-1"})
    assert made["PYTHONPATH"].split(os.pathsep) == [str(checkout.CHECKOUT), "mine"]
    assert made["CUDA_VISIBLE_DEVICES"] == "GPU-1" and made["PATH"] == os.environ["PATH"]
    monkeypatch.delenv("PYTHONPATH")
    assert checkout.environment()["PYTHONPATH"] == str(checkout.CHECKOUT)
