"""Which curves of a kind a panel shows, in which order, and what they are called there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.profile.records import Curve
from bench.report.units import si

BY_GPUS = " by GPUs"
"""End of the mode of a curve that counts GPUs, and of the name of its panel."""

BACK, AS_FAST = {"d2h": "h2d"}, 1.1
"""The way back over a link and the way there; factor within which one curve stands for both."""

LAUNCH_SHAPE = re.compile(r"[vlb]\d+")
"""Words of a mode that tell how a kernel was launched: too much for a legend."""


def chosen(kind: str, curves: Sequence[Curve]) -> list[Curve]:
    """Reads first; one pair of peers stands for all, one direction for two that are as fast."""
    if kind == "cache":
        return sorted(curves, key=lambda c: (not c.mode.startswith("read"), -c.threads))
    if kind != "link":
        return list(curves)
    found: dict[tuple[str, ...], Curve] = {}
    for curve in sorted(curves, key=lambda c: c.plateaus.get("access") in BACK):
        known = curve.plateaus
        name = str(known.get("level", ""))
        pair = name.split(" ")[0] if ">" in name else name
        key = pair, str(known.get("kernel")), str(known.get("variant"))
        there = found.get((*key, BACK.get(str(known.get("access")), "")))
        if there is None or not _as_fast(there, curve):
            found.setdefault((*key, str(known.get("access"))), curve)
    return sorted(found.values(), key=lambda c: -float(c.plateaus.get("beta", 0.0)))


def _as_fast(one: Curve, other: Curve) -> bool:
    betas = [float(c.plateaus.get("beta", 0.0)) for c in (one, other)]
    return min(betas) > 0 and max(betas) < AS_FAST * min(betas)


def name(curve: Curve) -> str:
    """What a curve is called in the legend of its panel."""
    found = curve.plateaus
    if curve.kind == "cores":
        return curve.mode.removesuffix(BY_GPUS)
    if curve.kind == "cache":
        return f"{curve.mode}, {curve.threads} at once"
    if curve.kind in ("link", "collective") and "beta" in found:
        words = " ".join(w for w in dict.fromkeys(curve.mode.split(" ")) if not LAUNCH_SHAPE.fullmatch(w))
        return f"{words}: {si(found['beta'], 'byte/s')}"
    if curve.kind == "overlap" and "omega" in found:
        balance = found["compute_seconds"] / found["movement_seconds"]
        told = f"ω {min(found['omega'], 1.0):.2f}, best k {found['best_chunks']}"
        return f"{found['level']} {found['access']}, compute {balance:.2g}x move: {told}"
    if curve.kind == "concurrency" and curve.threads > 1:
        return f"{curve.mode}, {curve.threads} at once"
    return curve.mode
