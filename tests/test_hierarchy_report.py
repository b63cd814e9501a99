"""From points of the hierarchy on simulated devices to ceilings, curves, table, plots, page and exports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import cast

import jsonschema
import pytest

from bench import compare
from bench.backends.simulated import SimulatedBackend
from bench.exporters import longtable, prometheus
from bench.fitting import hierarchy as beside
from bench.fitting.ceilings import derive
from bench.fitting.level_names import NO_END
from bench.profile import encoding, schema
from bench.profile.records import Curve, CurvePoint, Interval, Point, Precision, Profile
from bench.report import (
    hierarchy,
    hierarchy_curves,
    hierarchy_plot,
    hierarchy_roof,
    level_remarks,
    level_strip,
    page,
    pipelines,
    plot,
    remake,
    roofs,
    scene,
)
from bench.report.table import render
from tests.hierarchies import CPU, FP64, GPU, measured, near, of, profile


def test_the_profile_is_valid_and_comes_back_from_json() -> None:
    text = encoding.dumps(profile(GPU))
    jsonschema.Draft202012Validator(json.loads(schema.FILE.read_text())).validate(json.loads(text))
    assert encoding.decode(Profile, json.loads(text)) == profile(GPU)


@pytest.mark.parametrize("name", [CPU, GPU])
def test_the_table_tells_levels_and_links_on_a_hundred_columns(name: str) -> None:
    text = render(profile(name))
    assert max(map(len, text.splitlines())) <= 100
    part = text[text.index("Memory and links") :]
    last = "L3" if name == CPU else "L2"
    row = next(line for line in part.splitlines() if line.startswith(f"{last} "))
    assert "MiB" in row and "ns" in row and row.rstrip().endswith("ok")
    assert "Little's law asks for" in part and "max law" in part
    compute = text[text.index("Memory ceilings") : text.index("Memory and links")]
    assert "host link" not in compute and "storage" not in compute  # links are no memory levels
    expected = ("host link", "peer, 2 pairs", "bus β") if name == GPU else ("network", "storage")
    assert all(word in part for word in expected)


def test_a_profile_without_deeper_points_has_no_such_section() -> None:
    bare = replace(profile(CPU), ceilings=tuple(c for c in profile(CPU).ceilings if c.quantity == "pi"))
    assert list(hierarchy.part(bare)) == []
    plain = replace(bare, curves=tuple(c for c in bare.curves if c.kind == "gemm"))
    assert hierarchy_plot.shown(plain) == {}


def test_links_are_diagonals_of_their_own_kind_below_the_roof() -> None:
    drawn = scene.scene([profile(GPU)])
    links = {d.text.split(" ")[0] for d in drawn.diagonals if d.link}
    assert links == {"host", "peer"}
    assert not any(d.main for d in drawn.diagonals if d.link)
    assert {c.level for c in roofs.main_memory(profile(GPU))} == {"DRAM"}
    labels = {t.get_text() for t in plot.figure([profile(GPU)]).axes[0].texts}
    assert any(text.startswith("host link h2d 50") and "copy-pinned" in text for text in labels)


def test_every_panel_is_drawn_with_its_laws(tmp_path: Path) -> None:
    kinds = {name.split(" ")[0] for name in hierarchy_plot.shown(profile(GPU))}
    assert kinds == {"cache", "latency", "concurrency", "cores", "link", "collective", "overlap", "launch"}
    picture = hierarchy_plot.figure(profile(GPU))
    titles = {axes.get_title(loc="left"): axes for axes in picture.axes}
    words = {t.get_text().split("\n")[0] for t in titles["bandwidth by working set"].texts}
    assert {"L1", "L2", "DRAM"} <= words
    overlap = titles["time by number of chunks"]
    assert len([line for line in overlap.lines if line.get_linestyle() in (":", "--")]) >= 2


@pytest.mark.slow
def test_the_page_holds_table_and_plots_and_asks_for_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(encoding.dumps(profile(CPU)), encoding="utf-8")
    text = remake.report(tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        "profile.json",
        "table.txt",
        "roofline.svg",
        "roofline.png",
        "hierarchy.svg",
        "hierarchy.png",
        "report.html",
    }
    shown = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert shown.count("<svg") == 2 and "SIMULATED" in shown
    assert "Memory and links" in shown and text.splitlines()[1][:20] in shown
    assert 'src="' not in shown and "<script" not in shown and "<link " not in shown
    assert "&lt;" in page.render(profile(CPU), "a < b", {})


def test_of_times_less_is_faster() -> None:
    slower = [
        replace(
            c,
            estimate=Interval(2 * c.estimate.value, *(_twice(e) for e in (c.estimate.low, c.estimate.high))),
        )
        if c.quantity == "latency"
        else c
        for c in profile(CPU).ceilings
    ]
    compared = compare.compare(profile(CPU), replace(profile(CPU), ceilings=tuple(slower)))
    verdicts = {row.name: row.verdict for row in compared.rows}
    assert {verdicts[n] for n in verdicts if n.startswith("latency")} == {"slower"}
    assert {verdicts[n] for n in verdicts if n.startswith("beta L1")} <= {"same", "cannot tell"}
    assert not [note for note in compared.notes if "more than once" in note]


def _twice(end: float | None) -> float | None:
    return None if end is None else 2 * end


@pytest.mark.parametrize("name", [CPU, GPU])
def test_exports_keep_every_figure_apart(name: str, tmp_path: Path) -> None:
    rows = longtable.rows(profile(name))
    keys = [(r["quantity"], r["precision_or_level"], r["stat"]) for r in rows]
    assert len(set(keys)) == len(keys)
    assert {"latency", "overhead", "capacity", "bandwidth"} <= {r["quantity"] for r in rows}
    path = tmp_path / "gauges.prom"
    prometheus.export(profile(name), path)
    series = [line.rsplit(" ", 1)[0] for line in path.read_text().splitlines() if not line.startswith("#")]
    assert len(set(series)) == len(series)
    assert any(line.startswith("roofline_latency_seconds{") for line in series)


def test_a_link_of_one_size_is_a_row_with_bounds() -> None:
    """A quick look measures one size: its rate is the least of beta, its time the most of alpha."""
    point = CurvePoint(16e6, Interval(1e9), 0.0, 16e6, 16e-3, (), "direct")
    found = {"level": "storage", "kernel": "storage", "variant": "direct", "access": "read"}
    curve = Curve("link", "storage", Precision.of("fp64"), "all", 1, "byte/s", (point,), (), found)
    key = ("storage", "read", "storage", "direct")
    row = hierarchy._link(key, [curve], cast("Profile", None))
    assert row[3] == "≥ 1.00 GB/s" and row[6] == "≤ 16.0 ms" and row[-1] == "too few sizes to fit"


def test_a_wide_overlap_is_its_interval() -> None:
    """0.34 with ends at -1 and 1 would read as 0.34 ± 1.00, which no overlap can be."""
    assert pipelines.omega({"omega": 0.34, "omega_low": -1.0, "omega_high": 1.0}) == "-1.00 to 1.00"
    assert pipelines.omega({"omega": 0.5, "omega_low": 0.48, "omega_high": 0.52}) == "0.50 ± 0.02"
    assert pipelines.omega({"omega": 1.6, "omega_low": 1.5, "omega_high": 1.7}) == "cannot tell"


def staircase(mode: str, threads: int, levels: Sequence[dict[str, object]], *hidden: str) -> Curve:
    """A sweep over working sets of which only the levels matter."""
    base = {"value": 1e9, "from_bytes": 4096.0, "to_bytes": 16384.0, "capacity_bytes": None}
    records = [{**base, "reported_bytes": None, "why": "as reported", **level} for level in levels]
    found = {"levels": records, "not_visible": list(hidden)}
    point = CurvePoint(4096.0, Interval(1e9), 0.0, 4096.0, 1e-6, (), "")
    return Curve("cache", mode, FP64, "all", threads, "byte/s", (point,), (), found)


def test_what_the_sweeps_say_of_levels_takes_a_line_a_kind() -> None:
    why = "7 MiB of the 16 MiB L3 that the system reports: a virtual machine or a share of a cache"
    share = {"name": "L3", "why": f"{why}; nothing sets L2 apart from it", "reported_bytes": 16.0 * 2**20}
    small, large = ({**share, "capacity_bytes": c * 2**20} for c in (7.0, 8.0))
    bare = {"name": "", "why": "no reported level ends at 831 KiB", "to_bytes": 768.0 * 2**10}
    slow = {"name": "L1", "why": "as reported, though flat only to 16 KiB: a slow fall"}
    curves = (
        staircase("read", 2, [small, bare, slow], "L2"),
        staircase("copy", 2, [large, bare], "L1", "L2"),
        staircase("read", 1, [{"name": "L1"}], "L2"),
        staircase("write", 2, [{"name": "L2", "why": f"behind L1 inside L2: {NO_END}"}]),
    )
    lines = list(level_remarks.remarks(replace(profile(CPU), curves=curves)))
    assert lines == [
        "seen over reported capacity: L3 0.44 to 0.50 (a virtual machine or a share of a cache)",
        "not visible with this access pattern: L2 (read, copy, read on 1), L1 (copy)",
        "flat, but no reported level: 4 to 768 KiB (read, copy)",
        "seen, but where it ends cannot be told: L2 (write)",
        "the rate falls too slowly to tell what it holds: L1 (read)",
    ]
    assert list(level_remarks.remarks(replace(profile(CPU), curves=curves[2:3]))) == [
        "not visible with this access pattern: L2 (read)"
    ]


def test_a_slow_fall_is_told_of_a_level_that_also_hides_a_nearer_one() -> None:
    why = "as reported, though flat only to 1 MiB: a slow fall; nothing sets L1 apart from it"
    curves = (staircase("read", 2, [{"name": "L2", "why": why, "capacity_bytes": 4e6}]),)
    assert list(level_remarks.remarks(replace(profile(CPU), curves=curves))) == [
        "the rate falls too slowly to tell what it holds: L2 (read)"
    ]


def test_labels_of_levels_keep_clear_of_each_other_and_of_the_edges() -> None:
    narrow = [{"from_bytes": 2.0**k, "to_bytes": 2.0 ** (k + 0.5)} for k in (12, 12.5, 13, 27.5)]
    low, high = 12 * 0.693, 28 * 0.693
    found = level_strip.places(narrow, low, high)
    least = level_strip.APART * (high - low)
    assert all(b - a >= least * 0.999 for a, b in pairwise(found))
    assert found[0] >= low + least / 2 - 1e-9 and found[-1] <= high - least / 2 + 1e-9


def test_one_chart_carries_the_slopes_of_all_levels_and_links() -> None:
    for name in (CPU, GPU):
        lines = hierarchy_roof.slopes(profile(name))
        levels = {c.level for c in roofs.diagonals(profile(name))}
        links = {c.level for c in roofs.links(profile(name))}
        assert links and {c.level for c in lines} == levels | links
        picture = hierarchy_plot.figure(profile(name))
        (chart,) = [axes for axes in picture.axes if axes.get_label() == "roofs"]
        words = [t.get_text() for t in chart.texts]
        for line in lines:
            assert any(w.startswith(f"{line.level} {line.access} ") and "B/s" in w for w in words), line.level
        assert any("π" in w for w in words)


def test_a_wide_interval_is_a_hollow_point_and_no_bar() -> None:
    sure = CurvePoint(1.0, Interval(1.0, 0.9, 1.2), 0.0, 0.0, 1.0, (), "")
    unsure = replace(sure, estimate=Interval(1.0, 0.05, 20.0))
    assert [hierarchy_plot._is_sure(p) for p in (sure, unsure, replace(sure, estimate=Interval(1.0)))] == [
        True,
        False,
        True,
    ]
    assert hierarchy_plot._bar(sure) == pytest.approx((0.1, 0.2))


def test_gpus_are_counted_on_an_axis_of_their_own() -> None:
    names = list(hierarchy_plot.shown(profile(GPU)))
    assert all(name.endswith(hierarchy_curves.BY_GPUS) or "GPUs" not in name for name in names)
    axes = hierarchy_plot.figure(profile(GPU)).axes
    assert "SMs" in {a.get_xlabel() for a in axes} and "threads or SMs" not in {a.get_xlabel() for a in axes}


def test_one_direction_stands_for_two_that_are_as_fast() -> None:
    links = [c for c in profile(GPU).curves if c.kind == "link" and c.plateaus["level"] == "host link"]
    there = next(c for c in links if c.plateaus["access"] == "h2d" and c.plateaus["kernel"] == "copy-pinned")
    back, slow = (
        replace(there, plateaus={**there.plateaus, "access": "d2h", "beta": there.plateaus["beta"] * by})
        for by in (0.97, 0.5)
    )
    assert hierarchy_curves.chosen("link", [back, there]) == [there]
    assert hierarchy_curves.chosen("link", [slow, there]) == [there, slow]


def test_ties_of_the_best_number_of_chunks_are_told() -> None:
    assert pipelines.chunks({"best_chunks": 8, "best_from": 4, "best_to": 16}) == "8 (4 to 16)"
    assert pipelines.chunks({"best_chunks": 8, "best_from": 8, "best_to": 8}) == "8"


@cache
def unseen_start() -> Profile:
    """The two-way loopback of a simulated CPU by messages that all take far longer than its alpha."""
    backend = SimulatedBackend.named(CPU)
    points = [
        Point("link", "loopback", "stream", FP64, "network", "exchange", sizes={"bytes": 1 << k})
        for k in (24, 26, 28, 30)
    ]
    header = {"device": encoding.plain(backend.device), "simulated": True}
    return derive(header, [{"round": 1}], measured(backend, points))


def test_an_alpha_that_is_not_seen_is_no_ceiling_and_printed_as_a_bound() -> None:
    (beta,) = [c for c in unseen_start().ceilings if c.level == "network"]
    assert beta.quantity == "beta" and beta.estimate.value == pytest.approx(6e9, rel=0.03)
    (curve,) = [c for c in unseen_start().curves if c.kind == "link"]
    key = ("network", "exchange", "loopback", "stream")
    row = hierarchy._link(key, [curve], unseen_start())
    assert row[6].startswith("≤ 5.6") and row[7] == "" and row[8].startswith("≤ 34.")
    assert encoding.decode(Profile, json.loads(encoding.dumps(unseen_start()))) == unseen_start()


def test_few_rounds_withhold_an_ok_and_no_failure() -> None:
    few = replace(of(CPU, "latency", level="L2"), rounds=3, converged=None, cap=0.05)
    wide, narrow = (replace(few, estimate=Interval(4e-9, 4e-9 / by, 4e-9 * by)) for by in (1.2, 1.02))
    assert roofs.verdict(beside._judged(wide)) == "did not converge"
    assert roofs.verdict(beside._judged(narrow)) == "few rounds"
    single = replace(few, estimate=Interval(4e-9), rounds=1)
    assert roofs.verdict(beside._judged(single)) == roofs.PROCESS_ONLY
    assert beside._judged(replace(narrow, converged=True)).converged is True
    samples = measured(SimulatedBackend.named(CPU), [*near(SimulatedBackend.named(CPU))][-40:], rounds=2)
    header = {"device": encoding.plain(SimulatedBackend.named(CPU).device), "simulated": True}
    found = [c for c in derive(header, [{"round": 1}], samples).ceilings if c.quantity == "latency"]
    wide_ones = [c for c in found if (c.estimate.half_width or 0.0) > c.cap]
    assert found and all((c.converged is False) == (c in wide_ones) for c in found)


def test_a_chart_says_at_which_caches_no_traffic_is_known() -> None:
    caches = ["L1", "L2", "L3"]
    said = "traffic of workloads at L1, L3 is not known"
    assert hierarchy_roof.unplaced(caches, ["L2", "DRAM"]) == said
    assert hierarchy_roof.unplaced(caches[1:2], ["L2", "DRAM"]) == ""


def test_rates_of_several_precisions_by_cores_are_told_apart() -> None:
    backend = SimulatedBackend.named(CPU)
    points = [
        Point("scaling", "fma", "12 chains", Precision.of(name), threads=count)
        for name in ("fp64", "fp32")
        for count in (1, 2)
    ]
    header = {"device": encoding.plain(backend.device), "simulated": True}
    both = derive(header, [{"round": 1}], measured(backend, points))
    assert sorted(c.mode for c in both.curves if c.kind == "cores") == ["fma fp32", "fma fp64"]
    one = derive(header, [{"round": 1}], measured(backend, points[:2]))
    assert [c.mode for c in one.curves if c.kind == "cores"] == ["fma"]


def test_what_does_not_fit_names_its_way_once() -> None:
    told = list(hierarchy._misfit(profile(CPU)))
    assert len(told) == 1 and "comes over the storage at 2.0" in told[0]


def test_the_latency_without_page_tables_stands_beside_that_with_them() -> None:
    near = of(CPU, "latency", level="DRAM")
    local = replace(near, kernel="chase-local", estimate=Interval(60e-9, 50e-9, 72e-9))
    facts = {"device": {"facts": {"huge_pages": "never"}}}
    told = replace(profile(CPU), ceilings=(near, local), facts=facts)
    assert list(level_remarks.walked(told)) == [
        "DRAM latency in windows of 128 KiB, where page tables cost next to nothing: 60.0 ns ± 20 % (huge "
        "pages: never)"
    ]
    assert list(level_remarks.walked(replace(told, ceilings=(near,)))) == []
