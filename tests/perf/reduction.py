"""Packed gradients, predicted and measured: an all-reduce between two processes, each on a CPU of its own.

`python -m tests.perf.reduction` measures a profile, then sums 64 MiB of gradients over loopback as they are,
in bf16 and in 8 bit, interleaved in random order, beside what `trades` predicts from the profile. It exits
with 1 where the prediction errs about whether packing pays. Run it with nothing else running.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from numba import njit

from bench.errors import BenchError
from bench.links.peer import HOST, end_with, exchange, receive, tune
from bench.profile.records import Profile
from bench.report.units import duration, number, si
from bench.trades import machine, rounding, rows
from bench.trades.cost import Rates
from bench.trades.rows import Question
from bench.trades.step import Split, Step

COUNT = 16 << 20
"""Gradients, fp32."""

BLOCK = rounding.BLOCK
FORMS = {"plain": "", "bf16": "gradients in bf16", "8 bit": "gradients in 8 bit"}
"""How gradients travel, and what `trades` calls it."""


@njit(fastmath=True)
def pack_bytes(values: Any, packed: Any, steps: Any) -> None:
    """127 steps up to the largest of each block, and down."""
    for b in range(values.size // BLOCK):
        first, largest = b * BLOCK, np.float32(1e-30)
        for i in range(first, first + BLOCK):
            largest = max(largest, abs(values[i]))
        scale = np.float32(127) / largest
        steps[b] = largest / np.float32(127)
        for i in range(first, first + BLOCK):
            value = values[i] * scale
            packed[i] = np.int8(value + np.float32(0.5) if value >= 0 else value - np.float32(0.5))


@njit(fastmath=True)
def unpack_bytes(packed: Any, steps: Any, into: Any, add: float) -> None:
    """The numbers that were packed, added to `add` times what is there."""
    for b in range(into.size // BLOCK):
        for i in range(b * BLOCK, (b + 1) * BLOCK):
            into[i] = add * into[i] + packed[i] * steps[b]


@njit
def pack_halves(values: Any, packed: Any) -> None:
    """The upper 16 bit of each fp32, rounded to the nearest, even one of two."""
    for i in range(values.size):
        packed[i] = (
            values[i] + np.uint32(0x7FFF) + ((values[i] >> np.uint32(16)) & np.uint32(1))
        ) >> np.uint32(16)


@njit
def unpack_halves(packed: Any, into: Any) -> None:
    """bf16 as the bits of fp32."""
    for i in range(into.size):
        into[i] = np.uint32(packed[i]) << np.uint32(16)


@njit(fastmath=True)
def add(values: Any, into: Any) -> None:
    """Sum of two arrays into the second."""
    for i in range(into.size):
        into[i] += values[i]


class Device:
    """One of the two that sum their gradients: it owns the half of its rank."""

    def __init__(self, link: socket.socket, rank: int) -> None:
        half = COUNT // 2
        self.link, self.rank = link, rank
        self.gradients = np.random.default_rng(rank).standard_normal(COUNT).astype(np.float32)
        self.sums = self.gradients.copy()
        self.own, self.other = (self.sums[:half], self.sums[half:])[:: 1 - 2 * rank]
        self.got = np.empty(half, np.float32)
        self.packed = {
            name: [np.empty(half, kind) for _ in "io"]
            for name, kind in (("bf16", np.uint16), ("8 bit", np.int8))
        }
        self.steps = [np.empty(half // BLOCK, np.float32) for _ in "io"]
        for form in FORMS:  # compiled before the clock
            self.packing(form, self.other)
            self.unpacking(form, self.own, True)

    def swap(self, out: Any, into: Any) -> None:
        """Send one array while the other is received."""
        exchange(self.link, memoryview(out).cast("B"), memoryview(into).cast("B"), 1)

    def packing(self, form: str, values: Any) -> None:
        """Values ready to send."""
        if form == "bf16":
            pack_halves(values.view(np.uint32), self.packed[form][1])
        elif form == "8 bit":
            pack_bytes(values, self.packed[form][1], self.steps[1])

    def unpacking(self, form: str, into: Any, adding: bool) -> None:
        """What was received, added or put there."""
        if form == "8 bit":
            unpack_bytes(self.packed[form][0], self.steps[0], into, float(adding))
            return
        if form == "bf16":
            unpack_halves(self.packed[form][0], (self.got if adding else into).view(np.uint32))
        if adding:
            add(self.got, into)

    def reduce(self, form: str) -> None:
        """Both halves summed by their owners, then exchanged."""
        for values, into, adding in ((self.other, self.own, True), (self.own, self.other, False)):
            self.packing(form, values)
            if form == "plain":
                self.swap(values, self.got if adding else into)
            else:
                self.swap(self.packed[form][1], self.packed[form][0])
            if form == "8 bit":
                self.swap(self.steps[1], self.steps[0])
            self.unpacking(form, into, adding)


def serve(parent: int, port: int, cpu: int) -> None:
    """The other device: reduces what it is told to, until the connection ends."""
    end_with(parent)
    os.sched_setaffinity(0, {cpu})
    with socket.create_connection((HOST, port), timeout=60) as link:
        link.settimeout(None)
        tune(link)
        device, order = Device(link, 1), bytearray(1)
        try:
            while True:
                receive(link, memoryview(order))
                device.sums[:] = device.gradients
                link.sendall(b"!")
                device.reduce([*FORMS][order[0]])
        except OSError:
            os._exit(0)


def measured(visits: int, order: random.Random) -> dict[str, list[float]]:
    """Seconds of every visit of each form; AssertionError where the sums are wrong."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise BenchError("two CPUs are needed, one for each device: this process may use one")
    with socket.create_server((HOST, 0)) as listener:
        words = [sys.executable, "-m", "tests.perf.reduction", "--serve", str(os.getpid())]
        child = subprocess.Popen([*words, str(listener.getsockname()[1]), str(cpus[1])])
        os.sched_setaffinity(0, {cpus[0]})
        link = listener.accept()[0]
    tune(link)
    device, ready = Device(link, 0), bytearray(1)
    truth = device.gradients + np.random.default_rng(1).standard_normal(COUNT).astype(np.float32)
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(visits):
        for form in order.sample([*FORMS], len(FORMS)):
            device.sums[:] = device.gradients
            link.sendall(bytes([[*FORMS].index(form)]))
            receive(link, memoryview(ready))
            began = time.perf_counter()
            device.reduce(form)
            times[form].append(time.perf_counter() - began)
            lost = float(np.sqrt(np.mean((device.sums - truth) ** 2) / 2))
            assert lost < {"plain": 1e-6, "bf16": 3e-3, "8 bit": 1e-2}[form], (form, lost)
    link.close()
    child.wait()
    return times


def predicted(profile: Profile) -> dict[str, float]:
    """Seconds of each form by `trades`, in series: two devices, each with half of the memory's rate."""
    found = machine.measured(profile, "read-only", "", "", "")
    if found.network is None:
        raise BenchError("this profile holds no network: measure the link family for three minutes")
    step = Step(1.0, 1.0, float(COUNT), 4.0, 16.0, 1.0, 1.0, 1)
    question = Question(step, found, "fp32", "data", Split(2, 1))
    rates = found.rates("fp32")
    shared = Rates(rates.pi, rates.beta / 2, rates.network, rates.alpha, rates.read, rates.write)
    costs = {packing.name: rows.packed(question, packing) for packing in rounding.PACKINGS}
    return {form: costs.get(name, question.base).serial(shared) for form, name in FORMS.items()}


def _profile(given: Path | None, folder: Path) -> Profile:
    from bench import store
    from bench.running import suite

    families = ("fma", "stream", "link")
    return store.read_profile(given or suite.run("cpu", 3.0, None, folder, families=families))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 where the prediction errs about what pays, else that of the error."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.reduction", description=__doc__)
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="take this one, measure none")
    parser.add_argument("--visits", type=int, default=40, help="of each form (default 40)")
    parser.add_argument("--seed", type=int, default=20, help="of the order (default 20)")
    parser.add_argument("--serve", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.serve:
        serve(*arguments.serve)
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            told = predicted(_profile(arguments.profile, Path(folder)))
        times = measured(arguments.visits, random.Random(arguments.seed))
    except BenchError as error:
        print(f"reduction: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"all-reduce of {si(4.0 * COUNT, 'byte')} between two processes, median of {arguments.visits} visits"
    )
    print(f"{'':<8}{'measured':>10}{'quartiles':>20}{'predicted':>11}{'gain':>7}{'predicted':>11}")
    held = True
    for form, taken in times.items():
        low, middle, high = quantiles(taken, n=4)
        gain, foretold = median(times["plain"]) / middle, told["plain"] / told[form]
        ends = f"{duration(low)} to {duration(high)}"
        beside = f"{duration(told[form]):>11}{number(gain):>6}x{number(foretold):>10}x"
        print(f"{form:<8}{duration(middle):>10}{ends:>20}{beside}")
        held = held and (form == "plain" or (gain > 1) == (foretold > 1))
    print("ok" if held else "MISSED: the prediction errs about what pays")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
