"""Places that an export cannot be written to are told by the name that the user gave."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import exporters
from bench.exporters import replacing
from bench.outcome import outcome
from bench.report import plot
from tests.synthetic import synthetic_profile

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "prometheus"])
def test_no_file_of_ours_is_named_where_nothing_can_be_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, mode: str = "r", **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    path = tmp_path / "out.file"
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError) as raised:
        exporters.export(synthetic_profile(), name, path, allow_simulated=True)
    code, sentence = outcome(raised.value)
    assert code == 5 and str(path) in sentence and ".part" not in sentence
    assert list(tmp_path.iterdir()) == []


def test_what_is_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "data" / "out.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "new"


def test_the_programs_own_output_is_written_to_and_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redirected to a file, a stream of the system looks like one; a file of that name would stay there."""
    monkeypatch.setattr(exporters, "SYSTEM", (tmp_path.parts[1],))
    output, stream = tmp_path / "redirected", tmp_path / "stdout"
    output.write_text("", encoding="utf-8")
    stream.symlink_to(output)
    with replacing(stream) as file:
        file.write(b"told")
        assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob(".*"))
    assert stream.is_symlink() and output.read_text(encoding="utf-8") == "told"
    assert exporters.is_stream(stream)


def test_dev_stdout_is_a_stream_even_where_it_leads_to_a_file(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from pathlib import Path; from bench import exporters as e; import sys; "]
    words[-1] += "sys.exit(not e.is_stream(Path('/dev/stdout')))"
    with (tmp_path / "out").open("wb") as file:
        assert subprocess.run(words, stdout=file, cwd=CHECKOUT, check=False).returncode == 0


def test_a_disk_that_is_full_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(OSError) as raised, replacing(path) as file:
        file.write(b"new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert outcome(raised.value)[1].startswith(f"no space left for {path}")
    assert path.read_text(encoding="utf-8") == "old" and [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_a_plot_that_cannot_be_written_is_told_by_its_name(tmp_path: Path) -> None:
    svg, png = tmp_path / "gone" / "roofs.svg", tmp_path / "gone" / "roofs.png"
    with pytest.raises(OSError) as raised:
        plot.draw([synthetic_profile()], svg, png)
    sentence = outcome(raised.value)[1]
    assert str(svg) in sentence and ".part" not in sentence
