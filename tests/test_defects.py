"""Defects of the simulated device: they distort what the protocol returns and leave the truth alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.defects import DEFECTS, Defect
from bench.gpu.faults import ContextLost
from bench.profile.records import Precision, Repetitions
from kernels import KERNELS
from tests.truths import QUIET, backend, changed, point, random_truth

HEALTHY = changed(random_truth(21), threads=2, noise={"within": 0.02, "between": 0.03})


def ill(*defects: dict[str, Any], **changes: Any) -> SimulatedBackend:
    return backend(changed(HEALTHY, defects=list(defects), **changes))


def repetitions(device: SimulatedBackend, kernel: str, amount: int, n: int) -> Repetitions:
    device.begin_round(1)
    return device.measure(device.prepare(point(kernel, threads=2)), amount, n)


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_changes_nothing_but_what_the_protocol_returns(kind: str) -> None:
    healthy, sick = ill(), ill({"kind": kind})
    assert sick.device.caches == healthy.device.caches and sick.device.precisions == healthy.device.precisions
    assert sick.truth.pi == healthy.truth.pi and sick.truth.memory == healthy.truth.memory
    fp64 = Precision.of("fp64")
    for name in KERNELS:
        what = point(name, threads=2, **({"sizes": {"bytes": 1 << 20}} if name in ("read", "triad") else {}))
        assert sick.unsupported(what) == healthy.unsupported(what) == ""
        assert sick.variants(name, fp64, "DRAM", 2) == healthy.variants(name, fp64, "DRAM", 2)
        try:
            prepared = sick.prepare(what)
        except MemoryError:
            assert kind == "out-of-memory"
            continue
        except ContextLost:
            assert kind == "dies" and KERNELS[name].family == "tensor"
            continue
        assert prepared.work(10) == healthy.prepare(what).work(10)


def test_a_place_for_defects_does_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFECTS, "none", Defect)
    for kernel in KERNELS:
        assert repetitions(ill({"kind": "none"}), kernel, 1000, 20) == repetitions(ill(), kernel, 1000, 20)


def test_a_defect_may_spoil_results(monkeypatch: pytest.MonkeyPatch) -> None:
    class Folded(Defect):
        def verify(self, prepared: object) -> None:
            raise ArithmeticError("folded")

    monkeypatch.setitem(DEFECTS, "folded", Folded)
    device = ill({"kind": "folded"})
    with pytest.raises(ArithmeticError, match="folded"):
        device.verify(device.prepare(point("fma")))


def test_a_noisy_neighbour_disturbs_a_share_and_leaves_evidence() -> None:
    sick = ill({"kind": "noisy-neighbour", "share": 0.25, "stretch": 3.0})
    seen, true = repetitions(sick, "read", 1000, 4000), repetitions(ill(), "read", 1000, 4000)
    clean = np.array(seen.clean)
    assert 1 - clean.mean() == pytest.approx(0.25, abs=0.02)
    ratio = np.array(seen.seconds) / np.array(true.seconds)
    assert ratio[clean] == pytest.approx(1) and ratio[~clean] == pytest.approx(3)
    assert set(np.array(seen.switches)[~clean]) == {1} and set(np.array(seen.switches)[clean]) == {0}
    assert np.array(seen.cpu_share)[~clean] == pytest.approx(1 / 3)
    assert np.diff(seen.start) == pytest.approx(seen.seconds[:-1], rel=1e-6)
    assert sick.now() == pytest.approx(sum(seen.seconds)) and sick.conditions()["load"] == 0.25
    assert repetitions(sick, "read", 1000, 4000).seconds == seen.seconds


@pytest.mark.parametrize(("kernel", "slower"), [("fma", 2.0), ("cache-read", 2.0), ("read", 1.0)])
def test_throttling_takes_clock_and_pi_from_a_moment_on(kernel: str, slower: float) -> None:
    def long(device: SimulatedBackend) -> Repetitions:
        device.begin_round(1)
        prepared = device.prepare(point(kernel, threads=2))
        one = device.measure(prepared, 10**6, 1).seconds[0]
        device.warm_up(100.0 - device.now())
        return device.measure(prepared, int(10**6 * 0.01 / one), 400)

    sick = ill({"kind": "throttle", "after": 102.0, "share": 0.5}, noise=QUIET, t0=0.0)
    seen, true = long(sick), long(ill(noise=QUIET, t0=0.0))
    hot = np.array([why == "thermal" for why in seen.throttle])
    first = int(np.argmax(hot))
    assert (
        0.4 < first / 400 < 0.6 and hot[first:].all() and true.start[first] == pytest.approx(102.0, abs=0.02)
    )
    ratio = np.array(seen.seconds) / np.array(true.seconds)
    assert ratio[:first] == pytest.approx(1) and ratio[first:] == pytest.approx(slower)
    clock = sick.truth.clock_hz
    assert set(seen.clock_hz[:first]) == {clock} and set(seen.clock_hz[first:]) == {clock / 2}
    assert sick.conditions()["clock_hz"] == clock / 2
    assert ill({"kind": "throttle", "after": 102.0}).conditions()["clock_hz"] == clock


def test_memory_runs_out_above_the_limit() -> None:
    device = ill({"kind": "out-of-memory", "limit_bytes": 3e6})
    assert device.device.memory_bytes == int(HEALTHY["memory"]["bytes"])
    device.prepare(point("triad", sizes={"bytes": 1_000_000}))
    with pytest.raises(MemoryError, match=r"SIMULATED: no room for 3.3e\+06 byte, limit 3e\+06"):
        device.prepare(point("triad", sizes={"bytes": 1_100_000}))
    device.prepare(point("fma"))


def test_defects_act_one_after_another() -> None:
    both = ill({"kind": "throttle", "after": 0.0, "share": 0.5}, {"kind": "noisy-neighbour", "share": 1.0})
    seen, true = repetitions(both, "fma", 10**9, 50), repetitions(ill(), "fma", 10**9, 50)
    assert np.array(seen.seconds) / np.array(true.seconds) == pytest.approx(4.0, rel=1e-3)
    assert not any(seen.clean) and set(seen.throttle) == {"thermal"}
