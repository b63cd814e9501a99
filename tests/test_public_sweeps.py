"""Public sweep files of people who do this job, where they lie beside the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bench import importers
from bench.importers.refit import Refit
from bench.importers.sweep import Imported
from bench.profile import encoding
from bench.report import refits

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"


def public_sweeps() -> list[Path]:
    """Every public sweep file that is there; none in a bare checkout."""
    patterns = (
        "intensity-sweep/*",
        "mixbench/*",
        "gpu-benches/*gpu-roofline*",
        "ert/*.json",
        "ert/Empirical*",
    )
    return sorted(path for pattern in patterns for path in CASES.glob(pattern))


@cache
def fitted_case(path: Path) -> list[tuple[Imported, list[Refit]]]:
    """A public file with the fits to its sweeps, made once."""
    return refits.fitted(importers.load(path))


if public_sweeps():

    @pytest.mark.slow
    @pytest.mark.parametrize("path", public_sweeps(), ids=lambda path: path.name)
    def test_public_sweeps_are_fitted_without_hand_holding(path: Path) -> None:
        found = fitted_case(path)
        assert all(one.chosen for _, group in found for one in group if len(one.points) >= 5)
        encoding.dumps(refits.record(path, found, ()))
        text = refits.render(path, found, ())
        assert text.startswith("NOT OURS") and "only fitted here" in text
        if path.name.startswith("Empirical"):
            assert "device   CPU of host" in text and "ERT_GPU is False" in text
        if "A100_roofline_d1" in path.name:
            assert "fp64 · 1x8 its: step at" in text

    @pytest.mark.slow
    def test_clean_public_sweeps_are_fitted_closely() -> None:
        every = [one for path in public_sweeps() for _, group in fitted_case(path) for one in group]
        clean = [(one.chosen.rms, one.plateaus) for one in every if one.clean and one.chosen]
        assert len(clean) > 100
        assert sum(rms < 0.03 for rms, _ in clean) >= 0.8 * len(clean)
        for name in ("pi", "beta"):
            near = [abs(beside[f"fitted_{name}_share"] - 1) <= 0.02 for _, beside in clean]
            assert sum(near) >= 0.9 * len(clean)
