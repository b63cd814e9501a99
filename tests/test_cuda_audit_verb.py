"""The audit as a verb: its table, its exit codes, and what it says without its packages."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import cli
from bench.audit import expectations, report, survey, toolchain
from bench.audit.toolchain import Usage
from kernels import CUDA
from kernels.spec import CudaFamily, Expect
from tests.listing import CHAIN, TOP, chain, form, needs_tools


@needs_tools
def test_the_verb_audits_in_children_and_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    few = tuple(each for each in CUDA["fma"].forms if each.entry in ("fma_f64_c8", "fma_i8_c8"))
    monkeypatch.setattr(
        kernels, "CUDA", {"fma": CudaFamily(CUDA["fma"].preamble, few), "stream": CUDA["stream"]}
    )
    before = set(multiprocessing.active_children())  # the session's own pool
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", "--family", "fma", "--arch", "sm_80,90", "--quiet", "--functions"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    left = set(multiprocessing.active_children()) - before
    assert not left, "one that outlives the pool is a traceback at the end"
    assert out.startswith("audit: all 4 functions passed (NVRTC ")
    (row,) = (line.split() for line in out.splitlines() if line.startswith("fma "))
    assert row[:4] == ["fma", "2", "ok", "ok"] and float(row[4]) > 98
    lines = [line.split()[:3] for line in out.splitlines() if line.startswith("fma_")]
    assert lines == [[entry, a, "ok"] for a in ("80", "90") for entry in ("fma_f64_c8", "fma_i8_c8")]


@needs_tools
def test_a_miss_ends_with_a_code_of_its_own_and_is_in_the_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    (one,) = (each for each in CUDA["fma"].forms if each.entry == "fma_f64_c8")
    strict = replace(one, expect=replace(one.expect, registers=8))
    monkeypatch.setattr(kernels, "CUDA", {"fma": CudaFamily(CUDA["fma"].preamble, (strict,))})
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", "--arch", "90", "--json", "--quiet"])
    said = capsys.readouterr()
    value = json.loads(said.out)
    assert stop.value.code == 8
    assert said.err == "Error: 1 of 1 functions missed: see the sentences above\n"
    (finding,) = value["findings"]
    assert finding["entry"] == "fma_f64_c8" and finding["architecture"] == "90"
    assert finding["misses"][0].startswith("expected at most 8 registers, found ")
    assert finding["counts"] == {"DFMA": [512, 512]}
    assert 0.9 < finding["bound"]["one_warp"] <= finding["bound"]["many_warps"] <= 1


def result(*found: expectations.Finding, **facts: object) -> survey.Survey:
    plain = survey.Survey("13.0", "13.5", ("80", "90", "90a"), found, {})
    return replace(plain, **facts)  # type: ignore[arg-type]


def test_the_table_says_where_what_missed_and_what_was_not_audited() -> None:
    passed = expectations.check("fma", form(Expect({"FFMA": 8}, share=0.5)), "80", chain(8, "0x1"), Usage(24))
    missed = expectations.check("fma", form(Expect({"FFMA": 9}, share=0.5)), "90", chain(8, "0x1"), Usage(26))
    everywhere = toolchain.ARCHITECTURES[1:]
    text = report.render(
        result(passed, missed, architectures=everywhere, not_audited={"70": "it is too old"})
    )
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("audit: 1 of 2 functions missed (NVRTC 13.0, nvdisasm 13.5; no GPU was used)\n")
    (row,) = (line.split() for line in text.splitlines() if line.startswith("fma "))
    assert row == ["fma", "1", "–", "ok", "–", "–", "–", "1", *"––––––", "72.7", "26", "36.4", "/", "72.7"]
    assert "\nnot audited: sm_70: it is too old\n" in text
    assert "\n  k on sm_90: expected 9 FFMA in a trip of the hot loop, found 8\n" in text


def test_the_same_miss_on_several_architectures_is_told_once() -> None:
    both = [expectations.check("fma", form(CHAIN), a, chain(7, "0x1"), Usage(24)) for a in ("80", "90")]
    (sentence,) = result(*both).misses
    assert sentence == "k on sm_80, sm_90: expected 8 FFMA in a trip of the hot loop, found 7"


def test_many_misses_are_counted() -> None:
    many = [
        replace(expectations.failed("fma", form(CHAIN), "90", "x"), entry=f"k{i}")
        for i in range(report.MOST_MISSES + 3)
    ]
    assert report.render(result(*many)).endswith("  and 3 more, all in --json\n")


def test_without_the_packages_the_verb_ends_in_one_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cuda'] = None\n"
        "from bench import cli\ncli.main(['audit', '--quiet'])"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: the Python package cuda-core ")
    assert "make audit" in done.stderr and "Traceback" not in done.stderr
