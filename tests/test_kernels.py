"""Every kernel's declared work equals what its plain body does; plain body, reference and shape agree."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kernels import CUDA, FAMILIES, KERNELS, gemm, mix, stream, tensor
from kernels.spec import ITEM_BYTES, LOOPED, Kernel, StreamShape, Work
from tests.counting import Array, Number

ITEM = 8
STREAMS = [k for k in KERNELS.values() if k.family in ("stream", "cache")]


def counted(tally: Counter[str], level: str = "DRAM") -> Work:
    return Work.at(level, tally["flops"], tally["loads"] * ITEM, tally["stores"] * ITEM)


def run_stream(kernel: Kernel, n: int) -> tuple[Counter[str], list[Array]]:
    tally: Counter[str] = Counter()
    arrays = [Array(np.arange(1.0, n + 1) * k, tally) for k in (1, 2, 3)]
    kernel.plain(*arrays, Number(1.5, tally))
    return tally, arrays


@pytest.mark.parametrize("kernel", STREAMS, ids=lambda k: k.name)
def test_stream_costs_are_counted(kernel: Kernel) -> None:
    n = 10
    tally, _ = run_stream(kernel, n)
    assert counted(tally) == kernel.work(ITEM, {"n": n}, "DRAM")


@pytest.mark.parametrize("kernel", STREAMS, ids=lambda k: k.name)
def test_stream_reference_equals_plain_body(kernel: Kernel) -> None:
    a, b, c = (np.arange(1.0, 11.0) * k for k in (1, 2, 3))
    want = kernel.reference(np, a.copy(), b, c, 1.5)
    got = kernel.plain(a, b, c, 1.5)
    np.testing.assert_allclose(a if kernel.shape.stores else got, want)  # type: ignore[union-attr]


def test_passes_multiply_the_work() -> None:
    once = KERNELS["triad"].work(ITEM, {"n": 100}, "DRAM")
    assert KERNELS["triad"].work(ITEM, {"n": 100, "passes": 7}, "DRAM") == once.times(7)


@pytest.mark.parametrize(
    ("name", "ordinary", "nontemporal"),
    [("write", 1, 0), ("update", 0, 0), ("copy", 1, 0), ("scale", 1, 0), ("add", 1, 0), ("triad", 1, 0)],
)
def test_write_allocate_is_a_separate_fact(name: str, ordinary: int, nontemporal: int) -> None:
    assert stream.hidden_streams(stream.SHAPES[name], "ordinary") == ordinary
    assert stream.hidden_streams(stream.SHAPES[name], "nontemporal") == nontemporal


def test_fma_chain_is_counted_and_equals_its_closed_form() -> None:
    kernel, chains, steps = KERNELS["fma"], 5, 7
    tally: Counter[str] = Counter()
    x = Array(np.linspace(1, 2, chains), tally)
    kernel.plain(x, Number(0.125, tally), steps)
    work = kernel.work(ITEM, {"n": chains * steps}, "")
    assert work.flops == tally["flops"] == 2 * chains * steps
    np.testing.assert_allclose(x.values, kernel.reference(np, np.linspace(1, 2, chains), 0.125, steps))


@pytest.mark.parametrize("fma", [1, 5, 12, 36])
@pytest.mark.parametrize("name", ["mix-read-only", "mix-in-place"])
def test_mix_is_counted_and_equals_its_reference(name: str, fma: int) -> None:
    kernel, n = KERNELS[name], 3 * mix.BLOCK_VECTORS
    tally: Counter[str] = Counter()
    x = np.linspace(1, 2, n)
    array = Array(x, tally)
    bits = Array(x.view(np.int64).tolist(), tally, integers=True)
    accumulators, checksum = kernel.plain(array, bits, Number(0.25, tally), fma)
    assert counted(tally) == kernel.work(ITEM, {"n": n, "fma": fma}, "DRAM")
    sums, stored = kernel.reference(np, x, 0.25, fma)
    np.testing.assert_allclose([a.value for a in accumulators], sums[:, 0])
    np.testing.assert_allclose(np.reshape(array.values, stored.shape), stored)
    untouched = x.reshape(-1, mix.BLOCK_VECTORS)[:, fma:]
    if name == "mix-read-only":
        assert checksum == np.bitwise_xor.reduce(np.ascontiguousarray(untouched).view(np.int64), axis=None)


@pytest.mark.parametrize(("item", "name", "fma", "want"), [
    (8, "mix-read-only", 1, 1 / 48), (8, "mix-in-place", 1, 1 / 96), (4, "mix-read-only", 12, 0.5),
    (8, "mix-read-only", 12 * 2048, 512.0), (8, "mix-in-place", 12 * 4096, 512.0),
])  # fmt: skip
def test_mix_intensities(item: int, name: str, fma: int, want: float) -> None:
    assert KERNELS[name].work(item, {"n": 1200, "fma": fma}, "DRAM").intensity("DRAM") == pytest.approx(want)


def test_blocks_take_their_vectors_from_every_sub_stream() -> None:
    x = np.arange(2 * 12 * 3)  # 2 blocks of 12 vectors of 3 lanes
    cut = mix.blocks(np, x, lanes=3, streams=6)
    assert cut.shape == (2, 12, 3)
    assert cut[0, :, 0].tolist() == [0, 3, 12, 15, 24, 27, 36, 39, 48, 51, 60, 63]
    assert np.array_equal(mix.blocks(np, x, lanes=3, streams=1).ravel(), x)


def test_gemm_is_counted_and_equals_its_reference() -> None:
    m, n, k = 3, 4, 5
    tally: Counter[str] = Counter()
    a, b = np.arange(1.0, m * k + 1), np.arange(1.0, k * n + 1)
    c = Array(np.zeros(m * n), tally)
    gemm.gemm(c, Array(a, tally), Array(b, tally), m, n, k)
    work = KERNELS["gemm"].work(ITEM, {"m": m, "n": n, "k": k}, "DRAM")
    assert work.flops == tally["flops"] + m * n  # the convention counts k additions, the body needs k - 1
    assert work.writes["DRAM"] == tally["stores"] * ITEM
    assert work.reads["DRAM"] == (m * k + k * n) * ITEM  # each operand once; the loop loads them again
    want = KERNELS["gemm"].reference(np, a.reshape(m, k), b.reshape(k, n))
    np.testing.assert_allclose(np.reshape(c.values, (m, n)), want)


def test_integer_chain_wraps_and_equals_its_closed_form() -> None:
    kernel, steps, m = KERNELS["fma"], 40, 1664524
    tally: Counter[str] = Counter()
    x = np.array([1, 12345, -7], np.int32)
    array = Array(x.tolist(), tally)
    kernel.plain(array, Number(m, tally), steps)
    assert kernel.work(4, {"n": 3 * steps}, "").flops == tally["flops"]
    want = np.array([(int(v) + 2**31) % 2**32 - 2**31 for v in array.values], np.int64)
    assert kernel.reference(np, x, m, steps).tolist() == want.tolist()
    assert kernel.reference(np, x, m, steps).dtype == np.int32


@pytest.mark.parametrize("name", ["mma", "wgmma"])
def test_matrix_products_are_counted_and_equal_their_reference(name: str) -> None:
    kernel, (m, n, k), steps = KERNELS[name], (3, 4, 5), 2
    tally: Counter[str] = Counter()
    a, b = np.arange(1.0, m * k + 1), np.arange(1.0, k * n + 1)
    c = Array(np.ones(m * n), tally)
    kernel.plain(c, Array(a, tally), Array(b, tally), m, n, k, steps)
    assert kernel.plain is tensor.product
    assert kernel.work(2, {"n": m * n * k * steps}, "") == Work(float(tally["flops"]))
    want = kernel.reference(np, np.ones((m, n)), a.reshape(m, k), b.reshape(k, n), steps)
    np.testing.assert_allclose(np.reshape(c.values, (m, n)), want)


def test_cuda_forms_measure_kernels_of_their_family() -> None:
    assert set(CUDA) <= set(FAMILIES)
    for family, cuda in CUDA.items():
        assert {form.kernel for form in cuda.forms} <= {kernel.name for kernel in FAMILIES[family]}
        assert len({form.entry for form in cuda.forms}) == len(cuda.forms)


def test_work_properties() -> None:
    work = Work(100.0, {"DRAM": 30.0, "L2": 60.0}, {"DRAM": 10.0})
    assert work.bytes("DRAM") == 40.0
    assert work.bytes("L2") == 60.0
    assert work.intensity("DRAM") == 2.5
    assert work.read_fraction("DRAM") == 0.75
    assert Work(5.0).levels == ()
    assert Work.at("L1", 1.0, 0.0, 0.0).intensity("L1") == float("inf")
    with pytest.raises(KeyError, match="known: DRAM, L2"):
        work.bytes("L3")


def test_table_of_contents_is_complete_and_unique() -> None:
    names = [kernel.name for family in FAMILIES.values() for kernel in family]
    assert len(names) == len(set(names)) == len(KERNELS)
    assert all(kernel.family == family for family, members in FAMILIES.items() for kernel in members)
    assert LOOPED == ("fp64", "fp32") and set(LOOPED) <= set(ITEM_BYTES)


def test_the_count_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = StreamShape(("b",), ("a",), stream.SHAPES["triad"].element)
    monkeypatch.setitem(stream.SHAPES, "triad", wrong)
    tally, _ = run_stream(KERNELS["triad"], 10)
    assert counted(tally) != KERNELS["triad"].work(ITEM, {"n": 10}, "DRAM")
