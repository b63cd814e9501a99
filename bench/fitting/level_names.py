"""Names for the plateaus of a sweep, from what the system reports of its caches: never a wrong one.

A plateau gets the name of a level whose reported capacity lies, within a quarter, between where the rate
begins to fall and where it has fallen half-way (a cache that replaces at random falls slowly). Where none
does, or the rate falls on behind it, there is a name only if one reported level is left that could be meant,
and a sentence says what differs; otherwise the plateau stays without a name, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.fitting.levels import Plateau

AS_REPORTED = 1.25
"""Factor within which a detected capacity is the reported one."""

SLOW_FALL = 2.0
"""Factor over the reported capacity from which the half-way point no longer tells what a level holds."""

NEAR_PART = 2.0
"""A GPU's L2 has two parts as seen from an SM: the near one ends at half of the reported capacity."""

LEAST_SHARE = 1 / 64
"""A share of a cache smaller than this is none."""

CLOSE = 4.0
"""Factor behind what one level holds within which the next one's plateau begins: no other fits between."""

UNNAMED = ""

A_SLOW_FALL, OF_REPORTED = "a slow fall", "that the system reports: "
"""Words of a reason that reports look for: that a capacity cannot be read from its sweep; and behind which it
says why a level holds another amount than reported."""

AS_FAR = "as reported, as far as the sets of this sweep tell"

NO_END = "where it ends cannot be told"
"""The same of a level whose capacity the sweep leaves open."""


@dataclass(frozen=True)
class Level:
    """A plateau with its name ("" without one), the reported capacity (byte or None), and why in words."""

    name: str
    plateau: Plateau
    reported: float | None
    why: str

    @property
    def record(self) -> dict[str, Any]:
        """As it stands in Curve.plateaus["levels"]; SI, plain JSON values."""
        p, held = self.plateau, self.plateau.capacity
        return {
            "name": self.name,
            "value": p.value.value,
            "value_low": p.value.low,
            "value_high": p.value.high,
            "from_bytes": p.low,
            "to_bytes": p.high,
            "capacity_bytes": held.value if held else None,
            "capacity_low": held.low if held else None,
            "capacity_high": held.high if held else None,
            "reported_bytes": self.reported,
            "seen_in_rounds": p.seen,
            "of_rounds": p.rounds,
            "why": self.why,
        }


def reported(device: Mapping[str, Any], threads: int) -> dict[str, float]:
    """Byte of each level that every one of `threads` spread-out threads has to itself, as the system says."""
    found = {}
    for cache in device.get("caches", ()):
        size, instances = float(cache["bytes"]), float(cache["instances"])
        found[str(cache["level"])] = min(size, size * instances / max(1, threads))
    return {level: size for level, size in found.items() if size > 0}


def named(
    plateaus: Sequence[Plateau], known: Mapping[str, float], is_gpu: bool = False, end: float | None = None
) -> list[Level]:
    """The plateaus with names; known: reported byte of each level that the working set compares with.

    end: largest working set of the sweep, where that may lie behind the last plateau
    The name DRAM goes to the last plateau only, where the last cache was seen or it begins behind it.
    """
    taken = _matched(plateaus, known)
    levels: list[Level] = []
    for k, plateau in enumerate(plateaus):
        if plateau.capacity is None:
            levels.append(_last(plateau, known, levels, end))
        elif k in taken:
            levels.append(_agreed(plateau, taken[k], known))
        else:
            levels.append(_explained(k, plateaus, taken, known, is_gpu))
            if name := levels[-1].name:
                taken = {**taken, k: name}
    hidden = invisible(levels, known)
    levels = [_without_end(levels, k, hidden, known) for k in range(len(levels))]
    return [
        _with_hidden(level, [n for n in hidden if known[n] > level.plateau.low], known) for level in levels
    ]


def _without_end(levels: Sequence[Level], k: int, hidden: Sequence[str], known: Mapping[str, float]) -> Level:
    """The level without a capacity beyond the reported one where one not seen lies before the next plateau.

    Half-way to that plateau the rate has fallen through both.
    """
    level, held = levels[k], levels[k].plateau.capacity
    if level.name not in known or held is None or A_SLOW_FALL in level.why:
        return level
    if held.value <= AS_REPORTED * known[level.name]:
        return level
    between = [n for n in hidden if known[level.name] < known[n] < levels[k + 1].plateau.high]
    if not between:
        return level
    why = f"{level.why}; {NO_END} without {' and '.join(between)} behind it"
    return replace(level, plateau=replace(level.plateau, capacity=None), why=why)


def _with_hidden(level: Level, inside: Sequence[str], known: Mapping[str, float]) -> Level:
    """The level, with a word about nearer ones whose working sets are part of its plateau."""
    nearer = [name for name in inside if level.name in known and known[name] < known[level.name]]
    if not nearer:
        return level
    return replace(level, why=f"{level.why}; nothing sets {' and '.join(nearer)} apart from it")


def invisible(levels: Sequence[Level], known: Mapping[str, float]) -> list[str]:
    """Reported levels of which no plateau tells."""
    named_so = {level.name.split()[0] for level in levels if level.name}
    return [name for name in known if name not in named_so]


def _candidates(name: str, known: Mapping[str, float]) -> list[tuple[float, str]]:
    """Capacities by which a level may show: its own, or with the one before, whose dropped lines it holds."""
    names = list(known)
    before = [known[other] for other in names[: names.index(name)] if known[other] < known[name]]
    both = [(known[name], "as reported")]
    if before:
        both.append((known[name] + max(before), "as reported together with the level before it"))
    return both


def _off(plateau: Plateau, size: float) -> float:
    """Factor by which a size misses the range in which a plateau's level ends; 1 inside it."""
    assert plateau.capacity
    low, high = sorted((plateau.high, plateau.capacity.value))
    return max(low / size, size / high, 1.0)


def _matched(plateaus: Sequence[Plateau], known: Mapping[str, float]) -> dict[int, str]:
    """Plateau -> level for capacities that agree, the closest pair first, order kept."""
    pairs = []
    for k, plateau in enumerate(plateaus):
        if plateau.capacity:
            for name in known:
                ways = [size for size, _ in _candidates(name, known)]
                off = min(_off(plateau, size) for size in ways)
                middle = (plateau.high * plateau.capacity.value) ** 0.5
                pairs.append((off, abs(math.log(middle / known[name])), k, name))
    found: dict[int, str] = {}
    order = {name: i for i, name in enumerate(sorted(known, key=lambda n: known[n]))}
    for off, _, k, name in sorted(pairs):
        if off > AS_REPORTED or k in found or name in found.values():
            continue
        if all((k < other) == (order[name] < order[their]) for other, their in found.items()):
            found[k] = name
    return found


def _agreed(plateau: Plateau, name: str, known: Mapping[str, float]) -> Level:
    from bench.report.units import capacity

    size, why = min(_candidates(name, known), key=lambda way: _off(plateau, way[0]))
    assert plateau.capacity
    if plateau.capacity.value > SLOW_FALL * size:
        half = capacity(plateau.capacity.value)
        why += f", though flat only to {capacity(plateau.high)} and half-way down at {half}: {A_SLOW_FALL}"
    return Level(name, plateau, known[name], why)


def _last(
    plateau: Plateau, known: Mapping[str, float], before: Sequence[Level], end: float | None = None
) -> Level:
    """The plateau that the sweep ends on, or falls behind; `before`: the levels with their names so far."""
    from bench.report.units import capacity

    name = max(known, key=lambda level: known[level], default="")
    if not known:
        return Level(UNNAMED, plateau, None, "the system reports no caches")
    if end is not None and end > AS_REPORTED * plateau.high and plateau.high <= AS_REPORTED * known[name]:
        why = (
            f"the rate falls behind {capacity(plateau.high)}, and no level behind it lies flat in this sweep"
        )
        if only := _only_one(plateau, before, known):
            return Level(
                only, plateau, known[only], f"behind {before[-1].name} inside {only}; {why}: {NO_END}"
            )
        return Level(UNNAMED, plateau, None, why)
    if plateau.high <= AS_REPORTED * known[name]:
        return Level(UNNAMED, plateau, None, "the sweep ends inside the reported caches")
    seen = {level.name.split()[0] for level in before if level.name}
    if name in seen or plateau.low > known[name] / AS_REPORTED:
        return Level("DRAM", plateau, None, "behind all reported caches")
    why = f"{name} or DRAM: nothing changes at the {capacity(known[name])} that the system reports for {name}"
    return Level(UNNAMED, plateau, None, why)


def _only_one(plateau: Plateau, before: Sequence[Level], known: Mapping[str, float]) -> str:
    """The reported level that a plateau before a fall can only be, "" where another one may be meant.

    It follows closely on the plateau named after the level before it, and lies inside its reported capacity.
    """
    names = list(known)
    last = before[-1] if before else None
    if last is None or last.name not in names[:-1] or last.plateau.capacity is None:
        return ""
    if names != sorted(names, key=lambda name: known[name]):  # a share of one level below the one before it
        return ""
    name = names[names.index(last.name) + 1]
    held = last.plateau.capacity.value
    is_inside = max(held, known[last.name]) <= plateau.low < plateau.high <= known[name]
    is_share = plateau.high > LEAST_SHARE * known[name]
    return name if is_inside and is_share and plateau.low <= CLOSE * held else ""


def _explained(
    k: int, plateaus: Sequence[Plateau], taken: Mapping[int, str], known: Mapping[str, float], is_gpu: bool
) -> Level:
    """A plateau whose capacity no reported level has."""
    from bench.report.units import capacity

    plateau = plateaus[k]
    assert plateau.capacity
    size = plateau.capacity.value
    free = [name for name in known if name not in taken.values() and _in_order(k, name, taken, known)]
    above = sorted((name for name in free if known[name] > size), key=lambda name: known[name])
    if is_gpu and (whole := _near_part_of(k, plateau, taken, known)):
        return Level(f"{whole} near part", plateau, known[whole], "half of it: the near part of a partition")
    if above and _is_alone(k, plateaus, taken, known, above[0]) and size > LEAST_SHARE * known[above[0]]:
        name = above[0]
        if (behind := plateaus[k + 1]).first == plateau.last + 1 and behind.low >= known[name]:
            why = f"{AS_FAR}: nothing lies between {capacity(plateau.high)} and {capacity(behind.low)}"
            return Level(name, plateau, known[name], why)
        why = f"{capacity(size)} of the {capacity(known[name])} {name} {OF_REPORTED}" + (
            "the part near one SM, or a share of it" if is_gpu else "a virtual machine or a share of a cache"
        )
        return Level(name, plateau, known[name], why)
    return Level(UNNAMED, plateau, None, f"no reported level ends at {capacity(size)}")


def _is_alone(
    k: int, plateaus: Sequence[Plateau], taken: Mapping[int, str], known: Mapping[str, float], name: str
) -> bool:
    """Whether plateau k alone, of those without a name, ends between the level before `name` and `name`."""
    before = max((size for size in known.values() if size < known[name]), default=0.0)
    left = [(j, p.capacity.value) for j, p in enumerate(plateaus) if p.capacity and j not in taken]
    ends = [j for j, size in left if before < size < known[name]]
    assert plateaus[k].capacity
    return ends == [k] and plateaus[k].capacity.value > AS_REPORTED * before  # type: ignore[union-attr]


def _in_order(k: int, name: str, taken: Mapping[int, str], known: Mapping[str, float]) -> bool:
    return all((k < j) == (known[name] < known[other]) for j, other in taken.items())


def _near_part_of(k: int, plateau: Plateau, taken: Mapping[int, str], known: Mapping[str, float]) -> str:
    """The level behind this plateau whose half its capacity is, "" where there is none."""
    behind = taken.get(k + 1, "")
    return behind if behind and _off(plateau, known[behind] / NEAR_PART) <= AS_REPORTED else ""
