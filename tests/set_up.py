"""What stands in for the programs that set-up starts, and for a GPU to find."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import driver, wheels

NO_GPU = driver.Found()


H200 = driver.Found("580.65.06", "13.0", (("NVIDIA H200", (9, 0)),))


class Runs:
    """Stands in for the programs that set-up starts: keeps their words, answers with prepared output."""

    def __init__(self, **outputs: tuple[int, str]) -> None:
        self.started: list[list[str]] = []
        self.outputs = outputs

    def __call__(self, words: list[str], echo: str = "") -> Any:
        self.started.append(words)
        kind = "pip" if "install" in words else "config" if "config" in words else "other"
        if "venv" in words:
            kind = "venv"
            python = Path(words[-1]) / "bin" / "python"
            shutil.rmtree(words[-1], ignore_errors=True)
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("#!/bin/sh\n")
            python.chmod(0o755)
        code, text = self.outputs.get(kind, (0, ""))
        return subprocess.CompletedProcess(words, code, text)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_CONSTRAINT", "PYTHONPATH", "ROOFLINE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(driver, "look", lambda: NO_GPU)


def use(monkeypatch: pytest.MonkeyPatch, **outputs: tuple[int, str]) -> Runs:
    runs = Runs(**outputs)
    monkeypatch.setattr(wheels, "run", runs)
    return runs
