"""The pointer chase: declared cost, random cycles, chains against the permutation and in machine code."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from bench.backends.chases import Chase, chains_of
from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, VerificationError
from bench.native import audit, emit, isa, jit
from bench.native.cycle import Cycle, Cycles, order_of
from bench.native.dependence import chains
from bench.native.emit import CLOCK_STEPS, Form, chase_steps
from bench.native.memory import Region, huge_share
from bench.profile.records import Point, Precision
from kernels import KERNELS
from kernels.latency import LINE_BYTES, chase, reference
from kernels.spec import ChaseShape, Work
from tests.counting import Array

FP64 = Precision.of("fp64")
CHASE = KERNELS["chase"]
MACHINES = [*isa.KNOWN.values(), isa.host()]
KIB = 1 << 10


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def a_point(
    variant: str = "1 chain", bytes: int = 64 * KIB, kernel: str = "chase", threads: int = 1
) -> Point:
    return Point("latency", kernel, variant, FP64, "L2", "read", threads=threads, sizes={"bytes": bytes})


def ring(lines: int, window: int = 0) -> Any:
    """The table of a cycle: which line follows each."""
    order = order_of(lines, window, seed=3)
    table = np.empty(lines, np.int64)
    table[order] = np.roll(order, -1)
    return table


def counted(body: Any, table: Any, starts: Any, steps: int) -> Work:
    tally: Counter[str] = Counter()
    body(Array(table, tally, integers=True), starts, steps)
    return Work.at(
        "L2", tally["flops"], reads=tally["loads"] * LINE_BYTES, writes=tally["stores"] * LINE_BYTES
    )


# kernel


@pytest.mark.parametrize("name", ["chase", "chase-local"])
def test_every_load_counts_as_one_line(name: str) -> None:
    kernel, starts, steps = KERNELS[name], [0, 5, 9], 7
    work = kernel.work(8, {"n": len(starts) * steps}, "L2")
    assert counted(kernel.plain, ring(20), starts, steps) == work
    assert work == Work.at("L2", 0.0, 21 * 64.0, 0.0)
    assert kernel.work(8, {"n": 21, "line": 128}, "L2").reads["L2"] == 21 * 128


def test_the_count_can_fail() -> None:
    def twice(table: Any, starts: Any, steps: int) -> Any:
        return [table[table[place]] for place in starts for _ in range(steps)]

    assert counted(twice, ring(20), [0], 4) != CHASE.work(8, {"n": 4}, "L2")


@pytest.mark.parametrize("steps", [0, 1, 2, 13, 64, 97])
def test_plain_body_equals_powers_of_the_permutation(steps: int) -> None:
    table, starts = ring(31), [4, 0, 30]
    assert chase(table, starts, steps) == reference(np, table, starts, steps).tolist()


# cycles


@pytest.mark.parametrize(("lines", "window"), [(1, 0), (2, 0), (1000, 0), (1000, 1), (1000, 64), (1024, 64)])
def test_a_cycle_visits_every_line_exactly_once(lines: int, window: int) -> None:
    assert sorted(order_of(lines, window, seed=1).tolist()) == list(range(lines))
    table, seen, place = ring(lines, window), [], 0
    for _ in range(lines):
        seen.append(place)
        place = int(table[place])
    assert place == 0 and sorted(seen) == list(range(lines))


def test_windows_are_left_only_when_all_their_lines_were_visited() -> None:
    windows = order_of(1000, 64, seed=1) // 64
    assert np.count_nonzero(np.diff(windows)) == len(set(windows.tolist())) - 1
    assert windows.tolist() != sorted(windows.tolist())


def test_lines_follow_each_other_at_random() -> None:
    order = order_of(4096, 0, seed=1).astype(int)
    assert np.mean(np.abs(np.diff(order)) < 32) < 0.03, "a neighbour by chance only"
    assert not np.array_equal(order, order_of(4096, 0, seed=2))


def test_pointers_in_memory_are_the_cycle() -> None:
    cycle = Cycle(64 * LINE_BYTES, 0, seed=7)
    words = cycle.region.view(np.int64, 0, 64 * 8)
    place = int(cycle.places(1)[0])
    for step in range(64):
        assert place == cycle.places(1, step)[0]
        place = int(words[(place - cycle.region.address) // 8])
    assert place == cycle.places(1)[0]
    assert cycle.places(4).tolist() == [cycle.places(1, 16 * c)[0] for c in range(4)]


def test_cycles_are_kept_for_points_that_share_a_set(backend: CpuBackend) -> None:
    made = Cycles(backend.team, 0)
    first = made.of(16 * KIB, 0, 1)
    assert made.of(16 * KIB, 0, 1) is first
    assert made.of(16 * KIB, 4 * KIB, 1) is not first
    made.of(64 * KIB, 0, 1)
    made.of(64 * KIB, 4 * KIB, 1)
    assert made.of(16 * KIB, 0, 1) is not first, "the oldest went when all were twice the largest"


def test_flushing_reads_twice_what_the_caches_hold(backend: CpuBackend) -> None:
    made = Cycles(backend.team, 1 << 20)
    made.flush()
    assert sum(region.bytes for region in made._sweep) == pytest.approx(2 << 20, rel=0.01)
    assert all(region.array.min() == 1 for region in made._sweep)


def test_huge_pages_are_a_share_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(8 << 20)
    region.array[:] = 1
    share = huge_share(region)
    assert share is None or 0.0 <= share <= 1.0

    def no_such(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_such)
    assert huge_share(region) is None


# on the machine


@pytest.mark.parametrize("kernel", ["chase", "chase-local"])
@pytest.mark.parametrize("variant", ["1 chain", "3 chains", "12 chains", "16 chains", "40 chains"])
def test_chains_end_where_the_permutation_says(backend: CpuBackend, variant: str, kernel: str) -> None:
    threads = len(backend.team.cpus)
    prepared = backend.prepare(a_point(variant, 300 * KIB, kernel, threads))
    backend.verify(prepared)
    handle: Chase = prepared.handle
    trips = 11
    taken = backend.measure(prepared, trips, 3)
    done = 3 * trips * handle.steps
    for cycle, places in zip(handle.cycles, handle.places, strict=True):
        want = cycle.places(handle.form.chains, done).tolist()
        assert places.view(np.int64, 0, handle.form.chains).tolist() == want, "repetitions go on"
    loads = trips * handle.steps * chains_of(prepared.point) * threads
    assert prepared.work(trips) == CHASE.work(8, {"n": loads}, "L2")
    assert len(taken.clock_hz) == 3 and min(taken.clock_hz) > 0
    assert prepared.facts["line_bytes"] == 64 and prepared.facts["chains"] == handle.form.chains
    backend.release(prepared)


def test_a_broken_cycle_is_refused(backend: CpuBackend) -> None:
    prepared = backend.prepare(a_point(bytes=32 * KIB))
    cycle = prepared.handle.cycles[0]
    words = cycle.region.view(np.int64, 0, cycle.lines * 8)
    first, far = ((cycle.places(1, n)[0] - cycle.region.address) // 8 for n in (0, cycle.lines // 2))
    words[first], words[far] = words[far], words[first]  # now there are two cycles
    with pytest.raises(VerificationError, match=r"chase \(1 chains\) is wrong: thread 0 .* not timed"):
        backend.verify(prepared)
    words[first], words[far] = words[far], words[first]
    backend.verify(prepared)


def test_chains_of_another_form_are_refused(backend: CpuBackend) -> None:
    prepared = backend.prepare(a_point("4 chains"))
    prepared.handle.function = backend.prepare(a_point("3 chains")).handle.function
    with pytest.raises(VerificationError, match="4 chains"):
        backend.verify(prepared)


def test_a_set_that_fits_is_brought_back_after_a_pause_and_one_that_does_not_is_flushed(
    backend: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(backend.machine.cycles, "flush", lambda: flushed.append(1))
    small = backend.prepare(a_point())
    assert small.handle.warm is not None and not flushed
    monkeypatch.setattr(backend.machine, "last_level_share", lambda threads: 32 * KIB)
    large = backend.prepare(a_point())
    assert large.handle.warm is None and flushed == [1]


@pytest.mark.parametrize(
    ("variant", "bytes", "message"),
    [
        ("two chains", 4096, "'two chains' is no form of chase: want '1 chain' to '512 chains'"),
        ("0 chains", 4096, "is no form of chase"),
        ("513 chains", 1 << 20, "is no form of chase"),
        ("8 chains", 256, "256 byte are no set for 8 chains"),
    ],
)
def test_points_that_are_no_chase_are_refused(
    backend: CpuBackend, variant: str, bytes: int, message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        backend.prepare(a_point(variant, bytes))


# in the machine code


def text_of(target: isa.Isa, form: Form) -> str:
    return jit.assembly(emit.loop_ir(ChaseShape(), form, target, "fp64"), target)


@pytest.mark.parametrize("target", MACHINES, ids=lambda t: f"{t.name}-{t.cpu}")
def test_every_chain_is_as_deep_as_a_trip_has_loads(target: isa.Isa) -> None:
    for number in (1, 2, 4, 6, 8, 12, 13, 16, 24, 25, 32, 64):
        form = Form(chains=number)
        assert audit.audit(text_of(target, form), CHASE, form, target, "fp64") == [], number
    assert chase_steps(Form(chains=12), target) == 8 and chase_steps(Form(chains=25), target) == 1


@pytest.mark.parametrize("name", ["sse2", "neon"])
def test_a_load_that_waits_for_no_other_is_caught(name: str) -> None:
    target, form = isa.KNOWN[name], Form(chains=2)
    pattern = r"movq\t\((%\w+)\), \1\n" if target.x86 else r"ldr\t(x\d+), \[\1\]\n"
    text, start = text_of(target, form), text_of(target, form).index(".LBB0_2:")
    found = re.search(pattern, text[start:])
    assert found
    loose = f"movq\t(%r15), {found[1]}\n" if target.x86 else f"ldr\t{found[1]}, [x20]\n"
    for broken in (loose, ""):
        changed = text[:start] + text[start:].replace(found[0], broken, 1)
        faults = audit.audit(changed, CHASE, form, target, "fp64")
        assert "loop: 15 pointer instructions, declared 16" in faults
        assert any("depth 8 instructions, declared 2" in fault for fault in faults)


def test_a_slot_that_is_not_stored_back_is_caught() -> None:
    target, form = isa.KNOWN["avx2"], Form(chains=16)
    changed = re.sub(r"\tmovq\t%rsi, 8\(%rcx\)\n", "", text_of(target, form), count=1)
    assert "loop: 15 slot store instructions, declared 16" in audit.audit(
        changed, CHASE, form, target, "fp64"
    )


def test_a_spill_is_caught() -> None:
    target, form = isa.KNOWN["sse2"], Form(chains=1)
    changed = text_of(target, form).replace("\tincq", "\tmovq\t%rdx, -8(%rsp)\n\tincq")
    assert any("spill" in fault for fault in audit.audit(changed, CHASE, form, target, "fp64"))


def test_pairs_of_slots_are_two() -> None:
    body = (
        ("ldp", "x1, x2, [x9, #16]"),
        ("ldr", "x1, [x1]"),
        ("ldr", "x2, [x2]"),
        ("stp", "x1, x2, [x9, #16]"),
    )
    want = Counter({"slot load": 2, "pointer": 2, "slot store": 2, "depth 1": 2})
    assert chains(body, isa.KNOWN["neon"]) == want


@pytest.mark.parametrize("target", MACHINES, ids=lambda t: f"{t.name}-{t.cpu}")
def test_the_clock_chain_is_one_dependent_instruction_a_cycle(target: isa.Isa) -> None:
    body = audit.loops(jit.assembly(emit.clock_ir(target), target))[0]
    words = ("addq", "xorq") if target.x86 else ("add", "eor")
    steps = [operands for mnemonic, operands in body if mnemonic in words and "#" not in operands]
    assert len(steps) == CLOCK_STEPS
    assert len(set(steps)) == 1, "the same register in and out, every time"


def test_the_clock_is_that_of_the_slowest_thread(
    backend: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = backend.machine
    machine.clock_hz(1)
    trips = int(machine._clock[0][4])
    rows = np.zeros((2, 3, 6), np.int64)
    rows[0, :, 1], rows[1, :, 1] = (10_000, 20_000, 90_000), (20_000, 50_000, 40_000)  # ns
    monkeypatch.setattr(machine, "timed", lambda *_: rows)
    assert machine.clock_hz(2) == pytest.approx(trips * CLOCK_STEPS / 20e-6)
