"""The Numba CUDA backend in Numba's simulator; test_numba_cuda.py runs this file in a process of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.backends.numba_cuda import NumbaCudaBackend
from bench.backends.numba_kernels import Kernels
from bench.backends.numba_reference import CHAINS, DTYPE, STEPS
from bench.device import Cache, Device
from bench.errors import DeviceError, VerificationError
from bench.profile.records import Point, Precision

SMS, THREADS = 2, 64  # of a device so small that the simulator gets through it
BLOCK = 32
STREAMS = {
    "write": lambda a, b, c, s: np.full_like(a, s),
    "update": lambda a, b, c, s: s * a,
    "copy": lambda a, b, c, s: b,
    "scale": lambda a, b, c, s: s * b,
    "add": lambda a, b, c, s: b + c,
    "triad": lambda a, b, c, s: b + s * c,
}
FORMS = {"fp64": ((2, 4), (1, 1)), "fp32": ((4, 2), (2, 1), (1, 4))}


def device() -> Device:
    facts = {"sm_count": SMS, "max_threads_per_sm": THREADS}
    return Device(
        "numba:0", "cuda", "x", "x", "quiet", SMS, 1 << 30, (Cache("L2", 4096, SMS, 1),), {}, {}, facts
    )


@pytest.fixture(scope="module")
def backend() -> NumbaCudaBackend:
    return NumbaCudaBackend(device(), simulator=True)


def chain_point(name: str) -> Point:
    return Point("fma", "fma", f"{CHAINS} chains b{BLOCK}", Precision.of(name), threads=SMS)


def stream_point(kernel: str, name: str, bytes: int = 5000) -> Point:
    precision, sizes = Precision.of(name), {"bytes": bytes}
    return Point("stream", kernel, f"v16 l2 b{BLOCK}", precision, "DRAM", threads=SMS, sizes=sizes)


# kernels against NumPy


@pytest.mark.parametrize("name", ["fp64", "fp32"])
def test_a_chain_is_a_power_of_one_and_m(name: str) -> None:
    T, trips = DTYPE[name], 2
    seeds = np.random.default_rng(3).uniform(1, 2, 8 * CHAINS).astype(T)
    out, m = np.zeros(8, T), T(0.01)
    Kernels(simulator=True).chain(name)[2, 4](out, seeds, m, np.int32(trips))
    grown = seeds.astype(np.float64) * (1 + float(m)) ** (STEPS * trips)
    want = grown.reshape(8, CHAINS).sum(axis=1)
    assert np.allclose(out, want, rtol=STEPS * trips * np.finfo(T).eps)
    assert not np.allclose(want, grown.reshape(8, CHAINS).sum(axis=1) / 1.01, rtol=1e-3), "a step shows"


def test_a_chain_of_integers_wraps_and_adds_the_seed_of_its_thread() -> None:
    seeds = np.random.default_rng(3).integers(-(2**31), 2**31, 4 * CHAINS, np.int32)
    out, m, trips = np.zeros(4, np.int32), 1664525, 2
    Kernels(simulator=True).chain("int32")[1, 4](out, seeds, np.int32(m), np.int32(trips))
    for thread in range(4):
        total = 0
        for x in (int(seed) for seed in seeds[thread * CHAINS : (thread + 1) * CHAINS]):
            for _ in range(STEPS * trips):
                x = (x * m + int(seeds[thread])) % 2**32
            total += x
        assert int(out[thread]) % 2**32 == total % 2**32


@pytest.mark.parametrize("kernel", STREAMS)
@pytest.mark.parametrize(
    ("name", "lanes", "loads"), [(n, *form) for n, forms in FORMS.items() for form in forms]
)
def test_a_stream_equals_its_formula(kernel: str, name: str, lanes: int, loads: int) -> None:
    T, block, grid = DTYPE[name], 4, 3
    items = block * grid * lanes * loads
    a, b, c = np.random.default_rng(4).uniform(0.5, 1.5, (3, items + 5)).astype(T)
    before, s = a.copy(), T(1.5)
    Kernels(simulator=True).stream(kernel, name, lanes, loads)[grid, block](a, b, c, s, np.int64(items))
    want = STREAMS[kernel](before[:items], b[:items], c[:items], s)
    assert np.allclose(a[:items], want, rtol=2 * np.finfo(T).eps, atol=0)
    assert np.array_equal(a[items:], before[items:]), "nothing is stored behind the end"
    assert a.dtype == T


@pytest.mark.parametrize(("name", "lanes", "loads"), [("fp64", 2, 2), ("fp32", 4, 1)])
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_read_sums_every_tile_once(name: str, lanes: int, loads: int, tiles: int) -> None:
    T, block, grid = DTYPE[name], 4, 2
    items = block * lanes * loads * tiles
    b = np.arange(1, items + 4, dtype=T)
    a = np.full(grid * block, np.nan, T)
    Kernels(simulator=True).stream("read", name, lanes, loads)[grid, block](a, b, b, T(7), np.int64(items))
    assert a.sum() == 7 + items * (items + 1) // 2


# the backend around them


@pytest.mark.parametrize("name", ["fp64", "fp32", "int32"])
def test_a_prepared_chain_passes_its_check_and_states_its_work(backend: NumbaCudaBackend, name: str) -> None:
    prepared = backend.prepare(chain_point(name))
    backend.verify(prepared)
    assert prepared.facts["launch"] == f"{SMS * THREADS // BLOCK} x {BLOCK}"
    assert prepared.work(3).flops == 2 * SMS * THREADS * CHAINS * STEPS * 3


@pytest.mark.parametrize("kernel", ["read", "update", "triad"])
@pytest.mark.parametrize("operands", ["random", "zeros"])
def test_a_prepared_stream_passes_its_check_and_states_its_bytes(
    backend: NumbaCudaBackend, kernel: str, operands: str
) -> None:
    point = stream_point(kernel, "fp32")
    prepared = backend.prepare(Point(**{**point.__dict__, "operands": operands}))
    backend.verify(prepared)
    items = 5000 // 4 // (BLOCK * 8) * (BLOCK * 8)
    streams = {"read": 1, "update": 2, "triad": 3}[kernel]
    assert prepared.facts["items"] == items
    assert prepared.work(2).bytes("DRAM") == 2 * streams * 4 * items


def test_operands_are_whole_again_after_a_check(backend: NumbaCudaBackend) -> None:
    prepared = backend.prepare(stream_point("update", "fp64"))
    before = prepared.handle.arguments(1)[0].copy_to_host()
    backend.verify(prepared)
    assert np.array_equal(prepared.handle.arguments(1)[0].copy_to_host(), before)


@pytest.mark.parametrize(
    "point", [chain_point("fp32"), stream_point("copy", "fp32"), stream_point("read", "fp64")]
)
def test_a_kernel_that_leaves_something_out_is_never_timed(backend: NumbaCudaBackend, point: Point) -> None:
    prepared = backend.prepare(point)
    honest = prepared.handle.kernel

    class Lazy:
        """Leaves out the last block."""

        def __getitem__(self, shape: tuple[Any, ...]) -> Any:
            return honest[(max(1, shape[0] - 1), *shape[1:])]

    backend.verify(prepared)
    prepared.handle.kernel = Lazy()
    if point.family == "fma":
        backend._kernels.chain = lambda name: Lazy()  # type: ignore[method-assign]
        prepared = backend.prepare(point)
    try:
        with pytest.raises(VerificationError, match="differs from its reference; it is not timed"):
            backend.verify(prepared)
    finally:
        backend._kernels = Kernels(simulator=True)


class Recorder:
    """Stands for kernels and events: notes who is asked for what, in order."""

    def __init__(self, name: str, log: list[tuple[Any, ...]]) -> None:
        self.name, self.log = name, log

    def __getitem__(self, shape: tuple[Any, ...]) -> Any:
        return lambda *arguments: self.log.append((self.name, *shape[:2], arguments[-1]))

    def record(self, stream: Any) -> None:
        self.log.append((self.name,))

    def synchronize(self) -> None:
        self.log.append(("wait", self.name))

    def elapsed_time(self, end: Recorder) -> float:
        return 25.0


@pytest.mark.parametrize("blocked", [True, False])
def test_a_batch_is_a_delay_an_event_the_launches_and_an_event(blocked: bool) -> None:
    backend, log = NumbaCudaBackend(device(), simulator=True), []
    backend._delayed = blocked
    backend._events = (Recorder("begin", log), Recorder("end", log))  # type: ignore[assignment]
    backend._kernels = SimpleNamespace(delay=Recorder("delay", log))  # type: ignore[assignment]
    launches = {"chain": lambda amount: 1, "stream": lambda amount: amount}
    for name, count in launches.items():
        handle = SimpleNamespace(
            kernel=Recorder(name, log),
            launch=SimpleNamespace(grid=4, block=BLOCK),
            launches=count,
            arguments=lambda amount: ("a", amount),
        )
        log.clear()
        taken = backend.measure(SimpleNamespace(handle=handle), 3, 2)  # type: ignore[arg-type]
        assert taken.seconds == (0.025, 0.025)
        assert taken.start[0] <= taken.start[1] <= backend.now()
        once = [("begin",), *[(name, 4, BLOCK, 3)] * count(3), ("end",), ("wait", "end")]
        held = [entry for entry in log if entry[0] == "delay"]
        assert [entry for entry in log if entry[0] != "delay"] == once * 2
        assert [log.index(entry) for entry in held[:1]] == ([0] if blocked else [])
        assert all(1e5 <= int(entry[3]) <= 5e7 for entry in held), "nanoseconds"


def test_no_blocker_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NumbaCudaBackend(device(), simulator=True)._delayed
    monkeypatch.setenv("ROOFLINE_NO_BLOCKER", "1")
    assert not NumbaCudaBackend(device(), simulator=True)._delayed


def test_the_simulator_is_refused_as_a_gpu() -> None:
    with pytest.raises(DeviceError, match="its simulator is no GPU: unset NUMBA_ENABLE_CUDASIM"):
        NumbaCudaBackend(device())


def test_memory_that_is_not_there_is_a_memory_error(
    backend: NumbaCudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Exception):
        code = 2

    def full(*_: Any) -> None:
        raise Full("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(backend, "_cuda", SimpleNamespace(device_array=full))
    with pytest.raises(MemoryError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        backend.prepare(stream_point("copy", "fp32", 9000))
