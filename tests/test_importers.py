"""Importers: each format is recognised, its roofs found, and its rows refused one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import importers
from bench.importers import rows
from bench.importers.refit import POINTS, ROUNDS, refit
from bench.importers.sweep import Imported
from bench.importers.unit_names import unit_of
from tests.imported import FILES, ert_folder


def loaded(path: Path, name: str = "") -> Imported:
    (found,) = importers.load(path, name)
    return found


def refused(found: Imported) -> dict[int, str]:
    every = [*found.refused, *(row for sweep in found.sweeps for row in sweep.refused)]
    return {row.row: row.why for row in every}


# what each format holds; the truths are those that the files were written from


@pytest.mark.parametrize(
    ("file", "name", "device", "truths"),
    [
        (
            "mixbench.txt",
            "mixbench",
            "Example Card 7000",
            [("fp32", 10e12, 5e11), ("fp64", 0.3e12, 5e11), ("fp16", 0, 0), ("int32", 5e12, 5e11)],
        ),
        ("gpu_benches.txt", "gpu-benches", "", [("fp32", 40e12, 3e12), ("fp32", 39e12, 2.9e12)]),
        (
            "intensity_sweep.txt",
            "intensity-sweep",
            "",
            [("fp64", 9.7e12, 1.1e12), ("int32", 19e12, 1.45e12), ("fp64 stored as fp32", 9.7e12, 1.4e12)],
        ),
        ("units.csv", "csv", "Example board, 8 cores", [("fp64", 9e10, 2e10)]),
    ],
)
def test_each_format_is_recognised_and_its_roofs_are_found(
    file: str, name: str, device: str, truths: list[tuple[str, float, float]]
) -> None:
    found = loaded(FILES / file)
    assert (found.format, found.device) == (name, device)
    assert [sweep.precision for sweep in found.sweeps] == [truth[0] for truth in truths]
    for sweep, (precision, pi, beta) in zip(found.sweeps, truths, strict=True):
        fit = refit(sweep).chosen
        if not pi:
            assert fit is None and sweep.points == ()
            continue
        assert fit is not None
        assert fit.pi.value == pytest.approx(pi, rel=0.01)
        assert fit.beta.value == pytest.approx(beta, rel=0.01)
        assert sweep.unit == ("OP/s" if precision == "int32" else "FLOP/s")
    assert loaded(FILES / file, name).sweeps == found.sweeps


def test_points_are_in_si_units_and_say_the_same_as_their_row() -> None:
    first = loaded(FILES / "intensity_sweep.txt").sweeps[0].points[0]
    assert (first.flops, first.bytes, first.x) == (268435456, 2147483648, 0.125)
    assert first.seconds == pytest.approx(1.95e-3, rel=0.01)
    assert first.estimate.value == pytest.approx(first.flops / first.seconds)
    gpu = loaded(FILES / "gpu_benches.txt").sweeps[0].points[3]
    assert (gpu.x, gpu.clock_hz) == (1.25, 1.98e9)
    assert gpu.estimate.value == pytest.approx(1.25 * 3e12, rel=0.01)
    mixed = loaded(FILES / "mixbench.txt").sweeps[0].points[0]
    assert mixed.bytes == pytest.approx(4e9, rel=0.01) and mixed.seconds == pytest.approx(8e-3, rel=0.01)


def test_rows_are_refused_one_by_one_with_their_reasons() -> None:
    found = loaded(FILES / "mixbench.txt")
    assert [len(sweep.points) for sweep in found.sweeps] == [17, 17, 0, 17]
    assert {row.why for row in found.sweeps[2].refused} == {
        "missing precision: the file says that fp16 is not supported there"
    }
    assert [(r.row, r.why) for r in found.sweeps[0].refused] == [(27, "FLOP/byte is inf")]
    assert [(r.row, r.why) for r in found.refused] == [(28, "4 columns where the header has 17")]
    assert refused(loaded(FILES / "gpu_benches.txt")) == {62: "cut off, or not the columns of gpu-roofline"}
    assert refused(loaded(FILES / "intensity_sweep.txt")) == {
        35: "GOP/s is nan",
        36: "missing precision: the first column is empty",
        67: "3 columns where the header has 10",
    }
    assert refused(loaded(FILES / "units.csv")) == {
        74: "rate is no number",
        75: "2 columns where the header has 4",
    }


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("0.500, 1.00, 250.00, 500.00", ""),
        ("0.500, 0.00, 250.00, 500.00", "time is zero"),
        ("0.500, -1.0, 250.00, 500.00", "time is negative"),
        ("0.500, 1.00, -nan, inf", "GFLOPS is -nan"),
        ("0.500, 1.00, 250.00, ", "no GB/sec"),
        ("0.500, 1.00, 25x, 500.00", "GFLOPS is no number"),
        ("1e-999, 1.00, 250.00, 500.00", "FLOP/byte is zero"),
        ("0.500, 1.00, 1e999, 500.00", "GFLOPS is beyond all numbers"),
        ("0.500, 1.00, 1e305, 500.00", "GFLOPS is beyond all numbers"),
        ("0.500, 1.00, 400.00, 500.00", "FLOP/byte times byte/s is not FLOP/s"),
    ],
)
def test_what_a_cell_may_not_be(cells: str, why: str, tmp_path: Path) -> None:
    good = "1.000, 1.00, 500.00, 500.00"
    head = "Experiment ID, Single Precision ops,,,\nCompute iters, Flops/byte, ex.time, GFLOPS, GB/sec\n"
    path = tmp_path / "one.txt"
    path.write_text(f"{head}0, {cells}\n1, {good}\n")
    assert refused(loaded(path)) == ({3: why} if why else {})
    assert len(loaded(path).sweeps[0].points) == (1 if why else 2)


def test_the_finer_of_what_is_printed_and_what_follows_is_used() -> None:
    coarse = rows.point(
        *(rows.number(t, "n", u) for t, u in (("0.1", ""), ("211", "GFLOP/s"), ("2105", "GB/s")))
    )
    assert coarse.x == pytest.approx(211 / 2105)
    exact = rows.Number(0.25, 0.0)
    fine = rows.point(exact, rows.number("211", "n", "GFLOP/s"), rows.number("845", "n", "GB/s"))
    assert fine.estimate.value == 0.25 * 845e9


def test_times_printed_too_coarsely_tell_no_amounts(tmp_path: Path) -> None:
    text = (FILES / "mixbench.txt").read_text().replace("    8.0", "    0.0")
    path = tmp_path / "short.txt"
    path.write_text(text)
    points = loaded(path).sweeps[0].points
    assert {p.bytes for p in points} == {1.0}
    assert all(p.flops == p.x and p.seconds == p.x / p.estimate.value for p in points)


def test_text_of_two_tools_in_one_file_gives_both(tmp_path: Path) -> None:
    path = tmp_path / "both.txt"
    path.write_text((FILES / "intensity_sweep.txt").read_text() + (FILES / "mixbench.txt").read_text())
    found = importers.load(path)
    assert [(f.format, len(f.sweeps), f.device) for f in found] == [
        ("mixbench", 4, "Example Card 7000"),
        ("intensity-sweep", 3, ""),
    ]
    assert len(importers.load(path, "mixbench")) == 1


# ERT


def test_a_folder_called_after_a_gpu_is_the_cpu_that_its_files_say(tmp_path: Path) -> None:
    run = ert_folder(tmp_path)
    for path in (run, run.parent, run.parent.parent):
        found = loaded(path)
        assert (
            found.device
            == "CPU of host node7 (x86_64), called 'Workstation (12-core Example CPU)' in its configuration"
        )
        assert found.remarks[0] == (
            "the results are called 'Results.p100.01', but ERT_GPU is False: "
            "this is the CPU of the host, no GPU"
        )
        assert "p100" not in found.device
    assert loaded(ert_folder(tmp_path / "other", "'True'")).device.startswith("GPU of host node7, called")


def test_an_ert_folder_gives_a_sweep_at_the_largest_and_at_the_fastest_working_set(tmp_path: Path) -> None:
    found = loaded(ert_folder(tmp_path))
    assert [(s.precision, s.mode, s.name) for s in found.sweeps] == [
        ("fp64", "largest working set", "MPI 2, OpenMP 4"),
        ("fp64", "fastest working set", "MPI 2, OpenMP 4"),
    ]
    for sweep, beta in zip(found.sweeps, (20e9, 400e9), strict=True):
        fit = refit(sweep).chosen
        assert fit and fit.beta.value == pytest.approx(beta, rel=0.01)
    assert [(s.name, s.quantity, s.value) for s in found.stated] == [
        ("GFLOPs", "pi", 80e9),
        ("L1", "beta", 400e9),
    ]
    assert {row.why for row in found.refused} == {"time is zero"} and len(found.refused) == 7
    assert found.refused[0].text.startswith("FLOPS.001/MPI.0002/OpenMP.0004/max: 4096 8")


def test_roofline_json_is_stated_and_never_fitted(tmp_path: Path) -> None:
    found = loaded(ert_folder(tmp_path) / "roofline.json")
    assert (found.format, found.sweeps, len(found.stated)) == ("ert-json", (), 2)
    assert [(row.row, row.why) for row in found.refused] == [(2, "value is nan")]
    assert "nothing can be fitted" in found.remarks[0]


def test_metadata_as_lines_of_a_port_is_read_too(tmp_path: Path) -> None:
    lines = ["META_DATA", "HOSTNAME  ('apollo', [], [])", "CONFIG  {'ERT_GPU': [False]}"]
    block = {"data": [["FP64 GFLOPs", 10.0]], "metadata": {"": lines}}
    path = tmp_path / "roofline.json"
    path.write_text(json.dumps({"empirical": {"gflops": block, "gbytes": {"data": []}, "metadata": {}}}))
    assert loaded(path).device == "CPU of host apollo"


# CSV


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("intensity [FLOP/byte]", ("FLOP/byte", "FLOP/byte")),
        ("performance (TFLOP/s)", ("TFLOP/s", "FLOP/s")),
        ("gflops", ("GFLOP/s", "FLOP/s")),
        ("GB/s", ("Gbyte/s", "byte/s")),
        ("time us", ("µs", "s")),
        ("data [MB]", ("Mbyte", "byte")),
        ("bandwidth (gbps)", None),
        ("Gb/s", None),
        ("flops", None),
        ("kernel", None),
        ("", None),
    ],
)
def test_units_of_a_header(header: str, unit: tuple[str, str] | None) -> None:
    assert unit_of(header) == unit


def test_columns_of_amounts_and_time_make_points(tmp_path: Path) -> None:
    path = tmp_path / "amounts.csv"
    path.write_text(
        "\ufeffprecision;device;work [GFLOP];data [MB];time [ms]\n"
        "fp32;X1;2;500;4\n;X1;2;500;4\nfp64;X2;1;500;4\n",
        encoding="utf-8",
    )
    found = loaded(path)
    assert [(s.device, s.precision) for s in found.sweeps] == [("X1", "fp32"), ("X2", "fp64")]
    point = found.sweeps[0].points[0]
    assert (point.x, point.flops, point.bytes, point.seconds) == pytest.approx((4, 2e9, 5e8, 4e-3))
    assert point.estimate.value == pytest.approx(5e11)
    assert (found.device, refused(found)) == ("X1 / X2", {3: "missing precision: its cell is empty"})


def test_named_rounds_give_intervals_over_rounds_and_one_run_those_of_its_points() -> None:
    five, one = loaded(FILES / "units.csv").sweeps[0], loaded(FILES / "gpu_benches.txt").sweeps[0]
    assert {len(p.rates) for p in five.points} == {5}
    assert five.points[0].estimate.half_width == pytest.approx(0.0124, rel=0.2)
    over_rounds, over_points = refit(five), refit(one)
    assert (over_rounds.basis, over_points.basis) == (ROUNDS, POINTS)
    for found, pi in ((over_rounds, 9e10), (over_points, 40e12)):
        fit = found.chosen
        assert fit and fit.pi.low and fit.pi.high and fit.pi.low < pi < fit.pi.high
        assert fit.ridge.half_width and fit.ridge.half_width < 0.05
        assert found.clean and found.plateaus["fitted_pi_share"] == pytest.approx(1, abs=0.02)


def test_rounds_that_share_too_few_points_leave_the_intervals_to_the_points(tmp_path: Path) -> None:
    """Each round was cut shorter than the one before: no refit of a round would be one of the curve."""
    xs = [2.0 ** (k / 2) for k in range(-10, 20)]
    rows_ = [f"{x},{min(100, 20 * x)},{r}" for r in range(5) for x in xs[: 30 - 6 * r]]
    path = tmp_path / "ragged.csv"
    path.write_text("I [FLOP/byte],P [GFLOP/s],round\n" + "\n".join(rows_) + "\n", encoding="utf-8")
    found = refit(loaded(path).sweeps[0])
    assert found.basis == POINTS and found.chosen and found.chosen.pi.half_width is not None


def test_a_ridge_between_two_bounds_gets_no_interval_from_its_points(tmp_path: Path) -> None:
    path = tmp_path / "bent.csv"
    rows_ = [f"{x},{50 * x**0.3}" for x in (0.03, 0.25, 2, 16, 128)]
    path.write_text("I [FLOP/byte],P [GFLOP/s]\n" + "\n".join(rows_) + "\n", encoding="utf-8")
    fit = refit(loaded(path).sweeps[0]).chosen
    assert fit and fit.pi.is_bound and fit.beta.is_bound
    assert (fit.ridge.low, fit.ridge.high) == (None, None)


def test_a_step_is_named_and_makes_a_sweep_unclean() -> None:
    found = [refit(sweep) for sweep in loaded(FILES / "intensity_sweep.txt").sweeps]
    assert [one.clean for one in found] == [False, True, True]
    assert found[0].chosen and "step at 2.6" in found[0].chosen.limits
    assert found[1].chosen and found[1].chosen.limits == ""


def test_a_plateau_never_reached_stays_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "slant.csv"
    path.write_text(
        "x [FLOP/byte],GFLOP/s\n" + "".join(f"{x},{20 * x}\n" for x in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2))
    )
    fit = refit(loaded(path).sweeps[0]).chosen
    assert fit and (fit.pi.value, fit.pi.low, fit.pi.high) == (pytest.approx(64e9), pytest.approx(64e9), None)
    assert fit.beta.value == pytest.approx(20e9)
