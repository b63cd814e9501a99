"""Stand-ins for cupy.cuda.cublas and the cublasLt library: the same products by NumPy, arguments checked."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np

from bench.gpu import blaslt
from bench.gpu.products import PRODUCTS, Product, decoded
from kernels.encoding import encoded, item_type
from tests.fake_cupy import CUBLASError, Stream, integer, view
from tests.fake_gpu import FakeGpu

HANDLE = 0x5EED


def kind_of(a_type: int, c_type: int, compute: int) -> Product:
    """The product that these types mean."""
    wanted = (a_type, c_type, compute)
    return next(p for p in PRODUCTS.values() if (p.a_type, p.c_type, p.compute) == wanted)


def multiply(
    gpu: FakeGpu, kind: Product, shape: tuple[int, int, int], addresses: Any, transposed: bool
) -> None:
    """C = A B on memory, column by column, rounded as C is; tf32 rounds its inputs first."""
    (m, n, k), (a, b, c) = shape, addresses
    for address, bytes in ((a, kind.input_bytes(m * k)), (b, kind.input_bytes(k * n))):
        assert gpu.holds(address, bytes), "an operand is too short"
    assert gpu.holds(c, m * n * kind.output_bytes), "the result does not fit"
    rows = decoded(kind.inputs, view(a, kind.input_bytes(m * k)).reshape(m if transposed else k, -1))
    left = rows if transposed else rows.T
    right = decoded(kind.inputs, view(b, kind.input_bytes(k * n)).reshape(n, -1)).T
    if kind.compute == 77:
        left, right = (np.ldexp(np.round(np.ldexp(x, 11)), -11) for x in (left, right))
    product = left.astype(np.float64) @ right.astype(np.float64)
    stored = encoded(np, kind.output, product).astype(item_type(np, kind.output))
    view(c, m * n * kind.output_bytes)[:] = np.ascontiguousarray(stored.T).view(np.uint8).reshape(-1)


class FakeCublas:
    """As cupy.cuda.cublas, of which only what is used exists."""

    def __init__(self, gpu: FakeGpu, broken: bool = False) -> None:
        self.gpu, self.broken, self.seconds = gpu, broken, 1e-4
        self.set: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []

    def create(self) -> int:
        self.gpu.call("cublasCreate")
        return HANDLE

    def setStream(self, handle: int, stream: int) -> None:
        assert Stream.current is not None and stream == Stream.current.ptr
        self.set["stream"] = stream

    def setPointerMode(self, handle: int, mode: int) -> None:
        self.set["pointers"] = mode

    def setMathMode(self, handle: int, mode: int) -> None:
        self.set["math"] = mode

    def getVersion(self, handle: int) -> int:
        return 130102

    def gemmEx(self, *args: Any) -> None:
        """The arguments of cublasGemmEx in its order."""
        assert len(args) == 19
        integer(*args)
        (
            handle,
            transa,
            transb,
            m,
            n,
            k,
            alpha,
            a,
            a_type,
            lda,
            b,
            b_type,
            ldb,
            beta,
            c,
            c_type,
            ldc,
            compute,
            _,
        ) = args
        assert handle == HANDLE and transb == 0 and a_type == b_type and ldb == k and ldc == m
        assert lda == (k if transa else m)
        kind = kind_of(a_type, c_type, compute)
        for address, value in ((alpha, 1), (beta, 0)):
            assert view(address, np.dtype(kind.scalar).itemsize).view(kind.scalar)[0] == value
        if kind.inputs == "int8" and not transa:
            raise CUBLASError("CUBLAS_STATUS_NOT_SUPPORTED")
        assert Stream.current is not None and Stream.current.ptr == self.set["stream"], "another stream"
        self.calls.append(args)
        self.gpu.call("gemmEx")
        if "gemmEx" not in self.gpu.loaded:
            self.gpu.loaded.add("gemmEx")
            if self.gpu.held is not None:
                self.gpu.hangs.append("gemmEx loads its kernels while the GPU waits for the host")
        multiply(self.gpu, kind, (m, n, k), (a, b, c), bool(transa))
        if self.broken:
            view(c, kind.output_bytes)[:] ^= 0x55
        self.gpu.queue(self.seconds, "gemmEx")


class FakeLt:
    """libcublasLt.so as ctypes shows it; `speeds`: seconds of each algorithm, None for one that fails.

    refusal: status of an algorithm that fails;  none: status where there is none at all
    """

    version = 130102

    def __init__(self, gpu: FakeGpu, speeds: tuple[float | None, ...] = (3e-4, 1e-4, None)) -> None:
        self.gpu, self.speeds = gpu, speeds
        self.refusal, self.none = 14, 15
        self.objects: dict[int, dict[Any, Any]] = {}
        self.numbers = itertools.count(1)
        self.launched: list[int] = []
        for name, types in blaslt.FUNCTIONS.items():
            setattr(self, name, self._checked(name, types))

    def cublasLtGetVersion(self) -> int:
        return self.version

    @property
    def left(self) -> list[str]:
        """What was made and not destroyed, without the handle."""
        return [thing["made"] for thing in self.objects.values() if thing["made"] != "cublasLtCreate"]

    def _checked(self, name: str, types: tuple[Any, ...]) -> Any:
        """The function behind `name`, its arguments converted as ctypes does."""

        def call(*args: Any) -> int:
            assert len(args) == len(types), name
            for kind, value in zip(types, args, strict=True):
                kind.from_param(value)
            return int(getattr(self, "_" + name.removeprefix("cublasLt"), self._other)(name, *args) or 0)

        return call

    def _other(self, name: str, first: Any, *rest: Any) -> None:
        if name.endswith("Create"):
            number = 0x1000 * next(self.numbers)
            first._obj.value = number
            self.objects[number] = {"made": name, "words": rest}
        elif name.endswith("Destroy"):
            del self.objects[first.value]
        else:
            attribute, value, size = rest
            assert ctypes.sizeof(value._obj) == size
            self.objects[first.value][attribute] = value._obj.value

    def _MatmulAlgoGetHeuristic(self, name: str, *args: Any) -> int:
        found, count = args[8], args[9]._obj
        if not self.speeds:
            return self.none
        for place in range(min(args[7], len(self.speeds))):
            found[place].algorithm[0], found[place].workspace = place, 1 << 20
        count.value = min(args[7], len(self.speeds))
        return 0

    def _Matmul(self, name: str, *args: Any) -> int:
        _, desc, alpha, a, la, b, lb, _, c, _, d, ld, algorithm, workspace, bytes, stream = args
        assert self.gpu.holds(workspace.value, bytes) and c.value == d.value and stream.value == 77
        place = ctypes.cast(algorithm, ctypes.POINTER(ctypes.c_uint64))[0]
        described = self.objects[desc.value]
        assert (described[3], described[4]) == (1, 0), "TN"
        (a_type, k, m, lda), (_, _, n, _) = self.objects[la.value]["words"], self.objects[lb.value]["words"]
        c_type, rows, columns, ldc = self.objects[ld.value]["words"]
        assert (rows, columns, ldc, lda) == (m, n, m, k)
        kind = kind_of(a_type, c_type, described["words"][0])
        assert described["words"][1] == blaslt.SCALAR_TYPE[kind.scalar]
        assert view(alpha.value, np.dtype(kind.scalar).itemsize).view(kind.scalar)[0] == 1
        self._scales(kind, described, m, n, k)
        self.gpu.call("matmul")
        if self.speeds[place] is None:
            return self.refusal
        self.launched.append(place)
        multiply(self.gpu, kind, (m, n, k), (a.value, b.value, d.value), True)
        self.gpu.queue(self.speeds[place] or 0.0, "matmul")
        return 0

    def _scales(self, kind: Product, described: dict[Any, Any], m: int, n: int, k: int) -> None:
        if kind.inputs != "fp4":
            return
        for rows, mode, pointer in ((m, 31, 17), (n, 32, 18)):
            bytes = -(-rows // 128) * 128 * (-(-k // 64) * 4)
            assert described[mode] == 1 and self.gpu.holds(described[pointer], bytes)
            assert (view(described[pointer], bytes) == 0x38).all()
