"""Datasheet and published figures of known devices: load, search, match a device to at most one of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.checkout import CHECKOUT
from bench.errors import FileError, UsageError

FOLDER = CHECKOUT / "results" / "reference"
"""Where the two tables lie in every checkout; results/reference/README.md explains their columns."""

DATASHEET, MEASURED = "datasheet", "measured"

BRANDS = {"nvidia", "tesla", "geforce", "amd", "instinct"}
"""Words of a reported name that drivers add or leave out; every other word matters."""

LEAST_MEMORY, MOST_MEMORY = 0.88, 1.05
"""Memory that CUDA shows as a share of the nominal GiB: ECC on GDDR takes 1/16, the driver a little."""


@dataclass(frozen=True)
class Figure:
    """One row of figures.csv: a figure of one device with its source.

    value in SI as `unit` says;  kind: datasheet | measured;  precision: as Precision.label
    sparsity: dense on every datasheet peak;  sm_clock_mhz: which the peak counts or was held, None unknown
    regime, operands: empty where the source does not say
    """

    device: str
    vendor: str
    arch: str
    cc: str
    quantity: str
    precision_or_level: str
    value: float
    unit: str
    kind: str
    source: str
    precision: str = ""
    level: str = ""
    access: str = ""
    operands: str = ""
    regime: str = ""
    sparsity: str = ""
    sm_clock_mhz: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Name:
    """One row of names.csv: what a driver calls a device, and its nominal memory in GiB."""

    device: str
    reported_name: str
    memory_gib: float
    source: str


@dataclass(frozen=True)
class Match:
    """The reference device of a measured one, or an empty name and in words why there is none."""

    device: str
    why: str = ""


@dataclass(frozen=True)
class Reference:
    """Both tables, in the order of the files."""

    figures: tuple[Figure, ...]
    names: tuple[Name, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device there are figures of."""
        return tuple(dict.fromkeys(f.device for f in self.figures))

    def of(self, device: str) -> tuple[Figure, ...]:
        """All figures of one device."""
        return tuple(f for f in self.figures if f.device == device)


# reading


def load(folder: Path = FOLDER) -> Reference:
    """Both tables of a folder; FileError names the file, the line and what is wrong with it."""
    figures = tuple(_figure(row, where) for row, where in _lines(folder / "figures.csv", Figure))
    names = tuple(_name(row, where) for row, where in _lines(folder / "names.csv", Name))
    found = {f.device for f in figures}
    if strange := [n.device for n in names if n.device not in found]:
        raise FileError(f"names.csv names {strange[0]!r}, of which figures.csv holds nothing: correct one")
    return Reference(figures, names)


@lru_cache(maxsize=1)
def known() -> Reference:
    """The tables of this checkout, read once."""
    return load()


def _lines(path: Path, record: type[Figure] | type[Name]) -> Iterator[tuple[dict[str, str], str]]:
    """Every line as a mapping, with its place in words."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"reference figures cannot be read ({path.name}: {error}): restore it") from None
    reader = csv.DictReader(text.splitlines(), strict=True)
    wanted = [f.name for f in fields(record)]
    if list(reader.fieldnames or ()) != wanted:
        raise FileError(f"{path.name} must begin with the line {','.join(wanted)}: restore the file")
    try:
        for row in reader:
            where = f"{path.name}, line {reader.line_num}"
            if None in row or None in row.values():
                raise FileError(f"{where}: {len(wanted)} cells are needed: quote commas and fill in the rest")
            yield row, where
    except csv.Error as error:
        raise FileError(f"{path.name}, line {reader.line_num}: {error}: correct the line") from None


def _figure(row: Mapping[str, str], where: str) -> Figure:
    clock, numbers = row["sm_clock_mhz"], ("value", "sm_clock_mhz")
    found = Figure(
        value=_number(row["value"], "value", where),
        sm_clock_mhz=_number(clock, "sm_clock_mhz", where) if clock else None,
        **{name: text for name, text in row.items() if name not in numbers},
    )
    if found.kind not in (DATASHEET, MEASURED):
        raise FileError(f"{where}: kind is {found.kind!r}; valid: {DATASHEET}, {MEASURED}")
    if lack := [name for name in ("device", "quantity", "unit", "source") if not row[name]]:
        raise FileError(f"{where}: {lack[0]} is empty: a figure says whose it is, its unit and its source")
    return found


def _name(row: Mapping[str, str], where: str) -> Name:
    memory = _number(row["memory_gib"], "memory_gib", where)
    return Name(row["device"], row["reported_name"], memory, row["source"])


def _number(text: str, what: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise FileError(f"{where}: {what} is {text!r}, which is no positive number: correct the line")
    return value


# matching


def words(text: str) -> list[str]:
    """The words of a device's name, in lower case and without brands."""
    return [word for word in re.findall(r"[a-z0-9.]+", text.lower()) if word not in BRANDS]


def match(
    name: str,
    memory_bytes: float | None = None,
    sms: int | None = None,
    cc: str = "",
    reference: Reference | None = None,
) -> Match:
    """The one device that a driver reports under this name, if memory, SMs and capability agree where known.

    Every word counts: "H100 PCIe" is no H100 SXM5, "RTX 4090 D" and a slice ("MIG 1g.10gb") are nobody.
    """
    reference = reference or known()
    wanted = sorted(words(name))
    named = [n for n in reference.names if sorted(words(n.reported_name)) == wanted]
    if not named:
        return Match("", f"no reference figures of {name!r}")
    if memory_bytes:
        gib = memory_bytes / 2**30
        named = [n for n in named if LEAST_MEMORY <= gib / n.memory_gib <= MOST_MEMORY]
        if not named:
            return Match("", f"no reference figures of a {name!r} with {gib:.0f} GiB")
    (device,) = {n.device for n in named}
    return _confirmed(device, sms, cc, reference)


def _confirmed(device: str, sms: int | None, cc: str, reference: Reference) -> Match:
    figures = reference.of(device)
    counted = next((round(f.value) for f in figures if f.quantity == "sm_count"), None)
    if sms and counted and sms != counted:
        return Match("", f"{sms} SMs are usable where a {device} has {counted}")
    if cc and figures and cc != figures[0].cc:
        return Match("", f"compute capability {cc} is not that of a {device}")
    return Match(device)


def of_device(device: Mapping[str, Any], reference: Reference | None = None) -> Match:
    """The reference device of a run's device (as in its header): only whole, real GPUs have one."""
    facts, name = device.get("facts", {}), str(device.get("name", ""))
    if device.get("kind") != "cuda":
        return Match("", f"no reference figures of {name!r}")
    if facts.get("mig") or device.get("identity", {}).get("mig") or "mig" in words(name):
        return Match("", f"{name!r} is a slice of a GPU: figures of the whole do not apply")
    capability = facts.get("compute_capability")
    cc = f"{capability / 10:.1f}" if capability else ""
    return match(name, device.get("memory_bytes"), device.get("threads"), cc, reference)


# searching


def search(text: str, reference: Reference | None = None) -> tuple[str, ...]:
    """Devices that have every word of the text, else a word that begins with it; all for an empty text.

    UsageError where there is none: nobody's figures are shown for another's.
    """
    reference = reference or known()
    wanted = words(text) or text.lower().split()
    texts = {device: list(_texts(device, reference)) for device in reference.devices}
    for fits in (_same, _begins):
        found = [d for d, lines in texts.items() if any(_has(line, wanted, fits) for line in lines)]
        if found:
            return tuple(found)
    raise UsageError(
        f"{text!r} is unknown: there are no reference figures of it, and those of another device are not its "
        f"own; `python -m bench reference` lists the {len(texts)} devices that are known"
    )


def _texts(device: str, reference: Reference) -> Iterator[list[str]]:
    """The words under which a device is found: its name with its kind, and each name a driver gives it."""
    first = reference.of(device)[0]
    kind = re.findall(r"[a-z0-9.]+", f"{first.vendor} {first.arch} {first.cc}".lower())
    for name in (device, *(n.reported_name for n in reference.names if n.device == device)):
        yield [*words(name), *kind]


def _same(word: str, wanted: str) -> bool:
    return word == wanted


def _begins(word: str, wanted: str) -> bool:
    return word.startswith(wanted)


def _has(line: Sequence[str], wanted: Iterable[str], fits: Any) -> bool:
    return all(any(fits(word, one) for word in line) for one in wanted)
