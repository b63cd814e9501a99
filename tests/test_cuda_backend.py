"""The CUDA backend from end to end on a GPU that is not there: memory, launches, checks, failures."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.backends.cuda import CudaBackend
from bench.device import Cache, Device
from bench.errors import DeviceError, VerificationError
from bench.gpu.engine import EVERY_BIT, KEEP_AND_SET, Engine
from bench.profile.records import Point, Precision
from kernels import CUDA, KERNELS, encoding, tensor
from kernels.mix import cuda_points
from kernels.spec import CudaForm
from tests.fake_cublas import FakeCublas
from tests.fake_cupy import fake_cupy
from tests.fake_gpu import FakeGpu
from tests.shim.host import Host, build

SMS, BLOCKS_PER_SM, BLOCK = 2, 2, 256
FP32 = Precision.of("fp32")
BUILT = {
    "stream": ("write", "read", "update", "copy", "scale", "add", "triad"),
    "fma": ("fma_f32_c8", "fma_i32_c8", "fma_i8_c8", "fma_f16_c8"),
    "mix": ("mix_read_only_fp32_coarse", "mix_in_place_fp32_fine", "mix_read_only_fp16_low8"),
}


class Board:
    """As bench.gpu.nvml.Board: its clock climbs to 1.5 GHz in some readings."""

    library: Any = object()
    whole_board = False
    clocks: tuple[float | None, ...] = (1.0e9, 1.2e9, 1.5e9)

    def __init__(self) -> None:
        self.read = 0

    def moment(self) -> dict[str, Any]:
        self.read += 1
        clock = self.clocks[min(self.read, len(self.clocks)) - 1]
        return {"sm_clock_hz": clock, "power_w": 300.0, "temperature_c": 50.0, "throttle": ("sw_power_cap",)}

    def reading(self, own_context: bool = False) -> dict[str, Any]:
        return {**self.moment(), "processes": 0 if own_context else 1}


def device(**facts: Any) -> Device:
    precisions = dict.fromkeys(("fp64", "fp32", "tf32", "fp16", "bf16", "int32", "int8", "fp8"), "")
    precisions["fp4"] = "needs compute capability 10.0"
    known = {"compute_capability": 90, "sm_count": SMS, "max_threads_per_sm": 2048, "unit": "SM", **facts}
    l2 = (Cache("L2", 1 << 16, SMS, 1),)
    return Device("cuda:0", "cuda", "Fake", "fake", "quiet", SMS, 1 << 30, l2, precisions, {}, known)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu(blocks_per_sm=BLOCKS_PER_SM)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(made, FakeCublas(made)))
    monkeypatch.delenv("ROOFLINE_NO_BLOCKER", raising=False)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    return made


@pytest.fixture
def backend(gpu: FakeGpu) -> CudaBackend:
    return CudaBackend(device(), Board(), Engine(gpu.now))


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Host]:
    """By entry the compiled functions of the families that need no GPU, of the first form each."""

    def wanted(form: CudaForm, names: tuple[str, ...]) -> bool:
        return form.entry in names or (form.kernel in names and form.entry.endswith("fp32_v16_l4"))

    found = {}
    for family, names in BUILT.items():
        forms = tuple(form for form in CUDA[family].forms if wanted(form, names))
        made = build(replace(CUDA[family], forms=forms), tmp_path_factory.mktemp(family))
        found |= dict.fromkeys((form.entry for form in forms), made)
    return found


@pytest.fixture
def real(gpu: FakeGpu, hosts: dict[str, Host]) -> FakeGpu:
    """The GPU with functions that do what their CUDA code says."""
    gpu.bodies |= {entry: on_host(made, entry) for entry, made in hosts.items()}
    return gpu


def on_host(made: Host, entry: str) -> Callable[..., None]:
    def run(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
        library = made._library
        function = ctypes.cast(getattr(library, entry), ctypes.c_void_p)
        pointers = map(ctypes.c_void_p, (a, b, c, s))
        spare = (ctypes.c_longlong * 3)(), (ctypes.c_double * 3)()
        library.shim_launch(function, grid, block, *pointers, ctypes.c_longlong(n), count, *spare)

    return run


def stream(kernel: str, variant: str = "v16 l4 b256", bytes: int = 1 << 18, **more: Any) -> Point:
    access = KERNELS[kernel].access
    sizes = {"bytes": bytes}
    return Point("stream", kernel, variant, FP32, "DRAM", access, scope="device", sizes=sizes, **more)


def chain(precision: Precision = FP32, variant: str = "8 chains b256", **more: Any) -> Point:
    return Point("fma", "fma", variant, precision, scope="device", threads=SMS, **more)


def mix(kernel: str, variant: str, fma: int, precision: Precision = FP32, bytes: int = 1 << 17) -> Point:
    block = 64 // encoding.item_type(np, precision.inputs).itemsize
    sizes = {"bytes": bytes, "fma": fma, "block": block}
    return Point("mix", kernel, variant, precision, "DRAM", KERNELS[kernel].access, sizes=sizes)


INT8 = Precision("int8", "int32", "int32")
POINTS = (
    *(stream(kernel) for kernel in BUILT["stream"]),
    stream("read", operands="zeros"),
    chain(),
    chain(Precision.of("int32")),
    chain(INT8),
    chain(Precision.of("fp16")),
    mix("mix-read-only", "coarse b256", 16 * 64),
    mix("mix-in-place", "fine b256", 16 * 13),
    mix("mix-read-only", "low8 b256", 8, Precision.of("fp16")),
)


# each point from end to end


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.key)
def test_a_point_is_prepared_verified_measured_and_released(
    real: FakeGpu, backend: CudaBackend, point: Point
) -> None:
    before = real.used()
    assert backend.unsupported(point) == ""
    prepared = backend.prepare(point)
    backend.verify(prepared)
    taken = backend.measure(prepared, 3, 2)
    assert len(taken) == 2 and backend.clock_source == "event"
    backend.release(prepared)
    assert real.used() == before and real.calls[-1] == "free" and real.hangs == []


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.key)
def test_a_function_that_forgets_its_last_items_is_found(
    real: FakeGpu, backend: CudaBackend, point: Point
) -> None:
    grids = {form.entry: form.grid for family in CUDA.values() for form in family.forms}

    def forgetful(entry: str, run: Any) -> Any:
        if grids[entry] == "cover":
            return lambda grid, *words: run(grid - 1, *words)
        return lambda grid, block, a, b, c, s, n, count: run(grid, block, a, b, c, s, n - 1, count)

    real.bodies |= {entry: forgetful(entry, run) for entry, run in real.bodies.items()}
    with pytest.raises(VerificationError, match="it is not timed"):
        backend.verify(backend.prepare(point))


def test_a_stream_that_writes_behind_its_array_is_found(real: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(stream("copy"))
    run = real.bodies["copy_fp32_v16_l4"]

    def greedy(grid: int, block: int, a: int, *words: int) -> None:
        run(grid, block, a, *words)
        ctypes.memset(a + 4 * words[3], 0, 1)

    real.bodies["copy_fp32_v16_l4"] = greedy
    with pytest.raises(VerificationError, match="behind the end"):
        backend.verify(prepared)


@pytest.mark.parametrize(("kernel", "streams", "flops"), [("triad", 3, 2), ("copy", 2, 0), ("write", 1, 0)])
def test_a_stream_covers_whole_tiles_and_declares_their_cost(
    gpu: FakeGpu, backend: CudaBackend, kernel: str, streams: int, flops: int
) -> None:
    tile = BLOCK * 16  # v16 l4: 4 loads of 4 items a thread
    prepared = backend.prepare(stream(kernel, bytes=(5 * tile + 100) * 4))
    name, grid, block, args, shared = gpu.launches[-1]
    assert (name, grid, block, shared) == (f"{kernel}_fp32_v16_l4", 5, BLOCK, 0)
    assert args[4:] == (5 * tile, 1)
    work = prepared.work(7)
    assert work.bytes("DRAM") == 7 * streams * 4 * 5 * tile and work.flops == 7 * flops * 5 * tile
    assert prepared.facts["launch"] == "5 x 256" and prepared.facts["registers"] == 42
    assert prepared.facts["occupancy"] == BLOCKS_PER_SM * BLOCK / 2048
    unused = {"triad": (), "copy": (2,), "write": (1, 2)}[kernel]
    assert [place for place in range(4) if args[place] == 0] == list(unused)


def test_reading_fills_the_device_once_and_chains_do_too(gpu: FakeGpu, backend: CudaBackend) -> None:
    backend.prepare(stream("read"))
    assert gpu.launches[-1][1:3] == (SMS * BLOCKS_PER_SM, BLOCK)
    prepared = backend.prepare(chain(variant="16 chains b512"))
    assert gpu.launches[-1][:3] == ("fma_f32_c16", SMS * BLOCKS_PER_SM, 512)
    assert prepared.work(10).flops == 10 * 512 * 2 * SMS * BLOCKS_PER_SM * 512


@pytest.mark.parametrize("variant", ["v16 l4 b256", "v16 l2 b256", "v16 l4 cs b256"])
def test_long_reads_come_in_waves_of_whole_tiles(gpu: FakeGpu, backend: CudaBackend, variant: str) -> None:
    prepared = backend.prepare(stream("read", variant, bytes=(4 << 20) + 4000))
    _, grid, block, args, _ = gpu.launches[-1]
    tile = BLOCK * 4 * int(variant.split()[1][1:])
    assert (grid, block) == (8 * SMS * BLOCKS_PER_SM, BLOCK) and args[4] == 1 << 20
    assert args[4] % (grid * tile) == 0 and prepared.facts["items"] == args[4]
    assert gpu.live[int(args[0])] >= 4 * grid * block, "a result of every thread has its place"
    assert prepared.work(3).bytes("DRAM") == 3 * 4 * args[4]


def test_the_sweep_comes_in_waves_but_not_with_few_blocks(gpu: FakeGpu, backend: CudaBackend) -> None:
    point = mix("mix-read-only", "fine b256", 32, bytes=4 << 20)
    prepared = backend.prepare(point)
    assert gpu.launches[-1][1] == 8 * SMS * BLOCKS_PER_SM and int(gpu.launches[-1][3][4]) == 1 << 20
    assert gpu.live[int(gpu.launches[-1][3][0])] >= 8 * prepared.work(1).flops / 2 / 32 / 8 / 1024
    backend.prepare(replace(point, sizes={**point.sizes, "blocks_per_sm": 1}))
    assert gpu.launches[-1][1] == SMS


def test_a_chain_is_one_launch_of_so_many_trips(gpu: FakeGpu, backend: CudaBackend) -> None:
    prepared = backend.prepare(chain())
    taken = backend.measure(prepared, 1000, 3)
    chains = [args for name, _, _, args, _ in gpu.launches if name == "fma_f32_c8"]
    assert [int(args[5]) for args in chains] == [1, 1000, 1000, 1000]
    assert taken.seconds == pytest.approx([1e-5 + 1e-3] * 3)
    starts = np.diff(taken.start)
    assert starts == pytest.approx([1.01e-3] * 2), "repetitions follow each other without a gap"


@pytest.mark.parametrize("kernel", ["mix-read-only", "mix-in-place"])
def test_the_sweep_counts_its_trips(gpu: FakeGpu, backend: CudaBackend, kernel: str) -> None:
    for variant, fma, block, count in cuda_points(4, kernel == "mix-in-place", dense=True):
        point = mix(kernel, variant, fma)
        assert point.sizes["block"] == block and backend.unsupported(point) == ""
        prepared = backend.prepare(point)
        assert int(gpu.launches[-1][3][5]) == count
        items = int(gpu.launches[-1][3][4])
        assert prepared.work(2).flops == 2 * 2 * fma * items / block
        backend.release(prepared)
    with pytest.raises(DeviceError, match="cannot do 24 multiply-adds on 16 items"):
        backend.prepare(mix(kernel, "coarse b256", 24))


# matrix units: nothing here can run them, their launches and their checks can be seen


def matrix(kernel: str, variant: str) -> Point:
    return Point("tensor", kernel, variant, Precision("bf16", "fp32", "fp32", "matrix"), scope="device")


def stand_in(form: CudaForm, wrong: float = 0.0, purpose: str = "check") -> Callable[..., None]:
    """Writes what the reference expects of the check, with `wrong` added to the last thread."""

    def run(grid: int, block: int, a: int, b: int, c: int, s: int, n: int, count: int) -> None:
        of_b, of_s = (make(np, form, purpose) for make in (tensor.operands, tensor.start))
        want = tensor.expected(np, form, of_b, of_s, n, count).astype(np.float32)
        want[-1] += wrong
        ctypes.memmove(a, want.ctypes.data, want.nbytes)

    return run


def test_wgmma_is_compiled_for_its_target_and_given_its_memory(gpu: FakeGpu, backend: CudaBackend) -> None:
    (form,) = [f for f in CUDA["tensor"].forms if f.entry == "wgmma_bf16_f32"]
    gpu.bodies[form.entry] = stand_in(form)
    prepared = backend.prepare(matrix("wgmma", "m64n256k16 b256"))
    backend.verify(prepared)
    assert gpu.launches[-1][4] == form.shared_bytes > 0
    assert gpu.compiled[-1][1] == ("--std=c++17", "-arch=sm_90a")
    gpu.bodies[form.entry] = stand_in(form, 1.0)
    with pytest.raises(VerificationError, match=r"bf16>fp32 matrix wgmma"):
        backend.verify(prepared)


def on_fake_gpu(address: int, like: Any) -> Any:
    """Memory of the fake GPU as an array of that type and shape."""
    raw = (ctypes.c_uint8 * like.nbytes).from_address(address)
    return np.ctypeslib.as_array(raw).view(like.dtype).reshape(like.shape)


def test_a_layout_is_checked_on_operands_that_all_differ(gpu: FakeGpu, backend: CudaBackend) -> None:
    (form,) = [f for f in CUDA["tensor"].forms if f.entry == "wgmma_bf16_f32"]
    point, right = matrix("wgmma", "m64n256k16 b128"), stand_in(form, purpose="layout")
    seen: list[Any] = []

    def looking(grid: int, block: int, a: int, b: int, *words: int) -> None:
        seen.append(on_fake_gpu(b, tensor.operands(np, form, "layout")).copy())
        right(grid, block, a, b, *words)

    gpu.bodies[form.entry] = looking
    backend.bodies.check_layout(point)
    assert len(seen) == 1 and np.array_equal(seen[0], tensor.operands(np, form, "layout"))
    gpu.bodies[form.entry] = stand_in(form, 1.0, "layout")
    with pytest.raises(VerificationError, match="wgmma by the layout of its operands"):
        backend.bodies.check_layout(point)


def test_only_letters_of_an_architecture_are_asked_for(gpu: FakeGpu) -> None:
    """Two plain architectures would contradict each other: CuPy names the device's own."""
    gpu.properties |= {"major": 10, "minor": 0}
    blackwell = CudaBackend(device(compute_capability=100), Board(), Engine(gpu.now))
    fp64 = Point("tensor", "mma", "", Precision.of("fp64", "matrix"), scope="device")
    blackwell.prepare(fp64)
    assert gpu.launches[-1][0] == "mma_f64_f64_m8n8k4" and gpu.compiled[-1][1] == ("--std=c++17",)


def test_instructions_that_a_gpu_lacks_are_skipped_with_the_reason(gpu: FakeGpu) -> None:
    gpu.properties |= {"major": 8, "minor": 6}
    ampere = CudaBackend(device(compute_capability=86), Board(), Engine(gpu.now))
    assert "9.0 only" in ampere.unsupported(matrix("wgmma", ""))
    assert ampere.variants("wgmma", matrix("wgmma", "").precision, "", SMS) == ()
    assert ampere.unsupported(matrix("mma", "m16n8k16 b256")) == ""
    assert gpu.compiled[-1][1] == ("--std=c++17",)


def test_emulated_matrix_instructions_are_skipped_with_the_reason(gpu: FakeGpu) -> None:
    gpu.properties |= {"major": 7, "minor": 5}
    for name, said in (("NVIDIA GeForce GTX 1650", "has no Tensor Cores"), ("NVIDIA GeForce RTX 2060", "")):
        board = replace(device(compute_capability=75), name=name)
        turing = CudaBackend(board, Board(), Engine(gpu.now))
        half = Precision("fp16", "fp32", "fp16", "matrix")
        why = turing.unsupported(Point("tensor", "mma", "m16n8k8 b256", half, scope="device"))
        assert said in why and bool(why) == bool(said), why


def test_what_this_version_or_gpu_has_not_is_said(backend: CudaBackend) -> None:
    fp4 = Precision("fp4", "fp32", "fp16", "library")
    sizes = {"m": 256, "n": 256, "k": 256}
    assert "10.0" in backend.unsupported(Point("gemm", "gemm", "cublaslt", fp4, sizes=sizes))
    assert "no GPU implementation" in backend.unsupported(Point("storage", "copy", "", FP32))
    assert "no form 'v32 l4'" in backend.unsupported(stream("copy", "v32 l4 b256"))
    assert "names no block size" in backend.unsupported(stream("copy", "v16 l4"))
    half = replace(stream("copy"), precision=Precision.of("fp16"))
    assert "no CUDA body for fp16 copy" in backend.unsupported(half)
    with pytest.raises(DeviceError, match="no tile of 4096 items"):
        backend.prepare(stream("copy", bytes=100))


def test_variants_begin_with_the_best_guess_of_every_form(backend: CudaBackend) -> None:
    found = backend.variants("copy", FP32, "DRAM", SMS)
    assert found[0] == "v16 l4 b256" and len(found) == len(set(found))
    forms = len([f for f in CUDA["stream"].forms if (f.kernel, f.precision) == ("copy", "fp32")])
    assert all(variant.endswith("b256") for variant in found[:forms]) and found[forms].endswith("b512")
    assert backend.variants("gemm", Precision.of("fp32", "library"), "", SMS) == ("cublas", "cublaslt")
    assert backend.variants("gemm", Precision("fp8", "fp32", "fp16", "library"), "", SMS) == ("cublaslt",)
    assert all(backend.unsupported(stream("copy", variant)) == "" for variant in found)


# random numbers


@pytest.mark.parametrize("kind", ["fp64", "fp32", "fp16", "bf16", "fp8"])
def test_random_operands_are_numbers_of_size_half_to_one(gpu: FakeGpu, kind: str) -> None:
    engine, item = Engine(gpu.now), encoding.item_type(np, kind)
    memory = engine.random(3000 * item.itemsize, kind)
    found = encoding.decoded(np, kind, engine.download(memory.ptr, 3000 * item.itemsize)[0].view(item))
    assert ((abs(found) >= 0.5) & (abs(found) < 1)).all()
    assert 0.4 < (found < 0).mean() < 0.6
    assert len(set(found)) > {"bf16": 200, "fp8": 15}.get(kind, 1000)
    zeros = engine.random(64, kind, "zeros")
    assert not engine.download(zeros.ptr, 64).any()


def test_every_bit_of_an_integer_is_random(gpu: FakeGpu) -> None:
    engine = Engine(gpu.now)
    memory = engine.random(4096, "int8")
    found = engine.download(memory.ptr, 4096)
    assert "int8" not in KEEP_AND_SET and EVERY_BIT == (2**64 - 1, 0)
    assert len(np.unique(found)) == 256


def held(gpu: FakeGpu) -> int:
    return sum(name == "hold" for name, *_ in gpu.launches)


@pytest.fixture(autouse=True)
def no_threads_are_left() -> Iterator[None]:
    """Telemetry of a backend ends with it."""
    yield
    for thread in threading.enumerate():
        if thread.name == "telemetry":
            owner: Any = getattr(thread, "_target", None)
            owner.__self__.__exit__(None, None, None)
