"""The plot: what is drawn and written, for whole, overlaid, crowded and incomplete profiles."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.profile.records import Profile
from bench.report import plot
from bench.report.labels import overlap
from bench.report.scene import scene
from tests.synthetic import placement, synthetic_profile


def drawn(*profiles: Profile) -> Any:
    """The finished figure."""
    return plot.figure(profiles)


def words(picture: Any) -> list[str]:
    """Every text on the figure, legend included."""
    axes = picture.axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []
    return [text.get_text() for text in (*picture.texts, *axes.texts)] + legend


def test_a_home_that_cannot_be_written_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """The library warns of it by its own log, twice, also where a run was asked to be quiet."""
    logging.getLogger("matplotlib").warning("created a temporary cache directory")
    assert caplog.records == []
    logging.getLogger("matplotlib").error("a broken font")
    assert len(caplog.records) == 1


@pytest.fixture(scope="module")
def whole() -> Any:
    return drawn(synthetic_profile())


def test_ceilings_are_labelled_with_value_access_and_interval(whole: Any) -> None:
    said = words(whole)
    for text in (
        "fp64  π 90.0 GFLOP/s ± 0.6 %  (gemm 86.4)",
        "fp32  π 180 GFLOP/s ± 0.6 %  (gemm 173)",
        "DRAM read 20.0 GB/s",
        "DRAM update 30.0 GB/s (copy 28.0, triad 27.2, write 24.0)",
        "L1 read 270 GB/s",
        "L2 read 150 GB/s",
        "L3 read 110 GB/s",
    ):
        assert said.count(text) == 1, text


def test_ridges_legend_and_title_are_there(whole: Any) -> None:
    said = words(whole)
    assert {"ridge 3.00", "ridge 4.50", "ridge 6.00", "ridge 9.00"} <= set(said)
    assert "intensity sweep, in-place" in said and "fitted curve (p-norm)" in said
    assert said[0] == "Synthetic CPU @ 2.90GHz · 2 threads · state vm"
    assert said[1] == "2026-11-30 02:50 UTC · commit 58d8d2f"
    assert "SIMULATED" not in " ".join(said)


def test_every_workload_has_one_label_and_no_flop_is_a_remark(whole: Any) -> None:
    said = words(whole)
    assert [text for text in said if text.startswith("spmv-csr")] == ["spmv-csr 64 %"]
    assert sum(text.startswith(tuple(p.name for p in synthetic_profile().placements)) for text in said) == 11
    assert "no place on this axis (no FLOP or no bytes): transpose 16.2 GB/s (58 % of its roof)" in said


def label_boxes(picture: Any) -> dict[str, tuple[float, float, float, float]]:
    """Pixel boxes of the upright texts on the axes, and of the legend."""
    axes = picture.axes[0]
    found = {text.get_text(): text.get_window_extent() for text in axes.texts if text.get_rotation() == 0}
    if axes.get_legend():
        found["legend"] = axes.get_legend().get_window_extent()
    return {name: (box.x0, box.y0, box.x1, box.y1) for name, box in found.items()}


def check_clear(picture: Any) -> None:
    """No label lies on another, none leaves the axes."""
    boxes = label_boxes(picture)
    frame = picture.axes[0].get_window_extent()
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        assert overlap(a, b) == 0, (one, other)
    for name, box in boxes.items():
        assert frame.x0 <= box[0] and box[2] <= frame.x1 and frame.y0 <= box[1] and box[3] <= frame.y1, name


def test_no_label_lies_on_another(whole: Any) -> None:
    assert len(label_boxes(whole)) >= 14
    check_clear(whole)


def lines(picture: Any) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in picture.axes[0].lines]


def test_roofs_lie_where_they_were_measured(whole: Any) -> None:
    right = whole.axes[0].get_xlim()[1]
    assert ([4.5 * 2 / 3, right], [90e9, 90e9]) in lines(whole)
    diagonals = [(x, y) for x, y in lines(whole) if len(x) == 2 and y[0] / x[0] == pytest.approx(20e9)]
    assert [y[1] for _, y in diagonals] == [pytest.approx(180e9)]


def test_fitted_curve_and_sweep_points_are_drawn(whole: Any) -> None:
    curves = [(x, y) for x, y in lines(whole) if len(x) > 100]
    assert len(curves) == 4
    assert max(y[-1] for _, y in curves) == pytest.approx(178.2e9, rel=1e-3)
    sweeps = [x for x, _ in lines(whole) if len(x) == 17]
    assert len(sweeps) == 4
    assert min(map(min, sweeps)) == pytest.approx(1 / 96)


def test_axis_and_roof_reach_beyond_the_farthest_point() -> None:
    far = placement(("nbody", "fp32", "numba", 1e12, 5e6, 5e6, 0.9, ""))
    near = placement(("scan", "fp64", "numba", 1e3, 5e8, 5e8, 0.9, ""))
    profile = replace(synthetic_profile(), placements=(far, near))
    picture = drawn(profile)
    low, high = picture.axes[0].get_xlim()
    assert low < 1e-6 and high > 1e5
    assert max(x[-1] for x, y in lines(picture) if y == [180e9, 180e9]) == high
    assert picture.axes[0].get_ylim()[0] < near.achieved.value
    assert {"nbody 90 %", "scan 90 %"} <= set(words(picture))


def kernels(count: int) -> Profile:
    """A profile with `count` workloads of very long names."""
    rows = [
        (
            f"void cutlass::Kernel<{'x' * 280}>::run_{i}",
            "fp64",
            "cuda",
            10 ** (7 + i / 25),
            1e8,
            1e6,
            0.1 + i / 120,
            "",
        )
        for i in range(count)
    ]
    return replace(synthetic_profile(), placements=tuple(placement(row) for row in rows))


def test_hundred_kernels_get_numbers_and_a_list() -> None:
    picture = drawn(kernels(100))
    said = words(picture)
    assert {str(number) for number in range(1, 101)} <= set(said)
    entries = [text for text in said if "::run_" in text]
    assert len(set(entries)) == 100
    assert max(map(len, entries)) < 60
    small = [text for text in picture.texts if "::run_" in text.get_text()]
    boxes = [text.get_window_extent() for text in small]
    assert all(
        overlap((a.x0, a.y0, a.x1, a.y1), (b.x0, b.y0, b.x1, b.y1)) == 0 for a, b in combinations(boxes, 2)
    )
    assert min(box.y0 for box in boxes) > 0


def faster(profile: Profile, factor: float, name: str) -> Profile:
    """The same device with every ceiling `factor` times as high."""
    changed = [
        replace(c, estimate=replace(c.estimate, value=c.estimate.value * factor)) for c in profile.ceilings
    ]
    return replace(profile, ceilings=tuple(changed), facts={}, identity={**profile.identity, "device": name})


def test_two_profiles_are_overlaid_with_a_legend() -> None:
    picture = drawn(synthetic_profile(), faster(synthetic_profile(), 2.5, "Another CPU"))
    said = words(picture)
    assert {"A  Synthetic CPU @ 2.90GHz", "B  Another CPU"} <= set(said)
    assert any(text.startswith("A  fp64  π 90.0 GFLOP/s") for text in said)
    assert any(text.startswith("B  fp64  π 225 GFLOP/s") for text in said)
    assert {"A DRAM read 20.0 GB/s", "B DRAM read 50.0 GB/s"} <= set(said)
    assert not any("L1" in text for text in said)
    assert "6  spmv-csr  A 64 %, B 64 %" in said
    colours = {line.get_color() for line in picture.axes[0].lines}
    assert len(colours & {"#0072B2", "#D55E00"}) == 2


def test_two_runs_of_one_device_are_told_apart_by_commit() -> None:
    later = replace(synthetic_profile(), provenance={"time": "2026-12-01T09:00:00Z", "label": "abcdef0"})
    said = words(drawn(synthetic_profile(), later))
    assert any(text.startswith("B  ") and text.endswith("commit abcdef0") for text in said)


@pytest.mark.parametrize(
    ("quantity", "says", "absent"),
    [
        ("pi", "missing: no β was measured: there is no diagonal roof and no ridge", "ridge point"),
        (
            "beta",
            "missing: no π of a dedicated kernel was measured: there is no horizontal roof",
            "ridge point",
        ),
    ],
)
def test_half_a_roof_is_drawn_and_the_rest_is_named(quantity: str, says: str, absent: str) -> None:
    profile = synthetic_profile()
    kept = tuple(c for c in profile.ceilings if c.quantity == quantity)
    said = words(drawn(replace(profile, ceilings=kept)))
    assert says in said
    assert absent not in said
    assert "spmv-csr 64 %" in said


def test_nothing_at_all_is_still_a_figure() -> None:
    said = words(drawn(replace(synthetic_profile(), ceilings=(), curves=(), placements=(), facts={})))
    assert "nothing to draw" in said
    assert sum(text.startswith("missing:") for text in said) == 4


def test_zero_values_are_listed_not_drawn() -> None:
    zero = placement(("still", "fp64", "numba", 1e9, 1e8, 1e8, 0.5, ""))
    zero = replace(zero, achieved=replace(zero.achieved, value=0.0, low=None, high=None))
    shown = scene([replace(synthetic_profile(), placements=(zero,))])
    assert shown.dots == ()
    assert any("still 0 FLOP/s" in remark for remark in shown.remarks)


def test_simulated_is_across_the_plot() -> None:
    said = words(drawn(synthetic_profile(simulated=True)))
    assert "SIMULATED" in said
    assert any(text.startswith("SIMULATED, not measured · ") for text in said)


def test_dollar_signs_in_names_are_plain_text() -> None:
    odd = replace(placement(("$x$ ^_{", "fp64", "numba", 1e9, 1e8, 1e8, 0.5, "")))
    assert "$x$ ^_{ 50 %" in words(drawn(replace(synthetic_profile(), placements=(odd,))))


def written(folder: Path, profiles: Sequence[Profile]) -> tuple[bytes, bytes]:
    plot.draw(profiles, folder / "r.svg", folder / "r.png")
    return (folder / "r.svg").read_bytes(), (folder / "r.png").read_bytes()


def test_files_are_whole_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = written(tmp_path, [synthetic_profile()]), written(tmp_path, [synthetic_profile()])
    assert first[0] == second[0]
    assert ElementTree.fromstring(first[0]).tag.endswith("svg")
    assert b"<dc:date>" not in first[0]
    assert first[1].startswith(b"\x89PNG") and first[1] == second[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.png", "r.svg"]


def test_personal_settings_change_nothing() -> None:
    import matplotlib

    settings: Any = matplotlib.rcParams
    with matplotlib.rc_context():
        settings.update({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "black"})
        picture = drawn(synthetic_profile())
    assert picture.axes[0].get_facecolor()[:3] == (1.0, 1.0, 1.0)
