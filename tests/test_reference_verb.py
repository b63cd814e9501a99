"""The verb that lists and searches the reference figures."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bench import cli, reference
from bench.report import figures


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["reference", *words])
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return called


Call = Callable[..., tuple[int, str, str]]


def test_the_verb_lists_a_line_a_device(call: Call) -> None:
    code, out, _ = call()
    lines = out.splitlines()
    assert code == 0 and len(lines) == 1 + 32 + 3
    (line,) = [line for line in lines if line.startswith("H100 SXM5 ")]
    assert " ".join(lines[0].split()) == "device chip DRAM TB/s fp64 fp32 tf32 bf16 fp8 measured"
    assert " ".join(line.split()) == "H100 SXM5 Hopper GH100 3.35 33.5 66.9 495 989 1980 21"
    assert "peaks in TFLOP/s" in out and max(map(len, lines)) <= 100


def test_no_device_in_full_needs_more_than_a_hundred_columns_nor_loses_a_word(call: Call) -> None:
    for device in reference.known().devices:
        texts = reference.known().of(device)
        out = figures.render([device], reference.known())
        assert max(map(len, out.splitlines())) <= 100 and "…" not in out, device
        assert all(f.note.split()[0] in out for f in texts if f.note), device


def test_the_verb_shows_a_device_in_full(call: Call) -> None:
    code, out, _ = call("H200")
    assert code == 0 and "reported as NVIDIA H200\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("π bf16>fp32 library")]
    assert line.split()[-4:] == ["0.67", "to", "0.95", "3"]
    (line,) = [line for line in out.splitlines() if line.startswith("β DRAM read ")]
    assert "3.89 TB/s to 4.35 TB/s" in line and "0.81 to 0.91" in line
    assert "never compared" in call("MI250X")[1]


def test_the_json_of_the_verb_holds_every_figure_with_its_source(call: Call) -> None:
    code, out, _ = call("H100", "--json")
    found = json.loads(out)["devices"]
    assert code == 0 and [d["device"] for d in found] == ["H100 PCIe", "H100 SXM5"]
    assert found[1]["reported_names"][0]["reported_name"] == "NVIDIA H100 80GB HBM3"
    assert len(found[1]["figures"]) == len(reference.known().of("H100 SXM5"))
    assert all(f["source"] and f["unit"] for d in found for f in d["figures"])


def test_the_verb_says_unknown_in_one_sentence(call: Call) -> None:
    code, out, err = call("H100 NVL")
    assert (code, out) == (2, "") and err.startswith("Error: 'H100 NVL' is unknown: ")
    assert err.count("\n") == 1
