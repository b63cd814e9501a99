"""The defects a simulated device can have, by name and severity: how one is asked for, and what is valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench.backends.simulation.clocks import MemoryClock, NoisyNeighbour, OffBy, StuckClock, Throttling, Timer
from bench.backends.simulation.distortion import Defect
from bench.backends.simulation.miscounts import ByteCount, CacheResident, FoldedChain, SweepStep
from bench.backends.simulation.refusals import Dies, Hang, MissingPrecision, OutOfMemory
from bench.backends.simulation.written import read
from bench.errors import UsageError
from bench.profile.encoding import FormatError, decode

DEFECTS: dict[str, type[Defect]] = {
    "throttling": Throttling,
    "stuck-clock": StuckClock,
    "memory-clock": MemoryClock,
    "cache-resident": CacheResident,
    "byte-count": ByteCount,
    "folded-chain": FoldedChain,
    "noisy-neighbour": NoisyNeighbour,
    "timer": Timer,
    "sweep-step": SweepStep,
    "missing-precision": MissingPrecision,
    "out-of-memory": OutOfMemory,
    "hang": Hang,
    "dies": Dies,
    "off-by": OffBy,
}

SEVERITIES = Path(__file__).with_name("severities.yaml")

SETS = ("designed", "drawn")
"""How the parameters of a severity came about; see the file."""

GRADES = ("mild", "middle", "severe")


@dataclasses.dataclass(frozen=True)
class Severity:
    """One of the fixed parameter sets: values on a CPU, and those that differ on a GPU."""

    kind: str
    grade: str
    set: str
    values: Mapping[str, Any]
    gpu: Mapping[str, Any]

    def on(self, gpu: bool) -> dict[str, Any]:
        """The parameters on a device of that kind."""
        return {**self.values, **(self.gpu if gpu else {})}


def severities(path: Path = SEVERITIES) -> tuple[Severity, ...]:
    """Every parameter set of the file, in the order of DEFECTS and GRADES."""
    written = read(path)
    found = [
        Severity(kind, grade, name, {k: v for k, v in values.items() if k != "gpu"}, values.get("gpu", {}))
        for name in SETS
        for kind, grades in (written.get(name) or {}).items()
        for grade, values in grades.items()
    ]
    order = list(DEFECTS)
    return tuple(sorted(found, key=lambda s: (order.index(s.kind), GRADES.index(s.grade))))


@cache
def _known() -> dict[str, dict[str, Severity]]:
    found: dict[str, dict[str, Severity]] = {}
    for severity in severities():
        found.setdefault(severity.kind, {})[severity.grade] = severity
    return found


def kind_of(defect: Defect) -> str:
    """The name by which a defect is asked for."""
    return next(kind for kind, form in DEFECTS.items() if form is type(defect))


def defect_of(values: Mapping[str, Any], gpu: bool = False) -> Defect:
    """The defect that {kind: ..., [severity: ...,] ...} describes; UsageError lists what is valid.

    gpu: whether a GPU has it; some severities differ there
    """
    kind, grade = values.get("kind"), values.get("severity")
    if not isinstance(kind, str) or kind not in DEFECTS:
        raise UsageError(f"unknown defect {kind!r}; valid: {', '.join(DEFECTS)}")
    given = {k: v for k, v in values.items() if k not in ("kind", "severity")}
    if grade is not None:
        known = _known().get(kind, {})
        if grade not in known:
            valid = ", ".join(known) or f"none, give its parameters as in {kind},NAME=VALUE"
            raise UsageError(f"unknown severity {grade!r} of {kind}; valid: {valid}")
        given = {**known[grade].on(gpu), **given}
    try:
        return decode(DEFECTS[kind], given, kind)
    except FormatError as error:
        raise UsageError(f"defect {kind}: {error}") from None


def parse(text: str) -> dict[str, Any]:
    """{kind: ..., ...} of "throttling", "throttling:mild" or "throttling,after=1,share=0.5", also of both.

    UsageError names a wrong part.
    """
    head, *settings = text.split(",")
    kind, colon, grade = head.partition(":")
    values: dict[str, Any] = {"kind": kind} | ({"severity": grade} if colon else {})
    words = {f.name for f in dataclasses.fields(DEFECTS.get(kind, Defect)) if f.type == "str"}
    for setting in settings:
        name, sign, number = setting.partition("=")
        try:
            values[name] = number if name in words else float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise UsageError(
                f"defect {text!r}: {setting!r} is not NAME=NUMBER, as in throttling,after=1,share=0.5"
            )
    return values
