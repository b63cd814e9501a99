"""The long table as Apache Parquet with typed columns, for pandas, Arrow, DuckDB and Spark."""

from __future__ import annotations

from pathlib import Path

from bench.exporters import replacing
from bench.exporters.longtable import COLUMNS, COUNT, NUMBER, TEXT, TRUTH, rows
from bench.profile.records import Profile


def export(profile: Profile, path: Path) -> None:
    """Write typed nullable columns; the file's metadata says schema version and simulated."""
    import pyarrow
    import pyarrow.parquet

    kinds = {
        TEXT: pyarrow.string(),
        NUMBER: pyarrow.float64(),
        COUNT: pyarrow.int64(),
        TRUTH: pyarrow.bool_(),
    }
    about = {"schema_version": str(profile.schema_version), "simulated": str(profile.simulated).lower()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()], metadata=about)
    with replacing(path) as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(profile), schema=schema), file)
