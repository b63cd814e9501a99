"""The printed report: a golden file, its width, and what it says when parts are missing or impossible."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.profile.records import Interval, Placement, Profile
from bench.report import heading, roofs
from bench.report.table import render
from tests.synthetic import G, ceiling, placement, synthetic_profile

GOLDEN = Path(__file__).parent / "golden" / "table.txt"


def test_golden() -> None:
    expected = GOLDEN.read_text(encoding="utf-8")
    text = render(synthetic_profile())
    assert text == expected, "if the change is wanted, write the new text into tests/golden/table.txt"


def line(text: str, start: str) -> str:
    """The only line that starts with these words."""
    found = [row for row in text.splitlines() if row.startswith(start)]
    assert len(found) == 1, (start, found)
    return found[0]


def section(text: str, name: str) -> str:
    """The text from a section's title to the next blank line."""
    return text.split(name, 1)[1].split("\n\n", 1)[0]


def many_words(profile: Profile) -> Profile:
    """Every text of the profile far longer than a line."""
    long = "x" * 150
    return replace(
        profile,
        identity={**profile.identity, "device": f"[bold] {long}"},
        facts={},
        ceilings=tuple(replace(c, variant=long, checks={"clock": long}) for c in profile.ceilings),
        placements=tuple(replace(p, name=p.name + long, note=long) for p in profile.placements),
        skipped=({"what": long, "reason": long},),
        not_measured=(long,),
        conditions=({"round": 1, "governor": long},),
    )


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("words", ["usual", "long"])
def test_never_wider_than_asked(width: int, words: str) -> None:
    profile = synthetic_profile(simulated=True)
    text = render(many_words(profile) if words == "long" else profile, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "fp64" in text


def test_same_profile_same_text_and_colour_changes_no_word() -> None:
    profile = synthetic_profile()
    coloured = render(profile, colour=True)
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [row.rstrip() for row in plain.splitlines()] == render(profile).splitlines()


def test_environment_does_not_change_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(synthetic_profile())
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert render(synthetic_profile()) == before


def test_headline_states_roof_and_ridge() -> None:
    text = render(synthetic_profile())
    row = next(row for row in text.splitlines() if row.startswith("fp64   π"))
    assert "π 90.0 GFLOP/s" in row
    assert "DRAM   β 20.0 GB/s (read) to 30.0 GB/s (update)" in text
    assert "ridge 3.00 to 4.50 FLOP/byte" in row


def test_simulated_is_said_first_and_last() -> None:
    rows = render(synthetic_profile(simulated=True)).splitlines()
    assert rows[0].startswith("SIMULATED") and rows[-1].startswith("SIMULATED")
    assert "SIMULATED" not in render(synthetic_profile())


def test_byte_convention_and_write_allocate_are_printed() -> None:
    text = section(render(synthetic_profile()), "Memory ceilings β")
    assert re.search(r"DRAM +triad +2R\+1W +ordinary +23\.0 GB/s.*\+33 %", text)
    assert re.search(r"DRAM +copy +1R\+1W +nt +28\.0 GB/s ± 3\.0 % 29\.7 +19\.0 +s3u4", text)
    assert "bytes = streams × item size" in text


def with_ceilings(**changes: Any) -> Profile:
    profile = synthetic_profile()
    return replace(profile, ceilings=tuple(replace(c, **changes) for c in profile.ceilings))


def test_the_slope_is_of_the_typical_regime_and_of_random_operands() -> None:
    faster = {"burst": {"regime": "burst"}, "zeros": {"operands": "zeros"}, "few": {"threads": 1}}
    plain = ceiling("beta", G, access="read")
    others = [ceiling("beta", 2 * G, access="read", **changes) for changes in faster.values()]
    slower = ceiling("beta", 0.5 * G, access="read", kernel="blas")
    for order in ([plain, slower, *others], [*others, slower, plain]):
        assert roofs.diagonals(replace(synthetic_profile(), ceilings=tuple(order))) == [plain]


def test_verdicts_in_words() -> None:
    assert roofs.verdict(ceiling("pi", G)) == "ok"
    assert roofs.verdict(ceiling("pi", G, converged=False)) == "did not converge"
    assert roofs.verdict(ceiling("pi", G, converged=None, rounds=1)) == "within this process only"
    assert roofs.verdict(ceiling("pi", G, converged=None, rounds=4)) == "few rounds"
    assert roofs.verdict(ceiling("pi", G, contended=0.5, converged=False)) == "did not converge, contended"
    assert roofs.verdict(ceiling("pi", G, checks={"repetitions": "fails: too few"})) == "contended"


def test_shared_verdict_is_said_once() -> None:
    text = render(with_ceilings(converged=None, rounds=2, contended=0.0))
    assert section(text, "Compute ceilings π").startswith("  p75 of 2 rounds; all: few rounds; best")
    assert text.count("few rounds") == 2


def test_a_statistic_is_said_once_with_the_range_of_its_rounds() -> None:
    each = [(5, "median"), (7, "median"), (6, "median"), (1, "p75")]
    made = [ceiling("beta", G, access="read", rounds=r, statistic=s, scope=str(r)) for r, s in each]
    text = render(replace(synthetic_profile(), ceilings=tuple(made)))
    assert section(text, "Memory ceilings β").startswith("  median of 5 to 7 rounds / p75 of 1 round; ")


def test_verdict_of_the_one_thread_value_is_not_lost() -> None:
    profile = synthetic_profile()
    changed = [replace(c, converged=False) if c.threads == 1 else c for c in profile.ceilings]
    text = section(render(replace(profile, ceilings=tuple(changed))), "Compute ceilings π")
    assert "ok (1 thread" in text


def test_self_checks_are_named_with_their_ceiling() -> None:
    fallen = {"clock": "fails: it fell by 9 %"}
    text = render(replace(synthetic_profile(), ceilings=(ceiling("pi", G, checks=fallen),)))
    assert "fma fp64: check fails, clock: it fell by 9 %" in text


def test_textbook_loop_is_beside_the_ceilings() -> None:
    text = line(render(synthetic_profile()), "textbook loop fp64")
    assert "29.7 GFLOP/s on 1 thread, 65 % of π" in text and "never a ceiling" in text


def test_fit_shows_intervals_overlap_and_limits() -> None:
    profile = synthetic_profile()
    curve = profile.curves[0]
    limited = replace(curve, fits=(replace(curve.fits[1], limits="π not reached: at least 80 GFLOP/s"),))
    text = section(render(replace(profile, curves=(limited, *profile.curves[1:]))), "Fitted roof")
    numbers = "89.1 GFLOP/s ± 1.0 % 19.6 GB/s ± 3.0 % 4.55 ± 4.0 % 0.88 ± 0.03 2.4 % p-norm 6.0"
    assert f"fp64 read-only {numbers}" in " ".join(text.split())
    assert "fp64 read-only: π not reached: at least 80 GFLOP/s" in text
    assert "84 % to 89 % of the sharp corner" in text


def test_workload_line_has_every_number() -> None:
    row = line(render(synthetic_profile()), "spmv-csr  ")
    expected = "fp64 0.159 3.22 GFLOP/s 2.06 GFLOP/s 64 % ±3.5 % memory 98 % 48.6 ms 31.1 ms"
    assert row.split()[1:] == expected.split()


def test_workload_without_flop_is_in_bytes() -> None:
    row = line(render(synthetic_profile()), "transpose")
    assert "28.0 GB/s" in row and "16.2 GB/s" in row


def placed(**changes: Any) -> Placement:
    return replace(placement(("probe", "fp64", "numba", 1e9, 1e9, 1e9, 0.5, "")), **changes)


def test_workload_that_moves_nothing_has_infinite_intensity() -> None:
    text = render(replace(synthetic_profile(), placements=(placed(bytes_read=0.0, bytes_written=0.0),)))
    assert line(text, "probe ").split()[2] == "∞"


def test_threads_and_level_are_named_where_they_differ() -> None:
    profile = replace(synthetic_profile(), placements=(placed(threads=1, level="L2"),))
    text = render(profile)
    assert line(text, "probe 1T L2 ")
    assert "1T: on one thread" in text
    assert "1T: on one thread" not in render(synthetic_profile())


@pytest.mark.parametrize(
    ("quantity", "says"),
    [("pi", "missing: no β was measured"), ("beta", "missing: no π of a dedicated kernel was measured")],
)
def test_missing_parts_are_said(quantity: str, says: str) -> None:
    profile = synthetic_profile()
    kept = tuple(c for c in profile.ceilings if c.quantity == quantity)
    text = render(replace(profile, ceilings=kept, curves=()))
    assert says in text
    assert "missing: no intensity sweep was measured" in text


def test_empty_profile_says_what_is_missing() -> None:
    text = render(
        replace(synthetic_profile(), ceilings=(), curves=(), placements=(), conditions=(), facts={})
    )
    assert text.count("missing:") == 4
    assert "conditions: not recorded" in text


def test_the_pilot_is_no_round() -> None:
    made = synthetic_profile()
    with_pilot = replace(made, conditions=({**made.conditions[0], "round": 0}, *made.conditions))
    assert "conditions: 5 rounds · " in render(with_pilot)


def test_absent_things_are_listed_and_then_counted() -> None:
    profile = replace(synthetic_profile(), not_measured=tuple(f"point {i}" for i in range(40)))
    text = section(render(profile), "Not measured")
    assert "skipped fma fp16: this CPU has no fp16" in text
    assert "left out point 9" in text and "left out point 10" not in text
    assert "and 30 more" in text


def test_what_is_absent_for_one_reason_stands_on_one_line() -> None:
    none, late = "no beta of DRAM measured with 2 threads", "3 points, the time box ended first"
    absent = ("fma: not asked for", f"workload dot: {none}", "mix: not asked for", f"workload fft: {none}")
    absent += (f"copy fp64 (all): {late}", f"triad fp64 (all): {late}")
    lines = section(render(replace(synthetic_profile(), skipped=(), not_measured=absent)), "Not measured")
    assert [line for line in lines.splitlines() if line.startswith("left out")] == [
        "left out fma, mix: not asked for",
        f"left out workload dot, workload fft: {none}",
        "left out copy fp64 (all): 3 points, the time box ended first",
        "left out triad fp64 (all): 3 points, the time box ended first",
    ]


def test_what_is_missing_names_the_overlap_only_where_none_was_measured() -> None:
    """The chunks of the overlap family tell an overlap without any intensity sweep."""
    made = synthetic_profile()
    others = tuple(curve for curve in made.curves if curve.kind != "mix")
    chunked = replace(made.curves[0], kind="overlap", plateaus={"omega": 0.8}, fits=())
    for curves, end in (
        (others, "no fitted curve and no overlap ω"),
        ((*others, chunked), "no fitted curve"),
    ):
        (said,) = roofs.missing(replace(made, curves=curves))
        assert said.endswith(f"there is {end}")


def test_counts_among_the_conditions_are_whole() -> None:
    rounds = ({"round": 1, "values": {"busy_processes": 1}}, {"round": 2, "values": {"busy_processes": 12}})
    made = replace(synthetic_profile(), conditions=rounds)
    assert heading.conditions(made) == "2 rounds · busy processes 1 to 12"
    half = replace(made, conditions=({"round": 1, "values": {"load_average": [0.514, 1, 1]}},))
    assert heading.conditions(half) == "1 round · load 0.51"


def test_an_asymptote_never_reached_has_its_sign_and_no_overlap_is_told() -> None:
    made = synthetic_profile()
    mixes = [c for c in made.curves if c.kind == "mix"]
    (old,) = (f for f in mixes[0].fits if f.chosen)
    open_ = replace(old, pi=Interval(90 * G, 89 * G), ridge=Interval(4.5, 4.4), omega=Interval(1.0, 0.0, 1.0))
    for curves, corner in (((replace(mixes[0], fits=(open_,)),), False), (mixes, True)):
        text = render(replace(made, curves=tuple(curves)))
        assert ("at its ridge a curve reaches" in text) == corner
        assert ("≥ 90.0 GFLOP/s" in text and "≥ 4.50" in text) != corner
        assert "± 0.50" not in text


def test_heading_reads_what_a_run_records() -> None:
    profile = synthetic_profile()
    assert heading.title(profile) == (
        "Synthetic CPU @ 2.90GHz · 2 threads · state vm",
        "2026-11-30 02:50 UTC · commit 58d8d2f",
    )
    assert heading.commit(replace(profile, provenance={"label": "58d8d2f-dirty"})) == "58d8d2f-dirty"
    assert heading.commit(replace(profile, provenance={"label": "src0123456"})) == "src0123456"
    bare = replace(profile, identity={}, provenance={}, facts={}, ceilings=(), curves=(), placements=())
    assert heading.title(bare) == ("unnamed device", "")


def test_conditions_wrap_and_none_is_cut() -> None:
    made = synthetic_profile()
    many = {f"reading {i}": "steady" for i in range(12)}
    text = render(replace(made, conditions=({**made.conditions[0], **many},)))
    words = " ".join(text.split())
    assert all(f"reading {i} steady" in words for i in range(12)) and "…" not in text.split("fp64")[0]


def test_conditions_are_one_line_of_ranges() -> None:
    said = heading.conditions(synthetic_profile())
    assert said == "5 rounds · load 0.10 to 0.50 · stolen 0.4 % · clock 2.90 GHz · memory available 13 GiB"
    nested = ({"round": 1, "values": {"turbo": True, "governor": "powersave"}}, {"round": 2, "turbo": False})
    assert heading.conditions(replace(synthetic_profile(), conditions=nested)) == (
        "2 rounds · turbo in 50 % of rounds · governor powersave"
    )
