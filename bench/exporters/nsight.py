"""A section file of Nsight Compute: its roofline chart with the measured ceilings in the place of theory.

`ncu --section-folder FOLDER --section EmpiricalRoofline --clock-control none ...` draws the profiled kernel
under them; without the last option ncu locks the base clock, and points lie lower than at the clock of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.records import Ceiling, Profile
from bench.report.units import si

OPERATIONS = {"fp64": ("d", 1), "fp32": ("f", 1), "fp16": ("h", 2)}
"""Letter of a type's instructions in the names of counters, and values in each."""

COUNTER = "smsp__sass_thread_inst_executed_op_{}{}_pred_on.sum.per_cycle_elapsed"
CLOCK = "smsp__cycles_elapsed.avg.per_second"
TRAFFIC = {
    "DRAM": "dram__bytes.sum.per_second",
    "L2": "lts__t_bytes.sum.per_second",
    "L1": "l1tex__t_bytes.sum.per_second",
}
"""Counter of each level's bytes."""


def export(profile: Profile, path: Path) -> None:
    """Write one chart a type; FileError for a device that is no GPU, or without a pi or beta."""
    levels = {name: c for name, c in achievable.memory(profile).items() if name in TRAFFIC}
    vector = {name: c for name in OPERATIONS if (c := achievable.rate(profile, name, "vector"))}
    if not profile.facts.get("device", {}).get("facts", {}).get("compute_capability"):
        raise FileError("Nsight Compute profiles NVIDIA GPUs: give a result of one")
    if not (levels and vector):
        raise FileError("the chart needs a π and a β: measure the fma and stream families")
    lines = [*_head(profile, vector), "Body {", '  DisplayName: "Empirical roofline"']
    word = "simulated" if profile.simulated else "measured"
    for name, peak in vector.items():
        peaks = [
            (name, peak),
            *((f"{name} matrix units", c) for c in [achievable.matrix(profile, name)] if c),
        ]
        lines += _chart(name, peaks, levels, word)
    with replacing(path) as file:
        file.write(("\n".join([*lines, "}"]) + "\n").encode("utf-8"))


def _head(profile: Profile, vector: dict[str, Ceiling]) -> Iterator[str]:
    clocks = {c.clock_hz for c in vector.values() if c.clock_hz}
    held = f", held clock {si(max(clocks), 'Hz')}" if clocks else ""
    who = achievable.who(profile).replace('"', "'")
    yield 'Identifier: "EmpiricalRoofline"'
    yield 'DisplayName: "Empirical roofline"'
    yield f'Description: "{who}{held}"'
    yield "Order: 99"
    yield "MetricDefinitions {"
    for name, (letter, values) in OPERATIONS.items():
        for kind, flops in (("add", 1), ("mul", 1), ("fma", 2)):
            yield "  MetricDefinitions {"
            yield f'    Name: "{_derived(name, kind)}"'
            yield f'    Expression: "{COUNTER.format(letter, kind)} * {flops * values}"'
            yield "  }"
    yield "}"


def _derived(name: str, kind: str) -> str:
    """Name of the FLOP a cycle of one kind of instruction."""
    return f"derived__empirical_{name}_{kind}_flop_per_cycle"


def _chart(
    name: str, peaks: Sequence[tuple[str, Ceiling]], levels: dict[str, Ceiling], word: str
) -> Iterator[str]:
    yield "  Items {"
    yield "    RooflineChart {"
    yield f'      Label: "{name} under {word} ceilings"'
    yield '      AxisIntensity { Label: "Arithmetic intensity [FLOP/byte]" }'
    yield '      AxisWork { Label: "Performance [FLOP/s]" }'
    for words, peak in peaks:
        for level, beta in levels.items():
            yield "      Rooflines {"
            yield f"        PeakWork {{ Constant: {peak.estimate.value!r} }}"
            yield f"        PeakTraffic {{ Constant: {beta.estimate.value!r} }}"
            yield f'        Options {{ Label: "{words} / {level} {beta.access}, {word}" }}'
            yield "      }"
    for level in levels:
        yield from _achieved(name, level)
    yield "    }"
    yield "  }"


def _achieved(name: str, level: str) -> Iterator[str]:
    yield "      AchievedValues {"
    yield "        AchievedWork {"
    yield "          ValueCyclesPerSecondExpression {"
    for kind in ("add", "mul", "fma"):
        yield f'            ValuePerCycleMetrics {{ Label: "{kind}" Name: "{_derived(name, kind)}" }}'
    yield f'            CyclesPerSecondMetric {{ Label: "SM clock" Name: "{CLOCK}" }}'
    yield "          }"
    yield "        }"
    yield f'        AchievedTraffic {{ Metric {{ Label: "{level} byte/s" Name: "{TRAFFIC[level]}" }} }}'
    yield f'        Options {{ Label: "achieved, {level}" }}'
    yield "      }"
