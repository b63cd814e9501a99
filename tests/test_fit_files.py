"""Others' files through the verb: what is refused, what is printed, its JSON and its plot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import importers
from bench.errors import FileError, UsageError
from bench.importers import contents, rows
from bench.profile import encoding
from bench.report import refits, sweep_plot
from tests.imported import FILES, ert_folder

# files that are none


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(contents.LARGEST + 1)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b" \n"), "is empty"),
    "binary": (lambda p: p.write_bytes(b"\x7fELF\0\1"), "is a binary file"),
    "gzip": (lambda p: p.write_bytes(b"\x1f\x8b\x08abc"), "is packed with gzip: unpack it"),
    "utf16": (lambda p: p.write_bytes("a,b\n1,2\n".encode("utf-16")), "is text in UTF-16: save it as UTF-8"),
    "latin1": (lambda p: p.write_bytes(b"60\xb0C, 1\n"), "is not UTF-8 text (byte 2)"),
    "huge": (sparse, "more than the 32 MiB that are read"),
    "folder": (lambda p: p.mkdir(), "holds neither samples.jsonl nor FLOPS.* of ERT"),
    "missing": (lambda p: None, "No such file or directory"),
    "pipe": (lambda p: os.mkfifo(p), "is neither a file nor a folder of results"),
    "prose": (
        lambda p: p.write_text("nothing to see\n"),
        "is no sweep of a known format; --format takes mixbench,",
    ),
    "unitless": (
        lambda p: p.write_text("ai,perf\n1,2\n"),
        "its header names no units; write for example 'intensity",
    ),
    "half": (lambda p: p.write_text("x [FLOP/byte],y\n1,2\n"), "of its columns only intensity have a unit"),
    "twice": (
        lambda p: p.write_text("a [s],b [ms],c [GFLOP],d [GB]\n1,2,3,4\n"),
        "two of its columns are in s",
    ),
    "headed": (lambda p: p.write_text("x [FLOP/byte],GFLOP/s\n"), "holds no row of the format csv"),
    "refused": (
        lambda p: p.write_text("x [FLOP/byte],GFLOP/s\n1,nan\n"),
        "every one of its 1 rows is refused",
    ),
    "torn": (lambda p: p.write_text('{"empirical": {"gflops": {"da'), "is not whole JSON at line 1"),
    "many": (
        lambda p: p.write_text("x [FLOP/byte],GFLOP/s\n" + "1,2\n" * (rows.MOST_POINTS + 1)),
        "a sweep of more than 2000 points",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_sentence_and_exit_code_4(
    kind: str, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    path, (make, said) = tmp_path / "given", BAD[kind]
    make(path)
    code, out, err = call("fit", path, "--json")
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert said in err and "internal" not in err


def test_an_unknown_format_lists_the_valid_ones(call: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = call("fit", FILES / "units.csv", "--format", "xml")
    assert (code, err) == (2, f"Error: unknown format 'xml'; valid: {', '.join(importers.NAMES)}\n")
    with pytest.raises(FileError, match="holds no row of the format mixbench"):
        importers.load(FILES / "units.csv", "mixbench")
    with pytest.raises(FileError, match="ert takes a folder"):
        importers.load(FILES / "units.csv", "ert")
    with pytest.raises(FileError, match="--format csv takes a file"):
        importers.load(FILES, "csv")
    with pytest.raises(UsageError, match="unknown format"):
        importers.load(Path("nowhere"), "xml")


# the verb


def test_the_verb_says_whose_the_file_is_and_never_that_it_is_ours(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = call("fit", FILES / "mixbench.txt", "--plot", tmp_path / "roofs.png")
    assert code == 0 and out.startswith("NOT OURS: measured and printed by another tool, only fitted here\n")
    assert "format   mixbench: mixbench, ekondis/mixbench\ndevice   Example Card 7000\n" in out
    assert "fp32 · read-only" in out and "10.0 TFLOP/s" in out and "5.00 TOP/s" in out
    assert "fp16 · read-only, 18 rows, lines 10 to 27: missing precision" in out
    assert max(map(len, out.splitlines())) <= refits.WIDTH
    assert (tmp_path / "roofs.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "roofs.svg").read_text()
    assert "device   not named in the file" in call("fit", FILES / "gpu_benches.txt")[1]


def _columns(path: Path, call: Callable[..., tuple[int, str, str]], rows: int) -> str:
    """What the verb prints of a sharp corner of 100 GFLOP/s and 20 GB/s, from 0.1 FLOP/byte on."""
    lines = [f"{x!r},{min(100.0, 20 * x)!r}" for x in (0.1 * 1.3**i for i in range(rows))]
    path.write_text("x [FLOP/byte],y [GFLOP/s]\n" + "\n".join(lines) + "\n")
    code, out, _ = call("fit", path)
    assert code == 0 and max(map(len, out.splitlines())) <= 100
    return " ".join(out.split())


def test_a_fit_without_residuals_is_exact_and_a_bound_has_its_sign(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    whole = _columns(tmp_path / "a.csv", call, 40)
    assert "100 GFLOP/s exact 100 20.0 GB/s exact 20.0 5.00 exact 1.0 exact hard-min" in whole
    assert "e-1" not in whole
    slant = _columns(tmp_path / "b.csv", call, 7)
    assert "7 ≥ 9.65 GFLOP/s 20.0 GB/s exact ≥ 0.483" in slant


def test_widths_are_printed_as_far_as_their_digits_mean_something() -> None:
    shown = [refits._share(width) for width in (0.0, 1e-15, 1e-6, 4e-4, 7e-4, 0.0123, 0.26)]
    assert shown == ["exact", "exact", "< 0.1", "< 0.1", "0.07", "1.2", "26"]


def test_too_few_points_are_told_how_many_and_where(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    few = (
        "nothing fitted: 3 of the 4 points that a fit needs, all on the memory side; measure 3 or more above"
    )
    assert f"{few} 0.169 FLOP/byte, where the rate is flat" in _columns(tmp_path / "a.csv", call, 3)


def test_json_is_the_documented_document(tmp_path: Path, call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = call("fit", FILES / "units.csv", "--json", "--plot", tmp_path / "p")
    value: dict[str, Any] = encoding.loads(out)
    assert code == 0 and set(value) == {"ours", "file", "imports", "plot"}
    assert value["ours"] is False and value["file"].endswith("imported/units.csv")
    assert [Path(p).name for p in value["plot"]] == ["p.svg", "p.png"]
    (part,) = value["imports"]
    assert set(part) == {"format", "source", "device", "remarks", "sweeps", "stated", "refused", "findings"}
    (sweep,) = part["sweeps"]
    fields = "name device precision mode unit points fits basis plateaus clean refused"
    assert set(sweep) == set(fields.split())
    page = (FILES.parents[1] / "docs" / "format.md").read_text()
    assert all(f"`{word}`" in page for word in [*fields.split(), *part, *importers.NAMES])
    (chosen,) = [fit for fit in sweep["fits"] if fit["chosen"]]
    assert chosen["pi"]["low"] < 9e10 < chosen["pi"]["high"] and sweep["basis"] == "rounds"
    assert call("fit", FILES / "gpu_benches.txt", "--json")[1].count('"device": null') == 1


def test_the_plot_has_a_panel_for_each_precision_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = ert_folder(tmp_path)
    found = refits.fitted(importers.load(path))
    assert {name: len(group) for name, group in sweep_plot.panels(found).items()} == {
        "fp64 · largest working set": 1,
        "fp64 · fastest working set": 1,
    }
    picture = sweep_plot.figure(path, found)
    titles = [axes.get_title(loc="left") for axes in picture.axes]
    assert titles[-1] == "stated by the file, not measured here" and len(titles) == 3
    heading = picture.get_suptitle()
    assert (
        heading.startswith("NOT OURS: Run.001 · Empirical Roofline Toolkit")
        and "CPU of host node7" in heading
    )
    for name in ("a", "b"):
        sweep_plot.draw(path, found, tmp_path / f"{name}.svg", tmp_path / f"{name}.png")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
