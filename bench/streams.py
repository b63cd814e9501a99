"""Standard streams and signals, so that neither a poor terminal nor a lost one costs a result."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import Any, TextIO


def secure() -> None:
    """Closed streams lead nowhere; letters that a terminal lacks are printed as question marks."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    _set(None)


def utf8() -> None:
    """JSON is UTF-8 on every terminal."""
    _set("utf-8")


def in_colour() -> bool:
    """Whether stdout is a terminal that shows colours and nobody asked for none (NO_COLOR)."""
    return not os.environ.get("NO_COLOR") and not is_dumb() and sys.stdout.isatty()


def is_dumb() -> bool:
    """Whether the terminal can neither colour nor draw over a line, by its own name."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def end_like_ctrl_c() -> None:
    """A batch system's SIGTERM and a lost terminal's SIGHUP also say how to go on, unless ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _nowhere() -> TextIO:
    """In the place of a closed stream: its number must not go to a result file."""
    return open(os.devnull, "w", encoding="utf-8")


def _set(encoding: str | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="replace")


def show(as_json: bool, value: Any, text: str) -> None:
    """Strict JSON on stdout, or the text."""
    if as_json:
        from bench.profile.encoding import dumps

        utf8()
        text = dumps(value, indent=2)
    print(text, end="" if text.endswith("\n") else "\n")
