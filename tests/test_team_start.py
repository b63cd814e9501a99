"""Starting a team of threads on the host: the empty start, the smallest useful kernel."""

from __future__ import annotations

import numpy as np
import pytest

from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, VerificationError
from bench.links import team_start
from bench.native import fork_join, jit
from bench.profile.records import Point, Precision
from tests.sampling import sampled

FP64 = Precision.of("fp64")
KIB = 1 << 10


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def launched(kernel: str, variant: str = "team", threads: int = 1, **sizes: int) -> Point:
    return Point("launch", kernel, variant, FP64, threads=threads, sizes=sizes)


def test_the_team_starts_and_joins(backend: CpuBackend) -> None:
    everyone = len(backend.team.cpus)
    for point in (
        launched("empty"),
        launched("empty", threads=everyone),
        launched("empty", "woken", everyone),
    ):
        found = sampled(backend, point)
        assert found.status == "ok", found.reason
        assert (found.flops, found.bytes) == (0.0, 0.0) and found.facts["amount"] >= 1


def test_every_start_meets_twice_and_copies_its_bytes(backend: CpuBackend) -> None:
    everyone = len(backend.team.cpus)
    size = 8 * KIB * everyone
    prepared = backend.prepare(launched("smallest", threads=everyone, bytes=size))
    handle = prepared.handle
    backend.verify(prepared)
    assert handle.counter[0] == 2 * team_start.CHECKED_STARTS * everyone
    half = handle.memory.bytes // 16
    np.testing.assert_array_equal(handle.memory.view("f8", 8 * half, half), np.linspace(1, 2, half))
    work = prepared.work(3)
    assert work.reads[""] == work.writes[""] == 3 * size / 2
    handle.memory.view("f8", 8 * half, half)[:] = 0
    handle.body = jit.address(fork_join.empty_ir(backend.isa), backend.isa)
    with pytest.raises(VerificationError, match="smallest kernel differs"):
        handle.check()


def test_launches_that_a_cpu_does_not_have(backend: CpuBackend) -> None:
    for point in (launched("empty", "graph"), launched("smallest", bytes=100), launched("empty", "woken", 0)):
        with pytest.raises(DeviceError, match=r"valid: team, woken|want multiples of|are woken at once"):
            backend.prepare(point)
