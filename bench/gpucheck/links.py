"""Checks of a GPU's links: as fast as others have seen that generation, and fast for the right reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench import reference
from bench.fitting import offload
from bench.gpucheck.bed import Bed, sized
from bench.gpucheck.check import OK, Check, passed, skipped, within
from bench.profile.records import Point, Profile, Sample

SIZE = 64 << 20
"""Bytes of a transfer that shows a link's rate: where nvbandwidth's figures are flat, too."""

OF_PUBLISHED = 0.98
"""Share of the published figure of a link's generation that a copy of locked memory must reach."""

LANES = 16
"""Width of the links that the published figures are of."""


def published(generation: int, access: str) -> float | None:
    """Byte/s that others measured over so many lanes of that PCIe generation (results/reference), the least
    of them: hosts differ, too; None where nobody has."""
    wanted = f"pcie{generation}_{access}"
    found = [
        figure.value
        for figure in reference.known().figures
        if figure.quantity == "link_bandwidth"
        and figure.kind == reference.MEASURED
        and figure.precision_or_level == wanted
    ]
    return min(found, default=None)


def links(bed: Bed) -> Iterator[Check]:
    """The host link in each direction against what is published for its generation, and its other ways."""
    rates: dict[str, float] = {}
    seen: Mapping[str, Any] = {}
    for access in ("h2d", "d2h", "both"):
        if point := _crossing(bed, "copy-pinned", access):
            rates[access], seen = _rate(bed, point)
    if not rates:
        yield skipped("host link", "no copy of locked memory is measured here")
        return
    generation, width = seen.get("pcie_generation"), seen.get("pcie_width")
    for access in ("h2d", "d2h"):
        yield from judged(f"host link {access}", rates.get(access), access, generation, width)
    if "both" in rates and "h2d" in rates:
        one = max(rates["h2d"], rates.get("d2h", 0.0))
        yield within("both ways at once / one way", rates["both"] / one, 0.95, 2.05)
    yield from _slower_ways(bed, rates)
    yield from _pipeline(bed)


def judged(
    name: str, rate: float | None, access: str, generation: int | None, width: int | None
) -> Iterator[Check]:
    """A measured rate, byte/s, against the published one of that link."""
    if rate is None:
        return
    said = f"{rate / 1e9:.3g} GB/s"
    if generation is None or width is None:
        yield Check(name, OK, f"{said}, link not told", "told, not judged")
        return
    said += f", PCIe {generation} x{width} under load"
    known = published(generation, access) if width == LANES else None
    if known is None:
        yield Check(name, OK, said, "told, not judged: no published figure")
        return
    least = OF_PUBLISHED * known
    yield passed(name, rate >= least, said, f"at least {least / 1e9:.3g} GB/s")


def _crossing(bed: Bed, kernel: str, access: str) -> Point | None:
    """The way over the host link that a run measures, with transfers of SIZE."""
    found = bed.first(
        lambda p: p.family == "link" and (p.kernel, p.access, p.level) == (kernel, access, "host link")
    )
    return sized(found, bytes=SIZE) if found else None


def _rate(bed: Bed, point: Point) -> tuple[float, Mapping[str, Any]]:
    """Byte/s of the fastest repetition, and what the link was while it worked."""
    with bed.prepared(point) as prepared:
        amount = min(prepared.most, max(prepared.least, 10))
        seconds = bed.fastest(prepared, amount)
        return prepared.work(amount).bytes(point.level) / seconds, prepared.facts


def _slower_ways(bed: Bed, rates: dict[str, float]) -> Iterator[Check]:
    """Nothing that crosses the link is faster than the copy engine; copies within the GPU are."""
    for kernel in ("copy-pageable", "zero-copy", "managed"):
        if point := _crossing(bed, kernel, "h2d"):
            share = _rate(bed, point)[0] / rates.get("h2d", float("inf"))
            yield within(f"{kernel} / copy of locked memory", share, 0.01, 1.05)
    if point := bed.first(lambda p: p.family == "link" and p.kernel == "copy-device"):
        share = _rate(bed, sized(point, bytes=SIZE))[0] / rates.get("h2d", float("inf"))
        yield passed("copy within the GPU / host link", share > 1, f"{share:.3g}", "above 1")


def _pipeline(bed: Bed) -> Iterator[Check]:
    """Chunks that overlap take no longer than one part after the other, and no less than the longer part."""
    point = bed.first(
        lambda p: p.family == "overlap" and p.variant == "pipelined" and p.sizes["chunks"] == 16
    )
    if point is None:
        yield skipped("pipeline", "it is not measured here")
        return
    with bed.prepared(point) as prepared:
        seconds = bed.fastest(prepared, 1, 3)
        facts = prepared.facts
    if "t_move" not in facts:
        yield skipped("pipeline", "its parts are not told by this device")
        return
    total, longest = facts["t_move"] + facts["t_compute"], max(facts["t_move"], facts["t_compute"])
    yield within("pipeline / one part after the other", seconds / total, 0.95 * longest / total, 1.05)


def measured(samples: Iterable[Sample], profile: Profile) -> Iterator[Check]:
    """The host link in a run: its beta against what is published for the link that the samples saw."""
    pinned = [s for s in samples if s.point.kernel == "copy-pinned" and s.status == "ok"]
    generation, width = (
        max((int(s.facts[name]) for s in pinned if s.facts.get(name)), default=None)
        for name in ("pcie_generation", "pcie_width")
    )
    if found := offload.beyond(profile.ceilings):
        said = f"{found['slowdown']:.3g} times slower than DRAM, {found['kernel']} {found['variant']}"
        yield Check("a working set beyond the memory", OK, said, "told, not judged")
    for c in profile.ceilings:
        if c.quantity == "beta" and c.kernel == "copy-pinned" and c.access in ("h2d", "d2h"):
            yield from judged(
                f"beta of the host link, {c.access}", c.estimate.value, c.access, generation, width
            )
