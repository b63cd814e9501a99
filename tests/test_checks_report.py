"""How self-checks are printed: marks, lines, the matrix, and bands beside them."""

from __future__ import annotations

from dataclasses import replace

from bench.profile.records import Precision
from bench.profile.verdict import evidence, word
from bench.report import checks, roofs
from bench.report.table import render
from tests.synthetic import G, ceiling, synthetic_profile

FAILED = {
    "window": "fails: repetitions of 1.00 µs",
    "side": "ok: far from it",
    "double bytes": "not tested: no pair",
}


def test_words_and_evidence_of_an_answer() -> None:
    assert [word(t) for t in ("ok: a", "fails: b", "not tested: c", "too few were clean")] == [
        "ok",
        "fails",
        "not tested",
        "fails",
    ]
    assert [evidence(t) for t in ("ok: a: b", "fails: b", "too few: c")] == ["a: b", "b", "too few: c"]


def test_a_failing_check_marks_the_verdict_and_disturbance_is_called_contended() -> None:
    assert roofs.verdict(ceiling("pi", G, checks={"side": "ok: far", "window": "not tested: no"})) == "ok"
    assert roofs.verdict(ceiling("pi", G, checks=FAILED)) == "check fails"
    assert roofs.verdict(ceiling("pi", G, checks={"repetitions": "fails: too few"})) == "contended"
    assert roofs.verdict(ceiling("pi", G, checks={"repetitions": "ok: 90 %"})) == "ok"
    both = {"repetitions": "fails: too few", "normal": "fails: low"}
    assert roofs.verdict(ceiling("pi", G, checks=both, converged=False)) == (
        "did not converge, contended, check fails"
    )


def test_lines_name_ceilings_once_a_reason_and_count_the_rest() -> None:
    one = ceiling("pi", G, checks=FAILED)
    alone = ceiling("pi", G, checks=FAILED, scope="core", threads=1)
    memory = ceiling("beta", G, kernel="copy", access="copy", store="nontemporal", checks={"side": "ok: far"})
    assert checks.lines([one, alone, memory]) == [
        "fma fp64, fma fp64 1 thread: check fails, window: repetitions of 1.00 µs",
        "self-checks: 3 ok, 2 fail, 2 not tested here",
    ]
    assert checks.lines([replace(one, checks={})]) == []
    spoken = ceiling("pi", G, checks={"normal": "fails: low", "repetitions": "fails: few"})
    assert checks.lines([spoken]) == ["self-checks: 0 ok, 2 fail, 0 not tested here"]


def test_the_table_marks_the_ceiling_and_says_why() -> None:
    shown = (ceiling("pi", 90 * G, checks=FAILED), ceiling("pi", 180 * G, precision="fp32"))
    text = render(replace(synthetic_profile(), ceilings=shown))
    rows = [line for line in text.splitlines() if "fma, 12 chains" in line]
    assert [row.split()[-2:] for row in rows] == [["check", "fails"], ["chains", "ok"]]
    assert "fma fp64: check fails, window: repetitions of 1.00 µs" in text
    assert "self-checks: 1 ok, 1 fail, 1 not tested here" in text


def test_failing_one_thread_values_are_not_lost() -> None:
    alone = ceiling("pi", 45 * G, scope="core", threads=1, checks=FAILED)
    text = render(replace(synthetic_profile(), ceilings=(ceiling("pi", 90 * G), alone)))
    assert "fma fp64 1 thread: check fails" in text and "ok (1 thread check fails)" in text.replace("\n", " ")


def test_the_matrix_holds_every_ceiling_and_check() -> None:
    pi = ceiling("pi", G, checks=FAILED)
    beta = ceiling("beta", G, kernel="read", access="read", checks={"array size": 'ok: 1 x "2" < 3'})
    made = checks.matrix([pi, beta, ceiling("pi", G)])
    assert made.columns == ("window", "side", "double bytes", "array size")
    assert [name for name, _ in made.rows] == ["fma fp64", "DRAM read"]
    assert made.rows[1][1] == ("", "", "", 'ok: 1 x "2" < 3')
    page = checks.as_html([pi, beta])
    assert page.count("<tr>") == 3 and page.count("<td") == 8
    assert '<td class="fails" title="fails: repetitions of 1.00 µs">✗</td>' in page
    assert '<td class="not-tested" title="not tested: no pair">·</td>' in page
    assert "1 x &quot;2&quot; &lt; 3" in page and "<td></td>" in page
    assert checks.as_html([ceiling("pi", G)]) == ""


def test_the_report_prints_the_band_of_a_ceiling() -> None:
    fp16 = Precision("fp16", "fp32", "fp32", "matrix")
    shown = [
        ceiling("pi", 100 * G, precision=fp16, kernel="mma"),
        ceiling("pi", 104 * G, precision=fp16, kernel="mma", regime="burst", clock_hz=1.98e9),
        ceiling("pi", 110 * G, precision=fp16, kernel="mma", operands="zeros"),
    ]
    text = render(replace(synthetic_profile(), ceilings=tuple(shown)), width=160)
    assert "band 0.96 to 1.06: burst 1.00 at 1.98 GHz to typical 0.96; zeros 1.10 of random" in text
    assert text.count("band 0.96") == 1
    assert "band" not in render(replace(synthetic_profile(), ceilings=tuple(shown[:1])), width=160)
