"""What is printed while a run goes on, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from bench.profile.records import Point, Precision
from bench.report.units import counted
from bench.running.progress import Screen, duration, named


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


def test_a_terminal_that_cannot_draw_gets_a_line_per_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    through_a_stage(Screen())
    lines = terminal.getvalue().splitlines()
    assert lines[0].startswith("round 1 of 2") and "" not in lines and "\x1b" not in terminal.getvalue()


def test_a_full_disk_under_the_log_loses_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    through_a_stage(Screen())


def test_a_point_is_named_with_sizes_that_people_read() -> None:
    read = Point("stream", "read", "s3u4", Precision.of("fp64"), "DRAM", sizes={"bytes": 1 << 27}, threads=2)
    assert named(read) == "read fp64 DRAM 128 MiB 2 threads"
    swept = replace(read, kernel="mix", sizes={"bytes": 96 << 20, "fma": 12, "window": 200}, threads=1)
    assert named(swept) == "mix fp64 DRAM 96 MiB, fma 12, 200 µs 1 thread"
    flat = replace(read, sizes={"bytes": 16 << 10, "plateau": 1})
    assert named(flat, "SM") == "read fp64 DRAM 16 KiB 2 SMs"


def test_one_is_not_many() -> None:
    assert [counted(n, "point") for n in (0, 1, 2)] == ["0 points", "1 point", "2 points"]


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    through_a_stage(Screen(quiet=True))
    assert terminal.getvalue() == ""
