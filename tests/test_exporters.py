"""Every exported file is read back by the tool it is for and holds the profile's own numbers."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import pandas
import prometheus_client.openmetrics.parser
import prometheus_client.parser
import pyarrow.parquet
import pytest

from bench import exporters
from bench.errors import UsageError
from bench.exporters import longtable, prometheus
from bench.profile.records import Interval, Profile
from tests.synthetic import synthetic_profile

OF_THE_REFERENCE = "device,vendor,arch,cc,quantity,precision_or_level,value,unit,kind,source"
OF_A_RUN = (
    "stat,ci_low,ci_high,n,sm_clock_mhz,mem_clock_mhz,power_w,temperature_c,"
    "driver,cuda,library,kernel,size,timestamp,uuid,mig"
)


@pytest.fixture
def profile() -> Profile:
    return synthetic_profile()


def exported(profile: Profile, name: str, folder: Path, allow_simulated: bool = False) -> Path:
    path = folder / f"roofline{exporters.FORMATS[name]}"
    exporters.export(profile, name, path, allow_simulated)
    assert [p.name for p in folder.iterdir()] == [path.name], "an unfinished file was left behind"
    return path


def read_pi(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if row["quantity"] == "peak_flops"
        and row["precision_or_level"] == "fp64"
        and row["stat"] == "p75_typical"
    ]


def test_columns_begin_with_those_of_the_reference_table() -> None:
    assert ",".join(longtable.COLUMNS).startswith(f"{OF_THE_REFERENCE},{OF_A_RUN},")


def test_one_row_a_value(profile: Profile) -> None:
    rows = longtable.rows(profile)
    fitted = sum(fit.chosen for curve in profile.curves for fit in curve.fits)
    assert len(rows) == len(profile.ceilings) + 3 * fitted + 4 * len(profile.placements)
    keys = [(row["quantity"], row["precision_or_level"], row["stat"]) for row in rows]
    assert sorted(keys) == sorted(set(keys)), "a pivot must find one value"


def test_csv_reads_back(profile: Profile, tmp_path: Path) -> None:
    with exported(profile, "csv", tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (pi,) = read_pi(rows)
    assert (float(pi["value"]), pi["unit"], pi["kind"]) == (90e9, "FLOP/s", "measured")
    assert float(pi["ci_low"]) == 90e9 / 1.006
    assert (pi["n"], pi["converged"], pi["threads"], pi["cuda"]) == ("5", "true", "2", "")
    assert float(pi["sm_clock_mhz"]) == 2900.0
    by_name = {row["precision_or_level"]: row for row in rows if row["quantity"] == "bandwidth"}
    assert float(by_name["dram_copy_nontemporal"]["value"]) == 28e9
    assert float(by_name["dram_copy"]["value"]) == 21e9
    assert float(by_name["l1_read_core"]["value"]) == 135e9
    assert len(rows) == len(longtable.rows(profile))


def test_json_reads_back_in_pandas(profile: Profile, tmp_path: Path) -> None:
    path = exported(profile, "json", tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == longtable.rows(profile)
    frame = pandas.read_json(path)
    assert list(frame.columns) == list(longtable.COLUMNS)
    overlap = frame[(frame["quantity"] == "overlap") & (frame["precision_or_level"] == "fp64_read-only_all2")]
    assert overlap["value"].item() == pytest.approx(2 - 2 ** (1 / 6))


def test_parquet_keeps_types_and_numbers(profile: Profile, tmp_path: Path) -> None:
    table = pyarrow.parquet.read_table(exported(profile, "parquet", tmp_path))
    assert table.schema.metadata[b"schema_version"] == str(profile.schema_version).encode()
    assert table.schema.metadata[b"simulated"] == b"false"
    assert table.schema.field("value").type == pyarrow.float64()
    assert table.schema.field("converged").type == pyarrow.bool_()
    assert table.to_pylist() == longtable.rows(profile)


def test_table_concatenates_with_reference_figures(profile: Profile, tmp_path: Path) -> None:
    figure = dict.fromkeys(longtable.REFERENCE, "x") | {"value": 92e9, "quantity": "peak_flops"}
    figure |= {"precision_or_level": "fp64", "kind": "datasheet", "unit": "FLOP/s"}
    measured = pandas.read_parquet(exported(profile, "parquet", tmp_path))
    both = pandas.concat([measured, pandas.DataFrame([figure])], ignore_index=True)
    fp64 = both[(both["precision_or_level"] == "fp64") & (both["stat"] != "p75_burst")]
    assert dict(zip(fp64["kind"], fp64["value"], strict=True)) == {"measured": 90e9, "datasheet": 92e9}


def families(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    parsed = prometheus_client.parser.text_string_to_metric_families(text)
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in parsed}


def test_prometheus_parses_and_agrees(profile: Profile, tmp_path: Path) -> None:
    text = exported(profile, "prometheus", tmp_path).read_text(encoding="utf-8")
    gauges = families(text)
    deeper = ("roofline_latency", "roofline_overhead", "roofline_capacity")  # this profile has none
    assert set(gauges) == {name for name in prometheus.HELP if not name.startswith(deeper)}
    peaks = {
        (s["precision"], s["scope"], s["regime"], s["kernel"]): v for s, v in gauges["roofline_peak_flops"]
    }
    assert peaks["fp64", "all", "typical", "fma"] == 90e9
    assert peaks["fp64 library", "all", "typical", "gemm"] == pytest.approx(86.4e9)
    bandwidth = gauges["roofline_bandwidth_bytes_per_second"]
    (triad,) = [v for s, v in bandwidth if s["kernel"] == "triad" and s["store"] == "ordinary"]
    assert triad == 23e9
    labels = bandwidth[0][0]
    assert (labels["device"], labels["kind"]) == ("Synthetic CPU @ 2.90GHz", "measured")
    assert {"precision", "level", "access", "store", "scope", "threads", "statistic"} <= set(labels)
    assert gauges["roofline_measured_timestamp_seconds"][0][1] == 1796007000.0


def test_prometheus_text_is_openmetrics_too(profile: Profile, tmp_path: Path) -> None:
    text = exported(profile, "prometheus", tmp_path).read_text(encoding="utf-8") + "# EOF\n"
    parsed = list(prometheus_client.openmetrics.parser.text_string_to_metric_families(text))
    assert len(parsed) == len(families(text.removesuffix("# EOF\n")))


def test_prometheus_escapes_names_and_leaves_out_unknown_intervals(profile: Profile, tmp_path: Path) -> None:
    name = 'odd "name" in C:\\new and\nbreak'
    one = dataclasses.replace(profile.ceilings[0], estimate=Interval(1.5e9))
    odd = dataclasses.replace(
        profile,
        facts={"device": {"name": name}},
        provenance={"time": "some day"},
        ceilings=(one,),
        curves=(),
    )
    gauges = families(exported(odd, "prometheus", tmp_path).read_text(encoding="utf-8"))
    assert list(gauges) == ["roofline_peak_flops"]
    ((labels, value),) = gauges["roofline_peak_flops"]
    assert (labels["device"], value) == (name, 1.5e9)


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "prometheus"])
def test_simulated_profile_is_refused_unless_allowed(name: str, tmp_path: Path) -> None:
    simulated = synthetic_profile(simulated=True)
    with pytest.raises(UsageError, match="SIMULATED"):
        exporters.export(simulated, name, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    path = exported(simulated, name, tmp_path, allow_simulated=True)
    if name == "parquet":
        assert set(pyarrow.parquet.read_table(path)["kind"].to_pylist()) == {"simulated"}
    else:
        text = path.read_text(encoding="utf-8")
        assert "simulated" in text
        assert "measured," not in text and '"measured"' not in text


def test_unknown_format_lists_the_valid(profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="valid: csv, json, parquet, prometheus"):
        exporters.export(profile, "xml", tmp_path / "x")


def test_a_stream_is_written_to_and_stays_what_it_is(profile: Profile, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    exporters.export(profile, "prometheus", pipe)
    assert pipe.is_fifo()
    assert os.read(reader, 1 << 16).startswith(b"# HELP roofline_peak_flops")
    os.close(reader)


def test_failed_export_leaves_the_old_file(profile: Profile, tmp_path: Path) -> None:
    path = exported(profile, "json", tmp_path)
    before = path.read_bytes()
    spoiled = dataclasses.replace(profile.ceilings[0], best=math.nan)
    with pytest.raises(ValueError, match="nan"):
        exported(dataclasses.replace(profile, ceilings=(spoiled,)), "json", tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
