"""Products by cublasLt through ctypes: fp8 and fp4, which cuBLAS has not, and the best of its algorithms.

The layout is TN, which every type has: D (m x n) = A' B, A stored as k x m, B as k x n, column by column.
The heuristic proposes algorithms; the first few are timed, since the first is not always the fastest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.errors import DeviceError, Unsupported
from bench.gpu.blas import NO_TRANSPOSE, TRANSPOSE, Operands, Ready, settings, version
from bench.gpu.engine import Engine
from bench.gpu.faults import ContextLost, first_line, translated
from bench.gpu.products import R_16F, R_32F, R_32I, R_64F, product
from bench.profile.records import Point

DESC_TRANSA, DESC_TRANSB, DESC_A_SCALE, DESC_B_SCALE, DESC_FAST_ACCUM = 3, 4, 17, 18, 25
DESC_A_SCALE_MODE, DESC_B_SCALE_MODE = 31, 32
PREF_WORKSPACE = 1
SCALE_VEC16_UE4M3 = 1
"""cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatmulMatrixScale_t."""

WORKSPACE = 32 << 20
"""Bytes that an algorithm may use beside the operands: what NVIDIA advises for its large GPUs."""

PROPOSALS, TIMED = 8, 4
"""Algorithms that the heuristic is asked for, and how many of those that run are timed."""

SCALED_BLOCK, SCALE_ROWS, SCALE_COLUMNS = 16, 128, 4
"""fp4: items of k with one scale, and the tiles in which scales lie; all are 1, in any order."""

ONE_IN_E4M3 = 0x38

SCALAR_TYPE = {"f8": R_64F, "f4": R_32F, "f2": R_16F, "i4": R_32I}
"""cudaDataType of alpha and beta."""

STATUS = {
    1: "not initialised",
    3: "no memory",
    7: "invalid value",
    8: "not on this GPU",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}
NOT_THERE = (8, 15)
"""Statuses of what the library does not make on this GPU."""

SINCE = {"fp8": 111100, "fp4": 120800}
"""Version of the library from which it has a type (release notes of CUDA 11.8 and 12.8)."""

NO_ALGORITHM = "this cublasLt has no algorithm for"


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


P, N, S, U = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (P,),
    "cublasLtDestroy": (P,),
    "cublasLtMatmulDescCreate": (P, N, N),
    "cublasLtMatmulDescDestroy": (P,),
    "cublasLtMatmulDescSetAttribute": (P, N, P, S),
    "cublasLtMatrixLayoutCreate": (P, N, U, U, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (P,),
    "cublasLtMatmulPreferenceCreate": (P,),
    "cublasLtMatmulPreferenceDestroy": (P,),
    "cublasLtMatmulPreferenceSetAttribute": (P, N, P, S),
    "cublasLtMatmulAlgoGetHeuristic": (P, P, P, P, P, P, P, N, P, P),
    "cublasLtMatmul": (P, P, P, P, P, P, P, P, P, P, P, P, P, P, S, P),
}
"""Argument types of what is called, in the order of cublasLt.h; all return a status."""


@dataclass
class Plan:
    """The library's objects for one product, destroyed together."""

    library: CublasLt
    descriptor: Any = None
    layouts: list[Any] = field(default_factory=list)
    preference: Any = None

    def close(self) -> None:
        """Destroy what was made."""
        made = [("MatmulDesc", self.descriptor), ("MatmulPreference", self.preference)]
        for name, thing in [*made, *(("MatrixLayout", layout) for layout in self.layouts)]:
            if thing is not None:
                self.library.call(f"cublasLt{name}Destroy", thing)
        self.descriptor, self.preference = None, None
        self.layouts.clear()


class CublasLt:
    """A cublasLt handle on the engine's stream; remembers the best algorithm of each product."""

    def __init__(self, engine: Engine, time: Callable[[Callable[[], Any]], float]) -> None:
        """time: seconds of one launch, by events on the engine's stream."""
        self.engine, self._time = engine, time
        self.loaded = load(engine.cupy)
        self.handle = P()
        self.call("cublasLtCreate", ctypes.byref(self.handle))
        self.version = int(self.loaded.cublasLtGetVersion())
        self._best: dict[tuple[Any, ...], tuple[Heuristic, int]] = {}
        self._workspace: Any = None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; DeviceError with the status in words, Unsupported of NOT_THERE."""
        if status := getattr(self.loaded, name)(*arguments):
            kind = Unsupported if status in NOT_THERE else DeviceError
            raise kind(f"{name}: {STATUS.get(status, f'cuBLAS status {status}')}")

    def prepare(self, point: Point) -> Ready:
        """Operands in memory, the fastest of the proposed algorithms, and the call that multiplies.

        Unsupported where the library is too old, or has no algorithm that this GPU runs.
        """
        kind = product(point)
        if self.version < (least := SINCE.get(kind.inputs, 0)):
            known = f"this is cublasLt {version(self.version)}"
            raise Unsupported(f"{known}: {kind.inputs} products begin with {version(least)}")
        m, n, k = (point.sizes[name] for name in "mnk")
        held, plan = Operands(self.engine, kind, m, n, k, True), Plan(self)
        try:
            held.fill(point.operands)
            self._describe(plan, held)
            launch, facts = self._fastest(plan, held, point)
        except BaseException:
            plan.close()
            raise
        facts |= {
            "library": f"cublasLt {version(self.version)}",
            "layout": "TN",
            "compute_type": kind.compute,
        }
        return Ready(launch, held, facts | settings(), plan.close)

    def _describe(self, plan: Plan, held: Operands) -> None:
        """Operation, layouts and preference of one product."""
        kind = held.kind
        plan.descriptor = self._made("MatmulDesc", kind.compute, SCALAR_TYPE[kind.scalar])
        self._set(plan, DESC_TRANSA, ctypes.c_int32(TRANSPOSE))
        self._set(plan, DESC_TRANSB, ctypes.c_int32(NO_TRANSPOSE))
        if kind.inputs == "fp8":
            self._set(plan, DESC_FAST_ACCUM, ctypes.c_int8(1))
        if kind.inputs == "fp4":
            self._scale_blocks(plan, held)
        shapes = ((kind.a_type, held.k, held.m), (kind.a_type, held.k, held.n), (kind.c_type, held.m, held.n))
        for type, rows, columns in shapes:
            plan.layouts.append(self._made("MatrixLayout", type, rows, columns, rows))
        plan.preference = self._made("MatmulPreference")
        most = U(WORKSPACE)
        self.call(
            "cublasLtMatmulPreferenceSetAttribute", plan.preference, PREF_WORKSPACE, ctypes.byref(most), 8
        )

    def _made(self, name: str, *arguments: Any) -> Any:
        thing = P()
        self.call(f"cublasLt{name}Create", ctypes.byref(thing), *arguments)
        return thing

    def _set(self, plan: Plan, attribute: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self.call("cublasLtMatmulDescSetAttribute", plan.descriptor, attribute, ctypes.byref(value), size)

    def _scale_blocks(self, plan: Plan, held: Operands) -> None:
        """fp4: a scale of 1 for every 16 items of k of each row of A' and column of B."""
        columns = -(-held.k // SCALED_BLOCK // SCALE_COLUMNS) * SCALE_COLUMNS
        for name, rows, mode, pointer in (
            ("a scales", held.m, DESC_A_SCALE_MODE, DESC_A_SCALE),
            ("b scales", held.n, DESC_B_SCALE_MODE, DESC_B_SCALE),
        ):
            bytes = -(-rows // SCALE_ROWS) * SCALE_ROWS * columns
            memory = held.memory[name] = self.engine.allocate(bytes)
            stream = self.engine.stream.ptr
            with translated("setting fp4 scales"):
                self.engine.cupy.cuda.runtime.memsetAsync(memory.ptr, ONE_IN_E4M3, bytes, stream)
            self._set(plan, mode, ctypes.c_int32(SCALE_VEC16_UE4M3))
            self._set(plan, pointer, P(memory.ptr))

    def _fastest(self, plan: Plan, held: Operands, point: Point) -> tuple[Callable[[], Any], dict[str, Any]]:
        """The launch with the best algorithm, timed once a product and process."""
        key = (point.precision, held.m, held.n, held.k)
        if key not in self._best:
            proposals = self._proposals(plan, point)
            place = self._place(plan, held, proposals, point.precision.label)
            self._best[key] = proposals[place], place
        chosen, place = self._best[key]
        facts = {"algorithm": f"{place + 1} of the heuristic's", "workspace_bytes": int(chosen.workspace)}
        if held.kind.inputs == "fp8":
            facts["accumulation"] = "fast: partial sums stay in the matrix units"
        return self._launcher(plan, held, chosen), facts

    def _place(self, plan: Plan, held: Operands, proposals: list[Heuristic], label: str) -> int:
        """Which of the proposals is the fastest of the first that run; Unsupported where the GPU has none."""
        seconds: dict[int, float] = {}
        lacking, why = True, ""
        for place, proposal in enumerate(proposals):
            if len(seconds) == TIMED:
                break
            try:
                seconds[place] = self._time(self._launcher(plan, held, proposal))
            except ContextLost:
                raise
            except DeviceError as error:
                lacking, why = lacking and isinstance(error, Unsupported), str(error)
        if not seconds:
            kind = Unsupported if lacking else DeviceError
            raise kind(f"{NO_ALGORITHM} {label} that runs on this GPU ({why})")
        return min(seconds, key=lambda place: seconds[place])

    def _proposals(self, plan: Plan, point: Point) -> list[Heuristic]:
        found, count = (Heuristic * PROPOSALS)(), ctypes.c_int(0)
        a, b, d = plan.layouts
        words = (
            self.handle,
            plan.descriptor,
            a,
            b,
            d,
            d,
            plan.preference,
            PROPOSALS,
            found,
            ctypes.byref(count),
        )
        status = self.loaded.cublasLtMatmulAlgoGetHeuristic(*words)
        usable = [found[place] for place in range(count.value) if found[place].state == 0]
        if status in NOT_THERE or (status == 0 and not usable):
            sizes = " x ".join(str(point.sizes[name]) for name in "mnk")
            raise Unsupported(f"{NO_ALGORITHM} {point.precision.label} {sizes} on this GPU")
        if status:
            raise DeviceError(f"cublasLt's heuristic: {STATUS.get(status, f'cuBLAS status {status}')}")
        return usable

    def _launcher(self, plan: Plan, held: Operands, chosen: Heuristic) -> Callable[[], Any]:
        """Queues the product by one algorithm; everything it points to is kept by the operands."""
        one, zero = np.ones(1, held.kind.scalar), np.zeros(1, held.kind.scalar)
        if self._workspace is None:
            self._workspace = self.engine.allocate(WORKSPACE)
        held.memory.setdefault("kept", []).append((one, zero, chosen))
        a, b, d = plan.layouts
        c = P(held.c)
        words = (
            *(self.handle, plan.descriptor, P(one.ctypes.data)),
            *(P(held.a), a, P(held.b), b, P(zero.ctypes.data), c, d, c, d),
            *(ctypes.byref(chosen, Heuristic.algorithm.offset), P(self._workspace.ptr), WORKSPACE),
            P(self.engine.stream.ptr),
        )
        return partial(self.call, "cublasLtMatmul", *words)


def load(cupy: Any) -> Any:
    """The cublasLt that CuPy's cuBLAS uses, its functions declared; DeviceError where there is none."""
    try:
        path = import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt").abs_path
    except (ImportError, RuntimeError, AttributeError):  # CuPy before 14 loads it by its name alone
        path = None
    try:
        library = ctypes.CDLL(path or f"libcublasLt.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")
    except OSError as error:
        raise DeviceError(f"cublasLt cannot be loaded: {first_line(error)}") from None
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.cublasLtGetVersion.argtypes, library.cublasLtGetVersion.restype = (), ctypes.c_size_t
    return library
