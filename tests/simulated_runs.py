"""Runs of simulated GPUs through the command line."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import cli, provenance
from bench.backends.simulation.truth import CATALOGUE
from bench.backends.simulation.written import read
from bench.profile.records import Precision, Sample
from bench.report import remake
from bench.store import Log

TRUTHS: dict[str, Any] = read(CATALOGUE)


FP32 = Precision.of("fp32")


@pytest.fixture(autouse=True)
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout may be edited while this runs; that is not what is tested here."""
    monkeypatch.setattr(provenance, "source_hash", lambda *_: "0123456789ab")


def code(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return int(stop.value.code or 0)


def run(results: Path, device: str, *words: object, report: bool = False) -> Path:
    """The result folder of one run; with its table and plots where they are asked for."""
    with pytest.MonkeyPatch.context() as patched:
        if not report:
            patched.setattr(remake, "report", lambda folder: "")
        assert code("run", "--device", f"sim:{device}", "--quiet", "--results", results, *words) == 0
    (folder,) = results.glob("*/*")
    return folder


def file_of(folder: Path, name: str, **changes: Any) -> str:
    """A catalogue device changed in a file of its own; `gpu` is merged."""
    truth = {**TRUTHS[name], **changes}
    truth["gpu"] = {**TRUTHS[name]["gpu"], **changes.get("gpu", {})}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(truth), encoding="utf-8")
    return str(path)


def grouped(log: Log) -> dict[tuple[str, str], list[Sample]]:
    """Samples of the rounds by family and regime."""
    found = defaultdict(list)
    for sample in log.samples:
        if sample.round > 0:
            found[sample.point.family, sample.regime].append(sample)
    return found


def said(log: Log) -> str:
    return "\n".join(log.header["not_measured"])
