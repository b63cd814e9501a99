"""The part of the printed report about the memory and link hierarchy: levels, links, launches, overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.fitting import offload
from bench.profile.records import Ceiling, Curve, Interval, Profile
from bench.report import grid, heading, level_remarks, pipelines, roofs, starts
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.hierarchy_curves import BY_GPUS
from bench.report.units import bare, capacity, duration, number, percent, plus_minus, si

LEVELS: tuple[tuple[str, Side], ...] = (
    ("level", WORDS),
    ("holds", NUMBERS),
    ("reported", NUMBERS),
    ("read", NUMBERS),
    ("write", NUMBERS),
    ("update", NUMBERS),
    ("copy", NUMBERS),
    ("latency", NUMBERS),
    ("95 %", NUMBERS),
    ("cycles", NUMBERS),
    ("verdict", WORDS),
)

LINKS: tuple[tuple[str, Side], ...] = (
    ("link", WORDS),
    ("way", WORDS),
    ("moved by", WORDS),
    ("β", NUMBERS),
    ("95 %", NUMBERS),
    ("bus β", NUMBERS),
    ("α", NUMBERS),
    ("95 %", NUMBERS),
    ("n½", NUMBERS),
    ("verdict", WORDS),
)

BUS = 5
"""Column of LINKS with the bus bandwidth, which only collectives have; alpha and its width follow."""

FLOWS = ("host link", "device", "peer", "NUMA", "storage", "page cache", "node network", "network")
"""Links in the order of the report, by the first word of their name; others behind them."""


AN_SM = " an SM"
"""End of the mode of an intensity sweep at low occupancy."""

SEEN = 0.1
"""Share of beta that the largest smallest kernel must reach for its V / beta to be seen beside T0."""

MOST_TWO_LINES = 3
"""Links whose change of lines is told; all are in the profile."""


def part(profile: Profile) -> Iterable[Text | Table]:
    """The section "Memory and links", nothing where only β of levels was measured."""
    deeper = [c for c in profile.ceilings if c.quantity in ("latency", "t0", "capacity") or roofs.is_link(c)]
    if not deeper:
        return
    note = "holds: one instance; α: time of the smallest transfer; n½: size at half of β"
    yield grid.section("Memory and links", note)
    yield grid.table(LEVELS, (_level(name, profile) for name in _levels(profile)))
    about = (*level_remarks.remarks(profile), *level_remarks.walked(profile))
    lines = (*about, *_about_parallelism(profile), *_occupancies(profile))
    yield from (Text(line, style="dim") for line in lines)
    rows = list(_links(profile))
    if any(row[BUS] for row in rows):
        rows = [(*row[: BUS + 2], "", *row[BUS + 3 :]) for row in rows]  # no room for the width of alpha
    if rows:
        yield Text()
        yield grid.table(LINKS, rows)
        yield Text("links count one way; both ways at once is the sum of the two", style="dim")
        yield from (Text(line, style="dim") for line in (*_spreads(profile), *_two_lines(profile)))
    yield from (Text(line, style="dim") for line in (*_collectives(profile), *_launches(profile)))
    yield from pipelines.part(profile)
    yield from (Text(line, style="dim") for line in _misfit(profile))


def _levels(profile: Profile) -> list[str]:
    """Names of the memory levels, nearest first: as reported, then whatever else was measured."""
    known = [str(cache["level"]) for cache in _caches(profile)]
    measured = [c.level for c in profile.ceilings if c.level and c.quantity != "t0" and not roofs.is_link(c)]
    behind = [name for name in dict.fromkeys(measured) if name not in known and name != "DRAM"]
    return [*known, *behind, *(["DRAM"] if "DRAM" in measured else [])]


def _caches(profile: Profile) -> Sequence[Mapping[str, Any]]:
    caches: Sequence[Mapping[str, Any]] = profile.facts.get("device", {}).get("caches", ())
    return caches


def _level(name: str, profile: Profile) -> Sequence[str]:
    rates = {c.access: c for c in roofs.diagonals(profile) if c.level == name}
    latency = next((c for c in _latencies(profile) if c.level == name), None)
    held = _held(name, profile)
    claimed = next((float(c["bytes"]) for c in _caches(profile) if c["level"] == name), None)
    if name == "DRAM":
        claimed = profile.facts.get("device", {}).get("memory_bytes") or None
    return (
        name,
        capacity(held.estimate.value) if held else "",
        capacity(claimed) if claimed else "",
        *(
            si(rates[a].estimate.value, "byte/s") if a in rates else ""
            for a in ("read", "write", "update", "copy")
        ),
        duration(latency.estimate.value) if latency else "",
        plus_minus(latency.estimate.half_width) if latency else "",
        _cycles(latency, profile),
        roofs.verdict(latency) if latency else "",
    )


def _held(name: str, profile: Profile) -> Ceiling | None:
    """What a level holds, by reads on most threads, else by chases."""
    found = [c for c in profile.ceilings if c.quantity == "capacity" and c.level == name]
    return max(found, key=lambda c: (c.kernel == "cache-read", c.threads), default=None)


def _latencies(profile: Profile) -> list[Ceiling]:
    """Latencies of the full random walk."""
    return [c for c in profile.ceilings if c.quantity == "latency" and c.kernel == "chase"]


def _cycles(latency: Ceiling | None, profile: Profile) -> str:
    """In cycles of the clock held, where one is known."""
    if latency is None:
        return ""
    clock = latency.clock_hz or profile.facts.get("device", {}).get("facts", {}).get("clock_hz")
    return number(latency.estimate.value * clock) if clock else ""


def _about_parallelism(profile: Profile) -> Iterator[str]:
    """Bytes in flight beside Little's law, and how rates grow with cores or SMs."""
    for curve in profile.curves:
        found = curve.plateaus
        if curve.kind == "concurrency":
            little = (
                f", Little's law asks for {_size(found['little_bytes'])}" if "little_bytes" in found else ""
            )
            half = (
                f"half of it with {_size(found['half_bytes'])} in flight" if found["half_bytes"] else "flat"
            )
            rising = "at least " if found["rising"] else ""
            who = f", {curve.threads} at once" if curve.threads > 1 else ""
            yield f"{curve.mode} by chains{who}: {rising}{si(found['beta'], 'byte/s')}, {half}{little}"
    yield from _scaled([c for c in profile.curves if c.kind == "cores"], profile)


def _scaled(curves: Sequence[Curve], profile: Profile) -> Iterator[str]:
    """How much faster all cores or SMs are than the fewest, and how many take up nine tenths of it."""
    own = heading.unit(profile)
    ends: dict[tuple[float, float, str], list[str]] = {}
    for curve in curves:
        found = curve.plateaus
        count = found["nearly_units"]
        early = f" (nine tenths from {count} on)" if count < 0.8 * curve.points[-1].x else ""
        mode, unit = curve.mode.removesuffix(BY_GPUS), "GPU" if curve.mode.endswith(BY_GPUS) else own
        gain = f"{mode} {number(found['all'] / found['first'])}x{early}"
        ends.setdefault((curve.points[0].x, curve.points[-1].x, unit), []).append(gain)
    for (few, many, unit), times in ends.items():
        yield f"{many:.0f} {unit}s over {few:.0f}: {', '.join(times)}"


def _occupancies(profile: Profile) -> Iterator[str]:
    """p of an intensity sweep with few threads an SM beside that with all that fit."""
    mixes = [c for c in profile.curves if c.kind == "mix"]
    for few in (c for c in mixes if c.mode.endswith(AN_SM)):
        mode, _, blocks = few.mode.rpartition(", ")
        full = next((c for c in mixes if c.mode == mode and c.precision == few.precision), None)
        fits = [next((f for f in c.fits if f.form == "p-norm"), None) for c in (few, full) if c]
        told = [f"p {number(f.p, 2)} (ω {f.omega.value:.2f})" for f in fits if f and f.p]
        if len(told) == 2:
            sweep = f"{few.precision.label} {mode}"
            yield f"overlap within a kernel, {sweep}: {told[0]} with {blocks}, {told[1]} full"


def _size(value: float) -> str:
    return si(value, "byte")


def _links(profile: Profile) -> Iterator[Sequence[str]]:
    """One row for each way over a link; pairs of peers or memory nodes share one."""
    yield from (_link(key, curves, profile) for key, curves in _ways(profile).items())


def _ways(profile: Profile) -> dict[tuple[str, str, str, str], list[Curve]]:
    """The curves of each kind of link, way, kernel and variant, in the order of the report."""
    groups: dict[tuple[str, str, str, str], list[Curve]] = {}
    for curve in profile.curves:
        if curve.kind in ("link", "collective"):
            found = curve.plateaus
            level = str(found["level"])
            kind = level.split(" ")[0] if ">" in level else level
            key = (kind, str(found["access"]), str(found["kernel"]), str(found["variant"]))
            groups.setdefault(key, []).append(curve)
    return {key: groups[key] for key in sorted(groups, key=lambda key: _flow(key, groups))}


def _spreads(profile: Profile) -> Iterator[str]:
    """From the slowest to the fastest of the pairs that share a row."""
    for (kind, way, kernel, _), curves in _ways(profile).items():
        rates = sorted(float(c.plateaus["beta"]) for c in curves if "beta" in c.plateaus)
        if len(rates) > 1:
            ends = f"{bare(rates[0], 'byte/s', rates[-1])} to {si(rates[-1], 'byte/s')}"
            yield f"{kind} {way}, {kernel}: the median of {len(rates)} pairs stands for {ends}"


def _flow(
    key: tuple[str, ...], groups: Mapping[tuple[str, str, str, str], Sequence[Curve]]
) -> tuple[object, ...]:
    """Links in their order, of each the fastest means first, of that each direction before both."""
    known = [i for i, name in enumerate(FLOWS) if key[0].startswith(name)]
    same = [c for other, curves in groups.items() if (other[0], other[2]) == (key[0], key[2]) for c in curves]
    fastest = max((float(c.plateaus.get("beta", 0.0)) for c in same), default=0.0)
    both = key[1] in ("both", "exchange")
    return (known[0] if known else len(FLOWS), key[0], -fastest, key[2], key[3], both, key[1])


def _link(key: tuple[str, ...], curves: Sequence[Curve], profile: Profile) -> Sequence[str]:
    kind, way, kernel, variant = key
    fitted = [c.plateaus for c in curves if "beta" in c.plateaus]
    names = {str(c.plateaus["level"]) for c in curves}
    name = f"{kind}, {len(names)} pairs" if len(names) > 1 else names.pop()
    how = " ".join(dict.fromkeys((kernel, variant))).strip()
    access = "" if curves[0].kind == "collective" else way
    if not fitted:
        points = [p for c in curves for p in c.points]
        best, least = max(p.estimate.value for p in points), min(p.seconds for p in points)
        told = f"≥ {si(best, 'byte/s')}", "", "", f"≤ {duration(least)}", "", ""
        return (name, access, how, *told, "too few sizes to fit")
    middle = sorted(fitted, key=lambda f: f["beta"])[len(fitted) // 2]
    ceiling = _ceiling_of(middle, profile)
    return (
        name,
        access,
        how,
        si(middle["beta"], "byte/s"),
        plus_minus(ceiling.estimate.half_width) if ceiling else "",
        si(middle["bus_beta"], "byte/s") if middle.get("bus_beta") else "",
        _told(middle["alpha_s"], middle["alpha_high"], duration),
        plus_minus(_alpha(middle).half_width) if middle["alpha_s"] else "",
        _told(middle["half_bytes"], middle["half_high"], _size),
        roofs.verdict(ceiling) if ceiling else f"not reached: {percent(middle['reached_share'])}",
    )


def _told(value: float | None, most: float, text: Callable[[float], str]) -> str:
    """A fitted figure, or the most that it can be where the sizes do not tell it."""
    return f"≤ {text(most)}" if value is None else text(value)


def _alpha(found: Mapping[str, Any]) -> Interval:
    return Interval(found["alpha_s"], found["alpha_low"], found["alpha_high"])


def _two_lines(profile: Profile) -> Iterator[str]:
    """Links that change with the size of a transfer: alpha is of the one line, beta of the other."""
    found: dict[str, tuple[float, float]] = {}
    for curve in profile.curves:
        known = curve.plateaus
        if curve.kind in ("link", "collective") and len(known.get("lines", ())) > 1:
            (start, slow), (later, fast) = known["lines"]
            crossing = (later - start) / (1 / slow - 1 / fast) if slow != fast else 0.0
            name = " ".join(dict.fromkeys((str(known["level"]).split(" ")[0], known["kernel"])))
            found.setdefault(name, (slow, crossing))
    each = [f"{name} {si(beta, 'byte/s')} below {_size(volume)}" for name, (beta, volume) in found.items()]
    if each:
        yield f"two lines, α of the first, β and n½ behind it: {', '.join(each[:MOST_TWO_LINES])}"


def _ceiling_of(found: Mapping[str, Any], profile: Profile) -> Ceiling | None:
    same = ("level", "kernel", "variant", "access")
    betas = [c for c in profile.ceilings if c.quantity == "beta"]
    return next((c for c in betas if all(getattr(c, name) == found[name] for name in same)), None)


def _collectives(profile: Profile) -> Iterator[str]:
    """The convention, once."""
    said = {str(c.plateaus["convention"]) for c in profile.curves if c.kind == "collective"}
    yield from sorted(said)


def _launches(profile: Profile) -> Iterator[str]:
    """T0 of each way of starting something, and the smallest useful kernel."""
    yield from starts.starts(profile)
    for curve in profile.curves:
        found = curve.plateaus
        if curve.kind == "launch" and "beta" in found:
            start = _told(found["alpha_s"], found["alpha_high"], duration)
            if found["reached_share"] < SEEN:
                yield f"smallest useful kernel, {found['variant']}: {start}, work not seen"
                continue
            line = f"T = {start} + V / {si(found['beta'], 'byte/s')}"
            half = f"half of it work at {_told(found['half_bytes'], found['half_high'], _size)}"
            yield f"smallest useful kernel, {found['variant']}: {line}, {half}"


def _misfit(profile: Profile) -> Iterator[str]:
    """What a working set that does not fit costs: the slope of the link behind the memory."""
    if not (found := offload.beyond(profile.ceilings)):
        return
    held = _held("DRAM", profile)
    size = held.estimate.value if held else profile.facts.get("device", {}).get("memory_bytes")
    limit = f"beyond {capacity(size)}" if size else "what does not fit"
    way = " by ".join(dict.fromkeys((found["level"], found["kernel"])))
    yield (
        f"{limit}: a byte more comes over the {way} at {si(found['beta'], 'byte/s')}, "
        f"{number(found['slowdown'], 2)} times slower than DRAM"
    )
