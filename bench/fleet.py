"""Many results together: how boards of one model differ, which is off, and what one model is to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import compare, store
from bench.errors import FileError, UsageError
from bench.profile.records import Ceiling, Interval, Profile
from bench.report import heading, roofs

LEAST = 3
"""Boards of a model from which on the one that is off can be told from the others."""


@dataclass(frozen=True)
class Member:
    """One result, by a name that tells it from the others."""

    name: str
    profile: Profile

    @property
    def model(self) -> str:
        """What it is compared within: device and how much of it takes part, in the state it was in."""
        count = heading.counted(self.profile, heading.threads(self.profile))
        state = heading.state(self.profile)
        words = [heading.device_name(self.profile), count, *([f"state {state}"] if state else [])]
        simulated = self.profile.simulated and not words[0].startswith("SIMULATED")
        return "SIMULATED " * simulated + " · ".join(words)

    def headlines(self) -> dict[compare.Key, Ceiling]:
        """The ceilings that a roofline is made of, by what must be equal to compare them."""
        found = [*roofs.peaks(self.profile), *roofs.peaks(self.profile, library=True)]
        found += [*roofs.main_memory(self.profile), *roofs.links(self.profile)]
        return {compare.key_of(c): c for c in found}


@dataclass(frozen=True)
class Outlier:
    """A member whose ceiling lies beyond the margin from the middle one's, and its ratio to that."""

    member: str
    ratio: Interval
    verdict: str


@dataclass(frozen=True)
class Line:
    """One ceiling of a model: the middle of its members, the ends, and who is off (unknown below LEAST)."""

    name: str
    unit: str
    count: int
    median: float
    lowest: float
    highest: float
    lowest_member: str
    outliers: tuple[Outlier, ...]

    @property
    def spread(self) -> float:
        """From the lowest to the highest, as a share of the middle."""
        return (self.highest - self.lowest) / self.median


@dataclass(frozen=True)
class Model:
    """All results of one device in one state. causes: what triage said of each member, by its name."""

    name: str
    members: tuple[str, ...]
    lines: tuple[Line, ...]
    causes: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Side:
    """One ceiling across models: the middle of each, None where it has none, and its ratio to the first's."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    ratios: tuple[float | None, ...]


@dataclass(frozen=True)
class Fleet:
    """Everything that `fleet` says; the JSON of the verb is this record. unread: why some were left out."""

    margin: float
    models: tuple[Model, ...]
    sides: tuple[Side, ...]
    unread: tuple[str, ...] = ()


def gathered(folders: Sequence[Path], results: Path) -> list[Path]:
    """The result folders that are named, each itself or those below it; all under `results` when none is.

    FileError for a folder that holds none.
    """
    found: list[Path] = []
    for folder in folders or [results]:
        inside = sorted({path.parent for path in folder.rglob("profile.json")}) if folder.is_dir() else []
        if not inside:
            raise FileError(f"no profile.json in or below {folder}: name result folders, or their parents")
        found += [path for path in inside if path not in found]
    return found


def read(folders: Sequence[Path]) -> tuple[list[Member], tuple[str, ...]]:
    """The members, and why others cannot be read; FileError, the first of these reasons, where none can."""
    found, refused = [], []
    for name, folder in zip(named(folders), folders, strict=True):
        try:
            found.append(Member(name, store.read_profile(folder)))
        except FileError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found, tuple(map(str, refused))


def named(folders: Sequence[Path]) -> list[str]:
    """A short name for each: as many of the last parts of its path as tell all of them apart."""
    whole = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, whole)) + 1):
        names = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(names)) == len(names):
            break
    return names


def fleet(members: Sequence[Member], allow_simulated: bool = False, unread: Sequence[str] = ()) -> Fleet:
    """Members by model, in the order given; UsageError where some are simulated and others are not."""
    if len({member.profile.simulated for member in members}) > 1 and not allow_simulated:
        raise UsageError(
            "some of these results are SIMULATED and others measured; --allow-simulated mixes them"
        )
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.model, []).append(member)
    models = tuple(_model(name, group) for name, group in groups.items())
    sides = tuple(_sides(list(groups.values()))) if len(groups) > 1 else ()
    return Fleet(compare.MARGIN, models, sides, tuple(unread))


def _model(name: str, members: Sequence[Member]) -> Model:
    held = [(member, member.headlines()) for member in members]
    keys = dict.fromkeys(key for _, ceilings in held for key in ceilings)
    lines = [_line([(m.name, ceilings[key]) for m, ceilings in held if key in ceilings]) for key in keys]
    causes = {
        m.name: tuple(dict.fromkeys(str(f["cause"]) for f in m.profile.facts.get("findings", ())))
        for m in members
    }
    return Model(name, tuple(m.name for m in members), tuple(lines), causes)


def _line(held: Sequence[tuple[str, Ceiling]]) -> Line:
    ordered = sorted(held, key=lambda pair: pair[1].estimate.value)
    values = [ceiling.estimate.value for _, ceiling in ordered]
    middle = ordered[len(ordered) // 2][1]
    return Line(
        compare.ceiling_name(middle),
        middle.unit,
        len(values),
        median(values),
        values[0],
        values[-1],
        ordered[0][0],
        tuple(_outliers(ordered, middle)) if len(ordered) >= LEAST else (),
    )


def _outliers(held: Sequence[tuple[str, Ceiling]], middle: Ceiling) -> Iterator[Outlier]:
    """Those whose value lies beyond the margin, and whose interval does not hold the middle one's."""
    for name, ceiling in held:
        ratio = compare.ratio_interval(middle, ceiling)
        said = compare.verdict(ratio, ceiling.unit)
        near = 1 / (1 + compare.MARGIN) <= ratio.value <= 1 + compare.MARGIN
        if not near and said not in (compare.SAME, compare.CANNOT_TELL):
            yield Outlier(name, ratio, said)


def _sides(groups: Sequence[Sequence[Member]]) -> Iterator[Side]:
    """Ceilings that two models or more hold; keys leave out how many threads or SMs take part."""
    held = [[member.headlines() for member in group] for group in groups]
    keys = dict.fromkeys(key for group in held for ceilings in group for key in ceilings)
    for key in keys:
        found = [[ceilings[key] for ceilings in group if key in ceilings] for group in held]
        values = [median(c.estimate.value for c in group) if group else None for group in found]
        if sum(value is not None for value in values) < 2:
            continue
        first = next(group[0] for group in found if group)
        base = values[0]
        ratios = [value / base if value and base else None for value in values]
        yield Side(compare.ceiling_name(first), first.unit, tuple(values), tuple(ratios))
