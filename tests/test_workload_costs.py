"""The declared work of every workload equals what its textbook loops do, counted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bench.workloads import adam, convolution, dot, gemv, layernorm, softmax, spmv, stencil, transpose
from bench.workloads.zoo import ZOO
from kernels.gemm import gemm as textbook_gemm
from kernels.spec import ITEM_BYTES


class Tally:
    """Operations done by every Count that shares it."""

    def __init__(self) -> None:
        self.flops = 0

    def number(self, value: float = 1.0) -> Count:
        return Count(value, self)


class Count:
    """A number that counts additions, subtractions, multiplications, divisions, roots and comparisons."""

    def __init__(self, value: float, tally: Tally, operations: int = 0) -> None:
        self.value, self.tally = value, tally
        tally.flops += operations

    def _with(self, other: Any, value: float) -> Count:
        return Count(value, self.tally, 1)

    def __add__(self, other: Any) -> Count:
        return self._with(other, self.value + _value(other))

    def __sub__(self, other: Any) -> Count:
        return self._with(other, self.value - _value(other))

    def __mul__(self, other: Any) -> Count:
        return self._with(other, self.value * _value(other))

    def __truediv__(self, other: Any) -> Count:
        return self._with(other, self.value / _value(other))

    __radd__, __rmul__ = __add__, __mul__

    def __gt__(self, other: Any) -> bool:
        self.tally.flops += 1
        return self.value > _value(other)

    def sqrt(self) -> Count:
        return Count(abs(self.value) ** 0.5, self.tally, 1)


def _value(x: Any) -> float:
    return float(x.value if isinstance(x, Count) else x)


class Touched(list):  # type: ignore[type-arg]
    """A list that remembers which places were read before they were written, and which were written."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.read: set[int] = set()
        self.written: set[int] = set()

    def __getitem__(self, i: Any) -> Any:
        if i not in self.written:
            self.read.add(i)
        return super().__getitem__(i)

    def __setitem__(self, i: Any, value: Any) -> None:
        self.written.add(i)
        super().__setitem__(i, value)


def numbers(tally: Tally, n: int) -> Touched:
    return Touched(tally.number(0.5 + 0.01 * i) for i in range(n))


def check(
    name: str,
    sizes: dict[str, int],
    tally: Tally,
    reads: list[Touched],
    writes: list[Touched],
    extra: int = 0,
) -> None:
    """FLOP less `extra` (the few a row that the convention leaves out) and distinct bytes are as declared."""
    workload = ZOO[name]
    work, item = workload.work(sizes), ITEM_BYTES[workload.precision]
    assert tally.flops - extra == work.flops
    assert sum(len(a.read) for a in reads) * item == work.reads["DRAM"]
    assert sum(len(a.written) for a in writes) * item == work.writes["DRAM"]


def test_dot() -> None:
    tally = Tally()
    parts = [numbers(tally, 5) for _ in range(6)]
    rest = [numbers(tally, 2) for _ in range(2)]
    dot.tail(*rest, dot.dot(*parts, tally.number(0.0)))
    joining = 2  # the three partial sums
    check("dot", {"n": 17}, tally, [*parts, *rest], [], extra=joining)


def test_gemv() -> None:
    tally = Tally()
    rows = [numbers(tally, 6) for _ in range(4)]
    x, y = numbers(tally, 6), Touched([None] * 4)
    gemv.four_rows(y, *rows, x)
    check("gemv", {"m": 4, "n": 6}, tally, [*rows, x], [y], extra=1)


@pytest.mark.parametrize(
    "name, m, n, k, sizes",
    [("gemm", 3, 4, 5, {"m": 3, "n": 4, "k": 5, "sets": 1}), ("gemm tall", 4, 32, 32, {"m": 4})],
)
def test_gemm(name: str, m: int, n: int, k: int, sizes: dict[str, int]) -> None:
    tally = Tally()
    a, b, c = numbers(tally, m * k), numbers(tally, k * n), Touched([None] * (m * n))
    textbook_gemm(c, a, b, m, n, k)
    # the textbook starts each sum from its first product: one addition less a result than 2 m n k
    check(name, sizes, tally, [a, b], [c], extra=-m * n)


def test_stencil_counts_every_point_once() -> None:
    tally, n = Tally(), 2
    u = Touched([tally.number(0.1 * i) for i in range((n + 2) ** 3)])
    v = Touched([None] * n**3)

    class Row:
        """Items of u or v from a place on."""

        def __init__(self, of: Touched, start: int, length: int) -> None:
            self.of, self.start, self.length = of, start, length

        def __len__(self) -> int:
            return self.length

        def __getitem__(self, i: int) -> Any:
            return self.of[self.start + i]

        def __setitem__(self, i: int, value: Any) -> None:
            self.of[self.start + i] = value

    def place(k: int, j: int, i: int) -> int:
        return (k * (n + 2) + j) * (n + 2) + i

    for k, j in itertools.product(range(1, n + 1), repeat=2):
        sides = [Row(u, place(k + dk, j + dj, 1), n) for dk, dj in ((0, -1), (0, 1), (-1, 0), (1, 0))]
        out = Row(v, ((k - 1) * n + j - 1) * n, n)
        stencil.row(out, Row(u, place(k, j, 0), n + 2), *sides, 0.4, 0.1)
    assert tally.flops == stencil.work({"n": n}).flops
    assert len(v.written) * 8 == stencil.work({"n": n}).writes["DRAM"]
    # the sweep needs no edges and corners of the halo, which a code that reads whole rows fetches
    unused = (n + 2) ** 3 - n**3 - 6 * n**2
    assert (len(u.read) + unused) * 8 == stencil.work({"n": n}).reads["DRAM"]


def test_spmv_counts_values_columns_pointers_and_vectors() -> None:
    tally, edge = Tally(), 3
    n = edge**3
    layout = [np.zeros(n + 1, np.uint32), np.zeros(27 * n, np.uint32)]
    args = np.array([0, *(a.ctypes.data for a in layout), 0, n, edge], np.int64)
    spmv.connect(args)
    pointer, column = (Touched(a.tolist()) for a in layout)
    assert sorted(layout[1][:27]) == list(range(27))  # on a 3-cube every point is a neighbour of every other
    value, x, y = numbers(tally, 27 * n), numbers(tally, n), Touched([None] * n)
    spmv.multiply(y, pointer, column, value, x, tally.number(0.0), (0, 0))
    work = spmv.work({"edge": edge})
    assert tally.flops == work.flops
    reads = 8 * (len(value.read) + len(x.read)) + 4 * (len(column.read) + len(pointer.read))
    assert (reads, 8 * len(y.written)) == (work.reads["DRAM"], work.writes["DRAM"])


def test_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "exponential", lambda x: Count(1.0, x.tally, 1))
    tally, columns = Tally(), 6
    x, y = numbers(tally, columns), Touched([None] * columns)
    total = softmax.exponentials(y, x, softmax.highest(x), tally.number(0.0))
    softmax.scale(y, tally.number(1.0) / total)
    check("softmax", {"rows": 1, "columns": columns}, tally, [x], [y], extra=1)  # one reciprocal a row


def test_layernorm() -> None:
    tally, columns = Tally(), 6
    x, gain, bias = numbers(tally, columns), numbers(tally, columns), numbers(tally, columns)
    y = Touched([None] * columns)
    count, epsilon = tally.number(columns), tally.number(1e-5)
    layernorm.layernorm(y, x, gain, bias, count, epsilon, tally.number(0.0), 0, 0)
    per_row = 6  # mean, variance, epsilon, root, reciprocal
    check("layernorm", {"rows": 1, "columns": columns}, tally, [x, gain, bias], [y], extra=per_row)


def test_adam() -> None:
    tally, n = Tally(), 5
    p, g, m, v = arrays = [numbers(tally, n) for _ in range(4)]
    adam.step(p, g, m, v, 0.9, 0.1, 0.999, 0.001)
    check("adam", {"n": n}, tally, arrays, [p, m, v])


def test_convolution() -> None:
    tally, edge = Tally(), 2
    channels, window = 64, 3
    some = tally.number(0.5)
    x = [[[some] * channels for _ in range(edge + 2)] for _ in range(edge + 2)]
    w = [[[[some] * channels for _ in range(channels)] for _ in range(window)] for _ in range(window)]
    y = [[[None] * channels for _ in range(edge)] for _ in range(edge)]
    convolution.convolve(y, x, w, tally.number(0.0))
    work = convolution.work({"images": 1, "edge": edge})
    assert tally.flops == work.flops
    items = edge * edge * channels  # the padding is no input of the layer
    assert work.reads["DRAM"] == 4 * (items + window * window * channels * channels)
    assert work.writes["DRAM"] == 4 * items


def test_convolution_is_the_layer_of_the_table() -> None:
    one = convolution.work({"images": 1, "edge": 56})
    assert (one.flops, one.bytes("DRAM") / 4) == (231_211_008, 438_272)


def test_transpose_does_no_arithmetic_and_moves_every_item_twice() -> None:
    work = transpose.work({"n": 3})
    assert (work.flops, work.reads["DRAM"], work.writes["DRAM"]) == (0, 72, 72)


def test_fft_of_radix_two_does_five_n_log_n() -> None:
    """A complex product is 6 FLOP and a sum 2, so a butterfly is 10."""

    def flops(n: int) -> int:
        return 0 if n == 1 else 2 * flops(n // 2) + n // 2 * (6 + 2 + 2)

    work = ZOO["fft"].work({"rows": 3, "n": 16})
    assert work.flops == 3 * flops(16)
    assert work.bytes("DRAM") == 3 * 16 * 2 * 16
