"""The rates of a machine as it was measured, with the ends of their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bench import laws
from bench.arguments import amount
from bench.errors import FileError, UsageError
from bench.profile.records import Ceiling, Interval, Profile
from bench.report import roofs
from bench.trades.cost import Rates

BOTH_WAYS = ("both", "exchange")
"""Ways over a link that carry bytes in both directions at once; their rates are sums of the two."""


@dataclass(frozen=True)
class Use:
    """What a link is taken for.

    option: that names it;  kinds: words in the names of links that stand in for one, the nearest first
    ways: over it, those that fit
    """

    option: str
    kinds: tuple[str, ...]
    ways: tuple[str, ...]


NETWORK = Use("--network", ("peer", "node network", "host link", "network", "NUMA", "storage"), BOTH_WAYS)
"""A device of a ring sends while it receives."""

READ = Use("--beyond", ("host link", "storage"), ("h2d", "read", "send"))
WRITE = Use("--beyond", ("host link", "storage"), ("d2h", "write", "send"))
"""What lies beyond the memory is read and written one after the other."""

NOTHING = Interval(0.0)
"""The alpha of a link of which only a rate is known."""


@dataclass(frozen=True)
class Path:
    """A link by name: beta byte/s, alpha s a message; source: how it is used there, in words."""

    name: str
    source: str
    beta: Interval
    alpha: Interval


@dataclass(frozen=True)
class Machine:
    """What one device and its links give. pi by precision, beta byte/s; None: no such link is known."""

    source: str
    pi: dict[str, Ceiling]
    beta: Interval
    network: Path | None
    read: Path | None
    write: Path | None

    def rates(self, precision: str, end: str = "value") -> Rates:
        """The rates at `end` of their intervals: value, slow or fast; NaN over a link that is not known."""
        return Rates(
            _end(self.pi[precision].estimate, end),
            _end(self.beta, end),
            _end(self.network.beta, end) if self.network else math.nan,
            _end(self.network.alpha, end, cost=True) if self.network else 0.0,
            _end(self.read.beta, end) if self.read else math.nan,
            _end(self.write.beta, end) if self.write else math.nan,
        )


def _end(value: Interval, end: str, cost: bool = False) -> float:
    """A rate at an end of its interval; of a time per message the slow end is the upper one."""
    chosen = {"value": value.value, "slow": value.high if cost else value.low}
    found = chosen.get(end, value.low if cost else value.high)
    return value.value if found is None else found


def measured(profile: Profile, mode: str, network: str, latency: str, beyond: str) -> Machine:
    """The machine of a profile; `network` and `beyond` name a link or give byte/s, "" means the nearest one.

    UsageError lists the links; FileError says what was not measured.
    """
    beta = laws.memory_of(profile, mode)
    links = [c for c in profile.ceilings if roofs.is_link(c) and not c.level.endswith(" devices")]
    links = [c for c in links if c.level not in roofs.WITHIN]
    near = None if network else _reduced(profile)
    read = _path(profile, links, beyond, READ)
    return Machine(
        f"{beta.level} {beta.access}",
        {c.precision.label: c for library in (False, True) for c in roofs.peaks(profile, library)},
        beta.estimate,
        _later(near or _path(profile, links, network, NETWORK), latency),
        read,
        _path(profile, links, beyond, WRITE) if read else None,
    )


def _later(path: Path | None, latency: str) -> Path | None:
    """The path with the alpha that is asked for."""
    if not latency:
        return path
    value = amount("--latency", latency, "s")
    if not 0 <= value < float("inf"):
        raise UsageError(f"--latency must be zero or a positive number of seconds, got {value:g}")
    if path is None:
        raise UsageError("--latency belongs to a network: name a link, or its byte/s, with --network")
    return replace(path, alpha=Interval(value))


def _path(profile: Profile, links: list[Ceiling], asked: str, use: Use) -> Path | None:
    """The best way over the link that is asked for, or over the first kind that was measured."""
    if asked[:1].isdigit():
        value = amount(use.option, asked, "byte/s")
        if not 0 < value < float("inf"):
            raise UsageError(f"{use.option} must be a positive number of byte/s, got {value:g}")
        return Path("a link", "as given", Interval(value), NOTHING)
    names = list(dict.fromkeys(c.level for c in links))
    if asked and asked not in names:
        valid = f"valid: {', '.join(names)}, or " if names else "this profile holds no link: give "
        raise UsageError(
            f'{use.option} {asked!r} is no link of this profile; {valid}a rate such as "25 GB/s"'
        )
    kinds = [[c for c in links if c.level == asked or (not asked and word in c.level)] for word in use.kinds]
    found = next((kind for kind in kinds if kind), [])
    right = [c for c in found if c.access in use.ways] or [c for c in found if c.access not in BOTH_WAYS]
    return _way(profile, max(right, key=lambda c: c.estimate.value)) if right else None


def _reduced(profile: Profile) -> Path | None:
    """The ring behind the measured all-reduce over most devices: its bus bandwidth, alpha of a message."""
    curves = [c for c in profile.curves if c.kind == "collective" and c.plateaus.get("bus_beta")]
    reduced = [c.plateaus for c in curves if c.plateaus["kernel"] == "all-reduce"]
    if not reduced:
        return None
    known = max(reduced, key=lambda found: int(found["devices"]))
    factor, messages = known["bus_factor"], 2 * (known["devices"] - 1)
    beta = Interval(known["beta"], known["beta_low"], known["beta_high"])
    alpha = Interval(known["alpha_s"] or 0.0, known["alpha_low"], known["alpha_high"])
    source = f"all-reduce over {known['devices']} devices"
    return Path("devices", source, _scaled(beta, factor), _scaled(alpha, 1 / messages))


def _scaled(value: Interval, factor: float) -> Interval:
    ends = (None if end is None else end * factor for end in (value.low, value.high))
    return Interval(value.value * factor, *ends)


def _way(profile: Profile, link: Ceiling) -> Path:
    """The path of one beta, of one direction, with the alpha that was fitted together with it."""
    alpha = roofs.start_of(profile, link)
    each = link.access in BOTH_WAYS
    words = [w for w in dict.fromkeys((link.level, link.kernel, link.variant, link.access)) if w]
    source = " ".join(words) + ", each way" * each
    beta = _scaled(link.estimate, 0.5) if each else link.estimate
    return Path(link.level, source, beta, alpha.estimate if alpha else NOTHING)


def check_precision(machine: Machine, precision: str) -> None:
    """UsageError or FileError unless the machine has a pi of `precision`."""
    if not machine.pi:
        raise FileError("this profile holds no pi: run the fma family")
    if precision not in machine.pi:
        raise UsageError(f"no pi of precision {precision!r} in this profile; valid: {', '.join(machine.pi)}")
