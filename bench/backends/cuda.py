"""An NVIDIA GPU through CuPy: our own CUDA functions, cuBLAS beside them, events around batches of launches.

The process measures one GPU, its ordinal 0 (bench/gpu/described.py makes sure that it is the right one).
Clocks, power and temperature are sampled while it measures and given to each repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from bench.backends import Prepared
from bench.device import Device
from bench.errors import DeviceError
from bench.gpu import bodies, described
from bench.gpu.batches import QUEUED, Batch, Task
from bench.gpu.blas import Cublas
from bench.gpu.bodies import MOST_LAUNCHES, Bodies, Ready
from bench.gpu.engine import Engine
from bench.gpu.faults import ContextLost, contained, translated
from bench.gpu.products import PRODUCTS, product, work
from bench.gpu.rates import has_matrix_units, units_lacking
from bench.gpu.telemetry import Telemetry, Window
from bench.profile.records import Point, Precision, Repetitions
from kernels import KERNELS
from kernels.spec import Work

WORKLOADS = "bench.workloads.on_gpu"
"""Where workloads of a GPU live, if this version has them: prepare(point, engine) -> Prepared."""

MAKERS = {
    "cache": "bench.gpu.hierarchy:Hierarchy",
    "scaling": "bench.gpu.hierarchy:Hierarchy",
    "latency": "bench.gpu.latencies:Latencies",
    "launch": "bench.gpu.overheads:Overheads",
    "link": "bench.gpu.copies:Copies",
    "overlap": "bench.gpu.pipeline:Pipelines",
    "collective": "bench.gpu.collectives:Collectives",
    "devices": "bench.gpu.boards:Together",
}
"""Families with a file of their own, made of the Bodies (with their engine, device and batches); each has
variants(kernel, precision, level), unsupported(point), prepare(point). Handles with `measure` time
themselves."""

OFFERED = ("fma", "tensor", "stream", "mix", "gemm", "workload", *MAKERS)


def maker_of(point: Point) -> str:
    """Which of MAKERS prepares a point; the same work on several GPUs is no matter of its family."""
    return "devices" if point.family == "scaling" and "devices" in point.sizes else point.family


WARM_BATCH = 0.05
"""Seconds of one batch of the warm-up chain."""

FLAT, FLAT_READINGS, LEAST_WARM = 0.01, 6, 0.4
"""The clock is flat when so many readings, batch by batch, differ by less; never before 0.4 s."""

PCIE = ("pcie_generation", "pcie_width")

SMALL_PRODUCT, MOST_SMALL = 2.0 * 1024**3, QUEUED - 16
"""FLOP up to which the host may take longer to queue a product than the GPU to make it; so many of them lie
in the queue before the first begins."""

ENERGY_SECONDS = 1.0
"""A point must run for so long before the energy that it took means anything."""


class CudaBackend:
    """The Backend protocol (bench/backends/__init__.py) for the GPU that this process is pinned to."""

    clock_source = "event"

    def __init__(self, device: Device, board: Any, engine: Engine | None = None) -> None:
        self.device, self.board = device, board
        self.engine = engine or Engine()
        self.bodies = Bodies(self.engine, device)
        self.batches = self.bodies.batches
        self._libraries: dict[str, Any] = {}
        self._makers: dict[str, Any] = {}
        self._telemetry = Telemetry(board, now=self.engine.now).__enter__()
        self._lost = ""

    @classmethod
    def named(cls, id: str) -> CudaBackend:
        """The backend for `cuda:N`; DeviceError with the state that the GPU is in."""
        return cls(described.in_child(id), described.own_board())

    def begin_round(self, round: int) -> None:
        """Nothing to do: rounds of a real device differ by themselves."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Forms worth trying, best guess first: with their block size; of a product the libraries."""
        if kernel == "gemm":
            known = PRODUCTS.get(precision.label)
            return known.libraries if known else ()
        if KERNELS[kernel].family in MAKERS:
            found: tuple[str, ...] = self._maker(KERNELS[kernel].family).variants(
                kernel, precision.label, level
            )
            return found
        return bodies.variants(self.engine.capability, kernel, precision.label)

    def unsupported(self, point: Point) -> str:
        """The reason why a point cannot be measured on this GPU, "" if it can."""
        precision = point.precision
        for name in (precision.mode, precision.inputs):
            if reason := self.device.precisions.get(name, ""):
                return reason
        if point.family not in OFFERED:
            return f"no GPU implementation of {point.family} in this version"
        if point.family == "workload":
            return "" if find_spec(WORKLOADS) else "no GPU implementation in this version"
        if point.family in MAKERS:
            return str(self._maker(maker_of(point)).unsupported(point))
        if point.family == "tensor" and has_matrix_units(self.engine.capability, self.device.name) is False:
            return units_lacking(self.engine.capability, self.device.name)
        try:
            product(point) if point.family == "gemm" else bodies.named(point, self.engine.capability)
        except DeviceError as error:
            return str(error)
        return ""

    def prepare(self, point: Point) -> Prepared:
        """Compile, allocate and fill; DeviceError or MemoryError with the cause."""
        if self._lost:
            raise ContextLost(self._lost)
        if reason := self.unsupported(point):
            raise DeviceError(reason)
        try:
            self.engine.stream.use()  # whoever made another current: memory and libraries go by it
            with contained(f"preparing {point.precision.label} {point.kernel}"):
                prepared = self._prepare(point)
                if task := getattr(prepared.handle, "task", None):
                    self.batches.start(task)
        except ContextLost as error:
            self._lost = str(error)
            raise
        except MemoryError:
            self.engine.reclaim()
            raise
        return prepared

    def verify(self, prepared: Prepared) -> None:
        """Compare with the reference; VerificationError if it differs."""
        self._guarded(prepared.handle.check)

    def warm_up(self, seconds: float) -> None:
        """Run the fp32 chain until the SM clock is flat, at most `seconds` (all of them without a clock)."""
        prepared = self.prepare(Point("fma", "fma", "", Precision.of("fp32"), scope="device"))
        task, clocks, began = prepared.handle.task, [], self.now()
        amount = 1
        while self.now() - began < seconds:
            batch = self._guarded(partial(self.batches.run, task, amount, 1))
            amount = max(1, min(prepared.most, int(amount * WARM_BATCH / batch.seconds[0])))
            clocks.append(self.board.moment().get("sm_clock_hz"))
            if self.now() - began >= LEAST_WARM and is_flat(clocks):
                break
        self.release(prepared)

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """n repetitions: a launch of `amount` trips each (chains), else `amount` launches."""
        batch = self._guarded(partial(self._timed, prepared, amount, n))
        spans = [(start, start + s) for start, s in zip(batch.starts, batch.seconds, strict=True)]
        windows = [self._telemetry.between(*span) for span in spans]
        prepared.facts |= batch.evidence
        if prepared.point.family in ("link", "overlap"):
            prepared.facts |= under_load(windows)
        if clocks := known(windows, "memory_clock_hz"):
            prepared.facts["memory_clock_hz"] = median(clocks)
        self._add_energy(prepared, spans)
        return Repetitions(
            start=batch.starts,
            seconds=batch.seconds,
            clock_hz=known(windows, "clock_hz"),
            power_w=() if windows[0].whole_board else known(windows, "power_w"),
            temperature_c=known(windows, "temperature_c"),
            throttle=tuple(window.throttle for window in windows) if self.board.library else (),
        )

    def release(self, prepared: Prepared) -> None:
        """Give the memory back."""
        if prepared.handle is not None:
            prepared.handle.close()
            prepared.handle = None
        if not self._lost:
            self._guarded(self.engine.reclaim)  # a fault that nobody waited for may appear here first

    def conditions(self) -> Mapping[str, Any]:
        """What NVML reads now, and the free memory."""
        return {**self.board.reading(own_context=True), "free_bytes": self.engine.free_bytes()}

    def now(self) -> float:
        """Monotonic seconds."""
        return self.engine.now()

    # -- inside ------------------------------------------------------------------------------------

    def _timed(self, prepared: Prepared, amount: int, n: int) -> Batch:
        """The repetitions of a task; of a handle that times itself, its own."""
        handle = prepared.handle
        if hasattr(handle, "measure"):
            taken = handle.measure(amount, n)
            return Batch(taken.start, taken.seconds)
        batch = self.batches.run(handle.task, amount, n)
        prepared.facts |= handle.told(amount, batch)
        return batch

    def _maker(self, family: str) -> Any:
        """What prepares the points of a family, loaded when it is asked for."""
        if family not in self._makers:
            module, name = MAKERS[family].split(":")
            self._makers[family] = getattr(import_module(module), name)(self.bodies)
        return self._makers[family]

    def _prepare(self, point: Point) -> Prepared:
        if point.family in MAKERS:
            made: Prepared = self._maker(maker_of(point)).prepare(point)
            return made
        if point.family == "gemm":
            return self._product(point)
        if point.family == "workload":
            prepared: Prepared = import_module(WORKLOADS).prepare(point, self.engine)
            return prepared
        return self.bodies.prepare(point)

    def _product(self, point: Point) -> Prepared:
        """A product by the library that the variant names."""
        kind, what = product(point), f"{point.precision.label} product by {point.variant}"
        made = self._library(point.variant).prepare(point)
        task = Task(what, lambda amount: made.launch())

        def done(amount: int) -> Work:
            return work(point, kind, amount)

        def check() -> None:
            with translated(what):
                made.launch()
            made.operands.check(what)

        facts = {**made.facts, **self.engine.versions()}
        ready = Ready(task, check, [made.operands], made.close)
        most = MOST_SMALL if done(1).flops <= SMALL_PRODUCT else MOST_LAUNCHES
        return Prepared(point, done, 1, most, 1, facts, ready)

    def _library(self, name: str) -> Any:
        if name not in self._libraries:
            if name == "cublas":
                self._libraries[name] = Cublas(self.engine)
            else:
                blaslt = import_module("bench.gpu.blaslt")
                self._libraries[name] = blaslt.CublasLt(self.engine, self._launch_seconds)
        return self._libraries[name]

    def _launch_seconds(self, launch: Callable[[], Any]) -> float:
        """Seconds of one launch, the least of three."""
        task = Task("choosing an algorithm", lambda amount: launch())
        return min(self.batches.run(task, 1, 3).seconds)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run something on the GPU; once its context is lost, say so without trying again."""
        if self._lost:
            raise ContextLost(self._lost)
        try:
            self.engine.stream.use()
            with contained("a call of CuPy"):
                return action()
        except ContextLost as error:
            self._lost = str(error)
            raise

    def _add_energy(self, prepared: Prepared, spans: list[tuple[float, float]]) -> None:
        """Energy and time of the repetitions of a batch that lasted long enough, added to those before."""
        first, last = spans[0][0], spans[-1][1]
        if last - first < ENERGY_SECONDS:
            return
        window, facts = self._telemetry.between(first, last), prepared.facts
        if window.whole_board:  # of all slices together: no energy of this one
            facts["board_power_w"] = window.power_w
        elif window.energy_j is not None:
            facts["energy_j"] = facts.get("energy_j", 0.0) + window.energy_j
            facts["energy_seconds"] = facts.get("energy_seconds", 0.0) + last - first


def known(windows: list[Window], name: str) -> tuple[float, ...]:
    """One value a repetition, () where the board does not tell it for all."""
    values = [getattr(window, name) for window in windows]
    return () if any(value is None for value in values) else tuple(float(value) for value in values)


def under_load(windows: list[Window]) -> dict[str, int]:
    """Generation and width of the PCIe link while it was used, the most seen; {} where it is not told."""
    seen = {name: [w for w in (getattr(window, name) for window in windows) if w] for name in PCIE}
    return {name: max(values) for name, values in seen.items() if values}


def is_flat(clocks: list[float | None]) -> bool:
    """Whether the last readings of the clock agree; never without a clock."""
    last = [clock for clock in clocks[-FLAT_READINGS:] if clock]
    return len(last) == FLAT_READINGS and max(last) - min(last) <= FLAT * max(last)
