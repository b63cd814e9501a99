"""The loopback link against iperf3, interleaved: `python -m tests.perf.links` (Debian package iperf3).

Both send one TCP stream in blocks of 128 KiB from the first CPU to the second, equally many bytes a window,
in random order; a second iperf3 side is the control. Demanded: the suite's rate within 10 % of iperf3's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bench.errors import BenchError, DeviceError
from bench.links import loopback, messages
from bench.profile.records import Point, Precision
from tests.perf import table
from tests.perf.pairs import Side, Window, interleave
from tests.perf.rows import CONTROL, REFERENCE, SUITE, Demand, Row, row

BLOCK = 128 << 10
WINDOW_BYTES = 1 << 30
LEAST_PAIRS = 9
WITHIN = Demand(LEAST_PAIRS, 0.90, high=1.10)
MISSING = "iperf3 is not installed: `apt-get install iperf3` (Debian, Ubuntu) or your system's package"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server((loopback.HOST, 0)) as server:
        return int(server.getsockname()[1])


def measured(report: Mapping[str, object]) -> Window:
    """The receiver's bytes and seconds in iperf3's JSON; DeviceError with its own words when it failed."""
    if "error" in report:
        raise DeviceError(f"iperf3 failed: {report['error']}")
    end = report["end"]
    assert isinstance(end, dict)
    received = end["sum_received"]
    return Window(float(received["bytes"]), float(received["seconds"]))


class Iperf:
    """An iperf3 server and a client a window; `cpus` as client, server."""

    name = "iperf3 128 KiB"

    def __init__(self, cpus: Sequence[int], size: int) -> None:
        self._cpus, self._size, self._port = cpus, size, free_port()
        words = ["iperf3", "-s", "-p", str(self._port), "-B", loopback.HOST, "--forceflush"]
        self._server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._server.stdout is not None
        said = []
        for line in self._server.stdout:
            said.append(line.strip())
            if "listening" in line:
                break
        else:
            raise DeviceError(f"the iperf3 server did not start: {' '.join(said)}")
        threading.Thread(target=self._server.stdout.read, daemon=True).start()  # nothing may fill its pipe

    def window(self) -> Window:
        """One run of the client."""
        words = ["iperf3", "-c", loopback.HOST, "-p", str(self._port), "-n", str(self._size), "-J"]
        words += ["-l", str(BLOCK)]
        if len(self._cpus) > 1:
            words += ["-A", f"{self._cpus[0]},{self._cpus[1]}"]
        done = subprocess.run(words, capture_output=True, text=True)
        return measured(json.loads(done.stdout or '{"error": "no answer"}'))

    def close(self) -> None:
        """End the server."""
        self._server.terminate()
        self._server.wait()


class Ours:
    """The suite's loopback stream in messages of the same block."""

    def __init__(self, size: int) -> None:
        point = Point("link", "loopback", "stream", Precision.of("fp64"), "network", "send")
        self._prepared = messages.prepare(Point(**{**vars(point), "sizes": {"bytes": BLOCK}}))
        self._prepared.handle.check()
        self._amount = size // BLOCK
        self.name = "stream 128 KiB"

    def window(self) -> Window:
        """One repetition."""
        work = self._prepared.work(self._amount)
        seconds = self._prepared.handle.measure(self._amount, 1).seconds[0]
        return Window(work.bytes("network"), seconds)


def race(pairs: int, size: int, order: random.Random) -> Row:
    """All sides interleaved; DeviceError where iperf3 is not here."""
    if shutil.which("iperf3") is None:
        raise DeviceError(MISSING)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    ours = Ours(size)
    theirs = Iperf(cpus, size)
    try:
        sides: dict[str, Side] = {REFERENCE: theirs, CONTROL: theirs, SUITE: ours}
        windows = interleave(sides, pairs, order)
    finally:
        theirs.close()
    return row("loopback TCP", 1, "byte/s", (theirs.name, ours.name), windows, WITHIN)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 with --check when it falls short, else that of the error."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.links", description=__doc__)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--bytes", type=int, default=WINDOW_BYTES, help="of one window")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        found = race(arguments.pairs, arguments.bytes, random.Random(arguments.seed))
    except BenchError as error:
        print(f"perf: {error}", file=sys.stderr)
        return error.exit_code
    table.render([found], Console(width=None if sys.stdout.isatty() else 150))
    if arguments.json:
        arguments.json.write_text(table.document([found], {}))
    return 1 if arguments.check and not found.holds else 0


if __name__ == "__main__":
    sys.exit(main())
