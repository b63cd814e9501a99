"""Whole runs on a fake device in this process, for tests: nothing is derived, synced or hashed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.profile.records import Sample
from bench.running import suite
from bench.running.runners import InProcess
from bench.store import Log, read_log
from tests.fake_device import FakeBackend


def use(monkeypatch: pytest.MonkeyPatch, backend: FakeBackend) -> FakeBackend:
    monkeypatch.setattr(
        suite, "open_device", lambda device, blocker=True: (backend.device, InProcess(backend))
    )
    monkeypatch.setattr(suite, "_derive", lambda store: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # these runs are thrown away
    monkeypatch.setattr(suite.provenance, "source_hash", lambda *_: "0123456789ab")
    return backend


def run(tmp_path: Path, **options: Any) -> Log:
    defaults = {"device": "fake", "results": tmp_path, "quiet": True, "workloads": False}
    return read_log(suite.run(**{**defaults, **options}))


def rounds_of(log: Log) -> dict[int, int]:
    return dict(sorted(Counter(s.round for s in log.samples).items()))


def keys(samples: list[Sample]) -> Counter[tuple[int, str, str]]:
    return Counter((s.round, s.regime, s.point.key, s.visit) for s in samples)
