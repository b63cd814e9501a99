"""Report: table and plot of a result folder are remade from its profile, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import FileError, ResourceError
from bench.profile import encoding
from bench.report import plot, remake
from bench.report.table import render
from tests.synthetic import synthetic_profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profile.json").write_text(encoding.dumps(synthetic_profile()), encoding="utf-8")
    return tmp_path


def test_report_writes_table_and_plots(folder: Path) -> None:
    text = remake.report(folder)
    assert text == render(synthetic_profile())
    assert (folder / "table.txt").read_text(encoding="utf-8") == text
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["profile.json", "report.html", "roofline.png", "roofline.svg", "table.txt"]


def test_report_without_profile_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"profile\.json"):
        remake.report(tmp_path)
    with pytest.raises(FileError, match="is no result folder"):
        remake.report(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_the_old_files_and_no_scraps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "roofline.svg").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(ResourceError, match="No space left on device"):
        remake.report(folder)
    assert (folder / "roofline.svg").read_text() == "old"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_interrupted_drawing_leaves_no_half_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def torn(self: Figure, path: Path, **_: object) -> None:
        Path(path).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", torn)
    with pytest.raises(KeyboardInterrupt):
        plot.draw([synthetic_profile()], folder / "roofline.svg", folder / "roofline.png")
    assert sorted(path.name for path in folder.iterdir()) == ["profile.json"]
