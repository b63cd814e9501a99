"""The page of proofs tells the truth about the CUDA functions that there are."""

from __future__ import annotations

import re
from dataclasses import replace

from kernels import CUDA
from kernels.spec import CudaFamily, Expect
from tests import proofs, test_shim

TOP = proofs.PAGE.parent.parent


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_page_is_up_to_date() -> None:
    assert proofs.PAGE.read_text(encoding="utf-8") == proofs.TEXT + proofs.table(), (
        "run python -m tests.proofs"
    )


def test_every_function_is_in_a_row_and_has_a_proof_without_a_gpu() -> None:
    rows = cells(proofs.table())
    assert sum(int(row[3]) for row in rows) == sum(len(family.forms) for family in CUDA.values())
    assert {row[0] for row in rows} == set(CUDA)
    assert [row for row in rows if row[4] == "no"] == [], "audited everywhere it exists"


def test_what_the_page_says_of_the_shim_is_what_its_tests_run() -> None:
    assert set(proofs.NUMERICS) == set(test_shim.RUN) == {test_shim.family_of(f) for f in test_shim.FORMS}
    assert set(proofs.COUNTED) == set(test_shim.COSTS)
    said = {(r[0], r[1], r[2]) for r in cells(proofs.table()) if r[5] == "yes"}
    assert said == {(test_shim.family_of(f), f.kernel, f.precision) for f in test_shim.FORMS}


def test_what_the_page_says_of_the_simulator_is_what_numba_implements() -> None:
    text = (TOP / "bench/backends/numba_reference.py").read_text(encoding="utf-8")
    types = re.search(r"DTYPE.*= \{(.*)\}", text)
    assert types and set(re.findall(r'"(\w+)"', types[1])) == set(proofs.TWINS["fma"])
    rows = cells(proofs.table())
    assert {(r[0], r[2]) for r in rows if r[7] == "yes"} == {
        (f, p) for f, precisions in proofs.TWINS.items() for p in precisions
    }


def test_files_that_the_page_names_exist() -> None:
    for name in re.findall(r"`((?:tests|docs|kernels)/[\w./]+)`", proofs.TEXT):
        assert (TOP / name).exists(), name


def test_a_form_that_loses_a_proof_changes_the_table() -> None:
    family = CUDA["fma"]
    blind = replace(family.forms[0], shim=False, expect=Expect({}))
    (first, *_) = cells(proofs.table({"fma": CudaFamily(family.preamble, (blind, *family.forms[1:]))}))
    assert (first[4], first[5], first[6]) == ("no", "no", "no")
