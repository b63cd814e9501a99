"""What stands above every table and plot: which device, in which state, when, by which commit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bench.profile.records import Profile
from bench.report import units
from bench.report.units import capacity, duration, number, percent, si

SIMULATED = "SIMULATED: a model of a device made these numbers, no hardware was measured"

PHRASES = {
    "load_average": "load",
    "clock_hz": "clock",
    "temperature_c": "",
    "steal_share": "stolen",
    "power_w": "",
}
"""How conditions are named in print; others print under their own name, underscores as spaces."""

UNITS: dict[str, Callable[[float], str]] = {
    "hz": lambda value: si(value, "Hz"),
    "c": lambda value: f"{value:.0f} °C",
    "w": lambda value: si(value, "W"),
    "share": percent,
    "bytes": capacity,
    "seconds": duration,
}
"""How a number is printed, by the last word of its name; others as pure numbers."""


def device_name(profile: Profile) -> str:
    """The human name of the measured device."""
    return str(
        profile.facts.get("device", {}).get("name") or profile.identity.get("device", "unnamed device")
    )


def state(profile: Profile) -> str:
    """The state of the device in words (vm, quiet, ...), "" when not recorded."""
    return str(profile.facts.get("device", {}).get("state", ""))


def threads(profile: Profile) -> int:
    """The most threads that took part in any ceiling, curve or placement; 0 when nothing was measured."""
    counts = [c.threads for c in profile.ceilings]
    counts += [c.threads for c in profile.curves] + [p.threads for p in profile.placements]
    return max(counts, default=0)


def unit(profile: Profile) -> str:
    """What `threads` counts on this device: thread, or SM on a GPU."""
    return str(profile.facts.get("device", {}).get("facts", {}).get("unit", "thread"))


def counted(profile: Profile, count: int) -> str:
    """1 thread, 2 threads, 132 SMs."""
    return units.counted(count, unit(profile))


def date(profile: Profile) -> str:
    """When the run started, to the minute, UTC; "" when not recorded."""
    text = str(profile.provenance.get("time", ""))
    return f"{text[:16].replace('T', ' ')} UTC" if text else ""


def commit(profile: Profile) -> str:
    """The short commit of the suite that measured, -dirty kept, or its source hash; "" when not recorded."""
    return str(profile.provenance.get("label", ""))


def title(profile: Profile) -> tuple[str, str]:
    """The left part (device, threads, state) and right part (date, commit) of the first line."""
    count = threads(profile)
    left = [device_name(profile)]
    left += [counted(profile, count)] * (count > 0)
    left += [f"state {state(profile)}"] * bool(state(profile))
    right = [date(profile), f"commit {commit(profile)}" if commit(profile) else ""]
    return " · ".join(left), " · ".join(t for t in right if t)


def conditions(profile: Profile) -> str:
    """One line of what pilot (round 0) and rounds ran under: ranges, facts that hold, in file order."""
    rounds = [{**c, **c.get("values", {})} for c in profile.conditions]
    names = dict.fromkeys(name for values in rounds for name in values if name not in ("round", "record"))
    count = sum(values.get("round") != 0 for values in rounds)
    parts = [units.counted(count, "round")] if rounds else ["not recorded"]
    for name in names:
        text = _condition(name, [_scalar(values.get(name)) for values in rounds])
        parts += [text] if text else []
    return " · ".join(parts)


def _scalar(value: Any) -> Any:
    """The first entry of a list: the one-minute load average."""
    return value[0] if isinstance(value, list | tuple) and value else value


def _condition(name: str, found: list[Any]) -> str:
    phrase = PHRASES.get(name, re.sub("_(bytes|seconds|hz)$", "", name).replace("_", " "))
    flags = [value for value in found if isinstance(value, bool)]
    words = [value for value in found if isinstance(value, str) and value]
    numbers = [v for v in found if isinstance(v, int | float) and not isinstance(v, bool)]
    if flags:
        share = sum(flags) / len(flags)
        return phrase if share == 1 else f"{phrase} in {percent(share)} of rounds" if share else ""
    if words:
        return f"{phrase} {' / '.join(dict.fromkeys(words))}"
    if not any(numbers) and (name != "load_average" or not numbers):
        return ""
    show = UNITS.get(name.rpartition("_")[2], _pure)
    low, high = show(min(numbers)), show(max(numbers))
    return f"{phrase} {low if low == high else f'{low} to {high}'}".strip()


def _pure(value: float) -> str:
    """A count as it is, anything else on two digits."""
    return str(value) if isinstance(value, int) else number(value, 2)
