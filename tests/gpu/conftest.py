"""The GPU that the tests of this folder share, opened once; without a usable one they are skipped.

One that DEVICE names must be usable: then nothing is skipped for want of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench.errors import DeviceError
from bench.gpucheck.bed import Bed

NAMED = os.environ.get("DEVICE", "").startswith("cuda")
DEVICE = os.environ["DEVICE"] if NAMED else "cuda:0"


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """The test bed; described by a child first, so that a machine without a GPU opens nothing."""
    from bench.backends import open_backend
    from bench.gpu.described import cuda_device

    try:
        cuda_device(DEVICE)
        backend = open_backend(DEVICE)
    except DeviceError as error:
        if NAMED:
            raise
        pytest.skip(str(error))
    yield Bed(backend)
