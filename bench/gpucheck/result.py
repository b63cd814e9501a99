"""Self-checks of a measured run: nothing is missing without a reason, nothing is faster than the hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.gpucheck import links
from bench.gpucheck.check import OK, Check, passed, skipped, within
from bench.profile.records import Ceiling, Profile, Sample

IMPOSSIBLE = 1.01
"""Share of the theoretical rate above which a measurement is wrong, not good."""

CHAINS, CAPPED_CHAINS, DRAM = 0.97, 0.90, 0.80
"""Shares of lanes x held clock (also where power is short), and of bus width x memory clock, below which
the harness is to blame."""

HOPPER, MATRIX, HBM = "9.0", 0.95, 0.92
"""A compute capability of which more is known, and the shares that its wgmma in bf16 and its memory reach."""


def checks(folder: Path) -> Iterator[Check]:
    """All checks of the result in `folder`."""
    from bench import store

    raw, profile = store.read_log(folder), store.read_profile(folder)
    yield from present(raw.samples, profile)
    yield from intervals(profile)
    yield from possible(profile)
    yield from evidence(raw.samples)
    yield from links.measured(raw.samples, profile)


def present(samples: Iterable[Sample], profile: Profile) -> Iterator[Check]:
    """Every family has ceilings, or each of its points says why not; a point that failed is a fault."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.point.family, []).append(sample)
    for family, found in families.items():
        good = {s.point.key for s in found if s.status == "ok"}
        failed = [s for s in found if s.status == "failed" and s.point.key not in good]
        skips = {s.point.precision.label for s in found if s.status == "skipped"}
        said = f"{len(good)} points" + (f", skipped: {', '.join(sorted(skips))}" if skips else "")
        if failed:
            said = f"{failed[0].point.kernel} {failed[0].point.precision.label}: {failed[0].reason}"
        yield passed(
            f"measured {family}", bool(good or skips) and not failed, said, "measured or with a reason"
        )
    unreasoned = [s for s in samples if s.status != "ok" and not s.reason]
    yield passed("every gap has its reason", not unreasoned, f"{len(unreasoned)} without", "0")
    count = len(profile.ceilings)
    yield passed("ceilings", count > 0, f"{count}", "at least 1")


def intervals(profile: Profile) -> Iterator[Check]:
    """Every ceiling is a positive number inside its interval."""
    wrong = [c for c in profile.ceilings if not _sound(c)]
    said = f"{len(wrong)} wrong" + (f", {_named(wrong[0])}" if wrong else "")
    yield passed("values lie in their intervals", not wrong, said, "0 wrong")
    wide = [c for c in profile.ceilings if c.converged is False]
    said = f"{len(wide)} of {len(profile.ceilings)}" + (f", {_named(wide[0])}" if wide else "")
    yield Check("wider than their caps", OK, said, "told, not judged")


def _sound(ceiling: Ceiling) -> bool:
    e = ceiling.estimate
    low, high = (e.value if e.low is None else e.low), (e.value if e.high is None else e.high)
    return 0 < low <= e.value <= high < float("inf")


def possible(profile: Profile) -> Iterator[Check]:
    """pi <= lanes x clock, beta <= bus width x memory clock, and the plainest of both not far below."""
    known = [(c.share_at_clock, c) for c in profile.ceilings if c.share_at_clock is not None]
    if not known:
        yield skipped("share of theory", "lanes, bus or clock of this device are not known")
        return
    top, ceiling = max(known, key=lambda pair: pair[0])
    yield within(f"highest share, {_named(ceiling)}", top, 0.0, IMPOSSIBLE)
    for share, ceiling in known:
        if ceiling.kernel == "fma" and ceiling.precision.label in ("fp32", "fp64"):
            least = CHAINS if ceiling.regime != "sustained" else CAPPED_CHAINS
            yield within(f"share of {_named(ceiling)}", share, least, IMPOSSIBLE)
    hopper = not profile.simulated and profile.identity.get("cc") == HOPPER
    if dram := [share for share, c in known if c.quantity == "beta" and c.level == "DRAM"]:
        yield within("share of the best beta", max(dram), HBM if hopper else DRAM, IMPOSSIBLE)
    label = "bf16>fp32 matrix"
    groups = [share for share, c in known if (c.kernel, c.precision.label) == ("wgmma", label)]
    if hopper and groups:
        yield within(f"share of wgmma {label}", max(groups), MATRIX, IMPOSSIBLE)


def evidence(samples: Iterable[Sample]) -> Iterator[Check]:
    """What the timing says of itself: launches that waited in a queue, and telemetry beside them."""
    good = [s for s in samples if s.status == "ok" and s.round > 0]
    bound = [s for s in good if s.facts.get("host_bound")]
    said = f"{len(bound)} of {len(good)}" + (f", {bound[0].point.kernel}" if bound else "")
    yield passed("samples bound by the host's queueing", len(bound) <= 0.05 * len(good), said, "at most 5 %")
    clocked = sum(bool(s.repetitions.clock_hz) for s in good)
    yield Check("samples with a clock beside them", OK, f"{clocked} of {len(good)}", "told, not judged")
    shares = [float(s.facts["event_share"]) for s in good if s.facts.get("event_share")]
    if shares:
        wrong = sum(share > IMPOSSIBLE for share in shares)
        yield passed("events longer than the host's time", not wrong, f"{wrong} of {len(shares)}", "0")


def _named(ceiling: Ceiling) -> str:
    what = ceiling.precision.label if ceiling.quantity == "pi" else ceiling.level
    return f"{ceiling.kernel} {what} {ceiling.regime}"
