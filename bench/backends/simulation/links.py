"""The far side of a simulated device: links, peers, latencies, launches and pipelines, and what they cost.

link         T = alpha + V / beta, the faster of two such lines where the truth has a second one for small V
collective   T = steps alpha + factor S / beta,  factor: bus over algorithm bandwidth
chase        T = max of latency and of bytes in flight at beta, smoothed by the device's p
pipeline     T(k) = sum - omega (sum - max) (1 - 1/k) + k alpha
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.profile.records import Point
from bench.profile.roofline import seconds as p_norm
from kernels import KERNELS
from kernels.latency import LINE_BYTES
from kernels.spec import ITEM_BYTES, Work

if TYPE_CHECKING:
    from bench.backends.simulation.truth import Truth

FAMILIES = ("latency", "launch", "link", "collective", "overlap")
"""Families that this file prices; those of scaling run the kernels of other families."""

BOTH_WAYS = ("both", "exchange")
"""Accesses whose bytes are the sum of the two directions."""


@dataclass(frozen=True)
class Link:
    """One link: alpha s and beta byte/s by access (of `both` and `exchange` the sum of the directions).

    level: its name ("host link", "device", "storage");  kernels: share of beta by kernel, 1 for others
    small_alpha, small_beta: the line that small transfers follow, 0 where there is only one
    """

    level: str
    alpha: float
    beta: Mapping[str, float]
    small_alpha: float = 0.0
    small_beta: float = 0.0
    kernels: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, kernel: str, access: str, volume: float) -> float:
        """Time of `volume` byte in s."""
        beta = self.beta[access] * self.kernels.get(kernel, 1.0)
        large = self.alpha + volume / beta
        small = self.small_alpha + volume / self.small_beta if self.small_beta else large
        return min(large, small)


@dataclass(frozen=True)
class Peers:
    """Devices on one board: one-way byte/s between any two, both ways together, s a transfer and a step.

    bus: byte/s that a collective moves on each device's links
    """

    devices: int
    alpha: float
    beta: float
    both: float
    bus: float

    @property
    def links(self) -> tuple[Link, ...]:
        """The full matrix, one link an ordered pair."""
        pairs = [(i, j) for i in range(self.devices) for j in range(self.devices) if i != j]
        rates = {"write": self.beta, "read": self.beta, "send": self.beta, "both": self.both}
        rates["exchange"] = self.both
        return tuple(Link(f"peer {i}>{j}", self.alpha, rates) for i, j in pairs)


@dataclass(frozen=True)
class Overlap:
    """How chunks over the link `level` are pipelined: s a chunk, share hidden of what could be."""

    level: str
    alpha: float
    hidden: float


def links(truth: Truth) -> dict[str, Link]:
    """Every link by name."""
    peers = truth.peers.links if truth.peers else ()
    return {link.level: link for link in (*truth.links, *peers)}


def facts(truth: Truth) -> dict[str, Any]:
    """What a plan needs to know of a CPU's links: which there are, and over which chunks are pipelined."""
    names = [link.level for link in truth.links]
    over = {"pipelined": truth.overlap.level} if truth.overlap else {}
    return {"links": names, **over} if names and truth.gpu is None else {}


def unsupported(truth: Truth, point: Point) -> str:
    """Why a point of these families has no price here, "" where it has one."""
    if point.family == "latency":
        why = "" if point.level in truth.latency else f"no latency of {point.level or 'a level without name'}"
        return why or ("" if point.kernel in KERNELS else f"no {point.kernel}")
    if point.family == "launch":
        return "" if point.variant in truth.launch else f"no launch {point.variant!r}"
    if point.family == "collective":
        return _no_collective(truth, point)
    if point.family == "overlap":
        here = truth.overlap and truth.overlap.level == point.level
        return "" if here else f"no pipeline over {point.level!r}"
    link = links(truth).get(point.level)
    if link is None:
        return f"no link {point.level!r}"
    return "" if point.access in link.beta else f"no {point.access} over {point.level}"


def too_few(truth: Truth, point: Point) -> str:
    """Why not so many devices do the same work at once here, "" where they can."""
    count, wanted = truth.peers.devices if truth.peers else 1, point.sizes.get("devices", 1)
    return "" if wanted <= count else f"{count} device{'s' * (count > 1)}, not {wanted}"


def _no_collective(truth: Truth, point: Point) -> str:
    count, wanted = truth.peers.devices if truth.peers else 1, point.sizes.get("devices", 1)
    if point.kernel not in STEPS:
        return f"no collective {point.kernel}"
    return (
        "" if 2 <= wanted <= count else f"{count} device{'s' * (count > 1)}, not {wanted}: nothing to combine"
    )


STEPS: dict[str, Callable[[int], int]] = {
    "all-reduce": lambda n: 2 * (n - 1),
    "all-gather": lambda n: n - 1,
    "reduce-scatter": lambda n: n - 1,
    "all-to-all": lambda n: n - 1,
    "broadcast": lambda n: n - 1,
}
"""Steps of a ring."""


def _factor(kernel: str, devices: int) -> float:
    """Bus over algorithm bandwidth."""
    steps: int = STEPS[kernel](devices)
    return 1.0 if kernel == "broadcast" else steps / devices


Price = tuple[Work, float, tuple[tuple[str, float], ...]]
"""Work of one unit, bytes allocated, and its seconds by the resource that they are spent on."""


def price(truth: Truth, point: Point) -> Price:
    """The price of one unit of `point`, which `unsupported` has nothing against."""
    make = {"latency": _chase, "launch": _launch, "collective": _collective, "overlap": _pipeline}
    return make.get(point.family, _link)(truth, point)


def _chase(truth: Truth, point: Point) -> Price:
    """One load of every chain of every thread."""
    number = point.variant.split(" ")[0]
    chains = int(number) if number.isdigit() else 1
    line = point.sizes.get("line", LINE_BYTES)
    moved = float(line * chains * point.threads)
    passed = "L1" if truth.gpu and "plateau" in point.sizes and point.level != "L1" else ""
    shares = truth.residency(float(point.sizes["bytes"] * point.threads), point.threads, passed)
    times = []
    for level, share in shares.items():
        busy = moved / truth.beta_at(level, "read", point.threads)
        waited = truth.latency.get(level, max(truth.latency.values()))
        times.append(
            (level, share * p_norm(busy, waited, 1.0, 1.0, truth.p) if chains > 1 else share * waited)
        )
    return Work.at(point.level, 0.0, moved, 0.0), float(point.sizes["bytes"] * point.threads), tuple(times)


def _launch(truth: Truth, point: Point) -> Price:
    """One launch, of a kernel that moves `bytes` if it moves any."""
    volume = float(point.sizes.get("bytes", 0))
    seconds = truth.launch[point.variant] + volume / truth.beta_at("DRAM", "copy", truth.threads)
    return Work.at(point.level, 0.0, volume / 2, volume / 2), volume, (("launch", seconds),)


def _link(truth: Truth, point: Point) -> Price:
    """One transfer of `bytes`, each way where it goes both ways."""
    volume = float(point.sizes["bytes"] * (2 if point.access in BOTH_WAYS else 1))
    seconds = links(truth)[point.level].seconds(point.kernel, point.access, volume)
    leaving = volume * {"write": 1.0, "send": 1.0, "d2h": 1.0, "both": 0.5, "exchange": 0.5}.get(
        point.access, 0.0
    )
    return Work.at(point.level, 0.0, volume - leaving, leaving), volume, ((point.level, seconds),)


def _collective(truth: Truth, point: Point) -> Price:
    """One operation on an array of `bytes` over `devices`."""
    assert truth.peers
    devices, size = point.sizes["devices"], float(point.sizes["bytes"])
    busy = _factor(point.kernel, devices) * size / truth.peers.bus
    seconds = STEPS[point.kernel](devices) * truth.peers.alpha + busy
    return Work.at(point.level, 0.0, size, 0.0), size, (("collective", seconds),)


def _pipeline(truth: Truth, point: Point) -> Price:
    """One pass over `bytes` in `chunks`, or a part alone, computing `percent` of moving or `fma` an item."""
    assert truth.overlap
    size, pi = float(point.sizes["bytes"]), truth.pi_at(next(iter(truth.pi)), truth.threads)
    link = links(truth)[point.level]
    moving = size / link.beta[point.access if point.access in link.beta else next(iter(link.beta))]
    work = Work.at(point.level, point.sizes.get("percent", 100) / 100 * moving * pi, size, 0.0)
    if "fma" in point.sizes:
        item = ITEM_BYTES[point.precision.inputs]
        sizes = {"n": int(size) // item, "fma": point.sizes["fma"]}
        work = KERNELS["pipeline"].work(item, sizes, point.level)
    computing = work.flops / pi
    alone = {"compute alone": computing, "copy alone": moving}
    total, longest = moving + computing, max(moving, computing)
    chunks = point.sizes.get("chunks", 1)
    hidden = truth.overlap.hidden * (total - longest) * (1 - 1 / chunks)
    piped = total - hidden + chunks * truth.overlap.alpha
    return work, size, (("overlap", alone.get(point.variant, piped)),)
