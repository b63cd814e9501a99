"""One variable moves all caches of a GPU run off a small home; what the user has set stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.gpu import caches


def test_all_caches_go_into_the_folder_but_those_that_are_placed(tmp_path: Path) -> None:
    found = caches.cache_environment(str(tmp_path), {"CUPY_CACHE_DIR": "mine"})
    assert found == {
        "CUDA_CACHE_PATH": str(tmp_path / "cuda"),
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        "PIP_CACHE_DIR": str(tmp_path / "pip"),
    }
    assert "NUMBA_CACHE_DIR" not in caches.cache_environment("x", {}), "its folder follows from all bodies"


def test_a_folder_may_be_relative_or_start_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert caches.cache_environment("room", {})["CUPY_CACHE_DIR"] == str(tmp_path / "room" / "cupy")
    assert caches.cache_environment("~/room", {})["CUPY_CACHE_DIR"] == str(tmp_path / "me" / "room" / "cupy")


def test_without_a_folder_a_home_that_cannot_be_written_keeps_code_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert caches.cache_environment("", {}) == {}
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    assert caches.cache_environment("", {}) == {"CUPY_CACHE_IN_MEMORY": "1"}
    assert caches.cache_environment("", {"CUPY_CACHE_DIR": "mine"}) == {}


def test_use_sets_them_for_this_process_and_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in caches.CACHES:
        monkeypatch.setenv(name, "")
    caches.use({caches.VARIABLE: str(tmp_path)})
    assert os.environ["CUPY_CACHE_DIR"] == str(tmp_path / "cupy")
