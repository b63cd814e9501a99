"""Verdicts, table, JSON and command line of `make perf`, without measuring anything."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from rich.console import Console

from tests.perf import __main__ as command
from tests.perf import table
from tests.perf.pairs import Window
from tests.perf.rows import CONTROL, REFERENCE, SHOWN, SUITE, Demand, Row, row


def a_row(suite: float, demand: Demand, pairs: int = 9, seconds: float = 8e-3, spread: float = 0.0) -> Row:
    """A row whose reference does 100 units a second and whose suite does 100 x `suite`, +- `spread`."""
    signs = [(-1) ** k for k in range(pairs)]
    reference = [Window(100 * seconds, seconds)] * pairs
    mine = [Window(100 * suite * (1 + spread * sign) * seconds, seconds) for sign in signs]
    naive = [Window(51 * seconds, seconds)] * pairs
    windows: Mapping[str, list[Window]] = {
        REFERENCE: reference,
        CONTROL: reference,
        SUITE: mine,
        "naive loop": naive,
    }
    return row("copy", 2, "byte/s", ("s1u4", "s2u4"), windows, demand)


STRICT = Demand(9, 0.98, 0.96)


@pytest.mark.parametrize(
    ("suite", "demand", "options", "verdict"),
    [
        (0.981, STRICT, {}, "pass"),
        (0.979, STRICT, {}, "too low"),
        (0.99, STRICT, {"spread": 0.05, "pairs": 101}, "bound too low"),
        (1.05, STRICT, {"spread": 0.10, "pairs": 9}, "bound too low"),
        (1.05, STRICT, {"pairs": 8}, "8 of 9 pairs"),
        (1.05, Demand(1, 0.98, 0.96), {"pairs": 5}, "bound too low"),
        (1.05, STRICT, {"seconds": 1.9e-3}, "window under 2 ms"),
        (0.5, SHOWN, {}, "shown"),
        (0.5, SHOWN, {"seconds": 1.9e-3}, "window under 2 ms"),
        (1.09, Demand(9, 0.9, high=1.1), {}, "pass"),
        (1.11, Demand(9, 0.9, high=1.1), {}, "too high"),
        (0.89, Demand(9, 0.9, high=1.1), {}, "too low"),
    ],
)
def test_verdict_says_what_is_missing(
    suite: float, demand: Demand, options: dict[str, float], verdict: str
) -> None:
    found = a_row(suite, demand, **options)  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert found.holds == (verdict in ("pass", "shown"))


def test_a_row_keeps_rates_names_control_and_what_stands_beside() -> None:
    found = a_row(0.5, STRICT)
    assert (found.reference, found.suite) == ("s1u4", "s2u4")
    assert (found.reference_rate, found.suite_rate) == (pytest.approx(100), pytest.approx(50))
    assert found.control.value == pytest.approx(1.0)
    assert found.beside["naive loop"].value == pytest.approx(0.51)
    assert set(found.beside) == {"naive loop"}


def test_table_shows_both_sides_the_control_and_what_the_naive_loop_missed() -> None:
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    table.render([a_row(0.991, STRICT), a_row(0.5, STRICT)], console)
    text = console.export_text()
    lines = text.splitlines()
    (good,) = [line for line in lines if "0.991" in line]
    assert [word in good for word in ("copy", "s1u4", "100 B/s", "99.1 B/s", "1.000", "pass")] == [True] * 6
    assert "0.98, low 0.96" in good
    assert "naive loop 51.0 B/s, would have missed 49% of the peak" in text
    assert "shortest window 8.00 ms; 1 of 2 comparisons fall short" in text
    assert "order-statistic interval" in text


def test_json_holds_base_units_and_verdicts() -> None:
    found = json.loads(table.document([a_row(0.991, STRICT)], {"isa": "AVX2+FMA"}))
    (only,) = found["comparisons"]
    assert found["isa"] == "AVX2+FMA"
    assert only["verdict"] == "pass"
    assert only["holds"] is True
    assert only["suite_rate"] == pytest.approx(99.1)
    assert only["ratio"]["pairs"] == 9
    assert only["demand"] == {"pairs": 9, "ratio": 0.98, "low": 0.96, "high": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "copy,tirad"], "unknown tirad; valid: peak, write, read"),
        (["--pairs-beta", "0"], "'0' is no number of pairs"),
        (["--threads", "3"], "invalid choice: '3'"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_a_missing_compiler_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "nonesuch")
    assert command.main(["--only", "peak"]) == 3
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("perf: no C compiler found (looked for nonesuch); install gcc")


@pytest.mark.parametrize(("check", "code"), [(["--check"], 1), ([], 0)])
def test_only_check_turns_a_shortfall_into_a_failure(
    check: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "compare", lambda arguments, console: [a_row(0.9, STRICT)])
    assert command.main(check) == code


def test_teams_are_distinct() -> None:
    assert command._teams("both", 8) == (1, 8)
    assert command._teams("both", 1) == (1,)
    assert command._teams("all", 8) == (8,)
