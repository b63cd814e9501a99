"""The native layer: compiled objects, the driver's evidence, the thread team, memory, the check itself."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import host
from bench.errors import VerificationError
from bench.native import abi, emit, isa, jit, loops
from bench.native.arena import Arena, block
from bench.native.check import at, check_loop
from bench.native.emit import Form
from bench.native.loops import Window
from bench.native.memory import HUGE_PAGE, Region
from bench.native.team import Team
from kernels import KERNELS
from kernels.dots import INTO
from kernels.spec import LOOPED

HOST = isa.host(host.cpu_device().facts["isa"])
EMITTED = ("stream", "fma", "mix", "cache")


@pytest.fixture(scope="module")
def team() -> Any:
    made = Team(sorted(os.sched_getaffinity(0))[:2], HOST)
    yield made
    made.close()


def compiled(name: str, form: Form, precision: str = "fp64") -> int:
    return jit.address(emit.loop_ir(KERNELS[name].shape, form, HOST, precision), HOST)


def forms(name: str) -> list[Form]:
    kernel = KERNELS[name]
    if kernel.family == "fma":
        return [Form(chains=8), Form(chains=10)]
    if kernel.family == "mix":
        return [Form(s, 0, 0, False, s == 6, f) for s in (3, 6) for f in (1, 7, 12, 60)]
    if kernel.access in ("read", "update"):
        return [Form(3, 4), Form(6, 2, prefetch=512), Form(1, 12)]
    return [Form(1, 4), Form(2, 4), Form(1, 8, nontemporal=True)]


@pytest.mark.parametrize("precision", LOOPED)
@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if k.family in EMITTED])
def test_every_loop_equals_its_reference(name: str, precision: str) -> None:
    for form in forms(name):
        check_loop(at(compiled(name, form, precision)), KERNELS[name], form, precision, HOST)


def test_every_unit_of_this_machine_equals_its_reference() -> None:
    for precision in sorted(HOST.units):
        for form in forms("fma"):
            check_loop(at(compiled("fma", form, precision)), KERNELS["fma"], form, precision, HOST)


@pytest.mark.parametrize("steps", [3 * emit.CHAIN_UNROLL, 3 * emit.CHAIN_UNROLL - 1])
@pytest.mark.parametrize("precision", INTO)
def test_chains_of_dot_products_must_equal_their_reference(precision: str, steps: int) -> None:
    """A loop in NumPy with the right number of steps, and with one less."""
    target, form = isa.KNOWN["avx512"], Form(chains=8)

    def numbers(address: int) -> Any:
        raw = np.frombuffer(ctypes.string_at(address, target.vector_bytes), np.uint8)
        if precision == "int8":
            return raw.view(np.int8).astype(np.int64).reshape(-1, 4)
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(-1, 2)

    def loop(args: Any) -> None:
        lanes = target.vector_bytes // 4
        kind = ctypes.c_float if precision == "bf16" else ctypes.c_int32
        x = np.ctypeslib.as_array((kind * (8 * lanes)).from_address(int(args[abi.RESULT]))).reshape(8, lanes)
        for _ in range(steps):
            x += (numbers(int(args[abi.A])) * numbers(int(args[abi.B]))).sum(axis=1).astype(x.dtype)

    if steps == 3 * emit.CHAIN_UNROLL:
        check_loop(loop, KERNELS["fma"], form, precision, target)
    else:
        with pytest.raises(VerificationError, match=f"of {precision} is wrong"):
            check_loop(loop, KERNELS["fma"], form, precision, target)


@pytest.mark.parametrize(
    ("code", "claimed"),
    [("copy", "scale"), ("triad", "add"), ("add", "triad"), ("write", "copy"), ("update", "write")],
)
def test_a_wrong_loop_is_refused(code: str, claimed: str) -> None:
    form = Form(1, 4)
    with pytest.raises(VerificationError, match=f"{claimed} .* is wrong"):
        check_loop(at(compiled(code, form)), KERNELS[claimed], form, "fp64", HOST)


def test_a_read_that_sums_nothing_is_refused() -> None:
    with pytest.raises(VerificationError, match="the sum differs"):
        check_loop(at(compiled("copy", Form(1, 4))), KERNELS["read"], Form(1, 4), "fp64", HOST)


@pytest.mark.parametrize("claimed", [2, 4])
def test_a_mix_with_the_wrong_number_of_fmas_is_refused(claimed: int) -> None:
    function, kernel = compiled("mix-in-place", Form(3, fma=3)), KERNELS["mix-in-place"]
    with pytest.raises(VerificationError, match="mix-in-place"):
        check_loop(at(function), kernel, Form(3, fma=claimed), "fp64", HOST)


def test_a_loop_that_writes_too_far_is_refused() -> None:
    with pytest.raises(VerificationError, match="outside array a"):
        check_loop(at(compiled("write", Form(4, 7))), KERNELS["write"], Form(1, 4), "fp64", HOST)


def test_rows_hold_the_evidence_of_every_repetition(team: Team) -> None:
    args = [block(span=1000, factor=1e-12, result=Region(4096).address) for _ in team.cpus]
    regions = [loops.operands("f8") for _ in team.cpus]
    for a, region in zip(args, regions, strict=True):
        a[abi.RESULT] = region.address
    function = compiled("fma", Form(chains=8))
    rows = team.run(function, args, (function, args), np.zeros(7, np.int64))
    assert rows.shape == (len(team.cpus), 7, abi.ROW)
    assert (rows[:, :, abi.END] > rows[:, :, abi.START]).all()
    assert (rows[:, 1:, abi.START] >= rows[:, :-1, abi.END]).all()
    assert (rows[:, :, abi.CPU_END] >= rows[:, :, abi.CPU_START]).all()
    # the barrier: no thread starts a repetition before all have ended the one before
    assert (rows[:, 1:, abi.START].min(0) >= rows[:, :-1, abi.END].min(0)).all()
    taken = loops.repetitions(rows)
    assert len(taken) == 7
    assert taken.seconds[0] == pytest.approx((rows[:, 0, abi.END].max() - rows[:, 0, abi.START].min()) * 1e-9)


def test_a_nap_costs_no_timed_time(team: Team) -> None:
    region = loops.operands("f8")
    args = [block(span=10, factor=1e-12, result=region.address)]
    function = compiled("fma", Form(chains=8))
    rows = team.run(function, args, (function, args), np.zeros(5, np.int64), nap_ns=3_000_000)
    assert (np.diff(rows[0, :, abi.START]) >= 3_000_000).all()
    assert np.median(rows[0, :, abi.END] - rows[0, :, abi.START]) < 1_000_000


def test_offsets_move_the_window(team: Team) -> None:
    span, a = 4 * HOST.vector_bytes, Region(1 << 16)
    a.array[:] = 0
    args = [block(a=a.address, b=0, c=0, span=span, passes=1, factor=2.5, result=Region(8192).address)]
    function, warm = compiled("write", Form(1, 4)), compiled("fma", Form(chains=8))
    result = loops.operands("f8")
    args[0][abi.RESULT] = result.address
    idle = [block(span=0, result=result.address)]
    team.run(function, args, (warm, idle), np.array([0, 2 * span], np.int64))
    written = a.view(np.float64, 0, (1 << 16) // 8).nonzero()[0] * 8 // span
    assert sorted(set(written.tolist())) == [0, 2]


def test_a_fault_in_a_task_reaches_the_caller(team: Team) -> None:
    def task(index: int) -> None:
        if index == 0:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        team.each(task)
    team.each(lambda index: None)  # the team still works


def test_threads_are_pinned(team: Team) -> None:
    seen: dict[int, set[int]] = {}
    team.each(lambda index: seen.__setitem__(index, os.sched_getaffinity(0)))
    assert seen == {i: {cpu} for i, cpu in enumerate(team.cpus)}


def test_window_rotates_and_wraps() -> None:
    window = Window(part=1000, unit=10)
    assert window.most == 100
    assert window.cut(30) == (30, 1)
    assert window.cut(250) == (100, 3)
    assert window.offsets(30, 4).tolist() == [0, 300, 600, 0]
    assert window.offsets(30, 2).tolist() == [300, 600]
    assert window.offsets(100, 2).tolist() == [0, 0]


def test_regions_are_aligned_and_refusals_are_memory_errors() -> None:
    assert Region(100).address % HUGE_PAGE == 0
    with pytest.raises(MemoryError, match="refused"):
        Region(1 << 60)


def test_regions_get_huge_pages_where_the_system_has_them() -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    offered = setting.exists() and "[never]" not in setting.read_text()
    region = Region(8 * HUGE_PAGE)
    region.array[:] = 1
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        first, _, rest = line.partition("-")
        if rest and " " in rest and int(first, 16) <= region.address < int(rest.split()[0], 16):
            break
    huge = next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
    assert (huge > 0) == offered


def test_operands_are_random_numbers_in_both_precisions(team: Team) -> None:
    arena = Arena(1 << 21, len(team.cpus), team, HOST)
    region = arena._regions["b"]
    singles = region.view(np.float32, 0, arena.part // 4)
    doubles = region.view(np.float64, 0, arena.part // 8)
    assert singles.min() >= 1.0 and singles.max() < 2.0
    assert doubles.min() >= 2.0**-7 and doubles.max() < 2.0
    assert len(np.unique(doubles)) == len(doubles)
    assert not np.array_equal(doubles[:1000], arena._regions["c"].view(np.float64, 0, 1000))


def test_operands_are_renewed_when_the_precision_changes(team: Team) -> None:
    arena = Arena(1 << 21, len(team.cpus), team, HOST)
    numbers = arena._regions["a"].view(np.float32, 0, 1000)
    arena.ready_for("fp64")
    numbers[:] = np.nan
    arena.ready_for("fp64")
    assert np.isnan(numbers).all()
    arena.ready_for("fp32")
    assert numbers.min() >= 1.0


def test_compiled_objects_are_kept_and_a_torn_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jit.CACHE_VARIABLE, str(tmp_path / "cache"))
    text = emit.loop_ir(KERNELS["scale"].shape, Form(1, 4), HOST, "fp64")
    fresh = jit._cached_object(text, HOST)
    (kept,) = (tmp_path / "cache").iterdir()
    assert jit._cached_object(text, HOST) == fresh
    kept.write_bytes(kept.read_bytes()[:-40])
    assert jit._cached_object(text, HOST) == fresh
    assert kept.stat().st_size > len(fresh)


def test_an_unwritable_cache_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(jit.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    text = emit.loop_ir(KERNELS["add"].shape, Form(1, 4), HOST, "fp64")
    assert jit._cached_object(text, HOST)[:4] == b"\x7fELF"


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jit.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert jit.cache_folder() == Path("/somewhere/empirical-roofline")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jit.cache_folder() == Path.home() / ".cache" / "empirical-roofline"


def test_without_a_home_code_is_compiled_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that no table of users has."""
    for name in (jit.CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert not jit.cache_folder().exists() and jit.cache_folder().is_absolute()
    ir = emit.loop_ir(KERNELS["copy"].shape, Form(5, 3), HOST, "fp64")
    assert at(jit.address.__wrapped__(ir, HOST)) and not jit.cache_folder().exists()


@pytest.mark.parametrize(
    ("triple", "features", "want"),
    [
        ("x86_64-linux", {"avx512f": True, "avx": True, "fma": True}, ("avx512", 64, 32, True)),
        ("x86_64-linux", {"avx": True, "fma": True}, ("avx2", 32, 16, True)),
        ("x86_64-linux", {"avx": True}, ("avx", 32, 16, False)),
        ("x86_64-linux", {}, ("sse2", 16, 16, False)),
        ("aarch64-linux", {}, ("neon", 16, 32, True)),
    ],
)
def test_host_isa(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: dict[str, bool], want: tuple[Any, ...]
) -> None:
    class Features(dict):  # type: ignore[type-arg]
        def flatten(self) -> str:
            return ""

    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: triple)
    monkeypatch.setattr(isa.llvm, "get_host_cpu_features", lambda: Features(features))
    found = isa.host()
    assert (found.name, found.vector_bytes, found.registers, found.fma) == want


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: "riscv64-linux")
    with pytest.raises(RuntimeError, match="riscv64"):
        isa.host()
