"""What went wrong for users of other tools: the right value or the right refusal here (docs/problems.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import compare, importers
from bench.errors import FileError, UsageError
from bench.fitting import in_theory
from bench.gpu.rates import bus_bytes_per_second
from bench.importers.refit import refit
from bench.profile.records import Point, Precision, Profile, Repetitions, Sample
from bench.report import foreign, refits
from bench.triage import Context, explain, timing
from bench.triage.case import Case
from tests.imported import FILES, ert_folder
from tests.synthetic import synthetic_profile

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "problems.md"
INTENSITIES = [2.0**k for k in range(-4, 11)]
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def table(path: Path, rows: Sequence[str], header: str, *said: str) -> Path:
    path.write_text("\n".join([*(f"# {line}" for line in said), header, *rows]) + "\n", encoding="utf-8")
    return path


def roof(path: Path, pi: float, beta: float, *said: str, x: Sequence[float] = INTENSITIES) -> Path:
    """A sweep along a sharp roof of pi (GFLOP/s) and beta (GB/s)."""
    return table(path, [f"{i},{min(pi, beta * i):.4f}" for i in x], "x [FLOP/byte],rate [GFLOP/s]", *said)


def told(path: Path) -> list[dict[str, Any]]:
    """Findings of `fit FILE`."""
    found = refits.fitted(importers.load(path))
    (one,) = refits.record(path, found, ())["imports"]
    return list(one["findings"])


# times and rates that cannot be


def test_rows_without_a_time_are_refused_by_their_line_and_the_others_fitted(tmp_path: Path) -> None:
    rows = [f"{i * 1e9},1e9,{t}" for i, t in zip(INTENSITIES, (0, -1e-3, *[1e-3] * 13), strict=True)]
    (found,) = importers.load(table(tmp_path / "a.csv", rows, "FLOP,byte,time [s]"))
    assert [(r.row, r.why) for r in found.refused] == [(2, "time is zero"), (3, "time is negative")]
    assert len(found.sweeps[0].points) == 13


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("side", ["A", "B"])
def test_a_ceiling_that_is_no_rate_is_named_and_never_divided_by(value: float, side: str) -> None:
    whole = synthetic_profile()
    first = whole.ceilings[0]
    estimate = replace(first.estimate, value=value, low=None, high=None)
    broken = replace(whole, ceilings=(replace(first, estimate=estimate), *whole.ceilings[1:]))
    with pytest.raises(FileError, match=rf"{side} holds {compare.ceiling_name(first)} with the value"):
        compare.compare(*((broken, whole) if side == "A" else (whole, broken)))


def test_a_repetition_without_a_time_is_named_by_kernel_and_round() -> None:
    point = Point("stream", "triad", "s1u4", Precision.of("fp64"), "DRAM", "triad")
    good = Sample(point, 1, 0, 0, repetitions=Repetitions((0.0, 1.0), (0.5, 0.5)))
    bad = replace(good, round=3, repetitions=Repetitions((0.0, 1.0), (0.5, 0.0)))
    one = timing.timer(Case(Profile(1, {}, {}, (), False, (), (), ()), (good, bad)))
    assert one is not None and one.cause == "timer"
    assert "1 of 4 repetitions took 0 s (the first: triad fp64 of round 3)" in one.sentence


# figures of a datasheet


def test_a_sparse_figure_is_said_to_be_one_whichever_word_the_precision_is(tmp_path: Path) -> None:
    x = [2.0**k for k in range(-2, 16)]
    (one,) = told(roof(tmp_path / "a.csv", 1.979e6, 3300, f"device: {H100}", "precision: bf16", x=x))
    assert one["cause"] == "sparse-datasheet" and "H100 SXM5 of 989 TFLOP/s" in one["sentence"]


@pytest.mark.parametrize(
    ("value", "device", "word", "cause"),
    [
        (700e12, H200, "bf16", None),  # matrix units, a usual product
        (110e12, H200, "fp16", None),  # vector units, a usual chain
        (70.7e12, "NVIDIA A100-PCIE-40GB", "fp16", None),  # its vector figure is printed nowhere: unknown
        (1979e12, H200, "bf16", "sparse-datasheet"),
        (3.2e15, H200, "bf16", "unexplained"),  # no unit does that
    ],
)
def test_a_bare_type_is_judged_by_the_units_that_can_have_done_it(
    value: float, device: str, word: str, cause: str | None
) -> None:
    found = explain(value, Context("pi", device, word))
    assert (found.cause if found else None) == cause, found


def test_a_theory_that_counts_too_many_units_is_told_and_not_used(tmp_path: Path) -> None:
    text = (FILES / "mixbench.txt").read_text(encoding="utf-8")
    card = text.replace("Example Card 7000", "A100-SXM4-40GB").replace("mixbench/", "mixbench-cuda/")
    theory = "Compute throughput:  38983.68 GFlops (theoretical single precision FMAs)\n"
    path = tmp_path / "a.txt"
    path.write_text(re.sub(r"Compute throughput:.*\n", "", card).replace("Device:", f"{theory}Device:", 1))
    found = refits.fitted(importers.load(path))
    (remark,) = refits.record(path, found, ())["imports"][0]["remarks"]
    assert "theoretical fp32 of 39.0 TFLOP/s is 2.00 times the datasheet's 19.5 TFLOP/s" in remark
    assert remark in " ".join(refits.render(path, found, ()).split())


@pytest.mark.parametrize(
    ("bits", "megahertz", "gigabytes"),
    [(4096, 715, 732), (384, 2505, 240), (6144, 3201, 4917), (8192, 3996, 8184), (7680, 3996, 7672)],
    ids=["P100", "K80", "H200", "B200 before", "B200 after"],
)
def test_the_factor_of_double_data_rate_is_applied_once(
    bits: int, megahertz: float, gigabytes: float
) -> None:
    assert bus_bytes_per_second(bits, megahertz * 1e6) == pytest.approx(gigabytes * 1e9, rel=0.002)


@pytest.mark.parametrize(("bits", "share"), [(8192, 0.906), (7680, 0.966)])
def test_a_bandwidth_is_shown_by_the_bus_that_the_driver_tells(bits: int, share: float) -> None:
    copy = Point("stream", "copy", "v16", Precision.of("fp32"), "DRAM", "copy", scope="device", threads=148)
    facts = {"compute_capability": 100, "memory_bus_bits": bits, "max_memory_clock_hz": 3.996e9}
    assert in_theory.share(copy, None, 7414e9, {"facts": facts}) == pytest.approx(share, abs=0.001)


def test_a_sweep_far_above_its_device_is_not_believed(tmp_path: Path) -> None:
    (one,) = told(roof(tmp_path / "a.csv", 40 * 6e4, 40 * 4800, f"device: {H200}", "precision: fp32"))
    assert one["cause"] == "timer" and "40.00 times" in one["sentence"]
    assert told(roof(tmp_path / "b.csv", 40 * 6e4, 40 * 4800, "device: Some GPU", "precision: fp32")) == []


# bytes


@pytest.mark.parametrize(
    ("megabytes", "cause", "said"),
    [(24, "cache-resident", "this is the bandwidth of the cache"), (4000, "unexplained", "not known")],
)
def test_arrays_that_fit_a_cache_are_said_to_be_its_bandwidth(
    tmp_path: Path, megabytes: int, cause: str, said: str
) -> None:
    moved = megabytes * 1e6
    rows = [f"{i * moved},{moved},{max(i * moved / 60e12, moved / 9e12) * 1e6}" for i in INTENSITIES]
    header, device = "FLOP,byte,time [us]", f"device: {H200}"
    (one,) = told(table(tmp_path / "a.csv", rows, header, device, "precision: fp32"))
    assert one["cause"] == cause and said in one["sentence"]


# fits


@pytest.mark.parametrize("at", [256.0, 2.0, 1024.0])
def test_a_lone_row_far_off_moves_no_roof_and_is_named(tmp_path: Path, at: float) -> None:
    rows = [f"{i},{(1.5 if i == at else 1.0) * min(1e4, 600 * i):.4f}" for i in INTENSITIES]
    (found,) = importers.load(table(tmp_path / "a.csv", rows, "x [FLOP/byte],rate [GFLOP/s]"))
    fit = refit(found.sweeps[0]).chosen
    assert fit is not None
    assert fit.pi.value == pytest.approx(1e13, rel=0.02) and fit.beta.value == pytest.approx(6e11, rel=0.02)
    said = re.search(
        r"a lone point hardly counts: at (\S+) FLOP/byte (\S+) times above the others", fit.limits
    )
    assert said, fit.limits
    assert float(said[1]) == pytest.approx(at, rel=0.01) and float(said[2]) == pytest.approx(1.5, abs=0.04)


def test_a_sweep_without_such_a_row_names_none(tmp_path: Path) -> None:
    (found,) = importers.load(roof(tmp_path / "a.csv", 1e4, 600))
    fit = refit(found.sweeps[0]).chosen
    assert fit is not None and fit.limits == ""


def test_levels_that_another_tool_names_are_said_to_be_its_guess(tmp_path: Path) -> None:
    run = ert_folder(tmp_path)
    for path in (run, run / "roofline.json"):
        (found,) = importers.load(path)
        assert any("its cache levels are the toolkit's guess" in text for text in found.remarks), path
    (run / "roofline.json").write_text('{"empirical": {"gflops": {"data": [["GFLOPs", 80]]}}}')
    (found,) = importers.load(run / "roofline.json")
    assert not any("guess" in text for text in found.remarks)


# two files of one device


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The same H200 by two tools: one does not reach the peak, the other claims more than the bus."""
    narrow = roof(tmp_path / "a.csv", 42.4e3, 3760, f"device: {H200}", "precision: fp32", "mode: one")
    high = roof(tmp_path / "b.csv", 59.5e3, 5900, f"device: {H200}", "precision: fp32", "mode: two")
    return narrow, high


def test_two_files_that_disagree_are_shown_with_what_exceeds_the_datasheet(two: tuple[Path, Path]) -> None:
    record, text = foreign.compared(*two)
    shares = {row["a"].quantity: (row["a"].of_datasheet, row["b"].of_datasheet) for row in record["rows"]}
    assert shares["pi"] == (pytest.approx(42.4 / 67, abs=0.01), pytest.approx(59.5 / 67, abs=0.01))
    assert shares["beta"] == (pytest.approx(0.783, abs=0.01), pytest.approx(1.229, abs=0.01))
    ratios = {row["a"].quantity: row["ratio"] for row in record["rows"]}
    assert ratios == {"pi": pytest.approx(1.403, abs=0.01), "beta": pytest.approx(1.569, abs=0.01)}
    causes = [[f["cause"] for f in one["findings"]] for one in record["files"]]
    assert causes == [["narrow-probe"], ["unexplained"]]
    assert [(d["what"], d["a"], d["b"]) for d in record["differences"]] == [("mode", "one", "two")]
    assert "A: narrow-probe: π fp32" in text and "the probe may not reach the peak" in text.replace(
        "\n   ", " "
    )
    assert "123 %" in text and "1.40" in text and max(map(len, text.splitlines())) <= 100


def test_another_tool_is_a_difference_and_an_unknown_device_has_no_share(two: tuple[Path, Path]) -> None:
    record, text = foreign.compared(two[0], FILES / "gpu_benches.txt")
    tools = next(d for d in record["differences"] if d["what"] == "tool")
    assert (tools["a"], tools["b"]) == ("a CSV table with units in its header", importers.gpu_benches.SOURCE)
    assert [row["b"].of_datasheet for row in record["rows"]] == [None, None]
    assert "differs: tool: A a CSV table" in text


Call = Callable[..., tuple[int, str, str]]


def test_the_verb_compares_files_of_other_tools_and_nothing_with_ours(
    two: tuple[Path, Path], tmp_path: Path, call: Call
) -> None:
    code, out, _ = call("compare", *two, "--json")
    document = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert code == 0 and document["ours"] is False and len(document["rows"]) == 2
    ours = tmp_path / "profile.json"
    ours.write_text("{}")
    code, out, err = call("compare", two[0], ours)
    assert (code, out) == (2, "") and "is no result of this suite" in err and f"{ours} is" in err
    code, _, err = call("compare", *two, "--plot", tmp_path / "p.svg")
    assert code == 2 and "`fit FILE --plot` draws another tool's" in err
    stated = tmp_path / "stated.txt"
    stated.write_text('{"empirical": {"gflops": {"data": [["GFLOPs", 80]]}}}')
    with pytest.raises(UsageError, match="holds no sweep that can be fitted"):
        foreign.compared(two[0], stated)


# the page


def rows_of_the_page() -> dict[str, list[list[str]]]:
    """Cells of the table of every area."""
    found: dict[str, list[list[str]]] = {}
    area = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            area = line[3:]
        elif line.startswith("| ") and not line.startswith(("| report", "|---")):
            found.setdefault(area, []).append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def test_every_report_of_the_six_areas_has_a_whole_row() -> None:
    counts = {area: len(rows) for area, rows in rows_of_the_page().items()}
    areas = {"Timing": 14, "Clocks": 10, "Datasheet figures": 14, "Bandwidth accounting": 12, "Fits": 6}
    assert counts == areas | {"Statistics": 5}
    for rows in rows_of_the_page().values():
        for row in rows:
            assert len(row) == 4 and all(row), row


def test_the_page_cites_tests_that_there_are() -> None:
    cited = re.findall(r"`(test_\w+)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(cited) > 50
    for module, name in cited:
        source = (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8")
        assert f"def {name}(" in source, f"{module} has no {name}"


def test_the_page_cites_checks_that_there_are() -> None:
    from bench.gpucheck.device import CHECKS

    cited = set(re.findall(r"gpu-check `([^`]+)`", PAGE.read_text(encoding="utf-8")))
    assert cited and cited <= {*CHECKS, "cross-check", "checks", "audit"}, cited
