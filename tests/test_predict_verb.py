"""What predict takes and says: shapes and names from words and files, table, JSON and CSV, refusals."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from bench import cli, store
from bench.errors import FileError, UsageError
from bench.prediction import asked, works
from bench.profile import encoding
from bench.workloads.zoo import ZOO
from tests.predicted import standard_run
from tests.synthetic import synthetic_profile


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standard_run(tmp_path_factory.mktemp("results"))


@pytest.mark.parametrize("word", ["4096", "4x5", "axbxc", "0x1x1", "1x1x-1", "1x1x1x1", f"1x1x{2**41}", ""])
def test_nonsense_shapes_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"such as 1024x1024x1024|must lie within 1"):
        asked.shapes([word])


def test_shapes_from_words_and_files(tmp_path: Path) -> None:
    file = tmp_path / "shapes.csv"
    file.write_text("name,M,N,K\nfirst,10,20,30\nsecond,7,8,9\n")
    assert asked.shapes([str(file), "1X2x3"]) == [(10, 20, 30), (7, 8, 9), (1, 2, 3)]
    for content, told in (
        ("a,b\n1,2\n", "has no columns m, n and k"),
        ("m,n,k\n1,2,x\n", "line 2: '1x2xx' is no size"),
        ("m,n,k\n1,2,3\n\n1,2\n", "line 4: '1x2x' is no size"),
        ("m,n,k\n", "holds no shapes"),
    ):
        file.write_text(content)
        with pytest.raises(FileError, match=told):
            asked.shapes([str(file)])
    file.write_text("M,N,K\n4,5,6\n", encoding="utf-8-sig")  # as spreadsheets save it
    assert asked.shapes([str(file)]) == [(4, 5, 6)]
    file.write_bytes(b"m,n,k\n\xff\xfe\n")
    with pytest.raises(FileError, match=r"shapes.csv: it is no table in UTF-8; give"):
        asked.shapes([str(file)])
    with pytest.raises(FileError, match=r"cannot read .*none.csv: No such file"):
        asked.shapes([str(tmp_path / "none.csv")])


def test_workloads_by_name_and_size() -> None:
    assert asked.workload("spmv", ZOO).name == "spmv csr"
    assert asked.sizes("columns=3,rows=2", ZOO["softmax"]) == {"rows": 2, "columns": 3}
    assert asked.sizes("8x56", ZOO["resnet50 conv 3x3"])["sets"] == 1
    for name in ("ftt", ""):
        with pytest.raises(UsageError, match=r"unknown workload .*valid: gemm, gemm tall"):
            asked.workload(name, ZOO)
    with pytest.raises(UsageError, match=r"^'s' may be stencil 7-point, softmax, spmv csr: write more"):
        asked.workload("s", ZOO)


def test_near_sizes_take_the_bytes_asked_for() -> None:
    for name, known in ZOO.items():
        sizes = known.near_sizes(512 << 10, 2)
        if sizes is None:
            assert "sets" in known.small, name
            continue
        work = known.work(sizes)
        size = works.footprint(work.reads["DRAM"], work.writes["DRAM"], known.in_place)
        assert 0.3 < size / (512 << 10) < 1.2, name
        assert all(v % known.grain.get(k, 1) == 0 for k, v in sizes.items())


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def called(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["predict", *(str(word) for word in words)])
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return called


def test_the_verb_prints_a_table_json_and_csv(call: Any, measured: Path) -> None:
    words = ("gemm", "4096x512x1024", "100x90x80", "--precision", "fp32", "--profile", measured)
    code, out, _ = call(*words)
    assert code == 0 and out.startswith("SIMULATED") and "gemm 4096x512x1024" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "42 measured products" in out and "extrapolated" not in out.split("basis")[0]
    document = encoding.loads(call(*words, "--json")[1])
    first, second = document["predictions"]
    assert document["simulated"] is True and first["precision"] == "fp32 library"
    assert first["flops"] == 2.0 * 4096 * 512 * 1024 and first["seconds"]["low"] < first["seconds"]["value"]
    assert second["rate"] == pytest.approx(second["flops"] / second["seconds"]["value"])
    rows = list(csv.DictReader(io.StringIO(call(*words, "--csv")[1])))
    assert [row["what"] for row in rows] == ["gemm 4096x512x1024", "gemm 100x90x80"]
    assert {row["simulated"] for row in rows} == {"true"}
    assert float(rows[0]["seconds_high"]) == pytest.approx(first["seconds"]["high"])


def test_the_newest_folder_is_taken(call: Any, measured: Path) -> None:
    root = measured.parent.parent
    code, out, _ = call("--results", root, "--flops", "1 TFLOP", "--bytes", "2 GB", "--read-fraction", 0.5)
    assert code == 0 and "1.00 TFLOP, 2.00 GB" in out
    assert call("softmax", "4096x1024", "--results", root)[0] == 0


REFUSED = [
    ([], "give one of three"),
    (["gemm", "--flops", "1e9"], "give one of three"),
    (["gemm"], "name at least one product"),
    (["gemm", "10x10"], "is no size"),
    (
        ["gemm", "9x9x9", "--precision", "fp8"],
        "no products of precision 'fp8' in this profile; measured: fp32, fp64",
    ),
    (["gemm", "9x9x9", "--level", "L2"], "--level not to gemm"),
    (["softmax"], "give the size of softmax as rows, columns"),
    (["softmax", "9x9", "--precision", "fp32"], "softmax has its own"),
    (["softmaxx", "9x9"], "unknown workload 'softmaxx'; valid: gemm, gemm tall"),
    (["softmax", "9x9", "--level", "L9"], "no beta of L9 in this profile; measured: "),
    (
        ["--flops", "1e9", "--precision", "fp16"],
        "no pi of precision 'fp16' in this profile; measured: fp32, fp64",
    ),
    (["--flops", "1 GB"], "--flops takes FLOP"),
    (["--flops", "fast"], "--flops: 'fast' is no quantity"),
    (["--bytes", "1e9", "--precision", "bogus"], "unknown precision 'bogus'; valid: fp64, fp32"),
    (["--bytes", "-1"], "--bytes must be a number from 0"),
    (["--bytes", "0"], "work that does nothing"),
    (["--bytes", "1e9", "--read-fraction", "2"], "--read-fraction must lie in 0"),
    (["--bytes", "1e9", "--threads", "77"], "nothing was measured with 77 threads; measured: 1, "),
    (["--bytes", "1e9", "--json", "--csv"], "--json or --csv, not both"),
]


@pytest.mark.parametrize(
    ("words", "told"), REFUSED, ids=[" ".join(words) or "nothing" for words, _ in REFUSED]
)
def test_refusals_are_one_sentence(call: Any, measured: Path, words: list[str], told: str) -> None:
    code, out, err = call(*words, "--profile", measured)
    assert (code, out) == (2, "")
    assert told in err and err.count("\n") == 1


def test_a_profile_without_what_is_asked_says_so(call: Any, tmp_path: Path) -> None:
    profile = synthetic_profile()
    poor = dataclasses.replace(profile, ceilings=tuple(c for c in profile.ceilings if c.quantity == "pi"))
    store.write_profile(tmp_path, poor)
    code, _, err = call("--bytes", "1e9", "--profile", tmp_path)
    assert code == 4 and "holds no beta: run the stream family" in err
    store.write_profile(tmp_path, dataclasses.replace(profile, curves=()))
    code, _, err = call("gemm", "9x9x9", "--profile", tmp_path)
    assert code == 2 and "measured: none: run the gemm family" in err
    assert call("gemm", "9x9x9", "--results", tmp_path / "none")[0] == 4
