"""docs/format.md names every field, word and column that the suite writes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from bench import compare, fleet
from bench.exporters import FORMATS, longtable, prometheus
from bench.profile import records, schema
from bench.report import ways

TEXT = (Path(__file__).parent.parent / "docs" / "format.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", TEXT))


@pytest.mark.parametrize(
    "record",
    [
        *(r for r in vars(records).values() if dataclasses.is_dataclass(r)),
        compare.Comparison,
        compare.Row,
        compare.Difference,
        *(
            r
            for r in vars(fleet).values()
            if dataclasses.is_dataclass(r) and r.__module__ == fleet.__name__ and r is not fleet.Member
        ),
    ],
    ids=lambda record: record.__name__,
)
def test_every_field_is_documented(record: Any) -> None:
    names = {f.name for f in dataclasses.fields(record)}
    if record is records.Interval:
        assert '**Interval** `{"value", "low", "high"}`' in TEXT
    else:
        assert names - QUOTED == set()


def test_every_word_of_the_schema_is_documented() -> None:
    for place, words in schema.WORDS.items():
        assert [w for w in words if w not in TEXT] == [], place


def test_every_column_format_and_gauge_is_documented() -> None:
    assert set(longtable.COLUMNS) - QUOTED == set()
    assert set(FORMATS) - QUOTED == set()
    ends = ("_low", "_high")
    plain = {g for g in prometheus.HELP if not g.removesuffix("_bytes_per_second").endswith(ends)}
    assert plain - QUOTED == set()


def test_laws_document_is_documented() -> None:
    from bench import laws

    job = laws.Job(9.0, 1.0)
    roof = laws.Roof("given", 1.0, 1.0)
    document = ways.record(job, laws.ways_up(job, (3.0,)), None, roof, 1.0)
    names = {*document, *document["roof"], *document["job"], *document["ways"][0]}
    assert names - QUOTED == set()


def test_trades_document_is_documented() -> None:
    from bench.report import trades
    from tests.test_trades import question

    asked = question()
    document = trades.record(asked)
    named = [
        document,
        document["machine"],
        document["thresholds"][0],
        *map(vars, (asked.step, asked.machine.network)),
    ]
    names = {name for one in [*named, *map(vars, document["trades"])] for name in one}
    assert {*names, *document["trades"][0].alone} - QUOTED == set()


def test_history_ends_with_the_current_version() -> None:
    versions = re.findall(r"(?m)^\| (\d+) \| 20\d\d-", TEXT)
    assert versions == [str(n) for n in range(1, records.SCHEMA_VERSION + 1)]


@pytest.mark.parametrize(
    ("device", "preset", "some"),
    [
        (
            "sim:small-cpu",
            "quick",
            {"half_rate_n", "plateau", "fma", "levels", "omega_low", "sets", "stopped"},
        ),
        ("sim:gpu-quad", "standard", {"bus_factor", "half_low", "line", "concurrency"}),
    ],
)
def test_every_name_of_plateaus_sizes_and_facts_is_documented(
    device: str, preset: str, some: set[str], tmp_path: Path
) -> None:
    from bench.running import suite
    from bench.store import read_log, read_profile

    folder = suite.run(device, preset=preset, results=tmp_path, quiet=True)
    curves, samples = read_profile(folder).curves, read_log(folder).samples
    names = {name for s in samples for name in (*s.point.sizes, *s.facts)}
    names |= {name for c in curves for name in c.plateaus} - {s.point.level for s in samples}
    names |= {c.kind for c in curves}
    assert some <= names
    known = QUOTED | {name.replace("_low", "_high") for name in QUOTED if name.endswith("_low")}
    ends = {name for name in names if re.sub("_(low|high)$", "", name) in QUOTED}
    assert names - known - ends == set()
