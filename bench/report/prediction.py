"""What `predict` prints: one line a piece of work, whose profile that is, and what the numbers rest on."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.prediction.estimate import Prediction
from bench.profile.records import Profile
from bench.report import heading
from bench.report.labels import shorten
from bench.report.units import duration, number, si

WIDTH, NAME = 100, 20
COLUMNS = (
    "what",
    "precision",
    "threads",
    "level",
    "flops",
    "bytes_read",
    "bytes_written",
    "seconds",
    "seconds_low",
    "seconds_high",
    "rate",
    "unit",
    "binds",
    "roof_seconds",
    "nominal_seconds",
    "basis",
    "notes",
)

READING = (
    "95 %: where 95 of 100 measured times should lie: rounds of the profile, and the error of the model at "
    "sizes left out of it. roof: on the measured roof alone. nominal: max(F/π, Q/β) of the datasheet."
)


def record(predictions: Sequence[Prediction], profile: Profile, elsewhere: str) -> dict[str, Any]:
    """The JSON of the verb: SI units, null where a thing is not known."""
    return {
        "device": heading.device_name(profile),
        "simulated": profile.simulated,
        "elsewhere": elsewhere,
        "predictions": [
            {**asdict(p), "precision": p.precision.label, "rate": p.rate, "unit": p.unit} for p in predictions
        ],
    }


def table(predictions: Sequence[Prediction], simulated: bool) -> str:
    """Comma-separated values, one line a piece of work under COLUMNS; `simulated` is a column of its own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "simulated"])
    for p in predictions:
        values = {
            **asdict(p),
            "precision": p.precision.label,
            "seconds": p.seconds.value,
            "seconds_low": p.seconds.low,
            "seconds_high": p.seconds.high,
            "rate": p.rate,
            "unit": p.unit,
            "notes": "; ".join(p.notes),
        }
        row = ["" if values[name] is None else values[name] for name in COLUMNS]
        writer.writerow([*row, str(simulated).lower()])
    return out.getvalue()


def render(predictions: Sequence[Prediction], profile: Profile, elsewhere: str) -> str:
    """The same for people, at most 100 columns."""
    around = ((*_head(profile, elsewhere),), (*_beside(predictions), READING))
    head, below = ([textwrap.fill(x, WIDTH, subsequent_indent="  ") for x in part] for part in around)
    return "\n".join([*head, "", *_rows(predictions), "", *below]) + "\n"


def _head(profile: Profile, elsewhere: str) -> Iterator[str]:
    if profile.simulated:
        yield heading.SIMULATED
    yield "predicted from: " + " · ".join(text for text in heading.title(profile) if text)
    if elsewhere:
        yield elsewhere


def _rows(predictions: Sequence[Prediction]) -> Iterator[str]:
    names = shorten([p.what for p in predictions], NAME)
    columns = ("time", "95 %", "rate", "roof", "nominal")
    yield (
        f"{'work':<{NAME}} {'':<5} {columns[0]:>7} {columns[1]:>16} {columns[2]:>12} {'level':<5} "
        f"{'binds':<11} {columns[3]:>8} {columns[4]:>8}"
    ).rstrip()
    for name, p in zip(names, predictions, strict=True):
        label = p.precision.label.removesuffix(" library")
        beside = f"{duration(p.roof_seconds):>8} {duration(p.nominal_seconds):>8}"
        yield (
            f"{name:<{NAME}} {label:<5} {duration(p.seconds.value):>7} {_ends(p):>16} "
            f"{si(p.rate, p.unit):>12} {p.level:<5} {p.binds:<11} {beside}"
        ).rstrip()


def _ends(p: Prediction) -> str:
    low, high = p.seconds.low, p.seconds.high
    if low is None:
        return "no interval"
    if high is None:
        return f"at least {duration(low)}"
    (first, unit), (last, other) = duration(low).split(), duration(high).split()
    return f"{first} to {last} {other}" if unit == other else f"{duration(low, 2)} to {duration(high, 2)}"


def _beside(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Bases and notes, each once with the works that it is about, all of them unnamed."""
    for part in ("basis", "note"):
        about: dict[str, list[str]] = {}
        for p in predictions:
            for text in (p.basis,) if part == "basis" else p.notes:
                about.setdefault(text, []).append(p.what)
        for text, names in about.items():
            whose = "" if len(names) == len(predictions) else f" ({_few(names)})"
            yield f"{part}: {text}{whose}"


def _few(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {number(len(names) - 3)} more"
