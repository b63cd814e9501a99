"""What records of the right form may still not say: work below zero, lists of other lengths, no rate."""

from __future__ import annotations

from dataclasses import fields

from . import facts
from .encoding import FormatError
from .interval import Interval
from .records import Ceiling, Curve, Placement, Profile, Repetitions, Sample

MOST, SHORTEST = 1e40, 1e-15
"""FLOP, byte or s that no repetition reaches, and s that none lasts; times of 0 and below are those of a
broken timer, which triage names."""

SIZES = {"gemm": ("m", "n", "k"), **dict.fromkeys(("mix", "cache", "latency"), ("bytes",))}
"""Sizes that a point of a family has."""

NUMBERS = ("amount", "hidden_traffic", "wall_seconds", "energy_j", "energy_seconds", "memory_clock_hz")
"""Facts of a sample that are numbers wherever they are told."""

FORMS = ("hard-min", "p-norm", "power-capped", "clock-normalised")
"""Forms that a fit may have."""

WAY = ("level", "kernel", "variant", "access")
LINE = ("alpha_s", "alpha_low", "alpha_high", "half_bytes", "half_high", "lines", "form", "reached_share")
SECONDS = ("compute_seconds", "movement_seconds", "serial_seconds", "max_seconds", "best_seconds")
OVERLAP = (*SECONDS, "level", "access", "omega_low", "omega_high", "best_chunks", "predicted_chunks")

FOUND = {
    "link": (WAY, "beta", LINE),
    "collective": ((*WAY, "convention"), "beta", LINE),
    "launch": (("variant", "access"), "beta", LINE),
    "concurrency": (("beta", "half_bytes", "rising"), "", ()),
    "cores": (("nearly_units", "all", "first"), "", ()),
    "overlap": ((), "omega", OVERLAP),
}
"""By kind of curve, what its analysis always found; and what it found too where it found the name between."""

LISTS = tuple(f.name for f in fields(Repetitions) if f.name != "seconds")


def check_sample(sample: Sample) -> None:
    """FormatError when no measurement can have given this."""
    _check_work("sample", sample)
    _check_repetitions(sample.repetitions)
    needed = SIZES.get(sample.point.family, ()) if sample.status == "ok" else ()
    if lack := [name for name in needed if sample.point.sizes.get(name, 0) < 1]:
        raise FormatError(f"sample.point.sizes of {sample.point.family} lacks {', '.join(lack)}")
    if strange := [n for n in NUMBERS if not isinstance(sample.facts.get(n) or 0, int | float)]:
        raise FormatError(f"sample.facts.{strange[0]} must be a number, got {sample.facts[strange[0]]!r}")


def _check_repetitions(found: Repetitions) -> None:
    for name in LISTS:
        if (count := len(getattr(found, name))) not in (0, len(found)):
            raise FormatError(f"sample.repetitions.{name} has {count} values for {len(found)} repetitions")
    if found.seconds and not SHORTEST <= min(found.seconds) <= max(found.seconds) <= MOST:
        for seconds in found.seconds:
            if 0 < seconds < SHORTEST or not abs(seconds) <= MOST:
                raise FormatError(f"sample.repetitions.seconds holds {seconds:g} s, which no clock tells")


def check_profile(profile: Profile) -> None:
    """FormatError when nothing that is derived from samples can be this."""
    for place, ceiling in enumerate(profile.ceilings):
        _check_ceiling(f"profile.ceilings[{place}]", ceiling)
    for place, curve in enumerate(profile.curves):
        _check_curve(f"profile.curves[{place}]", curve)
    for place, placement in enumerate(profile.placements):
        _check_placement(f"profile.placements[{place}] ({placement.name})", placement)
    facts.check("profile.facts", profile.facts, facts.FACTS)
    facts.check("profile.conditions", profile.conditions, facts.CONDITIONS)
    facts.check("profile.skipped", profile.skipped, facts.SKIPPED)


def _check_ceiling(where: str, c: Ceiling) -> None:
    words = (c.quantity, c.precision.label, c.level, c.kernel)
    _check_positive(f"{where} ({' '.join(filter(None, words))})", c.estimate)
    facts.check(f"{where}.checks", c.checks, {"*": str})


def _check_work(where: str, work: Sample | Placement) -> None:
    for name in ("flops", "bytes_read", "bytes_written"):
        if not 0 <= getattr(work, name) <= MOST:
            raise FormatError(f"{where}.{name} is {getattr(work, name):g}")


def _check_placement(where: str, p: Placement) -> None:
    _check_work(where, p)
    for name in ("seconds", "achieved", "attainable", "efficiency"):
        _check_positive(f"{where}.{name}", getattr(p, name))


def _check_curve(where: str, curve: Curve) -> None:
    if not curve.points:
        raise FormatError(f"{where} ({curve.kind} {curve.mode}) has no points")
    for number, fit in enumerate(curve.fits):
        if fit.form not in FORMS:
            raise FormatError(f"{where}.fits[{number}] has the form {fit.form!r}; known: {', '.join(FORMS)}")
        for name in ("pi", "beta", "ridge"):
            _check_positive(f"{where}.fits[{number}].{name}", getattr(fit, name))
    always, anchor, beside = FOUND.get(curve.kind, ((), "", ()))
    needed = always + (beside if anchor in curve.plateaus else ())
    if lack := [name for name in needed if name not in curve.plateaus]:
        raise FormatError(f"{where}.plateaus of {curve.kind} {curve.mode} lacks {', '.join(lack)}")


def _check_positive(where: str, interval: Interval) -> None:
    known = [v for v in (interval.value, interval.low, interval.high) if v is not None]
    if not all(0 < value < float("inf") for value in known):
        raise FormatError(f"{where} has the value {interval.value:g}, which no measurement gives")
