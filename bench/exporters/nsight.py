"""A section file of Nsight Compute: its roofline chart with the measured ceilings in the place of theory.

`ncu --section-folder FOLDER --section NAME --clock-control none ...`, NAME as its first line says, draws the
profiled kernel under them; without the last option ncu locks the base clock, and points lie lower.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.errors import FileError
from bench.exporters import achievable, replacing
from bench.profile.records import Ceiling, Profile
from bench.report import heading
from bench.report.units import si

OPERATIONS = {"fp64": (("d", "", 1),), "fp32": (("f", "", 1), ("f", "2", 2)), "fp16": (("h", "", 2),)}
"""Of each type the letter and ending of its instructions in the names of counters, and values in each."""

PACKED = 100
"""Compute capability (x 10) from which on there are instructions of two fp32 values, and counters of them."""

FLOPS = {"add": 1, "mul": 1, "fma": 2}

COUNTER = "smsp__sass_thread_inst_executed_op_{}{}{}_pred_on.sum.per_cycle_elapsed"
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
    capability = profile.facts.get("device", {}).get("facts", {}).get("compute_capability")
    if not capability:
        raise FileError("Nsight Compute profiles NVIDIA GPUs: give a result of one")
    if not (levels and vector):
        raise FileError("the chart needs a π and a β: measure the fma and stream families")
    matrix = {f"{name} matrix units": c for name in vector if (c := achievable.matrix(profile, name))}
    counted = {name: list(_counted(name, int(capability))) for name in vector}
    lines = [*_head(profile, [*vector.values(), *matrix.values()])]
    lines += [line for name in vector for line in _metrics(counted[name])]
    lines += ["}", "Body {", '  DisplayName: "Empirical roofline"']
    for name, peak in vector.items():
        peaks = {name: peak, **{words: c for words, c in matrix.items() if words.startswith(f"{name} ")}}
        word = "simulated" if profile.simulated else "measured"
        lines += _chart(f"{name} under {word} ceilings", _roofs(peaks, levels, word), counted[name], levels)
    with replacing(path) as file:
        file.write(("\n".join([*lines, "}"]) + "\n").encode("utf-8"))


def _head(profile: Profile, peaks: Sequence[Ceiling]) -> Iterator[str]:
    board = re.sub(r"\W+", "_", heading.device_name(profile)).strip("_")
    who = achievable.who(profile, peaks).replace('"', "'")
    yield f'Identifier: "EmpiricalRoofline_{board}"'
    yield 'DisplayName: "Empirical roofline"'
    yield f'Description: "{who}"'
    yield "Order: 99"
    yield "MetricDefinitions {"


Metric = tuple[str, str, str]
"""Label, name, and expression of FLOP a cycle."""


def _counted(name: str, capability: int) -> Iterator[Metric]:
    """What counts the FLOP of a type on GPUs of a compute capability."""
    for letter, ending, values in OPERATIONS[name]:
        for kind, flops in FLOPS.items():
            if not ending or capability >= PACKED:
                counter = COUNTER.format(letter, kind, ending)
                derived = f"derived__empirical_{name}_{kind}{ending}_flop_per_cycle"
                yield f"{kind}{ending}", derived, f"{counter} * {flops * values}"


def _metrics(counted: Sequence[Metric]) -> Iterator[str]:
    for _, name, expression in counted:
        yield "  MetricDefinitions {"
        yield f'    Name: "{name}"'
        yield f'    Expression: "{expression}"'
        yield "  }"


Roof = tuple[str, float, float]
"""Label, FLOP/s and byte/s."""


def _roofs(peaks: Mapping[str, Ceiling], levels: Mapping[str, Ceiling], word: str) -> Iterator[Roof]:
    for words, peak in peaks.items():
        clock = f" at {si(peak.clock_hz, 'Hz')}" if peak.clock_hz else ""
        for level, beta in levels.items():
            label = f"{words} / {level} {beta.access}, {word}{clock}"
            yield label, peak.estimate.value, beta.estimate.value


def _chart(
    label: str, roofs: Iterable[Roof], counted: Sequence[Metric], levels: Iterable[str]
) -> Iterator[str]:
    yield "  Items {"
    yield "    RooflineChart {"
    yield f'      Label: "{label}"'
    yield '      AxisIntensity { Label: "Arithmetic intensity [FLOP/byte]" }'
    yield '      AxisWork { Label: "Performance [FLOP/s]" }'
    for name, pi, beta in roofs:
        yield "      Rooflines {"
        yield f"        PeakWork {{ Constant: {pi!r} }}"
        yield f"        PeakTraffic {{ Constant: {beta!r} }}"
        yield f'        Options {{ Label: "{name}" }}'
        yield "      }"
    for level in levels:
        yield from _achieved(counted, level)
    yield "    }"
    yield "  }"


def _achieved(counted: Sequence[Metric], level: str) -> Iterator[str]:
    yield "      AchievedValues {"
    yield "        AchievedWork {"
    yield "          ValueCyclesPerSecondExpression {"
    for label, name, _ in counted:
        yield f'            ValuePerCycleMetrics {{ Label: "{label}" Name: "{name}" }}'
    yield f'            CyclesPerSecondMetric {{ Label: "SM clock" Name: "{CLOCK}" }}'
    yield "          }"
    yield "        }"
    yield f'        AchievedTraffic {{ Metric {{ Label: "{level} byte/s" Name: "{TRAFFIC[level]}" }} }}'
    yield f'        Options {{ Label: "achieved, {level}" }}'
    yield "      }"
