"""Units as people write them in column headers, and the unit of the suite that each of them means."""

from __future__ import annotations

import re

from bench.report.units import UNITS

WORK = {
    "flop/byte": "FLOP/byte",
    "flops/byte": "FLOP/byte",
    "flop/b": "FLOP/byte",
    "flops/b": "FLOP/byte",
    "fl/b": "FLOP/byte",
    "op/byte": "FLOP/byte",
    "ops/byte": "FLOP/byte",
    "flop/s": "FLOP/s",
    "flops/s": "FLOP/s",
    "flop/sec": "FLOP/s",
    "flops/sec": "FLOP/s",
    "op/s": "FLOP/s",
    "ops/s": "FLOP/s",
    "flop": "FLOP",
    "op": "FLOP",
}
"""Base unit by its spelling in small letters."""

BARE_RATES = ("flops", "ops")
"""Rates where a prefix stands before them: FLOPS alone may be a count."""

TRAFFIC = {
    "B/s": "byte/s",
    "byte/s": "byte/s",
    "Byte/s": "byte/s",
    "bytes/s": "byte/s",
    "B/sec": "byte/s",
    "Bps": "byte/s",
    "B": "byte",
    "byte": "byte",
    "Byte": "byte",
    "bytes": "byte",
    "Bytes": "byte",
}
"""Base unit by its spelling, where a small b alone would be a bit."""

TIMES = ("s", "sec", "seconds")

BRACKETED = re.compile(r".*[\[(]\s*([^\])]+?)\s*[\])]")


def unit_of(header: str) -> tuple[str, str] | None:
    """The prefixed unit of the suite that a column header ends with, and its base unit; None without one."""
    found = BRACKETED.fullmatch(header.strip())
    words = header.split()
    text = found[1] if found else words[-1] if words else ""
    for prefix, rest in (("", text), (text[:1], text[1:])):
        letter, base = _read(prefix, rest)
        if base and letter + base in UNITS:
            return letter + base, base
    return None


def _read(prefix: str, rest: str) -> tuple[str, str]:
    """Prefix of the suite and base unit; the latter is empty where the text is no unit."""
    if rest in TIMES:
        return {"u": "µ", "μ": "µ"}.get(prefix, prefix), "s"
    large = "k" if prefix in ("k", "K") else prefix.upper()
    if rest in TRAFFIC:
        return large if prefix in ("k", large) else "?", TRAFFIC[rest]
    if rest.lower() in WORK:
        return large, WORK[rest.lower()]
    return large, "FLOP/s" if prefix and rest.lower() in BARE_RATES else ""
