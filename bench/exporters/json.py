"""The long table as a JSON array of objects, as pandas.read_json takes it; null where unknown."""

from __future__ import annotations

from pathlib import Path

from bench.exporters import replacing
from bench.exporters.longtable import rows
from bench.profile.encoding import dumps
from bench.profile.records import Profile


def export(profile: Profile, path: Path) -> None:
    """Write one object a row with every column."""
    with replacing(path) as file:
        file.write((dumps(rows(profile), indent=1) + "\n").encode("utf-8"))
