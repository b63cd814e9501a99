"""CUDA functions that need no GPU: run on the CPU they equal NumPy, and their declared costs are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import CUDA, KERNELS, fma, mix, overlap
from kernels.spec import ITEM_BYTES, CudaFamily, CudaForm, StreamShape
from tests.shim import host
from tests.shim.host import Host, Tally, build

GRID, BLOCK = 3, 8
SCALAR = 1.5
COUNT = 19
"""Trips of the sweep: with single rounds behind the whole ones."""

FORMS = [form for family in CUDA.values() for form in family.forms if form.shim]


def family_of(form: CudaForm) -> str:
    return next(name for name, family in CUDA.items() if form in family.forms)


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, bool], Host]]:
    """The library of a family, plain or counting; two compilers run ahead of the tests."""
    with ThreadPoolExecutor(2) as pool:
        made = {
            (family, counting): pool.submit(build, CUDA[family], tmp_path_factory.mktemp(family), counting)
            for counting in (False, True)
            for family in dict.fromkeys(map(family_of, FORMS))
        }
        yield lambda family, counting: made[family, counting].result()


def item_type(precision: str) -> Any:
    return np.dtype(f"f{ITEM_BYTES[precision]}")


def random(n: int, kind: Any, seed: int = 3) -> Any:
    return (np.random.default_rng(seed).random(n) + 1.0).astype(kind)


# numerics


def run_stream(made: Host, form: CudaForm) -> tuple[Any, Any]:
    """What a stream form gives and what NumPy says; the persistent one with a broken tile at the end."""
    kind = item_type(form.precision)
    n = GRID * BLOCK * form.items or 7 * 16 * BLOCK * 16 // kind.itemsize + 5
    a, b, c = (random(n, kind, seed) for seed in (1, 2, 3))
    kernel = KERNELS[form.kernel]
    want = kernel.reference(np, a.copy(), b, c, kind.type(SCALAR))
    s = np.full(1, SCALAR, kind)
    made.launch(form.entry, GRID, BLOCK, (a, b, c), s, n)
    if form.kernel != "read":
        return a, want
    assert np.count_nonzero(a[: GRID * BLOCK] == random(n, kind, 1)[: GRID * BLOCK]) == 0, "one a thread"
    np.testing.assert_array_equal(a[GRID * BLOCK :], random(n, kind, 1)[GRID * BLOCK :])
    return a[: GRID * BLOCK].sum(dtype=np.float64), want


def run_mix(made: Host, form: CudaForm) -> tuple[Any, Any]:
    """What a mix form gives and what NumPy says, over tiles that do not divide by the blocks."""
    kind, count = item_type(form.precision), 1 if form.variant.startswith("low") else COUNT
    count = mix.checked_count(form, count)
    tiles = GRID if form.grid == "cover" else 2 * GRID + 1
    x = random(tiles * BLOCK * form.items, kind)
    lanes = mix.TYPES[form.precision][1]
    a = x.copy() if form.grid == "cover" else np.zeros((GRID * BLOCK, lanes), kind)
    want = mix.expected(np, form, x, fma.CHECKED, count, GRID, BLOCK)
    made.launch(form.entry, GRID, BLOCK, (a, x), np.full(lanes, fma.CHECKED, kind), x.size, count)
    return a, want


def run_fma(made: Host, form: CudaForm) -> tuple[Any, Any]:
    """What a chain form gives and what NumPy says; three threads have nothing to store."""
    threads = GRID * BLOCK - 3
    a, b = fma.results(np, form, threads), fma.operands(np, form, "check")
    s = fma.start(np, form, "check")
    made.launch(form.entry, GRID, BLOCK, (a, b), s, threads, 2)
    return fma.decoded(np, form, a), fma.expected(np, form, b, s, threads, 2)


def run_launch(made: Host, form: CudaForm) -> tuple[Any, Any]:
    """What a kernel of the launch family leaves; the last threads of the smallest have nothing to move."""
    kind = item_type(form.precision)
    n = GRID * BLOCK * 4 - 12
    a, b = random(n, kind, 1), random(n, kind, 2)
    want = KERNELS[form.kernel].reference(np, a.copy(), b)
    made.launch(form.entry, GRID, BLOCK, (a, b), np.zeros(1, kind), n)
    return a, want


def run_overlap(made: Host, form: CudaForm) -> tuple[Any, Any]:
    """A chunk behind another: sums go on from those of before, or every item is stored."""
    n, count = 2 * (GRID * BLOCK + 5), 5
    b, before = random(n, np.float64), random(2 * GRID * BLOCK, np.float64, 4)
    a = np.zeros(n if form.variant == "back" else before.size)
    made.launch(form.entry, GRID, BLOCK, (a, b, before), np.full(1, overlap.FACTOR), n, count)
    grown = b * (1.0 + overlap.FACTOR) ** count
    return (a, grown) if form.variant == "back" else (a.sum(), grown.sum() + before.sum())


RUN = {"stream": run_stream, "mix": run_mix, "fma": run_fma, "launch": run_launch, "overlap": run_overlap}


def tolerance(form: CudaForm) -> float:
    """Relative: none of chains and mix, whose references round as the device does (x m is exact)."""
    digits = {"fp64": 2.0**-52, "fp32": 2.0**-23}
    steps = {"read": 64.0, "triad": 1.0, "pipeline": 64.0}.get(form.kernel, 0.0)
    return steps * digits.get(form.precision, 0.0)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.entry)
def test_function_equals_numpy(form: CudaForm, hosts: Callable[[str, bool], Host]) -> None:
    family = family_of(form)
    got, want = RUN[family](hosts(family, False), form)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance(form), atol=0)


# costs


def stream_costs(made: Host, form: CudaForm) -> tuple[Tally, Tally]:
    """Counted and declared of one more tile a thread: what a thread does once is not in either."""
    kind = item_type(form.precision)
    per_tile = form.items or 16 * 16 // kind.itemsize
    tallies, sizes = [], []
    for tiles in (1, 3):
        grid = GRID * tiles if form.grid == "cover" else GRID
        n = tiles * GRID * BLOCK * per_tile
        arrays = [random(n, kind, seed) for seed in (1, 2, 3)]
        tallies.append(made.launch(form.entry, grid, BLOCK, arrays, np.full(1, SCALAR, kind), n))
        sizes.append(n)
    return tallies[1] - tallies[0], declared(form, {"n": sizes[1] - sizes[0]})


def mix_costs(made: Host, form: CudaForm) -> tuple[Tally, Tally]:
    """The same over tiles for a count of trips that makes F FMA on E items."""
    kind, count = item_type(form.precision), 1 if form.variant.startswith("low") else COUNT
    made_sizes = {"fma": count * form.flops // 2, "block": form.items}
    tallies = []
    for tiles in (1, 3):
        grid = GRID * tiles if form.grid == "cover" else GRID
        x = random(tiles * GRID * BLOCK * form.items, kind)
        a = x.copy() if form.grid == "cover" else np.zeros(GRID * BLOCK * 2, kind)
        s = np.full(2, fma.CHECKED, kind)
        tallies.append(made.launch(form.entry, grid, BLOCK, (a, x), s, x.size, count))
    n = 2 * GRID * BLOCK * form.items
    return tallies[1] - tallies[0], declared(form, {"n": n, **made_sizes})


def fma_costs(made: Host, form: CudaForm) -> tuple[Tally, Tally]:
    """Of one more trip of every thread; also by the kernel's cost, which counts scalar multiply-adds."""
    threads = GRID * BLOCK
    b, s = fma.operands(np, form, "check"), fma.start(np, form, "check")
    one, two = (
        made.launch(form.entry, GRID, BLOCK, (fma.results(np, form, threads), b), s, threads, count)
        for count in (1, 2)
    )
    work = KERNELS[form.kernel].work(0, {"n": threads * form.flops // 2}, "")
    assert work.flops == threads * form.flops
    return two - one, Tally(float(threads * form.flops), 0.0, 0.0)


def declared(form: CudaForm, sizes: dict[str, int]) -> Tally:
    work = KERNELS[form.kernel].work(ITEM_BYTES[form.precision], sizes, "DRAM")
    return Tally(work.flops, work.reads["DRAM"], work.writes["DRAM"])


def launch_costs(made: Host, form: CudaForm) -> tuple[Tally, Tally]:
    """Of one start; nothing at all of the empty kernel."""
    kind = item_type(form.precision)
    n = GRID * BLOCK * 4 - 12
    arrays = random(n, kind, 1), random(n, kind, 2)
    counted = made.launch(form.entry, GRID, BLOCK, arrays, np.zeros(1, kind), n)
    work = KERNELS[form.kernel].work(ITEM_BYTES[form.precision], {"n": n}, "DRAM")
    return counted, Tally(work.flops, work.reads.get("DRAM", 0.0), work.writes.get("DRAM", 0.0))


def overlap_costs(made: Host, form: CudaForm) -> tuple[Tally, Tally]:
    """Of so many more items of every thread: what a thread does once is not in either."""
    tallies, count = [], 5
    for rows in (1, 3):
        b = random(2 * rows * GRID * BLOCK, np.float64)
        a = np.zeros(b.size)
        s = np.full(1, overlap.FACTOR)
        tallies.append(made.launch(form.entry, GRID, BLOCK, (a, b, np.zeros_like(a)), s, b.size, count))
    n = 4 * GRID * BLOCK
    return tallies[1] - tallies[0], declared(
        form, {"n": n, "fma": count, "leaving": n * (form.variant == "back")}
    )


COSTS = {
    "stream": stream_costs,
    "mix": mix_costs,
    "fma": fma_costs,
    "launch": launch_costs,
    "overlap": overlap_costs,
}


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.entry)
def test_declared_cost_is_counted(form: CudaForm, hosts: Callable[[str, bool], Host]) -> None:
    family = family_of(form)
    counted, said = COSTS[family](hosts(family, True), form)
    assert counted == said
    assert counted.flops or KERNELS[form.kernel].name in ("write", "copy", "empty", "smallest")


def test_what_a_thread_does_once_is_little(hosts: Callable[[str, bool], Host]) -> None:
    """Of read and mix-read-only: one result a thread, and no more additions than it has accumulators."""
    for form in FORMS:
        if form.grid == "persistent" and family_of(form) in ("stream", "mix"):
            kind, lanes = item_type(form.precision), mix.TYPES[form.precision][1]
            a = np.zeros(GRID * BLOCK * lanes, kind)
            nothing = hosts(family_of(form), True).launch(
                form.entry, GRID, BLOCK, (a, a.copy()), np.full(lanes, SCALAR, kind), 0
            )
            assert (nothing.loaded, nothing.stored) == (0, a.nbytes)
            assert nothing.flops <= 32 * a.size


# every wanted intensity has its function


@pytest.mark.parametrize("write_back", [False, True])
@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16"])
def test_settings_of_the_sweep_name_functions_and_make_their_intensity(
    precision: str, write_back: bool
) -> None:
    item, name = ITEM_BYTES[precision], mix.KERNELS[write_back].name
    forms = {f.variant: f for f in CUDA["mix"].forms if (f.kernel, f.precision) == (name, precision)}
    for dense in (False, True):
        made: dict[float, list[str]] = {}
        for variant, fused, block, count in mix.cuda_points(item, write_back, dense):
            form = forms[variant.removesuffix(" b256")]
            assert (block, 2 * fused) == (form.items, count * form.flops)
            work = KERNELS[name].work(item, {"n": 1 << 20, "fma": fused, "block": block}, "DRAM")
            made.setdefault(work.intensity("DRAM"), []).append(form.variant)
        assert list(made) == sorted(made)
        assert (min(made), max(made)) == (1 / 16, 1024)
        assert [v for v in made.values() if len(v) > 1] == [["fine", "coarse"]] * 3
        steps = np.diff(np.log2(list(made)))
        assert steps.max() == 1.0 and (steps.min() < 0.5) == dense
    assert set(forms) == {v.removesuffix(" b256") for v, *_ in mix.cuda_points(item, write_back, True)}


def test_the_coarse_body_takes_over_where_the_device_wants_it() -> None:
    both = [v for v in mix.cuda_points(4, False, False, switch=300.0) if v[0] == "fine b256"]
    assert max(2 * fused / (block * 4) for _, fused, block, _ in both) == 512.0
    low = [v[0] for v in mix.cuda_points(8, False, True, switch=0.1)]
    assert low.count("coarse b256") > 8, "never below the coarse body's own least intensity"


# the proofs can fail


MUTATIONS = {
    "a dropped chain": (
        "fma",
        "fma_f32_c8",
        "for (int j = 0; j < CHAINS; ++j) x[j] = Op::step",
        "for (int j = 1; j < CHAINS; ++j) x[j] = Op::step",
    ),
    "a load less": (
        "stream",
        "triad_fp32_v16_l4",
        "if constexpr (F::streams > 1) y[k] = load<CS>(two + k * blockDim.x)",
        "if constexpr (F::streams > 1) y[k] = x[k]",
    ),
    "an FMA more": (
        "mix",
        "mix_in_place_fp64_coarse",
        "for (int r = 0; r < R; ++r)",
        "for (int r = 0; r <= R; ++r)",
    ),
    "an accumulator that no result depends on": (
        "mix",
        "mix_read_only_fp16_coarse",
        "for (int j = 1; j < F; ++j) total",
        "for (int j = 2; j < F; ++j) total",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_body_is_caught(name: str, tmp_path: Path) -> None:
    family, entry, right, wrong = MUTATIONS[name]
    assert CUDA[family].preamble.count(right) == 1
    (form,) = (f for f in CUDA[family].forms if f.entry == entry)
    broken = CudaFamily(CUDA[family].preamble.replace(right, wrong), (form,))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        got, want = RUN[family](build(broken, tmp_path), form)
        np.testing.assert_allclose(got, want, rtol=tolerance(form), atol=0)
    if not name.startswith("an accumulator"):
        counted, said = COSTS[family](build(broken, tmp_path, counting=True), form)
        assert counted != said


def test_a_wrong_declaration_is_caught(hosts: Callable[[str, bool], Host]) -> None:
    (form,) = (f for f in FORMS if f.entry == "mix_read_only_fp32_coarse")
    counted, said = mix_costs(hosts("mix", True), replace(form, flops=form.flops + 2))
    assert counted.flops < said.flops and counted.loaded == said.loaded


def test_a_store_behind_an_array_is_caught(hosts: Callable[[str, bool], Host]) -> None:
    (form,) = (f for f in FORMS if f.entry == "write_fp64_v16_l2")
    short = np.zeros(BLOCK * form.items - 2)
    with pytest.raises(AssertionError, match="behind an array"):
        hosts("stream", False).launch(form.entry, 1, BLOCK, (short,), np.ones(1), short.size)


def test_without_a_compiler_the_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host.shutil, "which", lambda name: None)
    with pytest.raises(AssertionError, match="g\\+\\+ is not installed"):
        build(CUDA["stream"], tmp_path)


# the shim's own numbers


def test_halves_of_the_shim_are_those_of_numpy(tmp_path: Path) -> None:
    """x m + x of every half x, by the compiled shim and by NumPy in fp64 with one rounding."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    code = (
        'extern "C" __global__ void entry(__half2* a, const __half2* b, const __half2* c, const __half2* s,'
        " long long n, int count) { a[threadIdx.x] = __hfma2(b[threadIdx.x], s[0], b[threadIdx.x]); }"
    )
    made = build(CudaFamily("", (replace(FORMS[0], entry="entry", code=code),)), tmp_path)
    with np.errstate(all="ignore"):
        for m in (0.3, 1e-4, 3.0):
            half = np.full(2, m, np.float16)
            want = (every.astype(np.float64) * float(half[0]) + every).astype(np.float16)
            a = np.zeros_like(every)
            made.launch("entry", 1, every.size // 2, (a, every), half, 0)
            np.testing.assert_array_equal(a, want)


def test_every_stream_has_naive_and_wide_forms() -> None:
    for kernel in KERNELS.values():
        if isinstance(kernel.shape, StreamShape) and kernel.family == "stream":
            for precision in ("fp64", "fp32"):
                found = [
                    f for f in CUDA["stream"].forms if (f.kernel, f.precision) == (kernel.name, precision)
                ]
                variants = [f.variant for f in found]
                assert variants[0] == "v16 l4" and variants[-1] == f"v{ITEM_BYTES[precision]} l1"
                assert {"v16 l1", "v16 l2", "v16 l8", "v16 l4 cs"} <= set(variants)
                assert all(f.expect.load_bits == 128 for f in found[:-1])
