"""Every check of the device stage of gpu-check, one test each."""

from __future__ import annotations

import pytest

from bench.gpucheck.bed import Bed
from bench.gpucheck.check import FAILED, SKIPPED
from bench.gpucheck.device import CHECKS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CHECKS)
def test_device(name: str, bed: Bed) -> None:
    found = list(CHECKS[name](bed))
    print("\n".join(check.line for check in found))
    assert found, "a check says something"
    assert not [check for check in found if check.status == FAILED]
    if all(check.status == SKIPPED for check in found):
        pytest.skip("; ".join(check.value for check in found))
