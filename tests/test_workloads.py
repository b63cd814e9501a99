"""Every workload equals its reference, is vectorised, starts cold and refuses wrong sizes."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.backends import calls
from bench.device import Device
from bench.errors import UsageError, VerificationError
from bench.native import abi
from bench.native.isa import host
from bench.profile.records import Point, Precision
from bench.workloads import softmax, stencil, workload
from bench.workloads.operands import Operands, blocks, mixed, sets_beyond, shares
from bench.workloads.zoo import ZOO

GIB, MIB = 1 << 30, 1 << 20
ULP = 2.0**-23


@pytest.mark.parametrize("name", list(ZOO))
@pytest.mark.parametrize(("threads", "past"), [(1, True), (2, True), (7, True), (2, False)])
def test_result_equals_reference(name: str, threads: int, past: bool) -> None:
    ZOO[name].verify(threads, past)


WRITTEN_OUT = ("stencil 7-point", "softmax", "layernorm", "transpose", "gemm tall")


@pytest.mark.parametrize("name", WRITTEN_OUT)
@pytest.mark.parametrize(("level", "past"), [("L2", 0), ("DRAM", 1), ("", 1)])
def test_results_bypass_the_caches_only_where_the_operands_exceed_them(
    name: str, level: str, past: int
) -> None:
    point = Point("workload", name, "", Precision.of(ZOO[name].precision), level, sizes=dict(ZOO[name].small))
    device = Device("cpu", "cpu", "any", "any", "quiet", 1, GIB, (), {})
    prepared = calls.workload(point, device, lambda *job, **_: workload.one_after_another(*job[:2]))
    assert {int(block[-1]) for block in prepared.handle.ready.blocks} == {past}


def test_stencil_of_several_blocks_of_rows_equals_its_reference() -> None:
    assert stencil.BLOCK_BYTES // (8 * 98) < 96
    ready = ZOO["stencil 7-point"].prepare(2, {"n": 96})
    want = ready.expected()
    ready.once()
    workload.agree("stencil 7-point", ready.result(), want, "fp64", 7)


@pytest.mark.parametrize("name", list(ZOO))
def test_a_wrong_result_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ZOO[name].build

    def wrong(*args: Any) -> workload.Ready:
        ready = right(*args)
        result = ready.result
        ready.result = lambda: np.asarray(result()) * (1 + 1e-3)
        return ready

    monkeypatch.setitem(ZOO[name].__dict__, "build", wrong)
    with pytest.raises(VerificationError, match=f"workload {name} differs from its reference by 0.001"):
        ZOO[name].prepare(2, ZOO[name].small).check()


EMITTED = ("resnet50 conv 3x3", "gemm tall")  # tiles of vectors, not Python; counted on textbook loops
PLAIN = [name for name, w in ZOO.items() if w.implementation.startswith("Numba") and name not in EMITTED]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_python_does_what_the_machine_code_does(name: str) -> None:
    from bench.workloads import compiled

    ready = ZOO[name].prepare(2, ZOO[name].small)
    body = next(f for f in compiled._kept if f.address == ready.address)._pyfunc
    want = np.array(ready.expected())
    for block in ready.blocks:
        body(block)
    workload.agree(name, ready.result(), want, ZOO[name].precision, 2000)


def test_threads_share_the_work_and_every_block_has_its_own_result() -> None:
    ready = ZOO["dot"].prepare(3, {"n": 1000})
    assert [int(block[3]) for block in ready.blocks] == [328, 336, 336]
    assert len({int(block[4]) for block in ready.blocks}) == 3


def test_more_threads_than_work_leaves_some_idle() -> None:
    assert shares(3, 5) == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]
    ZOO["gemv"].verify(64)


def test_shares_are_cut_at_the_grain_and_cover_everything() -> None:
    parts = shares(1003, 4, 8)
    assert parts == [(0, 248), (248, 504), (504, 752), (752, 1003)]


def test_stencil_grid_uses_every_thread() -> None:
    assert [stencil.grid(t) for t in (1, 2, 6, 7, 256)] == [(1, 1), (2, 1), (3, 2), (7, 1), (16, 16)]


@pytest.mark.parametrize("name", list(ZOO))
@pytest.mark.parametrize(
    "memory, cache, threads", [(24 * GIB, 32 * MIB, 2), (768 * GIB, GIB, 256), (GIB, 0, 1)]
)
def test_default_sizes_are_cold_and_fit(name: str, memory: int, cache: int, threads: int) -> None:
    sizes = ZOO[name].sizes(memory, cache, threads)
    work, sets = ZOO[name].work(sizes), sizes.get("sets", 1)
    assert all(v % ZOO[name].grain.get(k, 1) == 0 for k, v in sizes.items())
    assert set(sizes) == set(ZOO[name].small)
    held = work.reads["DRAM"] * sets if ZOO[name].in_place else work.bytes("DRAM") * sets
    assert held <= 0.5 * memory
    assert held >= 2 * cache
    if sets == 1:
        assert held >= 0.9 * min(4 * cache, memory / 4)


@pytest.mark.parametrize("name", ["gemm", "resnet50 conv 3x3"])
def test_compute_bound_sizes_grow_with_the_threads(name: str) -> None:
    few, many = (ZOO[name].sizes(64 * GIB, 32 * MIB, t) for t in (2, 64))
    ratio = ZOO[name].work(many).flops / ZOO[name].work(few).flops
    assert ratio == pytest.approx(32, rel=0.2)


def test_sets_exceed_twice_the_caches() -> None:
    assert [sets_beyond(32, b) for b in (10, 30, 100)] == [7, 3, 2]


def test_windows_step_from_set_to_set_and_each_holds_its_own_operands() -> None:
    sizes = {"images": 1, "edge": 14, "sets": 3}
    ready = ZOO["resnet50 conv 3x3"].prepare(1, sizes)
    held = ready.keep[0]
    assert ready.windows == (0, held.stride, 2 * held.stride)
    assert held.stride >= 4 * 64 * (16**2 + 14**2) + 2 * 4 * 9 * 64**2
    ready.blocks[0][0] = ready.windows[2]
    workload.one_after_another(ready.address, ready.blocks)
    x = held.view("x", np.float32, (1, 16, 16, 64), 2)
    w = held.view("w", np.float32, (3, 3, 64, 64), 2)
    y = held.view("y", np.float32, (1, 14, 14, 64), 2)
    from bench.workloads.convolution import reference

    assert np.abs(y - reference(x, w)).max() < 1e-4
    assert not np.array_equal(x, held.view("x", np.float32, (1, 16, 16, 64), 0))


def test_library_calls_take_turns_through_the_sets_and_report_their_times() -> None:
    ready = ZOO["gemm"].prepare(1, {"m": 8, "n": 8, "k": 8, "sets": 2})
    assert ready.kind == "host" and ready.repeat is not None
    held = ready.keep[0]
    first, second = (held.view("C", np.float64, (8, 8), s) for s in (0, 1))
    before = second.copy()
    rows = ready.repeat(1)
    assert np.array_equal(second, before) and not np.array_equal(first, before)
    rows += ready.repeat(1)
    assert not np.array_equal(second, before)
    assert all(end > start and switches >= 0 for start, end, switches in rows)
    assert rows[1][0] >= rows[0][1]


def test_fft_and_adam_stay_finite_over_many_executions() -> None:
    for name in ("fft", "adam"):
        ready = ZOO[name].prepare(1, ZOO[name].small)
        for _ in range(200):
            ready.once()
        values = np.asarray(ready.result())
        assert np.isfinite(values).all() and np.abs(values).max() < 20


@pytest.mark.parametrize(
    "sizes", [{"n": 7}, {"m": 4}, {"m": 4, "n": 8, "k": 1}, {"m": 6, "n": 8}, {"m": 0, "n": 8}]
)
def test_wrong_sizes_are_refused_by_name(sizes: dict[str, int]) -> None:
    with pytest.raises(
        UsageError, match=r"gemv takes the sizes m \(a multiple of 4\), n \(a multiple of 1\)"
    ):
        ZOO["gemv"].prepare(1, sizes)


def test_exponential_is_within_two_ulp_over_its_whole_range() -> None:
    x = -np.concatenate([np.linspace(0, 87, 4001), np.geomspace(1e-8, 1, 500)]).astype(np.float32)
    got = _exponentials(x)
    want = np.exp(x.astype(np.float64))
    assert np.max(np.abs(got - want) / want) < 2 * ULP
    assert _exponentials(np.array([-1e4, -100.0], np.float32)) == pytest.approx(np.exp(-87.0), rel=1e-6)


def _exponentials(x: Any) -> Any:
    """exp of x by the compiled function: args are x, y, items."""
    from bench.workloads import compiled

    y = np.empty_like(x)
    args = blocks([(x.ctypes.data, y.ctypes.data, len(x))])
    workload.one_after_another(compiled.address(_each, exact=(softmax.exponential,)), args)
    return y


def _each(args: Any) -> None:
    x, y = softmax.floats(args[1], args[3]), softmax.floats(args[2], args[3])
    for i in range(len(x)):
        y[i] = softmax.exponential(x[i])


def test_exponential_in_plain_python_is_the_same_function() -> None:
    for x in (-0.0, -0.3, -1.0, -20.5, -86.9):
        assert float(softmax.exponential(np.float32(x))) == pytest.approx(np.exp(np.float32(x)), rel=2 * ULP)


PACKED = {  # an instruction of the inner loop, on x86-64 and on AArch64
    "dot": (r"vfmadd\w*pd|mulpd", r"fmla"),
    "gemv": (r"vfmadd\w*pd|mulpd", r"fmla"),
    "stencil 7-point": (r"v?addpd", r"fadd"),
    "softmax": (r"vfmadd\w*ps|mulps", r"fmla"),
    "layernorm": (r"v?subps", r"fsub"),
    "adam": (r"v?sqrtps|v?rsqrtps", r"fsqrt"),
    "resnet50 conv 3x3": (r"vfmadd\w*ps|mulps", r"fmla"),
    "gemm tall": (r"vfmadd\w*pd|mulpd", r"fmla"),
}
STREAMED = ["gemm tall", "stencil 7-point", "softmax", "layernorm", "transpose"]


def _assembly(name: str) -> str:
    from bench.workloads import adam, compiled, dot, gemv, layernorm, registers, transpose

    parts, exact = (softmax.highest, softmax.exponentials, softmax.scale), (softmax.exponential,)
    made: dict[str, Callable[[], str]] = {
        "dot": lambda: compiled.assembly(dot.chunk, dot.dot, dot.tail),
        "gemv": lambda: compiled.assembly(gemv.chunk, gemv.four_rows),
        "stencil 7-point": lambda: compiled.assembly(stencil.chunk, stencil.row),
        "softmax": lambda: compiled.assembly(softmax.chunk, *parts, exact=exact),
        "layernorm": lambda: compiled.assembly(layernorm.chunk, layernorm.layernorm),
        "adam": lambda: compiled.assembly(adam.chunk, adam.step),
        "transpose": lambda: compiled.assembly(transpose.chunk, transpose.tile),
        "resnet50 conv 3x3": lambda: compiled.assembly(registers.convolve),
        "gemm tall": lambda: compiled.assembly(registers.multiply),
    }
    return made[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*PACKED, *STREAMED}))
def test_machine_code_is_vectorised_and_streams_its_output(name: str) -> None:
    isa = host()
    text = _assembly(name)
    register = {64: "[yz]mm", 32: "ymm", 16: "xmm" if isa.x86 else r"v\d+\.[24][ds]"}[isa.vector_bytes]
    if name in PACKED:
        assert re.search(rf"^\s+(?:{PACKED[name][0 if isa.x86 else 1]})\s.*{register}", text, re.M)
    if name in STREAMED:
        assert re.search(rf"^\s+v?movntp[sd]\s.*{register}" if isa.x86 else r"^\s+stnp\s", text, re.M)
        assert re.search(r"lock\s+or|mfence" if isa.x86 else r"dmb", text)


@pytest.mark.slow
@pytest.mark.parametrize("name, passes", [("resnet50 conv 3x3", 3), ("gemm tall", 1)])
def test_register_tiles_keep_their_sums_in_registers(name: str, passes: int) -> None:
    isa = host()
    fused = (r"vfmadd" if isa.fma else r"mulp[sd]") if isa.x86 else r"fmla"
    spilled = r"^\s+v?mov\w+\s.*%[xyz]mm\d+, .*\(%rsp" if isa.x86 else r"^\s+st[rp]\s+q\d+.*\[sp"
    loops = re.split(r"^\.LBB\w+:", _assembly(name), flags=re.M)
    inner = [block for block in loops if len(re.findall(fused, block)) >= 8]
    assert len(inner) >= 2 * passes  # of the wide tile and of the narrow one
    assert not [block for block in inner if re.search(spilled, block, re.M)]


def test_random_operands_are_spread_over_the_range_and_differ_between_arrays() -> None:
    held = Operands({"a": 8 * 10_000, "b": 4 * 10_001}, sets=2)
    held.fill(workload.one_after_another, 3, {"a": (-1.0, 3.0)}, "fp64")
    held.fill(workload.one_after_another, 3, {"b": (0.0, 1.0)}, "fp32")
    a = held.view("a", np.float64, (10_000,))
    assert a.min() >= -1 and a.max() < 3
    assert a.mean() == pytest.approx(1.0, abs=0.05) and a.std() == pytest.approx(4 / 12**0.5, rel=0.03)
    assert len(np.unique(a)) == len(a)
    assert not np.array_equal(a, held.view("a", np.float64, (10_000,), 1))
    with np.errstate(over="ignore"):
        assert a[5] == -1.0 + 4.0 * mixed(5, 0)
    assert held.view("b", np.float32, (10_001,))[-1] > 0  # the odd end is filled as well


def test_arrays_start_on_lines_that_do_not_share_cache_sets() -> None:
    held = Operands({"a": 4096, "b": 4096, "c": 4096})
    starts = [held.address(name) % 4096 for name in "abc"]
    assert all(start % 64 == 0 for start in starts) and len(set(starts)) == 3


def test_the_list_of_workloads_is_known_without_numba() -> None:
    heavy = ("numba", "scipy", "matplotlib")
    code = f"import sys, bench.workloads.place; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_compiled_loops_are_found_again_by_the_next_process(tmp_path: Any) -> None:
    code = (
        "from bench.workloads import compiled, dot;"
        "compiled.address(dot.chunk, dot.dot, dot.tail); print(compiled._kept[0].cache_hits)"
    )
    environment = {**os.environ, "ROOFLINE_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    hits = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        for _ in range(2)
    ]
    assert [h.stdout.strip() for h in hits] == ["0", "1"]


@pytest.mark.parametrize(("near", "kept"), [(False, [0, 10, 20]), (True, [10, 20, 30])])
def test_operands_wanted_in_a_cache_are_brought_back_by_an_execution_that_does_not_count(
    near: bool, kept: list[int]
) -> None:
    def native(address: int, blocks: list[Any], offsets: Any, in_a_row: bool) -> Any:
        assert in_a_row is near
        rows = np.zeros((2, len(offsets), abi.ROW), np.int64)
        rows[:, :, abi.START] = 10 * np.arange(len(offsets))
        rows[:, :, abi.END] = (
            rows[:, :, abi.START] + 1 + 98 * (np.arange(len(offsets)) == 0)
        )  # the first is cold
        return rows

    ready = workload.Ready("native", "", lambda: 0, lambda: 0, windows=(0,))
    found = calls.Execution(ready, native, itertools.cycle(ready.windows), near).measure(1, 3)
    assert [round(1e9 * start) for start in found.start] == kept
    assert (max(found.seconds) > 50e-9) is not near

    repeat = lambda n: [(10.0 * i, 10.0 * i + 1, 0) for i in range(n)]  # noqa: E731
    called = workload.Ready("host", "", lambda: 0, lambda: 0, repeat=repeat)
    assert list(calls.Execution(called, native, None, near).measure(1, 3).start) == kept
