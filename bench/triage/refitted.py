"""Fits to other people's sweeps against the datasheet of the device that they name, or their own theory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import reference
from bench.errors import FileError
from bench.importers.refit import Refit
from bench.importers.sweep import Imported
from bench.profile.records import Fit, Interval
from bench.report.units import si
from bench.triage.case import agree
from bench.triage.datasheet import NEAR, Context, explain, sheet_of
from bench.triage.finding import REMEDIES, Finding, merged

THEORY = "theoretical"
"""How the name of a ceiling begins that a file states from clock and units."""

VARIANTS = {"laptop", "mobile", "maxq", "q", "ti", "super", "d", "nvl", "mig", "vgpu"}
"""Words behind a name that make it another device's; of a slice also such as 1g."""

CACHED = "faster as intensity rises"
"""Words by which a fit says that bytes moved ever faster along a sweep."""


def refitted(path: Path, imported: Imported, refits: Sequence[Refit]) -> tuple[Finding, ...]:
    """What is above or far below in the fits of a file; () where all is normal or nobody knows."""
    told: list[Finding] = []
    for one in refits:
        fit = one.chosen
        if fit is not None and one.unit == "FLOP/s":
            told += _of(path, imported, one, fit)
    return tuple(merged(told))


def _of(path: Path, imported: Imported, one: Refit, fit: Fit) -> Iterable[Finding]:
    device, said_by = whose(path, one.device or imported.device)
    pi, beta = _closed(fit.pi), _closed(fit.beta)
    clocks = [p.clock_hz for p in one.points if p.clock_hz]
    clock = max(clocks) if clocks else None
    values = {"pi": pi, "beta": beta}
    for quantity, value in values.items():
        if value is None:
            continue
        beside = {q: v for q, v in values.items() if q != quantity and v is not None}
        context = Context(
            quantity,
            device,
            one.precision,
            "DRAM",
            clock,
            _working_set(one, device),
            getattr(fit, quantity),
            said_by=said_by,
        )
        given = _stated(imported, quantity, one.precision)
        if given is not None and not _known(device):
            context = replace(context, expected=given, expected_of="the file's own theory")
        found = explain(value, replace(context, beside=beside))
        if found is not None:
            yield _named(found, one, fit, quantity)


def nominal(value: float, context: Context) -> float | None:
    """The datasheet's figure for a value of a device (FLOP/s or byte/s), None where none is known."""
    try:
        device = reference.match(context.device).device if context.device else ""
        sheet = sheet_of(context, reference.known().of(device), value) if device else None
    except FileError:
        return None
    return sheet.value if sheet else None


def theories(path: Path, imported: Imported) -> tuple[str, ...]:
    """In words, which theoretical figures of a file are not those of its device's datasheet."""
    device, _ = whose(path, imported.device)
    told = []
    for stated in imported.stated:
        name, _, of = stated.name.partition(" ")
        context = Context(stated.quantity, device, "" if of == "DRAM" else of)
        known = nominal(stated.value, context) if name == THEORY else None
        if known and not agree(stated.value, known, NEAR):
            unit = "FLOP/s" if stated.quantity == "pi" else "byte/s"
            told.append(
                f"the file's {stated.name} of {si(stated.value, unit)} is {stated.value / known:.2f} times "
                f"the datasheet's {si(known, unit)} of the device it names, which counts here"
            )
    return tuple(told)


def _working_set(one: Refit, device: str) -> float:
    """Bytes of a repetition where they are so few that the device's largest cache holds them, else 0."""
    moved = max((p.bytes for p in one.points), default=0.0)
    try:
        figures = reference.known().of(reference.match(device).device) if device else ()
    except FileError:
        return 0.0
    caches = [f.value for f in figures if f.quantity == "cache_size"]
    return moved if caches and 1.0 < moved <= max(caches) else 0.0


def _closed(value: Interval) -> float | None:
    """The value of an asymptote that was reached, None for a bound."""
    return None if value.is_bound else value.value


def _known(device: str) -> bool:
    try:
        return bool(device and reference.match(device).device)
    except FileError:
        return False


def whose(path: Path, named: str) -> tuple[str, str]:
    """The device that a file names, else the one that its file name holds, with who says so."""
    if named:
        return named, ""
    try:
        known = reference.known()
    except FileError:
        return "", ""
    words = set(re.findall(r"[a-z0-9]+", path.stem.lower()))
    if words & VARIANTS or any(re.fullmatch(r"\dg", word) for word in words):
        return "", ""
    fits = {n.device for n in known.names if set(reference.words(n.reported_name)) <= words}
    if len(fits) != 1:
        return "", ""
    return next(n.reported_name for n in known.names if n.device in fits), "the name of the file"


def _stated(imported: Imported, quantity: str, precision: str) -> float | None:
    wanted = f"{THEORY} {precision if quantity == 'pi' else 'DRAM'}"
    return next((s.value for s in imported.stated if s.quantity == quantity and s.name == wanted), None)


def _named(found: Finding, one: Refit, fit: Fit, quantity: str) -> Finding:
    """The finding with the sweep it is about, and what the sweep itself says of its bytes."""
    sweep = " ".join(filter(None, (one.mode, one.name)))
    subject = f"{found.subject}{f' ({sweep})' if sweep else ''}"
    sentence = found.sentence.replace(found.subject, subject, 1)
    if quantity == "beta" and float(found.evidence.get("ratio", 0)) > 1 and CACHED in fit.limits:
        head = sentence.split(": ", 1)[0]
        sentence = f"{head}: along the sweep {fit.limits.split(';')[0]}"
        cause = "cache-resident"
        return replace(found, subject=subject, cause=cause, sentence=sentence, remedy=REMEDIES[cause])
    return replace(found, subject=subject, sentence=sentence)
