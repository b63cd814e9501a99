"""What is printed while a run goes on, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from bench.running.progress import Screen, counted, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (0.6, "1 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (80, "1 min 20 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def through_a_stage(screen: Screen) -> None:
    screen.begin("round 1 of 2", 2)
    screen.point("read fp64", 0, 80.0)
    screen.say("first beta: 20 GB/s [not markup]")
    screen.end()
    screen.end()


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    through_a_stage(Screen())
    assert capsys.readouterr().err == "round 1 of 2\nfirst beta: 20 GB/s [not markup]\n"


def test_a_bar_on_a_terminal_says_what_is_measured_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    through_a_stage(Screen())
    said = terminal.getvalue()
    assert "round 1 of 2" in said and "read fp64  1 min 20 s left" in said
    assert "first beta: 20 GB/s [not markup]" in said


def test_a_full_disk_under_the_log_loses_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    through_a_stage(Screen())


def test_one_is_not_many() -> None:
    assert [counted(n, "point") for n in (0, 1, 2)] == ["0 points", "1 point", "2 points"]


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    through_a_stage(Screen(quiet=True))
    assert terminal.getvalue() == ""
