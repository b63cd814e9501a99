"""The loop around one point: order of the verbs, calibration, skips and failures as samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.planning.planned import Planned
from bench.profile.records import Point, Precision, Repetitions
from bench.running.measure import Session, allowed, calibrate, settle
from tests.fake_device import BYTES, FLOPS, UNIT_SECONDS, FakeBackend

READ = Point(
    "stream", "read", "s3u4", Precision.of("fp64"), "DRAM", "read", threads=2, sizes={"bytes": 1 << 27}
)
PLANNED = Planned(READ, 0, 0.1, 0.5, 0.01, 10e-3, 0.1, 6, 16 << 20)


def session(backend: FakeBackend) -> Session:
    return Session(backend, round=3, process=7)


def test_a_sample_is_prepared_verified_calibrated_repeated_and_released() -> None:
    backend = FakeBackend()
    sample = session(backend).sample(PLANNED, order=5)
    assert [c[0] for c in backend.calls][:3] == ["prepare", "verify", "measure"]
    assert backend.calls[-1] == ("release", "read")
    assert (sample.status, sample.round, sample.process, sample.order) == ("ok", 3, 7, 5)
    assert sample.facts["stopped"] == "converged"
    assert sample.facts["isa"] == "fake"
    assert len(sample.repetitions) == 9, "the minimum of 6 has no interval yet; 3 more fit into 0.1 s"


def test_a_repetition_takes_the_target_and_moves_the_least_bytes() -> None:
    backend = FakeBackend()
    sample = session(backend).sample(PLANNED, 0)
    # 16 MiB at 1600 byte a unit are 10486 units of 1 us: more than the target of 10 ms.
    assert sample.facts["amount"] == 10486
    assert sample.bytes_read == 10486 * BYTES >= 16 << 20 and sample.bytes_written == 0
    assert sample.flops == 10486 * FLOPS
    short = session(backend).sample(replace(PLANNED, moved=0.0), 0)
    assert short.facts["amount"] == 10_000
    assert short.repetitions.seconds[0] == pytest.approx(10e-3)
    assert short.bytes_read == 10_000 * BYTES


def test_a_sample_names_the_clock_that_timed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    assert session(backend).sample(PLANNED, 0).clock_source == "native"
    prepare = backend.prepare
    monkeypatch.setattr(backend, "prepare", lambda point: replace(prepare(point), clock_source="host"))
    assert session(backend).sample(PLANNED, 0).clock_source == "host"


def test_a_kernel_without_traffic_has_no_bytes() -> None:
    point = Point("fma", "fma", "12 chains", Precision.of("fp64"))
    sample = session(FakeBackend()).sample(replace(PLANNED, point=point, target=2.5e-3), 0)
    assert (sample.bytes, sample.flops) == (0.0, 2500 * FLOPS)


def test_each_loop_is_verified_once_a_process_whatever_its_array_size() -> None:
    backend = FakeBackend()
    opened = session(backend)
    for size in (1 << 12, 1 << 13):
        opened.sample(replace(PLANNED, point=replace(READ, sizes={"bytes": size})), 0)
    opened.sample(replace(PLANNED, point=replace(READ, variant="s6u2")), 0)
    assert sum(call[0] == "verify" for call in backend.calls) == 2


def test_what_is_unsupported_is_skipped_with_the_reason() -> None:
    point = replace(READ, precision=Precision.of("bf16"))
    backend = FakeBackend()
    sample = session(backend).sample(replace(PLANNED, point=point), 0)
    assert (sample.status, sample.reason) == ("skipped", "no bf16 here")
    assert backend.calls == [] and len(sample.repetitions) == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("memory", "out of memory: no room for 5 GB"),
        ("device", "the BLAS is missing: install one"),
        ("verify", "read differs from its reference: it is not timed"),
        ("zero", "the timer returned 0 s for the largest amount: this device's clock stands still"),
    ],
)
def test_failures_are_samples_and_nothing_is_timed(fault: str, reason: str) -> None:
    backend = FakeBackend(faults={"read": fault})
    sample = session(backend).sample(PLANNED, 0)
    assert (sample.status, sample.reason) == ("failed", reason)
    assert sample.repetitions.seconds == ()
    assert fault == "zero" or not any(call[0] == "measure" for call in backend.calls)


def test_a_failed_kernel_is_released_and_the_next_one_measured() -> None:
    backend = FakeBackend(faults={"read": "verify"})
    opened = session(backend)
    opened.sample(PLANNED, 0)
    assert backend.calls[-1] == ("release", "read")
    assert opened.sample(replace(PLANNED, point=replace(READ, kernel="copy")), 1).status == "ok"


def test_a_bug_is_no_sample() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        session(FakeBackend(faults={"read": "bug"})).sample(PLANNED, 0)


def test_the_budget_scales() -> None:
    wide = replace(PLANNED, moved=0.0, half_width=-1.0)
    counts = [len(session(FakeBackend()).sample(wide, 0, scale).repetitions) for scale in (1.0, 2.0)]
    assert counts == [10, 20]


@pytest.mark.parametrize(("expected", "count"), [(1e-5, 256), (1e-4, 160), (1e-2, 16)])
def test_short_repetitions_of_a_load_that_is_not_kept_come_many_a_call(expected: float, count: int) -> None:
    backend = FakeBackend()
    prepared = backend.prepare(PLANNED.point)
    settle(backend, prepared, round(expected / UNIT_SECONDS), expected, 1.0)
    counts = [call[-1] for call in backend.calls if call[0] == "measure"]
    assert counts[0] == max(counts) == count
    assert prepared.facts["settled_seconds"] == pytest.approx(1.0, abs=2 * expected)


def test_long_work_is_executed_at_least_once_a_repetition() -> None:
    backend = FakeBackend(slow={"read": 1e6})
    sample = session(backend).sample(replace(PLANNED, moved=0.0), 0)
    assert sample.facts["amount"] == 1
    assert sample.facts["stopped"] == "time limit after 1 of 6 repetitions"


def test_wall_time_and_warm_up_are_on_the_clock_of_the_device() -> None:
    backend = FakeBackend()
    opened = session(backend)
    opened.warm_up(0.5)
    opened.warm_up(0.5)
    assert backend.now() == 0.5
    sample = opened.sample(PLANNED, 0)
    assert sample.facts["wall_seconds"] == pytest.approx(backend.now() - 0.5)


class Disturbed(FakeBackend):
    """The first two trial runs are caught by another process and seem 5 ms long."""

    def measure(self, prepared, amount, n):  # type: ignore[no-untyped-def]
        first = not any(call[0] == "measure" for call in self.calls)
        rows = super().measure(prepared, amount, n)
        return replace(rows, seconds=(5e-3,) * n) if first else rows


def test_a_disturbed_calibration_is_noticed_and_repeated() -> None:
    sample = session(Disturbed()).sample(replace(PLANNED, moved=0.0), 0)
    assert sample.facts["amount"] == 10_000
    assert min(sample.repetitions.seconds) == pytest.approx(10e-3)


def test_calibration_grows_from_the_least_amount() -> None:
    backend = FakeBackend()
    amount, expected = calibrate(backend, backend.prepare(READ), 2e-3)
    assert (amount, expected) == (2000, pytest.approx(2000 * UNIT_SECONDS))
    assert [c[2] for c in backend.calls if c[0] == "measure"] == [1, 64, 2000]


@pytest.mark.parametrize(("amount", "want"), [(1, 8), (9, 12), (12, 12), (1e9, 40)])
def test_amounts_are_whole_steps_inside_the_limits(amount: float, want: int) -> None:
    prepared = replace(FakeBackend().prepare(READ), least=8, most=40, step=4)
    assert allowed(prepared, amount) == want


def test_a_negative_time_fails_the_point() -> None:
    class Backwards(FakeBackend):
        def measure(self, prepared, amount, n):  # type: ignore[no-untyped-def]
            return Repetitions((0.0,) * n, (-1.0,) * n)

    sample = session(Backwards()).sample(PLANNED, 0)
    assert sample.status == "failed" and "timer returned -1.0 s" in sample.reason
