"""The long table as CSV: readable by every spreadsheet, empty cells where nothing is known."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from bench.exporters import replacing
from bench.exporters.longtable import COLUMNS, rows
from bench.profile.records import Profile


def export(profile: Profile, path: Path) -> None:
    """Write one header line and one line a row (RFC 4180, UTF-8)."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(COLUMNS), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows(profile))
    with replacing(path) as file:
        file.write(text.getvalue().encode("utf-8"))


def _cell(value: Any) -> str:
    """Shortest text that reads back as the same value."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
