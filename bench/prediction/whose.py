"""Whose profile a prediction rests on, and whether that is the machine that is asked."""

from __future__ import annotations

from bench.profile.records import Profile

SAME = ("device", "vendor", "family", "model", "threads")
"""What of a CPU's identity must be equal for it to be this machine."""


def elsewhere(profile: Profile) -> str:
    """In words, why the profile is not of this machine; "" where it is, or where it is simulated."""
    kind = profile.facts.get("device", {}).get("kind") or profile.identity.get("kind")
    if profile.simulated or kind == "simulated":
        return ""
    if kind == "cuda":
        return _gpu(profile)
    from bench import host
    from bench.errors import DeviceError

    try:
        here = host.cpu_device().identity
    except DeviceError:
        return ""
    other = [name for name in SAME if name in profile.identity and profile.identity[name] != here.get(name)]
    said = ", ".join(f"{name} {profile.identity[name]} there, {here.get(name)} here" for name in other)
    return f"this is another machine ({said}): the times are those of the profile's device" if said else ""


def _gpu(profile: Profile) -> str:
    from bench.gpu import survey

    names = [gpu.visible.name for gpu in survey.survey().gpus]
    name = str(profile.facts.get("device", {}).get("name", ""))
    if name in names:
        return ""
    return f"no {name} can be seen here: the times are those of the profile's device"
