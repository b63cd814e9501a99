"""The evaluation of predictions: shapes drawn unseen, what is demanded, a run of it on this CPU."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.profile import encoding
from tests.perf import prediction as evaluation
from tests.perf import unseen

SQUARES = [(n, n, n) for n in (256, 512, 1024, 1536)]


def test_drawn_shapes_are_of_their_kind_and_unseen() -> None:
    jobs = unseen.products(80, random.Random(1), 2, SQUARES)
    shapes = [tuple(job.point.sizes[name] for name in "mnk") for job in jobs]
    assert len(set(shapes)) == 80 and not set(shapes) & set(SQUARES)
    assert [job.group for job in jobs[:4]] == [
        "gemm fp64 square",
        "gemm fp32 square",
        "gemm fp64 tall",
        "gemm fp32 tall",
    ]
    assert max(job.work for job in jobs) <= unseen.MOST_FLOPS
    assert shapes == [
        tuple(j.point.sizes[x] for x in "mnk") for j in unseen.products(80, random.Random(1), 2, SQUARES)
    ]


def row(measured: float, predicted: float, nominal: float | None = None, reason: str = "") -> evaluation.Row:
    return evaluation.Row("g", "what", measured, predicted, predicted / 1.2, predicted * 1.2, nominal, reason)


def test_the_evaluation_demands_what_it_says() -> None:
    good = [row(1.0, 1.05, 0.5), row(1.0, 0.92, 0.6), row(1.0, 1.3, 0.4)]
    assert [holds for holds, _ in evaluation.verdicts(good, good)] == [True, True, True, True]
    poor = [row(1.0, 1.3, 0.5), row(1.0, 2.5, 0.8)]
    assert [holds for holds, _ in evaluation.verdicts(poor, poor)] == [False, False, False, False]
    told = [row(1.0, 1.1), row(1.0, 1.1), row(1.0, 2.5, reason="cache-resident")]
    assert [holds for holds, _ in evaluation.verdicts([], told)] == [True, True]
    found = evaluation.summary("all", good)
    assert (found.median, found.worst.predicted, found.nominal) == (
        pytest.approx(0.08),
        1.3,
        pytest.approx(0.5),
    )
    assert found.inside == pytest.approx(2 / 3)
    text = "\n".join(evaluation.lines(good, told))
    assert "all products" in text and text.count("cache-resident") == 1


@pytest.mark.slow
def test_the_evaluation_runs_on_this_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--minutes", "1", "--shapes", "8", "--visits", "1", "--no-workloads"]
    assert evaluation.main([*words, "--json", str(tmp_path / "rows.json")]) in (0, 1)
    rows = encoding.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 8 and all(r["measured"] > 0 and r["predicted"] > 0 for r in rows)
    assert "all products" in capsys.readouterr().out
